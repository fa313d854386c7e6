"""Start-up time against Python with numpy and scipy.special."""

from __future__ import annotations

import sys

from benchmarks.row import Row, process_seconds

REPEATS = 10
ALLOWED = 1.5


def run() -> list[Row]:
    """Median seconds of fresh processes; a ratio of 1 / 1.5 is what must be held."""
    python = sys.executable
    numpy, imported, helped = process_seconds(
        [
            [python, "-c", "import numpy, scipy.special"],
            [python, "-c", "import attnlimit"],
            [python, "-m", "attnlimit", "--help"],
        ],
        REPEATS,
    )
    return [
        Row("import attnlimit, against import numpy, scipy.special", imported, numpy, 1 / ALLOWED),
        Row("attnlimit --help, against import numpy, scipy.special", helped, numpy, 1 / ALLOWED),
    ]
