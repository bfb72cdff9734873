"""How well a system knew its errors on a scene whose truth is known: order, size and coverage.

Of a pixel, error and uncertainty are merged over its valid bands as root mean squares; the measures of a scene are
those of its pixels, the measures of a band those of its values. Coverage and width are means over all values, and
AUSE/random is also given for all values of a scene in one order: which bands of a pixel to trust counts there too.

The order and the size are those of the standard deviation of the samples. A calibrated interval, where there is
one, has AUSE/random and ENCE of its own: its half width at 68.3 % stands in the place of the standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.calibration import Calibration
from pdenet_cli.cube import Cube
from pdenet_cli.error_ratios import ErrorRatios
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
from pdenet_cli.evaluation.trial import Coarse, scratch_cube
from pdenet_cli.evaluation.view import View
from pdenet_cli.spread import Strata, spread, strata
from pdenet_cli.summaries import FILE_UNITS, MEAN, STD, Summary

ONE_SIGMA = 0.6827  # share of normal errors within one standard deviation
INTERVAL_PREFIX = "interval "  # of the measures that only a calibrated model has
OF_VALUES = "AUSE/random of values"  # of all bands in one order
FRACTION = "fraction"  # unit of a number from 0 to 1 that tables show as a percentage
CHUNK_VALUES = 1 << 23  # about how many values, in whole bands, are read at once

There = NDArray[np.bool_]
Factors = tuple[Sequence[float], Sequence[float] | None]  # of each stratum: at the level, and at one sigma


@dataclass(frozen=True)
class Measure:
    """A score of an uncertainty, and how it is printed."""

    name: str
    unit: str
    says: str
    digits: int = 3

    def text(self, value: float) -> str:
        if math.isnan(value):
            return "–"
        if self.unit == FRACTION:
            return f"{100 * value:.1f}"
        return f"{value:.3g}" if self.unit in (FILE_UNITS, "0..1") else f"{value:.{self.digits}f}"

    @property
    def text_unit(self) -> str:
        """The unit of `text`."""
        return "%" if self.unit == FRACTION else self.unit


MEASURES = (
    Measure(
        "AUSE/random",
        "",
        "sparsification error of a ranking by std, relative to a random ranking: 0 is best, 1 no better than "
        "random",
        2,
    ),
    Measure(OF_VALUES, "", "the same, ranking every value of every band separately", 2),
    Measure("AUSE", "0..1", "sparsification error of a ranking by std"),
    Measure("AURG", "0..1", "gain of discarding pixels by std over discarding at random"),
    Measure("Spearman", "", "rank correlation of std and error", 2),
    Measure("ENCE", "", "how wrong the size of the std is, bin by bin: 0 is best", 2),
    Measure("interval coverage", FRACTION, "true values inside the interval; the nominal level is best"),
    Measure("interval width", FILE_UNITS, "mean width of the interval"),
    Measure("interval unit width", "0..1", "the same on the 0..1 scale"),
    Measure("interval AUSE/random", "", "AUSE/random of the interval's half width at 68.3 %", 2),
    Measure(INTERVAL_PREFIX + OF_VALUES, "", "the same, ranking every value of every band separately", 2),
    Measure("interval ENCE", "", "ENCE of that half width", 2),
)
AVERAGED = ("interval coverage", "interval width", "interval unit width")  # means over all values of a scene
NAMES = tuple(measure.name for measure in MEASURES)

ROUGHNESS = Summary("roughness", "roughness of the input", lambda evidence, _: evidence.roughness, "spread")
SPREAD = Summary("spread", "scale of the errors", lambda evidence, _: spread(evidence), "spread", foresees=True)


@dataclass(frozen=True)
class EstimateMaps:
    """What a system says of a scene, as cubes of 0..1: its estimate, and what intervals around it are made of."""

    mean: Cube
    std: Cube
    roughness: Cube  # of the input, on the fine grid
    spread: Cube  # half widths are multiples of it

    @classmethod
    def scratch(cls, folder: Path, low: Coarse, scale: int, mean: Cube | None = None) -> EstimateMaps:
        """Empty cubes in files, to be filled with what a system makes of `low`; `mean` may be there already."""
        cubes = (scratch_cube(folder, low, scale) for _ in range(3 if mean is not None else 4))
        return cls(*cubes) if mean is None else cls(mean, *cubes)

    @property
    def outputs(self) -> list[tuple[Summary, Cube]]:
        """Each cube to be filled, with its summary."""
        return [(MEAN, self.mean), (STD, self.std), (ROUGHNESS, self.roughness), (SPREAD, self.spread)]


@dataclass(frozen=True)
class Trust:
    """How well one system knew its errors on one scene."""

    values: dict[str, float]  # by measure
    bands: dict[str, list[float]]  # the same for each band
    curves: dict[str, list[float]]  # RMSE against k: std, interval, best, random
    bins: dict[str, list[float]]  # uncertainty and error of the bins of the std, of the interval
    reliability: dict[str, list[float]]  # nominal and met coverage; empty without a calibration
    level: float | None = None  # of the interval; None without a calibration


def measures_by_kind(trust: Trust) -> dict[str, tuple[Measure, ...]]:
    """The measures to show under each heading: of the intervals, if there are any, and of the samples."""
    of_intervals = tuple(measure for measure in MEASURES if measure.name.startswith(INTERVAL_PREFIX))
    of_samples = tuple(measure for measure in MEASURES if measure not in of_intervals)
    shown = {} if trust.level is None else {f"{trust.level:.1%} intervals": of_intervals}
    return shown | {"standard deviation of the samples": of_samples}


def mean_trust(trusts: Sequence[Trust]) -> dict[str, float]:
    """The mean of every measure over the scenes that have it; NaN where their units may differ."""
    own_units = {measure.name for measure in MEASURES if measure.unit == FILE_UNITS and len(trusts) > 1}
    return {
        name: math.nan if name in own_units else _mean([trust.values[name] for trust in trusts])
        for name in trusts[0].values
    }


def assess(truth: View, maps: EstimateMaps, calibration: Calibration | None, level: float) -> Trust:
    """How well a system knew its errors on a scene; without a calibration, only the measures of the samples."""
    factors = None if calibration is None else _factors(calibration, level)
    merged = _Merged(truth.part.pixels)
    ratios: ErrorRatios | None = None
    bands: dict[str, list[float]] = {}
    sizes = []
    pools: dict[str, Pool] = {}
    for band, part in _bands(truth, maps):
        own = _ErrorValues.of(part, factors)
        values, binned = _band_measures(own)
        merged.add(part.there, own)
        sizes.append(len(own.squares))
        width = truth.radiometry.spread_from_unit(np.full((1, 1, 1), own.width), (band,)).item()
        for name, value in (values | {"interval width": width}).items():
            bands.setdefault(name, []).append(value)
        pools = {name: pools[name] + own_pool if pools else own_pool for name, own_pool in binned.items()}
        ratios = part.ratios if ratios is None else ratios + part.ratios
    ratios = _refuse_empty(ratios, truth)
    whole = merged.finished()
    means = {name: _mean(bands[name], sizes) for name in AVERAGED}
    means |= {name: pool.sparsification().ause_to_random for name, pool in pools.items()}
    curves, bins = _curves_and_bins(whole)
    reliability: dict[str, list[float]] = {}
    if calibration is not None:
        met = [ratios.coverage(calibration.at(nominal)) for nominal in calibration.levels]
        reliability = {"nominal": list(calibration.levels), "met": met}
    return Trust(_measures(whole) | means, bands, curves, bins, reliability, level if factors else None)


def error_ratios_of(truth: View, maps: EstimateMaps) -> ErrorRatios:
    """The errors of an estimate relative to their spread, for a calibration."""
    total: ErrorRatios | None = None
    for _, part in _bands(truth, maps):
        total = part.ratios if total is None else total + part.ratios
    return _refuse_empty(total, truth)


def _refuse_empty(ratios: ErrorRatios | None, truth: View) -> ErrorRatios:
    if ratios is None or not ratios.pixels.sum():
        raise UsageError(f"{truth.cube.path}: nothing to compare; no pixel has a value.")
    return ratios


def _factors(calibration: Calibration, level: float) -> Factors:
    """The factors at a level, and at one sigma unless a certified calibration ends below it."""
    reaches = calibration.levels[0] <= ONE_SIGMA <= calibration.levels[-1]
    return calibration.at(level), calibration.at(ONE_SIGMA) if reaches else None


# Band by band.


@dataclass(frozen=True)
class _BandMaps:
    """One band of a truth and of an estimate, as maps."""

    there: There  # (rows, columns)
    error: NDArray[np.float32]
    std: NDArray[np.float32]
    roughness: NDArray[np.float32]
    spread: NDArray[np.float32]

    @cached_property
    def stratum(self) -> Strata:
        return strata(self.roughness)

    @cached_property
    def ratios(self) -> ErrorRatios:
        return ErrorRatios.of(self.error, self.spread, self.stratum, self.there)


def _bands(truth: View, maps: EstimateMaps) -> Iterator[tuple[int, _BandMaps]]:
    """Each band: its number in the file, and its maps."""
    bands, scene = len(truth.bands), truth.scene
    some = max(1, CHUNK_VALUES // scene.pixels)
    for start in range(0, bands, some):
        stop = min(start + some, bands)
        target, there = truth.read(scene, range(start, stop))
        mean, *others = (cube.read(scene, slice(start, stop)) for _, cube in maps.outputs)
        for i in range(stop - start):
            yield truth.bands[start + i], _BandMaps(there[i], mean[i] - target[i], *(other[i] for other in others))


@dataclass(frozen=True)
class _ErrorValues:
    """Squared errors and uncertainties of the values of a band, or of pixels merged over the bands."""

    squares: Values  # of the errors
    variances: Values  # of the samples
    half_widths: Values | None = None  # squares of the half widths at one sigma
    coverage: float = math.nan
    width: float = math.nan

    @cached_property
    def errors(self) -> Ranked:
        return Ranked.of(self.squares)

    @cached_property
    def uncertainties(self) -> dict[str, Ranked]:
        """The standard deviation of the samples and, if there is an interval, its half width at one sigma."""
        both = {"std": self.variances, "interval": self.half_widths}
        return {name: Ranked.of(np.sqrt(squares)) for name, squares in both.items() if squares is not None}

    def sparsification(self, name: str) -> Sparsification:
        return Sparsification.of(self.uncertainties[name], self.errors)

    @classmethod
    def of(cls, part: _BandMaps, factors: Factors | None) -> _ErrorValues:
        there = part.there
        error, std = part.error[there].astype(np.float64), part.std[there].astype(np.float64)
        if factors is None:
            return cls(error**2, std**2)
        nominal, sigma = (
            None if own is None else np.asarray(own)[part.stratum[there]] * part.spread[there] for own in factors
        )
        assert nominal is not None
        half_widths = None if sigma is None else np.asarray(sigma, np.float64) ** 2
        return cls(error**2, std**2, half_widths, _mean(np.abs(error) <= nominal), _mean(2 * nominal))


class _Merged:
    """Sums over the bands of each pixel."""

    def __init__(self, pixels: int) -> None:
        self.count = np.zeros(pixels, np.int64)
        self.sums: dict[str, Values] = {}

    def add(self, there: There, band: _ErrorValues) -> None:
        places = np.flatnonzero(there)
        self.count[places] += 1
        for name in ("squares", "variances", "half_widths"):
            if (values := getattr(band, name)) is not None:
                self.sums.setdefault(name, np.zeros(len(self.count)))[places] += values

    def finished(self) -> _ErrorValues:
        some = self.count > 0
        squares = {name: sums[some] / self.count[some] for name, sums in self.sums.items()}
        return _ErrorValues(squares["squares"], squares["variances"], squares.get("half_widths"))


def _measures(whole: _ErrorValues) -> dict[str, float]:
    """Every measure of merged pixels; NaN where it does not apply."""
    std, order = whole.uncertainties["std"], whole.sparsification("std")
    values = _in_order(order) | {"Spearman": spearman(std, whole.errors), "ENCE": ence(std, whole.squares)}
    if "interval" in whole.uncertainties:
        values["interval AUSE/random"] = whole.sparsification("interval").ause_to_random
        values["interval ENCE"] = ence(whole.uncertainties["interval"], whole.squares)
    return dict.fromkeys(NAMES, math.nan) | values


def _band_measures(band: _ErrorValues) -> tuple[dict[str, float], dict[str, Pool]]:
    """Every measure of a band, and its values in bins, by the measure OF_VALUES that they are for.

    Bands are many, and ordering their values takes long.
    """
    said, met = (Pool.bins_by_root(values) for values in (band.variances, band.squares))
    pool = Pool.of(said, band.variances, met, band.squares)
    pools = {OF_VALUES: pool}
    values = dict.fromkeys(NAMES, math.nan)
    values |= {"interval coverage": band.coverage, "interval unit width": band.width}
    if band.half_widths is not None:
        places = Pool.bins_by_root(band.half_widths)
        pools[INTERVAL_PREFIX + OF_VALUES] = Pool.of(places, band.half_widths, met, band.squares)
    if not len(band.squares):
        return values, pools
    order = pool.sparsification()
    values |= _in_order(order) | {OF_VALUES: order.ause_to_random}
    values |= {"Spearman": pool.spearman(said, met), "ENCE": pool.ence()}
    if of_interval := pools.get(INTERVAL_PREFIX + OF_VALUES):
        ratio = of_interval.sparsification().ause_to_random
        values |= {"interval AUSE/random": ratio, INTERVAL_PREFIX + OF_VALUES: ratio}
        values["interval ENCE"] = of_interval.ence()
    return values, pools


def _in_order(order: Sparsification) -> dict[str, float]:
    """The measures of an order by std."""
    return {"AUSE/random": order.ause_to_random, "AUSE": order.ause, "AURG": order.aurg}


def _curves_and_bins(whole: _ErrorValues) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The sparsification curves and the bins of a scene, for charts."""
    curves: dict[str, list[float]] = {}
    bins: dict[str, list[float]] = {}
    for name, uncertainty in whole.uncertainties.items():
        order = whole.sparsification(name)
        curves[name] = order.curve.tolist()
        curves |= {"best": order.oracle.tolist(), "random": [order.random] * STEPS}
        said, met = bins_of(uncertainty, whole.squares)
        bins |= {name: said.tolist(), f"error by {name}": met.tolist()}
    return curves, bins


def _mean(values: Sequence[float] | NDArray[Any], weights: Sequence[float] | None = None) -> float:
    """The mean of the finite values; NaN if there are none."""
    known = np.isfinite(values)
    if not known.any():
        return math.nan
    return float(
        np.average(np.asarray(values)[known], weights=None if weights is None else np.asarray(weights)[known])
    )
