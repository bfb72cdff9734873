"""Which numbers a NumPy type can hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The smallest and the largest finite number of a type."""
    if dtype.kind in "ui":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return float(np.finfo(dtype).min), float(np.finfo(dtype).max)


def can_hold(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a type holds this number, floating-point types up to their precision."""
    if dtype.kind == "f":
        # Text rounds the largest numbers of a type to a little more than it holds.
        with np.errstate(over="ignore"):
            return math.isinf(value) or bool(np.isfinite(np.float64(value).astype(dtype)))
    least, most = limits(dtype)
    return least <= value <= float(most) and float(value).is_integer()


def as_stored(value: float, dtype: np.dtype[Any]) -> float:
    """A number as a file of this type stores it: an int for integers, unless the type cannot hold it."""
    # float64 rounds 2**63 - 1 up to 2**63, which is one too many.
    return min(int(value), np.iinfo(dtype).max) if dtype.kind in "ui" and can_hold(dtype, value) else value


def can_hold_all(dtype: np.dtype[Any], pixels: NDArray[Any]) -> bool:
    """Whether pixels keep their values in this type, up to the precision of a float; NumPy would wrap them."""
    if not pixels.size or np.can_cast(pixels.dtype, dtype):
        return True
    if pixels.dtype.kind in "ui" and dtype.kind in "ui":
        least, most = limits(dtype)
        return int(pixels.min()) >= least and int(pixels.max()) <= most
    if pixels.dtype.kind == "f" and dtype.kind == "f":
        finite = pixels[np.isfinite(pixels)]
        return not finite.size or float(np.abs(finite).max()) <= limits(dtype)[1]
    return np.can_cast(pixels.dtype, dtype, "same_kind")
