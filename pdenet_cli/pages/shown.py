"""Cubes as a page shows them: in reflectance where their header has a scale, and every so many-th pixel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.pages.values import Values
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.window import Window

BLOCK_VALUES = 1 << 22  # about how many values are read at once
BandValues = NDArray[np.float32]  # (bands, rows, columns), NaN where there is nothing


@dataclass(frozen=True)
class Grid:
    """Every `step`-th pixel of a scene, each in the middle of the `step` x `step` pixels that it stands for."""

    rows: int
    columns: int
    step: int = 1

    @classmethod
    def of(cls, window: Window, step: int) -> Grid:
        """The grid over a scene, in which it leaves no pixel out that is not near one of its own."""
        first = cls.first_of(step)
        rows, columns = (max(1, -(-(size - first) // step)) for size in (window.rows, window.columns))
        return cls(rows, columns, step)

    @staticmethod
    def first_of(step: int) -> int:
        """The row and column of the first pixel of a grid."""
        return (step - 1) // 2

    @property
    def first(self) -> int:
        return self.first_of(self.step)

    @property
    def size(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Shown:
    """A cube whose shown value is `gain` · number + `offset`, one of each or one for each band."""

    cube: Cube
    gain: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)

    @classmethod
    def of(cls, cube: Cube, values: Values) -> Shown:
        """A cube of the scene's own quantity."""
        return cls(cube, values.gain, values.offset)

    @classmethod
    def spread(cls, cube: Cube, values: Values, factor: float = 1.0) -> Shown:
        """`factor` times a cube of differences, which take the gain and never the offset."""
        return cls(cube, tuple(factor * abs(gain) for gain in values.gain))

    @property
    def bands(self) -> int:
        return self.cube.meta.bands

    def grid(self, step: int) -> Grid:
        return Grid.of(self.cube.meta.window, step)

    def read(self, grid: Grid, bands: Sequence[int] | None = None) -> BandValues:
        """All, or some, bands at the pixels of a grid."""
        return np.concatenate(list(self.strips(grid, bands)), axis=1)

    def strips(self, grid: Grid, bands: Sequence[int] | None = None) -> Iterator[BandValues]:
        """The same in strips of rows that take little memory."""
        meta, step = self.cube.meta, grid.step
        count = meta.bands if bands is None else len(bands)
        height = max(1, BLOCK_VALUES // (count * meta.columns) // step)  # rows of the grid
        for row in range(0, grid.rows, height):
            first = grid.first if meta.rows > grid.first else 0
            across = grid.first if meta.columns > grid.first else 0
            top = first + row * step
            bottom = min(meta.rows, top + height * step)
            window = Window(top, across, bottom - top, meta.columns - across)
            yield self._shown(
                self.cube.thinned(step, window, slice(None) if bands is None else list(bands)), bands
            )

    def part(self, window: Window, bands: Sequence[int] | None = None) -> BandValues:
        """Every pixel of a part."""
        return self._shown(self.cube.read(window, slice(None) if bands is None else list(bands)), bands)

    def _shown(self, numbers: NDArray[np.generic], bands: Sequence[int] | None) -> BandValues:
        gain, offset = (self._of_bands(values, bands) for values in (self.gain, self.offset))
        values = numbers.astype(np.float64) * gain + offset
        return np.where(valid(numbers, self.cube.meta.nodata), values, np.nan).astype(np.float32)

    @staticmethod
    def _of_bands(values: tuple[float, ...], bands: Sequence[int] | None) -> NDArray[np.float64]:
        chosen = values if len(values) == 1 or bands is None else [values[band] for band in bands]
        return np.asarray(chosen, np.float64)[:, None, None]
