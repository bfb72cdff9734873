"""What a page shows of a sharpened scene: its colours, a map of how far to trust it, and spectra with a band."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, CubeMeta, Window
from pdenet_cli.holes import valid
from pdenet_cli.picture import Picture, quicklook, thinned, thinning

LONGEST = 1024  # pixels on a side of a picture
MOST_VALUES = 5_000_000  # spectra of at most this many numbers, ...
MOST_BYTES = 9_000_000  # ... packed into at most so many bytes, go into a page
BLOCK_VALUES = 1 << 23
STEPS = 4094  # a spectrum is rounded to this many steps of its band's range: finer than any screen
MOST_LEVELS = 8
GAP = 5  # bands this many times further apart than usual have others missing between them

Map = NDArray[np.float32]  # (rows, columns), NaN where there is nothing
Values = NDArray[np.float32]  # (bands, rows, columns), NaN where there is nothing


@dataclass(frozen=True)
class Sight:
    """A scene at a glance, every `step`-th pixel of it; the levels tell of all its pixels."""

    colours: Picture
    risk: Map
    step: int
    levels: tuple[tuple[float, float], ...]  # a level of the map, and the share of the scene above it
    more: bool  # somewhere the map is above `top`

    @classmethod
    def of(cls, mean: Cube, risk: Cube, longest: int = LONGEST) -> Sight:
        """The sight of a cube and of a merged map of it."""
        step = thinning(mean.meta, longest)
        seen = np.asarray(thinned(risk, 0, step), np.float32)
        *levels, (_, beyond) = shares_above(strips(risk), (*round_levels(seen), upper_end(seen)))
        return cls(quicklook(mean, longest), seen, step, tuple(levels), beyond > 0)

    @property
    def top(self) -> float:
        """The value at the upper end of the colours: one pixel in 200 lies above it."""
        return upper_end(self.risk)


@dataclass(frozen=True)
class Spectra:
    """The spectra of every `step`-th pixel, each with a band around it and the value of the map there."""

    mean: Values
    low: Values
    high: Values
    risk: Map
    step: int
    band: str  # what the band around a spectrum is; "" if there is none
    places: tuple[float, ...]  # of the bands along the axis
    across: str  # what that axis is

    @classmethod
    def of(
        cls,
        mean: Cube,
        risk: Cube,
        interval: tuple[Cube, Cube] | None = None,
        std: Cube | None = None,
        level: float | None = None,
        most_values: int = MOST_VALUES,
    ) -> Spectra:
        """Spectra of a cube with its interval at `level`, else with two std of its samples on each side."""
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
        there = np.isfinite(middle) & np.isfinite(low) & np.isfinite(high)
        there &= np.array(meta.good_bands or (True,) * meta.bands)[:, None, None]
        middle, low, high = (np.where(there, values, np.float32(np.nan)) for values in (middle, low, high))
        places, across = axis_of(meta)
        return cls(middle, low, high, spectra_of(risk, step)[0], step, band, places, across)

    def thinner(self) -> Spectra:
        """Every second one of these spectra."""
        names = ("mean", "low", "high", "risk")
        some: dict[str, Any] = {name: getattr(self, name)[..., ::2, ::2] for name in names}
        return replace(self, step=self.step * 2, **some)


@dataclass(frozen=True)
class Packed:
    """Spectra as few bytes: the number of code c in band b is lowest[b] + size[b] · (c - 1); code 0 is nothing.

    Deflated: the map as float32; then the codes of the mean, how far low is below them, and how far high is above,
    each as all its low bytes and then all its high bytes, (bands, rows, columns).
    """

    content: bytes
    lowest: tuple[float, ...]
    size: tuple[float, ...]

    @classmethod
    def of(cls, spectra: Spectra) -> Packed:
        there = np.isfinite(spectra.mean)
        ends = [np.where(there, v, w) for v, w in ((spectra.low, np.inf), (spectra.high, -np.inf))]
        own = [np.where(there, spectra.mean, w) for w in (np.inf, -np.inf)]
        lowest = np.minimum(ends[0], own[0]).min((1, 2)).astype(np.float64)
        highest = np.maximum(ends[1], own[1]).max((1, 2)).astype(np.float64)
        lowest, highest = (np.where(np.isfinite(v), v, 0.0) for v in (lowest, highest))
        size = np.where(highest > lowest, (highest - lowest) / STEPS, 1.0)

        def codes(values: Values) -> NDArray[np.uint16]:
            steps = (np.nan_to_num(values) - lowest[:, None, None]) / size[:, None, None]
            return np.where(there, np.rint(steps) + 1, 0).clip(0, STEPS + 1).astype(np.uint16)

        middle, low, high = codes(spectra.mean), codes(spectra.low), codes(spectra.high)
        planes = (middle, middle - np.minimum(low, middle), np.maximum(high, middle) - middle)
        halves = [half.astype(np.uint8).tobytes() for plane in planes for half in (plane & 255, plane >> 8)]
        content = b"".join([spectra.risk.astype("<f4").tobytes(), *halves])
        return cls(zlib.compress(content), tuple(lowest.tolist()), tuple(size.tolist()))


def packed(spectra: Spectra, most: int = MOST_BYTES) -> tuple[Spectra, Packed]:
    """The spectra in at most `most` bytes; every second one of them, and so on, where they do not fit."""
    parcel = Packed.of(spectra)
    while len(parcel.content) > most and max(spectra.risk.shape) > 1:
        spectra = spectra.thinner()
        parcel = Packed.of(spectra)
    return spectra, parcel


def spectra_of(cube: Cube, step: int) -> Values:
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


def axis_of(meta: CubeMeta) -> tuple[tuple[float, ...], str]:
    """Where the bands stand along an axis, and its name."""
    nm = meta.wavelengths_nm
    if nm is None or not np.isfinite(nm).all():
        return tuple(map(float, range(meta.bands))), "band, counted from 0"
    return tuple(nm.tolist()), "wavelength, nm"


def breaks(places: Sequence[float]) -> list[int]:
    """The bands that no line should lead to: after a gap in the axis, or where a second detector starts over."""
    steps = np.diff(places)
    if not steps.size:
        return []
    forward = 1 if places[-1] >= places[0] else -1
    apart = np.abs(steps) > GAP * np.median(np.abs(steps))
    found = np.flatnonzero(apart | (np.sign(steps) == -forward)) + 1
    return [int(band) for band in found]


def upper_end(risk: Map) -> float:
    """A value that one pixel in 200 lies above; 1 where a map is empty or all 0."""
    known = risk[np.isfinite(risk)]
    return float(np.percentile(known, 99.5)) or float(known.max()) or 1.0 if known.size else 1.0


def round_levels(risk: Map) -> tuple[float, ...]:
    """At most eight of 1, 2, 5, 10, 20 ... that tell the pixels of a map apart, the highest of them."""
    known = risk[np.isfinite(risk) & (risk > 0)]
    if not known.size:
        return ()
    low, high = float(np.percentile(known, 5)), float(known.max())  # what nearly all are above tells nothing
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    levels = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    inside = [level for level in levels if low <= level < high]
    return tuple(inside[-MOST_LEVELS:]) or (float(f"{np.median(known):.3g}"),)


def shares_above(parts: Iterator[Map], levels: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Each level with the share of all valid pixels whose value is above it."""
    above, known = np.zeros(len(levels), np.int64), 0
    for part in parts:
        numbers = part[np.isfinite(part)]
        known += numbers.size
        above += np.array([np.count_nonzero(numbers > level) for level in levels], np.int64)
    return tuple((level, float(count) / max(known, 1)) for level, count in zip(levels, above, strict=True))


def strips(cube: Cube) -> Iterator[Map]:
    """The first band of a cube in strips that fit into memory, NaN where there is nothing."""
    meta = cube.meta
    for window in meta.window.blocks(max(1, BLOCK_VALUES // meta.columns), meta.columns):
        strip = cube.read(window, slice(0, 1))[0]
        yield np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float32)
