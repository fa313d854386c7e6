import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import fit_readout
from attnlimit.sparse.losses import as_loss


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
