"""How is a table kept as parquet, and read again though it may be damaged or someone else's?"""

from __future__ import annotations

import io

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from attnlimit.files import Damaged

MOST_TABLE = 1 << 31
MOST_VALUES = 10**8
"""Bytes of a table and numbers in it, unpacked: far beyond what the package writes."""


def to_parquet(frame: pd.DataFrame, schema: pa.Schema | None = None) -> bytes:
    """Return a table as the bytes of a parquet file, of the types of `schema` if there is one."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, write_page_checksum=True, schema=schema)
    return buffer.getvalue()


def read_table(content: bytes, name: str, schema: pa.Schema | None = None) -> pd.DataFrame:
    """Read a parquet file; one that would unpack to more than a run writes is refused.

    With a `schema`, its columns have to be there, and such that its types can hold them.
    """
    try:
        # Row groups only: asking pyarrow 26 for a damaged column's metadata ends the process.
        said = pyarrow.parquet.read_metadata(io.BytesIO(content))
        groups = [said.row_group(k) for k in range(said.num_row_groups)]
        values = sum(abs(group.num_rows) for group in groups) * max(1, said.num_columns)
        size = sum(abs(group.total_byte_size) for group in groups)
        if max(values, said.num_rows) > MOST_VALUES or size > MOST_TABLE:
            raise ValueError(f"it unpacks to {values:.3g} values")
        read = pyarrow.parquet.read_table(io.BytesIO(content), page_checksum_verification=True)
        table: pd.DataFrame = (read if schema is None else _of_schema(read, schema)).to_pandas()
        table.columns = [str(column) for column in table.columns]
        "".join(table.columns).encode()  # half a character is damage
    except MemoryError:
        raise
    except Exception as error:  # a damaged table can trip the reader anywhere
        reason = str(error).strip().split("\n")[0].rstrip(".")[:200]
        raise Damaged(f"{name} is damaged: {reason or type(error).__name__}.") from None
    return table


def _of_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ValueError(f"it has no {', '.join(map(repr, missing))}")
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException:
            raise ValueError(f"its {field.name!r} is {column.type}, not {field.type}") from None
    return pa.table(columns, schema=schema)
