from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

import attnlimit as al
from attnlimit.curve import Diagnostics


def curve(statistic="mean", **options):
    n = np.array([100, 1000, 10_000])
    return al.Curve(statistic, n, 4.0 / n, 0.4 / n, "test", **options)


def test_root_and_its_error():
    np.testing.assert_allclose(curve().root, 2 / np.sqrt(curve().n))
    np.testing.assert_allclose(curve().root_stderr, curve().stderr / (2 * curve().root))
    norm = curve("mean_norm")
    np.testing.assert_array_equal(norm.root, norm.value)
    np.testing.assert_array_equal(norm.root_stderr, norm.stderr)


def test_local_rate_refers_to_the_root():
    np.testing.assert_allclose(curve().local_rate, 0.5)
    np.testing.assert_allclose(curve("mean_norm").local_rate, 1.0)
    np.testing.assert_array_equal(curve(rate=np.full(3, 0.25)).local_rate, 0.25)
    single = al.Curve("mean", np.array([5]), np.ones(1), np.zeros(1), "test")
    assert np.isnan(single.local_rate).all()


def test_frame_and_text():
    frame = curve(notes=("read me",)).to_frame()
    assert list(frame["n"]) == [100, 1000, 10_000]
    assert {"value", "stderr", "root", "local_rate", "method"} <= set(frame.columns)
    assert frame["numerical_error"].isna().all()
    stated = curve(numerical_error=np.full(3, 0.1)).to_frame()
    assert (stated["numerical_error"] == 0.1).all()
    assert "read me" in str(curve(notes=("read me",)))


def test_a_curve_and_its_diagnostics_cannot_be_changed():
    result = curve()
    with pytest.raises(FrozenInstanceError):
        result.diagnostics.horizon = 2.0
    with pytest.raises(FrozenInstanceError):
        result.diagnostics = None


@pytest.mark.parametrize(("replicates", "sigma"), [(20, 0.1), (50, 1.0)])
def test_intervals_hold_the_truth_of_skewed_draws(replicates, sigma):
    """Of log-normal draws: 95 % intervals, where 1.96 errors each way hold too few of them."""
    draws = np.random.default_rng(0).lognormal(sigma=sigma, size=(2000, replicates))
    truth = np.exp(sigma**2 / 2)
    stderr = draws.std(axis=1, ddof=1) / np.sqrt(replicates)
    around = draws - draws.mean(axis=1, keepdims=True)
    skewness = (around**3).mean(axis=1) / draws.std(axis=1) ** 3
    n = np.arange(2, 2002)
    result = al.Curve("mean", n, draws.mean(axis=1), stderr, "monte carlo", replicates=replicates)
    low, high = replace(result, diagnostics=Diagnostics(skewness=skewness)).interval()
    assert 0.925 < ((low <= truth) & (truth <= high)).mean() < 0.97
    plain_low, plain_high = result.interval()
    np.testing.assert_allclose(plain_high - result.value, result.value - plain_low)
    assert (high - result.value).mean() > (result.value - low).mean()
