"""What a page shows of a sharpened scene: its colours, maps of how far to trust it, and spectra with a band."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.picture import Picture, quicklook, thinned, thinning, upper_end
from pdenet_cli.scene.window import Window

LONGEST_SIDE = 1024  # pixels of a picture
MOST_VALUES = 5_000_000  # values of all spectra in a page
MOST_BYTES = 9_000_000  # size of the packed spectra in a page
BLOCK_VALUES = 1 << 23  # about how many values are read at once
CODE_STEPS = 4094  # spectra are rounded to this many steps of their band's range: finer than any screen
MOST_LEVELS = 8  # rows of the table of shares above a level
BAND_GAP = 5  # a line is broken between bands this many times further apart than the median distance

MergedMap = NDArray[np.float32]  # (rows, columns), NaN where there is nothing
Places = NDArray[np.intp]
BandValues = NDArray[np.float32]  # (bands, rows, columns), NaN where there is nothing


@dataclass(frozen=True)
class MapOverview:
    """A merged map at a glance, every so many-th pixel of it; the levels tell of all its pixels."""

    values: MergedMap
    levels: tuple[tuple[float, float], ...]  # a level of the map, and the share of the scene above it
    more: bool  # whether some pixel is above `top`

    @classmethod
    def of(cls, merged: Cube, step: int) -> MapOverview:
        seen = np.asarray(thinned(merged, 0, step), np.float32)
        *levels, (_, beyond) = shares_above(strips(merged), (*round_levels(seen), upper_end(seen)))
        return cls(seen, tuple(levels), beyond > 0)

    @property
    def top(self) -> float:
        """The upper end of the colour scale: one pixel in 200 lies above it."""
        return upper_end(self.values)


@dataclass(frozen=True)
class Overview:
    """A scene at a glance, every `step`-th pixel of it."""

    colours: Picture
    maps: tuple[MapOverview, ...]
    step: int

    @classmethod
    def of(cls, mean: Cube, maps: Sequence[Cube], longest: int = LONGEST_SIDE) -> Overview:
        """The overview of a cube and of its merged maps."""
        step = thinning(mean.meta, longest)
        return cls(quicklook(mean, longest), tuple(MapOverview.of(cube, step) for cube in maps), step)


@dataclass(frozen=True)
class InputSpectra:
    """Spectra of the input: of its pixels that contain some finer ones."""

    values: BandValues
    rows: Places  # which row of `values` contains each row of the finer pixels
    columns: Places

    @classmethod
    def of(cls, source: Cube, fine: CubeMeta, step: int) -> InputSpectra:
        """Around every `step`-th pixel of the `fine` grid over the same ground."""
        here = source.meta
        rows, row_of = np.unique(np.arange(0, fine.rows, step) * here.rows // fine.rows, return_inverse=True)
        columns, column_of = np.unique(
            np.arange(0, fine.columns, step) * here.columns // fine.columns, return_inverse=True
        )
        return cls(_spectra_at(source, rows, columns), row_of, column_of)

    def thinner(self) -> InputSpectra:
        """Around every second one of the finer pixels."""
        rows, row_of = np.unique(self.rows[::2], return_inverse=True)
        columns, column_of = np.unique(self.columns[::2], return_inverse=True)
        return InputSpectra(self.values[:, rows][:, :, columns], row_of, column_of)


@dataclass(frozen=True)
class Spectra:
    """The spectra of every `step`-th pixel, each with a band around it and the values of the maps there."""

    mean: BandValues
    low: BandValues
    high: BandValues
    maps: BandValues  # (maps, rows, columns)
    input: InputSpectra
    step: int
    band: str  # what the band around a spectrum is; "" if there is none
    places: tuple[float, ...]  # of the bands along the axis: wavelengths or numbers
    across: str  # name of that axis

    @classmethod
    def of(
        cls,
        mean: Cube,
        maps: Sequence[Cube],
        source: Cube,
        interval: tuple[Cube, Cube] | None = None,
        std: Cube | None = None,
        level: float | None = None,
        most_values: int = MOST_VALUES,
    ) -> Spectra:
        """Spectra of a cube made from `source`, with its interval at `level`, else two std of its samples on each
        side.
        """
        meta = mean.meta
        step = math.ceil(math.sqrt(max(1.0, meta.bands * meta.rows * meta.columns / most_values)))
        middle = spectra_of(mean, step)
        low = high = middle
        band = ""
        if interval is not None:
            low, high = (spectra_of(cube, step) for cube in interval)
            band = "interval" if level is None else f"{100 * level:g} % interval"
        elif std is not None:
            twice = 2 * spectra_of(std, step)
            low, high = middle - twice, middle + twice
            band = "± 2 std of the samples, not calibrated"
        finite = np.isfinite(middle) & np.isfinite(low) & np.isfinite(high)
        good = np.array(meta.good_bands or (True,) * meta.bands)[:, None, None]
        finite &= good
        middle, low, high = (np.where(finite, values, np.float32(np.nan)) for values in (middle, low, high))
        places, across = axis_of(meta)
        coarse = InputSpectra.of(source, meta, step)
        coarse = replace(coarse, values=np.where(good, coarse.values, np.float32(np.nan)))
        merged = np.concatenate([spectra_of(cube, step) for cube in maps])
        return cls(middle, low, high, merged, coarse, step, band, places, across)

    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the greatest value of each band; 0 where it has none."""
        every = (self.mean, self.low, self.high, self.input.values)
        least = np.min([np.where(np.isfinite(v), v, np.inf).min((1, 2)) for v in every], axis=0)
        most = np.max([np.where(np.isfinite(v), v, -np.inf).max((1, 2)) for v in every], axis=0)
        lowest, highest = (np.where(np.isfinite(v), v, 0.0).astype(np.float64) for v in (least, most))
        return lowest, highest

    def thinner(self) -> Spectra:
        """Every second one of these spectra."""
        names = ("mean", "low", "high", "maps")
        thinned: dict[str, Any] = {name: getattr(self, name)[..., ::2, ::2] for name in names}
        return replace(self, step=self.step * 2, input=self.input.thinner(), **thinned)


@dataclass(frozen=True)
class Packed:
    """Compressed spectra: code c in band b means lowest[b] + size[b] · (c - 1); code 0 means no data.

    Deflated: the maps as float32; then the codes of the mean, how far low is below them, how far high is above,
    and the codes of the input, each as all its low bytes and then all its high bytes, (bands, rows, columns).
    """

    content: bytes
    lowest: tuple[float, ...]
    size: tuple[float, ...]

    @classmethod
    def of(cls, spectra: Spectra) -> Packed:
        lowest, highest = spectra.ends()
        size = np.where(highest > lowest, (highest - lowest) / CODE_STEPS, 1.0)

        def codes(values: BandValues) -> NDArray[np.uint16]:
            steps = (np.nan_to_num(values) - lowest[:, None, None]) / size[:, None, None]
            return np.where(np.isfinite(values), np.rint(steps) + 1, 0).clip(0, CODE_STEPS + 1).astype(np.uint16)

        middle, low, high = codes(spectra.mean), codes(spectra.low), codes(spectra.high)
        below, above = middle - np.minimum(low, middle), np.maximum(high, middle) - middle
        planes = (middle, below, above, codes(spectra.input.values))
        halves = [half.astype(np.uint8).tobytes() for plane in planes for half in (plane & 255, plane >> 8)]
        content = b"".join([spectra.maps.astype("<f4").tobytes(), *halves])
        return cls(zlib.compress(content), tuple(lowest.tolist()), tuple(size.tolist()))


def packed(spectra: Spectra, most: int = MOST_BYTES) -> tuple[Spectra, Packed]:
    """The spectra in at most `most` bytes; thinned until they fit."""
    parcel = Packed.of(spectra)
    while len(parcel.content) > most and max(spectra.maps.shape[1:]) > 1:
        spectra = spectra.thinner()
        parcel = Packed.of(spectra)
    return spectra, parcel


def spectra_of(cube: Cube, step: int) -> BandValues:
    """All bands of every `step`-th row and column, NaN for nodata, read in strips so that a large scene fits."""
    meta = cube.meta
    at_once = max(1, BLOCK_VALUES // (meta.bands * meta.columns))
    height = at_once // step * step or 1
    rows = []
    for row in range(0, meta.rows, max(height, step)):
        window = Window(row, 0, min(height, meta.rows - row), meta.columns)
        strip = cube.thinned(step, window)
        rows.append(np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float32))
    return np.concatenate(rows, axis=1)


def _spectra_at(cube: Cube, rows: Places, columns: Places) -> BandValues:
    """All bands at these rows and columns, NaN for nodata."""
    meta = cube.meta
    found = []
    for window in meta.window.blocks(max(1, BLOCK_VALUES // (meta.bands * meta.columns)), meta.columns):
        inside = rows[(rows >= window.row) & (rows < window.bottom)] - window.row
        if inside.size:
            strip = cube.read(window)[:, inside][:, :, columns]
            found.append(np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float32))
    return np.concatenate(found, axis=1)


def axis_of(meta: CubeMeta) -> tuple[tuple[float, ...], str]:
    """The places of the bands along the axis of a spectrum, and the name of the axis."""
    nm = meta.wavelengths_nm
    if nm is None or not np.isfinite(nm).all():
        return tuple(map(float, range(meta.bands))), "band, counted from 0"
    return tuple(nm.tolist()), "wavelength, nm"


def breaks(places: Sequence[float]) -> list[int]:
    """The bands before which a line is broken: after a gap, or where a second detector's wavelengths begin."""
    steps = np.diff(places)
    if not steps.size:
        return []
    forward = 1 if places[-1] >= places[0] else -1
    apart = np.abs(steps) > BAND_GAP * np.median(np.abs(steps))
    found = np.flatnonzero(apart | (np.sign(steps) == -forward)) + 1
    return [int(band) for band in found]


def round_levels(merged: MergedMap) -> tuple[float, ...]:
    """At most eight round levels (1, 2, 5, 10, 20 ...) within the values of a map, the highest ones."""
    known = merged[np.isfinite(merged) & (merged > 0)]
    if not known.size:
        return ()
    low, high = float(np.percentile(known, 5)), float(known.max())  # a level below nearly all pixels tells nothing
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    levels = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    inside = [level for level in levels if low <= level < high]
    return tuple(inside[-MOST_LEVELS:]) or (float(f"{np.median(known):.3g}"),)


def shares_above(parts: Iterator[MergedMap], levels: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Each level with the share of all valid pixels whose value is above it."""
    above, known = np.zeros(len(levels), np.int64), 0
    for part in parts:
        numbers = part[np.isfinite(part)]
        known += numbers.size
        above += np.array([np.count_nonzero(numbers > level) for level in levels], np.int64)
    return tuple((level, float(count) / max(known, 1)) for level, count in zip(levels, above, strict=True))


def strips(cube: Cube) -> Iterator[MergedMap]:
    """The first band of a cube in strips that fit into memory, NaN where there is no data."""
    meta = cube.meta
    for window in meta.window.blocks(max(1, BLOCK_VALUES // meta.columns), meta.columns):
        strip = cube.read(window, slice(0, 1))[0]
        yield np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float32)
