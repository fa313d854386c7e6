"""Is z the same in a table and in its figure? What is beyond three errors is marked in both."""

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
    compared = result.experiment.compared(result.config, result.weighed)
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
    x, y, bar = (np.asarray(one, dtype=float) for one in (series.x, series.y, series.error))
    lines = [np.stack([one.x, one.y]).astype(float) for one in panel.series if one.style == "line"]
    across = [line for line in lines if is_marks(line[0])]
    joined = [line for line in lines if line.shape[1] == len(x) and np.allclose(line[0], x)]
    if across:
        places = np.concatenate([line[0].reshape(-1, 3)[:, :2].mean(axis=1) for line in across])
        told = np.concatenate([line[1, ::3] for line in across])
    elif joined:
        ((places, told),) = joined
    else:  # nothing is predicted
        assert not any(series.beyond)
        return
    here = np.isclose(x[:, None], places, rtol=1e-9)
    assert (here.sum(axis=1) == 1).all()
    bands = [one for one in panel.series if one.style == "band" and len(one.x) == len(x)]
    own = sum(np.asarray(one.upper, dtype=float) - np.asarray(one.y, dtype=float) for one in bands)
    z = (told[here.argmax(axis=1)] - y) / np.hypot(bar, own)
    assert np.asarray(series.beyond).tolist() == (np.abs(z) > BEYOND).tolist()


def is_marks(places: np.ndarray) -> bool:
    """Whether a line is short pieces across, as `panels.marks` draws them: two ends and a gap."""
    return len(places) % 3 == 0 and bool(np.isnan(places[2::3]).all())


def among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the values are in a list, to rounding."""
    known = known[np.isfinite(known)]
    near = np.isclose(values[:, None], known[None, :], rtol=1e-9, atol=0)
    return near.any(axis=1)
