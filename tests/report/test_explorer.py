"""The tables of the explorer agree with the laws."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlimit import gaussian_law

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from explorer import ALPHAS, HERE, LENGTHS, SIGNALS, STRENGTHS, sparse_error


@pytest.fixture(scope="module")
def shipped():
    return json.loads((HERE / "laws.json").read_text())


def test_the_tabulated_law_is_the_exact_one(shipped):
    table = shipped["law"]
    for row, column in ((0, 5), (20, 30), (50, 10), (71, 45)):
        law = gaussian_law(np.exp(table["logSigma"][row]), table["n"][column])
        assert table["logMse"][row][column] == pytest.approx(np.log(law.mse), abs=1e-3)
        assert table["logParticipation"][row][column] == pytest.approx(
            np.log(law.participation), abs=1e-3
        )


@pytest.mark.parametrize("model", ["attention", "pooled", "vectorized"])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 1, 4, 3), (3, 2, 7, 6)])
def test_the_tabulated_errors_are_the_exact_ones(shipped, model, place):
    a, b, c, d = place
    now = sparse_error(model, LENGTHS[a], SIGNALS[b], STRENGTHS[c], ALPHAS[d])
    assert shipped["sparse"]["error"][model][a][b][c][d] == pytest.approx(now, rel=1e-3, abs=1e-6)
