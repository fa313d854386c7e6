"""Weak attention without pairs of queries: what is left out is bounded, against draws."""

import numpy as np
import pytest
from scipy.special import softmax

from attnlimit.theory.moments import WhitenedHead
from attnlimit.theory.pairs.weak import weak_mean_error

RNG = np.random.default_rng(4)
SCORES = {
    "random": (RNG.standard_normal((4, 4)) / 20, np.zeros(4)),
    "own tokens": (0.15 * np.eye(3), np.zeros(3)),
    "turned away": (-0.15 * np.eye(3), np.zeros(3)),
    "offset": (RNG.standard_normal((2, 2)) / 10, np.array([0.2, -0.1])),
}


def first_order(white, n):
    """E|ybar + W b(ybar) - offset|^2, from E[W M W] of a Wishart matrix."""
    free, metric = n - 1, white.metric
    square = ((free**2 + free) * metric + free * np.trace(metric) * np.eye(len(metric))) / n**2
    common = metric + 2 * free / n * white.B @ metric + square @ white.tilt_cov
    away = square - 2 * free / n * metric + metric
    return np.trace(common) / n + white.offset @ away @ white.offset


@pytest.mark.parametrize("n", [10, 60])
@pytest.mark.parametrize("kind", SCORES)
def test_what_is_left_out_is_bounded(kind, n):
    B, offset = SCORES[kind]
    white = WhitenedHead(B, offset, np.random.default_rng(1).standard_normal((2, len(B))))
    keys = np.random.default_rng(n).standard_normal((600_000 // n**2, n, len(B)))
    weights = softmax(white.tilts(keys) @ np.swapaxes(keys, 1, 2), axis=2)
    outputs = (weights.mean(axis=1)[:, None, :] @ keys)[:, 0] - offset
    middle = keys.mean(axis=1)
    apart = keys - middle[:, None]
    spread = np.swapaxes(apart, 1, 2) @ apart / n
    linear = middle + (spread @ white.tilts(middle)[..., None])[..., 0] - offset
    gap = (outputs @ white.values.T) ** 2 - (linear @ white.values.T) ** 2
    gap = gap.sum(axis=1)
    measured = first_order(white, n) + gap.mean()
    found = weak_mean_error(white, np.array([n]))
    stderr = gap.std() / np.sqrt(len(gap))
    assert abs(found.mse[0] - measured) < found.numerical_error[0] + 3 * stderr
    assert found.numerical_error[0] < 0.1 * found.mse[0]
    assert stderr < 0.02 * measured


def test_strong_attention_is_not_weak():
    assert weak_mean_error(WhitenedHead(np.eye(2), np.zeros(2), np.eye(2)), np.array([10])) is None
