"""Gap counting: the critical temperature of a row is what its bounds say, in one sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al

ROWS = st.lists(st.floats(-30, 30), min_size=2, max_size=40)


@given(row=ROWS, scale=st.floats(0.01, 100), few=st.sampled_from([1.0, 2.0, 4.5]))
@settings(max_examples=200, deadline=None)
def test_weights_keep_to_the_bounds(row, scale, few):
    temperatures = al.critical_temperature(scale * np.array(row), few=few)
    assert temperatures.top[0] <= temperatures.most_top[0] + 1e-12
    assert temperatures.top[0] >= temperatures.least_top[0] - 1e-12
    assert temperatures.entropy[0] <= temperatures.most_entropy[0] + 1e-12


@given(row=ROWS, scale=st.floats(0.1, 10))
@settings(max_examples=100, deadline=None)
def test_it_is_the_least_that_bounds_the_counts(row, scale):
    scores = np.array(row)
    gaps = np.sort(scores.max() - scores)[1:]
    counts = np.array([(gaps <= gap).sum() for gap in gaps])
    temperatures = al.critical_temperature(scores)
    beta = temperatures.critical[0]
    if np.isfinite(beta):
        assert (np.log(counts) <= beta * gaps * (1 + 1e-9) + 1e-9).all()
        assert np.log(temperatures.competitors[0]) == pytest.approx(beta * temperatures.gap[0])
    else:
        assert (gaps <= 1e-300).sum() >= 2
    if 0 < beta < 1e6:
        scaled = al.critical_temperature(scale * scores[::-1] + 3.0)
        assert scaled.ratio[0] == pytest.approx(scale * temperatures.ratio[0], rel=1e-6)


@pytest.mark.parametrize("n", [10, 1000])
def test_known_rows(n):
    level = al.critical_temperature(np.append(np.zeros(n - 1), 2.0))  # all others at a gap of 2
    assert level.critical[0] == pytest.approx(np.log(n - 1) / 2)
    assert level.competitors[0] == n - 1
    line = al.critical_temperature(-np.log(np.arange(1, n + 1)))  # N(g) = e^g - 1
    assert line.critical[0] == pytest.approx(np.log(n - 1) / np.log(n))
    tied = al.critical_temperature(np.zeros(n))
    assert tied.ratio[0] == 0
    assert tied.entropy[0] == pytest.approx(np.log(n))


def test_normal_scores_have_the_scale_of_the_random_energy_model():
    rng = np.random.default_rng(0)
    n = np.array([100, 1000, 10000])
    median = [np.median(al.critical_temperature(rng.normal(size=(300, k))).critical) for k in n]
    assert (np.abs(median / np.sqrt(2 * np.log(n)) - 0.8) < 0.15).all()


def test_rows_of_a_head():
    scores = np.array([[0.0, -np.inf, -np.inf], [1.0, 0.5, -np.inf], [1.0, 0.5, 0.0]])
    temperatures = al.critical_temperature(scores)
    assert list(temperatures.keys) == [1, 2, 3]
    assert temperatures.critical == pytest.approx([0, 0, np.log(2)])
    assert temperatures.participation[0] == 1
    assert "median β/β_c" in str(temperatures)
    assert len(temperatures.to_frame()) == 3
    for wrong, word in (
        (np.full((1, 2), -np.inf), "visible"),
        ([np.nan, 1.0], "NaN"),
        ([], "rows"),
    ):
        with pytest.raises(al.BadInput, match=word):
            al.critical_temperature(wrong)
