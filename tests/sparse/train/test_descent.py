import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import (
    SparseTask,
    as_blocks,
    query_alignment,
    query_steps,
    train_attention,
)
from attnlimit.sparse.train.descent import pool


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


def test_trained_attention_on_fresh_bags_and_without_splitting():
    task = SparseTask(10, 1, 6.0)
    first, second, fresh = (task.sample(300, 40, seed=s) for s in (1, 2, 3))
    setting = {"lr_q": 2.0 / query_alignment(task, 7.5).sharpness, "ridge": 0.1}
    split = train_attention(as_blocks(*first), as_blocks(*second), **setting)
    both = tuple(np.concatenate(pair) for pair in zip(first, second, strict=True))
    joined = train_attention(as_blocks(*both), **setting)
    assert split.error(as_blocks(*fresh)) < 0.08
    assert joined.error(as_blocks(*fresh)) < 0.08
