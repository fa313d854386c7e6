import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from attnlimit.sparse import SparseTask, bayes_error
from attnlimit.sparse.law.bag_scores import BagScores
from attnlimit.sparse.law.bayes import log_likelihood_ratio, posterior_error


def brute_bayes(task, draws, seed):
    """E min(posterior) with every support enumerated."""
    rng = np.random.default_rng(seed)
    supports = list(itertools.combinations(range(task.length), task.signals))
    values = []
    for label, prior in ((1, task.prior), (0, 1 - task.prior)):
        x = rng.standard_normal((draws, task.length))
        x[:, : task.signals] += task.strength * label
        sums = np.stack([x[:, list(s)].sum(axis=1) for s in supports])
        ratio = np.exp(task.strength * sums - task.signals * task.strength**2 / 2).mean(axis=0)
        wrong = np.minimum(task.prior * ratio, 1 - task.prior) / (
            task.prior * ratio + 1 - task.prior
        )
        values.append((prior * wrong.mean(), prior * wrong.std() / np.sqrt(draws)))
    return sum(v for v, _ in values), np.hypot(*[e for _, e in values])


@pytest.mark.parametrize(
    "task",
    [
        SparseTask(6, 1, 3.0),
        SparseTask(6, 1, 0.4, 0.3),
        SparseTask(7, 3, 1.5, 0.6),
        SparseTask(5, 5, 1.0),
    ],
)
def test_bayes_against_every_support_enumerated(task):
    expected, error = brute_bayes(task, 100_000, seed=1)
    found = bayes_error(task)
    assert abs(found.value - expected) < 4 * error + 3 * found.numerical_error + 1e-6


def test_likelihood_ratio_is_the_average_over_supports():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 6))
    task = SparseTask(6, 3, 1.7)
    bag = BagScores(np.full(20, 0.05), x, np.empty((20, 0)), 0, np.zeros(20))
    sums = [x[:, list(s)].sum(axis=1) for s in itertools.combinations(range(6), 3)]
    direct = np.log(np.mean(np.exp(1.7 * np.array(sums) - 3 * 1.7**2 / 2), axis=0))
    np.testing.assert_allclose(log_likelihood_ratio(bag, task), direct, rtol=1e-10)


@pytest.mark.parametrize("length", [1, 40, 2**12, 2**20])
@pytest.mark.parametrize("strength", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("prior", [0.5, 0.2])
def test_inversion_and_quasi_random_points_agree(length, strength, prior):
    task = SparseTask(length, 1, strength, prior)
    found = bayes_error(task)
    assert found.method == "Fourier inversion"
    assert found.value == pytest.approx(posterior_error(task, 12, 0), abs=3e-4)


def test_all_tokens_signal_is_two_gaussians():
    assert bayes_error(SparseTask(1, 1, 2.0)).value == pytest.approx(ndtr(-1.0), abs=1e-9)
    many = bayes_error(SparseTask(9, 9, 0.5)).value
    assert many == pytest.approx(ndtr(-0.75), abs=3e-3)
