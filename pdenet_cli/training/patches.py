"""The patches a run draws from its scenes, and how they are varied.

Chance has no state here: patch `index` of step `step` is a function of (seed, step, index) and nothing else, so a
resumed run and a run shared by several processes see the patches of an unbroken one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.cube import Window
from pdenet_cli.degradation import Degradation, symmetric_pad
from pdenet_cli.errors import UsageError
from pdenet_cli.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.training.data import SMALLEST, Scene
from pdenet_cli.training.recipe import Recipe

Unit = NDArray[np.float32]  # 0..1

TRIES = 4  # a patch of mostly holes teaches nothing; a scene of mostly holes has no other
MOST_SHAPES = 8  # in a collage
SMALLEST_SHAPE = 0.04  # of half a patch
SOFTEST = 1.2  # lens: the deviation of its blur, in low-resolution pixels
STRETCH = (0.65, 1.2)  # of a slanted square: how many pixels of the scene one of its own is wide
ASPECT = 0.15  # of its two sides: so far their stretch may be from the mean of both, as a logarithm
CUBIC = 3  # pixels around a place that a cubic looks at, and one to spare
BRIGHTEST = 1.5  # place of a negative, beside that of its patch
THICKEST = 0.5  # haze
GRAIN = (0.001, 0.05)  # of grainy inputs: the noise of a typical band beside the mean of the patch
LENS = (0.1, 1.0)  # FWHM of the lens before a sensor's square pixels, in these pixels
GRAIN_SPREAD = 0.5  # from band to band, as the deviation of a logarithm


def place(rng: np.random.Generator, size: tuple[int, int], corner: tuple[int, int], side: int) -> Window:
    """A square anywhere in a scene but not in the part that begins at `corner`, each place as likely."""
    above = max(0, corner[0] - side + 1)  # so many first rows, of which any column will do
    wide, narrow = max(0, size[1] - side + 1), max(0, corner[1] - side + 1)
    below = max(0, size[0] - side + 1 - above)
    spot = int(rng.integers(above * wide + below * narrow))
    if spot < above * wide:
        row, column = divmod(spot, wide)
    else:
        row, column = divmod(spot - above * wide, narrow)
        row += above
    return Window(row, column, side, side)


def shape(rng: np.random.Generator, side: int) -> Unit:
    """A disc, rectangle or stripe at any angle in a square: 1 inside, 0 outside, between the two on its edge."""
    centres = np.arange(side) + 0.5
    row, column = rng.uniform(0, side, 2)
    turn = rng.uniform(0, np.pi)
    down, right = centres[:, None] - row, centres - column
    along, across = down * np.sin(turn) + right * np.cos(turn), down * np.cos(turn) - right * np.sin(turn)
    length, width = side / 2 * SMALLEST_SHAPE ** rng.uniform(0, 1, 2)
    outside = (  # how far, in pixels
        np.hypot(along, across) - length,
        np.maximum(np.abs(along) - length, np.abs(across) - width),
        np.abs(across) - width,
    )[rng.integers(3)]
    blur = rng.uniform(0.5, 1.5)
    return np.asarray((0.5 - outside / blur).clip(0, 1), np.float32)


def slanted(rng: np.random.Generator, side: int) -> NDArray[np.float64]:
    """Where the pixels of a turned and stretched square lie around its centre: (side, side, [row, column])."""
    turn = rng.uniform(0, 2 * np.pi)
    stretch = np.exp(rng.uniform(*np.log(STRETCH)) + rng.uniform(-ASPECT, ASPECT, 2))
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) * stretch
    places = np.arange(side) - (side - 1) / 2
    return np.asarray(np.stack(np.meshgrid(places, places, indexing="ij"), -1) @ matrix.T)


def blurred(unit: Unit, sigma: float) -> Unit:
    """Every band, (bands, rows, columns), under a Gaussian blur of this deviation in pixels."""
    pad = math.ceil(3 * sigma)
    taps = torch.exp(-0.5 * (torch.arange(-pad, pad + 1) / sigma) ** 2)
    taps = taps / taps.sum()
    image = symmetric_pad(torch.from_numpy(np.ascontiguousarray(unit))[:, None], pad)
    image = F.conv2d(F.conv2d(image, taps.view(1, 1, -1, 1)), taps.view(1, 1, 1, -1))
    return np.asarray(image[:, 0].numpy())


@dataclass(frozen=True)
class Patch:
    """A high-resolution piece of a scene, how a sensor sees it, and the chance for noise and masks."""

    high: Tensor  # (bands, rows, columns)
    lens: float | None  # FWHM before the sensor's square pixels; None: it records as the run's degradation does
    grain: Tensor  # deviation of each band's noise, (bands, 1, 1)
    generator: torch.Generator

    def seen(self, degradation: Degradation, low: Tensor) -> Tensor:
        """What the network is shown of a patch that is `low` (bands, rows, columns) by the run's degradation."""
        if self.lens is not None:
            sensor = replace(degradation, kernel="area", fwhm=self.lens)
            low = sensor(self.high, self.generator).to(low)
        return self.grainy(low)

    def grainy(self, low: Tensor) -> Tensor:
        """The coarse patch (bands, rows, columns) with its noise."""
        if not self.grain.any():
            return low
        # On the CPU, so that a seed means the same noise on every device.
        return low + (self.grain * torch.randn(low.shape, generator=self.generator)).to(low)


class Patches:
    """The patches of a run, by step and index."""

    def __init__(
        self, scenes: Sequence[Scene], recipe: Recipe, scale: int, seed: int, bands: int | None = None
    ) -> None:
        self.recipe, self.scale, self.seed = recipe, scale, seed
        self.bands = bands  # the only band count the network takes; None: any
        if recipe.patch < SMALLEST * scale:
            raise UsageError(f"--patch {recipe.patch} is too small: x{scale} needs at least {SMALLEST * scale}.")
        self.scenes = [
            scene
            for scene in scenes
            if scene.largest_patch(scale) >= SMALLEST * scale and (bands is None or len(scene.pixels) >= bands)
        ]
        if not self.scenes:
            depth = f" and {bands} bands" if bands is not None else ""
            raise UsageError(
                f"No cube is large enough: x{scale} needs at least {SMALLEST * scale} pixels on a side{depth}."
            )
        # By the root of their size: large scenes more often, small sensors still heard.
        weights = np.sqrt([scene.size[0] * scene.size[1] for scene in self.scenes])
        self.chances = weights / weights.sum()

    def steps_of(self, epochs: int) -> int:
        """How many steps it takes to see as many numbers as the training parts hold, `epochs` times."""
        side, run = self.recipe.patch, self.bands or self.recipe.bands
        patches = sum(s.size[0] * s.size[1] / side**2 * max(1, len(s.pixels) / run) for s in self.scenes)
        return max(1, math.ceil(0.75 * patches / self.recipe.batch)) * epochs

    def __call__(self, step: int, index: int) -> Patch:
        """Patch `index` of the batch of step `step`."""
        rng = np.random.default_rng([self.seed, step, index])
        scene = self.scenes[rng.choice(len(self.scenes), p=self.chances)]
        side = self.recipe.patch // self.scale * self.scale
        if not (self.recipe.mosaic and rng.random() < self.recipe.mosaic):
            side = min(side, scene.largest_patch(self.scale))
        run = self._run(rng, len(scene.pixels))
        high = self._piece(rng, scene, run, side)
        if rng.random() < self.recipe.collage:
            for _ in range(int(rng.integers(1, MOST_SHAPES + 1))):
                high = high + shape(rng, side) * (self._piece(rng, scene, run, side) - high)
        if self.recipe.soft and rng.random() < self.recipe.soft:
            high = blurred(high, rng.uniform(0.1, SOFTEST) * self.scale)
        high = self._relit(rng, high)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        grain = self._grain(rng, high)
        lens = rng.uniform(*LENS) if self.recipe.lens and rng.random() < self.recipe.lens else None
        return Patch(torch.from_numpy(np.ascontiguousarray(high)), lens, grain, generator)

    def _grain(self, rng: np.random.Generator, high: Unit) -> Tensor:
        """How much noise each band has; making a scene coarse takes its own away, and sensors have theirs."""
        grain = np.zeros(len(high), np.float32)
        if self.recipe.grain and rng.random() < self.recipe.grain:
            level = np.exp(rng.uniform(*np.log(GRAIN))) * np.abs(high).mean()
            grain += np.float32(level) * np.exp(rng.normal(0, GRAIN_SPREAD, len(high)))
        return torch.from_numpy(grain)[:, None, None]

    def _relit(self, rng: np.random.Generator, high: Unit) -> Unit:
        """The same edges under another light: what is sharp must not hang on which side of it is bright."""
        if self.recipe.negative and rng.random() < self.recipe.negative:
            high = np.float32(high.max() * rng.uniform(1, BRIGHTEST)) - high
        if self.recipe.haze and rng.random() < self.recipe.haze:
            high = high + np.float32(rng.uniform(-max(0.0, float(high.min())), THICKEST))
        return high

    def _piece(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> Unit:
        """A square of a scene, `side` pixels wide: turned, mirrored, brighter or darker, at times another size.

        Where the scene has none so large, several smaller ones side by side, cut out anywhere.
        """
        if side > (small := scene.largest_patch(self.scale)):
            count = -(-side // small) + 1
            pieces = [[self._piece(rng, scene, run, small) for _ in range(count)] for _ in range(count)]
            row, column = rng.integers(count * small - side + 1, size=2)
            return np.block(pieces)[:, row : row + side, column : column + side]
        if self.recipe.warp and rng.random() < self.recipe.warp:
            unit = self._warped(rng, scene, run, side)
        else:
            unit = self._window(rng, scene, run, side)
        gain = np.exp(rng.uniform(*np.log(self.recipe.gains)))
        unit = np.rot90(unit, int(rng.integers(4)), axes=(1, 2)) * np.float32(gain)
        return unit[:, :, ::-1] if rng.integers(2) else unit

    def _window(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> Unit:
        """A square of a scene as it is, or of a larger one made coarser."""
        most = min(self.recipe.zoom, scene.largest_patch(self.scale) / side)
        wide = int(side * most ** rng.uniform(0, 1))
        for _ in range(TRIES):
            unit, there = scene.unit(place(rng, scene.size, scene.corner(self.scale), wide), run)
            if there.mean() > 0.5:
                break
        unit = filled_from_edges(unit, there, FILL_DEPTH * self.scale)
        if wide > side:
            large = torch.from_numpy(np.ascontiguousarray(unit))[None]
            small = F.interpolate(large, (side, side), mode="bicubic", antialias=True)
            unit = small[0].clamp_min(0).numpy()  # a cubic may swing below zero
        return unit

    def _warped(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> Unit:
        """A square of a scene turned by any angle and stretched: of few pixels, many different patches."""
        (rows, columns), (row, column) = scene.size, scene.corner(self.scale)
        size = (row, columns) if rng.random() < 0.5 else (rows, column)  # above the held-out part, or left of it
        for _ in range(TRIES):
            points = slanted(rng, side) + rng.uniform(0, 1, 2) * size
            first = np.maximum(0, np.floor(points.min((0, 1))) - CUBIC).astype(int)
            last = np.minimum(size, np.ceil(points.max((0, 1))) + CUBIC).astype(int)
            unit, there = scene.unit(Window(*first.tolist(), *(last - first).tolist()), run)
            if there.mean() > 0.5:
                break
        unit = filled_from_edges(unit, there, FILL_DEPTH * self.scale)
        places = 2 * (points - first) / (last - first) - 1  # torch counts a picture from -1 to 1, columns first
        grid = torch.from_numpy(np.ascontiguousarray(places[None, :, :, ::-1], np.float32))
        image = torch.from_numpy(np.ascontiguousarray(unit))[None]
        turned = F.grid_sample(image, grid, "bicubic", "reflection", align_corners=False)
        return np.asarray(turned[0].clamp_min(0).numpy())

    def _run(self, rng: np.random.Generator, bands: int) -> slice:
        """A run of adjacent bands, at times with gaps: other sensors sample the spectrum more coarsely."""
        count = min(self.bands or self.recipe.bands, bands)
        step = int(rng.integers(2, 4)) if rng.random() < self.recipe.skipping else 1
        if count * step > bands:
            step = 1
        start = int(rng.integers(bands - (count - 1) * step))
        return slice(start, start + (count - 1) * step + 1, step)
