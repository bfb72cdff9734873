"""An estimate beside a cube of another sensor: laid on it, matched band by band, and what then is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.registration import Plane, Registration, fitted, registered
from pdenet_cli.evaluation.view import View
from pdenet_cli.evaluation.without_truth import Angle, rms
from pdenet_cli.scene.meta import CubeMeta

MOST_REGISTERED = 8  # bands that the shift is measured in
NEAR = 1.0  # a band matches one whose centre is at most so many band distances away


@dataclass(frozen=True)
class Match:
    """A band of the reference and the bands of the estimate that see its light."""

    band: int  # of the reference
    bands: tuple[int, ...]  # of the estimate
    nm: float | None  # centre of the reference's band


@dataclass(frozen=True)
class Beside:
    """How one estimate compares with the reference after shift, gain and offset were taken out, band by band."""

    registration: Registration  # in pixels of the estimate
    gains: tuple[float, ...]  # reference = gain * estimate + offset, 0..1
    offsets: tuple[float, ...]
    remaining: tuple[float, ...]  # root mean square, 0..1
    correlations: tuple[float, ...]
    angle: float  # degrees between matched spectra


def matches(
    estimate: CubeMeta, reference: CubeMeta, bands: Sequence[int], others: Sequence[int]
) -> tuple[Match, ...]:
    """The bands that both cubes have: by wavelength, else by number where both have as many."""
    ours, theirs = estimate.wavelengths_nm, reference.wavelengths_nm
    if ours is None or theirs is None:
        if estimate.bands != reference.bands:
            found = f"{reference.bands} bands beside {estimate.bands}, and wavelengths are not known of both"
            raise UsageError(f"`reference`: {found}; bands cannot be matched.")
        return tuple(Match(band, (band,), None) for band in others if band in bands)
    apart = float(np.median(np.abs(np.diff(ours)))) if len(ours) > 1 else 10.0
    widths = reference.fwhm or (0.0,) * reference.bands
    unit = theirs[0] / (reference.wavelengths or (1.0,))[0] if theirs[0] else 1.0
    matched = []
    for band in others:
        centre, half = float(theirs[band]), max(float(widths[band]) * unit / 2, 0.0)
        near = [own for own in bands if abs(ours[own] - centre) <= half]
        closest = min(bands, key=lambda own: abs(ours[own] - centre))
        if not near and abs(ours[closest] - centre) <= NEAR * apart:
            near = [closest]
        if near:
            matched.append(Match(band, tuple(near), centre))
    if not matched:
        raise UsageError("`reference`: no band of it sees the light of a band of the estimate.")
    return tuple(matched)


def onto_grid(reference: View, band: int, grid: CubeMeta) -> Plane:
    """A band of the reference on the pixels of another grid: by place on the ground, else corner to corner."""
    place = _places(reference.cube.meta, grid)
    unit, known = reference.read(reference.scene, [band])
    image = np.where(known[0], unit[0], np.nan).astype(np.float64)
    blocks = [max(1, round(step)) for step in place.step]
    for axis, size in enumerate(blocks):  # of a finer reference, means over what a pixel of the grid covers
        image = _running_mean(image, size, axis)
    rows, columns = place.coordinates(grid.rows, grid.columns)
    # The mean over an even number of pixels lies half a pixel behind the first half of them.
    return _linear(image, rows - (1 - blocks[0] % 2) / 2, columns - (1 - blocks[1] % 2) / 2)


@dataclass(frozen=True)
class _Place:
    """Where pixels of a grid are in another cube: row = matrix of (row, column, 1)."""

    matrix: NDArray[np.float64]  # (2, 3)

    @property
    def step(self) -> tuple[float, float]:
        return float(np.hypot(*self.matrix[0, :2])), float(np.hypot(*self.matrix[1, :2]))

    def coordinates(self, rows: int, columns: int) -> tuple[Plane, Plane]:
        down, right = np.mgrid[:rows, :columns].astype(np.float64)
        r, c = (line[0] * down + line[1] * right + line[2] for line in self.matrix)
        return r, c


def _places(cube: CubeMeta, grid: CubeMeta) -> _Place:
    """Where the centres of the grid's pixels are among those of the cube."""
    ours, theirs = cube.georeference, grid.georeference
    if ours.transform is not None and theirs.transform is not None and ours.crs == theirs.crs:
        forward, back = _affine(theirs.transform), np.linalg.inv(_affine(ours.transform))
        half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # from a pixel's number to its centre
        chain = np.linalg.inv(half) @ back @ forward @ half  # of (column, row, 1)
        return _Place(np.array([[chain[1, 1], chain[1, 0], chain[1, 2]], [chain[0, 1], chain[0, 0], chain[0, 2]]]))
    steps = cube.rows / grid.rows, cube.columns / grid.columns
    starts = [step / 2 - 0.5 for step in steps]
    return _Place(np.array([[steps[0], 0, starts[0]], [0, steps[1], starts[1]]]))


def _affine(transform: Sequence[float]) -> NDArray[np.float64]:
    """GDAL's six numbers as a matrix from (column, row, 1) to (x, y, 1)."""
    x, by_column, by_row, y, down_column, down_row = transform
    return np.array([[by_column, by_row, x], [down_column, down_row, y], [0, 0, 1]])


def _running_mean(image: Plane, size: int, axis: int) -> Plane:
    """The mean of `size` pixels around each, one more after it where they are even; NaN where one has no data."""
    if size == 1:
        return image
    rolled = [np.roll(image, step - size // 2, axis) for step in range(size)]
    return np.asarray(np.mean(rolled, axis=0))


def _linear(image: Plane, rows: Plane, columns: Plane) -> Plane:
    """The image at these places, between its pixels linearly; NaN outside."""
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    inside = (rows >= 0) & (columns >= 0) & (rows <= image.shape[0] - 1) & (columns <= image.shape[1] - 1)
    down, right = rows - top, columns - left
    total = np.zeros(rows.shape)
    for r, share in ((0, 1 - down), (1, down)):
        for c, part in ((0, 1 - right), (1, right)):
            weight = share * part
            value = image[(top + r).clip(0, image.shape[0] - 1), (left + c).clip(0, image.shape[1] - 1)]
            total += np.where(weight > 0, weight * value, 0.0)
    return np.where(inside, total, np.nan)


def beside(planes: Sequence[Plane], references: Sequence[Plane]) -> Beside:
    """Matched bands of an estimate beside those of the reference, on one grid."""
    some = np.unique(np.linspace(0, len(planes) - 1, min(len(planes), MOST_REGISTERED)).round().astype(int))
    lies = registered([planes[i] for i in some], [references[i] for i in some])
    if lies is None:
        raise UsageError("`reference`: the two cubes have too little in common to be laid on one another.")
    gains, offsets, remaining, correlations = (np.full(len(planes), np.nan) for _ in range(4))
    angle = Angle()
    for i, (one, other) in enumerate(zip(planes, references, strict=True)):
        fit = fitted(one, other, lies.down, lies.right, blurring=False)
        if fit is None:
            continue
        gains[i], offsets[i], remaining[i] = fit.gain, fit.offset, rms(fit.residual)
        known = np.isfinite(fit.residual)
        spread = float(other[known].std())
        correlations[i] = np.sqrt(max(0.0, 1 - (remaining[i] / spread) ** 2)) if spread else np.nan
        angle.add(other, np.where(known, other - fit.residual, np.nan))
    return Beside(
        registration=lies,
        gains=tuple(gains.tolist()),
        offsets=tuple(offsets.tolist()),
        remaining=tuple(remaining.tolist()),
        correlations=tuple(correlations.tolist()),
        angle=angle.mean(),
    )
