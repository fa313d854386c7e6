import numpy as np
import pytest

from attnlimit.sparse import Capacity, ErrorRate, SparseTask, bayes_error, capacity, oracle_error


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (capacity(SparseTask(6, 1, 2.0), cosine=0.7), Capacity),
        (bayes_error(SparseTask()), ErrorRate),
        (oracle_error(SparseTask(), "pooled"), ErrorRate),
    ],
)
def test_a_result_is_used_as_its_value_and_is_not_a_float(result, kind):
    assert type(result) is kind
    assert not isinstance(result, float)
    value = result.value
    assert float(result) == value
    assert round(result, 2) == round(value, 2)
    assert f"{result:.3f}" == f"{value:.3f}"
    assert abs(result - 2.4) == abs(value - 2.4)
    assert 2 * result / 3 == 2 * value / 3
    assert result == pytest.approx(value)
    assert result > value - 1e-9
    assert min(result, value + 1) is result
    assert np.asarray([result, 1.0]).tolist() == [value, 1.0]
    assert np.sqrt(result) == np.sqrt(value)
    with pytest.raises(AttributeError):
        result.value = 0.0


def test_error_rates_explain_themselves():
    rate = bayes_error(SparseTask())
    assert "inversion" in str(rate)
    assert f"{rate}" == str(rate)
    row = rate.to_frame().loc[0]
    assert row["error"] == rate.value
    assert row["numerical_error"] == rate.numerical_error
    rule = oracle_error(SparseTask())
    assert rule.to_frame().loc[0, "sharpness"] == rule.details["sharpness"]
