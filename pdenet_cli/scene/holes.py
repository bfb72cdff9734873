"""Pixels without data: where they are, and what the network sees in their place."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.cube import Pixels

FILL_DEPTH = 3
"""How deep holes are filled from their edges, in pixels of the network's input; filled with the band's mean alone,
they would have false edges, which the network would sharpen."""


def valid(pixels: Pixels, nodata: float | None) -> NDArray[np.bool_]:
    """Where there is data: finite and not the file's nodata value."""
    valid_mask = np.isfinite(pixels)
    if nodata is not None and not math.isnan(nodata):
        # A float32 file stores the nearest float32 of its nodata value, so compare in the file's own type.
        with np.errstate(over="ignore"):
            value = np.float64(nodata).astype(pixels.dtype) if pixels.dtype.kind == "f" else nodata
        valid_mask &= pixels != value
    return valid_mask


def filled_from_edges(unit: NDArray[np.float32], valid_mask: NDArray[np.bool_], depth: int) -> NDArray[np.float32]:
    """Holes of (bands, rows, columns) filled `depth` pixels deep, ring by ring, each pixel with the mean of its
    known neighbours above, below, left and right; deeper in, holes stay as they are.
    """
    if valid_mask.all():
        return unit
    frame = ((0, 0), (1, 1), (1, 1))  # unknown pixels, so that every pixel has four neighbours
    known, filled = np.pad(valid_mask, frame), np.pad(unit, frame)
    for _ in range(depth):
        near = known[:, :-2, 1:-1] | known[:, 2:, 1:-1] | known[:, 1:-1, :-2] | known[:, 1:-1, 2:]
        band, row, column = np.nonzero(near & ~known[:, 1:-1, 1:-1])  # only these change, and they are few
        total, count = np.zeros(len(band), np.float32), np.zeros(len(band), np.float32)
        for down, right in ((0, 1), (2, 1), (1, 0), (1, 2)):
            neighbour = band, row + down, column + right
            total += np.where(known[neighbour], filled[neighbour], 0)
            count += known[neighbour]
        filled[band, row + 1, column + 1] = total / count
        known[band, row + 1, column + 1] = True
    return np.ascontiguousarray(filled[:, 1:-1, 1:-1])
