"""Real transformers: load, capture, plan, sample and evaluate.

Public names are written once, in `__init__.pyi`, and load when first used.
"""

from attnlimit.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
