"""All bands of the pixels of a grid in few bytes: as they are where that fits, else as mixtures of basis spectra.

From the codes c of a pixel (0: no data), its value in band b is middle[b] + the sum over k of
(lowest[k] + size[k] · (c - 1)) · basis[k, b]; without a basis, plane k of the codes is band k. How far that is
from the file is measured on every value and stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.pages.codes import MOST_CODE, Codes, packed
from pdenet_cli.pages.planes import coded
from pdenet_cli.pages.shown import BandValues, Grid, Shown
from pdenet_cli.scene.window import Window

Matrix = NDArray[np.float64]
SAMPLES = 12_000  # spectra that a basis is made from
PATCH = 64  # pixels a side of the parts from which the size of the whole is foreseen
FINE_STEP = 1 / 600  # of a code, in ranges of a band
COARSE_STEP = 1 / 100  # of maps and intervals, which are not known better
USUAL_BASIS = {FINE_STEP: 64, COARSE_STEP: 24}  # spectra of a basis, with which a scene is rather thinned
FAINT = 0.05  # a band whose range is less than this share of the largest counts as if it had that
USUAL_SHARE = 0.999  # of the values, for the usual difference


@dataclass(frozen=True)
class Coding:
    """How values become codes: the bands in which there is anything, and what the codes are of."""

    usable: NDArray[np.bool_]
    lowest: Matrix
    size: Matrix
    middle: Matrix | None = None  # (usable bands,); None: codes are of the bands themselves
    basis: Matrix | None = None  # (components, usable bands), of unit length in ranges of the bands
    scale: Matrix | None = None  # (usable bands,), their ranges

    def codes(self, values: BandValues) -> Codes:
        known = values[self.usable]
        if self.basis is None or self.middle is None or self.scale is None:
            return coded(known, self.lowest, self.size, MOST_CODE)
        flat = (known.reshape(len(known), -1) - self.middle[:, None]) / self.scale[:, None]
        parts = (self.basis @ flat).reshape(-1, *values.shape[1:]).astype(np.float32)
        return coded(parts, self.lowest, self.size, MOST_CODE)

    def values(self, codes: Codes) -> NDArray[np.float64]:
        """The usable bands from codes, NaN for no data."""
        parts = self.lowest[:, None, None] + self.size[:, None, None] * (codes.astype(np.float64) - 1)
        parts = np.where(codes > 0, parts, np.nan)
        if self.basis is None or self.middle is None or self.scale is None:
            return np.asarray(parts)
        mixed = np.tensordot((self.basis * self.scale).T.astype(np.float32), parts, 1)
        return np.asarray(self.middle[:, None, None] + mixed)

    def first(self, count: int) -> Self:
        """The same with the first `count` components only."""
        basis = None if self.basis is None else self.basis[:count]
        return replace(self, lowest=self.lowest[:count], size=self.size[:count], basis=basis)

    @classmethod
    def direct(cls, shown: Shown, usable: NDArray[np.bool_]) -> Self:
        """Codes of the bands themselves: whole numbers exactly where they have no more than 65,534 values."""
        least, most = _ends(shown)
        least, most = least[usable], most[usable]
        steps = np.abs(np.asarray(shown.gain, np.float64))
        size = np.broadcast_to(steps, usable.shape)[usable] if shown.cube.meta.dtype.kind in "ui" else None
        spread = np.where(most > least, most - least, 1.0) / (MOST_CODE - 1)
        return cls(usable, least, spread if size is None else np.maximum(size, spread))

    @classmethod
    def mixed(cls, shown: Shown, usable: NDArray[np.bool_], step_size: float) -> Self:
        """Codes, in steps of `step_size`, of the few spectra of which those of the scene are mixtures."""
        window = shown.cube.meta.window
        step = max(1, math.ceil(math.sqrt(window.rows * window.columns / SAMPLES)))
        sample = shown.read(shown.grid(step))[usable].reshape(int(usable.sum()), -1).astype(np.float64)
        sample = sample[:, np.isfinite(sample).all(0)]
        if sample.shape[1] < 2:
            sample = np.zeros((len(sample), 2))
        low, high = np.percentile(sample, (0.5, 99.5), axis=1)
        scale = np.maximum(high - low, FAINT * float((high - low).max()))
        scale[scale == 0] = 1.0
        middle = sample.mean(1)
        flat = (sample - middle[:, None]) / scale[:, None]
        _, vectors = np.linalg.eigh(flat @ flat.T)
        basis = vectors[:, ::-1].T
        basis = basis[: _enough(flat, basis, step_size)]
        parts = basis @ flat
        reach = 4 * np.abs(parts).max(1) + step_size  # pixels beyond the sample may be rarer
        return cls(usable, -reach, np.maximum(step_size, 2 * reach / (MOST_CODE - 2)), middle, basis, scale)


def _enough(flat: Matrix, basis: Matrix, step_size: float) -> int:
    """How many of the basis spectra leave differences below a step of the codes."""
    rest = flat[:, :: max(1, flat.shape[1] // 1000)].copy()
    for count, spectrum in enumerate(basis, start=1):
        rest -= np.outer(spectrum, spectrum @ rest)
        if np.count_nonzero(np.abs(rest) > step_size) <= (1 - USUAL_SHARE) * rest.size:
            return count
    return len(basis)


def _ends(shown: Shown) -> tuple[Matrix, Matrix]:
    """The least and the greatest value of each band."""
    least, most = np.full(shown.bands, np.inf), np.full(shown.bands, -np.inf)
    for strip in shown.strips(shown.grid(1)):
        known = np.isfinite(strip)
        least = np.minimum(least, np.where(known, strip, np.inf).min((1, 2)))
        most = np.maximum(most, np.where(known, strip, -np.inf).max((1, 2)))
    return least, most


@dataclass(frozen=True)
class Spectra:
    """Spectra of the pixels of a grid."""

    content: bytes
    grid: Grid
    coding: Coding
    usual: float  # that far at most from the file are 99.9 % of the values
    worst: float  # and all of them
    ends: tuple[float, float]  # the least and the greatest value

    @property
    def facts(self) -> dict[str, Any]:
        """What the script must know to read the content."""
        coding, grid = self.coding, self.grid
        basis = None
        if coding.basis is not None and coding.scale is not None and coding.middle is not None:
            basis = [_short(row) for row in coding.basis * coding.scale]
        return dict(
            rows=grid.rows,
            columns=grid.columns,
            step=grid.step,
            first=grid.first,
            bands=[int(band) for band in np.flatnonzero(coding.usable)],
            lowest=coding.lowest.tolist(),
            size=coding.size.tolist(),
            middle=None if coding.middle is None else _short(coding.middle),
            basis=basis,
            usual=self.usual,
            worst=self.worst,
        )

    @classmethod
    def fitted(
        cls, shown: Shown, good: NDArray[np.bool_], most: int, step: int = 0, step_size: float = FINE_STEP
    ) -> Spectra:
        """The spectra in at most `most` bytes: as they are, else mixed, else of fewer pixels.

        With a `step` they are on that grid or, where they do not fit, on a coarser one.
        """
        usable = good & _has_data(shown)
        if not usable.any():
            usable[:1] = True
        grid = shown.grid(step or 1)
        pixels = int(usable.sum()) * grid.size
        if pixels < 8 * most:
            coding = Coding.direct(shown, usable)
            if _foreseen(shown, coding, grid) < most:
                spectra = cls._of(shown, coding, grid)
                if len(spectra.content) <= most:
                    return spectra
        coding, size = _affordable(
            shown, Coding.mixed(shown, usable, step_size), grid, most, USUAL_BASIS[step_size]
        )
        if not step:
            step = max(1, math.ceil(math.sqrt(size / most)))
        while True:
            spectra = cls._of(shown, coding, shown.grid(step))
            if len(spectra.content) <= most or spectra.grid.size <= 64:
                return spectra
            step = max(step + 1, math.ceil(step * math.sqrt(len(spectra.content) / max(most, 1))))

    @classmethod
    def _of(cls, shown: Shown, coding: Coding, grid: Grid) -> Spectra:
        parts, usual, worst = [], [0.0], 0.0
        least, most = math.inf, -math.inf
        for strip in shown.strips(grid):
            known = strip[coding.usable]
            known = known[np.isfinite(known)]
            if known.size:
                least, most = min(least, float(known.min())), max(most, float(known.max()))
            codes = coding.codes(strip)
            away = np.abs(coding.values(codes) - strip[coding.usable])
            away = away[np.isfinite(away)]
            if away.size:
                usual.append(float(np.quantile(away, USUAL_SHARE)))
                worst = max(worst, float(away.max()))
            parts.append(codes)
        return cls(packed(np.concatenate(parts, axis=1)), grid, coding, max(usual), worst, (least, most))


def _affordable(shown: Shown, coding: Coding, grid: Grid, most: int, least: int) -> tuple[Coding, float]:
    """The coding with as many components as `most` bytes hold, but with `least` anyhow; its bytes."""
    count = len(coding.lowest)
    while True:
        size = _foreseen(shown, coding.first(count), grid)
        if size <= 0.95 * most or count <= least:
            return coding.first(count), size
        count = max(least, int(0.9 * count * min(1.0, max(0.5, most / size))))


def _has_data(shown: Shown) -> NDArray[np.bool_]:
    window = shown.cube.meta.window
    step = max(1, math.ceil(math.sqrt(window.rows * window.columns / SAMPLES)))
    return np.asarray(np.isfinite(shown.read(shown.grid(step))).any((1, 2)))


def _foreseen(shown: Shown, coding: Coding, grid: Grid) -> float:
    """About how many bytes the pixels of a grid would take, by some parts of the scene."""
    size = [len(packed(coding.codes(shown.part(part)))) / part.pixels for part in _patches(shown.cube.meta.window)]
    return grid.size * sum(size) / len(size)


def _patches(scene: Window) -> Iterator[Window]:
    """Parts of a scene in its middle and towards its corners."""
    rows, columns = min(PATCH, scene.rows), min(PATCH, scene.columns)
    for down, across in ((0.5, 0.5), (0.15, 0.25), (0.85, 0.7)):
        row, column = int(down * (scene.rows - rows)), int(across * (scene.columns - columns))
        yield Window(scene.row + row, scene.column + column, rows, columns)


def _short(values: Matrix) -> list[float]:
    """Numbers with as many digits as a float32 has."""
    return [float(f"{value:.7g}") for value in values]
