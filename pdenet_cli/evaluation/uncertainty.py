"""How well a system knew its errors on a scene whose truth is known: order, size and coverage.

Of a pixel, error and uncertainty are merged over its valid bands as root mean squares; the measures of a scene are
those of its pixels, the measures of a band those of its values. Coverage and width are means over all values, and
AUSE/random is also given for all values of a scene in one order.

The order and the size are those of the standard deviation of the samples. A calibrated interval, where there is
one, has AUSE/random and ENCE of its own: its half width at 68.3 % stands in the place of the standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.calibration import Calibration, Errors, Strata, spread, strata
from pdenet_cli.cube import Cube
from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.sparsification import (
    STEPS,
    Pool,
    Ranked,
    Sparsification,
    Values,
    bins_of,
    ence,
    spearman,
)
from pdenet_cli.evaluation.view import View
from pdenet_cli.summaries import MAPS, MEAN, Map, Summary

ONE_SIGMA = 0.6827  # what one standard deviation of a normal error holds
CHUNK_VALUES = 1 << 23  # whole bands, read at once

There = NDArray[np.bool_]
Factors = tuple[Sequence[float], Sequence[float] | None]  # of the strata at a level, and at one sigma


@dataclass(frozen=True)
class Measure:
    """A number that says how good an uncertainty is, and how people read it."""

    name: str
    unit: str
    says: str
    digits: int = 3

    def text(self, value: float) -> str:
        if math.isnan(value):
            return "–"
        if self.unit == "%":
            return f"{100 * value:.1f}"
        return f"{value:.3g}" if self.unit in ("number", "0..1") else f"{value:.{self.digits}f}"


MEASURES = (
    Measure(
        "AUSE/random",
        "",
        "sparsification error of a ranking by std, relative to a random ranking: 0 is best, 1 no better than "
        "random",
        2,
    ),
    Measure("AUSE/random of values", "", "the same, ranking every value of every band separately", 2),
    Measure("AUSE", "0..1", "sparsification error of a ranking by std"),
    Measure("AURG", "0..1", "gain of discarding pixels by std over discarding at random"),
    Measure("Spearman", "", "rank correlation of std and error", 2),
    Measure("ENCE", "", "how wrong the size of the std is, bin by bin: 0 is best", 2),
    Measure("interval coverage", "%", "true values inside the interval; the nominal level is best"),
    Measure("interval width", "number", "mean width of the interval in the file's units"),
    Measure("interval unit width", "0..1", "the same on the 0..1 scale"),
    Measure("interval AUSE/random", "", "AUSE/random of the interval's half width at 68.3 %", 2),
    Measure("interval ENCE", "", "ENCE of that half width", 2),
)
INTERVAL = "interval "  # begins the names of what only a calibrated model has
AVERAGED = tuple(INTERVAL + what for what in ("coverage", "width", "unit width"))  # over all values
NAMES = tuple(measure.name for measure in MEASURES)

STD = MAPS["std"][0]
DETAIL = Summary("detail", "roughness of the input", lambda evidence, _: evidence.detail, "spread")


@dataclass(frozen=True)
class Guess:
    """What a system says of a scene, as cubes of 0..1: its estimate, and what intervals around it are made of."""

    mean: Cube
    std: Cube
    detail: Cube  # roughness of the input, on the fine grid

    @property
    def outputs(self) -> list[tuple[Summary, Cube]]:
        """The cubes to be filled, and with what."""
        return list(zip((MEAN, STD, DETAIL), vars(self).values(), strict=True))


@dataclass(frozen=True)
class Trust:
    """How well one system knew its errors on one scene."""

    values: dict[str, float]  # by measure
    bands: dict[str, list[float]]  # the same for each band
    curves: dict[str, list[float]]  # RMSE against k: std, interval, best, random
    bins: dict[str, list[float]]  # uncertainty and error of the bins of the std, of the interval
    reliability: dict[str, list[float]]  # nominal and met coverage; empty without a calibration
    level: float | None = None  # of the interval; None without a calibration


def kinds(trust: Trust) -> dict[str, tuple[Measure, ...]]:
    """The measures worth showing, by what they speak of: the intervals, where there are some, and the samples."""
    of_intervals = tuple(measure for measure in MEASURES if measure.name.startswith(INTERVAL))
    of_samples = tuple(measure for measure in MEASURES if measure not in of_intervals)
    shown = {} if trust.level is None else {f"{trust.level:.1%} intervals": of_intervals}
    return shown | {"standard deviation of the samples": of_samples}


def mean_trust(trusts: Sequence[Trust]) -> dict[str, float]:
    """The mean over scenes of every measure, of those scenes that have it."""
    return {name: _mean([trust.values[name] for trust in trusts]) for name in trusts[0].values}


def trust(truth: View, guess: Guess, calibration: Calibration | None, level: float) -> Trust:
    """How well a guess knew its errors; only the measures of the samples where there is no calibration."""
    factors = None if calibration is None else _factors(calibration, level)
    merged = _Merged(truth.part.rows * truth.part.columns)
    ratios: Errors | None = None
    bands: dict[str, list[float]] = {}
    sizes = []
    pool = Pool()
    for band, part in _bands(truth, guess):
        own = _Band.of(part, factors)
        pool.add(np.sqrt(own.variances), own.squares)
        merged.add(part.there, own)
        sizes.append(len(own.squares))
        width = truth.radiometry.spread_from_unit(np.full((1, 1, 1), own.width), (band,)).item()
        for name, value in (_measured(own) | {AVERAGED[1]: width}).items():
            bands.setdefault(name, []).append(value)
        ratios = part.errors if ratios is None else ratios + part.errors
    ratios = _something(ratios, truth)
    whole = merged.finished()
    means = {name: _mean(bands[name], sizes) for name in AVERAGED}
    means["AUSE/random of values"] = pool.finished().share
    curves, bins = _drawn(whole)
    reliability: dict[str, list[float]] = {}
    if calibration is not None:
        met = [ratios.coverage(calibration.at(nominal)) for nominal in calibration.levels]
        reliability = {"nominal": list(calibration.levels), "met": met}
    return Trust(_measured(whole) | means, bands, curves, bins, reliability, level if factors else None)


def errors_of(truth: View, guess: Guess) -> Errors:
    """The errors of a guess beside their spread, for a calibration."""
    total: Errors | None = None
    for _, part in _bands(truth, guess):
        total = part.errors if total is None else total + part.errors
    return _something(total, truth)


def _something(errors: Errors | None, truth: View) -> Errors:
    if errors is None or not errors.pixels.sum():
        raise UsageError(f"{truth.cube.path}: nothing to compare; no pixel has a value.")
    return errors


def _factors(calibration: Calibration, level: float) -> Factors:
    """At a level, and at one sigma if the table reaches so far: a certified one may end below."""
    reaches = calibration.levels[0] <= ONE_SIGMA <= calibration.levels[-1]
    return calibration.at(level), calibration.at(ONE_SIGMA) if reaches else None


# Band by band.


@dataclass(frozen=True)
class _Part:
    """One band of truth and guess."""

    there: There  # (rows, columns)
    error: NDArray[np.float32]
    std: NDArray[np.float32]
    detail: NDArray[np.float32]

    @cached_property
    def spread(self) -> Map:
        return spread(self.std, self.detail)

    @cached_property
    def stratum(self) -> Strata:
        return strata(self.detail)

    @cached_property
    def errors(self) -> Errors:
        return Errors.of(self.error, self.spread, self.stratum, self.there)


def _bands(truth: View, guess: Guess) -> Iterator[tuple[int, _Part]]:
    """The file's number of each band, and what is to be compared of it."""
    bands, scene = len(truth.bands), truth.scene
    some = max(1, CHUNK_VALUES // (scene.rows * scene.columns))
    for start in range(0, bands, some):
        stop = min(start + some, bands)
        target, there = truth.read(scene, range(start, stop))
        mean, std, detail = (cube.read(scene, slice(start, stop)) for cube in vars(guess).values())
        for i in range(stop - start):
            yield truth.bands[start + i], _Part(there[i], mean[i] - target[i], std[i], detail[i])


@dataclass(frozen=True)
class _Band:
    """The values of one band, or the pixels of a scene merged over its bands: squares and uncertainties."""

    squares: Values
    variances: Values  # of the samples
    wide: Values | None = None  # squares of the half width at one sigma
    coverage: float = math.nan
    width: float = math.nan

    @cached_property
    def errors(self) -> Ranked:
        return Ranked.of(self.squares)

    @cached_property
    def said(self) -> dict[str, Ranked]:
        """What the samples and, where there is one, the interval say of the size of the errors."""
        both = {"std": self.variances, "interval": self.wide}
        return {name: Ranked.of(np.sqrt(squares)) for name, squares in both.items() if squares is not None}

    def sparsification(self, name: str) -> Sparsification:
        return Sparsification.of(self.said[name], self.errors)

    @classmethod
    def of(cls, part: _Part, factors: Factors | None) -> _Band:
        there = part.there
        error, std = part.error[there].astype(np.float64), part.std[there].astype(np.float64)
        if factors is None:
            return cls(error**2, std**2)
        nominal, sigma = (
            None if own is None else np.asarray(own)[part.stratum[there]] * part.spread[there] for own in factors
        )
        assert nominal is not None
        wide = None if sigma is None else np.asarray(sigma, np.float64) ** 2
        return cls(error**2, std**2, wide, _mean(np.abs(error) <= nominal), _mean(2 * nominal))


class _Merged:
    """Sums over the bands of each pixel."""

    def __init__(self, pixels: int) -> None:
        self.count = np.zeros(pixels, np.int64)
        self.sums: dict[str, Values] = {}

    def add(self, there: There, band: _Band) -> None:
        places = np.flatnonzero(there)
        self.count[places] += 1
        for name in ("squares", "variances", "wide"):
            if (values := getattr(band, name)) is not None:
                self.sums.setdefault(name, np.zeros(len(self.count)))[places] += values

    def finished(self) -> _Band:
        some = self.count > 0
        squares = {name: sums[some] / self.count[some] for name, sums in self.sums.items()}
        return _Band(squares["squares"], squares["variances"], squares.get("wide"))


def _measured(band: _Band) -> dict[str, float]:
    """Every measure of a band, or of merged pixels; NaN for what it has not."""
    values = dict.fromkeys(NAMES, math.nan) | {AVERAGED[0]: band.coverage, AVERAGED[2]: band.width}
    if not len(band.squares):
        return values
    std, order = band.said["std"], band.sparsification("std")
    values |= {
        "AUSE/random": order.share,
        "AUSE/random of values": order.share,
        "AUSE": order.ause,
        "AURG": order.aurg,
    }
    values |= {"Spearman": spearman(std, band.errors), "ENCE": ence(std, band.squares)}
    if "interval" in band.said:
        values["interval AUSE/random"] = band.sparsification("interval").share
        values["interval ENCE"] = ence(band.said["interval"], band.squares)
    return values


def _drawn(whole: _Band) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The curves and the bins of a scene."""
    curves: dict[str, list[float]] = {}
    bins: dict[str, list[float]] = {}
    for name, uncertainty in whole.said.items():
        order = whole.sparsification(name)
        curves[name] = order.curve.tolist()
        curves |= {"best": order.oracle.tolist(), "random": [order.random] * STEPS}
        said, met = bins_of(uncertainty, whole.squares)
        bins |= {name: said.tolist(), f"error by {name}": met.tolist()}
    return curves, bins


def _mean(values: Sequence[float] | NDArray[Any], weights: Sequence[float] | None = None) -> float:
    """The mean of what is known; NaN if nothing is."""
    known = np.isfinite(values)
    if not known.any():
        return math.nan
    return float(
        np.average(np.asarray(values)[known], weights=None if weights is None else np.asarray(weights)[known])
    )
