"""Errors and what was said of them, value by value: those of a band, or of pixels merged over the bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdenet_cli.evaluation.estimate_maps import BandMaps, ValidMask
from pdenet_cli.evaluation.measures import mean_of_known
from pdenet_cli.evaluation.sparsification import Ranked, Sparsification, Values

Factors = tuple[Sequence[float], Sequence[float] | None]  # of each stratum: at the level, and at one sigma


@dataclass(frozen=True)
class ErrorValues:
    """Squared errors and uncertainties of the values of a band, or of pixels merged over the bands."""

    squares: Values  # of the errors
    variances: Values  # of the samples
    half_widths: Values | None = None  # squares of the half widths at one sigma
    coverage: float = math.nan
    width: float = math.nan

    @cached_property
    def errors(self) -> Ranked:
        return Ranked.of(self.squares)

    @cached_property
    def uncertainties(self) -> dict[str, Ranked]:
        """The standard deviation of the samples and, if there is an interval, its half width at one sigma."""
        both = {"std": self.variances, "interval": self.half_widths}
        return {name: Ranked.of(np.sqrt(squares)) for name, squares in both.items() if squares is not None}

    def sparsification(self, name: str) -> Sparsification:
        return Sparsification.of(self.uncertainties[name], self.errors)

    @classmethod
    def of(cls, part: BandMaps, factors: Factors | None) -> ErrorValues:
        """Those of a band, where there is data; without factors there is no interval."""
        valid_mask = part.valid_mask
        error, std = part.error[valid_mask].astype(np.float64), part.std[valid_mask].astype(np.float64)
        if factors is None:
            return cls(error**2, std**2)
        nominal, sigma = (
            None if factor is None else np.asarray(factor)[part.stratum[valid_mask]] * part.spread[valid_mask]
            for factor in factors
        )
        assert nominal is not None
        half_widths = None if sigma is None else np.asarray(sigma, np.float64) ** 2
        coverage, width = mean_of_known(np.abs(error) <= nominal), mean_of_known(2 * nominal)
        return cls(error**2, std**2, half_widths, coverage, width)


class MergedPixels:
    """Sums over the bands of each pixel."""

    def __init__(self, pixels: int) -> None:
        self.count = np.zeros(pixels, np.int64)
        self.sums: dict[str, Values] = {}

    def add(self, valid_mask: ValidMask, band: ErrorValues) -> None:
        """Add a band, whose values lie `there`."""
        places = np.flatnonzero(valid_mask)
        self.count[places] += 1
        for name in ("squares", "variances", "half_widths"):
            if (values := getattr(band, name)) is not None:
                self.sums.setdefault(name, np.zeros(len(self.count)))[places] += values

    def finished(self) -> ErrorValues:
        """The means over the bands that were added, of the pixels that any of them has."""
        counted = self.count > 0
        squares = {name: sums[counted] / self.count[counted] for name, sums in self.sums.items()}
        return ErrorValues(squares["squares"], squares["variances"], squares.get("half_widths"))
