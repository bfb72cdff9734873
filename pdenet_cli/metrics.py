"""How close an estimate is to the truth, both 0..1: sums of a window, added up over the scene, then finished.

A score is therefore the same however the scene is cut. A protocol fixes what the field leaves open:

|        | pdenet (default)                            | mcnet                         | sspsr                  |
|--------|---------------------------------------------|-------------------------------|------------------------|
| values | both cubes clipped to 0..1                  | the same                      | taken as they are      |
| PSNR   | shown first: MPSNR, the mean over the bands | PSNR, one MSE over the cube   | MPSNR                  |
| MSSIM  | 7x7 uniform window, sample covariance (n-1) | 11x11 Gaussian, σ 1.5, biased | as pdenet              |
| SAM    | degrees; a black spectrum counts as 0       | the same                      | black spectra left out |

The same everywhere: range 1; SSIM per band, K .01 and .03, only where the window lies whole inside the scene (a
border of 3 or 5 pixels is cropped), and its mean over the bands; RMSE over the cube; ERGAS = 100/scale ·
sqrt(mean over bands of MSE/μ²), μ the truth's mean; CC, the mean over bands of Pearson's correlation, without
constant bands; UIQI, Wang and Bovik's index, in the window of the protocol's SSIM; bias, how far the mean of all
values is off, as a percentage of the truth's, whichever way. In MPSNR a band
counts 100 dB at most, so that a dead one, which nobody gets wrong, does not decide; unless all are without error.

Only pixels that are `there` count, and of SSIM and UIQI only windows without a hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, nan
from statistics import fmean
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.cube import Window

Unit = NDArray[np.floating[Any]]  # (bands, rows, columns), 0..1
There = NDArray[np.bool_]
MOST_DECIBELS = 100.0  # of a band in a mean: errors of 1e-5, about what float32 can tell

Values = NDArray[np.float64]
K = TypeVar("K")


@dataclass(frozen=True)
class Metric:
    """One score: the sums of a window, what their total means, and which way is better."""

    name: str
    says: str
    unit: str
    better: Literal["higher", "lower"]
    sums: Callable[[Unit, Unit, There], Any]  # of (estimate, truth, there); the sums of two windows add with +
    value: Callable[[Any], float]
    bands: Callable[[Any], Values] | None = None  # the same for each band; None: it has no meaning there
    halo: int = 0  # so many pixels around a window belong to its sums, as far as the scene reaches
    digits: int = 3  # worth printing

    @property
    def direction(self) -> str:
        """Its unit, and an arrow to where it is better."""
        return f"{self.unit} {'↑' if self.better == 'higher' else '↓'}".strip()

    def best(self, values: Sequence[float]) -> float:
        """The best of some scores."""
        known = [value for value in values if not np.isnan(value)]
        return (max if self.better == "higher" else min)(known, default=float("nan"))

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.better == "higher" else value < than

    def text(self, value: float, sign: str = "") -> str:
        """A score or, with `sign` "+", a difference as people read it."""
        return "–" if np.isnan(value) else f"{value:{sign}.{self.digits}f}"


class Tally:
    """The sums of one estimate of one scene, window by window; metrics with the same sums share them."""

    def __init__(self, metrics: Sequence[Metric], clip: bool) -> None:
        self.metrics, self.clip = tuple(metrics), clip
        self.halos = {metric.sums: metric.halo for metric in metrics}  # of what is summed
        self.totals: dict[Callable[..., Any], Any] = {}
        self.counted = 0

    @property
    def halo(self) -> int:
        return max(self.halos.values())

    def add(self, core: Window, scene: Window, estimate: Unit, truth: Unit, there: There) -> None:
        """Take in `core`; the arrays hold `core` grown by `halo` within `scene`."""
        given = core.grown(self.halo, within=scene)
        estimate, truth = (np.where(there, cube, 0).astype(np.float64) for cube in (estimate, truth))
        if self.clip:
            estimate, truth = estimate.clip(0, 1), truth.clip(0, 1)
        for sums, halo in self.halos.items():
            part = (slice(None), *core.grown(halo, within=scene).relative_to(given).slices)
            self._take(sums, sums(estimate[part], truth[part], there[part]))
        self.counted += int(there[(slice(None), *core.relative_to(given).slices)].sum())

    def empty(self) -> Tally:
        """A new tally of the same metrics."""
        return Tally(self.metrics, self.clip)

    def __add__(self, other: Tally) -> Tally:
        if (self.halos, self.clip) != (other.halos, other.clip):
            raise ValueError("only tallies of the same metrics of one protocol add up")
        both = self.empty()
        for sums, total in (*self.totals.items(), *other.totals.items()):
            both._take(sums, total)
        both.counted = self.counted + other.counted
        return both

    def _take(self, sums: Callable[..., Any], more: Any) -> None:
        self.totals[sums] = self.totals[sums] + more if sums in self.totals else more

    def values(self) -> dict[str, float]:
        """Every metric of all that was taken in, by name."""
        return {metric.name: metric.value(self.totals[metric.sums]) for metric in self.metrics}

    def bands(self) -> dict[str, Values]:
        """Those that have one, for each band; NaN for a band without a pixel."""
        return {m.name: m.bands(self.totals[m.sums]) for m in self.metrics if m.bands is not None}


def means_over(scenes: Sequence[Mapping[K, Mapping[str, float]]]) -> dict[K, dict[str, float]]:
    """The mean of each metric for each estimate, over scenes on which every estimate has it; else NaN."""
    if len(scenes) == 1:
        return {name: dict(scores) for name, scores in scenes[0].items()}
    kept = {metric: comparable(scenes, metric) for metric in next(iter(scenes[0].values()))}
    return {
        name: {m: fmean(s[name][m] for s in counted) if counted else nan for m, counted in kept.items()}
        for name in scenes[0]
    }


def comparable(
    scenes: Sequence[Mapping[K, Mapping[str, float]]], metric: str
) -> list[Mapping[K, Mapping[str, float]]]:
    """The scenes on which every estimate has this metric: some are too small for a window, or too plain."""
    return [scene for scene in scenes if all(isfinite(scores[metric]) for scores in scene.values())]


# What a window adds.


@dataclass(frozen=True)
class Moments:
    """For each band: how many pixels, their means, and sums of products about those means."""

    count: Values  # (bands,)
    means: Values  # (2, bands): estimate, truth
    products: Values  # (3, bands): estimate², truth², estimate·truth
    errors: Values  # (bands,): squared differences

    @classmethod
    def of(cls, estimate: Unit, truth: Unit, there: There) -> Moments:
        """The moments of one window, whose holes are 0."""
        count = there.sum((1, 2)).astype(np.float64)
        sums = np.stack([estimate.sum((1, 2)), truth.sum((1, 2))])
        means = np.divide(sums, count, out=np.zeros_like(sums), where=count > 0)
        x = np.where(there, estimate - means[0][:, None, None], 0)
        y = np.where(there, truth - means[1][:, None, None], 0)
        products = np.stack([(a * b).sum((1, 2)) for a, b in ((x, x), (y, y), (x, y))])
        return cls(count, means, products, ((estimate - truth) ** 2).sum((1, 2)))

    def __add__(self, other: Moments) -> Moments:
        # About the common mean, not about 0: sums of squares would drown the contrast of a flat band.
        count = self.count + other.count
        share = np.divide(other.count, count, out=np.zeros_like(count), where=count > 0)
        x, y = step = other.means - self.means
        apart = self.count * share * np.stack([x * x, y * y, x * y])
        return Moments(
            count,
            self.means + step * share,
            self.products + other.products + apart,
            self.errors + other.errors,
        )

    def mse(self) -> Values:
        """The mean squared error of each band."""
        return _ratio(self.errors, self.count)

    def psnr(self) -> Values:
        """The peak signal-to-noise ratio of each band."""
        return _decibels(self.mse())

    def rmse(self) -> Values:
        """The root mean squared error of each band."""
        return np.sqrt(self.mse())

    def correlation(self) -> Values:
        """Pearson's correlation of each band; NaN for a constant one."""
        xx, yy, xy = self.products
        flat = (self.products[:2] <= 1e-20 * self.count * self.means**2).any(0)
        return np.where(flat, np.nan, _ratio(xy, np.sqrt(xx * yy)))


@dataclass(frozen=True)
class Average:
    """A total and how many values it is of."""

    total: Values
    count: Values

    def __add__(self, other: Average) -> Average:
        return Average(self.total + other.total, self.count + other.count)

    def value(self) -> Values:
        """The mean; NaN where there was no value."""
        return _ratio(self.total, self.count)


def angles(estimate: Unit, truth: Unit, there: There, skip_black: bool) -> Average:
    """The angle between the spectra of each pixel, in degrees, over the bands that are there."""
    norms = np.sqrt((estimate**2).sum(0)), np.sqrt((truth**2).sum(0))
    black = (norms[0] == 0) | (norms[1] == 0)
    x, y = (cube / np.where(norm > 0, norm, 1) for cube, norm in zip((estimate, truth), norms, strict=True))
    # Kahan's formula: the arc cosine of nearly 1 would lose half of the digits of a small angle.
    angle = 2 * np.arctan2(np.sqrt(((x - y) ** 2).sum(0)), np.sqrt(((x + y) ** 2).sum(0)))
    counted = there.any(0) & ~(black & skip_black)
    total = np.degrees(angle[counted & ~black].sum())
    return Average(np.asarray(total, np.float64), np.asarray(counted.sum(), np.float64))


def similarity(estimate: Unit, truth: Unit, there: There, weights: tuple[float, ...], unbiased: float) -> Average:
    """SSIM and UIQI around each pixel whose window is whole: (2, bands)."""
    taps = np.array(weights)
    x, y = _blurred(estimate, taps), _blurred(truth, taps)
    xx, yy, xy = (
        unbiased * (_blurred(a * b, taps) - mean)
        for a, b, mean in ((estimate, estimate, x * x), (truth, truth, y * y), (estimate, truth, x * y))
    )
    light, contrast = x * x + y * y, xx + yy
    c1, c2 = 0.01**2, 0.03**2
    ssim = (2 * x * y + c1) * (2 * xy + c2) / ((light + c1) * (contrast + c2))
    # Wang and Bovik: a flat window is judged by its brightness alone, a black one is right.
    flat = contrast <= 1e-13 * light  # as flat as float32 can tell
    brightness = np.divide(2 * x * y, light, out=np.ones_like(light), where=light > 0)
    uiqi = brightness * np.divide(2 * xy, contrast, out=np.ones_like(light), where=~flat)
    whole = np.ones_like(x, np.bool_) if there.all() else _blurred(there.astype(np.float64), taps) > 1 - 1e-9
    total = np.stack([np.where(whole, index, 0).sum((1, 2)) for index in (ssim, uiqi)])
    return Average(total, whole.sum((1, 2)).astype(np.float64))


def _blurred(image: Unit, taps: Values) -> Values:
    """The weighted mean of the square window around each pixel that has a whole one, (..., r, c) -> (..., r', c').

    Tap after tap, never by running sums: a pixel's value does not depend on where the image begins.
    """
    for axis, others in ((-2, (slice(None),)), (-1, ())):
        length = max(0, image.shape[axis] - len(taps) + 1)
        parts = [image[(..., slice(i, i + length), *others)] for i in range(len(taps))]
        image = np.zeros(parts[0].shape)
        for tap, part in zip(taps, parts, strict=True):
            image += tap * part
    return np.asarray(image, np.float64)


# What the totals mean.


def _ratio(numerator: Values, denominator: Values) -> Values:
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.asarray(np.divide(numerator, denominator, out=np.full(shape, np.nan), where=denominator > 0))


def _decibels(mse: Values) -> Values:
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse))  # infinite for a perfect band


def _mean(values: Values) -> float:
    """The mean over the bands that have a value."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _mean_psnr(total: Moments) -> float:
    psnr = total.psnr()[total.count > 0]  # of these, one that is no number must not go unseen
    capped = psnr if np.isinf(psnr).all() else np.minimum(psnr, MOST_DECIBELS)
    return float(capped.mean()) if psnr.size else nan


def _cube_mse(total: Moments) -> Values:
    return _ratio(total.errors.sum(), total.count.sum())


def _ergas(total: Moments, scale: int) -> float:
    relative = _ratio(total.mse(), total.means[1] ** 2)
    return 100 / scale * float(np.sqrt(_mean(relative)))


def _bias(total: Moments) -> float:
    estimate, truth = ((mean * total.count)[total.count > 0].sum() for mean in total.means)
    return float(_ratio(100 * np.abs(estimate - truth), np.abs(truth)))


# The protocols.


@dataclass(frozen=True)
class Protocol:
    """What the field leaves open, decided under a name."""

    name: str
    clip: bool  # both cubes to 0..1
    psnr: Literal["MPSNR", "PSNR"]  # the one that its papers print; it comes first
    weights: tuple[float, ...]  # of the window of SSIM, along each axis
    unbiased: float  # what makes a covariance in that window the protocol's
    skip_black: bool  # in SAM

    def tally(self, scale: int, names: Sequence[str] = ()) -> Tally:
        """A new tally of every metric, or of those named."""
        return Tally([m for m in self.metrics(scale) if not names or m.name in names], self.clip)

    def metrics(self, scale: int) -> tuple[Metric, ...]:
        """The table of metrics; one more is one more entry."""
        moments, spectra, local = Moments.of, self._spectra, self._local
        halo = len(self.weights) // 2
        table = (
            Metric(
                "MPSNR", "peak signal-to-noise ratio, mean over bands", "dB", "higher",
                moments, _mean_psnr, Moments.psnr,
            ),
            Metric(
                "PSNR", "peak signal-to-noise ratio of the whole cube", "dB", "higher",
                moments, lambda t: float(_decibels(_cube_mse(t))),
            ),
            Metric(
                "MSSIM", "structural similarity, mean over bands", "", "higher",
                local, lambda t: _mean(t.value()[0]), lambda t: t.value()[0], halo, 4,
            ),
            Metric("SAM", "spectral angle, mean over pixels", "°", "lower", spectra, lambda t: float(t.value())),
            Metric(
                "RMSE", "root mean squared error of the whole cube", "", "lower",
                moments, lambda t: float(np.sqrt(_cube_mse(t))), Moments.rmse, digits=5,
            ),
            Metric(
                "ERGAS", "relative error, rms over the bands", "", "lower", moments, partial(_ergas, scale=scale),
            ),
            Metric(
                "CC", "correlation, mean over bands", "", "higher",
                moments, lambda t: _mean(t.correlation()), Moments.correlation, digits=4,
            ),
            Metric(
                "UIQI", "universal image quality index, mean over bands", "", "higher",
                local, lambda t: _mean(t.value()[1]), lambda t: t.value()[1], halo, 4,
            ),
            Metric("bias", "how far the mean of the whole cube is off", "%", "lower", moments, _bias, digits=2),
        )  # fmt: skip
        return tuple(sorted(table, key=lambda metric: metric.name != self.psnr))

    # Made once: tallies know by their functions what they have summed.

    @cached_property
    def _spectra(self) -> Callable[..., Average]:
        return partial(angles, skip_black=self.skip_black)

    @cached_property
    def _local(self) -> Callable[..., Average]:
        return partial(similarity, weights=self.weights, unbiased=self.unbiased)


UNIFORM = (1 / 7,) * 7
BELL = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
GAUSSIAN = tuple((BELL / BELL.sum()).tolist())

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("pdenet", True, "MPSNR", UNIFORM, unbiased=49 / 48, skip_black=False),
        Protocol("mcnet", True, "PSNR", GAUSSIAN, unbiased=1, skip_black=False),
        Protocol("sspsr", False, "MPSNR", UNIFORM, unbiased=49 / 48, skip_black=True),
    )
}
