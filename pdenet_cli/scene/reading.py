"""How a scene is read: what its numbers are like, which bands the network sees, and how these become 0..1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import FormatError, UsageError
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.dtypes import can_hold, limits
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import ALREADY_UNIT, Radiometry, ValueRange
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window

LEAST_STEPS = 10  # floating-point values must span this many integers to be rounded to integers


@dataclass(frozen=True)
class Reading:
    """A scene looked over once, before any work on it."""

    survey: Survey
    bands: tuple[int, ...]  # those that the network sees
    constant: tuple[int, ...]  # usable bands that it does not see, because each holds one number throughout
    radiometry: Radiometry

    @classmethod
    def of(
        cls,
        cube: Cube,
        count: int | None,
        value_range: ValueRange | None = None,
        survey: Survey | None = None,
    ) -> Reading:
        """The reading of `cube` for a network that takes `count` bands, None for any number.

        `survey` is that of the cube; None: one is made, of all of it, as outputs would lose a hole or a bright
        pixel that it missed. FormatError if no band is usable.
        """
        survey = survey or Survey.of(cube)
        if value_range == "max":
            survey = survey.with_maximum_of(cube)
        bands = survey.bands_for(cube.meta, count)
        if not bands:
            raise FormatError(f"{cube.path}: every band is marked bad or empty.")
        constant = tuple(band for band in survey.usable_bands(cube.meta) if band not in bands)
        radiometry = Radiometry.of(cube.meta, survey, value_range)
        return cls(survey, bands, constant, radiometry)

    @classmethod
    def of_unit(cls, bands: int) -> Reading:
        """The reading of a cube without holes that is 0..1 already; the network sees each of its `bands`."""
        survey = Survey(0.0, 1.0, 0.0, 1.0, means=(0.5,) * bands, nodata_share=0.0, looked_at=1.0)
        return cls(survey, tuple(range(bands)), (), ALREADY_UNIT)

    @property
    def holes(self) -> bool:
        """Whether a band that the network sees may have holes: pixels without data, or with impossible numbers."""
        return self.survey.holes or self.radiometry.has_impossible(self.survey)

    def unusable(self, meta: CubeMeta) -> int:
        """How many bands of the cube are marked bad or empty."""
        return meta.bands - len(self.bands) - len(self.constant)

    def unit(
        self, cube: Cube, window: Window, bands: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Some bands of a window as the network sees them, 0..1, holes filled; and where there are no holes."""
        return read_unit(cube, window, bands, self.radiometry)


def read_unit(
    cube: Cube, window: Window, bands: Sequence[int], radiometry: Radiometry
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Some bands of a window as the network sees them, 0..1, holes filled; and where there are no holes."""
    unit, valid_mask = radiometry.prepare(cube.read(window, bands), bands)
    return filled_from_edges(unit, valid_mask, FILL_DEPTH), valid_mask


def refuse_narrow(dtype: np.dtype[Any], meta: CubeMeta, reading: Reading) -> None:
    """Stop where the `dtype` that a user wants cannot hold a scene's values, or its nodata value."""
    survey, whole = reading.survey, dtype.kind in "ui"
    low, high = survey.ends(meta)
    least, most = limits(dtype)
    if low < least or high > most:
        holds = f"holds {least:,} to {most:,}" if whole else f"holds {least:g} to {most:g}"
        raise UsageError(f"`dtype` {dtype.name} {holds}, but the scene's values are {low:g} to {high:g}.")
    low, high = survey.minimum, survey.maximum
    if whole and meta.dtype.kind == "f" and high - low < LEAST_STEPS:
        raise UsageError(f"`dtype` {dtype.name} would round away the scene's values, {low:g} to {high:g}.")
    uses_nan = meta.nodata is None or math.isnan(meta.nodata)
    if meta.nodata is not None and not uses_nan and not can_hold(dtype, meta.nodata):
        raise UsageError(f"`dtype` {dtype.name} cannot hold the scene's nodata value, {meta.nodata:g}.")
    if whole and reading.holes and uses_nan:
        raise UsageError(f"`dtype` {dtype.name} cannot hold NaN, which the scene uses for nodata.")
