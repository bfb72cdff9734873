"""Scenes in sensor geometry, not on a map grid: control points from latitudes and longitudes of pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import crs
from pdenet_cli.formats.common.attributes import numbers
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.labelled.ground_grid import degrees_of
from pdenet_cli.formats.labelled.placing import LATITUDES, LONGITUDES
from pdenet_cli.formats.labelled.store import Store, distance
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Sliceable

POINTS_A_SIDE = 32
ROUNDED = 2e-5  # degrees, about two metres: the precision of a longitude in float32
AT_ONCE = 1 << 25  # arrays up to this size are read whole: row by row, chunks would be decoded again and again
FEWEST = 3  # points, which rotation and scale need


def place_swath(store: Store, meta: CubeMeta) -> CubeMeta:
    """A cube without another georeference, with points from the nearest latitudes and longitudes of its pixels.

    Points that pdenet wrote beside them are kept, unless the scene was cropped or flipped since.
    """
    where = meta.georeference
    if where.transform is not None or where.rpc:
        return meta
    pairs = _pairs(store.variables(), (meta.rows, meta.columns))
    if not pairs:
        return meta
    lat, lon = min(pairs, key=lambda pair: distance(meta.variable or "", pair[0]))
    try:
        if where.points and not _has_moved(store, meta, lat, lon):
            return meta
        found = placed(store, meta, lat, lon)
    except FormatError:
        return meta.noting(f"not georeferenced: {lat} and {lon} cannot be read")
    return found if len({(point.x, point.y) for point in found.georeference.points}) >= FEWEST else meta


def _has_moved(store: Store, meta: CubeMeta, lat: str, lon: str) -> bool:
    """Whether latitudes and longitudes at the corners differ from those of the scene's points."""
    grids = degrees_of(meta)
    for name, grid in zip((lat, lon), (grids.get("lat"), grids.get("lon")), strict=True):
        for row in (0, meta.rows - 1):
            given = _Scaled.of(store, name).row(row)[[0, -1]]
            if grid is not None and not np.allclose(given, grid.rows(np.array([row]))[0, [0, -1]], 0, ROUNDED):
                return True
    return False


def _pairs(variables: Sequence[Variable], size: tuple[int, int]) -> list[tuple[str, str]]:
    """The names of latitude and longitude arrays of one group with a number for every pixel."""
    named = {v.name: v.name.rpartition("/") for v in variables if v.dtype is not None and v.shape == size}
    return [
        (lat, lon)
        for lat, (group, _, north) in named.items()
        for lon, (lon_group, _, east) in named.items()
        if group == lon_group and (north.lower(), east.lower()) in zip(LATITUDES, LONGITUDES, strict=True)
    ]


def placed(store: Store, meta: CubeMeta, lat: str, lon: str) -> CubeMeta:
    """A cube georeferenced by at most 32 x 32 ground control points from two arrays."""
    norths, easts = (_Scaled.of(store, name) for name in (lat, lon))
    points = []
    for row in _spread(meta.rows):
        y, x = norths.row(row), easts.row(row)
        points += [
            GroundPoint(column + 0.5, row + 0.5, float(x[column]), float(y[column]))
            for column in _spread(meta.columns)
            if abs(y[column]) <= 90 and abs(x[column]) <= 360  # false for NaN and for the fill value
        ]
    note = f"in sensor geometry: georeferenced by {len(points)} ground control points from {lat} and {lon}"
    place = Georeference(crs=crs.DEGREES, points=_unbroken(points))
    return replace(meta, georeference=place).noting(note)


def _spread(size: int) -> list[int]:
    """At most 32 evenly spread indices, from the first to the last."""
    return sorted({int(place) for place in np.linspace(0, size - 1, min(size, POINTS_A_SIDE)).round()})


def _unbroken(points: Sequence[GroundPoint]) -> tuple[GroundPoint, ...]:
    """The points with continuous longitudes, also across 180 degrees."""
    longitudes = [point.x for point in points]
    if not points or max(longitudes) - min(longitudes) <= 180:
        return tuple(points)
    return tuple(replace(point, x=point.x + 360) if point.x < 0 else point for point in points)


@dataclass(frozen=True)
class _Scaled:
    """An array whose numbers may be packed with a gain and an offset, read by rows."""

    array: Sliceable
    gain: float
    offset: float

    @classmethod
    def of(cls, store: Store, name: str) -> _Scaled:
        attrs = store.attributes(name)
        gain, offset = numbers(attrs.get("scale_factor")) or (1.0,), numbers(attrs.get("add_offset")) or (0.0,)
        array = store.array(name)
        if math.prod(array.shape) <= AT_ONCE:
            array = np.asarray(array[slice(None), slice(None)])
        return cls(array, gain[0], offset[0])

    def row(self, row: int) -> Pixels:
        numbers: Pixels = np.asarray(self.array[slice(row, row + 1), slice(None)][0], np.float64)
        return numbers * self.gain + self.offset
