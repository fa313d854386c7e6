"""Several directions, and signals or lengths of other kinds, have exact asymptotics too."""

import numpy as np
import pytest

import bag_kinds as KINDS
from attnlimit.sparse import SparseTask, readout

pytest.importorskip("sklearn")


def test_plain_bags_have_the_law_of_the_task():
    query = {"cosine": KINDS.COSINE, "sharpness": KINDS.SHARPNESS, "ridge": KINDS.RIDGE}
    law = readout(SparseTask(10, 1, KINDS.STRENGTH), KINDS.ALPHA, **query).test_error
    assert KINDS.predicted_readout(KINDS.Kind()) == pytest.approx(law, rel=0.01)


def test_readouts_of_other_bags_are_what_their_law_says(monkeypatch):
    monkeypatch.setattr(KINDS, "DIM", 120)
    kind = KINDS.Kind(directions=2, variance=0.5, binomial=True, lengths=(6, 12))
    drawn = [KINDS.trained_readout(kind, np.random.default_rng(seed)) for seed in range(4)]
    assert np.mean(drawn) == pytest.approx(KINDS.predicted_readout(kind), rel=0.15)
