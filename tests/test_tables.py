import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from attnlimit.files import Damaged
from attnlimit.tables import read_table, to_parquet

SCHEMA = pa.schema([("n", pa.int64()), ("error", pa.float64())])
FRAME = pd.DataFrame({"n": [1, 2], "error": [0.5, np.nan]})


def test_a_typed_table_comes_back_as_it_was():
    pd.testing.assert_frame_equal(read_table(to_parquet(FRAME, SCHEMA), "t", SCHEMA), FRAME)


def test_what_the_types_can_hold_is_of_the_schema():
    written = to_parquet(FRAME.assign(n=FRAME.n.astype("int8")))
    pd.testing.assert_frame_equal(read_table(written, "t", SCHEMA), FRAME)


def test_more_columns_than_the_schema_are_left_out():
    found = read_table(to_parquet(FRAME.assign(more="x")), "t", SCHEMA)
    assert list(found) == ["n", "error"]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (FRAME.drop(columns="error"), "has no 'error'"),
        (FRAME.assign(n=["a", "b"]), "'n' is .*string, not int64"),
    ],
)
def test_other_columns_or_types_are_refused_by_name(frame, reason):
    with pytest.raises(Damaged, match=reason):
        read_table(to_parquet(frame), "t", SCHEMA)
