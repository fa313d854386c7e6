"""Bytes and milliseconds of a decoded token: what they are made of."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.planning.cost import CacheUse, CostModel, Shape
from attnlimit.samplers.two_level import NEAR, PAGE

SHAPE = Shape(heads=4, key_heads=2, width=64, value_width=64, number=2)
STORED = np.array([2000.0, 5000.0])


def read(sampler, keys):
    rows = np.full(2, SHAPE.row_bytes)
    return float(CacheUse(SHAPE, STORED, np.full(2, keys), rows, sampler).bytes_read)


def test_two_levels_score_the_pages_that_are_always_read_whatever_c_is():
    """The first page and the last ones by their codes, beside the summaries of all pages."""
    summaries = 2 * STORED.sum() * al.TwoLevel(1.0).selection_bytes(64, 2)
    codes = 4 * 2 * (1 + NEAR) * PAGE * SHAPE.code_bytes
    assert read(al.TwoLevel(1e-9), 0.0) == pytest.approx(summaries + codes)
    assert read(al.TwoLevel(1e-9), 5.0) == pytest.approx(summaries + codes + 2 * 5 * 256)


def test_two_levels_score_each_key_once_at_most():
    most = 2 * STORED.sum() * al.TwoLevel(1.0).selection_bytes(64, 2)
    most += 4 * STORED.sum() * SHAPE.code_bytes
    assert read(al.TwoLevel(10.0), 0.0) < read(al.TwoLevel(20.0), 0.0) < most
    assert read(al.TwoLevel(1e6), 0.0) == pytest.approx(most)


def test_time_is_linear_in_the_keys_that_are_kept():
    none, few, many, every = (
        np.array(CostModel().milliseconds(SHAPE, 10_000, c)) for c in (0.0, 16.0, 32.0, 10_000.0)
    )
    assert few[0] == many[0] == every[0]
    assert (few[1:] > none[1:]).all()
    np.testing.assert_allclose(many - few, few - none)
    np.testing.assert_allclose((every - none)[1:], (10_000 / 16) * (few - none)[1:])
