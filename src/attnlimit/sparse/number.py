"""Number: a result that is one number, `value`, with what it stands on beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray


class Number(NDArrayOperatorsMixin):
    """Base of results with a `value`: float(), round(), comparison and arithmetic use it alone."""

    value: float

    def __float__(self) -> float:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (one.value if isinstance(one, Number) else one for one in inputs)
        return getattr(ufunc, method)(*plain, **options)
