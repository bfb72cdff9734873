"""Parts of cubes as 0..1, and their comparison window by window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation
from pdenet_cli.evaluation.metrics import Tally
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.radiometry import ALREADY_UNIT, Radiometry
from pdenet_cli.scene.window import Window

BLOCK_VALUES = 1 << 21  # about how many values of a cube are compared at once
STRIP_BYTES = 1 << 28  # of a cube in blocks that are held in memory
LOWER_RIGHT_ALONE = "lower-right-alone"
PARTS = {
    "whole": "whole scenes",
    "lower-right": "the lower right quarter, held out from training, sharpened within its scene",
    LOWER_RIGHT_ALONE: "the lower right quarter, held out from training, cut out first",
}
"""The parts of a truth that can be compared, with their description."""
NOTHING = np.empty((0, 0, 0))


@dataclass(frozen=True)
class View:
    """A part of some bands of a cube as 0..1; its windows are counted from the part's upper-left pixel."""

    cube: Cube
    radiometry: Radiometry
    bands: tuple[int, ...]  # by their number in the cube
    part: Window
    softened: float = 0.0  # FWHM in pixels of a Gaussian blur that `read` adds; 0: none

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
        self, window: Window, chosen: Sequence[int] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The pixels of a window with holes filled, and where there were no holes; of `some` bands or all."""
        bands = self.bands if chosen is None else [self.bands[i] for i in chosen]
        place = self.place(window)
        if not self.softened:
            return self.radiometry.prepare(self.cube.read(place, bands), bands)
        blur = Degradation(1, "gaussian", self.softened)
        around = place.grown(blur.reach, within=self.cube.meta.window)
        unit, known = self.radiometry.prepare(self.cube.read(around, bands), bands)
        inside = (slice(None), *place.relative_to(around).slices)
        return blur(torch.from_numpy(unit)).numpy()[inside], known[inside]

    def place(self, window: Window) -> Window:
        """A window as it is counted in the file."""
        return window.moved(self.part.row, self.part.column)

    def blocks(self, multiple: int = 1) -> Iterator[Window]:
        """Windows that cover the view once, each small beside the memory, their sides a `multiple`."""
        side = max(64, math.isqrt(BLOCK_VALUES // len(self.bands)))
        side = math.ceil(side / multiple) * multiple
        return self.scene.blocks(side, side)


class Reader:
    """Reads windows of a view from top to bottom, every `step`-th row and column of them.

    Of a cube in blocks it holds whole rows of the view, as many as STRIP_BYTES allow: each block is decoded about
    once, and not again for every window that touches it.
    """

    def __init__(self, view: View, step: int = 1) -> None:
        self.view, self.step = view, step
        self.rows = range(0)  # of the view, that are held
        self.held: Pixels = NOTHING  # every `step`-th of them, in file numbers

    def read(self, window: Window) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """What the view reads of a window, whose corner is a multiple of the step from that of the view."""
        view = self.view
        if not view.cube.in_blocks:
            pixels = view.cube.thinned(self.step, view.place(window), view.bands)
        else:
            if window.row < self.rows.start or window.bottom > self.rows.stop:
                self._hold(window.row, window.rows)
            row, column = (window.row - self.rows.start) // self.step, window.column // self.step
            size = (math.ceil(length / self.step) for length in (window.rows, window.columns))
            pixels = self.held[:, *Window(row, column, *size).slices]
        return view.radiometry.prepare(pixels, view.bands)

    def spectrum(self, row: int, column: int) -> NDArray[np.float32]:
        """One pixel, NaN where it has no data."""
        pixel = Window(row, column, 1, 1)
        held = row in self.rows[:: self.step] and column % self.step == 0
        unit, valid_mask = self.read(pixel) if held else self.view.read(pixel)
        return np.where(valid_mask, unit, np.float32(np.nan))[:, 0, 0]

    def _hold(self, first: int, count: int) -> None:
        """Hold the rows from `first` on: `count` of them, or more if they fit."""
        view, self.held = self.view, NOTHING  # frees the old rows before new ones are read
        row_bytes = len(view.bands) * view.part.columns * view.cube.meta.dtype.itemsize
        bottom = min(view.part.rows, first + max(count, STRIP_BYTES // row_bytes // self.step * self.step))
        self.rows = range(first, bottom)
        strip = Window(first, 0, len(self.rows), view.part.columns)
        self.held = np.ascontiguousarray(view.cube.thinned(self.step, view.place(strip), view.bands))


def compare(truth: View, estimates: Mapping[str, View], tallies: Mapping[str, Tally]) -> None:
    """Fill the tally of every estimate, reading the truth once."""
    halo = max(tally.halo for tally in tallies.values())
    readers = {name: Reader(estimates[name]) for name in tallies}
    whole = Reader(truth)
    for core in truth.blocks():
        around = core.grown(halo, within=truth.scene)
        target, valid_mask = whole.read(around)
        for name, tally in tallies.items():
            unit, known = readers[name].read(around)
            inside = (slice(None), *core.grown(tally.halo, within=truth.scene).relative_to(around).slices)
            tally.add(core, truth.scene, unit[inside], target[inside], (valid_mask & known)[inside])
