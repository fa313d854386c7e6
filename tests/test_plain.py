import json

import numpy as np
import pandas as pd

from attnlimit.plain import plain


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
    found = plain(content)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found == {
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
