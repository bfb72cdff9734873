"""How well an uncertainty ranks errors and predicts their size.

| measure     | formula                                                                                          |
|-------------|--------------------------------------------------------------------------------------------------|
| AUSE        | mean over k = 0..99 of C(k) - O(k): C(k) the RMSE without the k % most uncertain pixels, O(k)     |
|             | without the k % of the largest errors                                                            |
| AURG        | mean over k of R - C(k): R the RMSE of all, as of any part that chance leaves                     |
| AUSE/random | AUSE divided by that of a random order, the mean of R - O(k): 0 is the best order, 1 is no order  |
| Spearman    | rank correlation of uncertainty and error                                                        |
| ENCE        | mean over 10 bins of equally many pixels of abs(RMSE - RMU) / RMU, RMU the root mean square       |
|             | uncertainty of the bin                                                                           |

Pixels of the same uncertainty have no order among themselves: each counts as their mean. `Pool` does the same with
single values, all bands of a scene in one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10
STEPS = 100  # points of a sparsification curve, one for each percent

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """Values with their order, which several measures need and which is most of their work."""

    values: Values
    order: NDArray[np.intp]  # a stable argsort
    group: NDArray[np.intp]  # for each value, how many different values are smaller
    sizes: NDArray[np.intp]  # how many values are in each group of equal ones

    @classmethod
    def of(cls, values: Values | Ranked) -> Ranked:
        """The values with their order, which may be known already."""
        if isinstance(values, Ranked):
            return values
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        # Equals a stable argsort and takes a third of the time.
        order = np.sort(group * len(group) + np.arange(len(group))) % len(group)
        return cls(values, order, group, sizes)

    def ranks(self) -> Values:
        """Ranks from 0; equal values share the mean of their ranks."""
        return np.asarray((np.cumsum(self.sizes) - (self.sizes + 1) / 2)[self.group])


@dataclass(frozen=True)
class Sparsification:
    """The RMSE of the remaining pixels when the first k % are discarded, k = 0..99."""

    curve: Values  # the most uncertain are discarded first
    oracle: Values  # the largest errors are discarded first
    random: float  # in random order: the same for every k

    @classmethod
    def of(cls, uncertainty: Values | Ranked, squares: Values | Ranked) -> Sparsification:
        """The curves of pixels with an uncertainty and a squared error each."""
        said, met = Ranked.of(uncertainty), Ranked.of(squares)
        expected = np.bincount(said.group, met.values) / said.sizes  # equally uncertain pixels count as their mean
        curve = _rmse_curve(np.repeat(expected, said.sizes))
        return cls(curve, _rmse_curve(met.values[met.order]), float(np.sqrt(met.values.mean())))

    @property
    def ause(self) -> float:
        return float((self.curve - self.oracle).mean())

    @property
    def aurg(self) -> float:
        return float((self.random - self.curve).mean())

    @property
    def share(self) -> float:
        """AUSE relative to that of a random order; NaN if all errors are equal, so that no order is better."""
        chance = float((self.random - self.oracle).mean())
        return self.ause / chance if chance > 1e-12 else math.nan


class Pool:
    """Histograms of the values of any number of bands, in bins 1 % wide.

    The values in a bin count as their mean; otherwise the curves are exact.
    """

    PER_OCTAVE, LOWEST, OCTAVES = 64, -40, 60

    def __init__(self) -> None:
        # Number of values and sum of their squared errors, in bins by uncertainty and by error.
        self.counts, self.sums = np.zeros((2, 2, self.OCTAVES * self.PER_OCTAVE))

    def add(self, uncertainty: Values, squares: Values) -> None:
        for i, size in enumerate((uncertainty, np.sqrt(squares))):
            with np.errstate(divide="ignore"):
                octave = np.log2(size).clip(self.LOWEST, self.LOWEST + self.OCTAVES) - self.LOWEST
            bins = np.minimum((octave * self.PER_OCTAVE).astype(np.intp), self.counts.shape[1] - 1)
            self.counts[i] += np.bincount(bins, minlength=self.counts.shape[1])
            self.sums[i] += np.bincount(bins, squares, minlength=self.counts.shape[1])

    def finished(self) -> Sparsification:
        count, total = self.counts[0].sum(), self.sums[0].sum()
        left = count * (1 - np.arange(STEPS) / STEPS)
        curve, oracle = (
            np.sqrt(np.interp(left, np.append(0, np.cumsum(counts)), np.append(0, np.cumsum(sums))) / left)
            for counts, sums in zip(self.counts, self.sums, strict=True)
        )
        return Sparsification(curve, oracle, math.sqrt(total / count))


def _rmse_curve(squares: Values) -> Values:
    """The RMSE of pixels in rising order without the last k %, for every k."""
    count = len(squares)
    left = count - np.arange(STEPS) * count // STEPS
    return np.sqrt(np.cumsum(squares)[left - 1] / left)


def bins_of(uncertainty: Values | Ranked, squares: Values) -> tuple[Values, Values]:
    """The root mean square uncertainty and error in bins of equally many pixels, the most certain first."""
    said = Ranked.of(uncertainty)
    parts = [part for part in np.array_split(said.order, BINS) if len(part)]
    rms = [(math.sqrt(np.mean(said.values[part] ** 2)), math.sqrt(squares[part].mean())) for part in parts]
    return np.array([u for u, _ in rms]), np.array([e for _, e in rms])


def ence(uncertainty: Values | Ranked, squares: Values) -> float:
    """The expected normalised calibration error; NaN if a bin has no uncertainty."""
    said, met = bins_of(uncertainty, squares)
    return float(np.mean(np.abs(met - said) / said)) if (said > 0).all() else math.nan


def spearman(first: Values | Ranked, second: Values | Ranked) -> float:
    """The correlation of ranks; NaN where one of the two is constant."""
    one, other = (ranks - ranks.mean() for ranks in (Ranked.of(values).ranks() for values in (first, second)))
    lengths = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / lengths if lengths > 0 else math.nan
