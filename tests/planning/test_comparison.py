"""Curves of several samplers at several sizes: predicted beside measured."""

import numpy as np
import pandas as pd
import torch

from attnlimit.models.loading import LoadedModel
from attnlimit.planning import comparison
from attnlimit.planning.target import NextToken

IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2)).tolist()


def test_curves_have_predicted_and_measured_errors_at_the_same_sizes(causal, monkeypatch):
    sizes = {"threshold": (0.25, 0.5)}
    monkeypatch.setattr(comparison, "PREDICTED", sizes)
    monkeypatch.setattr(comparison, "MEASURED", sizes)
    loaded, seen = LoadedModel("made", causal, None, "", "made"), []
    given = loaded, IDS, NextToken(), 8, 8, 0
    rows = pd.DataFrame(comparison._curves(*given, lambda *done: seen.append(done)))
    assert seen == [(1, 2), (2, 2)]
    again = pd.DataFrame(comparison._curves(*given, None))
    pd.testing.assert_frame_equal(again, rows)
    errors = {law: rows[(rows.law == law) & (rows.scheme == "threshold")] for law in set(rows.law)}
    np.testing.assert_allclose(errors["measured"].error, errors["predicted"].error, rtol=0.5)
    np.testing.assert_allclose(errors["measured"]["keys"], errors["predicted"]["keys"], rtol=0.05)
    bound = rows[rows.scheme == "bound"].error.to_numpy()
    assert (bound <= errors["predicted"].error.to_numpy()).all()
    assert rows[rows.law == "measured"].error.is_monotonic_decreasing
