"""Real transformers: capture every head, predict its convergence, measure it, thin the model."""

from attnlimit.models.capture import capture, capture_windows
from attnlimit.models.captured import Capture, CapturedHead
from attnlimit.models.corpora import Corpus, Document, read_corpus, wikipedia
from attnlimit.models.load import LoadedModel, load

__all__ = [
    "Capture",
    "CapturedHead",
    "Corpus",
    "Document",
    "LoadedModel",
    "capture",
    "capture_windows",
    "load",
    "read_corpus",
    "wikipedia",
]
