"""The patches that a run cuts from its scenes, and how they are varied.

Patch `index` of step `step` is a function of (seed, step, index) alone, so a resumed run, or one shared by several
processes, sees the same patches as an uninterrupted one.
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

from pdenet_cli.degradation import Degradation, symmetric_pad
from pdenet_cli.errors import UsageError
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.scene.window import Window
from pdenet_cli.training.data import SMALLEST_SIDE, Scene
from pdenet_cli.training.order import PatchOrder, Place
from pdenet_cli.training.recipe import Recipe

UnitImage = NDArray[np.float32]  # (bands, rows, columns) or (rows, columns), 0..1

TRIES = 4  # places to try for a patch that is not mostly holes
MOST_SHAPES = 8  # pasted into a patch by `collage`
SMALLEST_SHAPE = 0.04  # size of the smallest shape, as a share of half the patch
SOFTEST = 1.2  # largest sigma of the `soft` blur, in low-resolution pixels
STRETCH = (0.65, 1.2)  # pixel size of a `warp`ed patch, in pixels of the scene
ASPECT = 0.15  # largest deviation of each side's log stretch from their mean
CUBIC_MARGIN = 3  # pixels around a point that bicubic sampling reads, one of them to spare
GRAIN = (0.001, 0.05)  # sigma of the `grain` noise in a typical band, relative to the mean of the patch
GRAIN_SPREAD = 0.5  # sigma of the log noise level from band to band
WIDTHS = (0.8, 2.2)  # FWHM of the Gaussian point spreads of `psf`, in low-resolution pixels
SQUARE_SHARE = 0.2  # of the `psf` patches have square pixels instead, most of them behind a lens
LENS = (0.1, 1.2)  # FWHM of that lens, in low-resolution pixels


def random_square(rng: np.random.Generator, size: tuple[int, int], corner: tuple[int, int], side: int) -> Window:
    """A square of a scene outside the part that begins at `corner`, every position equally likely."""
    above = max(0, corner[0] - side + 1)  # upper-left rows of squares above the part, where any column will do
    wide, narrow = max(0, size[1] - side + 1), max(0, corner[1] - side + 1)
    below = max(0, size[0] - side + 1 - above)
    spot = int(rng.integers(above * wide + below * narrow))
    if spot < above * wide:
        row, column = divmod(spot, wide)
    else:
        row, column = divmod(spot - above * wide, narrow)
        row += above
    return Window(row, column, side, side)


def random_shape(rng: np.random.Generator, side: int) -> UnitImage:
    """A mask of a random disc, rectangle or stripe in a square: 1 inside, 0 outside, soft at the edge."""
    centres = np.arange(side) + 0.5
    row, column = rng.uniform(0, side, 2)
    turn = rng.uniform(0, np.pi)
    down, right = centres[:, None] - row, centres - column
    along, across = down * np.sin(turn) + right * np.cos(turn), down * np.cos(turn) - right * np.sin(turn)
    length, width = side / 2 * SMALLEST_SHAPE ** rng.uniform(0, 1, 2)
    outside = (  # distance from the edge in pixels, negative inside
        np.hypot(along, across) - length,
        np.maximum(np.abs(along) - length, np.abs(across) - width),
        np.abs(across) - width,
    )[rng.integers(3)]
    blur = rng.uniform(0.5, 1.5)
    return np.asarray((0.5 - outside / blur).clip(0, 1), np.float32)


def slanted_grid(rng: np.random.Generator, side: int) -> NDArray[np.float64]:
    """Positions of the pixels of a rotated and stretched square around its centre: (side, side, [row, column])."""
    turn = rng.uniform(0, 2 * np.pi)
    stretch = np.exp(rng.uniform(*np.log(STRETCH)) + rng.uniform(-ASPECT, ASPECT, 2))
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) * stretch
    places = np.arange(side) - (side - 1) / 2
    return np.asarray(np.stack(np.meshgrid(places, places, indexing="ij"), -1) @ matrix.T)


def blurred(unit: UnitImage, sigma: float) -> UnitImage:
    """Every band, (bands, rows, columns), under a Gaussian blur with this sigma in pixels."""
    pad = math.ceil(3 * sigma)
    taps = torch.exp(-0.5 * (torch.arange(-pad, pad + 1) / sigma) ** 2)
    taps = taps / taps.sum()
    image = symmetric_pad(torch.from_numpy(np.ascontiguousarray(unit))[:, None], pad)
    image = F.conv2d(F.conv2d(image, taps.view(1, 1, -1, 1)), taps.view(1, 1, 1, -1))
    return np.asarray(image[:, 0].numpy())


def _turned(unit: UnitImage, turns: int, mirrored: bool) -> UnitImage:
    """(bands, rows, columns) after so many quarter turns, then mirrored left to right."""
    unit = np.rot90(unit, turns, axes=(1, 2))
    return unit[:, :, ::-1] if mirrored else unit


def _turned_window(part: Window, whole: Window, turns: int, mirrored: bool) -> Window:
    """Where a part of a square or rectangle lies after `_turned`; `part` is counted from the corner of `whole`."""
    rows, columns = whole.rows, whole.columns
    for _ in range(turns):
        part = Window(columns - part.right, part.row, part.columns, part.rows)
        rows, columns = columns, rows
    return replace(part, column=columns - part.right) if mirrored else part


@dataclass(frozen=True)
class Patch:
    """A high-resolution piece of a scene, how a sensor sees it, and a generator for noise and masks."""

    high: Tensor  # (bands, rows, columns)
    psf: Degradation | None  # its point spread; None: that of the run
    grain: Tensor  # sigma of each band's noise, (bands, 1, 1)
    generator: torch.Generator
    around: Tensor | None = None  # the patch with its surroundings, of which the input is cut; None: of itself
    core: Window | None = None  # where the patch is in them, in low-resolution pixels

    def low(self, usual: Degradation, device: torch.device | str = "cpu") -> Tensor:
        """The patch at low resolution, without its grain; `usual` is the degradation of the run."""
        high = self.high if self.around is None else self.around
        low = self.degradation(usual)(high[None].to(device), self.generator)[0]
        return low if self.core is None else low[:, *self.core.slices]

    def degradation(self, usual: Degradation) -> Degradation:
        """How its input is made; `usual` is the degradation of the run, whose noise every patch has."""
        return usual if self.psf is None else replace(self.psf, noise=usual.noise)

    def with_noise(self, low: Tensor) -> Tensor:
        """The coarse patch (bands, rows, columns) with its noise."""
        if not self.grain.any():
            return low
        # On the CPU, so that a seed means the same noise on every device.
        return low + (self.grain * torch.randn(low.shape, generator=self.generator)).to(low)


class Patches:
    """The patches of a run, by step and index."""

    def __init__(
        self,
        scenes: Sequence[Scene],
        recipe: Recipe,
        scale: int,
        seed: int,
        bands: int | None = None,
        reach: int = 2,  # of the run's degradation, in low-resolution pixels
    ) -> None:
        self.recipe, self.scale, self.seed, self.reach = recipe, scale, seed, reach
        self.bands = bands  # the only band count the network takes; None: any
        if recipe.patch < SMALLEST_SIDE * scale:
            raise UsageError(
                f"`patch` {recipe.patch} is too small: x{scale} needs at least {SMALLEST_SIDE * scale}."
            )
        self.scenes = [
            scene
            for scene in scenes
            if scene.largest_patch(scale) >= SMALLEST_SIDE * scale
            and (bands is None or len(scene.pixels) >= bands)
        ]
        if not self.scenes:
            depth = f" and {bands} bands" if bands is not None else ""
            least = f"{SMALLEST_SIDE * scale} pixels on a side{depth}"
            raise UsageError(f"No cube is large enough: x{scale} needs at least {least}.")
        # By the square root of their size: large scenes more often, but small ones still count.
        weights = np.sqrt([scene.size[0] * scene.size[1] for scene in self.scenes])
        self.chances = weights / weights.sum()
        self.order = PatchOrder(self.scenes, recipe, scale, seed) if recipe.stride else None

    @property
    def steps_an_epoch(self) -> int:
        """How many steps see each patch once; 0 where patches may lie anywhere."""
        return 0 if self.order is None else self.order.steps_an_epoch

    def __call__(self, step: int, index: int) -> Patch:
        """Patch `index` of the batch of step `step`."""
        rng = np.random.default_rng([self.seed, step, index])
        if self.order is not None:
            return self._in_order(rng, self.order.at(step, index))
        scene = self.scenes[rng.choice(len(self.scenes), p=self.chances)]
        side = self.recipe.patch // self.scale * self.scale
        if not (self.recipe.mosaic and rng.random() < self.recipe.mosaic):
            side = min(side, scene.largest_patch(self.scale))
        run = self._run(rng, len(scene.pixels))
        high = self._piece(rng, scene, run, side)
        if rng.random() < self.recipe.collage:
            for _ in range(int(rng.integers(1, MOST_SHAPES + 1))):
                high = high + random_shape(rng, side) * (self._piece(rng, scene, run, side) - high)
        if self.recipe.soft and rng.random() < self.recipe.soft:
            high = blurred(high, rng.uniform(0.1, SOFTEST) * self.scale)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        grain = self._grain(rng, high)
        psf = self._psf(rng) if self.recipe.psf and rng.random() < self.recipe.psf else None
        return Patch(torch.from_numpy(np.ascontiguousarray(high)), psf, grain, generator)

    def _in_order(self, rng: np.random.Generator, place: Place) -> Patch:
        """The patch at a place, rotated and mirrored."""
        scene = self.scenes[place.scene]
        margin = self.reach * self.scale if self.recipe.cut_low else 0
        wide = place.window.grown(margin, within=place.region)
        unit, valid_mask = scene.unit(wide, self._run(rng, len(scene.pixels)))
        unit = filled_from_edges(unit, valid_mask, FILL_DEPTH * self.scale)
        core = place.window.relative_to(wide)
        turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))
        around = torch.from_numpy(np.ascontiguousarray(_turned(unit, turns, mirrored)))
        where = _turned_window(core, wide, turns, mirrored)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        grain = torch.zeros(len(unit), 1, 1)
        return Patch(
            around[:, *where.slices].contiguous(), None, grain, generator, around, where.coarsened(self.scale)
        )

    def _psf(self, rng: np.random.Generator) -> Degradation:
        """The point spread of some sensor: a Gaussian, or square pixels without or behind a lens."""
        if rng.random() >= SQUARE_SHARE:
            return Degradation(self.scale, "gaussian", rng.uniform(*WIDTHS))
        return Degradation(self.scale, "area", rng.uniform(*LENS) if rng.random() < 0.8 else None)

    def _grain(self, rng: np.random.Generator, high: UnitImage) -> Tensor:
        """The noise of each band: degrading a scene averages its noise out, but real inputs have some."""
        grain = np.zeros(len(high), np.float32)
        if self.recipe.grain and rng.random() < self.recipe.grain:
            level = np.exp(rng.uniform(*np.log(GRAIN))) * np.abs(high).mean()
            grain += np.float32(level) * np.exp(rng.normal(0, GRAIN_SPREAD, len(high)))
        return torch.from_numpy(grain)[:, None, None]

    def _piece(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> UnitImage:
        """A square of a scene, `side` pixels wide: rotated, mirrored, brighter or darker, sometimes rescaled.

        If the scene is too small, a random crop of a mosaic of smaller squares.
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
        return _turned(unit * np.float32(gain), int(rng.integers(4)), bool(rng.integers(2)))

    def _window(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> UnitImage:
        """A square of a scene as it is, or a larger one downsampled."""
        most = min(self.recipe.zoom, scene.largest_patch(self.scale) / side)
        wide = int(side * most ** rng.uniform(0, 1))
        for _ in range(TRIES):
            unit, valid_mask = scene.unit(random_square(rng, scene.size, scene.corner(self.scale), wide), run)
            if valid_mask.mean() > 0.5:
                break
        unit = filled_from_edges(unit, valid_mask, FILL_DEPTH * self.scale)
        if wide > side:
            large = torch.from_numpy(np.ascontiguousarray(unit))[None]
            small = F.interpolate(large, (side, side), mode="bicubic", antialias=True)
            unit = small[0].clamp_min(0).numpy()  # bicubic may undershoot
        return unit

    def _warped(self, rng: np.random.Generator, scene: Scene, run: slice, side: int) -> UnitImage:
        """A square of a scene rotated by any angle and stretched: many different patches from few pixels."""
        (rows, columns), (row, column) = scene.size, scene.corner(self.scale)
        size = (row, columns) if rng.random() < 0.5 else (rows, column)  # above the held-out part, or left of it
        for _ in range(TRIES):
            points = slanted_grid(rng, side) + rng.uniform(0, 1, 2) * size
            first = np.maximum(0, np.floor(points.min((0, 1))) - CUBIC_MARGIN).astype(int)
            last = np.minimum(size, np.ceil(points.max((0, 1))) + CUBIC_MARGIN).astype(int)
            unit, valid_mask = scene.unit(Window(*first.tolist(), *(last - first).tolist()), run)
            if valid_mask.mean() > 0.5:
                break
        unit = filled_from_edges(unit, valid_mask, FILL_DEPTH * self.scale)
        places = 2 * (points - first) / (last - first) - 1  # for torch: from -1 to 1, columns first
        grid = torch.from_numpy(np.ascontiguousarray(places[None, :, :, ::-1], np.float32))
        image = torch.from_numpy(np.ascontiguousarray(unit))[None]
        turned = F.grid_sample(image, grid, "bicubic", "reflection", align_corners=False)
        return np.asarray(turned[0].clamp_min(0).numpy())

    def _run(self, rng: np.random.Generator, bands: int) -> slice:
        """A run of adjacent bands, sometimes every 2nd or 3rd: other sensors sample the spectrum more coarsely."""
        count = min(self.bands or self.recipe.bands or bands, bands)
        step = int(rng.integers(2, 4)) if rng.random() < self.recipe.skipping else 1
        if count * step > bands:
            step = 1
        start = int(rng.integers(bands - (count - 1) * step))
        return slice(start, start + (count - 1) * step + 1, step)
