"""Training scenes in memory, and the part of each that is held out: a quarter, all of it or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import FormatError, ResourceError, UsageError
from pdenet_cli.scene.bands import BandChoice, runs
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.radiometry import Radiometry, ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window
from pdenet_cli.system import free_memory, return_freed_memory

SMALLEST_SIDE = 4  # low-resolution pixels on a side of the smallest useful patch or validation part
HASH_BYTES = 1 << 28  # read at once while a cube is hashed

HoldOut = Literal["quarter", "none", "whole"]
"""What no patch touches of a scene: its lower right quarter, nothing, or all of it (validation only)."""


@dataclass(frozen=True)
class Scene:
    """The bands of a cube to train on: as 0..1, or in the file's numbers if these take less space."""

    name: str
    pixels: Pixels  # (bands, rows, columns)
    radiometry: Radiometry
    facts: dict[str, Any]  # for the model's description
    notes: tuple[str, ...] = ()  # what looks wrong
    holdout: HoldOut = "quarter"

    @classmethod
    def read(
        cls,
        cube: Cube,
        value_range: ValueRange | None = None,
        count: int | None = None,
        chosen: BandChoice | None = None,
        holdout: HoldOut = "quarter",
    ) -> Scene:
        """The whole of `cube`, with the bands for a network that takes `count` of them, None for any number.

        Only the `chosen` bands are used, None for all; the facts identify the whole cube.
        """
        try:
            part = cube if chosen is None else cube.with_bands(chosen)
        except UsageError as error:
            raise FormatError(f"{cube.path}: {error}") from error
        return_freed_memory()  # memory that reading the cube before took
        if 2 * part.meta.nbytes > (free := free_memory()):
            need = f"{part.meta.nbytes:,} bytes are too many to train on with {free:,} bytes of free memory"
            raise ResourceError(f"{cube.path}: {need}. Cut out a part of it, or use fewer `bands`.")
        try:
            reading = Reading.of(part, count, value_range)
        except UsageError as error:
            if value_range is not None:  # the user's own
                raise
            raise FormatError(f"{cube.path}: {error}") from error
        bands, radiometry = reading.bands, reading.radiometry
        pixels = part.read()
        facts: dict[str, Any] = dict(
            name=cube.path.name,
            sha256=hashlib.sha256(pixels.data).hexdigest() if part is cube else sha256_of(cube),
            shape=list(cube.meta.shape()),
            dtype=pixels.dtype.name,
            bands_used=len(bands),
            radiometry=radiometry.reason,
        )
        if chosen is not None:
            facts["bands"] = runs(cube.meta.chosen(chosen))
        if holdout == "none":
            facts["holdout"] = holdout
        if pixels.dtype.itemsize < 4:
            pixels = pixels[list(bands)]
        else:
            pixels = _unit(pixels, radiometry, bands)
            radiometry = replace(radiometry, gain=(1.0,), offset=(0.0,), nodata=None)
        keep: dict[str, Any] = {
            name: tuple(values[b] for b in bands) if len(values := getattr(radiometry, name)) > 1 else values
            for name in ("gain", "offset", "fill")
        }
        return cls(cube.path.stem, pixels, replace(radiometry, **keep), facts, reading.survey.notes, holdout)

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]

    def unit(self, window: Window, bands: slice) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """A part of the scene as 0..1 with holes filled by the band's mean, and where there are no holes."""
        # In memory in one piece: the scene may be in a file, in another order.
        return self.radiometry.prepare(np.ascontiguousarray(self.pixels[(bands, *window.slices)]), bands)

    def held_out(self, scale: int) -> Window | None:
        """The part that validation uses; None if there is none, or the scene is too small."""
        if self.holdout == "whole":
            whole = Window(0, 0, *(side // scale * scale for side in self.size))
            return whole if min(self.size) >= SMALLEST_SIDE * scale else None
        return held_out(self.size, scale) if self.holdout == "quarter" else None

    def corner(self, scale: int) -> tuple[int, int]:
        """Upper-left pixel of the part that no patch touches; behind the last pixel if there is none."""
        return corner(self.size, scale) if self.holdout == "quarter" else self.size

    def largest_patch(self, scale: int) -> int:
        """Side of the largest square beside the held-out part, a multiple of `scale`."""
        (rows, columns), (row, column) = self.size, self.corner(scale)
        return max(min(row, columns), min(rows, column)) // scale * scale


def band_means(scenes: Sequence[Scene]) -> tuple[float, ...]:
    """The mean of each band over the scenes, all of which count alike; they must have the same bands."""
    if len(counts := {len(scene.pixels) for scene in scenes}) > 1:
        problem = f"the cubes have {' and '.join(map(str, sorted(counts)))} usable bands"
        raise UsageError(
            f"`recipe` paper subtracts the mean of each band, but {problem}. Choose some with `bands`."
        )
    means = np.zeros(len(scenes[0].pixels))
    for scene in scenes:
        for band in range(len(means)):
            unit, found = scene.unit(Window(0, 0, *scene.size), slice(band, band + 1))
            means[band] += float(unit[found].mean(dtype=np.float64)) if found.any() else 0.0
    return tuple((means / len(scenes)).tolist())


def sha256_of(cube: Cube) -> str:
    """The SHA-256 of a cube's numbers as (bands, rows, columns), the same in every file format."""
    whole, meta = hashlib.sha256(), cube.meta
    at_once = max(1, HASH_BYTES // (meta.nbytes // meta.bands))
    for first in range(0, meta.bands, at_once):
        whole.update(cube.read(bands=slice(first, first + at_once)).data)
    return whole.hexdigest()


def _unit(pixels: Pixels, radiometry: Radiometry, bands: Sequence[int]) -> NDArray[np.float32]:
    """Some bands as 0..1, NaN where there is no data."""
    unit = np.empty((len(bands), *pixels.shape[1:]), np.float32)
    for plane, band in zip(unit, bands, strict=True):  # one by one: float64 on the way takes twice the space
        values, valid_mask = radiometry.prepare(pixels[band : band + 1], [band])
        plane[:] = np.where(valid_mask, values, np.float32(np.nan))[0]
    return unit


def held_out(size: tuple[int, int], scale: int) -> Window | None:
    """The lower right quarter, cut to whole low-resolution pixels; None if the scene is too small."""
    (rows, columns), (row, column) = size, corner(size, scale)
    whole = ((rows - row) // scale * scale, (columns - column) // scale * scale)
    return Window(row, column, *whole) if row < rows else None


def corner(size: tuple[int, int], scale: int) -> tuple[int, int]:
    """Upper-left pixel of the held-out quarter; behind the last pixel if there is none."""
    if min(size) // 2 < SMALLEST_SIDE * scale:
        return size
    return -(-size[0] // 2), -(-size[1] // 2)
