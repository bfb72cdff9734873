"""Pictures and maps of a page: a value for each pixel of a grid, in codes of a stated step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.pages.codes import MOST_CODE, Codes, packed
from pdenet_cli.pages.shown import BandValues, Grid, Shown

COLOUR_STEPS, FEWER_COLOURS = 254, 120  # of a band that is only looked at, and in a large scene
FINE_STEPS = 4094  # of a map, whose values are read out
COARSE_STEPS, COARSEST_STEPS = 254, 80  # of a map in a large scene
BEYOND = 0.25  # how far colours reach beyond dark and bright, as a share of what is between


@dataclass(frozen=True)
class Planes:
    """Values of some planes on one grid; code c of plane p is `lowest[p]` + `size[p]` · (c - 1), 0 no data.

    With a `root` the values are the squares of that: small ones get smaller steps.
    """

    content: bytes
    grid: Grid
    lowest: tuple[float, ...]
    size: tuple[float, ...]
    root: bool = False

    @property
    def facts(self) -> dict[str, object]:
        """What the script must know to read the content."""
        grid = self.grid
        return dict(
            rows=grid.rows,
            columns=grid.columns,
            step=grid.step,
            first=grid.first,
            lowest=self.lowest,
            size=self.size,
            root=self.root,
        )


def coded(values: BandValues, lowest: NDArray[np.float64], size: NDArray[np.float64], most: int) -> Codes:
    """Values as codes, clipped to 1..`most`; 0 where there is none."""
    steps = (np.nan_to_num(values) - lowest[:, None, None]) / size[:, None, None]
    codes = np.where(np.isfinite(values), np.rint(steps).clip(0, most - 1) + 1, 0)
    return codes.clip(0, MOST_CODE).astype(np.uint16)


def colour_planes(
    shown: Shown, bands: tuple[int, ...], limits: NDArray[np.float64], step: int, steps: int = COLOUR_STEPS
) -> Planes:
    """The bands of a picture, `limits` being what is drawn dark and bright: (bands, 2)."""
    low, high = limits.T
    reach = BEYOND * (high - low)
    size = (high - low + 2 * reach) / (steps - 1)
    grid = shown.grid(step)
    codes = coded(shown.read(grid, bands), low - reach, size, steps)
    return Planes(packed(codes), grid, tuple((low - reach).tolist()), tuple(size.tolist()))


def map_plane(shown: Shown, step: int, steps: int = FINE_STEPS) -> Planes:
    """A map of differences or percentages, which are never below 0, in finer steps the smaller they are."""
    grid = shown.grid(step)
    root = np.sqrt(shown.read(grid).clip(0))
    top = float(np.nanmax(root)) if np.isfinite(root).any() else 1.0
    size = np.array([(top or 1.0) / (steps - 1)])
    return Planes(packed(coded(root, np.zeros(1), size, steps)), grid, (0.0,), tuple(size.tolist()), root=True)


def fitted_colours(shown: Shown, bands: tuple[int, ...], limits: NDArray[np.float64], most: int) -> Planes:
    """The picture on the finest grid on which it takes at most `most` bytes, with fewer shades if need be."""
    full = colour_planes(shown, bands, limits, 1)
    if len(full.content) <= most:
        return full
    return _fitted(lambda step: colour_planes(shown, bands, limits, step, FEWER_COLOURS), most)


def fitted_map(shown: Shown, most: int) -> Planes:
    """The map in at most `most` bytes: in fine steps, else in coarser ones on the finest grid that fits."""
    if shown.grid(1).size < 2 * most:
        fine = map_plane(shown, 1)
        if len(fine.content) <= most:
            return fine
    coarse = map_plane(shown, 1, COARSE_STEPS)
    return (
        coarse
        if len(coarse.content) <= most
        else _fitted(lambda step: map_plane(shown, step, COARSEST_STEPS), most)
    )


def _fitted(make: Callable[[int], Planes], most: int) -> Planes:
    """What `make` gives for the smallest step that fits."""
    step = 1
    while True:
        planes = make(step)
        size = len(planes.content)
        if size <= most or planes.grid.size <= 64:
            return planes
        step = max(step + 1, math.floor(step * math.sqrt(size / most)))
