"""How close an estimate is to the truth, both 0..1: sums of windows are added up, then finished.

A score is therefore the same however the scene is cut. A protocol fixes the conventions on which papers differ:

|        | pdenet (default)                            | mcnet                         | sspsr                  |
|--------|---------------------------------------------|-------------------------------|------------------------|
| values | both cubes clipped to 0..1                  | the same                      | taken as they are      |
| PSNR   | shown first: MPSNR, the mean over the bands | PSNR, one MSE over the cube   | MPSNR                  |
| MSSIM  | 7x7 uniform window, sample covariance (n-1) | 11x11 Gaussian, σ 1.5, biased | as pdenet              |
| SAM    | degrees; a black spectrum counts as 0       | the same                      | black spectra left out |

`paper` is pdenet, but two black spectra are 90° apart, and a black one is as far from another as an epsilon in all
bands is: so the published code of PDE-Net has it, and so its tables. On dark scenes that alone is more than 0.1°.

The same everywhere: range 1; SSIM per band, K .01 and .03, only where the window lies whole inside the scene (a
border of 3 or 5 pixels is cropped), and its mean over the bands; RMSE over the cube; ERGAS = 100/scale ·
sqrt(mean over bands of MSE/μ²), μ the truth's mean; CC, the mean over bands of Pearson's correlation, without
constant bands; UIQI, Wang and Bovik's index, in the window of the protocol's SSIM; bias, how far the mean of all
values is off, as a percentage of the truth's, whichever way. In MPSNR a band counts at most 100 dB, so that a dead
band, which every estimate gets right, does not dominate; unless all bands are without error.

Only valid pixels (`there`) count; for SSIM and UIQI, only windows without a hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, nan
from statistics import fmean
from typing import Any, Literal, TypeVar

import numpy as np

from pdenet_cli.evaluation.score_sums import (
    Average,
    Moments,
    Unit,
    ValidMask,
    Values,
    angles,
    decibels,
    ratio,
    similarity,
)
from pdenet_cli.scene.window import Window

MOST_DECIBELS = 100.0  # cap of a band in MPSNR: errors of 1e-5, about the precision of float32
K = TypeVar("K")


@dataclass(frozen=True)
class Metric:
    """One score: the sums of a window, its value from their total, and which direction is better."""

    name: str
    says: str
    unit: str
    better: Literal["higher", "lower"]
    sums: Callable[[Unit, Unit, ValidMask], Any]  # (estimate, truth, valid_mask) -> sums, which add with +
    value: Callable[[Any], float]  # from the total of the sums
    bands: Callable[[Any], Values] | None = None  # the value of each band; None: not defined per band
    halo: int = 0  # pixels around a window that its sums need, as far as the scene reaches
    digits: int = 3  # decimals to print

    @property
    def direction(self) -> str:
        """The unit, and an arrow in the direction that is better."""
        return f"{self.unit} {'↑' if self.better == 'higher' else '↓'}".strip()

    def best(self, values: Sequence[float]) -> float:
        """The best of some scores."""
        known = [value for value in values if not np.isnan(value)]
        return (max if self.better == "higher" else min)(known, default=float("nan"))

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.better == "higher" else value < than

    def text(self, value: float, sign: str = "") -> str:
        """A score as text; with `sign` "+", a difference."""
        return "–" if np.isnan(value) else f"{value:{sign}.{self.digits}f}"


class Tally:
    """The sums of one estimate of one scene, window by window; metrics with the same sums share them."""

    def __init__(self, metrics: Sequence[Metric], clip: bool) -> None:
        self.metrics, self.clip = tuple(metrics), clip
        self.halos = {metric.sums: metric.halo for metric in metrics}
        self.totals: dict[Callable[..., Any], Any] = {}
        self.counted = 0
        self.sizes = np.zeros(2)  # sums of absolute values before they are clipped: estimate, truth

    @property
    def halo(self) -> int:
        return max(self.halos.values())

    def add(self, core: Window, scene: Window, estimate: Unit, truth: Unit, valid_mask: ValidMask) -> None:
        """Add the window `core`; the arrays hold `core` grown by `halo` within `scene`."""
        given = core.grown(self.halo, within=scene)
        estimate, truth = (np.where(valid_mask, cube, 0).astype(np.float64) for cube in (estimate, truth))
        inside = (slice(None), *core.relative_to(given).slices)
        self.sizes += [np.abs(cube[inside]).sum() for cube in (estimate, truth)]
        if self.clip:
            estimate, truth = estimate.clip(0, 1), truth.clip(0, 1)
        for sums, halo in self.halos.items():
            part = (slice(None), *core.grown(halo, within=scene).relative_to(given).slices)
            self._add(sums, sums(estimate[part], truth[part], valid_mask[part]))
        self.counted += int(valid_mask[inside].sum())

    def empty(self) -> Tally:
        """A new tally of the same metrics."""
        return Tally(self.metrics, self.clip)

    def __add__(self, other: Tally) -> Tally:
        if (self.halos, self.clip) != (other.halos, other.clip):
            raise ValueError("only tallies of the same metrics of one protocol add up")
        both = self.empty()
        for sums, total in (*self.totals.items(), *other.totals.items()):
            both._add(sums, total)
        both.counted, both.sizes = self.counted + other.counted, self.sizes + other.sizes
        return both

    def _add(self, sums: Callable[..., Any], more: Any) -> None:
        self.totals[sums] = self.totals[sums] + more if sums in self.totals else more

    @property
    def brightness(self) -> float:
        """How many times as large as the truth's the values of the estimate are on average, before clipping."""
        return float(ratio(*self.sizes))

    def values(self) -> dict[str, float]:
        """Every metric by name, over all windows added so far."""
        return {metric.name: metric.value(self.totals[metric.sums]) for metric in self.metrics}

    def bands(self) -> dict[str, Values]:
        """The metrics that are defined per band, by name; NaN for a band without a valid pixel."""
        return {m.name: m.bands(self.totals[m.sums]) for m in self.metrics if m.bands is not None}


def means_over(scenes: Sequence[Mapping[K, Mapping[str, float]]]) -> dict[K, dict[str, float]]:
    """The mean of each metric for each estimate, over the scenes where all estimates have it; NaN if none."""
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
    """The scenes where all estimates have this metric: not those too small for a window, or constant."""
    return [scene for scene in scenes if all(isfinite(scores[metric]) for scores in scene.values())]


# The values of the totals.


def _mean(values: Values) -> float:
    """The mean over the bands that have a value."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _mean_psnr(total: Moments) -> float:
    psnr = total.psnr()[total.count > 0]  # a NaN among these must show in the mean
    capped = psnr if np.isinf(psnr).all() else np.minimum(psnr, MOST_DECIBELS)
    return float(capped.mean()) if psnr.size else nan


def _cube_mse(total: Moments) -> Values:
    return ratio(total.errors.sum(), total.count.sum())


def _ergas(total: Moments, scale: int) -> float:
    relative = ratio(total.mse(), total.means[1] ** 2)
    return 100 / scale * float(np.sqrt(_mean(relative)))


def _bias(total: Moments) -> float:
    estimate, truth = ((mean * total.count)[total.count > 0].sum() for mean in total.means)
    return float(ratio(100 * np.abs(estimate - truth), np.abs(truth)))


# The protocols.


@dataclass(frozen=True)
class Protocol:
    """The conventions of one line of papers, as in the table above."""

    name: str
    clip: bool  # whether both cubes are clipped to 0..1
    psnr: Literal["MPSNR", "PSNR"]  # the one that its papers report; listed first
    weights: tuple[float, ...]  # SSIM window, along each axis
    unbiased: float  # factor of covariances in that window: n / (n - 1) or 1
    black: Literal["zero", "skip", "epsilon"]  # what the angle of a black spectrum is in SAM

    def tally(self, scale: int, names: Sequence[str] = ()) -> Tally:
        """A new tally of all metrics, or of those named."""
        return Tally([m for m in self.metrics(scale) if not names or m.name in names], self.clip)

    def metrics(self, scale: int) -> tuple[Metric, ...]:
        """The table of metrics."""
        moments, spectra, local = Moments.of, self._spectra, self._local
        halo = len(self.weights) // 2
        higher, lower = partial(Metric, better="higher"), partial(Metric, better="lower")
        table = (
            higher(
                "MPSNR", "peak signal-to-noise ratio, mean over bands", "dB",
                sums=moments, value=_mean_psnr, bands=Moments.psnr,
            ),
            higher(
                "PSNR", "peak signal-to-noise ratio of the whole cube", "dB",
                sums=moments, value=lambda total: float(decibels(_cube_mse(total))),
            ),
            higher(
                "MSSIM", "structural similarity, mean over bands", "",
                sums=local, value=lambda total: _mean(total.value()[0]), bands=lambda total: total.value()[0],
                halo=halo, digits=4,
            ),
            lower(
                "SAM", "spectral angle, mean over pixels", "°",
                sums=spectra, value=lambda total: float(total.value()),
            ),
            lower(
                "RMSE", "root mean squared error of the whole cube", "",
                sums=moments, value=lambda total: float(np.sqrt(_cube_mse(total))), bands=Moments.rmse, digits=5,
            ),
            lower(
                "ERGAS", "relative error, rms over the bands", "",
                sums=moments, value=partial(_ergas, scale=scale),
            ),
            higher(
                "CC", "correlation, mean over bands", "",
                sums=moments, value=lambda total: _mean(total.correlation()), bands=Moments.correlation, digits=4,
            ),
            higher(
                "UIQI", "universal image quality index, mean over bands", "",
                sums=local, value=lambda total: _mean(total.value()[1]), bands=lambda total: total.value()[1],
                halo=halo, digits=4,
            ),
            lower("bias", "how far the mean of the whole cube is off", "%", sums=moments, value=_bias, digits=2),
        )  # fmt: skip
        return tuple(sorted(table, key=lambda metric: metric.name != self.psnr))

    # Cached, because tallies use these functions as keys of their sums.

    @cached_property
    def _spectra(self) -> Callable[..., Average]:
        return partial(angles, black=self.black)

    @cached_property
    def _local(self) -> Callable[..., Average]:
        return partial(similarity, weights=self.weights, unbiased=self.unbiased)


UNIFORM = (1 / 7,) * 7
_BELL = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
GAUSSIAN = tuple((_BELL / _BELL.sum()).tolist())

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("pdenet", True, "MPSNR", UNIFORM, unbiased=49 / 48, black="zero"),
        Protocol("paper", True, "MPSNR", UNIFORM, unbiased=49 / 48, black="epsilon"),
        Protocol("mcnet", True, "PSNR", GAUSSIAN, unbiased=1, black="zero"),
        Protocol("sspsr", False, "MPSNR", UNIFORM, unbiased=49 / 48, black="skip"),
    )
}
