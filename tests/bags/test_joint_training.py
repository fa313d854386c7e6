import numpy as np
import pytest

from attnlimit.bags.data import Stacked
from attnlimit.bags.pooling import QUERY_RIDGE, train_jointly
from attnlimit.errors import NotConverged
from attnlimit.sparse import SparseTask

TASK = SparseTask(length=6, signals=1, strength=5.0)


def test_no_small_move_lowers_the_loss():
    """What is found is a minimum of the loss, computed by automatic differentiation."""
    import torch

    X, y = TASK.sample(80, 4, seed=0)
    ridge = 0.05
    trained = train_jointly(Stacked.of(list(X)), y, np.full(4, 0.3), ridge=ridge)
    parts = (trained.query, trained.readout.weights, np.array(trained.readout.bias))
    q, w, b = (torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in parts)
    bags, labels = torch.tensor(X), torch.tensor(y, dtype=torch.float64)
    z = torch.einsum("nl,nl->n", torch.softmax(bags @ q, dim=1), bags @ w) + b
    loss = torch.nn.functional.softplus(-labels * z).mean()
    (loss + 0.5 * ridge * (w @ w + QUERY_RIDGE * q @ q)).backward()
    assert max(float(part.grad.abs().max()) for part in (q, w, b)) < 1e-3
    assert trained.readout.train_loss == pytest.approx(float(loss.detach()), rel=1e-10)


def test_a_training_that_stops_short_says_so():
    X, y = TASK.sample(80, 4, seed=0)
    with pytest.raises(NotConverged, match="1 steps"):
        train_jointly(Stacked.of(list(X)), y, np.full(4, 0.3), steps=1)


def test_stacked_bags_are_their_bags():
    rng = np.random.default_rng(0)
    bags = [rng.standard_normal((n, 3)) for n in (1, 4, 2)]
    stacked = Stacked.of(bags)
    scores = rng.standard_normal(7)
    for part, bag, p in zip(stacked.split(), bags, stacked.split(scores), strict=True):
        np.testing.assert_array_equal(part, bag)
        assert len(p) == len(bag)
    np.testing.assert_allclose(stacked.mean(), [bag.mean(axis=0) for bag in bags])
    np.testing.assert_allclose(stacked.sums(stacked.softmax(scores)), np.ones(3))
    np.testing.assert_allclose(stacked.largest(scores), [p.max() for p in stacked.split(scores)])
    np.testing.assert_array_equal(stacked.subset(np.array([2, 0])).lengths, [2, 1])
