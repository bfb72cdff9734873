"""A scan of a scene's values before any work: their range, and which bands hold an image."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import FormatError
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.window import Window

QUICK_VALUES = 1 << 28  # values of a large scene that are looked at where an answer must come soon
BLOCK_VALUES = 1 << 23  # values read at once
LARGEST_BLOCK = 1 << 27  # a file stored in blocks of more values than this is read row by row, though that is slow
PERCENTILE_VALUES = 1 << 20  # values that the percentile is computed from
PERCENTILES = (0.1, 99.9)  # what lies outside is noise, glint or no measurement
FILL_VALUES = (-9999.0, -999.0, -32768.0, -(2.0**31), -3.4028234663852886e38, 9.969209968386869e36)
"""Common nodata values of other products."""
FILL_SHARE = 0.001  # an extreme value more frequent than this may be a fill value; less frequent, it is chance
FILL_GAP = 4  # the maximum of a dtype is a fill value if it is this many times the next largest value


@dataclass(frozen=True)
class Survey:
    """What a scan of a scene found, from its valid values only.

    Minimum, maximum and percentile are those of the good bands that vary: a band that is marked bad or constant
    says nothing about the others.
    """

    minimum: float
    maximum: float
    bottom: float  # the 0.1th percentile
    top: float  # the 99.9th percentile
    means: tuple[float, ...]  # per band, NaN for a band without a valid value
    nodata_share: float
    looked_at: float  # the share of the scene that was read
    constant: tuple[float | None, ...] = ()  # per band: its only value, None if it varies; empty: all bands vary
    holes: bool = False  # some usable band has invalid pixels
    notes: tuple[str, ...] = ()  # what looks wrong
    whole_maximum: float = -math.inf  # largest value of the scene that the cube is a part of, where that was read
    brightest: float | None = None  # 99.9th percentile of gain · value + offset; None: the header has neither

    @classmethod
    def quick(cls, cube: Cube) -> Survey:
        """A survey of a part of a large scene, for a description or a forecast; never for work on its pixels,
        which another radiometry would change.
        """
        return cls.of(cube, QUICK_VALUES)

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")  # of numbers near the ends of float64
    def of(cls, cube: Cube, at_most: int = sys.maxsize) -> Survey:
        """A survey of all of `cube`, or of evenly spread blocks of about `at_most` values."""
        meta = cube.meta
        if meta.dtype.kind not in "uifb":
            raise FormatError(f"{cube.path}: {meta.dtype.name} data are not an image to sharpen.")
        depth, rows, columns = _block_size(cube)
        blocks = list(meta.window.blocks(rows, columns))
        every = max(1, math.ceil(meta.bands * meta.rows * meta.columns / at_most))
        chosen = _evenly_spread(len(blocks), math.ceil(meta.columns / columns), every)
        scan = _Scan(cube, len(chosen) * math.ceil(meta.bands / depth), depth)
        for i in chosen:
            scan.add_block(blocks[i])
        # If the chosen blocks hold no valid value, read on until one does.
        others = set(range(len(blocks))).difference(chosen)
        rest = iter([blocks[i] for i in sorted(others)])
        while not scan.sampled and (block := next(rest, None)) is not None:
            scan.add_block(block)
        if not scan.sampled:
            raise FormatError(f"{cube.path}: no valid value in the cube; every pixel is nodata.")
        for block in rest:
            scan.recheck_constant_bands(block)
        return scan.survey()

    def with_maximum_of(self, cube: Cube) -> Survey:
        """The same with the largest value of the whole scene that `cube` is a part of, all of it read."""
        if cube.whole is None and self.looked_at == 1:
            return self
        return replace(self, whole_maximum=Survey.of(cube.whole or cube).maximum)

    def usable_bands(self, meta: CubeMeta) -> tuple[int, ...]:
        """The bands that are not marked bad and have at least one valid value."""
        good = meta.good_bands or (True,) * meta.bands
        return tuple(b for b in range(meta.bands) if good[b] and not math.isnan(self.means[b]))

    def varying_bands(self, meta: CubeMeta) -> tuple[int, ...]:
        """The usable bands that hold more than one value; all usable ones if none does.

        Into a band that was set to zero, as those of water vapour often are, a network would leak its neighbours.
        """
        usable = self.usable_bands(meta)
        return tuple(b for b in usable if not self.constant or self.constant[b] is None) or usable

    def ends(self, meta: CubeMeta) -> tuple[float, float]:
        """The smallest and the largest value of all usable bands, constant ones included."""
        constants = [self.constant[b] for b in self.usable_bands(meta)] if self.constant else []
        values = [self.minimum, self.maximum, *(value for value in constants if value is not None)]
        return min(values), max(values)

    def bands_for(self, meta: CubeMeta, count: int | None) -> tuple[int, ...]:
        """The bands that a network sees: the usable ones if it takes only `count`, else those that vary."""
        return self.varying_bands(meta) if count is None else self.usable_bands(meta)


def _block_size(cube: Cube) -> tuple[int, int, int]:
    """Bands, rows and columns to read at once: about BLOCK_VALUES values, and whole blocks of the file."""
    bands, columns = cube.meta.bands, cube.meta.columns
    depth, height, width = cube.block
    if depth * height * width > LARGEST_BLOCK:
        depth, height, width = bands, 1, columns
    if bands * height * width > BLOCK_VALUES:
        return min(bands, depth * max(1, BLOCK_VALUES // (depth * height * width))), height, width
    across = width * (BLOCK_VALUES // (bands * height * width))
    if across < columns:
        return bands, height, across
    return bands, height * max(1, BLOCK_VALUES // (bands * height * columns)), columns


def _evenly_spread(blocks: int, across: int, every: int) -> list[int]:
    """Every `every`-th of some blocks, `across` of which lie side by side, from all rows and all columns."""
    step = across
    while math.gcd(step, every) > 1:  # else all would come from a few columns
        step += 1
    chosen = [i for i in range(blocks) if (i // across * step + i % across) % every == every // 2]
    return chosen or [blocks // 2]


class _Scan:
    """Sums, extremes and sampled values of each band, collected block by block."""

    def __init__(self, cube: Cube, parts: int, depth: int) -> None:
        """`parts` of at most `depth` bands each will be read; each gives an equal share of the sampled values."""
        self.cube, self.parts, self.depth, bands = cube, parts, depth, cube.meta.bands
        self.good = np.array(cube.meta.good_bands or (True,) * bands)
        self.sums, self.counts = np.zeros(bands), np.zeros(bands, np.int64)
        self.missing = np.zeros(bands, np.int64)  # invalid values
        self.lows, self.highs = np.full(bands, np.inf), np.full(bands, -np.inf)
        self.read_count = self.invalid_count = 0
        self.sampled: list[tuple[NDArray[np.intp], Pixels]] = []  # (band of each, values)
        self.generator = np.random.default_rng(0)

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which bands have two different values."""
        return self.highs > self.lows

    def add_block(self, block: Window) -> None:
        """Take all bands of a block into account."""
        for first, last in self._runs(0, self.cube.meta.bands):
            self._sample(first, *self._read(block, first, last))

    def _sample(self, first: int, pixels: Pixels, valid_mask: NDArray[np.bool_]) -> None:
        """Count the pixels of the bands from `first` on, and keep some of them for the percentile."""
        values = pixels[valid_mask]
        self.read_count += pixels.size
        self.invalid_count += pixels.size - values.size
        if values.size:
            step = max(1, values.size * self.parts // PERCENTILE_VALUES)
            places = np.arange(0, values.size, step)
            places += self.generator.integers(step, size=places.size)  # else all might come from one column
            places = np.minimum(places, values.size - 1)
            ends = valid_mask.sum((1, 2)).cumsum()  # where each band's values end
            bands = np.searchsorted(ends, places, side="right")
            self.sampled.append((bands + first, values[places]))

    def recheck_constant_bands(self, block: Window) -> None:
        """Read the good bands of another block that have been constant so far."""
        constant = np.flatnonzero(self.good & ~self.varies)
        for run in np.split(constant, np.flatnonzero(np.diff(constant) > 1) + 1):
            if run.size:
                for first, last in self._runs(int(run[0]), int(run[-1]) + 1):
                    self._read(block, first, last)

    def _runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """The bands from `first` to `last`, cut into runs of at most `depth`."""
        return [(band, min(band + self.depth, last)) for band in range(first, last, self.depth)]

    def survey(self) -> Survey:
        """What the blocks read so far have shown."""
        counted_bands = self.counts > 0
        # The brightness of the scene is that of the good bands that vary, if there are any.
        counted = next(b for b in (self.good & self.varies, self.good & counted_bands, counted_bands) if b.any())
        values = np.concatenate([values[counted[bands]] for bands, values in self.sampled]).astype(np.float64)
        bands = np.concatenate([bands[counted[bands]] for bands, _ in self.sampled])
        minimum, maximum = float(self.lows[counted].min()), float(self.highs[counted].max())
        bottom, top = np.percentile(values, PERCENTILES).tolist() if values.size else (minimum, maximum)
        with np.errstate(invalid="ignore"):
            means = self.sums / self.counts
        constant = counted_bands & ~self.varies
        return Survey(
            minimum=minimum,
            maximum=maximum,
            bottom=bottom,
            top=top,
            means=tuple(means.tolist()),
            nodata_share=self.invalid_count / self.read_count,
            looked_at=self.read_count / math.prod(self.cube.meta.shape()),
            constant=tuple(low if same else None for low, same in zip(self.lows.tolist(), constant, strict=True)),
            holes=bool((self.missing[self.good & counted_bands] > 0).any()),
            notes=tuple(self._notes(values, (minimum, maximum), (bottom, top))),
            brightest=self._brightest(values, bands),
        )

    def _brightest(self, values: NDArray[np.float64], bands: NDArray[np.intp]) -> float | None:
        """The 99.9th percentile of values with the gain and the offset of their bands; None without either."""
        meta = self.cube.meta
        if not values.size or not (meta.gains or meta.offsets):
            return None
        gains, offsets = np.array(meta.gains or (1.0,) * meta.bands), np.array(meta.offsets or (0.0,) * meta.bands)
        with np.errstate(all="ignore"):
            return float(np.percentile(values * gains[bands] + offsets[bands], PERCENTILES[1]))

    def _notes(
        self, values: NDArray[np.float64], extremes: tuple[float, float], percentiles: tuple[float, float]
    ) -> Iterator[str]:
        """A note on the smallest and on the largest value if it seems to be an undeclared nodata value.

        `values` are some of a scene's, `extremes` those of all.
        """
        if not values.size:
            return
        bottom, top = percentiles
        for end in {*extremes, float(values.min()), float(values.max())}:
            equal = values == end
            share = float(equal.mean())
            if share > FILL_SHARE:
                often = f"makes up {share:.1%} of the values"
                suspect = self._is_fill_value(end, values[~equal], int(equal.sum()))
            else:
                often = "is among the values"
                far = end < 0 <= bottom or max(bottom - end, end - top) > FILL_GAP * (top - bottom)
                suspect = far and _is_common_fill(end)
            if suspect:
                number = f"{end:.0f}" if abs(end) < 2**53 else repr(end)  # exact, so that `nodata` matches it
                yield f"{number} {often} but is not declared as nodata. If it is nodata, use `nodata` {number}"

    def _is_fill_value(self, end: float, others: NDArray[np.float64], count: int) -> bool:
        """Whether this extreme value, found `count` times, is probably a fill value."""
        if _is_common_fill(end):
            return True
        if not others.size:
            return False
        low, high, dtype = float(others.min()), float(others.max()), self.cube.meta.dtype
        if dtype.kind == "u" and dtype.itemsize in (2, 4) and end == np.iinfo(dtype).max:
            return FILL_GAP * high <= end  # such as 65535 over 14-bit data; 8-bit data are often saturated
        if end == -1 and 0 <= low < high:
            # Noise of integers reaches -1 too, but less often than 0.
            return bool((others % 1 > 0).any()) or count > int((others == 0).sum())
        return False

    def _read(self, block: Window, first: int, last: int) -> tuple[Pixels, NDArray[np.bool_]]:
        """The pixels of neighbouring bands and where they are valid, added to the sums and extremes."""
        pixels = self.cube.read(block, slice(first, last))
        valid_mask = valid(pixels, self.cube.meta.nodata)
        for band, (plane, known) in enumerate(zip(pixels, valid_mask, strict=True), start=first):
            values = plane[known]
            self.missing[band] += plane.size - values.size
            if values.size:
                self.sums[band] += values.sum(dtype=np.float64)
                self.counts[band] += values.size
                self.lows[band] = min(self.lows[band], float(values.min()))
                self.highs[band] = max(self.highs[band], float(values.max()))
        return pixels, valid_mask


def _is_common_fill(value: float) -> bool:
    return any(np.isclose(value, fill, rtol=1e-6) for fill in FILL_VALUES)
