"""The explorer's tables are what the laws give today."""

import json

import numpy as np
import pytest

from attnlimit import gaussian_law
from attnlimit.report.explorer import ALPHAS, LENGTHS, SIGNALS, STRENGTHS, sparse_error
from attnlimit.report.page import asset


@pytest.fixture(scope="module")
def shipped():
    return json.loads(asset("explorer.json"))


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
