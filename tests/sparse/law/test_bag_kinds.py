"""Several directions, and signals or lengths of other kinds, have exact asymptotics too."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlimit.sparse import SparseTask, readout

pytest.importorskip("sklearn")
STUDY = Path(__file__).parents[3] / "studies" / "bag_kinds.py"


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("bag_kinds", STUDY)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bag_kinds"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bag_kinds"]


def test_plain_bags_have_the_law_of_the_task(study):
    query = {"cosine": study.COSINE, "sharpness": study.SHARPNESS, "ridge": study.RIDGE}
    law = readout(SparseTask(10, 1, study.STRENGTH), study.ALPHA, **query).test_error
    assert study.predicted_readout(study.Kind()) == pytest.approx(law, rel=0.01)


def test_readouts_of_other_bags_are_what_their_law_says(study, monkeypatch):
    monkeypatch.setattr(study, "DIM", 120)
    kind = study.Kind(directions=2, variance=0.5, binomial=True, lengths=(6, 12))
    drawn = [study.trained_readout(kind, np.random.default_rng(seed)) for seed in range(4)]
    assert np.mean(drawn) == pytest.approx(study.predicted_readout(kind), rel=0.15)
