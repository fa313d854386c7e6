import numpy as np
import pandas as pd
import pytest

from attnlimit.planning.target import third_order
from attnlimit.reproduce.compare import with_z
from prediction_error import predicted_with_error


def test_errors_of_few_draws_are_neither_too_small_nor_too_large():
    """Normal measurements from two draws, some of whose own errors are near zero by chance."""
    draws = np.random.default_rng(0).normal(0.001, 1e-4, (4000, 2))
    mean, spread = draws.mean(1), draws.std(1, ddof=1) / 2**0.5
    rows = pd.DataFrame({"predicted": 0.001, "measured": mean, "measured_stderr": spread})
    rows["predicted_stderr"] = rows["numerical_error"] = 0.0
    plain = with_z(rows.assign(stderr=spread))["z"].abs()
    mixed = with_z(predicted_with_error(rows, draws=2))["z"].abs()
    assert (plain > 3).mean() > 0.15
    assert (mixed > 3).mean() < 0.01
    assert np.sqrt((mixed**2).mean()) == pytest.approx(1, abs=0.1)


def test_what_second_order_leaves_out_grows_as_the_change_does():
    assert third_order(0.1, 0.1) == pytest.approx(0.015)
    assert third_order(0.001, 0.1) / 0.001 == pytest.approx(third_order(0.1, 0.1) / 0.1 / 10)
    rows = pd.DataFrame({"predicted": [0.1, 0.1], "measured": [0.1, 0.1], "stderr": [0.0, 0.0]})
    stated = rows.assign(predicted_stderr=np.nan, numerical_error=0.03)
    result = predicted_with_error(stated, draws=2, stderr="stderr")
    assert result["prediction_error"].tolist() == pytest.approx([0.03, 0.03])
