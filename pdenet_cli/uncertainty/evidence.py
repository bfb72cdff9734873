"""What is known about a tile: Monte-Carlo samples of it, its input, and what follows from the two.

Everything is 0..1 and may be cropped: a part of the tile keeps what was computed of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.window import Window

Map = NDArray[np.float32]  # (bands, rows, columns)

CACHED = ("mean", "std", "roughness")  # maps that Evidence computes once


class LazySamples(Protocol):
    """Samples that are computed one by one when they are asked for, 0..1."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Map]: ...
    def __getitem__(self, chosen: slice) -> LazySamples: ...

    @property
    def total(self) -> float:
        """A sum that is finite only if every sample is."""

    def mean(self) -> Map:
        """The mean of the samples."""

    def std(self) -> Map:
        """The standard deviation of the samples, with N - 1; 0 for a single one."""

    def cropped(self, rows: slice, columns: slice) -> LazySamples:
        """The same samples of a part of the pixels."""


Samples = NDArray[np.float32] | LazySamples  # an array is (samples, bands, rows, columns), 0..1


@dataclass(frozen=True)
class Evidence:
    """All that is known about one tile, 0..1: what its maps are computed from."""

    samples: Samples  # (samples, bands, rows, columns)
    low: Map  # the input of the tile, (bands, rows/scale, columns/scale)
    low_roughness: Map  # `roughness` of the input, with a margin where the scene goes on
    scale: int
    unexplained: Map | None = None  # the input minus the degraded mean, shaped as `low`
    gain: NDArray[np.float64] | float = 1.0  # 0..1 per file number, maybe negative; one or (bands, 1, 1)
    measured: NDArray[np.float64] | float = 1.0  # value per file number, as the header says; shaped as `gain`
    inside: Window | None = None  # where the tile is in `low_roughness`; None: it has no margin
    expected: Map | None = None  # root mean square error to expect, if the model has learned to tell it

    @cached_property
    def mean(self) -> Map:
        """The mean of the samples, (bands, rows, columns)."""
        return mean(self.samples)

    @cached_property
    def std(self) -> Map:
        """Their standard deviation, (bands, rows, columns)."""
        return std(self.samples, self.mean)

    @cached_property
    def roughness(self) -> Map:
        """The roughness of the input on the fine grid, (bands, rows, columns)."""
        fine = enlarged(self.low_roughness, self.scale)
        return fine if self.inside is None else fine[:, *self.inside.scaled(self.scale).slices]

    def cropped(self, window: Window, unexplained: Map | None = None, expected: Map | None = None) -> Evidence:
        """The same about a part of the tile, a window of its input pixels; further maps are of all of the tile."""
        unexplained = self.unexplained if unexplained is None else unexplained
        expected = self.expected if expected is None else expected
        coarse, fine = window.slices, window.scaled(self.scale).slices
        inside = window if self.inside is None else window.moved(self.inside.row, self.inside.column)
        part = replace(
            self,
            samples=cropped(self.samples, *fine),
            low=self.low[:, *coarse],
            inside=inside,
            unexplained=None if unexplained is None else unexplained[:, *coarse],
            expected=None if expected is None else expected[:, *fine],
        )
        # What was computed of the whole is not computed again.
        vars(part).update({name: vars(self)[name][:, *fine] for name in CACHED if name in vars(self)})
        return part


def mean(samples: Samples) -> Map:
    """The mean of the samples."""
    return np.asarray(samples.mean(0, dtype=np.float32)) if isinstance(samples, np.ndarray) else samples.mean()


def cropped(samples: Samples, rows: slice, columns: slice) -> Samples:
    """The samples of a part of the pixels."""
    return samples[:, :, rows, columns] if isinstance(samples, np.ndarray) else samples.cropped(rows, columns)


def std(samples: Samples, middle: Map) -> Map:
    """The standard deviation of the samples around their mean, with N - 1; 0 for a single sample."""
    if not isinstance(samples, np.ndarray):
        return samples.std()
    squares = np.zeros_like(middle)
    for sample in samples:  # one by one: all differences at once take as much memory as the samples
        squares += (sample - middle) ** 2
    return np.sqrt(squares / max(len(samples) - 1, 1))


def roughness(low: Map) -> Map:
    """Root mean square, over 3x3 pixels, of the difference between a pixel and the mean of the 3x3 around it.

    Not the standard deviation, as an even slope is no detail: a network gets it right. Beyond the edge of the
    input, edge pixels are repeated.
    """
    difference = low - _mean_of_nine(low)
    return np.sqrt(_mean_of_nine(difference * difference))


def _mean_of_nine(image: Map) -> Map:
    rows, columns = image.shape[1:]
    framed = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    three = framed[:, :rows] + framed[:, 1 : rows + 1] + framed[:, 2:]
    return np.asarray((three[..., :columns] + three[..., 1 : columns + 1] + three[..., 2:]) / 9, np.float32)


def repeated(low: NDArray[Any], scale: int) -> NDArray[Any]:
    """A map on the fine grid: every pixel repeated `scale` times along rows and columns."""
    return low.repeat(scale, -2).repeat(scale, -1)


def enlarged(low: Map, scale: int) -> Map:
    """A map on the fine grid, by linear interpolation between pixel centres."""
    for axis in (-2, -1):
        places = ((np.arange(low.shape[axis] * scale) + 0.5) / scale - 0.5).clip(0, low.shape[axis] - 1)
        before = np.floor(places).astype(np.intp)
        after = np.minimum(before + 1, low.shape[axis] - 1)
        share = (places - before).astype(np.float32).reshape((-1, 1) if axis == -2 else (-1,))
        low = low.take(before, axis) * (1 - share) + low.take(after, axis) * share
    return low
