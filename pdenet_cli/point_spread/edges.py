"""Straight edges in an image, each with the width of the Gaussian that has blurred it.

In a square around a steep pixel the image is fitted with an edge that was a step before it was blurred: levels,
a place, an angle, a width; a bend, and ground that rises or falls evenly on either side. All pixels of the square
so give one profile across the edge, sampled many times a pixel because the edge is slanted. What is no such edge
(a line, a corner, a texture, a shadow with a soft border) fits badly, or is steep on its sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

FWHM = 2 * sqrt(2 * log(2))  # of a Gaussian, in standard deviations
REACH = 3  # pixels on each side of the steepest pixel: the square that is fitted
APART = 3  # pixels across between two steepest pixels
STEPS = 14  # of the fit
START = 0.6  # standard deviation in pixels that a fit begins with
LIMITS = 0.08, 3.6  # standard deviations that a fit may try
LEAN = 1.5  # most pixels across for a pixel along
BEND = 0.08  # most that an edge may bend: pixels across for the square of a pixel along
LEVEL, HEIGHT, PLACE, TANGENT, LOG_SIGMA, TURN, DARK, BRIGHT = range(8)  # the parameters of a fit


@dataclass(frozen=True)
class Edges:
    """Edges that lie within 45° of the columns; arrays have an element for each."""

    rows: Numbers  # of the middle of each square
    columns: Numbers
    tangent: Array  # how far the edge moves across for each pixel along
    height: Array  # of the step, positive
    sigma: Array  # of the Gaussian, across the edge, in pixels
    doubt: Array  # standard error of the logarithm of sigma
    misfit: Array  # root mean square of what the fit leaves, as a share of the height
    ramp: Array  # steepness of the ground beside the edge, the larger of both sides: share of the height a pixel
    distance: Array  # (edges, pixels of the square) across the edge, towards the right
    values: Array  # (edges, pixels of the square): 0 on the left, 1 on the right

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls) -> Edges:
        """No edge."""
        nothing = np.zeros(0, np.int64)
        return fitted(np.zeros((1, 1)), nothing, nothing)

    @classmethod
    def joined(cls, every: Sequence[Edges]) -> Edges:
        """The edges of several images of one scene together."""
        parts = tuple(every) or (cls.none(),)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    def places(self, side: int) -> Numbers:
        """The number of the square of `side` pixels that each edge lies in."""
        return np.asarray((self.rows // side) * (1 << 32) + self.columns // side)

    def where(self, mask: NDArray[np.bool_]) -> Edges:
        """Those of the edges."""
        return Edges(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def erf(x: Array) -> Array:
    """The error function, to 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.sign(x) * (1 - series * np.exp(-(x**2))))


def steepest(image: Array, most: int, reach: int = REACH) -> tuple[Numbers, Numbers]:
    """Rows and columns of the pixels where an image changes most along its rows: at most `most`, apart."""
    slope, across = np.zeros_like(image), np.zeros_like(image)
    down, right = (side[:-2] + 2 * side[1:-1] + side[2:] for side in (image, image.T))
    slope[1:-1, 1:-1] = np.abs(down[:, 2:] - down[:, :-2])
    across[1:-1, 1:-1] = np.abs(right[:, 2:] - right[:, :-2]).T
    slope[~np.isfinite(slope)] = 0
    peak = np.zeros(image.shape, bool)
    peak[:, 1:-1] = (slope[:, 1:-1] >= slope[:, :-2]) & (slope[:, 1:-1] > slope[:, 2:])
    peak &= slope > across  # the edge is nearer to the columns than to the rows
    inner = (slice(reach, -reach), slice(reach, -reach))
    found = np.zeros(image.shape, bool)
    found[inner] = peak[inner]
    rows, columns = np.nonzero(found)
    taken = np.zeros(image.shape, bool)
    kept: list[int] = []
    for i in np.argsort(-slope[rows, columns], kind="stable"):
        row, column = rows[i], columns[i]
        if len(kept) == most:
            break
        if not taken[row, column]:
            taken[row - 1 : row + 2, column - APART : column + APART + 1] = True
            kept.append(int(i))
    return rows[kept], columns[kept]


def fitted(image: Array, rows: Numbers, columns: Numbers, reach: int = REACH) -> Edges:
    """The edge through each of these pixels; pixels near one without data, or where nothing varies, have none."""
    offsets = np.arange(-reach, reach + 1)
    down, right = (grid.ravel() for grid in np.meshgrid(offsets, offsets, indexing="ij"))
    pixels = image[rows[:, None] + down, columns[:, None] + right]  # (n, pixels)
    usable = np.isfinite(pixels).all(1) & (np.ptp(pixels, axis=1) > 0)
    pixels, rows, columns = pixels[usable], rows[usable], columns[usable]
    rising = pixels @ right >= 0
    size = np.ptp(pixels, axis=1)
    left = np.where(rising, pixels.min(1), pixels.max(1))
    unit = (pixels - left[:, None]) / np.where(rising, size, -size)[
        :, None
    ]  # from 0 on the left to 1 on the right
    along, across = down.astype(float), right.astype(float)
    found, error, doubt = _least_squares(_start(unit, reach), unit, along, across)
    _, height, place, tangent, logs, bend, dark, bright = found.T
    height = np.maximum(height, 1e-9)
    lean = tangent[:, None] + 2 * bend[:, None] * along
    run = across - place[:, None] - tangent[:, None] * along - bend[:, None] * along**2
    return Edges(
        rows=rows,
        columns=columns,
        tangent=tangent,
        height=height * size,
        sigma=np.exp(logs),
        doubt=doubt,
        misfit=error / height,
        ramp=np.maximum(np.abs(dark), np.abs(bright)) / height,
        distance=run / np.sqrt(1 + lean**2),
        values=(unit - found[:, :1]) / height[:, None],
    )


def _start(unit: Array, reach: int) -> Array:
    """Parameters to begin with: the line through the rises of each row."""
    side = 2 * reach + 1
    rise = np.diff(unit.reshape(-1, side, side), axis=2).clip(0, None) ** 2
    weight = rise.sum(2) + 1e-12
    centre = (rise @ (np.arange(-reach, reach) + 0.5)) / weight
    rows, total = np.arange(-reach, reach + 1), weight.sum(1)
    mean_row, mean_centre = (weight @ rows) / total, (weight * centre).sum(1) / total
    away = rows - mean_row[:, None]
    tangent = (weight * away * (centre - mean_centre[:, None])).sum(1) / ((weight * away**2).sum(1) + 1e-12)
    tangent = tangent.clip(-1, 1)
    found = np.zeros((len(unit), 8))
    found[:, HEIGHT], found[:, PLACE] = 1, mean_centre - tangent * mean_row
    found[:, TANGENT], found[:, LOG_SIGMA] = tangent, log(START)
    return found


def _least_squares(found: Array, unit: Array, along: Array, across: Array) -> tuple[Array, Array, Array]:
    """Levenberg and Marquardt's fit of every square at once: parameters, root mean square of what is left, and the
    standard error of the logarithm of sigma.
    """
    count, pixels = unit.shape
    damping, error, tried = np.full(count, 1e-2), np.full(count, np.inf), found
    residual, jacobian = np.zeros_like(unit), np.zeros((count, pixels, 8))
    low, high = np.full(8, -np.inf), np.full(8, np.inf)
    reach = across.max(initial=0)
    for parameter, limit in ((PLACE, reach), (TANGENT, LEAN), (TURN, BEND)):
        low[parameter], high[parameter] = -limit, limit
    low[LOG_SIGMA], high[LOG_SIGMA] = (log(limit) for limit in LIMITS)
    for _ in range(STEPS):
        left, slopes = _model(tried, unit, along, across)
        now = (left**2).mean(1)
        better = now < error
        found = np.where(better[:, None], tried, found)
        error[better], residual[better], jacobian[better] = now[better], left[better], slopes[better]
        damping = np.where(better, damping / 4, damping * 6).clip(1e-7, 1e3)
        normal = np.matmul(jacobian.swapaxes(1, 2), jacobian)
        diagonal = np.einsum("nii->ni", normal)
        damped = normal + np.einsum("ni,ij->nij", damping[:, None] * diagonal + 1e-9, np.eye(8))
        step = np.linalg.solve(damped, np.matmul(residual[:, None], jacobian).swapaxes(1, 2))[..., 0]
        tried = (found - step).clip(low, high)
    normal = np.matmul(jacobian.swapaxes(1, 2), jacobian) + 1e-9 * np.eye(8)
    variance = np.linalg.inv(normal)[:, LOG_SIGMA, LOG_SIGMA] * error * pixels / (pixels - 8)
    return found, np.sqrt(error), np.sqrt(np.maximum(variance, 0))


def _model(found: Array, unit: Array, along: Array, across: Array) -> tuple[Array, Array]:
    """What edges of these parameters miss, and how that changes with each of them: (n, pixels), (n, pixels, 8)."""
    level, height, place, tangent, logs, bend, dark, bright = (column[:, None] for column in found.T)
    lean = tangent + 2 * bend * along  # of the edge at each row
    sigma, cosine = np.exp(logs), 1 / np.sqrt(1 + lean**2)
    run = across - place - tangent * along - bend * along**2
    x = run * cosine / sigma
    rise, density = (1 + erf(x / sqrt(2))) / 2, np.exp(-(x**2) / 2) / sqrt(2 * pi)
    far = sigma * (x * rise + density)  # the distance from the edge on its bright side, 0 on the dark one
    near = sigma * (x * (1 - rise) - density)
    steep = height * density / sigma + dark * (1 - rise) + bright * rise  # the change with the distance
    by_width = -height * density * x + (bright - dark) * sigma * density
    turn = run * lean * cosine**3  # what a change of the lean does to the distance
    by_tangent, by_bend = steep * (-along * cosine - turn), steep * (-(along**2) * cosine - 2 * along * turn)
    parts = (np.ones_like(rise), rise, -steep * cosine, by_tangent, by_width, by_bend, near, far)
    return level + height * rise + dark * near + bright * far - unit, np.stack(parts, -1)
