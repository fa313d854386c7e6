"""Every predicted curve of a captured head, against drawing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.models import curves
from attnlimit.models.captures import capture
from attnlimit.models.curves import measure_capture, predict_capture
from attnlimit.samplers import (
    Iid,
    Keep,
    SinksAndRecent,
    TopK,
    Window,
    WithoutReplacement,
)

HEADS = [(0, 0), (1, 8), (4, 5)]


def agree(predicted, measured, slack=0.0):
    gap = np.abs(predicted.value - measured.value)
    assert (gap < 4.5 * measured.stderr + slack * measured.value + 1e-12).all(), (
        predicted.value,
        measured.value,
        measured.stderr,
    )


@pytest.mark.parametrize(("layer", "head"), HEADS)
def test_pointwise_error_of_independent_draws(cap, layer, head):
    place = {"layer": layer, "head": head}
    predicted = predict_capture(cap, "pointwise", [4, 16, 64], **place)
    agree(predicted, measure_capture(cap, "pointwise", [4, 16, 64], 400, **place))
    assert predicted.method == "exact law"


def test_pointwise_error_without_replacement(cap):
    options = {"layer": 1, "head": 3, "sampler": WithoutReplacement()}
    predicted = predict_capture(cap, "pointwise", [8, 64, 128], **options)
    agree(predicted, measure_capture(cap, "pointwise", [8, 64, 128], 600, **options))
    assert predicted.value[-1] == pytest.approx(0, abs=1e-10)
    with pytest.raises(BadInput, match="too many"):
        predict_capture(cap, "pointwise", [500], **options)


def test_covariance_is_refused(cap):
    for options in ({}, {"sampler": WithoutReplacement()}, {"method": "delta"}):
        with pytest.raises(BadInput, match="use measure"):
            predict_capture(cap, "covariance", [8], **options)


def test_the_mean_of_different_tokens_has_a_first_order_law_only(cap):
    with pytest.raises(BadInput, match="delta"):
        predict_capture(cap, "mean", [8], sampler=WithoutReplacement())


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "head"), HEADS)
def test_error_of_the_mean_by_the_two_query_law(cap, layer, head):
    place = {"layer": layer, "head": head}
    predicted = predict_capture(cap, "mean", [16, 64], **place)
    measured = measure_capture(cap, "mean", [16, 64], 3000, **place)
    agree(predicted, measured, slack=0.08)


@pytest.mark.parametrize("statistic", ["pointwise", "mean"])
@pytest.mark.parametrize(
    "sampler",
    [
        Window(16, random=20),
        SinksAndRecent(4, 16),
        TopK(12),
        Keep(TopK(8), sample=24),
        Keep(TopK(8), sample=24, weighted=False),
        Keep(SinksAndRecent(2, 8), sample=20),
    ],
    ids=repr,
)
def test_schemes_that_keep_keys(cap, sampler, statistic):
    options = {"layer": 2, "head": 1, "sampler": sampler}
    predicted = predict_capture(cap, statistic, **options)
    measured = measure_capture(cap, statistic, replicates=300, **options)
    agree(predicted, measured, slack=2e-3)
    assert predicted.n == measured.n


def test_the_mean_with_a_sampler_is_over_all_queries():
    """Plain numpy: 200 queries, more than are looked at where errors of queries are averaged."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 200, 3))
    head, c = al.models.from_arrays(q, k, v, causal=False, scale=0.4), 8.0
    weights = np.exp(0.4 * q @ k.T)
    weights /= weights.sum(axis=1, keepdims=True)
    chances = np.minimum(1, c * weights)
    uncertain = (chances < 1).all(axis=1)
    chances[uncertain, weights[uncertain].argmax(axis=1)] = 1
    rng, squares = np.random.default_rng(1), []
    for _ in range(1500):
        drawn = weights / chances * (rng.random(weights.shape) < chances)
        error = drawn @ v / drawn.sum(axis=1, keepdims=True) - weights @ v
        squares.append((error.mean(axis=0) ** 2).sum())
    slack = 4 * np.std(squares) / len(squares) ** 0.5
    for curve in (
        al.predict(head, "mean", sampler=al.Threshold(c)),
        al.measure(head, "mean", sampler=al.Threshold(c), replicates=300),
    ):
        assert abs(curve.value[0] - np.mean(squares)) < slack + 4 * curve.stderr[0]


@pytest.fixture(scope="module")
def causal():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48,
    )  # fmt: skip
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
    return capture(model, torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2)))


@pytest.mark.parametrize("sampler", [Iid(), WithoutReplacement(), Keep(TopK(4), sample=10)])
def test_causal_heads_draw_among_the_keys_they_see(causal, sampler):
    options = {"layer": 1, "head": 2, "sampler": sampler}
    counts = [8] if isinstance(sampler, (Iid, WithoutReplacement)) else None
    predicted = predict_capture(causal, "pointwise", counts, **options)
    agree(predicted, measure_capture(causal, "pointwise", counts, 600, **options), slack=2e-3)


@pytest.mark.slow
def test_the_mean_of_a_causal_head(causal):
    predicted = predict_capture(causal, "mean", [12, 40], layer=1, head=2)
    agree(predicted, measure_capture(causal, "mean", [12, 40], 3000, layer=1, head=2), slack=0.08)


def test_predict_and_measure_take_a_capture(cap):
    assert al.predict(cap, "pointwise", [8], layer=1, head=2).diagnostics.head == 2
    curve = al.measure(cap, "covariance_norm", [8, 16], replicates=50, layer=1, head=2)
    assert curve.replicates == 50
    assert (curve.value > 0).all()


def test_the_delta_method_says_where_it_is_unreliable(cap):
    curve = predict_capture(cap, "mean", [4, 10**6], layer=1, head=8, method="delta")
    assert curve.diagnostics.reliable.tolist() == [False, True]
    assert "unreliable at n = 4" in curve.notes[0]
    point = predict_capture(cap, "pointwise", [10**6], layer=1, head=8, method="delta")
    exact = predict_capture(cap, "pointwise", [10**6], layer=1, head=8)
    np.testing.assert_allclose(point.value, exact.value, rtol=1e-2)


@pytest.mark.parametrize("where", ["encoder", "causal"])
def test_the_delta_method_is_near_where_it_is_called_reliable(cap, causal, where):
    """`MAX_PARTICIPATION` was set on another model."""
    capture, told = {"encoder": cap, "causal": causal}[where], 0
    for layer, head in ((0, 0), (1, 2)):
        for statistic in ("mean", "pointwise"):
            first, exact = (
                predict_capture(capture, statistic, [8, 32, 128, 512], layer=layer, head=head,
                                method=method)
                for method in ("delta", "exact")
            )  # fmt: skip
            near = first.diagnostics.reliable
            told += int(near.sum())
            np.testing.assert_allclose(first.value[near], exact.value[near], rtol=0.3)
    assert told >= 4


def test_what_cannot_be_predicted_is_refused(cap):
    cases = [
        ({"statistic": "median", "n": [8]}, "statistic"),
        ({"statistic": "mean"}, "Give n"),
        ({"statistic": "mean", "n": [8], "layer": 6}, "no layer 6"),
        ({"statistic": "mean", "n": [8], "head": -13}, "no head -13"),
        ({"statistic": "mean", "n": []}, "n is empty"),
        ({"statistic": "mean", "n": [[8]]}, "n must"),
        ({"statistic": "mean", "sampler": TopK(3), "method": "delta"}, "delta method"),
        ({"statistic": "mean", "sampler": "all"}, "not a sampler"),
        ({"statistic": "mean", "n": [8], "method": "guess"}, "method"),
    ]
    for options, message in cases:
        with pytest.raises(BadInput, match=message):
            predict_capture(cap, **options)
    with pytest.raises(BadInput, match="replicates"):
        measure_capture(cap, "mean", [8], 1)


def plain_threshold(q, k, v, c, replicates, seed):
    """Threshold sampling by its definition, in numpy: (replicates, N, d) outputs, and the truth."""
    rng = np.random.default_rng(seed)
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    chance = np.minimum(1, c * weights)
    sure = (chance == 1).any(1)
    chance[~sure, weights[~sure].argmax(1)] = 1
    outputs = []
    for _ in range(replicates):
        kept = weights / chance * (rng.random(weights.shape) < chance)
        outputs.append(kept @ v / kept.sum(1, keepdims=True))
    return np.array(outputs), weights @ v


def test_the_mean_is_over_every_query():
    rng = np.random.default_rng(4)
    size = 300
    q, k, v = (rng.normal(size=(size, 4)) for _ in range(3))
    own = al.models.from_arrays(q, k, v, causal=False)
    sampler = al.Threshold(8)
    outputs, truth = plain_threshold(q, k, v, 8, 300, 5)
    drawn = ((outputs.mean(1) - truth.mean(0)) ** 2).sum(1)
    point = ((outputs - truth) ** 2).sum(2).mean(1)
    for statistic, values in (("mean", drawn), ("pointwise", point)):
        stderr = values.std(ddof=1) / np.sqrt(len(values))
        predicted = al.predict(own, statistic, sampler=sampler)
        measured = al.measure(own, statistic, replicates=200, sampler=sampler)
        assert abs(predicted.value[0] - values.mean()) < 4 * stderr
        spread = np.hypot(stderr, measured.stderr[0])
        assert abs(measured.value[0] - values.mean()) < 4 * spread


def test_blocks_of_queries_give_the_same_curve(cap, monkeypatch):
    options = {"layer": 2, "head": 1, "sampler": al.Threshold(8)}
    whole = predict_capture(cap, "mean", **options)
    monkeypatch.setattr(curves, "BLOCK_SCORES", 999)
    np.testing.assert_allclose(predict_capture(cap, "mean", **options).value, whole.value)
