"""Exact tiles: each is computed with a margin as wide as the network's reach, so that tiled equals whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pdenet_cli.errors import ResourceError
from pdenet_cli.scene.window import Window

WORK_TOLERANCE = 1.05  # plans with up to this times the least work are equally good
WANTED_TILES = 16  # progress and `resume` count in tiles, so a plan should have at least this many


@dataclass(frozen=True)
class Span:
    """A run of neighbouring bands to be computed, and the wider run that their values depend on.

    `core` and `padded` count the bands that the network sees. `owned` counts the file's bands, including unusable
    ones in between: each band of the file is owned, that is written, by one span.
    """

    core: range
    padded: range
    owned: slice

    @property
    def crop(self) -> slice:
        """The core within the padded run."""
        start = self.core.start - self.padded.start
        return slice(start, start + len(self.core))


@dataclass(frozen=True)
class Tile:
    """A rectangle to be computed, and the larger one that its values depend on."""

    core: Window
    padded: Window
    scale: int
    origin: tuple[int, int] = (0, 0)  # row and column of the input at the upper-left corner of the result

    def halves(self, halo: int, scene: Window) -> tuple[Tile, ...]:
        """The same ground as two tiles, cut across the longer side; margins end at the edge of `scene`."""
        rows, columns = self.core.rows, self.core.columns
        cut = (-(-rows // 2), columns) if rows >= columns else (rows, -(-columns // 2))
        return tuple(
            replace(self, core=core, padded=core.grown(halo, within=scene)) for core in self.core.blocks(*cut)
        )

    @property
    def target(self) -> Window:
        """The window of the output that this tile fills."""
        row, column = self.origin
        return self.core.moved(-row, -column).scaled(self.scale)


@dataclass(frozen=True)
class Plan:
    """How a scene, or a part of one, is cut: every tile is computed for every span of bands."""

    scene: Window  # the part to be computed
    scale: int
    usable: tuple[int, ...]  # the file's bands that the network sees
    halo: int
    band_halo: int | None  # None: the network must see all bands at once
    tile: int  # longest side of a core, in input pixels
    depth: int  # largest number of bands in the core of a span
    memory: int = 0  # limit for one piece (a tile of a span), in bytes
    surroundings: Window | None = None  # where margins may reach; None: only within the scene
    margin: int = 0  # the part of the halo that samples are needed for too
    step: int = 1  # cores begin at multiples of so many pixels, as far as there are several

    @property
    def seen(self) -> Window:
        """The window that margins may reach into."""
        return self.surroundings or self.scene

    @property
    def tiling(self) -> dict[str, int]:
        """What another plan of the same scene may differ in; the result is the same."""
        return {"tile": self.tile, "depth": self.depth, "step": self.step}

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The runs of bands that are computed together; each band is owned by one of them."""
        count, halo = len(self.usable), self.band_halo or 0
        spans = []
        for start in range(0, count, self.depth):
            stop = min(start + self.depth, count)
            first = 0 if start == 0 else self.usable[start]
            last = None if stop == count else self.usable[stop]
            padded = range(max(0, start - halo), min(count, stop + halo))
            spans.append(Span(range(start, stop), padded, slice(first, last)))
        return tuple(spans)

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """The tiles in the order in which they are computed."""
        cores = self.scene.blocks(self._side(self.scene.rows), self._side(self.scene.columns))
        origin = self.scene.row, self.scene.column
        return tuple(Tile(core, core.grown(self.halo, within=self.seen), self.scale, origin) for core in cores)

    @property
    def count(self) -> int:
        """How many tiles there are."""
        lengths = self.scene.rows, self.scene.columns
        return math.prod(math.ceil(length / self._side(length)) for length in lengths)

    def _side(self, length: int) -> int:
        """The side of the cores along an axis of this length; the last may be shorter."""
        return _even(length, self.tile, self.step)

    @cached_property
    def voxels(self) -> int:
        """Input voxels of all pieces together, margins included: the work."""
        return math.prod(map(sum, self._padded()))

    def load(self, processes: int) -> float:
        """The work of the busiest of several processes that share the tiles."""
        return self.voxels / self.count * math.ceil(self.count / processes)

    @property
    def largest(self) -> int:
        """Input voxels of the largest piece, margins included."""
        return math.prod(map(max, self._padded()))

    def pixels(self, margin: int | None = None) -> int:
        """Input pixels of the largest tile, with all of its margin or with up to `margin` of it."""
        _, rows, columns = map(max, self._padded())
        if margin is None:
            return rows * columns
        cores = map(self._side, (self.scene.rows, self.scene.columns))
        return math.prod(
            min(core + 2 * margin, padded) for core, padded in zip(cores, (rows, columns), strict=True)
        )

    def _padded(self) -> tuple[list[int], list[int], list[int]]:
        """The padded lengths along bands, rows and columns; a piece has one of each."""
        scene, seen = self.scene, self.seen
        sides, halo = (self._side(scene.rows), self._side(scene.columns)), self.halo
        rows = _lengths(range(scene.row, scene.bottom), range(seen.row, seen.bottom), sides[0], halo)
        columns = _lengths(range(scene.column, scene.right), range(seen.column, seen.right), sides[1], halo)
        return [len(span.padded) for span in self.spans], rows, columns


def plan_tiles(
    scene: Window,
    scale: int,
    usable: Sequence[int],
    halo: int | None,
    band_halo: int | None,
    memory: int,
    bytes_for: Callable[[Plan], int],
    tile: int | None = None,
    surroundings: Window | None = None,
    margin: int = 0,
    step: int = 1,
    processes: int = 1,
) -> Plan:
    """A plan with about the least time whose largest piece fits into `memory`, as `bytes_for` counts it.

    `halo` is None for a network whose outputs depend on every pixel: each tile is then padded to the whole scene.
    `step`: what several processes write at once must begin at multiples of so many pixels. `processes`: so many
    work at once.
    """
    bands = len(usable)
    seen = surroundings or scene
    reach = max(seen.rows, seen.columns) if halo is None else halo
    depths = {bands} if band_halo is None else {math.ceil(bands / pieces) for pieces in range(1, bands + 1)}
    sides = [tile] if tile is not None else _sides(max(scene.rows, scene.columns))
    plans = [
        Plan(scene, scale, tuple(usable), reach, band_halo, side, depth, memory, surroundings, margin, step)
        for depth in sorted(depths, reverse=True)
        for side in sides
    ]
    fitting = [plan for plan in plans if bytes_for(plan) <= memory]
    if not fitting:
        least = min(map(bytes_for, plans))
        subject = "The smallest tile" if tile is None else f"With `tile` {tile}, a tile"
        smaller = "" if tile is None else " or a smaller `tile`"
        # Not every command has `halo`.
        less = " In upscale and uncertainty a smaller `halo` needs less but is less exact." if halo else ""
        raise ResourceError(
            f"{subject} needs {least:,} bytes of memory with its margins, but only {memory:,} are allowed. "
            f"Use `memory` {math.ceil(least / 1e6)}MB{smaller}.{less}"
        )
    lightest = min(plan.load(processes) for plan in fitting)
    good = [plan for plan in fitting if plan.load(processes) <= WORK_TOLERANCE * lightest]
    # Of plans with equal work, which all have without a margin, the one with the largest pieces.
    return min(good, key=lambda plan: (max(0, WANTED_TILES - plan.count), plan.voxels, -plan.depth, -plan.tile))


def _sides(longest: int) -> list[int]:
    """Tile sides to try, small to large, about 12 % apart."""
    sides = [8]
    while sides[-1] < longest:
        sides.append(math.ceil(sides[-1] * 1.12))
    return sorted({_even(longest, side) for side in sides})


def _lengths(scene: range, seen: range, side: int, halo: int) -> list[int]:
    """The lengths of the tiles along one axis, with their margins as far as `seen` reaches."""
    starts = scene[::side]
    return [
        min(stop + halo, seen.stop) - max(start - halo, seen.start)
        for start, stop in zip(starts, (*starts[1:], scene.stop), strict=True)
    ]


def _even(length: int, most: int, step: int = 1) -> int:
    """The side of equal tiles of at most `most`: 1200 in tiles of 1024 is 600 + 600, not 1024 + 176.

    It is a multiple of `step`, at least one, unless it is all of the length.
    """
    even = math.ceil(length / math.ceil(length / min(most, length)))
    return min(length, math.ceil(even / step) * step)
