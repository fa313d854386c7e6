"""The KL after a cut, predicted before it: held to cuts that were made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models import (  # noqa: E402
    Evict,
    SnapKV,
    eviction_error,
    eviction_errors,
    output_weights,
    try_evict,
)
from attnlimit.models.output.target import NextToken  # noqa: E402
from attnlimit.models.spend.evict.try_evict import read_on  # noqa: E402


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
    )
    found = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    return found.eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 61, (72,), generator=torch.Generator().manual_seed(5)).tolist()


def test_predicted_is_what_cuts_do(model, ids):
    rules = {str(keep): Evict(keep, 8, recent=4) for keep in (0.9, 0.8, 0.5)}
    predicted = eviction_errors(model, ids, rules, prompt=48, probes=48)
    measured = try_evict(model, ids, rules, prompt=48, repeats=24)
    assert [guess.trusted for guess in predicted.values()] == [True, True, False]
    for name, guess in predicted.items():
        found = measured[name]
        error = np.hypot(found.stderr, guess.stderr)
        missed = 0.15 * found.kl if guess.trusted else guess.numerical_error
        assert abs(guess.kl - found.kl) <= 4 * error + missed
        assert guess.contributions.sum() == pytest.approx(guess.kl)
        assert guess.kept.sum() == pytest.approx(2 * 2 * rules[name].size(48))
        assert len(guess.to_frame()) == 4
    assert predicted["0.8"].kl < predicted["0.5"].kl


def test_sizes_by_the_output_lose_less_of_it(model, ids):
    weights = output_weights(model, ids[:48], probes=16)
    other = output_weights(model, ids[24:], probes=16, seed=1)
    assert weights.shape == (2, 2)
    assert np.corrcoef(np.log(weights).ravel(), np.log(other).ravel())[0, 1] > 0.9
    rules = {"common": Evict(0.5, 8, recent=4), "output": Evict(0.5, 8, recent=4, sizes=weights)}
    found = eviction_errors(model, ids, rules, prompt=48, probes=48)
    assert found["output"].kept.sum() == pytest.approx(found["common"].kept.sum())
    assert found["output"].kl < found["common"].kl
    assert rules["output"] == Evict(0.5, 8, recent=4, sizes=weights.tolist())
    assert rules["output"].name == "weighted 50 % by output"


@pytest.mark.parametrize(
    ("sizes", "message"), [("all", "sizes"), ([1.0, 2.0], "shape"), ([[1.0, -1.0]], "positive")]
)
def test_sizes_that_are_none_are_refused(sizes, message):
    with pytest.raises(BadInput, match=message):
        Evict(0.5, sizes=sizes)


def test_sizes_of_another_model_are_refused(model, ids):
    with pytest.raises(BadInput, match="the model has 2 of 2"):
        eviction_error(model, ids, Evict(0.5, 8, sizes=np.ones((3, 2))), probes=2)


def test_some_of_the_tokens_after_a_cut_can_be_asked(model, ids):
    rules = {"half": Evict(0.5, 8, recent=4)}
    predicted = eviction_errors(model, ids, rules, prompt=48, first=64, probes=48)["half"]
    assert (predicted.prompt, predicted.after) == (48, 8)
    runs = read_on(model, torch.tensor([ids]), rules, 48, repeats=24, seed=0)
    _, full, _ = next(runs)
    target = NextToken()
    found = [target.distance(full[16:], logs[16:]) for _, logs, _ in runs]
    error = np.hypot(predicted.stderr, np.std(found, ddof=1) / len(found) ** 0.5)
    assert abs(predicted.kl - np.mean(found)) <= 4 * error + 0.15 * np.mean(found)
    with pytest.raises(BadInput, match="first must be at least 48"):
        eviction_errors(model, ids, rules, prompt=48, first=40)
    with pytest.raises(BadInput, match="first must be below that, got 72"):
        eviction_errors(model, ids, rules, prompt=48, first=72)


def test_half_of_the_text_stands_in_for_what_comes(model, ids):
    found = eviction_error(model, ids, Evict(0.5, 8, recent=4), probes=2)
    assert (found.prompt, found.after) == (36, 36)
    assert "predicted over 36 tokens" in str(found)


def test_a_cache_that_its_sure_keys_fill_is_not_trusted(model, ids):
    rules = {"filled": Evict(0.25, 8, recent=20), "all": Evict(1.0, 8, recent=20)}
    found = eviction_errors(model, ids, rules, prompt=48, probes=2)
    assert not found["filled"].trusted
    assert found["all"].trusted
    assert found["all"].kl == pytest.approx(0, abs=1e-9)


def test_what_cannot_be_predicted_is_refused(model, ids):
    with pytest.raises(BadInput, match="draws nothing"):
        eviction_error(model, ids, SnapKV(0.5))
    with pytest.raises(BadInput, match="must be shorter"):
        eviction_error(model, ids, Evict(0.5), prompt=72)
    with pytest.raises(BadInput, match="rules by name"):
        eviction_errors(model, ids, {})
