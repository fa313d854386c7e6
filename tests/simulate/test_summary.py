from contextlib import nullcontext

import numpy as np
import pytest

import attnlimit as al
from attnlimit.errors import NotConverged
from attnlimit.reproduce.temperatures import paper_head
from attnlimit.simulate.measure import samples_curve
from attnlimit.simulate.summary import check_controls, summarise
from attnlimit.simulate.sweep import Samples, sweep

N = np.array([30, 60, 120, 240])


def parts(samples, draws):
    """Slices of the draws, each a measurement of its own."""
    for start in range(0, len(samples.values), draws):
        yield samples.part(slice(start, start + draws))


def scatter(results, truth):
    """Scatter of values about the truth over their stated errors, and the share within two."""
    values, errors = np.array(results).swapaxes(0, 1)
    misses = values - truth
    ratio = np.sqrt((misses**2).mean(axis=0) / (errors**2).mean(axis=0))
    return ratio, (np.abs(misses) < 2 * errors).mean(axis=0)


@pytest.fixture(scope="module")
def pools():
    """Draws, a set of tokens each, of a diffuse head and of one past the horizon 1."""
    tokens = al.Gaussian(dim=10, variance=0.5)
    return {
        scale: sweep(
            paper_head(10, scale),
            tokens,
            ["mean", "covariance"],
            N,
            2000,
            np.random.SeedSequence(0),
            sets=1,
        )
        for scale in (1.0, 6.0)
    }


@pytest.mark.parametrize("replicates", [20, 40, 80])
def test_weights_fitted_together_are_in_the_error(replicates):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(600):
        control = rng.exponential(size=(replicates, 3)) - 1
        values = (control**2 + 2 * control).sum(axis=1)
        done = summarise(Samples("mean", np.array([10]), values[:, None], [control]))
        rows.append((done.value[0], done.stderr[0]))
    ratio, _ = scatter(rows, 3.0)
    assert ratio == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("statistic", ["mean", "covariance"])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_stated_errors_are_those_seen(pools, scale, statistic):
    samples = pools[scale][statistic]
    actual, plain = (
        [(s.value, s.stderr) for s in (summarise(p, control=c) for p in parts(samples, 20))]
        for c in (True, False)
    )
    ratio, within = scatter(actual, summarise(samples).value)
    plain_ratio, plain_within = scatter(plain, samples.values.mean(axis=0))
    assert (ratio < plain_ratio + 0.2).all()
    assert (within > plain_within - 0.1).all()
    gain = np.var([value for value, _ in plain], axis=0) / np.var([v for v, _ in actual], axis=0)
    assert (gain > 0.7).all()


def test_the_joint_covariance_gives_the_error_of_a_rate(pools):
    samples = pools[1.0]["mean"]
    fits = [al.fit_rate(samples_curve(part)) for part in parts(samples, 20)]
    ratio, within = scatter(
        [(fit.beta, fit.stderr) for fit in fits], al.fit_rate(samples_curve(samples)).beta
    )
    assert 0.8 < ratio < 1.2
    assert 0.88 < within < 0.99


def test_controls_gain_most_where_attention_is_diffuse(pools):
    assert (summarise(pools[1.0]["mean"]).variance_reduction > 3).all()
    assert (summarise(pools[6.0]["mean"]).variance_reduction > 0.9).all()


@pytest.mark.parametrize(("errors", "refused"), [(5.9, False), (6.9, True)])
def test_a_control_of_few_draws_is_judged_by_students_law(errors, refused):
    """Five deviations of a normal mean are as rare as 6.4 errors of the mean of 30 draws."""
    control = np.random.default_rng(0).standard_normal((30, 1))
    control -= control.mean()
    control += errors * control.std(ddof=1) / np.sqrt(30)
    samples = Samples("mean", np.array([10]), control**2, [control])
    with pytest.raises(NotConverged, match="averages") if refused else nullcontext():
        check_controls(samples)


def test_what_does_not_vary_has_no_variance_to_reduce():
    summary = summarise(Samples("mean", N, np.ones((20, 4))))
    np.testing.assert_array_equal(summary.variance_reduction, 1.0)
    np.testing.assert_array_equal(summary.stderr, 0.0)
