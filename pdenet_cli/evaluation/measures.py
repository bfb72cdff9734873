"""What is measured of an uncertainty: the table of measures with their units, and what one system reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.uncertainty.summaries import FILE_UNITS

INTERVAL_PREFIX = "interval "  # of the measures that only a calibrated model has
OF_VALUES = "AUSE/random of values"  # of all bands in one order
FRACTION = "fraction"  # unit of a number from 0 to 1 that tables show as a percentage


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
    Measure("interval sharpness", "pixels", "FWHM of the point spread that the truth looks like", 2),
    Measure("interval coverage at that sharpness", FRACTION, "coverage where that is told by --finer-psf"),
    Measure("interval unit width at that sharpness", "0..1", "width of such intervals on the 0..1 scale"),
)
SHARPNESS, SHARP_COVERAGE, SHARP_WIDTH = (
    "interval sharpness",
    "interval coverage at that sharpness",
    "interval unit width at that sharpness",
)
AVERAGED = ("interval coverage", "interval width", "interval unit width")  # means over all values of a scene
NAMES = tuple(measure.name for measure in MEASURES)


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
        name: math.nan if name in own_units else mean_of_known([trust.values[name] for trust in trusts])
        for name in trusts[0].values
    }


def mean_of_known(values: Sequence[float] | NDArray[Any], weights: Sequence[float] | None = None) -> float:
    """The mean of the finite values; NaN if there are none."""
    known = np.isfinite(values)
    if not known.any():
        return math.nan
    return float(
        np.average(np.asarray(values)[known], weights=None if weights is None else np.asarray(weights)[known])
    )
