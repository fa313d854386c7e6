"""An average over many candidates from few: unbiased, and its error neither too small nor large."""

import numpy as np

from attnlimit.theory.two_query.law import sampled_mean


def test_the_error_is_what_it_says():
    """A skewed quantity and a rough guess of it: 300 seeds, each with 64 of 4000 candidates."""
    rng = np.random.default_rng(0)
    guess = rng.lognormal(sigma=1.5, size=4000)
    values = guess * rng.normal(1.0, 0.7, size=4000) + 0.2 * rng.standard_normal(4000)
    weight = rng.random(4000) / 2000
    true = weight @ values
    results = [sampled_mean(lambda k: values[[k]], guess, weight, 64, seed) for seed in range(300)]
    mean, error = np.array(results)[:, :, 0].T
    z = (mean - true) / error
    assert abs((mean - true).mean()) < 4 * mean.std() / np.sqrt(300)
    assert 0.85 < z.std() < 1.25
    assert (np.abs(z) > 3).mean() < 0.02


def test_few_candidates_are_summed():
    weight, values = np.full(10, 0.1), np.arange(10.0)
    mean, error = sampled_mean(lambda k: values[[k]], np.zeros(10), weight, 10)
    assert abs(mean[0] - 4.5) < 1e-12
    assert error[0] == 0
