"""Which versions do results depend on? Those of the package and of what computes and stores."""

from __future__ import annotations

import platform
from importlib.metadata import version

LIBRARIES = ("numpy", "scipy", "pandas", "pyarrow", "torch")


def versions() -> dict[str, str]:
    """Return the versions in this process, Python's and attnlimit's included."""
    import attnlimit

    found = {"python": platform.python_version(), "attnlimit": attnlimit.__version__}
    return found | {library: version(library) for library in LIBRARIES}
