"""How many tokens are enough for attention: predicted, then measured.

Public names are written once, in `__init__.pyi`, and load when first used.
"""

from attnlimit.lazy import attach_stub

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
