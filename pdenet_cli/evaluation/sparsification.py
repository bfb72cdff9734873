"""How well an uncertainty orders and measures errors: numbers that the field compares maps by.

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
STEPS = 100  # of the curves: percents

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """Some values with their order, found once: every measure needs it, and sorting is most of their work."""

    values: Values
    order: NDArray[np.intp]  # of rising values; alike ones keep theirs
    group: NDArray[np.intp]  # for each value: how many different ones are below it
    sizes: NDArray[np.intp]  # of the groups

    @classmethod
    def of(cls, values: Values | Ranked) -> Ranked:
        """The values with their order; as they are if they have it already."""
        if isinstance(values, Ranked):
            return values
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        # As a stable argsort, in a third of its time.
        order = np.sort(group * len(group) + np.arange(len(group))) % len(group)
        return cls(values, order, group, sizes)

    def ranks(self) -> Values:
        """Ranks from 0, alike for alike values: the mean of the places they take."""
        return np.asarray((np.cumsum(self.sizes) - (self.sizes + 1) / 2)[self.group])


@dataclass(frozen=True)
class Sparsification:
    """The RMSE of the pixels that are left when the first k % are left out, k = 0..99."""

    curve: Values  # the most uncertain first
    oracle: Values  # the largest error first
    random: float  # any

    @classmethod
    def of(cls, uncertainty: Values | Ranked, squares: Values | Ranked) -> Sparsification:
        """The curves of some pixels with an uncertainty and a squared error."""
        said, met = Ranked.of(uncertainty), Ranked.of(squares)
        expected = np.bincount(said.group, met.values) / said.sizes  # what a pixel of the same uncertainty has
        curve = _left(np.repeat(expected, said.sizes))
        return cls(curve, _left(met.values[met.order]), float(np.sqrt(met.values.mean())))

    @property
    def ause(self) -> float:
        return float((self.curve - self.oracle).mean())

    @property
    def aurg(self) -> float:
        return float((self.random - self.curve).mean())

    @property
    def share(self) -> float:
        """AUSE beside that of chance; NaN where all errors are alike and no order is better than another."""
        chance = float((self.random - self.oracle).mean())
        return self.ause / chance if chance > 1e-12 else math.nan


class Pool:
    """Values of any number of bands, counted in fine bins of their logarithms and not kept.

    A bin is 1 % wide, and the values in it count as their mean: the curves are exact but for that.
    """

    PER_OCTAVE, LOWEST, OCTAVES = 64, -40, 60

    def __init__(self) -> None:
        # How many values, and the sum of their squares: by uncertainty, by error.
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


def _left(squares: Values) -> Values:
    """The RMSE of what is left of pixels in rising order when k % at the end are left out."""
    count = len(squares)
    left = count - np.arange(STEPS) * count // STEPS
    return np.sqrt(np.cumsum(squares)[left - 1] / left)


def bins_of(uncertainty: Values | Ranked, squares: Values) -> tuple[Values, Values]:
    """The root mean square uncertainty and error of bins of equally many pixels, the surest first."""
    said = Ranked.of(uncertainty)
    parts = [part for part in np.array_split(said.order, BINS) if len(part)]
    rms = [(math.sqrt(np.mean(said.values[part] ** 2)), math.sqrt(squares[part].mean())) for part in parts]
    return np.array([u for u, _ in rms]), np.array([e for _, e in rms])


def ence(uncertainty: Values | Ranked, squares: Values) -> float:
    """The expected normalised calibration error; NaN where a bin is without any uncertainty."""
    said, met = bins_of(uncertainty, squares)
    return float(np.mean(np.abs(met - said) / said)) if (said > 0).all() else math.nan


def spearman(first: Values | Ranked, second: Values | Ranked) -> float:
    """The correlation of ranks; NaN where one of the two is constant."""
    one, other = (ranks - ranks.mean() for ranks in (Ranked.of(values).ranks() for values in (first, second)))
    lengths = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / lengths if lengths > 0 else math.nan
