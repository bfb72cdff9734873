"""The sums of a window that scores are computed from; those of two windows add with +."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Unit = NDArray[np.floating[Any]]  # (bands, rows, columns), 0..1
ValidMask = NDArray[np.bool_]  # valid pixels
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Per band: the number of pixels, their means, and sums of products of deviations from those means."""

    count: Values  # (bands,)
    means: Values  # (2, bands): estimate, truth
    products: Values  # (3, bands): estimate², truth², estimate·truth
    errors: Values  # (bands,): squared differences

    @classmethod
    def of(cls, estimate: Unit, truth: Unit, valid_mask: ValidMask) -> Moments:
        """The moments of one window; pixels in holes must be 0."""
        count = valid_mask.sum((1, 2)).astype(np.float64)
        sums = np.stack([estimate.sum((1, 2)), truth.sum((1, 2))])
        means = np.divide(sums, count, out=np.zeros_like(sums), where=count > 0)
        x = np.where(valid_mask, estimate - means[0][:, None, None], 0)
        y = np.where(valid_mask, truth - means[1][:, None, None], 0)
        products = np.stack([(a * b).sum((1, 2)) for a, b in ((x, x), (y, y), (x, y))])
        return cls(count, means, products, ((estimate - truth) ** 2).sum((1, 2)))

    def __add__(self, other: Moments) -> Moments:
        # About the common mean: in sums of squares about 0, the contrast of a flat band is lost to rounding.
        count = self.count + other.count
        share = np.divide(other.count, count, out=np.zeros_like(count), where=count > 0)
        x, y = shift = other.means - self.means
        between = self.count * share * np.stack([x * x, y * y, x * y])
        return Moments(
            count,
            self.means + shift * share,
            self.products + other.products + between,
            self.errors + other.errors,
        )

    def mse(self) -> Values:
        """The mean squared error of each band."""
        return ratio(self.errors, self.count)

    def psnr(self) -> Values:
        """The peak signal-to-noise ratio of each band."""
        return decibels(self.mse())

    def rmse(self) -> Values:
        """The root mean squared error of each band."""
        return np.sqrt(self.mse())

    def correlation(self) -> Values:
        """Pearson's correlation of each band; NaN for a constant one."""
        xx, yy, xy = self.products
        flat = (self.products[:2] <= 1e-20 * self.count * self.means**2).any(0)
        return np.where(flat, np.nan, ratio(xy, np.sqrt(xx * yy)))


@dataclass(frozen=True)
class Average:
    """A total and the number of values in it."""

    total: Values
    count: Values

    def __add__(self, other: Average) -> Average:
        return Average(self.total + other.total, self.count + other.count)

    def value(self) -> Values:
        """The mean; NaN where there was no value."""
        return ratio(self.total, self.count)


EPSILON = 2.2204e-16  # what the published code of PDE-Net puts in place of zeros, before it measures angles


def angles(
    estimate: Unit, truth: Unit, valid_mask: ValidMask, black: Literal["zero", "skip", "epsilon"]
) -> Average:
    """The angles between the spectra of each pixel, in degrees, over their valid bands.

    An angle with a `black` spectrum is zero, left out, or that of spectra whose zeros are `EPSILON`.
    """
    if black == "epsilon":
        return _published_angles(estimate, truth, valid_mask)
    norms = np.sqrt((estimate**2).sum(0)), np.sqrt((truth**2).sum(0))
    dark = (norms[0] == 0) | (norms[1] == 0)
    x, y = (cube / np.where(norm > 0, norm, 1) for cube, norm in zip((estimate, truth), norms, strict=True))
    # Kahan's formula: the arc cosine of a number near 1 loses half of the digits of a small angle.
    angle = 2 * np.arctan2(np.sqrt(((x - y) ** 2).sum(0)), np.sqrt(((x + y) ** 2).sum(0)))
    counted = valid_mask.any(0) & ~(dark & (black == "skip"))
    total = np.degrees(angle[counted & ~dark].sum())
    return Average(np.asarray(total, np.float64), np.asarray(counted.sum(), np.float64))


def _published_angles(estimate: Unit, truth: Unit, valid_mask: ValidMask) -> Average:
    """As the code of PDE-Net has them: two black spectra are 90 degrees apart."""
    x, y = (np.where(valid_mask & (cube == 0), EPSILON, cube) for cube in (estimate, truth))
    norms = np.sqrt((x * x).sum(0)) * np.sqrt((y * y).sum(0))
    with np.errstate(invalid="ignore"):
        angle = np.nan_to_num(np.degrees(np.arccos((x * y).sum(0) / (norms + EPSILON))))
    counted = valid_mask.any(0)
    return Average(np.asarray(angle[counted].sum()), np.asarray(counted.sum(), np.float64))


def similarity(
    estimate: Unit, truth: Unit, valid_mask: ValidMask, weights: tuple[float, ...], unbiased: float
) -> Average:
    """SSIM and UIQI of each pixel whose window has no hole: (2, bands)."""
    taps = np.array(weights)
    x, y = _blurred(estimate, taps), _blurred(truth, taps)
    xx, yy, xy = (
        unbiased * (_blurred(a * b, taps) - mean)
        for a, b, mean in ((estimate, estimate, x * x), (truth, truth, y * y), (estimate, truth, x * y))
    )
    light, contrast = x * x + y * y, xx + yy
    c1, c2 = 0.01**2, 0.03**2
    ssim = (2 * x * y + c1) * (2 * xy + c2) / ((light + c1) * (contrast + c2))
    # Wang and Bovik: of a flat window only the brightness counts, and a black one scores 1.
    flat = contrast <= 1e-13 * light  # flat to the precision of float32
    brightness = np.divide(2 * x * y, light, out=np.ones_like(light), where=light > 0)
    uiqi = brightness * np.divide(2 * xy, contrast, out=np.ones_like(light), where=~flat)
    whole = (
        np.ones_like(x, np.bool_) if valid_mask.all() else _blurred(valid_mask.astype(np.float64), taps) > 1 - 1e-9
    )
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


def ratio(numerator: Values, denominator: Values) -> Values:
    """The ratio; NaN where the denominator is not positive."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.asarray(np.divide(numerator, denominator, out=np.full(shape, np.nan), where=denominator > 0))


def decibels(mse: Values) -> Values:
    """The PSNR of mean squared errors, for a range of 1; infinite for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10 * np.log10(mse))
