"""Errors relative to their spread, counted: what intervals of any width would hold, without the pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.uncertainty.evidence import Map
from pdenet_cli.uncertainty.spread import STRATA, Strata

# Bin edges of error / spread, less than 1 % apart.
RATIOS: NDArray[np.float64] = np.geomspace(1e-4, 1e4, 2001)


@dataclass(frozen=True)
class ErrorRatios:
    """A histogram of error / spread in one scene, by stratum; those of parts of a scene add up exactly."""

    counts: NDArray[np.int64]  # (strata, len(RATIOS) + 1): values in each bin; the last is beyond all RATIOS
    spreads: NDArray[np.float64]  # (strata,): the sum of the spreads

    @classmethod
    def of(cls, error: Map, spread: Map, stratum: Strata, valid_mask: NDArray[np.bool_]) -> Self:
        """Those where there is data."""
        strata = stratum[valid_mask]
        ratio = np.abs(error[valid_mask], dtype=np.float64) / spread[valid_mask]
        bins = len(RATIOS) + 1
        # side="left": an error of exactly that ratio is inside the interval.
        places = strata * bins + np.searchsorted(RATIOS, ratio, side="left")
        counts = np.bincount(places, minlength=len(STRATA) * bins).reshape(len(STRATA), bins)
        spreads = np.bincount(strata, spread[valid_mask], len(STRATA)).astype(np.float64)
        return cls(counts, spreads)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.counts + other.counts, self.spreads + other.spreads)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """How many values are in each stratum."""
        return np.asarray(self.counts.sum(1))

    def missed(self) -> NDArray[np.float64]:
        """The share of each stratum outside the interval at each ratio, (strata, len(RATIOS)); NaN if empty."""
        inside = self.counts.cumsum(1)[:, :-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(1 - inside / self.pixels[:, None])

    def coverage(self, factors: Sequence[float]) -> float:
        """The share of the scene inside the intervals with these factors, one for each stratum."""
        places = np.searchsorted(RATIOS, np.asarray(factors) * (1 + 1e-9), side="right")
        inside = [self.counts[i, :place].sum() for i, place in enumerate(places)]
        return float(sum(inside) / self.pixels.sum())

    def width(self, factors: Sequence[float]) -> float:
        """The mean width of those intervals, 0..1."""
        return float(2 * np.dot(factors, self.spreads) / self.pixels.sum())
