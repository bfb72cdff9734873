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

Pixels of the same uncertainty have no order among themselves: each counts as their mean. `Pool` does the same for
single values, of a band or of all bands in one order, and takes those that differ by less than 0.3 % for the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10
STEPS = 100  # points of a sparsification curve, one for each percent

Values = NDArray[np.float64]
Places = NDArray[np.intp]  # the bin of each value


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
        said, observed = Ranked.of(uncertainty), Ranked.of(squares)
        expected = (
            np.bincount(said.group, observed.values) / said.sizes
        )  # equally uncertain pixels count as their mean
        curve = _rmse_curve(np.repeat(expected, said.sizes))
        return cls(curve, _rmse_curve(observed.values[observed.order]), float(np.sqrt(observed.values.mean())))

    @property
    def ause(self) -> float:
        return float((self.curve - self.oracle).mean())

    @property
    def aurg(self) -> float:
        return float((self.random - self.curve).mean())

    @property
    def ause_to_random(self) -> float:
        """AUSE relative to that of a random order; NaN if all errors are equal, so that no order is better."""
        chance = float((self.random - self.oracle).mean())
        return self.ause / chance if chance > 1e-12 else math.nan


@dataclass(frozen=True)
class Pool:
    """Values of any number of bands in narrow bins, by uncertainty and by error.

    The values in a bin count as their mean; otherwise all is exact, in a tenth of the time of ordering them.
    """

    PER_OCTAVE, LOWEST, OCTAVES = 256, -40, 60

    counts: Values  # (2, bins): of the values, in bins by uncertainty and by error
    squares: Values  # (2, bins): sums of their squared errors
    variances: Values  # (bins,): sums of their squared uncertainties, in bins by uncertainty

    @classmethod
    def of(cls, said: Places, variances: Values, observed: Places, squares: Values) -> Pool:
        """Values with their squared uncertainties and errors, and the `bins_by_root` of both."""
        size = cls.PER_OCTAVE * cls.OCTAVES
        counts = [np.bincount(places, minlength=size) for places in (said, observed)]
        sums = [np.bincount(places, squares, size) for places in (said, observed)]
        return cls(*(np.asarray(part, np.float64) for part in (counts, sums, np.bincount(said, variances, size))))

    @classmethod
    def bins_by_root(cls, squares: Values) -> Places:
        """The bin of the square root of each number."""
        with np.errstate(divide="ignore"):
            places = np.log2(squares)
        places *= cls.PER_OCTAVE / 2
        places -= cls.PER_OCTAVE * cls.LOWEST
        return places.clip(0, cls.PER_OCTAVE * cls.OCTAVES - 1).astype(np.intp)

    def __add__(self, other: Pool) -> Pool:
        return Pool(self.counts + other.counts, self.squares + other.squares, self.variances + other.variances)

    def sparsification(self) -> Sparsification:
        count, total = int(self.counts[0].sum()), self.squares[0].sum()
        left = count - np.arange(STEPS) * count // STEPS
        curve, oracle = (
            np.sqrt(_sums_of_first(left, counts, squares) / left)
            for counts, squares in zip(self.counts, self.squares, strict=True)
        )
        return Sparsification(curve, oracle, math.sqrt(total / count))

    def ence(self) -> float:
        each, more = divmod(int(self.counts[0].sum()), BINS)
        ends = np.cumsum([0, *(each + (i < more) for i in range(BINS if each else more))])
        said, observed = (
            np.sqrt(np.diff(_sums_of_first(ends, self.counts[0], sums)) / np.diff(ends))
            for sums in (self.variances, self.squares[0])
        )
        return _ence(said, observed)

    def spearman(self, said: Places, observed: Places) -> float:
        """The rank correlation of the values with these bins, which must be all that are in the pool."""
        ranks, observed_ranks = (np.cumsum(counts) - (counts + self.counts[0].sum()) / 2 for counts in self.counts)
        lengths = math.sqrt(float(self.counts[0] @ ranks**2) * float(self.counts[1] @ observed_ranks**2))
        return float(ranks[said] @ observed_ranks[observed]) / lengths if lengths > 0 else math.nan


def _sums_of_first(numbers: NDArray[np.intp], counts: Values, sums: Values) -> Values:
    """The sum over the first so many values, given counts and sums of bins."""
    return np.asarray(np.interp(numbers, np.append(0, np.cumsum(counts)), np.append(0, np.cumsum(sums))))


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
    return _ence(*bins_of(uncertainty, squares))


def _ence(said: Values, observed: Values) -> float:
    return float(np.mean(np.abs(observed - said) / said)) if (said > 0).all() else math.nan


def spearman(first: Values | Ranked, second: Values | Ranked) -> float:
    """The correlation of ranks; NaN where one of the two is constant."""
    x, y = (ranks - ranks.mean() for ranks in (Ranked.of(values).ranks() for values in (first, second)))
    lengths = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / lengths if lengths > 0 else math.nan
