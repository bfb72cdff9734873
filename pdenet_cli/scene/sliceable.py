"""Arrays that are read by slices; views of a box, and of some of their bands that read few others with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pdenet_cli.scene.bands import runs

GAP_VALUES = 1 << 16  # so many values between two wanted bands are read too: faster than skipping them
READ_AT_ONCE = 1 << 24  # at most so many values are read with unwanted ones between, unless half are wanted


class Sliceable(Protocol):
    """An array in memory, on disk or in chunks: a shape, and three slices read or write a part.

    An array in chunks has their size as `block`. One with `strided` true reads every n-th row without the rows
    between.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, key: tuple[slice, ...], /) -> Any: ...


@dataclass(frozen=True)
class Part:
    """A view of a box of another array."""

    array: Sliceable
    first: tuple[int, ...]  # along each axis
    shape: tuple[int, ...]

    @property
    def block(self) -> tuple[int, ...] | None:
        return getattr(self.array, "block", None)

    @property
    def strided(self) -> bool:
        return getattr(self.array, "strided", False)

    def __getitem__(self, key: tuple[slice, ...]) -> Any:
        ranges = (range(size)[part] for size, part in zip(self.shape, key, strict=True))
        moved = (slice(r.start + at, r.stop + at, r.step) for r, at in zip(ranges, self.first, strict=True))
        return self.array[tuple(moved)]


@dataclass(frozen=True)
class SomeBands:
    """A view of some bands of another array; the bands between them are read only where this costs nothing."""

    array: Sliceable
    axis: int
    bands: tuple[int, ...]  # ascending

    @classmethod
    def of(cls, array: Sliceable, axis: int, bands: Sequence[int]) -> SomeBands:
        """The view of these bands of an array, which may itself be such a view."""
        if isinstance(array, SomeBands):
            return cls(array.array, axis, tuple(array.bands[band] for band in bands))
        return cls(array, axis, tuple(bands))

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(self.array.shape)
        shape[self.axis] = len(self.bands)
        return tuple(shape)

    @property
    def block(self) -> tuple[int, ...] | None:
        return getattr(self.array, "block", None)

    @property
    def strided(self) -> bool:
        return getattr(self.array, "strided", False)

    def __getitem__(self, key: tuple[slice, ...]) -> Any:
        sizes = [len(range(size)[part]) for size, part in zip(self.array.shape, key, strict=True)]
        plane = math.prod(size for axis, size in enumerate(sizes) if axis != self.axis)
        parts = [self._run(key, group) for group in self._groups(self.bands[key[self.axis]], plane)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)

    def _groups(self, wanted: Sequence[int], plane: int) -> list[list[int]]:
        """The bands that are read at once; `plane` is how many values each has."""
        groups: list[list[int]] = []
        for first, end in runs(wanted):
            if groups and self._is_cheap(groups[-1][-1] + 1, first, plane):
                together, span = [*groups[-1], *range(first, end)], end - groups[-1][0]
                if span * plane <= READ_AT_ONCE or span <= 2 * len(together):
                    groups[-1] = together
                    continue
            groups.append([*range(first, end)])
        return groups or [[]]

    def _is_cheap(self, first: int, end: int, plane: int) -> bool:
        """Whether the unwanted bands from `first` to before `end` may be read with those around them."""
        if self.block is None:
            apart = math.prod(self.array.shape[self.axis + 1 :])  # from a value to that of the next band
            return (end - first) * min(plane, apart) <= GAP_VALUES
        size = self.block[self.axis]
        return math.ceil(first / size) >= end // size  # no whole block lies between

    def _run(self, key: tuple[slice, ...], bands: Sequence[int]) -> Any:
        """These bands, read in one go with those between them."""
        first, end = (bands[0], bands[-1] + 1) if bands else (0, 0)
        run = self.array[(*key[: self.axis], slice(first, end), *key[self.axis + 1 :])]
        whole = len(bands) == end - first
        return run if whole else np.take(run, [band - first for band in bands], self.axis)
