"""Inputs that nobody should write: noise, damaged files, and well-formed files full of nonsense.

ATTNLIMIT_FUZZ says how many inputs all targets together get; a small share runs in CI.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from attnlimit.errors import AttnlimitError

TOTAL = int(os.environ.get("ATTNLIMIT_FUZZ", "2500"))
IN_CI = "ATTNLIMIT_FUZZ" not in os.environ
HANG = 30
"""Seconds after which an input counts as a hang; the slowest take well under one."""


def share(percent: float) -> settings:
    """Settings of a target that gets `percent` of all inputs; always the same ones in CI."""
    return settings(
        max_examples=max(10, round(TOTAL * percent / 100)),
        derandomize=IN_CI,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


class Hang(BaseException):
    """An input took too long."""


@contextmanager
def one_sentence():
    """Pass if the block succeeds or raises one sentence of ours; fail on all else, and on hangs."""

    def stop(*_):
        raise Hang(f"no answer after {HANG} s")

    timed = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if timed:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    except AttnlimitError as error:
        text = str(error)
        assert text.strip()
        assert "\n" not in text
        assert "Traceback" not in text
        assert len(text) < 2000
        assert text.endswith((".", "?", "!"))
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


strange_text = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["", "\0", "\ud800", "[/b]", "[red]", "\x1b[31m", "../..", "/etc/passwd", "<script>", "a\nb",
     "NaN", "model", "clt", "1e999", "\u2028", "%s", "{0}", "$x", "\uffff", "é" * 300]
)  # fmt: skip
strange_numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from(
        [0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 1e308, -0.0, 1e-320]
    )
)
json_values = st.recursive(
    st.none() | st.booleans() | strange_numbers | strange_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strange_text, inner, max_size=4),
    max_leaves=8,
)
nested = st.builds(
    lambda depth, pair: pair[0] * depth + pair[1] * depth,
    st.sampled_from([10, 900, 1100, 100_000]),
    st.sampled_from([("[", "]"), ('{"a":', "}"), ("[", "")]),
)


def as_json(value) -> bytes:
    """JSON with whatever Python lets through: NaN, half characters, huge numbers."""
    try:
        return json.dumps(value).encode()
    except ValueError:  # more digits than Python will write
        return b"1" * 5000


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """`content` with bits flipped, parts cut, doubled, or replaced."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        size = len(data)
        place = draw(st.integers(0, size))
        other = draw(st.integers(place, min(size, place + 64)))
        match draw(st.integers(0, 6)):
            case 0 if place < size:
                data[place] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[place:]
            case 2:
                del data[place:other]
            case 3:
                data[place:place] = data[place:other]
            case 4:
                data[place:other] = draw(st.binary(max_size=16))
            case 5:
                end = min(size, place + 8)
                data[place:end] = draw(st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\x7f" * 8]))
            case _:
                data[:place] = b""
    return bytes(data)


def places(value, path=()):
    """All paths into a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield from places(value[index], (*path, index))


@st.composite
def rewritten(draw, value, times: int = 3):
    """A JSON value with some entries removed, renamed, doubled or replaced by nonsense."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, times))):
        path = draw(st.sampled_from(list(places(value))))
        if not path:
            continue
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        last = path[-1]
        match draw(st.integers(0, 5)):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, dict):
                holder[draw(strange_text)] = holder.pop(last)
            case 2 if isinstance(holder, list):
                holder.append(draw(json_values))
            case 3:
                other = draw(st.sampled_from(list(places(value))))
                actual = value
                for step in other:
                    actual = actual[step]
                holder[last] = copy.deepcopy(actual)
            case 4:
                holder[last] = draw(strange_numbers)
            case _:
                holder[last] = draw(json_values)
    return value


@st.composite
def spoiled(draw, frame: pd.DataFrame) -> pd.DataFrame:
    """A table with columns or rows missing, of another type, or full of nonsense."""
    frame = frame.copy()
    for _ in range(draw(st.integers(1, 3))):
        columns = list(frame.columns)
        column = draw(st.sampled_from(columns)) if columns else "none"
        rows = len(frame)
        match draw(st.integers(0, 9)):
            case 0 if columns:
                frame = frame.drop(columns=column)
            case 1:
                frame = frame.iloc[: draw(st.integers(0, rows))]
            case 2:
                frame = frame.iloc[draw(st.integers(0, rows)) :]
            case 3 if columns:
                name = draw(strange_text).encode("utf-8", "replace").decode()
                frame = frame.rename(columns={column: name})
                frame = frame.loc[:, ~frame.columns.duplicated()]
            case 4:
                filler = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 5e-324]))
                frame[column] = filler
            case 5:
                frame[column] = draw(st.sampled_from(["", "x", "{", "null", "<script>", "[/b]"]))
            case 6:
                frame[column] = None
            case 7:
                frame[column] = [[1.0, 2.0]] * rows
            case 8 if rows:
                frame = frame.sample(frac=1.0, random_state=draw(st.integers(0, 9)))
            case _:
                frame = pd.concat([frame, frame.iloc[:3]], ignore_index=True)
    return frame
