"""How much of a scene is above some levels of a map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.pages.shown import Shown
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.picture import upper_end

LONGEST_SIDE = 1024  # pixels on a side of what levels are chosen by
BLOCK_VALUES = 1 << 23  # about how many values are read at once
MOST_LEVELS = 8  # rows of the table of shares above a level

MergedMap = NDArray[np.float32]  # (rows, columns), NaN where there is nothing


@dataclass(frozen=True)
class MapLevels:
    """The levels of a map with the share of the scene above each, and where its colours end."""

    top: float  # one pixel in 200 lies above it
    shares: tuple[tuple[float, float], ...]
    empty: bool  # whether some pixel has no data

    @classmethod
    def of(cls, shown: Shown) -> MapLevels:
        """The levels of a merged map, by all its pixels."""
        window = shown.cube.meta.window
        step = max(1, math.ceil(max(window.rows, window.columns) / LONGEST_SIDE))
        seen = shown.read(shown.grid(step))[0]
        strips_of_map = (strip[0] for strip in shown.strips(shown.grid(1)))
        shares = shares_above(strips_of_map, round_levels(seen))
        return cls(upper_end(seen), shares, not bool(np.isfinite(seen).all()))


def strips(cube: Cube) -> Iterator[MergedMap]:
    """The first band of a cube in strips that fit into memory, NaN where there is no data."""
    meta = cube.meta
    for window in meta.window.blocks(max(1, BLOCK_VALUES // meta.columns), meta.columns):
        strip = cube.read(window, slice(0, 1))[0]
        yield np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float32)


def round_levels(merged: MergedMap) -> tuple[float, ...]:
    """At most eight round levels (1, 2, 5, 10, 20 ...) within the values of a map, the highest ones."""
    known = merged[np.isfinite(merged) & (merged > 0)]
    if not known.size:
        return ()
    low, high = float(np.percentile(known, 5)), float(known.max())  # a level below nearly all pixels tells nothing
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    levels = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    inside = [level for level in levels if low <= level < high]
    return tuple(inside[-MOST_LEVELS:]) or (float(f"{np.median(known):.3g}"),)


def shares_above(parts: Iterator[MergedMap], levels: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Each level with the share of all valid pixels whose value is above it."""
    above, known = np.zeros(len(levels), np.int64), 0
    for part in parts:
        numbers = part[np.isfinite(part)]
        known += numbers.size
        above += np.array([np.count_nonzero(numbers > level) for level in levels], np.int64)
    return tuple((level, float(count) / max(known, 1)) for level, count in zip(levels, above, strict=True))
