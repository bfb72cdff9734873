"""Cubes in memory, the patches a run draws from them, and the quarter of each that it never sees.

Chance has no state here: patch `index` of step `step` is a function of (seed, step, index) and nothing else, so a
resumed run and a run shared by several processes see the patches of an unbroken one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.cube import Cube, Pixels, Window
from pdenet_cli.errors import ResourceError, UsageError
from pdenet_cli.formats.limits import free_memory
from pdenet_cli.radiometry import Radiometry, Survey
from pdenet_cli.training.recipe import Recipe

SMALLEST = 4  # low-resolution pixels on a side, below which neither a patch nor a validation part says much


@dataclass(frozen=True)
class Scene:
    """The usable bands of a cube in memory, in the file's numbers where those are smaller than float32."""

    name: str
    pixels: Pixels  # (bands, rows, columns)
    radiometry: Radiometry
    facts: dict[str, Any]  # for the model's description

    @classmethod
    def read(cls, cube: Cube, value_range: tuple[float, float] | None = None) -> Scene:
        """The whole of `cube`, without its bad and empty bands."""
        if 2 * cube.meta.nbytes > (free := free_memory()):
            need = f"{cube.meta.nbytes:,} bytes are too many to train on with {free:,} of memory free"
            raise ResourceError(f"{cube.path}: {need}. Cut a part of it out.")
        survey = Survey.of(cube)
        radiometry = Radiometry.of(cube.meta, survey, value_range)
        bands = survey.usable_bands(cube.meta)
        pixels = cube.read()
        facts = dict(
            name=cube.path.name,
            sha256=hashlib.sha256(pixels.data).hexdigest(),  # of the numbers, (bands, rows, columns)
            shape=list(pixels.shape),
            dtype=pixels.dtype.name,
            bands_used=len(bands),
            radiometry=radiometry.reason,
        )
        if pixels.dtype.itemsize >= 4:
            pixels, there = radiometry.prepare(pixels)
            pixels[~there] = np.nan
            radiometry = replace(radiometry, gain=(1.0,), offset=(0.0,), nodata=None)
        keep: dict[str, Any] = {
            name: tuple(values[b] for b in bands) if len(values := getattr(radiometry, name)) > 1 else values
            for name in ("gain", "offset", "fill")
        }
        return cls(cube.path.stem, np.ascontiguousarray(pixels[list(bands)]), replace(radiometry, **keep), facts)

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]

    def unit(self, window: Window, bands: slice) -> tuple[NDArray[np.float32], float]:
        """A part of the scene as 0..1 with holes filled, and the share of it that is not holes."""
        unit, there = self.radiometry.prepare(self.pixels[(bands, *window.slices)], bands)
        return unit, float(there.mean())

    def held_out(self, scale: int) -> Window | None:
        """The part that no patch touches; None if the scene is too small."""
        return held_out(self.size, scale)

    def corner(self, scale: int) -> tuple[int, int]:
        """Where the part that patches must not touch begins; behind the last pixel if there is none."""
        return corner(self.size, scale)

    def largest_patch(self, scale: int) -> int:
        """The side of the largest square, in whole low-resolution pixels, beside the held-out part."""
        (rows, columns), (row, column) = self.size, self.corner(scale)
        return max(min(row, columns), min(rows, column)) // scale * scale


def held_out(size: tuple[int, int], scale: int) -> Window | None:
    """The lower right quarter, whole low-resolution pixels of it; None if the scene is too small."""
    (rows, columns), (row, column) = size, corner(size, scale)
    whole = ((rows - row) // scale * scale, (columns - column) // scale * scale)
    return Window(row, column, *whole) if row < rows else None


def corner(size: tuple[int, int], scale: int) -> tuple[int, int]:
    """Where the held-out quarter begins; behind the last pixel if there is none."""
    if min(size) // 2 < SMALLEST * scale:
        return size
    return -(-size[0] // 2), -(-size[1] // 2)


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


@dataclass(frozen=True)
class Patch:
    """A high-resolution piece of a scene, and the chance for its noise and its masks."""

    high: Tensor  # (bands, rows, columns)
    generator: torch.Generator


class Patches:
    """The patches of a run, by step and index."""

    def __init__(
        self, scenes: Sequence[Scene], recipe: Recipe, scale: int, seed: int, bands: int | None = None
    ) -> None:
        self.recipe, self.scale, self.seed = recipe, scale, seed
        self.bands = bands  # the only band count the network takes; None: any
        self.scenes = [
            scene
            for scene in scenes
            if scene.largest_patch(scale) >= SMALLEST * scale and (bands is None or len(scene.pixels) >= bands)
        ]
        if not self.scenes:
            depth = f" and {bands} bands" if bands is not None else ""
            raise UsageError(
                f"No cube is large enough: x{scale} needs {SMALLEST * scale} pixels on a side{depth}."
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
        side = min(self.recipe.patch // self.scale * self.scale, scene.largest_patch(self.scale))
        for _ in range(4):  # a patch of mostly holes teaches nothing; a scene of mostly holes has no other
            window = place(rng, scene.size, scene.corner(self.scale), side)
            unit, there = scene.unit(window, self._run(rng, len(scene.pixels)))
            if there > 0.5:
                break
        gain = np.exp(rng.uniform(*np.log(self.recipe.gains)))
        unit = np.rot90(unit, int(rng.integers(4)), axes=(1, 2)) * np.float32(gain)
        if rng.integers(2):
            unit = unit[:, :, ::-1]
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        return Patch(torch.from_numpy(np.ascontiguousarray(unit)), generator)

    def _run(self, rng: np.random.Generator, bands: int) -> slice:
        """A run of adjacent bands, at times with gaps: other sensors sample the spectrum more coarsely."""
        count = min(self.bands or self.recipe.bands, bands)
        step = int(rng.integers(2, 4)) if rng.random() < self.recipe.skipping else 1
        if count * step > bands:
            step = 1
        start = int(rng.integers(bands - (count - 1) * step))
        return slice(start, start + (count - 1) * step + 1, step)
