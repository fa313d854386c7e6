import inspect
import json

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.result import Result, plain, table

LAW = al.gaussian_law([[0.5], [1.0]], [5, 10, 20])


def test_a_table_has_one_row_for_each_entry_of_the_whole():
    frame = table(query=np.arange(2)[:, None], n=[5, 10, 20], kind="exact")
    assert frame["query"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["n"].tolist() == [5, 10, 20, 5, 10, 20]
    assert set(frame["kind"]) == {"exact"}


def test_a_result_prints_its_headline_and_its_rows():
    first, *rest = str(LAW).splitlines()
    assert first == LAW.headline()
    assert len(rest) == 1 + len(LAW.to_frame())


def test_a_notebook_shows_the_same_table():
    shown = al.uniform_bound(al.Head(np.eye(2)), al.Sphere(2), 1.0, [10, 100])._repr_html_()
    assert "|x| &lt;= 1" in shown
    assert shown.count("<tr") == 1 + 2


def test_every_public_result_shows_itself_in_a_notebook():
    public = [
        getattr(entry, name) for entry in (al, al.models, al.sparse) for name in entry.__all__
    ]
    tables = [entry for entry in public if inspect.isclass(entry) and hasattr(entry, "to_frame")]
    assert len(tables) > 20
    assert [table for table in tables if not issubclass(table, Result)] == []


def test_fluctuations_have_a_row_for_each_query():
    fluctuation = al.fluctuation(al.Head(np.eye(2)), al.Gaussian(dim=2), np.ones((3, 2)))
    assert fluctuation.to_frame()["variance"].tolist() == [
        np.trace(entry) for entry in fluctuation.covariance
    ]
    result = al.fluctuation(al.Head(np.eye(2)), al.Gaussian(dim=2), np.ones(2))
    assert len(result.to_frame()) == 1
    assert result._repr_html_().count("<tr") == 2


def test_what_numpy_and_pandas_hold_becomes_json():
    frame = pd.DataFrame({"n": [1, 2], "error": [0.5, np.nan]})
    content = {
        1: np.array([1, 2]),
        "table": frame,
        "column": frame["n"],
        "flag": np.bool_(True),
        "nothing": None,
        "path": np.float32(np.inf),
        "pair": (np.int8(3), "text"),
    }
    result = plain(content)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result == {
        "1": [1, 2],
        "table": [{"n": 1, "error": 0.5}, {"n": 2, "error": None}],
        "column": [1, 2],
        "flag": True,
        "nothing": None,
        "path": None,
        "pair": [3, "text"],
    }


def test_digits_round_numbers_and_nothing_else():
    assert plain({"x": [1.23456789, 123456, None, True]}, 5) == {"x": [1.2346, 123456, None, True]}
