"""A hyperspectral cube: what a file says about itself, and its array on disk."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.bands import BandChoice, band_numbers, runs
from pdenet_cli.dtypes import can_hold_all
from pdenet_cli.errors import FormatError, OutputError, PdenetError, UsageError
from pdenet_cli.georeference import PIXEL_WORDS, Georeference, upscaled_words
from pdenet_cli.window import Window

Pixels = NDArray[Any]
Bands = slice | Sequence[int]

INTERLEAVES = {"bsq": "brc", "bil": "rbc", "bip": "rcb"}
"""Each interleave as the order of its axes: b bands, r rows, c columns, slowest first."""

UNIT_PATTERNS = {
    1.0: "nanomet(er|re)s?|nm",
    1e3: "micromet(er|re)s?|microns?|[uµμ]m",
    0.1: "[aå]ngstr[oö]ms?|å",
    1e6: "millimet(er|re)s?|mm",
    1e7: "centimet(er|re)s?|cm",
    1e9: "met(er|re)s?|m",
}
"""Units of wavelength: the length of each in nanometres, and a pattern of the names that files use for it."""

GAP_VALUES = 1 << 16  # so many values between two wanted bands are read too: faster than skipping them
READ_AT_ONCE = 1 << 24  # at most so many values are read with unwanted ones between, unless half are wanted

# 1/cm and cm-1 are wavenumbers, not lengths.
WAVELENGTH_UNIT = rf"(?<![\w/])({'|'.join(UNIT_PATTERNS.values())})(?!\w)(?!\W*[-−⁻]\s*[1¹])"


def nanometres(wavelengths: Sequence[float], units: str | None) -> float | None:
    """The length of a wavelength unit in nanometres; None if it is not a length.

    Without a unit, numbers below 0.001 are taken for metres and below 100 for micrometres.
    """
    unit = (units or "unknown").strip().lower()
    if unit in ("", "unknown"):
        largest = max(wavelengths)
        return 1e9 if largest < 0.001 else 1e3 if largest < 100 else 1.0
    found = re.search(WAVELENGTH_UNIT, unit)
    return next((nm for nm, words in UNIT_PATTERNS.items() if found and re.fullmatch(words, found[0])), None)


@dataclass(frozen=True)
class CubeMeta:
    """All that a file says about its cube besides the pixels.

    Per-band lists are as long as there are bands, or None. Physical value = gain · number + offset.
    """

    bands: int
    rows: int
    columns: int
    dtype: np.dtype[Any]
    interleave: str = "bsq"
    wavelengths: tuple[float, ...] | None = None
    wavelength_units: str | None = None
    fwhm: tuple[float, ...] | None = None
    good_bands: tuple[bool, ...] | None = None
    band_names: tuple[str, ...] | None = None
    default_bands: tuple[int, ...] | None = None  # counted from 0
    nodata: float | None = None
    reflectance_scale: float | None = None
    gains: tuple[float, ...] | None = None
    offsets: tuple[float, ...] | None = None
    georeference: Georeference = Georeference()
    dimensions: tuple[str, str, str] | None = None  # names of bands, rows and columns, if unusual
    variable: str | None = None  # the dataset or variable that holds the pixels, where a file has several
    extra: Mapping[str, Any] = field(default_factory=dict)  # the rest of the header, by the file's own names
    native: Mapping[str, Any] = field(default_factory=dict)  # how the file is laid out, for outputs of its format
    notes: tuple[str, ...] = ()  # for the user: what was guessed or ignored on reading

    PER_BAND = ("wavelengths", "fwhm", "good_bands", "band_names", "gains", "offsets")
    # ENVI's lists whose length may equal the number of bands by chance.
    NOT_PER_BAND = ("description", "z plot", "class ", "projection info", *PIXEL_WORDS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        for name in self.PER_BAND:
            values = getattr(self, name)
            if values is not None and len(values) != self.bands:
                note = f"{name} ignored: {len(values)} entries for {self.bands} bands"
                object.__setattr__(self, name, None)
                object.__setattr__(self, "notes", (*self.notes, note))

    @property
    def window(self) -> Window:
        """The whole scene."""
        return Window(0, 0, self.rows, self.columns)

    def shape(self, axes: str = "brc") -> tuple[int, ...]:
        """The sizes of the axes in the order given: b bands, r rows, c columns."""
        sizes = dict(b=self.bands, r=self.rows, c=self.columns)
        return tuple(sizes[axis] for axis in axes)

    @property
    def nbytes(self) -> int:
        return self.bands * self.rows * self.columns * self.dtype.itemsize

    @property
    def wavelengths_nm(self) -> NDArray[np.float64] | None:
        """Band centres in nanometres; None where the unit is not a length."""
        if self.wavelengths is None:
            return None
        size = nanometres(self.wavelengths, self.wavelength_units)
        return None if size is None else np.asarray(self.wavelengths, np.float64) * size

    def noting(self, *notes: str) -> CubeMeta:
        """The same with more notes on how the file was read."""
        return replace(self, notes=(*self.notes, *notes))

    def upscaled(self, factor: int) -> CubeMeta:
        """The metadata of the same scene on a grid `factor` times finer."""
        return replace(
            self,
            rows=self.rows * factor,
            columns=self.columns * factor,
            georeference=self.georeference.upscaled(factor),
            extra=upscaled_words(self.extra, factor),
        )

    def chosen(self, bands: BandChoice) -> tuple[int, ...]:
        """The numbers of the bands that are meant; UsageError where some of them are not in the cube."""
        waves = self.wavelengths_nm
        return band_numbers(bands, self.bands, None if waves is None else waves.tolist())

    def with_bands(self, chosen: BandChoice) -> CubeMeta:
        """The metadata of the `chosen` bands."""
        kept = self.chosen(chosen)
        lists: dict[str, Any] = {
            name: tuple(values[i] for i in kept)
            for name in self.PER_BAND
            if (values := getattr(self, name)) is not None
        }
        defaults = tuple(kept.index(b) for b in self.default_bands or () if b in kept)
        complete = self.default_bands is not None and len(defaults) == len(self.default_bands)
        extra = {name: self._of_bands(name, value, kept) for name, value in self.extra.items()}
        return replace(self, bands=len(kept), default_bands=defaults if complete else None, extra=extra, **lists)

    def _of_bands(self, name: str, value: Any, kept: Sequence[int]) -> Any:
        """A field of `extra` for the `kept` bands: cut if it is a list with an item for each band."""
        if name.lower().replace("_", " ").startswith(self.NOT_PER_BAND):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(value[i] for i in kept) if len(value) == self.bands else value
        if not isinstance(value, str) or not value.startswith("{"):
            return value
        items = [item.strip() for item in value.strip("{}").split(",")]
        return "{" + ", ".join(items[i] for i in kept) + "}" if len(items) == self.bands else value


class Sliceable(Protocol):
    """An array in memory, on disk or in chunks: a shape, and three slices read or write a part.

    An array in chunks has their size as `block`. One with `strided` true reads every n-th row without the rows
    between.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, key: tuple[slice, ...], /) -> Any: ...


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
        self.writable = True  # open_cube sets False: inputs are never changed
        assert tuple(array.shape) == meta.shape(axes), (array.shape, axes, meta)

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
        return self.array.bands if isinstance(self.array, _SomeBands) else tuple(range(self.meta.bands))

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
        there = sorted({*numbers}) if numbers is not None else []
        array = self.array if numbers is None else _SomeBands.of(self.array, self.axes.index("b"), there)
        try:
            part = array[key]
        except (OSError, ValueError) as error:
            if isinstance(error, PdenetError):
                raise
            raise FormatError(f"{self.path}: can no longer be read ({error}).") from error
        pixels = np.asarray(part).transpose([self.axes.index(axis) for axis in "brc"])
        if numbers is not None and list(numbers) != there:
            pixels = pixels[[there.index(band) for band in numbers]]
        return np.ascontiguousarray(pixels, dtype=self.meta.dtype.newbyteorder("="))

    def write(self, window: Window, pixels: Pixels, bands: slice = slice(None)) -> None:
        """Write `pixels`, file numbers as (bands, rows, columns), to `window`."""
        if not self.writable:
            raise OutputError(f"{self.path}: a scene is never changed. Write a new cube with create_cube.")
        key, wanted = self._key(window, bands), (len(range(self.meta.bands)[bands]), window.rows, window.columns)
        if pixels.shape != wanted:
            raise UsageError(f"{self.path}: pixels of shape {pixels.shape} for a window of shape {wanted}.")
        if not can_hold_all(self.meta.dtype, pixels):
            met = f"{pixels.dtype.name} pixels do not fit into {self.meta.dtype.name} values"
            raise UsageError(f"{self.path}: {met}. Round and clip them first, and convert them with astype.")
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
        some = _SomeBands.of(self.array, self.axes.index("b"), self.meta.chosen(chosen))
        kept = Cube(
            self.path, self.meta.with_bands(chosen), some, self.axes, self.close, self.own_files, self.beside
        )
        kept.writable = False
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class _SomeBands:
    """A view of some bands of another array; the bands between them are read only where this costs nothing."""

    array: Sliceable
    axis: int
    bands: tuple[int, ...]  # ascending

    @classmethod
    def of(cls, array: Sliceable, axis: int, bands: Sequence[int]) -> _SomeBands:
        """The view of these bands of an array, which may itself be such a view."""
        if isinstance(array, _SomeBands):
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
        parts = [self._run(key, some) for some in self._groups(self.bands[key[self.axis]], plane)]
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
