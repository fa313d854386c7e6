"""Real transformers: capture every head, predict its convergence, measure it, thin the model."""

from attnlimit.models.arrays import from_arrays
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.models.captures import Capture, capture, capture_windows, open_capture
from attnlimit.models.heads.curves import measure_capture, predict_capture
from attnlimit.models.heads.delta import DeltaCurves, delta_curves
from attnlimit.models.heads.temperature import HeadTemperatures
from attnlimit.models.load.addresses import addresses
from attnlimit.models.load.articles import wikipedia
from attnlimit.models.load.corpora import read_corpus
from attnlimit.models.load.corpus import Corpus, Document
from attnlimit.models.load.load import LoadedModel, load
from attnlimit.models.output.error import OutputError, output_error, output_errors
from attnlimit.models.output.eviction import EvictionError, eviction_error, eviction_errors
from attnlimit.models.output.plan import plan_output
from attnlimit.models.output.planned import OutputPlan
from attnlimit.models.output.weights import output_weights
from attnlimit.models.spend.evict.evict import Evict
from attnlimit.models.spend.evict.expected import ExpectedAttention
from attnlimit.models.spend.evict.snapkv import SnapKV
from attnlimit.models.spend.evict.streaming import StreamingLLM
from attnlimit.models.spend.evict.tova import Tova
from attnlimit.models.spend.evict.try_evict import EvictionTrial, try_evict
from attnlimit.models.spend.spend import spend
from attnlimit.models.spend.spent import Spent
from attnlimit.models.spend.try_samplers import Trial, try_samplers

__all__ = [
    "Capture",
    "CapturedHead",
    "Corpus",
    "DeltaCurves",
    "Document",
    "Evict",
    "EvictionError",
    "EvictionTrial",
    "ExpectedAttention",
    "HeadTemperatures",
    "LoadedModel",
    "OutputError",
    "OutputPlan",
    "SnapKV",
    "Spent",
    "StreamingLLM",
    "Tova",
    "Trial",
    "addresses",
    "capture",
    "capture_windows",
    "delta_curves",
    "eviction_error",
    "eviction_errors",
    "from_arrays",
    "load",
    "measure_capture",
    "open_capture",
    "output_error",
    "output_errors",
    "output_weights",
    "plan_output",
    "predict_capture",
    "read_corpus",
    "spend",
    "try_evict",
    "try_samplers",
    "wikipedia",
]
