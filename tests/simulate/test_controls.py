"""Controls have the means they claim, and a wrong one is refused."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.simulate.statistics import Controls, Prefix
from attnlimit.simulate.summary import summarise
from attnlimit.simulate.sweep import Samples

RNG = np.random.default_rng(0)
COV = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.8]])
HEAD = al.Head(0.5 * RNG.standard_normal((3, 3)), RNG.standard_normal((2, 3)))
TOKENS = {
    "gaussian": al.Gaussian(cov=COV),
    "shifted": al.Gaussian(cov=COV, mean=[1.0, 0.0, -1.0]),
    "singular": al.Gaussian(cov=np.outer([1, 2, 0], [1, 2, 0])),
    "sphere": al.Sphere(3),
    "mixture": al.Mixture([0.3, 0.7], [al.Gaussian(cov=COV), al.Gaussian(COV, mean=[1, 0, -1])]),
}


@pytest.mark.parametrize("name", TOKENS)
def test_controls_have_mean_zero(name):
    tokens, n = TOKENS[name], 10
    drawn = torch.from_numpy(tokens.sample(n * 20_000, 1).reshape(-1, n, 3) - tokens.mean())
    second = drawn.transpose(1, 2) @ drawn / n
    prefix = Prefix(n, drawn, drawn.mean(1), second)
    controls = Controls.of(HEAD, tokens)
    gaussian = name in ("gaussian", "shifted", "singular")
    for columns, count in (
        (controls.of_mean(prefix), 3 if gaussian else 1),
        (controls.of_covariance(prefix), 1 if gaussian else 0),
    ):
        assert columns.shape[1] == count
        values = columns.numpy()
        assert (np.abs(values.mean(0)) < 4.5 * values.std(0) / np.sqrt(len(values))).all()
        assert (values.std(0) > 0).all()


def test_a_control_with_a_wrong_mean_is_refused():
    control = RNG.standard_normal((100, 1)) + 0.8
    values = 10 + RNG.standard_normal((100, 1))
    samples = Samples("mean", np.array([10]), values, [control])
    with pytest.raises(al.NotConverged, match="control=False"):
        summarise(samples)
    assert summarise(samples, control=False).value[0] == pytest.approx(values.mean())


def test_a_mean_square_below_zero_is_refused():
    values = RNG.standard_normal((40, 1)) - 5
    with pytest.raises(al.NotConverged, match="mean square at n = 10"):
        summarise(Samples("mean", np.array([10]), values))


@pytest.mark.parametrize(("size", "dim", "truth"), [(0.3, 20, 4.604), (0.1, 50, 5.2)])
def test_equal_singular_values(size, dim, truth):
    curve = al.measure(al.Head(size * np.eye(dim)), al.Gaussian(dim=dim), "covariance", [200], 200)
    assert abs(curve.value[0] - truth) < 0.02 * truth


@pytest.mark.parametrize("statistic", ["mean", "covariance", "mean_norm", "covariance_norm"])
def test_a_low_rank_gaussian(statistic):
    basis = np.random.default_rng(2).standard_normal((8, 3))
    head, tokens = al.Head(0.3 * np.eye(8)), al.Gaussian(cov=0.1 * basis @ basis.T)
    plain, controlled = (
        al.measure(head, tokens, statistic, [40, 80], 100, control=use) for use in (False, True)
    )
    assert (np.abs(plain.value - controlled.value) < 4 * plain.stderr).all()
