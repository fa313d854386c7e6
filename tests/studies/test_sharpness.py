import numpy as np
import pytest

import attnlimit as al
from sharpness import best_sharpness, scaled_error, schedule_error

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(
    "tokens",
    [
        al.Gaussian(dim=3, mean=[1.0, 0.0, -1.0]),
        al.Sphere(3),
        al.Ball(3),
        al.Cube(3),
        al.Signs(3),
        al.Empirical(RNG.standard_normal((30, 3))),
    ],
    ids=repr,
)
def test_cooling_against_simulation(tokens):
    rng = np.random.default_rng(9)
    head = al.Head(np.eye(3), rng.standard_normal((2, 3)))
    x = np.array([1.0, -0.4, 0.2])
    lams, n = [1.0, 6.0], 40
    hard = al.hardmax_error(head, tokens, x, [n])
    for lam in lams:
        draws = [head.scaled(lam)(x, tokens.sample(n, rng)) for _ in range(4000)]
        square = ((np.array(draws) / hard.scale[0] - hard.target[0]) ** 2).sum(axis=1)
        mse = scaled_error(head, tokens, x, lam, n)[0][0]
        assert abs(square.mean() - mse) < 4.5 * square.std() / np.sqrt(4000)


def test_cooling_ends_at_the_hard_maximum():
    x = np.array([1.0, 0.0, 0.0])
    head = al.Head(np.eye(3))
    for tokens in (al.Sphere(3), al.Gaussian(dim=3), al.Empirical(RNG.standard_normal((20, 3)))):
        hard = al.hardmax_error(head, tokens, x, [50]).mse[0, 0]
        lam = 400.0 if isinstance(tokens, al.Gaussian) else 4000.0
        cooled = scaled_error(head, tokens, x, lam, 50)[0][0]
        assert cooled == pytest.approx(hard, rel=0.02)


def test_sharp_cap_law_agrees_with_the_full_law(monkeypatch):
    head, x, n = al.Head(np.eye(6)), np.eye(6)[0], [5, 1000, 10**12]
    full = scaled_error(head, al.Sphere(6), x, 250.0, n)[0]
    monkeypatch.setattr("sharpness.SHARP", 100.0)
    capped = scaled_error(head, al.Sphere(6), x, 250.0, n)[0]
    assert capped == pytest.approx(full, rel=1e-9)


def test_bias_of_infinitely_many_tokens_on_the_sphere():
    head = al.Head(2 * np.eye(9))
    for lam in (1e3, 1e4):
        bias = scaled_error(head, al.Sphere(9), np.eye(9)[0], lam, 10**9)[1][0]
        assert bias == pytest.approx(8 / (2 * 2 * lam), rel=5e-3)


def test_best_sharpness_is_a_minimum_with_the_polynomial_rate():
    n = [10**8, 10**9, 10**10]
    head, tokens, x = al.Head(np.eye(5)), al.Sphere(5), np.eye(5)[0]
    best = best_sharpness(head, tokens, x, n)
    for lam, k, mse in zip(best.lam, n, best.mse, strict=True):
        around = [scaled_error(head, tokens, x, c * lam, k)[0][0] for c in (0.8, 1.25)]
        assert min(around) > mse
    assert (best.mse < best.hardmax_mse).all()
    assert best.local_rate == pytest.approx(2 / 6, abs=2e-3)
    assert np.diff(np.log(best.lam)) / np.log(10) == pytest.approx(2 / 6, abs=5e-3)


def test_best_sharpness_is_infinite_where_the_hard_maximum_wins():
    best = best_sharpness(al.Head(np.eye(2)), al.Signs(2), [1.0, 0.5], [10, 1000])
    assert np.isinf(best.lam[1])
    assert best.mse[1] == best.hardmax_mse[1]


def test_logarithmic_schedule_beats_its_root_and_never_the_best():
    n = [10**2, 10**4, 10**8, 10**12]
    head, tokens, x = al.Head(np.eye(50)), al.Sphere(50), np.eye(50)[0]
    best = best_sharpness(head, tokens, x, n)
    log = schedule_error(head, tokens, x, n, kind="log")
    root = schedule_error(head, tokens, x, n, kind="sqrt-log")
    assert (log.mse >= best.mse * (1 - 1e-9)).all()
    assert (root.mse >= best.mse * (1 - 1e-9)).all()
    assert np.log(log.mse).mean() < np.log(root.mse).mean()
    given = schedule_error(head, tokens, x, n, kind="log", constant=log.constant)
    assert given.mse == pytest.approx(log.mse)
    with pytest.raises(al.BadInput):
        schedule_error(head, tokens, x, n, kind="linear")
