"""How many tokens are enough for attention: predicted, then measured.

Public names are written once, in `__init__.pyi`, and load when first used.
"""

import lazy_loader

__version__ = "0.2.0.dev0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
