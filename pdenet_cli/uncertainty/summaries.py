"""How the Monte-Carlo samples of a tile become maps.

A summary of the samples y(1)..y(N) (0..1, mean m) gives one value per pixel and band; it may be merged over the
valid bands of a pixel into one value. "Numbers" are the file's.

| map         | formula                                                 | unit    | range    | merged           |
|-------------|---------------------------------------------------------|---------|----------|------------------|
| mean        | m                                                       | numbers | input's  | not merged       |
| std         | s = sqrt(sum (y(n) - m)² / (N - 1)), 0 for N = 1         | numbers | 0 and up | root mean square |
| share       | share of n with q(y(n)) != q(m)                         | percent | 0..100   | mean             |
| interval    | m - h and m + h, two maps: interval_low, interval_high  | numbers | input's  | mean of the ends |
| cv          | s / max(abs(m), 1/255)                                  | percent | 0 and up | mean             |
| angle       | mean over n of the angle between the spectra y(n) and m | degrees | 0..180   | only merged      |
| consistency | abs(x - D(m)): x the input, D the degradation           | numbers | 0 and up | root mean square |
| error       | e, the root mean square error to expect                 | numbers | 0 and up | root mean square |
| risk        | P(abs(truth - m) > tolerance)                           | percent | 0..100   | mean             |

share: q(y) = round((levels - 1)·y), y clipped to 0..1; with 256 levels the 8-bit value of the paper. It depends on
how near the mean is to a rounding edge and saturates: a std of 2/255 gives 80 % already. std does neither.
interval, risk: h and P come from the model's calibration. P is at least 1 - the highest level of the calibration
(0.5 % with the shipped models). The tolerance is a difference of values as the header scales them, by gains or a
reflectance scale factor; of numbers where it does not.
error: learned where the truth was known (`pdenet calibrate --learn-errors`, see error_net.py). It is about what
samples disagree about, and about detail that the input never showed.
cv: means darker than one 8-bit step count as one step.
consistency: D is the degradation that the model was trained to undo. It needs no samples, and all fine pixels
within a pixel of the input have one value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.uncertainty.evidence import Evidence, Map, repeated

Sums = NDArray[np.float64]  # (any, rows, columns)

FILE_UNITS = "the file's units"  # as reports, tables and pages call the unit of numbers
SCALED_UNITS = "values as the header scales them"  # of merged maps where bands differ in gain or offset
DARK = 1 / 255  # cv divides by at least this


class IntervalModel(Protocol):
    """What maps need of a calibration: how far the truth is from the mean of the samples."""

    def half_width(self, evidence: Evidence, level: float) -> Map:
        """h of the interval mean ± h that holds the share `level` of the true values, 0..1."""

    def beyond(self, evidence: Evidence, tolerance: NDArray[np.float64] | float) -> Map:
        """The probability that the truth is further than `tolerance` (0..1) from the mean."""


class Merging(Protocol):
    """How the bands of a pixel become one value: sums over runs of bands, then a final formula."""

    def addends(self, evidence: Evidence, values: Map, valid_mask: NDArray[np.bool_]) -> Sums:
        """The sums of some bands, (sums, rows, columns); `values` is their map in the file's numbers."""

    def finish(self, sums: Sums, bands: NDArray[np.int64]) -> Map:
        """The merged map, (rows, columns), from all sums and the number of valid bands; NaN where that is 0."""


@dataclass(frozen=True)
class PowerMean:
    """1: the mean of the bands' values, 2: their root mean square."""

    power: int = 1

    def addends(self, evidence: Evidence, values: Map, valid_mask: NDArray[np.bool_]) -> Sums:
        powers: Sums = np.where(valid_mask, values, 0).astype(np.float64) ** self.power
        return np.asarray(powers.sum(0, keepdims=True))

    def finish(self, sums: Sums, bands: NDArray[np.int64]) -> Map:
        average = np.divide(sums[0], bands, out=np.full(bands.shape, np.nan), where=bands > 0)
        return np.asarray(average ** (1 / self.power), np.float32)


class MeanAngle:
    """The mean angle between the samples' spectra and that of their mean, in degrees."""

    def addends(self, evidence: Evidence, values: Map, valid_mask: NDArray[np.bool_]) -> Sums:
        middle = np.where(valid_mask, evidence.mean, 0).astype(np.float64)
        products = [(middle * middle).sum(0)]
        for sample in evidence.samples:
            spectrum = np.where(valid_mask, sample, 0).astype(np.float64)
            products += [(spectrum * middle).sum(0), (spectrum * spectrum).sum(0)]
        return np.stack(products)

    def finish(self, sums: Sums, bands: NDArray[np.int64]) -> Map:
        middle, dots, squares = sums[0], sums[1::2], sums[2::2]
        lengths = np.sqrt(squares * middle)
        # A black spectrum has no direction: its angle counts as 0, not 90 degrees.
        cosines = np.divide(dots, lengths, out=np.ones_like(dots), where=lengths > 0)
        angles = np.degrees(np.arccos(cosines.clip(-1, 1))).mean(0)
        return np.where(bands > 0, angles, np.nan).astype(np.float32)


@dataclass(frozen=True)
class Question:
    """The choices of a user for the maps that have any."""

    grey_levels: int = 256  # for `share`
    level: float | None = None  # probability that an interval holds the truth; None: the model's own level
    tolerance: float | None = None  # for `risk`, as the header scales values
    calibration: IntervalModel | None = None  # that of the model
    scaled: str = ""  # said after the tolerance where the header scales values


USUAL = Question()


@dataclass(frozen=True)
class Summary:
    """A kind of map: its formula, its unit, and how the bands of a pixel become one value."""

    name: str
    says: str  # may contain fields of a Question in braces
    compute: Callable[[Evidence, Question], Map] | None  # None: it exists only merged
    unit: Literal["value", "spread", "percent", "degrees"]  # value and spread: the file's numbers
    needs: Literal["nothing", "samples", "errors", "calibration"] = "samples"
    merging: Merging = PowerMean()
    degrades: bool = False  # needs Evidence.unexplained
    foresees: bool = False  # uses Evidence.expected, if the model has learned to tell it

    def describe(self, question: Question) -> str:
        """The description with the numbers of the question filled in."""
        return self.says.format_map(vars(question))


def share(evidence: Evidence, question: Question = USUAL) -> Map:
    """The percentage of samples whose grey level differs from that of the mean."""
    middle = grey(evidence.mean, question.grey_levels)
    differ = np.zeros_like(middle)
    for sample in evidence.samples:
        differ += grey(sample, question.grey_levels) != middle
    return np.asarray(100 * differ / len(evidence.samples), np.float32)


def grey(unit: Map, levels: int = USUAL.grey_levels) -> Map:
    """0..1 as the nearest of `levels` grey levels, counted from 0."""
    return np.asarray(np.rint((levels - 1) * unit.clip(0, 1)), np.float32)


def cv(evidence: Evidence, question: Question = USUAL) -> Map:
    """The standard deviation as a percentage of the mean, which counts as at least one 8-bit step."""
    return np.asarray(100 * evidence.std / np.maximum(np.abs(evidence.mean), DARK), np.float32)


def consistency(evidence: Evidence, question: Question = USUAL) -> Map:
    """The difference between the input and the degraded mean."""
    assert evidence.unexplained is not None
    return repeated(np.abs(evidence.unexplained), evidence.scale)


def error(evidence: Evidence, question: Question = USUAL) -> Map:
    """The root mean square error to expect."""
    assert evidence.expected is not None
    return evidence.expected


def interval_low(evidence: Evidence, question: Question) -> Map:
    """The lower end of the interval, in the file's order."""
    return evidence.mean - _half_width(evidence, question)


def interval_high(evidence: Evidence, question: Question) -> Map:
    """The upper end of the interval, in the file's order."""
    return evidence.mean + _half_width(evidence, question)


def _half_width(evidence: Evidence, question: Question) -> Map:
    assert question.calibration is not None
    assert question.level is not None
    # Where the file's numbers fall as light grows, their lower end is the upper one in 0..1.
    sign = np.sign(evidence.gain).astype(np.float32)
    return np.asarray(sign * question.calibration.half_width(evidence, question.level))


def risk(evidence: Evidence, question: Question) -> Map:
    """The probability, in percent, that the truth is further than the tolerance from the mean."""
    assert question.calibration is not None
    assert question.tolerance is not None
    unit = question.tolerance / evidence.measured * evidence.gain
    return np.asarray(100 * question.calibration.beyond(evidence, unit), np.float32)


RMS, ANGLE = PowerMean(2), MeanAngle()
MEAN = Summary("mean", "the sharpened cube", lambda evidence, _: evidence.mean, unit="value", needs="nothing")
STD = Summary(
    "std", "standard deviation of the samples", lambda evidence, _: evidence.std, unit="spread", merging=RMS
)
SHARE = Summary(
    "share", "samples whose grey level (of {grey_levels}) differs from the mean's", share, unit="percent"
)
INTERVAL = (
    Summary(
        "interval_low",
        "lower end of the interval at level {level:g}",
        interval_low,
        unit="value",
        needs="calibration",
        foresees=True,
    ),
    Summary(
        "interval_high",
        "upper end of the interval at level {level:g}",
        interval_high,
        unit="value",
        needs="calibration",
        foresees=True,
    ),
)
CV = Summary("cv", "standard deviation relative to the mean", cv, unit="percent")
MEAN_ANGLE = Summary("angle", "mean angle between the samples and their mean", None, unit="degrees", merging=ANGLE)
CONSISTENCY = Summary(
    "consistency",
    "difference between the input and the degraded result",
    consistency,
    unit="spread",
    needs="nothing",
    merging=RMS,
    degrades=True,
)
ERROR = Summary(
    "error",
    "error to expect (root mean square)",
    error,
    unit="spread",
    needs="errors",
    merging=RMS,
    foresees=True,
)
RISK = Summary(
    "risk",
    "probability of an error beyond {tolerance:g}{scaled}",
    risk,
    unit="percent",
    needs="calibration",
    foresees=True,
)
MAPS: dict[str, tuple[Summary, ...]] = {
    "error": (ERROR,),
    "std": (STD,),
    "share": (SHARE,),
    "interval": INTERVAL,
    "cv": (CV,),
    "angle": (MEAN_ANGLE,),
    "consistency": (CONSISTENCY,),
    "risk": (RISK,),
}
"""The maps of `pdenet uncertainty` by the name a user gives, each as the layers that it consists of."""
