"""Many bands seen as few mixtures: what a network sees of a cube with dozens or hundreds of bands.

Neighbouring bands show nearly the same picture. A network that sharpens each of them does the same work again and
again, each time with the noise of one band. Here it sharpens K mixtures, overlapping sums of neighbouring bands.
The detail that it finds goes to every band in the proportions in which the scene itself, at the resolution that it
has, shows the detail of that band beside the detail of the mixtures:

    fine(b) = even(b) + sum over k of unmix(b, k) · detail(k)

- even(b): band b enlarged by bicubic interpolation and brought into agreement with the input;
- detail(k): what the network adds to mixture k beyond that, as far as the input could not show it.

What only band b shows is kept, but for the part of it that looks like noise: texture that does not go on from a
pixel to its neighbour (`kept`), and no more of it than noise would have (`noise`): a pixel that stands out stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.degradation import Degradation, bicubic_up, symmetric_pad
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.reading import read_unit
from pdenet_cli.scene.window import Window

BANDS_EACH = 3  # a cube with fewer bands per mixture than this is not mixed: little would be gained
UP_REACH = 2  # pixels on each side that bicubic interpolation depends on
WIDTH = 1.5  # how far a mixture reaches to both sides, in distances between mixtures
LEVEL = 0.3  # mean of every mixture, 0..1: a network expects the brightness of an ordinary scene
DARKEST = 1e-6  # the least brightness of the bands of a mixture
RIDGE = 0.02  # of the regression of bands on mixtures, relative to the mean variance of the mixtures
PATCH = 8  # side of the patches that a scene is known by
MOST_PATCHES = (24, 32)  # along rows and columns; 28,000 pixels tell how the bands of a scene are related
BLOCK_VALUES = 1 << 25  # values read at once, unless one row of blocks of the file has more
WHITE = -0.4  # correlation of `_texture` in neighbouring pixels where it is white noise
WHITE_VARIANCE = 1.25  # variance of `_texture` of white noise of variance 1
TAIL = 95  # percentile of a band's absolute values, ...
BEYOND = 4  # ... and how many times it a value may be, lest a few hot pixels tell how the bands are related
BRIGHTEST = 99.9  # percentile of a band's absolute values; in mixtures, none is more than BEYOND times it
KNOWN_BANDS = 0.9  # of the bands must have data where it is seen how they are related; the others are filled in
OUTSTANDING = 2.5  # standard deviations of the noise; what differs more from its surroundings is no noise

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Mixtures:
    """How the bands of a scene become mixtures, and how the detail of mixtures becomes that of bands."""

    mix: Array  # (mixtures, bands)
    most: Array  # (bands,): the largest absolute value that counts in mixtures, lest a hot pixel spoil all bands
    unmix: Array  # (bands, mixtures)
    kept: Array  # (bands,): share of the texture that only this band shows which is not noise, 0..1
    noise: Array  # (bands,): standard deviation of the texture that only this band shows

    @classmethod
    def of(cls, cube: Cube, bands: Sequence[int], radiometry: Radiometry, count: int) -> Self | None:
        """`count` mixtures of some bands of a scene.

        None if they would be of no use: too few bands, or too few pixels to know how the bands are related.
        """
        if not enough_bands(len(bands), count):
            return None
        patches, valid_mask = _patches(cube, bands, radiometry)
        texture = _texture(patches)
        known = _known(valid_mask)  # (patches, rows, columns)
        if np.count_nonzero(known) < len(bands) + 4 * count:
            return None
        texture = _tamed(texture, np.broadcast_to(known, texture.shape))
        most = BEYOND * np.array(
            [_percentile(band[residual], BRIGHTEST) for band, residual in zip(patches, valid_mask, strict=True)]
        )
        counts = np.count_nonzero(valid_mask, (1, 2, 3))
        sums = np.abs(_tamed(patches, valid_mask)).sum((1, 2, 3), np.float64, where=valid_mask)
        mix = overlapping_sums(sums / np.maximum(counts, 1), count)
        same, beside = _covariances(texture, known)
        of_mixtures = mix @ same @ mix.T
        ridge = RIDGE * np.trace(of_mixtures) / count + np.finfo(float).tiny
        unmix = np.linalg.solve(of_mixtures + ridge * np.eye(count), mix @ same).T
        residual = np.eye(len(bands)) - unmix @ mix  # a band minus what the mixtures tell of it
        variance, covariance = (np.einsum("ij,jk,ik->i", residual, c, residual) for c in (same, beside))
        correlation = covariance / np.maximum(variance, np.finfo(float).tiny)
        kept = np.clip((correlation - WHITE) / -WHITE, 0, 1)
        noise = np.sqrt(np.maximum(variance, 0) / WHITE_VARIANCE)
        return cls(*(np.ascontiguousarray(part, np.float32) for part in (mix, most, unmix, kept, noise)))

    def __len__(self) -> int:
        return len(self.mix)

    def mixed(self, unit: Array, bands: slice = slice(None)) -> Array:
        """The share of some bands, (bands, rows, columns), in the mixtures; the shares of all bands add up."""
        most = self.most[bands, None, None]
        return np.tensordot(self.mix[:, bands], unit.clip(-most, most), 1)

    def even(self, unit: Array, mixed: Array, bands: slice, degradation: Degradation) -> Tensor:
        """Some bands enlarged, without noise, so that `degradation` nearly gives the input again.

        At the sides, as many pixels as `even_margin` says are not exact unless the scene ends there.
        """
        with torch.inference_mode():
            low = torch.from_numpy(np.ascontiguousarray(unit))
            explained = torch.tensordot(torch.from_numpy(self.unmix[bands]), torch.from_numpy(mixed), 1)
            residual = low - explained
            residual -= F.avg_pool2d(symmetric_pad(residual[None], 1), 3, stride=1)[0]
            most = OUTSTANDING * torch.from_numpy(self.noise[bands])[:, None, None]
            noise = residual.clamp_(-most, most).mul_(1 - torch.from_numpy(self.kept[bands])[:, None, None])
            low = low - noise
            # up(x) + up(x - D(up(x))), D the degradation, in one step.
            return bicubic_up(2 * low - _enlarged_and_degraded(low, degradation), degradation.scale)


@dataclass(frozen=True)
class MixedSamples:
    """Samples of some bands, each computed when it is asked for: the even image plus detail of the mixtures."""

    even: Tensor  # (bands, rows, columns)
    details: Sequence[Tensor]  # of each sample, (mixtures, rows, columns)
    unmix: Tensor  # (bands, mixtures)

    def __len__(self) -> int:
        return len(self.details)

    def __iter__(self) -> Iterator[Array]:
        return map(self._with, self.details)

    def __getitem__(self, chosen: slice) -> Self:
        return replace(self, details=self.details[chosen])

    @property
    def total(self) -> float:
        """A sum that is finite only if every sample is."""
        return sum(float(part.sum(dtype=torch.float64)) for part in (self.even, *self.details))

    def mean(self) -> Array:
        """Their mean: that of their details, spread over the bands."""
        return self._with(self._mean_detail)

    def std(self) -> Array:
        """Their standard deviation, with N - 1; 0 for a single sample."""
        squares, deviation = torch.zeros_like(self.even), torch.empty_like(self.even)
        with torch.inference_mode():
            for detail in self.details:
                torch.mm(self.unmix, (detail - self._mean_detail).flatten(1), out=deviation.flatten(1))
                squares.addcmul_(deviation, deviation)
            return np.asarray(squares.div_(max(len(self) - 1, 1)).sqrt_().numpy())

    @cached_property
    def _mean_detail(self) -> Tensor:
        total = torch.zeros_like(self.details[0])
        for detail in self.details:
            total += detail
        return total / len(self)

    def cropped(self, rows: slice, columns: slice) -> Self:
        """The same samples of a part of the pixels."""
        even, *details = (part[:, rows, columns] for part in (self.even, *self.details))
        return replace(self, even=even.contiguous(), details=details)

    def _with(self, detail: Tensor) -> Array:
        with torch.inference_mode():
            pixels = torch.addmm(self.even.flatten(1), self.unmix, detail.flatten(1))
            return np.asarray(pixels.view_as(self.even).numpy())


def enough_bands(bands: int, count: int) -> bool:
    """Whether so many bands are worth being mixed to `count` mixtures."""
    return count > 0 and bands >= BANDS_EACH * count


def mixtures_seen(bands: int, count: int) -> int:
    """How many mixtures a network that may see `count` of them sees of so many bands; 0: it sees every band."""
    return count if enough_bands(bands, count) else 0


def overlapping_sums(brightness: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The weights of the bands in mixtures, (mixtures, bands): each mixture is as bright as LEVEL.

    A band counts the more, the nearer it is to the middle of a mixture. In a sum, dark bands, which are mostly
    noise, count for little.
    """
    places = (np.arange(len(brightness)) + 0.5) * count / len(brightness)
    weights = np.maximum(WIDTH - np.abs(places - (np.arange(count)[:, None] + 0.5)), 0)
    return weights * (LEVEL / np.maximum(weights @ brightness, DARKEST))[:, None]


def even_margin(degradation: Degradation) -> int:
    """How many input pixels on each side `Mixtures.even` depends on: enlarged, degraded, enlarged, cleaned."""
    return 2 * UP_REACH + degradation.reach + 1


def detail_margin(degradation: Degradation) -> int:
    """How many input pixels on each side `detail_of` depends on."""
    return UP_REACH + degradation.reach


def detail_of(sample: Array, enlarged: Tensor, degradation: Degradation) -> Tensor:
    """What a network added to the enlarged mixtures, without what their input shows already; replaces `sample`."""
    with torch.inference_mode():
        added = torch.from_numpy(sample).sub_(enlarged)
        return added.sub_(bicubic_up(degradation(added), degradation.scale))


def _enlarged_and_degraded(low: Tensor, degradation: Degradation) -> Tensor:
    """D(up(low)), computed at low resolution: the same small filter for every pixel."""
    reach = UP_REACH + degradation.reach
    point = torch.zeros(2 * reach + 1, 2 * reach + 1)
    point[reach, reach] = 1
    framed = F.pad(point, (reach,) * 4)  # so that no border is near
    response = degradation(bicubic_up(framed, degradation.scale))
    taps = response[reach:-reach, reach:-reach].flip(0, 1)
    return F.conv2d(symmetric_pad(low[:, None], reach), taps[None, None])[:, 0]


def _patches(cube: Cube, bands: Sequence[int], radiometry: Radiometry) -> tuple[Array, NDArray[np.bool_]]:
    """Evenly spread patches of a scene, 0..1, and where they have data: (bands, patches, PATCH, PATCH) both."""
    meta = cube.meta
    rows, columns = (_starts(n, most) for n, most in zip((meta.rows, meta.columns), MOST_PATCHES, strict=True))
    side = min(PATCH, meta.rows), min(PATCH, meta.columns)
    across = (columns[:, None] + np.arange(side[1])).ravel()
    patches = np.empty((len(bands), len(rows), len(columns), *side), np.float32)
    valid_mask = np.empty(patches.shape, np.bool_)
    depth, height, _ = cube.block
    # Patches in the same blocks of the file are read together, for reading a part of a block takes all of it.
    for group in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows // max(height, PATCH))) + 1):
        top, bottom = rows[group[0]], rows[group[-1]] + side[0]
        strip = Window(int(top), 0, int(bottom - top), meta.columns)
        at_once = max(1, BLOCK_VALUES // (strip.rows * strip.columns * depth)) * depth
        for first in range(0, len(bands), at_once):
            run = list(bands[first : first + at_once])
            unit, known = read_unit(cube, strip, run, radiometry)
            for i in group:
                inside = (slice(None), slice(rows[i] - top, rows[i] - top + side[0]))
                shape = (len(run), side[0], len(columns), side[1])
                for whole, part in ((patches, unit), (valid_mask, known)):
                    whole[first : first + at_once, i] = part[inside][..., across].reshape(shape).swapaxes(1, 2)
    flat = len(bands), -1, *side
    return patches.reshape(flat), valid_mask.reshape(flat)


def _starts(length: int, most: int) -> NDArray[np.intp]:
    """Where patches begin along one axis: their inner pixels cover it, or there are `most` of them."""
    count = min(most, max(1, -(-(length - 2) // (PATCH - 2))))
    return np.linspace(0, max(0, length - PATCH), count).round().astype(np.intp)


def _texture(patches: Array) -> Array:
    """The difference between a pixel and the mean of its four neighbours, for the inner pixels of patches."""
    around = patches[..., :-2, 1:-1] + patches[..., 2:, 1:-1] + patches[..., 1:-1, :-2] + patches[..., 1:-1, 2:]
    return np.asarray(patches[..., 1:-1, 1:-1] - around / 4, np.float32)


def _tamed(values: Array, where: NDArray[np.bool_]) -> Array:
    """Values of each band, (bands, ...), those far beyond nearly all others brought back; replaces `values`."""
    for band, valid in zip(values, where, strict=True):
        most = BEYOND * _percentile(band[valid], TAIL)
        np.clip(band, -most, most, out=band)
    return values


def _percentile(values: Array, percent: float) -> float:
    """A percentile of the absolute values that are not 0; 0 if all are."""
    sizes = np.abs(values[values != 0])
    return float(np.percentile(sizes, percent)) if sizes.size else 0.0


def _known(valid_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where `_texture` is that of true values in nearly all bands, (patches, rows, columns)."""
    beside = (
        valid_mask[..., :-2, 1:-1]
        & valid_mask[..., 2:, 1:-1]
        & valid_mask[..., 1:-1, :-2]
        & valid_mask[..., 1:-1, 2:]
    )
    return np.asarray((valid_mask[..., 1:-1, 1:-1] & beside).mean(0) >= KNOWN_BANDS)


def _covariances(texture: Array, known: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The covariances of the bands' textures, (bands, bands), in the same pixel and in neighbouring pixels."""
    same = _products(texture, texture, known)
    below = _products(texture[..., 1:, :], texture[..., :-1, :], known[..., 1:, :] & known[..., :-1, :])
    right = _products(texture[..., 1:], texture[..., :-1], known[..., 1:] & known[..., :-1])
    return same, (below + below.T + right + right.T) / 4


def _products(x: Array, y: Array, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean products of every band of one texture with every band of another."""
    products: NDArray[np.float64] = (x[:, where] @ y[:, where].T).astype(np.float64)
    return products / max(int(where.sum()), 1)
