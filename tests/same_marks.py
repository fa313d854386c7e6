"""Marks of rows beyond three errors: z is the same in a table and in its figure."""

from __future__ import annotations

import numpy as np

from attnlimit.picture import Panel, Series
from attnlimit.reproduce.compare import BEYOND, MARK, OWN, with_z
from attnlimit.reproduce.result import Result

ERRORS = ("stderr", "measured_stderr", "predicted_stderr", OWN)


def surer(result: Result) -> Result:
    """The same with errors a fiftieth as large: much is then beyond three of them."""
    smaller = {name: result.curves[name] / 50 for name in ERRORS if name in result.curves}
    return Result(result.experiment, result.config, result.curves.assign(**smaller))


def check_marks(result: Result) -> None:
    """Hold every z of the table, and every ring of the figure, to those of the compared rows."""
    compared = result.experiment.compared(result.config, result.with_errors)
    points = [
        (panel, series)
        for panel in result.figure.panels
        for series in panel.series
        if series.beyond is not None
    ]
    if compared is None:
        assert not any(any(series.beyond) for _, series in points)
        return
    z = with_z(compared)["z"].to_numpy(float)
    for name, values in (("z", z), ("largest |z|", np.abs(z))):
        if name in result.table:
            shown = result.table[name].to_numpy(float)
            known = np.isfinite(shown)
            assert among(shown[known], values).all()
            marked = [text.endswith(MARK) for text in result.shown[name]]
            assert marked == (np.abs(shown) > BEYOND).tolist()
    measured = compared["measured"].to_numpy(float)
    far = np.abs(z) > BEYOND
    for panel, series in points:
        value = series.x if series.x_error is not None else series.y
        place = np.asarray(value, dtype=float)
        ringed = np.asarray(series.beyond, dtype=bool)
        whole = among(place, measured).any()  # else what is missing of 1, on an axis of its own
        rows = measured if whole else 1 - np.abs(measured)
        drawn = among(place, rows)
        if not drawn.any():  # rates that are fitted to the rows have a z of their own
            check_own_marks(panel, series)
            continue
        assert among(place[ringed], rows[far]).all()
        assert not among(place[~ringed & drawn], np.setdiff1d(rows[far], rows[~far])).any()


def check_own_marks(panel: Panel, series: Series) -> None:
    """Hold the rings of a series to the predictions, their bands and the bars drawn with it."""
    x, y, bar = (np.asarray(entry, dtype=float) for entry in (series.x, series.y, series.error))
    lines = [
        np.stack([series.x, series.y]).astype(float)
        for series in panel.series
        if series.style == "line"
    ]
    pieces = [line.reshape(2, -1, 3) for line in lines if is_pieces(line)]
    across = [piece for piece in pieces if (piece[0, :, 0] < piece[0, :, 1]).all()]
    upright = [piece for piece in pieces if (piece[0, :, 0] == piece[0, :, 1]).all()]
    around = [
        entry for entry in panel.series if entry.style == "band" and entry.group == series.group
    ]
    bands = [entry for entry in around if np.array_equal(np.asarray(entry.x, dtype=float), x)]
    if across:
        places = np.concatenate([piece[0, :, :2].mean(axis=1) for piece in across])
        predicted = np.concatenate([piece[1, :, 0] for piece in across])
        own = sum((np.ptp(piece[1, :, :2], axis=1) / 2 for piece in upright), start=np.zeros(1))
    elif bands:
        ((places, predicted, top),) = np.asarray(
            [[band.x, band.y, band.upper] for band in bands], float
        )
        own = top - predicted
    else:  # nothing is predicted
        assert not any(series.beyond)
        return
    here = np.isclose(x[:, None], places, rtol=1e-9)
    assert (here.sum(axis=1) == 1).all()
    z = (predicted[here.argmax(axis=1)] - y) / np.hypot(bar, own)
    assert np.asarray(series.beyond).tolist() == (np.abs(z) > BEYOND).tolist()


def is_pieces(line: np.ndarray) -> bool:
    """Whether a line is short pieces, as `panels.marks` and `reach` draw them: two ends, a gap."""
    return line.shape[1] % 3 == 0 and bool(np.isnan(line[:, 2::3]).any(axis=0).all())


def among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the values are in a list, to rounding."""
    known = known[np.isfinite(known)]
    near = np.isclose(values[:, None], known[None, :], rtol=1e-9, atol=0)
    return near.any(axis=1)
