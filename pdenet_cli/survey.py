"""A look over the numbers of a scene before any work: their range, and which bands show something."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, CubeMeta, Pixels, Window
from pdenet_cli.dtypes import can_hold, limits
from pdenet_cli.errors import FormatError, UsageError
from pdenet_cli.holes import valid

SURVEY_VALUES = 1 << 28  # a scene with more numbers than this is surveyed in evenly spread blocks
BLOCK_VALUES = 1 << 23
LARGEST_BLOCK = 1 << 27  # what a file keeps in larger blocks is read by rows, however long that takes
PERCENTILE_VALUES = 1 << 20
FILLS = (-9999.0, -999.0, -32768.0, -(2.0**31), -3.4028234663852886e38, 9.969209968386869e36)  # of many products
FEW = 0.001  # of the numbers: as many pixels of one scene happen to have one value
FAR = 4  # times all else: so far above 14 bits is the largest number of 16, and no light grows so at a step
LEAST_STEPS = 10  # floating-point values must span this many integers to be rounded to integers


@dataclass(frozen=True)
class Survey:
    """What a look over the numbers of a scene found; all of it speaks of valid numbers only.

    The smallest, the largest and the percentile are those of the bands that show something: what stands in a
    band that is marked bad or holds one number throughout says nothing of the others.
    """

    minimum: float
    maximum: float
    top: float  # the 99.9th percentile
    means: tuple[float, ...]  # per band, NaN for a band with no valid number
    nodata_share: float
    looked_at: float  # the share of the scene that was read
    constant: tuple[float | None, ...] = ()  # per band: the one number that it holds throughout; empty: none does
    holes: bool = False  # some usable band lacks some of its numbers
    notes: tuple[str, ...] = ()  # what looks wrong
    brightest: float | None = None  # the 99.9th percentile by the header's gains and offsets; None: it has none

    @classmethod
    def of(cls, cube: Cube, at_most: int = SURVEY_VALUES) -> Survey:
        """A survey of `cube`: all of it, or evenly spread blocks of about `at_most` numbers."""
        meta = cube.meta
        if meta.dtype.kind not in "uifb":
            raise FormatError(f"{cube.path}: {meta.dtype.name} data are not an image to sharpen.")
        depth, rows, columns = _cut(cube)
        blocks = list(meta.window.blocks(rows, columns))
        every = max(1, math.ceil(meta.bands * meta.rows * meta.columns / at_most))
        chosen = _spread(len(blocks), math.ceil(meta.columns / columns), every)
        look = _Look(cube, len(chosen) * math.ceil(meta.bands / depth), depth)
        for i in chosen:
            look.over(blocks[i])
        # What the chosen blocks have not may be in another.
        others = set(range(len(blocks))).difference(chosen)
        rest = iter([blocks[i] for i in sorted(others)])
        while not look.picked and (block := next(rest, None)) is not None:
            look.over(block)
        if not look.picked:
            raise FormatError(f"{cube.path}: no valid value in the cube; every pixel is nodata.")
        for block in rest:
            look.again(block)
        return look.survey()

    def usable_bands(self, meta: CubeMeta) -> tuple[int, ...]:
        """The bands that show something or might: not marked bad, and with at least one valid number."""
        good = meta.good_bands or (True,) * meta.bands
        return tuple(b for b in range(meta.bands) if good[b] and not math.isnan(self.means[b]))

    def varying_bands(self, meta: CubeMeta) -> tuple[int, ...]:
        """The usable bands that hold more than one number; all usable ones if none does.

        In a band that was set to zero, as those of water vapour often are, a network would let its neighbours
        shine through.
        """
        usable = self.usable_bands(meta)
        return tuple(b for b in usable if not self.constant or self.constant[b] is None) or usable

    def ends(self, meta: CubeMeta) -> tuple[float, float]:
        """The smallest and the largest number of all usable bands, those that hold one number too."""
        alone = [self.constant[b] for b in self.usable_bands(meta)] if self.constant else []
        numbers = [self.minimum, self.maximum, *(number for number in alone if number is not None)]
        return min(numbers), max(numbers)

    def bands_for(self, meta: CubeMeta, count: int | None) -> tuple[int, ...]:
        """The bands that a network sees which takes so many, None for any number: then only those that vary."""
        return self.varying_bands(meta) if count is None else self.usable_bands(meta)


def _cut(cube: Cube) -> tuple[int, int, int]:
    """Bands, rows and columns to read at once: about BLOCK_VALUES numbers, and whole blocks of the file."""
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


def _spread(blocks: int, across: int, every: int) -> list[int]:
    """One of `every` so many blocks, which lie `across` in a row, from all rows and from all columns."""
    step = across
    while math.gcd(step, every) > 1:  # else those of a few columns only
        step += 1
    chosen = [i for i in range(blocks) if (i // across * step + i % across) % every == every // 2]
    return chosen or [blocks // 2]


class _Look:
    """What is known of each band of a scene, block by block."""

    def __init__(self, cube: Cube, parts: int, depth: int) -> None:
        """`parts`: of at most `depth` bands, how many will be looked over; each has a share of the percentile."""
        self.cube, self.parts, self.depth, bands = cube, parts, depth, cube.meta.bands
        self.good = np.array(cube.meta.good_bands or (True,) * bands)
        self.sums, self.counts = np.zeros(bands), np.zeros(bands, np.int64)
        self.missing = np.zeros(bands, np.int64)  # numbers
        self.lows, self.highs = np.full(bands, np.inf), np.full(bands, -np.inf)
        self.seen = self.nothing = 0  # numbers looked over, and how many of them were none
        self.picked: list[tuple[NDArray[np.intp], Pixels]] = []  # some numbers, and of which bands

    @property
    def vary(self) -> NDArray[np.bool_]:
        """Which bands have two different numbers."""
        return self.highs > self.lows

    def over(self, block: Window) -> None:
        """Look over all bands of a block."""
        for first, last in self._runs(0, self.cube.meta.bands):
            self._pick(first, *self._read(block, first, last))

    def _pick(self, first: int, pixels: Pixels, there: NDArray[np.bool_]) -> None:
        """Count the pixels of the bands from `first` on, and keep some of them for the percentile."""
        numbers = pixels[there]
        self.seen += pixels.size
        self.nothing += pixels.size - numbers.size
        if numbers.size:
            step = max(1, numbers.size * self.parts // PERCENTILE_VALUES)
            ends = there.sum((1, 2)).cumsum()  # of each band's numbers among all
            bands = np.searchsorted(ends, np.arange(0, numbers.size, step), side="right")
            self.picked.append((bands + first, numbers[::step].copy()))  # a view would keep the whole block

    def again(self, block: Window) -> None:
        """Look at those good bands of another block that have shown no two different numbers yet."""
        doubtful = np.flatnonzero(self.good & ~self.vary)
        for run in np.split(doubtful, np.flatnonzero(np.diff(doubtful) > 1) + 1):
            if run.size:
                for first, last in self._runs(int(run[0]), int(run[-1]) + 1):
                    self._read(block, first, last)

    def _runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """The bands from `first` on, as many at a time as may be read at once."""
        return [(band, min(band + self.depth, last)) for band in range(first, last, self.depth)]

    def survey(self) -> Survey:
        """All that was found."""
        there = self.counts > 0
        # How bright the scene is, good bands that vary say; else what there is.
        telling = next(b for b in (self.good & self.vary, self.good & there, there) if b.any())
        sampled = np.concatenate([numbers[telling[bands]] for bands, numbers in self.picked]).astype(np.float64)
        places = np.concatenate([bands[telling[bands]] for bands, _ in self.picked])
        maximum = float(self.highs[telling].max())
        with np.errstate(invalid="ignore"):
            means = self.sums / self.counts
        same = there & ~self.vary
        return Survey(
            minimum=float(self.lows[telling].min()),
            maximum=maximum,
            top=float(np.percentile(sampled, 99.9)) if sampled.size else maximum,
            means=tuple(means.tolist()),
            nodata_share=self.nothing / self.seen,
            looked_at=self.seen / math.prod(self.cube.meta.shape()),
            constant=tuple(low if alone else None for low, alone in zip(self.lows.tolist(), same, strict=True)),
            holes=bool((self.missing[self.good & there] > 0).any()),
            notes=tuple(self._notes(sampled)),
            brightest=self._brightest(sampled, places),
        )

    def _brightest(self, sampled: NDArray[np.float64], bands: NDArray[np.intp]) -> float | None:
        """What numbers of these bands reach, each by the gain and the offset of its own band."""
        meta = self.cube.meta
        if not sampled.size or not (meta.gains or meta.offsets):
            return None
        gains, offsets = np.array(meta.gains or (1.0,) * meta.bands), np.array(meta.offsets or (0.0,) * meta.bands)
        with np.errstate(all="ignore"):
            return float(np.percentile(sampled * gains[bands] + offsets[bands], 99.9))

    def _notes(self, sampled: NDArray[np.float64]) -> Iterator[str]:
        """Numbers that other products fill holes with, at an end of those here and in many places."""
        if not sampled.size:
            return
        for end in {float(sampled.min()), float(sampled.max())}:
            alike = sampled == end
            share = float(alike.mean())
            if share > FEW and self._fills(end, sampled[~alike], int(alike.sum())):
                number = f"{end:.0f}" if abs(end) < 2**53 else repr(end)  # all of it, so that it is found again
                met = f"{number} makes up {share:.1%} of the values but is not declared as nodata"
                yield f"{met}. If it is nodata, use --nodata {number}"

    def _fills(self, end: float, others: NDArray[np.float64], count: int) -> bool:
        """Whether the smallest or largest number, which is there so often, is likely no light."""
        if any(np.isclose(end, fill, rtol=1e-6) for fill in FILLS):
            return True
        if not others.size:
            return False
        low, high, dtype = float(others.min()), float(others.max()), self.cube.meta.dtype
        if dtype.kind == "u" and dtype.itemsize in (2, 4) and end == np.iinfo(dtype).max:
            return FAR * high <= end  # 8 bits are often saturated
        if end == -1 and 0 <= low < high:
            # The noise of whole numbers reaches -1 too, but less often than 0.
            return bool((others % 1 > 0).any()) or count > int((others == 0).sum())
        return False

    def _read(self, block: Window, first: int, last: int) -> tuple[Pixels, NDArray[np.bool_]]:
        """The pixels of some neighbouring bands and where they are valid, taken into account."""
        pixels = self.cube.read(block, slice(first, last))
        there = valid(pixels, self.cube.meta.nodata)
        for band, (plane, known) in enumerate(zip(pixels, there, strict=True), start=first):
            numbers = plane[known]
            self.missing[band] += plane.size - numbers.size
            if numbers.size:
                self.sums[band] += numbers.sum(dtype=np.float64)
                self.counts[band] += numbers.size
                self.lows[band] = min(self.lows[band], float(numbers.min()))
                self.highs[band] = max(self.highs[band], float(numbers.max()))
        return pixels, there


def refuse_narrow(dtype: np.dtype[Any], meta: CubeMeta, survey: Survey) -> None:
    """Stop where the `dtype` that a user wants cannot hold a scene's values, or its nodata value."""
    whole = dtype.kind in "ui"
    low, high = survey.ends(meta)
    least, most = limits(dtype)
    if low < least or high > most:
        holds = f"holds {least:,} to {most:,}" if whole else f"holds {least:g} to {most:g}"
        raise UsageError(f"--dtype {dtype.name} {holds}, but the scene's values are {low:g} to {high:g}.")
    low, high = survey.minimum, survey.maximum
    if whole and meta.dtype.kind == "f" and high - low < LEAST_STEPS:
        raise UsageError(f"--dtype {dtype.name} would round away the scene's values, {low:g} to {high:g}.")
    uses_nan = meta.nodata is None or math.isnan(meta.nodata)
    if meta.nodata is not None and not uses_nan and not can_hold(dtype, meta.nodata):
        raise UsageError(f"--dtype {dtype.name} cannot hold the scene's nodata value, {meta.nodata:g}.")
    if whole and survey.holes and uses_nan:
        raise UsageError(f"--dtype {dtype.name} cannot hold NaN, which the scene uses for nodata.")
