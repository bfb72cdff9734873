"""Which axis of an array without names holds the bands, by its values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOOKED_AT = 24  # places along each axis that are looked at
SPECTRA = 3  # a scene consists of about so many spectra, whereas its rows and columns are all different
CLEAR = 0.5  # the spectral axis leaves less than this share of what another axis leaves unexplained
FEW_BANDS = (
    1 / 4
)  # an axis too short to judge by its values is spectral if it is shorter than this share of others


def spectral_axis(pixels: NDArray[Any]) -> int | None:
    """The axis of a three-dimensional array that surely is spectral, None if none is.

    Spectra of a scene are nearly mixtures of a few, so that along their axis few components explain all values.
    """
    short = int(np.argmin(pixels.shape))
    others = [size for axis, size in enumerate(pixels.shape) if axis != short]
    if pixels.shape[short] <= SPECTRA + 1:
        return short if pixels.shape[short] < FEW_BANDS * min(others) else None
    places = [np.unique(np.linspace(0, size - 1, min(size, LOOKED_AT)).astype(int)) for size in pixels.shape]
    values = np.nan_to_num(pixels[np.ix_(*places)].astype(np.float64), posinf=0, neginf=0)
    left = [_unexplained(values, axis) for axis in range(3)]
    best = int(np.argmin(left))
    second = sorted(left)[1]
    return best if second > 0 and left[best] < CLEAR * second else None


def _unexplained(values: NDArray[np.float64], axis: int) -> float:
    """The share of the variance that the largest components along an axis leave, as if it were evenly spread."""
    lines = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    lines = lines - lines.mean()
    powers = np.linalg.eigvalsh(lines @ lines.T)[::-1].clip(0)
    total, count = float(powers.sum()), len(powers)
    return (
        float(powers[SPECTRA:].sum()) / total * count / (count - SPECTRA) if total > 0 and count > SPECTRA else 1.0
    )
