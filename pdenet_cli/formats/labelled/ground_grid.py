"""Latitude and longitude of every pixel, interpolated from ground control points, as netCDF tools expect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pdenet_cli.formats.common import crs
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.meta import CubeMeta

BLOCK_NUMBERS = 1 << 19  # numbers computed at once


@dataclass(frozen=True)
class GroundGrid:
    """A number for every pixel centre, interpolated linearly between points and extrapolated beyond them.

    The grid may be larger than memory: `blocks` computes it piece by piece.
    """

    at_rows: Pixels  # rows of the points, in pixels from the upper-left corner
    at_columns: Pixels
    known: Pixels  # values of the points, (rows of points, columns of points)
    shape: tuple[int, int]
    dtype = np.dtype("<f8")

    @property
    def rows_at_once(self) -> int:
        """The number of rows in a block, a few megabytes."""
        return min(self.shape[0], max(1, BLOCK_NUMBERS // self.shape[1]))

    def blocks(self) -> Iterator[tuple[slice, Pixels]]:
        """All rows in order, in blocks."""
        for first in range(0, self.shape[0], self.rows_at_once):
            chosen = slice(first, min(first + self.rows_at_once, self.shape[0]))
            yield chosen, self.rows(np.arange(chosen.start, chosen.stop))

    def rows(self, wanted: Pixels) -> Pixels:
        """The values of some rows, (rows, columns)."""
        left, right = _between(self.at_columns, np.arange(self.shape[1]) + 0.5)
        above, below = _between(self.at_rows, wanted + 0.5)
        across = self.known[:, left] * (1 - right) + self.known[:, left + 1] * right  # (rows of points, columns)
        found: Pixels = across[above] * (1 - below[:, None]) + across[above + 1] * below[:, None]
        return found


def _between(at: Pixels, places: Pixels) -> tuple[Pixels, Pixels]:
    """For each place, the index of the point before it and its relative distance to the next point."""
    before = np.clip(np.searchsorted(at, places, "right") - 1, 0, len(at) - 2)
    return before, (places - at[before]) / (at[before + 1] - at[before])


def degrees_of(meta: CubeMeta) -> dict[str, GroundGrid]:
    """Latitude and longitude of a scene georeferenced only by a regular grid of points in degrees; else empty."""
    where = meta.georeference
    system = crs.parsed(where.crs)
    if where.transform is not None or system is None or not system.is_geographic:
        return {}
    points = sorted(where.points, key=lambda point: (point.row, point.column))
    rows, columns = sorted({point.row for point in points}), sorted({point.column for point in points})
    whole = [(point.row, point.column) for point in points] == list(itertools.product(rows, columns))
    if not whole or min(len(rows), len(columns)) < 2:
        return {}
    at, size = (np.array(rows), np.array(columns)), (meta.rows, meta.columns)
    known = {"lat": np.array([point.y for point in points]), "lon": np.array([point.x for point in points])}
    return {name: GroundGrid(*at, numbers.reshape(len(rows), -1), size) for name, numbers in known.items()}
