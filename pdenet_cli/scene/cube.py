"""A hyperspectral cube: an array on disk, with what its file says about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import FormatError, OutputError, PdenetError, UsageError
from pdenet_cli.reprs import html_table
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.dtypes import can_hold_all
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Part, Sliceable, SomeBands
from pdenet_cli.scene.stamps import Stamps
from pdenet_cli.scene.window import Window

Pixels = NDArray[Any]
Bands = slice | Sequence[int]


class Cube:
    """An array on disk seen as (bands, rows, columns), whatever the order of its axes there."""

    def __init__(
        self,
        path: Path,
        meta: CubeMeta,
        array: Sliceable,
        axes: str = "brc",
        close: Callable[[], None] = lambda: None,
        files: tuple[Path, ...] = (),
        beside: tuple[Path, ...] = (),
    ) -> None:
        self.path, self.meta, self.array, self.axes, self.close = path, meta, array, axes, close
        self.own_files = files or (path,)
        self.beside = beside  # sidecar files, which other scenes may share
        self.files = (*self.own_files, *beside)
        self.whole: Cube | None = None  # the scene that this is a window of
        self.writable = True  # open_cube sets False: inputs are never changed
        self.stamps = Stamps({}, ())  # of its files, set by open_cube; they must be the same in the end
        assert tuple(array.shape) == meta.shape(axes), (array.shape, axes, meta)

    def __repr__(self) -> str:
        """One line, for notebooks."""
        size = f"{self.meta.bands} bands, {self.meta.rows} x {self.meta.columns} pixels, {self.meta.dtype.name}"
        return f"Cube({self.path.name}: {size}{''.join(f', {text}' for text in self._facts.values())})"

    def _repr_html_(self) -> str:
        meta = self.meta
        rows = {"bands, rows, columns": f"{meta.bands}, {meta.rows}, {meta.columns}", "numbers": meta.dtype.name}
        others = {"notes": " ".join(meta.notes)} if meta.notes else {}
        return html_table(str(self.path), rows | self._facts | others)

    @property
    def _facts(self) -> dict[str, str]:
        """What the file says besides its size, as far as it does."""
        meta, waves = self.meta, self.meta.wavelengths_nm
        place = meta.georeference
        facts = {
            "wavelengths": None if waves is None else f"{waves.min():.4g} to {waves.max():.4g} nm",
            "nodata": None if meta.nodata is None else f"{meta.nodata:g}",
            "ground": "georeferenced" if place.transform or place.points or place.rpc else None,
        }
        return {name: text for name, text in facts.items() if text is not None}

    @property
    def in_blocks(self) -> bool:
        """Whether the file is stored in blocks, such as TIFF tiles or HDF5 chunks."""
        return getattr(self.array, "block", None) is not None

    @property
    def block(self) -> tuple[int, int, int]:
        """Bands, rows and columns of the blocks that the file is stored in.

        Reading a part of a block takes as long as all of it. One row of all bands where there are no blocks.
        """
        sizes = getattr(self.array, "block", None)
        if sizes is None:
            return self.meta.bands, 1, self.meta.columns
        bands, rows, columns = (min(sizes[i], self.array.shape[i]) for i in map(self.axes.index, "brc"))
        return bands, rows, columns

    @property
    def band_numbers(self) -> tuple[int, ...]:
        """The number of each band in the file, of which only some may have been chosen."""
        return self.array.bands if isinstance(self.array, SomeBands) else tuple(range(self.meta.bands))

    def read(self, window: Window | None = None, bands: Bands = slice(None)) -> Pixels:
        """The pixels of `window` as (bands, rows, columns) in the machine's byte order."""
        wanted, numbers = self._wanted(bands)
        return self._read(self._key(window, wanted), numbers)

    def thinned(self, step: int, window: Window | None = None, bands: Bands = slice(None)) -> Pixels:
        """Every `step`-th row and column of `window`, from its first; if the format allows, no others are read."""
        window = self.meta.window if window is None else window
        if getattr(self.array, "strided", False):
            wanted, numbers = self._wanted(bands)
            every = dict(b=1, r=step, c=step)
            key = zip(self._key(window, wanted), self.axes, strict=True)
            thin = tuple(slice(s.start, s.stop, (s.step or 1) * every[axis]) for s, axis in key)
            return self._read(thin, numbers)
        # Row by row where this skips whole blocks.
        if self.in_blocks and step > self.block[1]:
            rows = (replace(window, row=row, rows=1) for row in range(window.row, window.bottom, step))
            return np.concatenate([self.read(row, bands)[..., ::step] for row in rows], axis=1)
        return self.read(window, bands)[:, ::step, ::step]

    def _wanted(self, bands: Bands) -> tuple[slice, Sequence[int] | None]:
        """The bands as a slice or, where that cannot be, as all of them and the numbers of those wanted."""
        if isinstance(bands, slice):
            backwards = (bands.step or 1) < 0
            return (slice(None), range(self.meta.bands)[bands]) if backwards else (bands, None)
        if any(not 0 <= band < self.meta.bands for band in bands):
            raise UsageError(f"{self.path}: bands {list(bands)}: it has only 0 to {self.meta.bands - 1}.")
        return slice(None), bands

    def _read(self, key: tuple[slice, ...], numbers: Sequence[int] | None = None) -> Pixels:
        """The part of the array at `key` as (bands, rows, columns): all its bands, or these."""
        ordered = sorted({*numbers}) if numbers is not None else []
        array = self.array if numbers is None else SomeBands.of(self.array, self.axes.index("b"), ordered)
        try:
            part = array[key]
        except (OSError, ValueError) as error:
            if isinstance(error, PdenetError):
                raise
            raise FormatError(f"{self.path}: can no longer be read ({error}).") from error
        pixels = np.asarray(part).transpose([self.axes.index(axis) for axis in "brc"])
        if numbers is not None and list(numbers) != ordered:
            pixels = pixels[[ordered.index(band) for band in numbers]]
        return np.ascontiguousarray(pixels, dtype=self.meta.dtype.newbyteorder("="))

    def write(self, window: Window, pixels: Pixels, bands: slice = slice(None)) -> None:
        """Write `pixels`, file numbers as (bands, rows, columns), to `window`."""
        if not self.writable:
            raise OutputError(f"{self.path}: a scene is never changed. Write a new cube with create_cube.")
        key, wanted = self._key(window, bands), (len(range(self.meta.bands)[bands]), window.rows, window.columns)
        if pixels.shape != wanted:
            raise UsageError(f"{self.path}: pixels of shape {pixels.shape} for a window of shape {wanted}.")
        if not can_hold_all(self.meta.dtype, pixels):
            problem = f"{pixels.dtype.name} pixels do not fit into {self.meta.dtype.name} values"
            raise UsageError(f"{self.path}: {problem}. Round and clip them first, and convert them with astype.")
        array: Any = self.array
        array[key] = pixels.transpose(["brc".index(axis) for axis in self.axes])

    def _key(self, window: Window | None, bands: slice) -> tuple[slice, ...]:
        """The slices of the array, in its own order of axes; UsageError if the window is not in the scene."""
        window = self.meta.window if window is None else window
        if window != window.grown(0, within=self.meta.window) or min(window.rows, window.columns) < 0:
            size = f"{self.meta.rows} x {self.meta.columns}"
            raise UsageError(f"{self.path}: {window} is not within its {size} pixels.")
        if bands.step is not None and bands.step < 1:
            raise UsageError(f"{self.path}: bands must go in steps of 1 or more, not {bands.step}.")
        rows, columns = window.slices
        return tuple(dict(b=bands, r=rows, c=columns)[axis] for axis in self.axes)

    def with_bands(self, chosen: BandChoice) -> Cube:
        """The same cube with only the `chosen` bands; it shares the file."""
        array = SomeBands.of(self.array, self.axes.index("b"), self.meta.chosen(chosen))
        kept = Cube(
            self.path, self.meta.with_bands(chosen), array, self.axes, self.close, self.own_files, self.beside
        )
        kept.whole = None if self.whole is None else self.whole.with_bands(chosen)
        kept.writable, kept.stamps = False, self.stamps
        return kept

    def windowed(self, window: Window) -> Cube:
        """Only the pixels of `window`, as a cube in its place on the ground; it shares the file."""
        try:
            meta = self.meta.windowed(window)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from error
        first = dict(b=0, r=window.row, c=window.column)
        chosen = self.array if isinstance(self.array, SomeBands) else None  # which must stay the outer view
        array = self.array if chosen is None else chosen.array
        shape = dict(b=array.shape[self.axes.index("b")], r=window.rows, c=window.columns)
        part: Sliceable = Part(array, *(tuple(place[axis] for axis in self.axes) for place in (first, shape)))
        if chosen is not None:
            part = SomeBands(part, chosen.axis, chosen.bands)
        cut = Cube(self.path, meta, part, self.axes, self.close, self.own_files, self.beside)
        cut.whole = self.whole or self
        cut.writable, cut.stamps = False, self.stamps
        return cut

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stamps.refuse_changed()
        finally:
            self.close()
