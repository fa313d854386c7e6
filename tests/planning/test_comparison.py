"""A plan beside several samplers at several sizes, predicted and measured."""

import numpy as np
import pandas as pd
import torch

from attnlimit.models.loading import LoadedModel
from attnlimit.models.texts import Passage, Passages
from attnlimit.planning import comparison
from attnlimit.planning.calibration import calibration_of
from attnlimit.planning.target import NextToken

IDS = tuple(torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2)).tolist())


def test_curves_have_predicted_and_measured_errors_at_the_same_sizes(causal, monkeypatch):
    sizes = {"threshold": (0.25, 0.5)}
    monkeypatch.setattr(comparison, "PREDICTED", sizes)
    monkeypatch.setattr(comparison, "MEASURED", sizes)
    target, loaded = NextToken(0.01), LoadedModel("made", causal, None, "", "made")
    passages = Passages((Passage("made", "made", "none", 0, IDS),), None)
    calibration = calibration_of(loaded, passages.ids, target, probes=8, seed=0)
    given, seen = (loaded, passages, calibration, target), []
    options = {"options": {}, "repeats": 8, "curves": True}
    rows = comparison.compare(*given, **options).curves
    reporting = comparison.compare(*given, **options, progress=lambda *done: seen.append(done))
    pd.testing.assert_frame_equal(reporting.curves, rows)
    assert seen[-2:] == [(1, 2), (2, 2)]
    errors = {law: rows[(rows.law == law) & (rows.scheme == "threshold")] for law in set(rows.law)}
    np.testing.assert_allclose(errors["measured"].error, errors["predicted"].error, rtol=0.5)
    np.testing.assert_allclose(errors["measured"]["keys"], errors["predicted"]["keys"], rtol=0.05)
    bound = rows[rows.scheme == "bound"].error.to_numpy()
    assert (bound <= errors["predicted"].error.to_numpy()).all()
    assert errors["measured"].error.is_monotonic_decreasing
