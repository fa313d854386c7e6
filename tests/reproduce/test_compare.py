import numpy as np
import pandas as pd
import pytest

from attnlimit.intervals import skewness
from attnlimit.reproduce.compare import (
    agreement,
    beyond_listed,
    comparable,
    largest_z,
    marked,
    with_uncertainty,
    with_z,
)
from attnlimit.reproduce.panels import points

ROWS = pd.DataFrame(
    {
        "predicted": [1.1, 2.0, np.nan, 4.0, 5.0],
        "measured": [1.0, 2.2, 3.0, np.nan, 5.0 + 1e-15],
        "stderr": [0.1, 0.1, 0.1, np.nan, 1e-16],
    }
)


def test_z_is_the_prediction_above_the_measurement_in_standard_errors():
    assert with_z(ROWS)["z"].tolist() == pytest.approx([1, -2] + 3 * [np.nan], nan_ok=True)
    assert largest_z(ROWS) == pytest.approx(2)


def test_agreement_is_said_over_rows_that_have_both():
    message = agreement(ROWS, "norm")
    assert message.startswith("norm: predicted against measured at 2 points")
    assert "1.58 combined errors, largest 2.0, 0 beyond 3" in message
    assert "largest 10.0%, where the standard error is 10.0%." in message
    assert agreement(ROWS.iloc[2:4]) == "Predicted against measured: nothing has both."


def test_normal_errors_have_a_root_mean_square_of_one():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"predicted": 10.0, "measured": rng.normal(10, 0.1, 4000), "stderr": 0.1})
    z = with_z(frame)["z"]
    assert np.sqrt((z**2).mean()) == pytest.approx(1, abs=4 / np.sqrt(8000))


def test_measurements_are_rounded_to_their_errors():
    rows = pd.DataFrame({"measured": [0.50003, 28.01, np.nan], "stderr": [0.00012, 2.6, 0.1]})
    assert with_uncertainty(rows) == ["0.50003 ± 0.00012", "28 ± 3", "–"]


def test_a_prediction_s_own_error_counts():
    rows = pd.DataFrame({"predicted": [1.3], "measured": [1.0], "stderr": [0.03]})
    assert with_z(rows)["z"][0] == pytest.approx(10)
    assert with_z(rows.assign(prediction_error=0.04))["z"][0] == pytest.approx(6)
    assert with_z(rows.assign(prediction_error=np.nan))["z"][0] == pytest.approx(10)


def test_rows_beyond_three_are_marked_everywhere():
    rows = pd.DataFrame(
        {
            "n": [10, 20, 10, 20, 10, 20],
            "predicted": [1.0, 1.0, 1.0, 1.0, 1.0, 1.45],
            "measured": 1.0,
            "stderr": 0.1,
        }
    )
    assert marked(with_z(rows))["z"].tolist() == ["0.0"] * 5 + ["4.5 !"]
    assert beyond_listed(rows) == "Beyond 3 combined errors: n 20 (z +4.5)."
    assert beyond_listed(rows.head(5)).startswith("No row")
    assert points(rows).beyond == [False] * 5 + [True]


def test_errors_of_models_are_compared_too():
    rows = pd.DataFrame({"predicted": [1.0, 2.0], "measured": [1.1, np.nan]})
    assert comparable(rows) is None
    named = comparable(rows.assign(measured_stderr=0.03, predicted_stderr=0.04))
    assert with_z(named)["z"].tolist() == pytest.approx([-2])


def test_a_skewed_measurement_has_the_z_of_a_normal_one():
    """Means of 20 exponential draws: z has the quantiles of a normal variable on both sides."""
    drawn = np.random.default_rng(0).exponential(size=(20, 20_000))
    stderr, skew = drawn.std(axis=0, ddof=1) / np.sqrt(20), skewness(drawn) / np.sqrt(20)
    rows = pd.DataFrame({"predicted": 1.0, "measured": drawn.mean(axis=0), "stderr": stderr})
    for z, most in ((with_z(rows)["z"], 0.2), (with_z(rows.assign(skewness=skew))["z"], 0.05)):
        leaning = (z > 1.96).mean() - (z < -1.96).mean()
        assert leaning < most
    assert (with_z(rows)["z"] > 1.96).mean() > 0.08
    assert (with_z(rows.assign(skewness=skew))["z"] > 1.96).mean() < 0.055
    same = with_z(rows.assign(skewness=np.nan))["z"]
    np.testing.assert_array_equal(same, with_z(rows)["z"])


def test_the_skewness_counts_as_much_as_the_measurement_does():
    rows = pd.DataFrame({"predicted": [1.3], "measured": [1.0], "stderr": [0.1], "skewness": [0.6]})
    alone = with_z(rows)["z"][0]
    assert alone == pytest.approx(3 - 0.6 * 3 + 0.36 - 0.1)
    shared = with_z(rows.assign(prediction_error=1.0))["z"][0]
    assert shared == pytest.approx(0.3 / np.hypot(0.1, 1.0), abs=1e-3)
