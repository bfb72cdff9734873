"""Parts of cubes as 0..1, and their comparison window by window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, Window
from pdenet_cli.metrics import Tally
from pdenet_cli.radiometry import Radiometry

BLOCK_VALUES = 1 << 21  # about how many values of a cube are compared at once
LOWER_RIGHT_ALONE = "lower-right-alone"
PARTS = {
    "whole": "whole scenes",
    "lower-right": "the lower right quarter, held out from training, sharpened within its scene",
    LOWER_RIGHT_ALONE: "the lower right quarter, held out from training, cut out first",
}
"""The parts of a truth that can be compared, with their description."""
ALREADY_UNIT = Radiometry((1.0,), (0.0,), "0..1 already")


@dataclass(frozen=True)
class View:
    """A part of some bands of a cube as 0..1; its windows are counted from the part's upper-left pixel."""

    cube: Cube
    radiometry: Radiometry
    bands: tuple[int, ...]  # by their number in the file
    part: Window

    @classmethod
    def whole(cls, cube: Cube) -> View:
        """All of a cube that holds 0..1."""
        return cls(cube, ALREADY_UNIT, tuple(range(cube.meta.bands)), cube.meta.window)

    @property
    def scene(self) -> Window:
        return Window(0, 0, self.part.rows, self.part.columns)

    def with_surroundings(self, scale: int) -> View:
        """The view of the largest part of the cube that is whole pixels of this part's coarse grid."""
        meta, part = self.cube.meta, self.part
        row, column = part.row % scale, part.column % scale
        size = ((meta.rows - row) // scale * scale, (meta.columns - column) // scale * scale)
        return replace(self, part=Window(row, column, *size))

    def read(
        self, window: Window, some: Sequence[int] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The pixels of a window with holes filled, and where there were no holes; of `some` bands or all."""
        bands = self.bands if some is None else [self.bands[i] for i in some]
        place = Window(window.row + self.part.row, window.column + self.part.column, window.rows, window.columns)
        return self.radiometry.prepare(self.cube.read(place, bands), bands)

    def blocks(self, multiple: int = 1) -> Iterator[Window]:
        """Windows that cover the view once, each small beside the memory, their sides a `multiple`."""
        side = max(64, math.isqrt(BLOCK_VALUES // len(self.bands)))
        side = math.ceil(side / multiple) * multiple
        return self.scene.blocks(side, side)


def compare(truth: View, estimates: Mapping[str, View], tallies: Mapping[str, Tally]) -> None:
    """Fill the tally of every estimate, reading the truth once."""
    halo = max(tally.halo for tally in tallies.values())
    for core in truth.blocks():
        around = core.grown(halo, within=truth.scene)
        target, there = truth.read(around)
        for name, tally in tallies.items():
            unit, known = estimates[name].read(around)
            own = (slice(None), *core.grown(tally.halo, within=truth.scene).relative_to(around).slices)
            tally.add(core, truth.scene, unit[own], target[own], (there & known)[own])
