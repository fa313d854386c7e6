"""Probes of a target measure its small changes, and its limit of trust knows how sure it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.constants import KL_LIMIT
from attnlimit.errors import BadInput
from attnlimit.planning.target import TARGETS, NextToken, target_of

LOGITS = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.double)
PROBES = 4000


def gradients(logits: torch.Tensor) -> torch.Tensor:
    """Gradients of many probes at the logits, (probes, positions * tokens)."""
    logits = logits.clone().requires_grad_()
    read = torch.log_softmax(logits, -1)
    scalars = NextToken().probes(read, PROBES, torch.Generator().manual_seed(1))
    results = [torch.autograd.grad(scalar, logits, retain_graph=True)[0] for scalar in scalars]
    return torch.stack(results).flatten(1)


@pytest.mark.parametrize("sharpness", [1.0, 6.0])
def test_gradients_of_probes_are_fishers(sharpness):
    logits = sharpness * LOGITS
    result = gradients(logits)
    chance = torch.softmax(logits, -1)
    fisher = torch.block_diag(*(torch.diag(p) - torch.outer(p, p) for p in chance))
    products = result[:, :, None] * result[:, None, :]
    error = products.std(0) / PROBES**0.5
    assert ((products.mean(0) - fisher).abs() <= 5 * error + 1e-12).all()


def test_no_token_is_rare_where_the_model_is_sure():
    """A token that is drawn is the likely one nearly always, and its gradient next to nothing."""
    logits = torch.zeros(5, 50, dtype=torch.double)
    logits[:, 0] = 7.0
    squares = gradients(logits).square().sum(1)
    chance = torch.softmax(logits, -1)
    drawn = torch.multinomial(chance, PROBES, True, generator=torch.Generator().manual_seed(2)).T
    plain = (torch.nn.functional.one_hot(drawn, 50) - chance).square().sum((1, 2))
    both = torch.hypot(squares.std(), plain.std()) / PROBES**0.5
    assert abs(squares.mean() - plain.mean()) < 4 * both
    assert squares.std() < plain.std() / 3


def test_a_model_that_is_sure_is_trusted_less_far():
    read = torch.log_softmax(LOGITS, -1)
    sure = torch.log_softmax(20 * LOGITS, -1)
    flat = torch.log_softmax(0 * LOGITS, -1)
    assert NextToken().limit(flat) == KL_LIMIT
    assert NextToken().limit(sure) < 0.2 * NextToken().limit(read) < 0.2 * KL_LIMIT * 1.001


def test_perplexity_grows_by_the_exponential_of_the_kl():
    target = target_of("perplexity", 1.05)
    assert target.distance == pytest.approx(np.log(1.05))
    assert target.to_value(target.distance) == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("name", "value"), [("kl", 1e-8), ("perplexity", 1 + 1e-8), ("cosine", 1 - 1e-8)]
)
def test_a_target_below_rounding_is_refused(name, value):
    with pytest.raises(BadInput, match="rounding in float32"):
        target_of(name, value)


@pytest.mark.parametrize("name", ["kl", "perplexity", "cosine"])
def test_distances_around_the_default_go_from_its_twentieth_to_ten_times_it(name):
    target = target_of(name, TARGETS[name].default)
    distances = np.array(target.around()) / target.distance
    assert 1.0 in distances.round(6)
    assert distances[0] == pytest.approx(1 / 20)
    assert distances[-1] == pytest.approx(10)
    assert (np.diff(np.log(distances)) < 1).all()
