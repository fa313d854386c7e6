import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import (
    SparseTask,
    as_blocks,
    best_split,
    end_to_end,
    fit_readout,
    query_alignment,
    query_steps,
    readout,
    simulate_protocol,
    train_attention,
)
from attnlimit.sparse.losses import as_loss
from attnlimit.sparse.train.descent import pool
from attnlimit.sparse.train.joint import train_jointly


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
    with pytest.raises(BadInput, match="as many"):
        fit_readout(F, np.array([1.0, -1.0]))
    with pytest.raises(BadInput, match="ridge"):
        fit_readout(F, np.array([1.0, -1.0, 1.0, -1.0]), ridge=0.0)


def test_query_steps_are_the_gradient_of_the_loss():
    """Compare with automatic differentiation of the loss itself."""
    import torch

    X, y = SparseTask(5, 1, 3.0).sample(40, 6, seed=2)
    steps = query_steps(as_blocks(X, y), lr_w=0.7, lr_b=0.3, lr_q=1.3, beta=2.0)
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


def test_end_to_end_is_alignment_then_readout():
    task = SparseTask(10, 1, 5.0)
    whole = end_to_end(task, 2.0, 3.0, lr_w=1.0, lr_b=1.0, sharpness=2.0)
    aligned = query_alignment(task, 2.0)
    alone = readout(task, 3.0, cosine=aligned.cosine, sharpness=2.0)
    assert whole.test_error == pytest.approx(alone.test_error, abs=1e-9)
    with pytest.raises(BadInput, match="both"):
        end_to_end(task, 1.0, 1.0, lr_w=1.0)


def test_best_split_beats_an_even_one():
    task = SparseTask(10, 1, 4.0)
    best = best_split(task, 6.0, sharpness=2.0)
    even = end_to_end(task, 3.0, 3.0, sharpness=2.0)
    assert best.alpha0 + best.alpha1 == pytest.approx(6.0)
    assert best.test_error <= even.test_error + 2e-4


@pytest.mark.slow
def test_all_four_stages_on_drawn_bags():
    task = SparseTask(10, 1, 5.0)
    lr_q = 1.0 / query_alignment(task, 2.0).sharpness
    predicted = end_to_end(task, 2.0, 2.0, lr_w=1.0, lr_b=1.0, lr_q=lr_q)
    drawn = simulate_protocol(task, 2.0, 2.0, lr_q=lr_q, dim=300, replicates=10, seed=4)
    assert abs(drawn.mean["test_error"] - predicted.test_error) < (
        3 * drawn.stderr["test_error"] + 0.004
    )


def test_trained_attention_on_fresh_bags_and_without_splitting():
    task = SparseTask(10, 1, 6.0)
    first, second, fresh = (task.sample(300, 40, seed=s) for s in (1, 2, 3))
    setting = {"lr_q": 2.0 / query_alignment(task, 7.5).sharpness, "ridge": 0.1}
    split = train_attention(as_blocks(*first), as_blocks(*second), **setting)
    both = tuple(np.concatenate(pair) for pair in zip(first, second, strict=True))
    joined = train_attention(as_blocks(*both), **setting)
    assert split.error(as_blocks(*fresh)) < 0.08
    assert joined.error(as_blocks(*fresh)) < 0.08


@pytest.mark.slow
def test_joint_descent_finds_the_signal_too():
    task = SparseTask(8, 1, 6.0)
    X, y = task.sample(600, 30, seed=1)
    fresh = task.sample(1000, 30, seed=2)
    trained = train_jointly(X, y, steps=400)
    assert trained.error(as_blocks(*fresh)) < 0.05
    cosine = trained.query @ task.direction(30) / np.linalg.norm(trained.query)
    assert abs(cosine) > 0.5
    with pytest.raises(BadInput, match="bags"):
        train_jointly(X[0], y)
