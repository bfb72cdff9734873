"""The mask of valid pixels inside a TIFF, a page or an alpha band: what it leaves out is read as nodata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.formats.tiff.segments import Page, SegmentArray
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.dtypes import as_stored, can_hold, limits
from pdenet_cli.scene.sliceable import Sliceable

ALPHA = (1, 2)  # values of the tag ExtraSamples


@dataclass(frozen=True)
class AlphaPlane:
    """The last band of a picture as a mask, (1, rows, columns): its alpha, 0 where there is no data."""

    array: Sliceable
    axes: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *(self.array.shape[self.axes.index(axis)] for axis in "rc"))

    @property
    def block(self) -> tuple[int, ...]:
        sizes = getattr(self.array, "block", None)
        return (1, 1, self.shape[2]) if sizes is None else tuple(sizes[self.axes.index(axis)] for axis in "brc")

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        bands = self.array.shape[self.axes.index("b")]
        where = dict(b=slice(bands - 1, bands), r=key[1], c=key[2])
        part = np.asarray(self.array[tuple(where[axis] for axis in self.axes)])
        return part.transpose([self.axes.index(axis) for axis in "brc"])

    @property
    def looks_like_mask(self) -> bool:
        """Whether most pixels that are not 0 are opaque, in three rows; those of data differ."""
        places = {self.shape[1] * quarter // 4 for quarter in (1, 2, 3)}
        rows = np.concatenate([self[:, row : row + 1, :].ravel() for row in places])
        shown = rows[rows != 0]
        return not shown.size or float((shown == shown.max()).mean()) > 0.5


def alpha_of(array: Sliceable, axes: str, page: Page) -> AlphaPlane | None:
    """The last band of a picture if it alone is marked as alpha and there are others."""
    marked = [int(kind) in ALPHA for kind in page.extrasamples]
    bands = array.shape[axes.index("b")]
    only_last = bool(marked) and marked[-1] and sum(marked) == 1
    return AlphaPlane(array, axes) if only_last and 1 < bands == page.samplesperpixel else None


@dataclass(frozen=True)
class MaskedArray:
    """The first `bands` of a picture with `nodata` where its mask is 0.

    Unless `moved` is None, data that equal nodata become it.
    """

    array: Sliceable
    axes: str
    bands: int
    mask: SegmentArray | AlphaPlane  # (1, rows, columns)
    nodata: float
    moved: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = zip(self.array.shape, self.axes, strict=True)
        return tuple(self.bands if axis == "b" else size for size, axis in sizes)

    @property
    def block(self) -> tuple[int, ...] | None:
        return getattr(self.array, "block", None)

    @property
    def strided(self) -> bool:
        return getattr(self.array, "strided", False)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        key = tuple(slice(*part.indices(size)) for part, size in zip(key, self.shape, strict=True))
        pixels: Pixels = np.asarray(self.array[key])
        where = dict(zip(self.axes, key, strict=True))
        rows = range(self.mask.shape[1])[where["r"]]
        nodata = as_stored(self.nodata, pixels.dtype)
        if self.moved is not None:
            pixels[pixels == nodata] = self.moved
        holes = np.expand_dims(self._holes(rows, where["c"]), self.axes.index("b"))
        pixels[np.broadcast_to(holes, pixels.shape)] = nodata
        return pixels

    def _holes(self, rows: range, columns: slice) -> NDArray[np.bool_]:
        """Where the mask leaves out a pixel; few rows at a time, as the mask decodes those between them too."""
        at_once = max(1, self.mask.block[1] // rows.step) * rows.step if rows.step > 1 else max(1, len(rows))
        parts = [
            self.mask[slice(0, 1), slice(first, min(first + at_once, rows.stop), rows.step), columns][0] == 0
            for first in range(rows.start, max(rows.stop, rows.start + 1), at_once)
        ]
        return np.concatenate(parts)


def nodata_for(dtype: np.dtype[Any], *known: float | None) -> tuple[float, int | None, str]:
    """The nodata value of masked pixels, what data of that value become, and a note.

    The first `known` value that the type can hold, which data may have too; else one that data rarely have.
    """
    for value in known:
        if value is not None and (dtype.kind == "f" or can_hold(dtype, value)):
            return value, None, f"masked pixels are read as nodata, {value:.10g}"
    if dtype.kind == "f":
        return float("nan"), None, "masked pixels are read as nodata, NaN"
    least, most = (int(end) for end in limits(dtype))
    nodata, moved = (least, least + 1) if dtype.kind == "i" else (most, most - 1)
    return nodata, moved, f"masked pixels are read as nodata, {nodata}, and pixels of that value as {moved}"
