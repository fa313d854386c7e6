"""What one rare token does has a known mean, and takes the tail out of what was drawn."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.montecarlo.lone import LoneToken
from attnlimit.montecarlo.lone_tokens import lone_squares, lone_tokens
from attnlimit.montecarlo.reference import limit_reference
from attnlimit.montecarlo.summary import summarise
from attnlimit.montecarlo.sweep import sweep
from attnlimit.skewed import interval, skewness
from attnlimit.tokens import Laplace

SEEDS, DRAWS, LEVEL = 200, 100, 0.95


def laplace(tilt):
    tokens = Laplace(1)
    mass, limit = np.exp(tokens.cgf([[tilt]])[0]), tokens.tilted_mean([[tilt]])[0, 0]
    return LoneToken(tilt, float(mass), float(limit))


@pytest.mark.parametrize("tilt", [0.2, 0.7, 0.9])
def test_its_mean_is_that_of_draws(tilt):
    lone, sizes = laplace(tilt), [10, 100]
    means = lone.laplace_means(sizes)
    rng = np.random.default_rng(0)
    found = [lone.excess(Laplace(1).sample(100, rng)[:, 0], sizes, means) for _ in range(4000)]
    average, spread = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(average) < 4 * spread).all()
    assert (spread > 0).all()


@pytest.mark.parametrize("tilt", [0.2, 0.7])
def test_intervals_without_the_tail_hold_the_truth(tilt):
    """Of 200 seeds of 100 draws; plain draws are so skewed that their intervals do not."""
    lone, n = laplace(tilt), 30
    drawn = Laplace(1).sample(DRAWS * SEEDS * n, np.random.default_rng(2)).reshape(-1, n)
    weights = np.exp(tilt * drawn)
    squares = ((weights * drawn).sum(axis=1) / weights.sum(axis=1) - lone.limit) ** 2
    excess = lone.square(drawn, n).sum(axis=1) - lone.laplace_means([n])
    less = squares - excess
    assert np.abs(skewness(less)) < skewness(squares) / 4
    assert less.var() < squares.var() / 2
    values = less.reshape(SEEDS, DRAWS)
    error, skew = values.std(axis=1, ddof=1) / np.sqrt(DRAWS), skewness(values.T) / np.sqrt(DRAWS)
    low, high = interval(values.mean(axis=1), error, skew, DRAWS - 1)
    share = ((low <= less.mean()) & (less.mean() <= high)).mean()
    assert abs(share - LEVEL) < 4 * np.sqrt(LEVEL * (1 - LEVEL) / SEEDS)


def test_one_token_moves_the_covariance_as_many_queries_say():
    """The covariance over a million queries as expected and the token's own, by hand."""
    rng = np.random.default_rng(3)
    head, tokens, n = al.Head(rng.standard_normal((2, 2)) / 2), al.Gaussian(dim=2), 50
    lone = np.array([[2.5, -1.0], [0.3, 4.0]])
    queries = tokens.sample(10**6, rng)
    covariance = limit_reference(head, tokens).covariance
    moved = []
    for token in lone:
        others = np.concatenate([queries, [token]])
        tilts = head.tilts(others)
        share = 1 / (1 + (n - 1) * np.exp(tokens.cgf(tilts) - tilts @ token))
        outputs = al.limit(head, tokens)(others)
        outputs += share[:, None] * (token - outputs)
        weights = np.append(np.full(len(queries), (n - 1) / n / len(queries)), 1 / n)
        gap = np.cov(outputs.T, aweights=weights, bias=True) - covariance
        moved.append((gap**2).sum())
    np.testing.assert_allclose(lone_squares(head, tokens, lone, n), moved, rtol=0.1)


def test_lone_tokens_have_their_mean_and_take_the_tail_away():
    rng = np.random.default_rng(0)
    head, tokens = al.Head(rng.standard_normal((3, 3)) / 2), al.Gaussian(dim=3)
    lone = lone_tokens(head, tokens, [40, 400])
    drawn = torch.from_numpy(tokens.sample(2000 * 400, rng).reshape(2000, 400, 3)).float()
    for n in (40, 400):
        excess = lone.excess(lone.places(drawn), n).numpy()
        assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(len(excess))
    found = sweep(head, tokens, ["covariance"], np.array([400]), 600, np.random.SeedSequence(1))
    samples = found["covariance"]
    less = samples.values - samples.lone
    assert less.var() < samples.values.var() / 1.5
    assert skewness(less) < skewness(samples.values) / 2
    plain = summarise(samples, control=False)
    np.testing.assert_allclose(plain.value, samples.values.mean(axis=0))
    assert abs(summarise(samples).value - plain.value) < 4 * plain.stderr


@pytest.mark.parametrize(
    ("dim", "nodes", "scale"), [(1, 4001, 0.6), (1, 4001, 0.1), (2, 1201, 0.6)]
)
def test_the_mean_of_lone_tokens_is_that_of_a_quadrature(dim, nodes, scale):
    rng = np.random.default_rng(dim)
    head = al.Head(scale * rng.standard_normal((dim, dim)), rng.standard_normal((3, dim)))
    tokens = al.Gaussian(cov=np.diag([0.9, 0.4][:dim]))
    lone = lone_tokens(head, tokens, [100])
    line = np.linspace(-9, 9, nodes)
    grid = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    density = np.exp(-(grid**2).sum(axis=1) / 2)
    places = lone.places(torch.from_numpy(grid @ tokens.sqrt_cov().T).float()[:, None])
    each = lone.excess(places.repeat(1, 100, 1), 100).numpy() / 100
    assert lone.means[100] > 0
    assert abs(density @ each) / density.sum() < 2e-3 * lone.means[100]


def test_past_the_horizon_nothing_is_known_of_lone_tokens():
    tokens = al.Gaussian(dim=2)
    found = sweep(
        al.Head(1.5 * np.eye(2)),
        tokens,
        ["covariance"],
        np.array([20]),
        5,
        np.random.SeedSequence(1),
    )
    assert not found["covariance"].lone.any()
