"""How large errors will be: a small network that learned it from errors whose truth was known.

Samples differ where a network is unsure of what it learned. They do not tell how much detail the input never
showed, and no formula tells it as well as examples do. `ErrorNet` sees, band by band, what is known around a pixel
and answers with the root mean square of the error to expect of each value y of the finer cube:

    expected(y) = spread(y) · exp(sum over i of weight(i) · clue(i, y))

- spread: a first guess of the size of errors;
- clues: 1, and what is seen of y itself, on the fine grid (`Clues.fine`);
- weights: found by the convolutions from `Clues.coarse`, on the grid of the input, where they cost little, and
  enlarged by linear interpolation. One of these clues tells how near the edge of the scene is.

All that it sees of the scene is relative to the spread, so that brightness does not matter, and none of it
changes, but for its place, when a scene is turned or mirrored.

How sharp the truth is down to its pixels, it cannot see: errors against a sharper truth are larger, and the input
looks the same. So this is an argument (`finer_fwhm`), and what it expects is of a truth as sharp as that.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pdenet_cli.degradation import bicubic_up
from pdenet_cli.scene.window import Window

COARSE, FINE = 9, 3  # number of clues on each grid, without the 1
WIDTH, LAYERS = 16, 5
NEAR, FAR = 3, 5  # sides, in input pixels, of the surroundings that a pixel is compared with
EDGES_UP_TO = 4  # scale; at x8 scenes to learn from are nearly all edge, and the clue misleads
MOST = 6.0  # a clue's largest absolute value
USUAL_FWHM = 1.3  # of the point spread of the finer pixels, in these pixels; scenes are about as sharp
CORRECTION = 2.0  # largest absolute value of the logarithm of expected / spread
MARGIN = FAR // 2 + LAYERS + 1  # input pixels on each side that a value depends on: the last one to interpolate
BLOCK_SIDE = 512  # fine pixels: what is computed of one band of a block stays in the cache

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Clues:
    """What an `ErrorNet` sees of some bands."""

    coarse: Tensor  # (bands, COARSE, rows, columns), of the input's pixels
    fine: Tensor  # (bands, FINE, scale·rows, scale·columns)

    @classmethod
    def of(
        cls, scale: int, finer_fwhm: Tensor | float, low: Tensor, mean: Tensor, std: Tensor, spread: Tensor
    ) -> Self:
        """The clues of bands, each (bands, rows, columns), all but the input on the fine grid.

        `finer_fwhm` is that of the point spread of the truth's pixels, in these pixels.
        """
        added = (mean - bicubic_up(low, scale)).abs_().div_(spread).clamp_(max=MOST)
        agreed = (std / spread).clamp_(min=1e-3).log_()
        around = _pooled(spread, scale)
        near, far = (((low - _surroundings(low, side)) / around).clamp_(-MOST, MOST) for side in (NEAR, FAR))
        bright = _surroundings(low, FAR).abs_()
        coarse = (
            _pooled(agreed, scale),
            _pooled(added, scale),
            F.max_pool2d(added[:, None], scale)[:, 0] / 2,
            near,
            near.abs(),
            far / 2,
            (around / (bright + around)).log_(),
            _at_edge(low) if scale <= EDGES_UP_TO else torch.zeros_like(low),
            torch.zeros_like(low) + (finer_fwhm - USUAL_FWHM),
        )
        return cls(torch.stack(coarse, 1), torch.stack((agreed, added, _off_centre(mean, scale)), 1))


class ErrorNet(nn.Module):
    """The logarithm of the factor by which a first guess of the size of errors is wrong.

    What it expects is of a truth whose pixels have a point spread of `finer_fwhm` of them.
    """

    finer_fwhm: Tensor

    def __init__(self, finer_fwhm: float = USUAL_FWHM) -> None:
        super().__init__()
        self.register_buffer("finer_fwhm", torch.tensor(finer_fwhm))
        inputs = (COARSE,) + (WIDTH,) * (LAYERS - 1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, WIDTH, 3) for channels in inputs)
        self.last = nn.Conv2d(WIDTH, 1 + FINE, 1)
        nn.init.zeros_(self.last.weight)  # at first, the guess stays as it is
        assert self.last.bias is not None
        nn.init.zeros_(self.last.bias)

    def forward(self, clues: Clues) -> Tensor:
        """(bands, scale·rows, scale·columns)."""
        first, *others = self.layers
        image = first(_framed(clues.coarse)).relu_()  # (bands, WIDTH, rows, columns)
        for layer in others:
            image = image + layer(_framed(image)).relu_()
        weights = F.interpolate(self.last(image), clues.fine.shape[2:], mode="bilinear")
        correction = weights[:, 0] + (weights[:, 1:] * clues.fine).sum(1)
        return correction.clamp(-CORRECTION, CORRECTION)

    def for_truths_of(self, finer_fwhm: float) -> ErrorNet:
        """The same network for truths as sharp as this; it shares the weights."""
        copied = copy.copy(self)
        copied._buffers = {"finer_fwhm": torch.tensor(finer_fwhm, device=self.finer_fwhm.device)}
        return copied

    @torch.inference_mode()
    def expected(self, scale: int, low: Array, mean: Array, std: Array, spread: Array) -> Array:
        """The error to expect of each value of `mean`, (bands, rows, columns), all but `low` on the fine grid.

        At the sides, MARGIN input pixels are not exact unless the scene ends there.
        """
        device = self.last.weight.device
        expected = np.empty_like(spread)
        scene, side = Window(0, 0, *low.shape[1:]), max(BLOCK_SIDE // scale, 2 * MARGIN)
        for core in scene.blocks(side, side):
            around = core.grown(MARGIN, within=scene)
            fine, inner, target = around.scaled(scale), core.relative_to(around).scaled(scale), core.scaled(scale)
            at_once = max(1, BLOCK_SIDE**2 // fine.pixels)
            for start in range(0, len(mean), at_once):
                bands = slice(start, start + at_once)
                parts = (low[bands, *around.slices], *(part[bands, *fine.slices] for part in (mean, std, spread)))
                tensors = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts)
                factor = self(Clues.of(scale, self.finer_fwhm, *tensors)).exp_()[:, *inner.slices].cpu().numpy()
                expected[bands, *target.slices] = spread[bands, *target.slices] * factor
        return expected


def _framed(image: Tensor) -> Tensor:
    """The image with its edge pixels repeated once."""
    return F.pad(image, (1,) * 4, mode="replicate")


def _pooled(fine: Tensor, scale: int) -> Tensor:
    """The mean over the fine pixels of each input pixel."""
    return F.avg_pool2d(fine[:, None], scale)[:, 0]


def _surroundings(low: Tensor, side: int) -> Tensor:
    """The mean over `side` x `side` pixels; beyond the edge, edge pixels are repeated."""
    return F.avg_pool2d(F.pad(low[:, None], (side // 2,) * 4, mode="replicate"), side, stride=1)[:, 0]


def _at_edge(low: Tensor) -> Tensor:
    """1 in pixels at an edge, where less is known, 1/2 in those beside them, 0 elsewhere; shaped as `low`.

    A part of a scene has edges that are none. They lie beyond the reach of what is exact of it (MARGIN).
    """
    places = (torch.arange(length, device=low.device) for length in low.shape[1:])
    rows, columns = (torch.minimum(place, place.flip(0)) for place in places)
    away = torch.minimum(rows[:, None], columns).to(low.dtype)
    return (1 - away / 2).clamp_(min=0).expand_as(low)


def _off_centre(fine: Tensor, scale: int) -> Tensor:
    """How far a fine pixel is from the centre of its input pixel, squared, about 0; shaped as `fine`."""
    rows, columns = (
        ((torch.arange(length, device=fine.device) % scale - (scale - 1) / 2) / scale).square().mul(4)
        for length in fine.shape[1:]
    )
    return (rows[:, None] + columns - 0.5).to(fine.dtype).expand_as(fine)
