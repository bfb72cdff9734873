"""A finished TIFF packed as a Cloud-Optimised GeoTIFF: compressed tiles and overviews, the coarsest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np

from pdenet_cli.formats.tiff import tags
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.window import Window

METHODS: dict[str, tuple[int, Callable[[Any], bytes | bytearray]]] = {
    "deflate": (8, imagecodecs.zlib_encode),
    "zstd": (50000, imagecodecs.zstd_encode),
    "lzw": (5, imagecodecs.lzw_encode),
}
"""How tiles are compressed: TIFF's number for it, and the function that does it."""

TILE_SIDE = 512  # pixels; the side of tiles, and the largest side of a picture that has no overviews
TILE_BYTES = 8 << 20  # of a tile with all bands of its pixels, which readers decode at once
BLOCK_VALUES = 1 << 22  # averaged at once
INTEGERS, FLOATS = 2, 3  # TIFF's predictors


def pack(cube: Cube, target: Path, method: str) -> None:
    """Write the cube, whose bytes are on disk already, to `target` as a compressed GeoTIFF.

    Each overview has half the rows and columns of the one before, means of what has data.
    """
    number, encode = METHODS[method]
    meta = cube.meta
    factors = [1]
    while max(_coarse(meta, factors[-1])) > TILE_SIDE:
        factors.append(2 * factors[-1])
    side = _tile_side(meta)
    layouts = [tags.TileLayout(*_coarse(meta, factor), side, number, _predictor(meta)) for factor in factors]
    start = len(tags.tiled_header(meta, layouts, [_nowhere(meta, layout) for layout in layouts]))
    places: list[tags.Places] = []
    with target.open("wb") as file:
        file.seek(start)
        for factor, layout in zip(reversed(factors), reversed(layouts), strict=True):
            place: tags.Places = []
            for tile in _tiles(cube, factor, layout):
                raw = encode(_predicted(tile))
                place.append((file.tell(), len(raw)))
                file.write(raw)
            places.insert(0, place)
        file.seek(0)
        file.write(tags.tiled_header(meta, layouts, places))


def _coarse(meta: CubeMeta, factor: int) -> tuple[int, int]:
    """Rows and columns of an overview."""
    return -(-meta.rows // factor), -(-meta.columns // factor)


def _tile_side(meta: CubeMeta) -> int:
    """The side of a tile, a multiple of 16 pixels: no larger than the scene, nor than readers like to decode."""
    depth = 1 if tags.is_planar(meta) else meta.bands
    side = min(TILE_SIDE, -(-max(meta.rows, meta.columns) // 16) * 16)
    while side > 64 and side**2 * depth * meta.dtype.itemsize > TILE_BYTES:
        side = -(-side // 32) * 16
    return side


def _nowhere(meta: CubeMeta, layout: tags.TileLayout) -> tags.Places:
    """Places of all tiles before they are known: those of another number of tiles would take another space."""
    return [(0, 0)] * (layout.tiles * (meta.bands if tags.is_planar(meta) else 1))


def _predictor(meta: CubeMeta) -> int:
    return FLOATS if meta.dtype.kind == "f" else INTEGERS


def _predicted(tile: Pixels) -> Any:
    """A tile of (rows, columns, bands) as differences of neighbours, which are smaller numbers."""
    if tile.dtype.kind == "f":
        return imagecodecs.floatpred_encode(tile, axis=-2)
    return imagecodecs.delta_encode(tile, axis=-2)


def _tiles(cube: Cube, factor: int, layout: tags.TileLayout) -> Iterator[Pixels]:
    """All tiles of an overview as (rows, columns, bands) in TIFF's order, filled up with zeros at the edges."""
    meta, side = cube.meta, layout.side
    runs = [slice(b, b + 1) for b in range(meta.bands)] if tags.is_planar(meta) else [slice(0, meta.bands)]
    for bands in runs:
        for row in range(0, layout.rows, side):
            for column in range(0, layout.columns, side):
                rows, columns = min(side, layout.rows - row), min(side, layout.columns - column)
                tile = np.zeros((side, side, bands.stop - bands.start), meta.dtype.newbyteorder("<"))
                pixels = _averaged(cube, Window(row, column, rows, columns), factor, bands)
                tile[:rows, :columns] = pixels.transpose(1, 2, 0)
                yield tile


def _averaged(cube: Cube, window: Window, factor: int, bands: slice) -> Pixels:
    """The pixels of a window of an overview: the mean of those that have data, nodata where none has."""
    if factor == 1:
        return cube.read(window, bands)
    count = bands.stop - bands.start
    averaged = np.empty((count, window.rows, window.columns), cube.meta.dtype.newbyteorder("="))
    rows = max(1, BLOCK_VALUES // (factor**2 * window.columns * count))
    for top in range(0, window.rows, rows):
        part = Window(window.row + top, window.column, min(rows, window.rows - top), window.columns)
        fine = part.scaled(factor).grown(0, within=cube.meta.window)
        averaged[:, top : top + part.rows] = _means(cube.read(fine, bands), factor, cube.meta.nodata)
    return averaged


def _means(pixels: Pixels, factor: int, nodata: float | None) -> Pixels:
    """Means of squares of pixels, the last of which may be incomplete, of the same type."""
    valid_mask = valid(pixels, nodata)
    starts = [np.arange(0, size, factor) for size in pixels.shape[1:]]
    sums, counts = (
        np.add.reduceat(np.add.reduceat(values, starts[0], axis=1), starts[1], axis=2)
        for values in (np.where(valid_mask, pixels, 0).astype(np.float64), valid_mask.astype(np.float64))
    )
    means = sums / np.maximum(counts, 1)
    means = np.rint(means) if pixels.dtype.kind in "ui" else means
    empty = pixels.dtype.type(0) if nodata is None and pixels.dtype.kind in "ui" else nodata
    # A mean that happens to be nodata is none.
    return np.where(counts > 0, means, np.nan if empty is None else empty).astype(pixels.dtype)
