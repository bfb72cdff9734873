"""How one image lies on another of the same scene: shift, gain, offset and blur, told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float64]

MARGIN = 4  # pixels at the border that are not compared: the reach of derivatives and of resampling
ROUNDS = 4  # of measuring a shift and taking it out
LEAST_PIXELS = 64  # that both images must know
FARTHEST = 0.25  # largest shift that is looked for, as a share of the smaller side
A = -0.5  # of cubic convolution


@dataclass(frozen=True)
class Fit:
    """What must be done to the first image of a band for it to be most like the second."""

    gain: float
    offset: float
    down: float  # shift in pixels
    right: float
    variance: float  # of the Gaussian that it must be blurred with, in pixels squared; negative: sharpened
    weight: float  # how well the image tells shift and blur
    residual: Plane  # what is left of the difference, NaN where either has no data


@dataclass(frozen=True)
class Registration:
    """How all bands of one cube lie on those of another."""

    down: float
    right: float
    variance: float
    left: float  # shift that is measured after it was taken out, in pixels

    @property
    def blur(self) -> float:
        """The FWHM in pixels that the second image has more than the first, in quadrature; negative: less."""
        size = sqrt(8 * log(2) * abs(self.variance))
        return size if self.variance > 0 else -size


def shifted(image: Plane, down: float, right: float) -> Plane:
    """The image moved by so many pixels, by cubic convolution; NaN where it came from outside or from no data."""
    for axis, distance in ((0, down), (1, right)):
        whole = int(np.floor(distance))
        part = distance - whole
        total = np.zeros_like(image)
        for tap in (-1, 0, 1, 2):
            x = abs(tap - part)
            near, far = (A + 2) * x**3 - (A + 3) * x**2 + 1, A * (x**3 - 5 * x**2 + 8 * x - 4)
            if weight := (near if x <= 1 else far if x < 2 else 0.0):
                total += weight * _moved(image, whole + tap, axis)
        image = total
    return image


def _moved(image: Plane, distance: int, axis: int) -> Plane:
    """The image moved by whole pixels; NaN where nothing comes."""
    moved = np.roll(image, distance, axis)
    index = np.arange(image.shape[axis])
    outside = (index < distance) | (index >= image.shape[axis] + distance)
    moved[(outside, slice(None)) if axis == 0 else (slice(None), outside)] = np.nan
    return moved


def whole_shift(one: Plane, other: Plane) -> tuple[int, int]:
    """By how many whole pixels the other image is moved down and right: the peak of their phase correlation."""
    waves = []
    for image in (one, other):
        known = np.isfinite(image)
        flat = np.where(known, image - image[known].mean(), 0.0)
        waves.append(np.fft.rfft2(flat * np.outer(*(np.hanning(side + 2)[1:-1] for side in image.shape))))
    product = waves[1] * waves[0].conj()
    peaks = np.fft.irfft2(product / np.maximum(np.abs(product), 1e-12), one.shape)
    far = int(FARTHEST * min(one.shape))
    rows, columns = (np.minimum(np.arange(side), side - np.arange(side)) for side in one.shape)
    peaks[(rows[:, None] > far) | (columns > far)] = -np.inf
    row, column = (int(i) for i in np.unravel_index(int(peaks.argmax()), peaks.shape))
    return _signed(row, one.shape[0]), _signed(column, one.shape[1])


def _signed(place: int, size: int) -> int:
    return place if place <= size // 2 else place - size


def fitted(
    one: Plane, other: Plane, down: float = 0.0, right: float = 0.0, *, blurring: bool = True
) -> Fit | None:
    """The least squares fit of a band of `other` by `one` moved by (down, right), its derivatives and a constant.

    The shift of the result is that which is still to be added. None where too little is known or nothing varies.
    Without `blurring`, what remains is beside gain and offset alone.
    """
    moved = shifted(one, down, right)
    parts, aim = _parts(_smoothed(moved)), _smoothed(other)
    base = parts[0]
    known = np.isfinite(parts).all(0) & np.isfinite(aim)
    known[:MARGIN], known[-MARGIN:], known[:, :MARGIN], known[:, -MARGIN:] = False, False, False, False
    if known.sum() < LEAST_PIXELS or base[known].std() <= 1e-9 * (1 + np.abs(base[known]).max()):
        return None
    matrix = parts[:, known]
    found, *_ = np.linalg.lstsq(matrix.T, aim[known], rcond=None)
    gain, by_row, by_column, by_curve, _ = (float(part) for part in found)
    if not gain > 0:
        return None
    noise = float(((aim[known] - found @ matrix) ** 2).mean()) + 1e-12
    weight = gain**2 * float((matrix[1:3] ** 2).sum()) / noise
    chosen = list(range(5)) if blurring else [0, 4]
    if not blurring:
        found[chosen], *_ = np.linalg.lstsq(matrix[chosen].T, aim[known], rcond=None)
    # What remains is of the images as they are, the finest waves included.
    plain, target = _parts(moved)[chosen][:, known], other[known]
    best, *_ = np.linalg.lstsq(plain.T, target, rcond=None)
    residual = np.full_like(base, np.nan)
    residual[known] = target - best @ plain
    gain, offset = float(found[0]), float(found[-1])
    return Fit(gain, offset, -by_row / gain, -by_column / gain, 2 * by_curve / gain, weight, residual)


def _parts(image: Plane) -> Plane:
    """The image, its derivatives down and right, its curvature and a constant: (5, rows, columns)."""
    rows, columns = np.gradient(image)
    curved = np.full_like(image, np.nan)
    beside = image[2:, 1:-1] + image[:-2, 1:-1] + image[1:-1, 2:] + image[1:-1, :-2]
    curved[1:-1, 1:-1] = beside - 4 * image[1:-1, 1:-1]
    return np.stack([image, rows, columns, curved, np.ones_like(image)])


def registered(ones: Sequence[Plane], others: Sequence[Plane]) -> Registration | None:
    """How the bands of one cube lie on those of another, all moved alike; None where nothing varies in both."""
    strong = max(range(len(ones)), key=lambda i: _contrast(ones[i]) if _contrast(others[i]) > 0 else -1.0)
    if not (_contrast(ones[strong]) > 0 and _contrast(others[strong]) > 0):
        return None
    down, right = (float(part) for part in whole_shift(ones[strong], others[strong]))
    variance = left = 0.0
    for _ in range(ROUNDS):
        pairs = zip(ones, others, strict=True)
        fits = [fit for one, other in pairs if (fit := fitted(one, other, down, right)) is not None]
        if not fits:
            return None
        weights = [fit.weight for fit in fits]
        more = [float(np.average([getattr(f, name) for f in fits], weights=weights)) for name in ("down", "right")]
        variance = float(np.average([fit.variance for fit in fits], weights=weights))
        left = float(np.hypot(more[0], more[1]))
        down, right = down + float(np.clip(more[0], -1, 1)), right + float(np.clip(more[1], -1, 1))
    return Registration(down, right, variance, left)


def _contrast(image: Plane) -> float:
    known = image[np.isfinite(image)]
    return float(known.std() / (np.abs(known).mean() + 1e-12)) if known.size else 0.0


def _smoothed(image: Plane) -> Plane:
    """The image under a small bell, so that noise and the finest waves count less."""
    for _ in range(2):
        bell = np.full_like(image, np.nan)
        bell[1:-1] = (image[:-2] + 2 * image[1:-1] + image[2:]) / 4
        image = bell.T
    return image
