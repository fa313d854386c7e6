"""What single tokens do to the covariance has a known mean square, and varies with its error."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.reference import limit_reference
from attnlimit.montecarlo.summary import summarise
from attnlimit.montecarlo.sweep import sweep
from attnlimit.montecarlo.token_effects import effect, token_effects
from attnlimit.reproduce.temperatures import paper_head


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
        moved.append(token @ gap @ token)
    np.testing.assert_allclose(effect(head, tokens, lone, n), moved, rtol=0.05)


@pytest.mark.parametrize(
    ("dim", "nodes", "scale"), [(1, 4001, 0.6), (1, 4001, 0.1), (2, 1201, 0.6), (2, 1201, 1.5)]
)
def test_moments_are_those_of_a_quadrature(dim, nodes, scale):
    rng = np.random.default_rng(dim)
    head = al.Head(scale * rng.standard_normal((dim, dim)), rng.standard_normal((3, dim)))
    tokens = al.Gaussian(cov=np.diag([0.9, 0.4][:dim]))
    found = token_effects(head, tokens, [100])
    line = np.linspace(-9, 9, nodes)
    grid = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    density = np.exp(-(grid**2).sum(axis=1) / 2)
    density /= density.sum()
    grid = grid @ tokens.sqrt_cov().T
    squares = ((grid @ (head.A @ tokens.sqrt_cov())) ** 2).sum(axis=1)
    table = found.tables[100].double().numpy()
    rho = np.interp(np.sqrt(squares) / found.step, np.arange(len(table)), table)
    value = grid @ head.V.T
    mean = (density * rho * value.T) @ value
    square = (density * rho**2) @ (value**2).sum(axis=1) ** 2
    variance = square - (mean**2).sum()
    assert found.squares[100] == pytest.approx(100 * variance, rel=2e-3)
    off = ((found.means[100].numpy() - mean) ** 2).sum()
    assert 10**5 * off < 1e-3 * variance  # it shows in no sum over 10^5 tokens


@pytest.mark.parametrize("strength", [0.5, 1.5])
def test_its_surplus_has_mean_zero(strength):
    rng = np.random.default_rng(0)
    head, tokens = al.Head(strength * rng.standard_normal((3, 3))), al.Gaussian(dim=3)
    found = token_effects(head, tokens, [40, 400])
    drawn = torch.from_numpy(tokens.sample(2000 * 400, rng).reshape(2000, 400, 3)).float()
    for n in (40, 400):
        surplus = found.surplus(drawn, found.places(drawn), n)[:, 0].numpy()
        assert abs(surplus.mean()) < 4 * surplus.std() / np.sqrt(len(surplus))


@pytest.mark.parametrize(
    ("head", "tokens", "gain"),
    [
        (al.Head(np.diag([0.7, 0.4, 0.2])), al.Gaussian(dim=3), 2.0),
        (paper_head(50, 20.0), al.Gaussian(dim=50, variance=0.1), 1.2),
    ],
    ids=["3", "50"],
)
def test_it_takes_noise_away_in_few_dimensions_and_in_many(head, tokens, gain):
    found = sweep(head, tokens, ["covariance"], np.array([400]), 300, np.random.SeedSequence(1))
    samples = found["covariance"]
    plain, ours = summarise(samples, control=False), summarise(samples)
    assert ours.stderr < plain.stderr / gain
    assert abs(ours.value - plain.value) < 4 * plain.stderr
    assert samples_curve(samples).diagnostics.variance_reduction > gain**2


def test_nothing_is_known_of_tokens_that_are_not_normal():
    size = np.array([20])
    found = sweep(
        al.Head(np.eye(2)), al.Sphere(2), ["covariance"], size, 5, np.random.SeedSequence(1)
    )
    assert found["covariance"].zeros[0].shape[1] == 0
