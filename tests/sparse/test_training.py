import inspect

import numpy as np
import pytest

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.intervals import interval
from attnlimit.sparse import (
    SparseTask,
    fit_readout,
    query_steps,
    readout,
    simulate_capacity,
    simulate_readout,
)
from attnlimit.sparse.losses import as_loss
from attnlimit.sparse.training import (
    LinearReadout,
    exact_test_error,
    pool,
    replicate,
    separable,
    sizes,
    unit_query,
)
from sparse_check import SETTINGS


def test_query_steps_are_the_gradient_of_the_loss():
    """Compare with automatic differentiation of the loss itself."""
    import torch

    X, y = SparseTask(5, 1, 3.0).sample(40, 6, seed=2)
    steps = query_steps(lambda: [(X, y)], lr_w=0.7, lr_b=0.3, lr_q=1.3, beta=2.0)
    bags, labels = torch.tensor(X), torch.tensor(y, dtype=torch.float64)
    q = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    w = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    b = torch.zeros((), dtype=torch.float64, requires_grad=True)

    def loss():
        z = torch.einsum("nl,nl->n", torch.softmax(2.0 * bags @ q, dim=1), bags @ w) + b
        return torch.nn.functional.softplus(-labels * z).mean()

    loss().backward()
    with torch.no_grad():
        w -= 0.7 * w.grad
        b -= 0.3 * b.grad
    q.grad = None
    loss().backward()
    np.testing.assert_allclose(steps.weights, w.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(steps.bias, float(b.detach()), atol=1e-12)
    np.testing.assert_allclose(steps.query, -1.3 * q.grad.numpy(), atol=1e-12)


def test_pooling_limits():
    X = np.random.default_rng(0).standard_normal((3, 4, 5))
    q = np.ones(5)
    np.testing.assert_allclose(pool(X, "attention", q, 0.0), X.mean(axis=1))
    hard = pool(X, "attention", q, 1e6)
    np.testing.assert_allclose(hard, X[np.arange(3), (X @ q).argmax(axis=1)])
    assert pool(X, "vectorized").shape == (3, 20)
    with pytest.raises(BadInput, match="query"):
        pool(X, "attention")


@pytest.mark.parametrize("loss", ["logistic", "square", "hinge"])
@pytest.mark.parametrize("shape", [(60, 10), (20, 50)])
def test_fit_is_stationary(loss, shape):
    rng = np.random.default_rng(0)
    F = rng.standard_normal(shape)
    y = np.where(rng.random(shape[0]) < 0.4, 1.0, -1.0)
    fitted = fit_readout(F, y, loss, ridge=0.05)
    slope = as_loss(loss).slope(fitted(F), y)
    np.testing.assert_allclose(F.T @ slope / len(y) + 0.05 * fitted.weights, 0, atol=1e-6)
    assert abs(slope.mean()) < 1e-6


def test_fit_refuses_one_class_and_bad_shapes():
    F = np.ones((4, 2))
    with pytest.raises(BadInput, match="both"):
        fit_readout(F, np.ones(4))
    with pytest.raises(BadInput, match="equal lengths"):
        fit_readout(F, np.array([1.0, -1.0]))
    with pytest.raises(BadInput, match="ridge"):
        fit_readout(F, np.array([1.0, -1.0, 1.0, -1.0]), ridge=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_theory_is_right_on_every_setting(setting):
    """The full comparison, d = 1000 with the bias extrapolated, is `reproduce sparse-check`."""
    task, alpha, options = SparseTask(*setting["task"]), setting["alpha"], setting["options"]
    predicted = readout(task, alpha, **options)
    drawn = simulate_readout(
        task, alpha, dim=160, replicates=12, seed=SETTINGS.index(setting), **options
    )
    for name in ("test_error", "train_loss"):
        value = getattr(predicted, name)
        bias = 0.35 * value / np.sqrt(160)
        assert abs(drawn.mean[name] - value) < 3.5 * drawn.stderr[name] + bias


@pytest.mark.parametrize("model", ["attention", "pooled", "vectorized"])
def test_exact_test_error_is_the_error_on_drawn_bags(model):
    task = SparseTask(4, 2, 3.0, 0.4)
    rng = np.random.default_rng(3)
    dim = 12
    query = unit_query(task, dim, 0.6)
    assert query @ task.direction(dim) == pytest.approx(0.6)
    size = 4 * dim if model == "vectorized" else dim
    w = np.tile(task.direction(dim), size // dim) + 0.3 * rng.standard_normal(size)
    fitted = LinearReadout(w, -0.8, 0.0, 0.0, 1)
    exact = exact_test_error(task, fitted, model, query, 0.6, 1.5, rng)
    X, y = task.sample(60_000, dim, seed=9)
    drawn = np.mean(y * fitted(pool(X, model, query, 1.5)) <= 0)
    assert abs(drawn - exact) < 4 * np.sqrt(exact * (1 - exact) / 60_000) + 1e-3


def test_separability_by_linear_programming():
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert separable(x, np.array([-1.0, -1.0, 1.0, 1.0]))
    assert not separable(x, np.array([-1.0, 1.0, -1.0, 1.0]))


def test_replicates_do_not_depend_on_order_and_need_two():
    task = SparseTask(3, 1, 2.0)
    a = simulate_readout(task, 1.0, "pooled", dim=20, replicates=3, seed=1)
    b = simulate_readout(task, 1.0, "pooled", dim=20, replicates=3, seed=1)
    assert a.mean == b.mean
    assert "test_error" in str(a)
    assert len(a.to_frame()) == 3
    with pytest.raises(BadInput, match="replicates"):
        simulate_readout(task, 1.0, "pooled", dim=20, replicates=1)


def test_one_class_by_chance_is_separable():
    measured = simulate_capacity(SparseTask(3, 1, 2.0, 0.02), 0.3, dim=10, replicates=3)
    assert measured.mean["separable"] == 1.0


def test_intervals_of_cosines_hold_the_truth():
    """Eight cosines near their bound, 200 seeds: plain means of them are too skewed for that."""
    level, seeds, dim = 0.95, 200, 20

    def draw(rng):
        query = 6 * np.eye(dim)[0] + rng.standard_normal(dim)
        return {"cosine": float(query[0] / np.linalg.norm(query))}

    results = [replicate(draw, dim, 1, 8, seed) for seed in range(seeds)]
    names = ("mean", "stderr", "skewness")
    value, stderr, skew = (np.array([getattr(f, k)["cosine"] for f in results]) for k in names)
    low, high = interval(value, stderr, skew, 7)
    truth = np.tanh(np.arctanh(value).mean())
    share = ((low <= truth) & (truth <= high)).mean()
    assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / seeds)
    assert (skew < 0).all()
    assert (high < 1).all()


@pytest.mark.parametrize("name", ["simulate_alignment", "simulate_protocol"])
def test_steps_have_the_same_defaults_in_theory_and_simulation(name):
    measured = inspect.signature(getattr(al.sparse, name)).parameters
    predicted = inspect.signature(al.sparse.query_alignment).parameters
    for step in ("loss", "lr_w", "lr_b", "lr_q", "beta"):
        assert measured[step].default == predicted[step].default


def test_two_bags_are_the_fewest_to_draw():
    assert sizes(SparseTask(), 1.0, 2) == (2, 2)
    with pytest.raises(BadInput, match="number of bags"):
        sizes(SparseTask(), 0.9, 2)
