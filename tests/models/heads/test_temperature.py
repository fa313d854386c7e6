"""Gap counting of captured heads is that of the rows of their scores."""

import numpy as np
import pytest

import attnlimit as al


@pytest.fixture(scope="module")
def own():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 2, 60, 8)) for _ in range(3))
    q[1] *= 6
    return al.models.from_arrays(q, k, v, causal=True)


def test_a_head_is_described_by_its_rows(own):
    found = own.temperatures()
    assert isinstance(found, al.models.HeadTemperatures)
    for row, head in zip(found.to_frame().to_dict("records"), own, strict=True):
        rows = al.critical_temperature(head.scores())
        assert row["ratio"] == pytest.approx(np.median(rows.ratio))
        assert row["above"] == pytest.approx((rows.ratio > 1).mean())
        assert row["entropy"] == pytest.approx(np.median(rows.entropy))


def test_sharper_heads_are_further_above(own):
    frame = own.temperatures().to_frame()
    assert frame[frame["layer"] == 1]["ratio"].min() > 2 * frame[frame["layer"] == 0]["ratio"].max()
    steadier = own.temperatures(few=4).to_frame()
    assert (steadier["ratio"] >= frame["ratio"]).all()
    assert "above one" in str(own.temperatures())
    assert own.temperatures().plot().get_xlabel()
