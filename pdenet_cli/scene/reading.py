"""How a scene is read: what its numbers are like, which bands the network sees, and how these become 0..1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import FormatError
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window


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
        value_range: tuple[float, float] | None = None,
        survey: Survey | None = None,
    ) -> Reading:
        """The reading of `cube` for a network that takes `count` bands, None for any number.

        `survey` is that of the cube; None: one is made, of parts of a large scene. FormatError if no band is
        usable.
        """
        survey = survey or Survey.of(cube)
        bands = survey.bands_for(cube.meta, count)
        if not bands:
            raise FormatError(f"{cube.path}: every band is marked bad or empty.")
        constant = tuple(band for band in survey.usable_bands(cube.meta) if band not in bands)
        radiometry = Radiometry.of(cube.meta, survey, value_range)
        if radiometry.has_impossible(survey):
            survey = replace(survey, holes=True)
        return cls(survey, bands, constant, radiometry)


def read_unit(
    cube: Cube, window: Window, bands: Sequence[int], radiometry: Radiometry
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Some bands of a window as the network sees them, 0..1, holes filled; and where there are no holes."""
    unit, there = radiometry.prepare(cube.read(window, bands), bands)
    return filled_from_edges(unit, there, FILL_DEPTH), there
