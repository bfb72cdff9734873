"""What can be said of an estimate where there is no truth: does it agree with its input, and what did it add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.evaluation.registration import Plane, Registration, fitted, registered, shifted
from pdenet_cli.evaluation.view import View
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges

MOST_REGISTERED = 12  # bands that the shift is measured in
STILL = 0.02  # a shift of fewer pixels of the input is left as it is
Sigmas = Callable[[int], Plane]  # the product's 1-sigma of the band of this number, 0..1


@dataclass(frozen=True)
class Consistency:
    """An estimate, degraded with the declared point spread, beside the input that it was made of.

    Shift, gain and blur are told apart and taken out first; what remains is what none of them explains. In 0..1.
    """

    registration: Registration | None  # in pixels of the input
    gains: tuple[float, ...]  # per band; NaN where a band tells none
    offsets: tuple[float, ...]
    remaining: tuple[float, ...]  # root mean square, per band
    difference: tuple[float, ...]  # the same before anything is taken out
    angle: float  # degrees between spectra, of what remains
    plain_angle: float  # degrees, before
    detail: tuple[float, ...]  # root mean square of what is finer than the input's pixels, per band
    bicubic_detail: tuple[float, ...]  # the same of the input's bicubic enlargement
    in_sigmas: float | None = None  # median of |what remains| in the product's 1-sigma
    within_sigma: float | None = None  # share of what remains that is within 1-sigma, 0..1


def consistency(source: View, estimate: View, psf: Degradation, sigmas: Sigmas | None = None) -> Consistency:
    """How an estimate agrees with its input under a point spread, band by band."""
    bands = len(source.bands)
    chosen = np.unique(np.linspace(0, bands - 1, min(bands, MOST_REGISTERED)).round().astype(int)).tolist()
    planes = [plane_of(source, band) for band in chosen]
    lies = registered(planes, [_seen(estimate, band, psf) for band in chosen])
    gains, offsets, remaining, difference, detail, plain = (np.full(bands, np.nan) for _ in range(6))
    angles, plain_angles = Angle(), Angle()
    apart: list[NDArray[np.float32]] = []
    for band in range(bands):
        one = plane_of(source, band)
        other = np.where(np.isfinite(one), _seen(estimate, band, psf), np.nan)
        difference[band] = rms(other - one)
        plain_angles.add(one, other)
        detail[band], plain[band] = _details(estimate, band, one, psf)
        if lies is not None and np.hypot(lies.down, lies.right) > STILL:
            # Moved back on the fine grid: coarse pixels are too few to be moved exactly.
            other = _seen(estimate, band, psf, -psf.scale * lies.down, -psf.scale * lies.right)
        fit = None if lies is None else fitted(one, other)
        if fit is None:
            continue
        gains[band], offsets[band] = fit.gain, fit.offset
        left = fit.residual / fit.gain
        remaining[band] = rms(left)
        angles.add(one, np.where(np.isfinite(left), one + left, np.nan))
        if sigmas is not None:
            width = sigmas(band)
            both = np.isfinite(left) & (width > 0)
            apart.append((np.abs(left[both]) / width[both]).astype(np.float32))
    ratios = np.concatenate(apart) if apart else None
    return Consistency(
        registration=lies,
        gains=tuple(gains.tolist()),
        offsets=tuple(offsets.tolist()),
        remaining=tuple(remaining.tolist()),
        difference=tuple(difference.tolist()),
        angle=angles.mean(),
        plain_angle=plain_angles.mean(),
        detail=tuple(detail.tolist()),
        bicubic_detail=tuple(plain.tolist()),
        in_sigmas=None if ratios is None or not ratios.size else float(np.median(ratios)),
        within_sigma=None if ratios is None or not ratios.size else float((ratios <= 1).mean()),
    )


def _seen(estimate: View, band: int, psf: Degradation, down: float = 0.0, right: float = 0.0) -> Plane:
    """A band of the estimate, moved by so many of its pixels, as a sensor of that point spread would see it."""
    unit, known = estimate.read(estimate.scene, [band])
    high = filled_from_edges(unit, known, FILL_DEPTH * psf.scale)
    if down or right:
        moved = shifted(high[0].astype(np.float64), down, right)
        high = np.where(np.isfinite(moved), moved, high[0])[None].astype(np.float32)
    return np.asarray(psf(torch.from_numpy(high))[0].numpy(), np.float64)


def plane_of(view: View, band: int) -> Plane:
    """A band of a view, NaN where it has no data."""
    unit, known = view.read(view.scene, [band])
    return np.where(known[0], unit[0], np.nan)


def _details(estimate: View, band: int, source: Plane, psf: Degradation) -> tuple[float, float]:
    """Root mean square of what a band has that its degraded self does not tell: of the estimate and of bicubic."""
    known = np.isfinite(source)
    filled = np.where(known, source, source[known].mean() if known.any() else 0.0)
    fine = known.repeat(psf.scale, 0).repeat(psf.scale, 1)
    unit, there = estimate.read(estimate.scene, [band])
    enlarged = bicubic_up(torch.from_numpy(filled[None].astype(np.float32)), psf.scale)
    found = []
    for high, mask in ((torch.from_numpy(unit), fine & there[0]), (enlarged, fine)):
        beyond = (high - bicubic_up(psf(high), psf.scale)).numpy()[0]
        found.append(rms(np.where(mask, beyond, np.nan)))
    return found[0], found[1]


def rms(values: NDArray[np.floating[Any]]) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt((known.astype(np.float64) ** 2).mean())) if known.size else float("nan")


class Angle:
    """The mean angle between the spectra of two cubes, band after band."""

    def __init__(self) -> None:
        self.product: Plane | None = None

    def add(self, one: Plane, other: Plane) -> None:
        parts = one * other, one**2, other**2
        if self.product is None:
            self.product, self.first, self.second = parts
        else:
            self.product, self.first, self.second = (
                total + part for total, part in zip((self.product, self.first, self.second), parts, strict=True)
            )

    def mean(self) -> float:
        """In degrees; NaN where no spectrum is whole."""
        if self.product is None:
            return float("nan")
        size = np.sqrt(self.first * self.second)
        whole = np.isfinite(size) & (size > 0)
        cosine = (self.product[whole] / size[whole]).clip(-1, 1)
        return float(np.degrees(np.arccos(cosine)).mean()) if whole.any() else float("nan")
