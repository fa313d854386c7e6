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
    evaluate,
    output_error,
    output_errors,
    output_weights,
)
from attnlimit.models.passes import encode  # noqa: E402
from attnlimit.planning.changes import as_change  # noqa: E402
from attnlimit.planning.error import changed_runs  # noqa: E402
from attnlimit.planning.target import NextToken  # noqa: E402


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
    result = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in result.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    return result.eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 61, (72,), generator=torch.Generator().manual_seed(5)).tolist()


def test_predicted_is_what_cuts_do(model, ids):
    rules = {str(keep): Evict(keep, 8, recent=4) for keep in (0.9, 0.8, 0.5)}
    predicted = output_errors(model, ids, rules, prompt=48, probes=48)
    measured = {
        name: evaluate(model, ids, rule, prompt=48, repeats=24) for name, rule in rules.items()
    }
    assert [guess.trusted for guess in predicted.values()] == [True, True, False]
    for name, guess in predicted.items():
        actual = measured[name]
        error = np.hypot(actual.stderr["kl"], guess.stderr)
        missed = 0.15 * actual.kl if guess.trusted else guess.numerical_error
        assert abs(guess.kl - actual.kl) <= 4 * error + missed
        assert guess.contributions.sum() == pytest.approx(guess.kl)
        assert guess.keys.sum() == pytest.approx(2 * 2 * rules[name].size(48))
        assert len(guess.to_frame()) == 4
    assert predicted["0.8"].kl < predicted["0.5"].kl


def test_sizes_by_the_output_lose_less_of_it(model, ids):
    weights = output_weights(model, ids[:48], probes=16)
    other = output_weights(model, ids[24:], probes=16, seed=1)
    assert weights.shape == (2, 2)
    assert np.corrcoef(np.log(weights).ravel(), np.log(other).ravel())[0, 1] > 0.9
    rules = {"common": Evict(0.5, 8, recent=4), "output": Evict(0.5, 8, recent=4, sizes=weights)}
    errors = output_errors(model, ids, rules, prompt=48, probes=48)
    assert errors["output"].keys.sum() == pytest.approx(errors["common"].keys.sum())
    assert errors["output"].kl < errors["common"].kl
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
        output_error(model, ids, Evict(0.5, 8, sizes=np.ones((3, 2))), probes=2)


def test_some_of_the_tokens_after_a_cut_can_be_predicted(model, ids):
    rule = Evict(0.5, 8, recent=4)
    predicted = output_error(
        model, ids, rule, prompt=48, output=NextToken(first=64), probes=48, check=False
    )
    change = as_change(rule, 48).bound_to(model, 72)
    runs = changed_runs(model, encode(model, ids), change, range(24))
    target = NextToken(first=16)
    dense = target.read(next(runs)[0])
    results = [target.between(dense, target.read(outputs)) for outputs, _ in runs]
    error = np.hypot(predicted.stderr, np.std(results, ddof=1) / len(results) ** 0.5)
    assert abs(predicted.kl - np.mean(results)) <= 4 * error + 0.15 * np.mean(results)


def test_half_of_the_text_stands_in_for_what_comes(model, ids):
    error = output_error(model, ids, Evict(0.5, 8, recent=4), probes=2)
    assert error.prompt == 36
    assert "after a prompt of 36, keeping" in str(error)


def test_a_cache_that_its_sure_keys_fill_is_not_trusted(model, ids):
    rules = {"filled": Evict(0.25, 8, recent=20), "all": Evict(1.0, 8, recent=20)}
    errors = output_errors(model, ids, rules, prompt=48, probes=2)
    assert not errors["filled"].trusted
    assert errors["all"].trusted
    assert errors["all"].kl == pytest.approx(0, abs=1e-9)


def test_what_cannot_be_predicted_is_refused(model, ids):
    with pytest.raises(BadInput, match="draws nothing"):
        output_error(model, ids, SnapKV(0.5))
    with pytest.raises(BadInput, match="leave two"):
        output_error(model, ids, Evict(0.5), prompt=72)
    with pytest.raises(BadInput, match="changes by name"):
        output_errors(model, ids, {})


@pytest.mark.parametrize(("weight", "chance"), [(0.9, 0.1), (0.5, 0.25), (0.01, 0.5)])
def test_a_cut_of_a_heavy_key_costs_more_than_first_order(weight, chance):
    """docs/theory/eviction.md, eq. 3: one key is drawn, all others stay."""
    values = np.array([3.0, 1.0, -2.0])
    weights = np.array([weight, *((1 - weight) * np.array([0.3, 0.7]))])
    exact = weights @ values
    errors = []
    for factor in (1 / chance, 0.0):
        changed = weights * [factor, 1, 1]
        errors.append((changed @ values / changed.sum() - exact) ** 2)
    mean = chance * errors[0] + (1 - chance) * errors[1]
    more = 1 / chance - 1
    first = more * (weight * (values[0] - exact)) ** 2
    ratio = chance * more**2 / (1 + more * weight) ** 2 + (1 - chance) / (1 - weight) ** 2
    ratio /= (1 - chance) / chance
    np.testing.assert_allclose(mean / first, ratio)
    assert weight < 0.9 or abs(ratio - 10) < 0.1
