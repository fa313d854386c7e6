"""The page of a plan is whole, needs nothing from outside, and never turns text into markup."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.decoding.generation import ContextTimes  # noqa: E402
from attnlimit.models import LoadedModel  # noqa: E402
from attnlimit.models.texts import Passage, Passages  # noqa: E402
from attnlimit.planning.calibration import calibration_of  # noqa: E402
from attnlimit.planning.comparison import CACHE_TYPES, compare  # noqa: E402
from attnlimit.planning.target import NextToken  # noqa: E402
from attnlimit.report.model_page import Decoding  # noqa: E402
from attnlimit.report.page import escape  # noqa: E402
from made_page import HOSTILE, made_comparison, made_page  # noqa: E402


@pytest.fixture(scope="module")
def comparison():
    return made_comparison()


@pytest.fixture
def text(comparison, tmp_path):
    return made_page(tmp_path / "page.html", comparison).read_text()


def without_plotly(text):
    return re.sub(r'<script id="plotly">.*?</script>', "", text, flags=re.DOTALL)


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL).group(1))


def test_a_page_embeds_plotly_once_and_needs_no_network(text):
    assert text.count('<script id="plotly">') == 1
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert not re.search(r'(src|href)="(https?:)?//', without_plotly(text))


def test_names_stay_text(comparison, text, tmp_path):
    rest = without_plotly(text)
    assert HOSTILE not in rest
    assert "made<b>" not in rest
    page = made_page(tmp_path / "text.html", comparison, made_decoding(comparison.plan, HOSTILE))
    assert HOSTILE not in without_plotly(page.read_text())
    assert "The text it writes" in page.read_text()


def made_decoding(plan, text):
    """Fast decoding that wrote a text."""
    stats = SimpleNamespace(keys=4.0, mean_visible=90.0)
    numbers = {"tokens": 5, "kl": 0.011, "kl_stderr": 0.002, "stats": stats}
    written = SimpleNamespace(texts=(text,), dense_texts=(text,), **numbers)
    columns = {"ms": 1.5, "dense, ms": 6.0, "predicted, ms": 1.4, "predicted dense, ms": 6.2}
    columns |= {"MB": 0.5, "dense, MB": 9.0, "predicted, MB": 0.6}
    rows = [{"tokens": tokens} | columns for tokens in (100, 4000)]
    return Decoding(plan, written, ContextTimes(pd.DataFrame(rows)))


def test_a_page_with_fast_decoding_leads_with_what_it_saves(comparison, tmp_path):
    page = made_page(tmp_path / "fast.html", comparison, made_decoding(comparison.plan, "so on"))
    text = page.read_text()
    assert "After 4,000 tokens made&lt;b&gt;model&lt;/b&gt; attends in 1.5 ms instead of 6" in text
    assert "What it saves" in text
    lines = data_of(text)["figures"][0]["panels"][0]["series"]
    assert [line["style"] for line in lines] == ["line", "points"] * 2
    assert lines[1]["x"] == [100, 4000]


def test_the_page_shows_the_plan_it_was_given(comparison, text):
    data, plan = data_of(text)["output"], comparison.plan
    assert escape(comparison.headline()) in text
    level = data["levels"][data["chosen"]]
    assert level["target"] == pytest.approx(plan.target.distance)
    assert level["keys"] == pytest.approx(plan.mean_keys, rel=1e-4)
    assert level["option"] == "--cosine 0.999"
    assert sum(level["headShares"]) == pytest.approx(1, abs=0.05)
    assert len(level["headKeys"]) == 6
    targets = [row["target"] for row in data["levels"]]
    assert targets == sorted(targets)
    assert {row["name"] for row in data["schemes"] if row["measured"]["x"]} == {
        "threshold", "top-k + sample", "top-k", "top-p", "sinks + recent",
    }  # fmt: skip


def test_sentences_say_what_was_predicted_and_measured(comparison):
    lines = "\n".join(comparison.lines())
    assert "Predicted from 1 passage" in lines
    assert "Measured on a passage that was not planned on, 2 runs" in lines
    assert "made<b>model</b> keeps its embedding within 0.1 %" in lines
    stored = replace(comparison, evaluation=None)
    assert "a capture has no model to run" in stored.measurement()


def test_a_causal_page_has_bars_a_long_context_and_cache_types(tmp_path):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, intermediate_size=64, initializer_range=0.15,
    )  # fmt: skip
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    loaded = LoadedModel("made", network, None, "0" * 64, "made", "none")
    ids = tuple(torch.randint(0, 99, (160,)).tolist())
    passages = Passages((Passage("wikipedia:Made", "made", "none", 0, ids),), None)
    target = NextToken(0.01)
    calibration = calibration_of(loaded, passages.ids, target, probes=2, seed=0)
    options = {"minimise": "bytes_read"}
    result = compare(loaded, passages, calibration, target, options=options, repeats=2, curves=True)
    page = made_page(tmp_path / "page.html", result).read_text()
    assert "prompt keys stored" in page
    assert "At 131,072 tokens" in page
    assert "What a quantised cache costs" in page
    assert set(result.cache_types) == set(CACHE_TYPES)
    assert all(plan.predicted <= plan.target.distance for plan in result.alternatives)
