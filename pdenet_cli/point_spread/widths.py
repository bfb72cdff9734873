"""The width of a point spread from the widths of many edges, and how sure it is.

Edges on the ground are never sharper than the instrument, often softer: shadows, banks, balding fields. So the
point spread is not their mean but the narrowest width at which edges crowd. The interval is of a bootstrap that
draws places, not edges, because neighbours on one border err together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation
from pdenet_cli.point_spread.edges import FWHM, REACH, Array, Edges, erf

MISFIT = 0.05  # of the height: what fits worse is no straight edge
DOUBT = 0.1  # largest standard error of the logarithm of a width
RAMP = 0.03  # largest steepness of the ground beside an edge, share of its height a pixel
LEAN = 0.8  # pixels across for a pixel along: an edge within 39° of its direction
NARROWEST, WIDEST = 0.3, 3.4  # FWHM in pixels; beyond, a fit says nothing
CROWD = 0.08  # width of the crowd that is looked for, in logarithms
SHARE = 0.4  # of the largest crowd, which a narrower one must reach
FLOOR = 0.03  # standard error that every edge has at least
PLACE = 6  # pixels on a side of the squares whose edges count as one place
LEAST_PLACES = 4  # of the crowd
MOST_SPREAD = 0.15  # of the interval, as a share of the width
DRAWS = 200  # of the bootstrap
LEVEL = 0.8  # of the interval
FINE = 64  # pixels that a pixel is cut into, to tell the shape of its edge


@dataclass(frozen=True)
class Width:
    """The FWHM of the Gaussian that a point spread looks like in one direction, in pixels of the scene."""

    fwhm: float
    low: float  # the interval of the bootstrap
    high: float
    edges: int  # that crowd there
    places: int  # where they are: squares of a few pixels

    @property
    def sure(self) -> bool:
        """Whether there are enough edges in enough places, and they agree."""
        return self.places >= LEAST_PLACES and self.high - self.low <= MOST_SPREAD * self.fwhm


def straight(edges: Edges) -> NDArray[np.bool_]:
    """Which of the edges are straight, isolated steps."""
    fwhm = FWHM * edges.sigma
    fits = (edges.misfit < MISFIT) & (edges.doubt < DOUBT) & (edges.ramp < RAMP) & (np.abs(edges.tangent) < LEAN)
    return fits & (fwhm > NARROWEST) & (fwhm < WIDEST) & (edges.height > 0)


def width_of(edges: Edges, other: float | None = None) -> tuple[Width | None, NDArray[np.bool_]]:
    """The width across straight edges, None where there are too few to crowd; and which of them made it.

    `other` is the FWHM in the other direction, of which slanted edges see a part; None: the same.
    """
    none = np.zeros(len(edges), bool)
    if len(edges) < LEAST_PLACES:
        return None, none
    logs = np.log(FWHM * edges.sigma)
    if other is not None:
        cosine2 = 1 / (1 + edges.tangent**2)
        squares = (np.exp(2 * logs) - other**2 * (1 - cosine2)) / cosine2
        logs = np.log(squares.clip(NARROWEST**2)) / 2
    weights = 1 / (edges.doubt**2 + FLOOR**2)
    middle = _narrowest_crowd(logs, weights)
    chosen = np.abs(logs - middle) < 1.5 * CROWD
    _, places = np.unique(edges.places(PLACE), return_inverse=True)
    count = int(places.max()) + 1
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        times = np.bincount(rng.integers(count, size=count), minlength=count)[places]
        drawn.append(_narrowest_crowd(logs[times > 0], (weights * times)[times > 0]))
    low, high = np.percentile(drawn, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    found = Width(exp(middle), exp(low), exp(high), int(chosen.sum()), len(np.unique(places[chosen])))
    return found, chosen


def _narrowest_crowd(logs: Array, weights: Array) -> float:
    """The mean of the narrowest widths that crowd: a peak of their density, nearly as high as the highest."""
    grid = np.linspace(log(NARROWEST), log(WIDEST), 220)
    density = np.exp(-(((grid[:, None] - logs) / CROWD) ** 2) / 2) @ weights
    inner = density[1:-1]
    peaks = (inner >= density[:-2]) & (inner > density[2:]) & (inner > SHARE * density.max())
    first = grid[1 + int(np.argmax(peaks))] if peaks.any() else grid[int(np.argmax(density))]
    near = np.abs(logs - first) < 1.5 * CROWD
    return float(np.average(logs[near], weights=weights[near])) if near.any() else float(first)


def equivalent_fwhm(blur: Degradation) -> float:
    """The FWHM of the Gaussian whose edge is nearest to that of a degradation, in coarse pixels."""
    fine = replace(blur, scale=FINE)
    weights = fine.weights()[0].numpy()
    places = (np.arange(len(weights)) - (len(weights) - 1) / 2) / FINE
    distance = np.linspace(-REACH, REACH, 601)
    edge = (distance[:, None] > places) @ (weights / weights.sum())
    widths = np.linspace(NARROWEST, WIDEST, 400)
    misses = [(((1 + erf(distance * FWHM / width / sqrt(2))) / 2 - edge) ** 2).sum() for width in widths]
    return float(widths[int(np.argmin(misses))])
