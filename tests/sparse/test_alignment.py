import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import (
    Loss,
    SparseTask,
    best_step_sizes,
    query_alignment,
    simulate_alignment,
)


def test_reference_values():
    first = query_alignment(SparseTask(10, 1, 5.0, 0.5), 2.0)
    assert first.cosine == pytest.approx(0.9475650690190889, rel=1e-6)
    assert first.norm == pytest.approx(0.07003520996074515, rel=1e-6)
    second = query_alignment(SparseTask(8, 2, 3.0, 0.5), 1.0, "square", lr_w=5.0)
    assert second.cosine == pytest.approx(-0.8521444054966661, rel=1e-6)
    assert second.norm == pytest.approx(3.2682655213399694, rel=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "square", "hinge"])
def test_cosine_is_one_minus_c_over_alpha0(loss):
    task = SparseTask(10, 1, 5.0, 0.4)
    for alpha0 in (1e4, 1e5):
        alignment = query_alignment(task, alpha0, loss, lr_w=0.5)
        law = alignment.sign * (1 - alignment.constant / alpha0)
        assert alignment.cosine == pytest.approx(law, abs=50 / alpha0**1.5)


def test_steps_scale_as_they_should():
    task = SparseTask(8, 2, 3.0, 0.3)
    a = query_alignment(task, 2.0, lr_q=1.0, beta=1.0)
    b = query_alignment(task, 2.0, lr_q=3.0, beta=2.0)
    assert b.cosine == a.cosine
    assert b.norm == pytest.approx(6 * a.norm)
    assert b.sharpness == pytest.approx(12 * a.norm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options"),
    [
        (SparseTask(10, 1, 5.0, 0.5), {}),
        (SparseTask(8, 2, 3.0, 0.5), {"loss": "square", "lr_w": 5.0}),
        (SparseTask(6, 2, 3.0, 0.2), {"loss": "hinge", "lr_w": 2.0, "lr_b": 3.0}),
    ],
)
def test_steps_taken_on_drawn_bags_agree(task, options):
    predicted = query_alignment(task, 2.0, **options)
    drawn = simulate_alignment(task, 2.0, **options, dim=400, replicates=12, seed=3)
    # allow for the bias at finite d on top of the noise
    assert abs(drawn.mean["cosine"] - predicted.cosine) < 3 * drawn.stderr["cosine"] + 0.01
    assert abs(drawn.mean["norm"] / predicted.norm - 1) < (
        3 * drawn.stderr["norm"] / predicted.norm + 0.03
    )


def test_search_beats_the_defaults():
    task = SparseTask(8, 2, 3.0, 0.5)
    best = best_step_sizes(task, 1.0, "square")
    assert best.cosine > query_alignment(task, 1.0, "square", 5.0).cosine
    assert best.cosine > query_alignment(task, 1.0, "square").cosine - 1e-3


def test_a_small_dimension_forbids_large_bias_steps():
    task = SparseTask(10, 1, 5.0, 0.46)
    assert best_step_sizes(task, 0.7, dim=50).lr_b < best_step_sizes(task, 0.7).lr_b
    # the labels of alpha0 d bags are what wanders
    many, most = (best_step_sizes(task, 20.0, dim=dim).lr_b for dim in (50, 500))
    assert 0 < many < most


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"alpha0": 0.0}, "alpha0"),
        ({"lr_w": -1.0}, "lr_w"),
        ({"lr_b": -1.0}, "lr_b"),
        ({"loss": "none"}, "loss"),
    ],
)
def test_bad_input(options, word):
    with pytest.raises(BadInput, match=word):
        query_alignment(SparseTask(), **({"alpha0": 1.0} | options))


def test_no_signal_and_no_contrast_are_refused():
    with pytest.raises(BadInput, match="strength"):
        query_alignment(SparseTask(strength=0.0), 1.0)
    with pytest.raises(BadInput, match="contrast"):
        query_alignment(SparseTask(1, 1, 2.0), 1.0)


class Lopsided(Loss):
    """A square loss that is steeper for one class."""

    name = "lopsided"

    def value(self, z, y):
        return np.where(y > 0, (z - 1) ** 2 / 2, (z + 1) ** 2)

    def slope(self, z, y):
        return np.where(y > 0, z - 1, 2 * (z + 1))

    def envelope_slopes(self, z, gamma, y):
        raise NotImplementedError


def test_a_loss_that_is_not_symmetric_is_refused():
    with pytest.raises(BadInput, match="c0"):
        query_alignment(SparseTask(), 1.0, loss=Lopsided())
