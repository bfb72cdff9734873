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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.window import Window

Map = NDArray[np.float32]  # (bands, rows, columns)
Sums = NDArray[np.float64]  # (any, rows, columns)

FILE_UNITS = "the file's units"  # as reports, tables and pages call the unit of numbers
DARK = 1 / 255  # cv divides by at least this
CACHED = ("mean", "std", "roughness")  # maps that Evidence computes once


class LazySamples(Protocol):
    """Samples that are computed one by one when they are asked for, 0..1."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Map]: ...
    def __getitem__(self, some: slice) -> LazySamples: ...
    def mean(self) -> Map:
        """Their mean."""

    def std(self) -> Map:
        """Their standard deviation around it, with N - 1; 0 for a single sample."""

    def cropped(self, rows: slice, columns: slice) -> LazySamples:
        """The same samples of a part of the pixels."""


Samples = NDArray[np.float32] | LazySamples  # an array is (samples, bands, rows, columns), 0..1


@dataclass(frozen=True)
class Evidence:
    """All that is known about one tile, 0..1: what its maps are computed from."""

    samples: Samples  # (samples, bands, rows, columns)
    low: Map  # the input of the tile, (bands, rows/scale, columns/scale)
    low_roughness: Map  # `roughness` of the input, with a margin where the scene goes on
    scale: int
    unexplained: Map | None = None  # the input minus the degraded mean, shaped as `low`
    gain: NDArray[np.float64] | float = 1.0  # 0..1 per file number, maybe negative; one or (bands, 1, 1)
    measured: NDArray[np.float64] | float = 1.0  # value per file number, as the header says; shaped as `gain`
    inside: Window | None = None  # where the tile is in `low_roughness`; None: it has no margin
    expected: Map | None = None  # root mean square error to expect, if the model has learned to tell it

    @cached_property
    def mean(self) -> Map:
        """The mean of the samples, (bands, rows, columns)."""
        return mean(self.samples)

    @cached_property
    def std(self) -> Map:
        """Their standard deviation, (bands, rows, columns)."""
        return std(self.samples, self.mean)

    @cached_property
    def roughness(self) -> Map:
        """The roughness of the input on the fine grid, (bands, rows, columns)."""
        fine = enlarged(self.low_roughness, self.scale)
        return fine if self.inside is None else fine[:, *self.inside.scaled(self.scale).slices]

    def cropped(self, window: Window, unexplained: Map | None = None, expected: Map | None = None) -> Evidence:
        """The same about a part of the tile, a window of its input pixels; further maps are of all of the tile."""
        unexplained = self.unexplained if unexplained is None else unexplained
        expected = self.expected if expected is None else expected
        own, fine = window.slices, window.scaled(self.scale).slices
        inside = window if self.inside is None else window.moved(self.inside.row, self.inside.column)
        part = replace(
            self,
            samples=cropped(self.samples, *fine),
            low=self.low[:, *own],
            inside=inside,
            unexplained=None if unexplained is None else unexplained[:, *own],
            expected=None if expected is None else expected[:, *fine],
        )
        # What was computed of the whole is not computed again.
        vars(part).update({name: vars(self)[name][:, *fine] for name in CACHED if name in vars(self)})
        return part


class IntervalModel(Protocol):
    """What maps need of a calibration: how far the truth is from the mean of the samples."""

    def half_width(self, evidence: Evidence, level: float) -> Map:
        """h of the interval mean ± h that holds the share `level` of the true values, 0..1."""

    def beyond(self, evidence: Evidence, tolerance: NDArray[np.float64] | float) -> Map:
        """The probability that the truth is further than `tolerance` (0..1) from the mean."""


def mean(samples: Samples) -> Map:
    """The mean of the samples."""
    return np.asarray(samples.mean(0, dtype=np.float32)) if isinstance(samples, np.ndarray) else samples.mean()


def cropped(samples: Samples, rows: slice, columns: slice) -> Samples:
    """The samples of a part of the pixels."""
    return samples[:, :, rows, columns] if isinstance(samples, np.ndarray) else samples.cropped(rows, columns)


def std(samples: Samples, middle: Map) -> Map:
    """The standard deviation of the samples around their mean, with N - 1; 0 for a single sample."""
    if not isinstance(samples, np.ndarray):
        return samples.std()
    squares = np.zeros_like(middle)
    for sample in samples:  # one by one: all differences at once take as much memory as the samples
        squares += (sample - middle) ** 2
    return np.sqrt(squares / max(len(samples) - 1, 1))


def roughness(low: Map) -> Map:
    """Root mean square, over 3x3 pixels, of the difference between a pixel and the mean of the 3x3 around it.

    Not the standard deviation, as an even slope is no detail: a network gets it right. Beyond the edge of the
    input, edge pixels are repeated.
    """
    difference = low - _mean_of_nine(low)
    return np.sqrt(_mean_of_nine(difference * difference))


def _mean_of_nine(image: Map) -> Map:
    rows, columns = image.shape[1:]
    framed = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    three = framed[:, :rows] + framed[:, 1 : rows + 1] + framed[:, 2:]
    return np.asarray((three[..., :columns] + three[..., 1 : columns + 1] + three[..., 2:]) / 9, np.float32)


class Merging(Protocol):
    """How the bands of a pixel become one value: sums over runs of bands, then a final formula."""

    def addends(self, evidence: Evidence, values: Map, there: NDArray[np.bool_]) -> Sums:
        """The sums of some bands, (sums, rows, columns); `values` is their map in the file's numbers."""

    def finish(self, sums: Sums, bands: NDArray[np.int64]) -> Map:
        """The merged map, (rows, columns), from all sums and the number of valid bands; NaN where that is 0."""


@dataclass(frozen=True)
class PowerMean:
    """1: the mean of the bands' values, 2: their root mean square."""

    power: int = 1

    def addends(self, evidence: Evidence, values: Map, there: NDArray[np.bool_]) -> Sums:
        powers: Sums = np.where(there, values, 0).astype(np.float64) ** self.power
        return np.asarray(powers.sum(0, keepdims=True))

    def finish(self, sums: Sums, bands: NDArray[np.int64]) -> Map:
        average = np.divide(sums[0], bands, out=np.full(bands.shape, np.nan), where=bands > 0)
        return np.asarray(average ** (1 / self.power), np.float32)


class MeanAngle:
    """The mean angle between the samples' spectra and that of their mean, in degrees."""

    def addends(self, evidence: Evidence, values: Map, there: NDArray[np.bool_]) -> Sums:
        middle = np.where(there, evidence.mean, 0).astype(np.float64)
        products = [(middle * middle).sum(0)]
        for sample in evidence.samples:
            spectrum = np.where(there, sample, 0).astype(np.float64)
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


def repeated(low: NDArray[Any], scale: int) -> NDArray[Any]:
    """A map on the fine grid: every pixel repeated `scale` times along rows and columns."""
    return low.repeat(scale, -2).repeat(scale, -1)


def enlarged(low: Map, scale: int) -> Map:
    """A map on the fine grid, by linear interpolation between pixel centres."""
    for axis in (-2, -1):
        places = ((np.arange(low.shape[axis] * scale) + 0.5) / scale - 0.5).clip(0, low.shape[axis] - 1)
        before = np.floor(places).astype(np.intp)
        after = np.minimum(before + 1, low.shape[axis] - 1)
        share = (places - before).astype(np.float32).reshape((-1, 1) if axis == -2 else (-1,))
        low = low.take(before, axis) * (1 - share) + low.take(after, axis) * share
    return low


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
