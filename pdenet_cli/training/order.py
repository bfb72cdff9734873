"""Overlapping patches at regular places, each once an epoch in a random order, as published code has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.window import Window
from pdenet_cli.training.data import Scene
from pdenet_cli.training.recipe import Recipe


@dataclass(frozen=True)
class Place:
    """Where a patch is: in which scene, in which window, and in which part of the scene that is degraded alone."""

    scene: int
    window: Window
    region: Window


class PatchOrder:
    """The places of a recipe with a stride, and which of them a step takes."""

    def __init__(self, scenes: Sequence[Scene], recipe: Recipe, scale: int, seed: int) -> None:
        if recipe.stride % scale or recipe.block % scale:
            settings = f"`recipe`: stride={recipe.stride}, block={recipe.block}"
            raise UsageError(f"{settings} must be multiples of the scale, {scale}.")
        self.seed, self.batch = seed, recipe.batch
        self.places = [
            Place(number, window, region)
            for number, scene in enumerate(scenes)
            for region, window in _windows(scene, recipe, scale)
        ]
        self.shuffled = lru_cache(2)(self._shuffled)  # a step takes all its patches from one epoch

    @property
    def steps_an_epoch(self) -> int:
        """How many whole batches the places make; the rest of an epoch is left out."""
        return max(1, len(self.places) // self.batch)

    def at(self, step: int, index: int) -> Place:
        """The place of patch `index` of the batch of step `step`."""
        epoch, within = divmod(step, self.steps_an_epoch)
        number = (within * self.batch + index) % len(self.places)  # fewer places than a batch: some come twice
        return self.places[int(self.shuffled(epoch)[number])]

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.places))


def _windows(scene: Scene, recipe: Recipe, scale: int) -> Iterator[tuple[Window, Window]]:
    """(part that is degraded alone, window of a patch) for every patch of a scene outside its held-out part."""
    rows, columns = (side // scale * scale for side in scene.size)
    side = min(recipe.patch // scale * scale, scene.largest_patch(scale), recipe.block or recipe.patch)
    row, column = scene.corner(scale)
    whole = Window(0, 0, rows, columns)
    blocks = [
        block
        for block in whole.blocks(recipe.block or rows, recipe.block or columns)
        if block.rows >= side <= block.columns
    ]
    for block in blocks:
        # As published: of whole scenes the last places are left out, 12 x 12 on CAVE though 13 x 13 would fit.
        ends = [max(1, free + bool(recipe.block)) for free in (block.rows - side, block.columns - side)]
        for down in range(0, ends[0], recipe.stride):
            for right in range(0, ends[1], recipe.stride):
                window = Window(block.row + down, block.column + right, side, side)
                if window.bottom <= row or window.right <= column:
                    yield block, window
