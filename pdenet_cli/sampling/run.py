"""A posterior over a whole scene: tile by tile, its samples are drawn, summed up into maps and written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import ResourceError, out_of_memory
from pdenet_cli.report import Say
from pdenet_cli.sampling.samplers import Unsampled
from pdenet_cli.sampling.scene_pass import ScenePass
from pdenet_cli.sampling.tile import ObservedTile
from pdenet_cli.sampling.tiling import Plan, Span, Tile
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.encoding import Encoding
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Evidence, repeated
from pdenet_cli.uncertainty.summaries import USUAL, Question, Summary, Sums

SMALLEST_TILE = 8  # input pixels a side; smaller tiles are not tried when memory runs out


class Sink(Protocol):
    """What a map with a value per band is written to: a cube, or something that keeps less than the pixels."""

    meta: CubeMeta

    def write(self, window: Window, pixels: Pixels, bands: slice) -> None:
        """Take in `bands` of a window, (bands, rows, columns)."""


@dataclass
class Unkept:
    """A sink that keeps nothing."""

    meta: CubeMeta

    def write(self, window: Window, pixels: Pixels, bands: slice) -> None:
        """Drop the pixels."""


@dataclass(frozen=True)
class Layer:
    """A map to be written: per band to `cube`, merged over the bands to `merged`."""

    summary: Summary
    cube: Sink | None = None
    merged: Sink | None = None
    clipped: list[int] = field(default_factory=list)  # values beyond the type of `cube`, of each written tile
    scaling: tuple[Sequence[float], Sequence[float]] | None = None  # gains and offsets to apply before merging


def super_resolve(
    scene: ScenePass,
    layers: Sequence[Layer],
    say: Say = lambda text: None,
    question: Question = USUAL,
) -> Iterator[Tile]:
    """Write every layer tile by tile; yields each tile when it is written. `say`: see `TileWork`."""
    work = TileWork(scene, layers, say, question)
    for number, tile in enumerate(scene.plan.tiles):
        work.write(number)
        yield tile


class TileWork:
    """Writes every layer of any tile of a scene, in any order and as often as wanted, always the same pixels.

    Of the bands that the network does not see, constant ones keep their numbers, the others become nodata. Where
    memory runs out, fewer sub-networks at once and then smaller tiles are tried; `say` gets a message.
    """

    def __init__(
        self,
        scene: ScenePass,
        layers: Sequence[Layer],
        say: Say = lambda text: None,
        question: Question = USUAL,
    ) -> None:
        self.scene, self.layers, self.question = scene, layers, question
        self.effort = _Effort(scene.plan, scene.most_at_once, scene.plan.scene.pixels, say)

    def write(self, number: int) -> None:
        """Write the tile of this number in the plan."""
        plan, effort = self.scene.plan, self.effort
        pending = [plan.tiles[number]]
        while pending:
            piece = pending.pop()
            if piece.core.pixels > effort.pixels:
                pending += reversed(piece.halves(plan.halo, plan.seen))
                continue
            try:
                _TileWriter(ObservedTile(self.scene, piece, effort.at_once), self.layers, self.question).write()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                pending += effort.lessened(piece)


def seconds_beside_network(scene: ScenePass, layers: Sequence[Layer], question: Question, side: int) -> float:
    """The time of all but the network and the files, from that of a part, `side` wide, of a tile in the middle."""
    plan, core = scene.plan, scene.plan.tiles[len(scene.plan.tiles) // 2].core
    core = replace(core, rows=min(core.rows, side), columns=min(core.columns, side))
    part = replace(plan, scene=core, surroundings=plan.seen, halo=plan.margin)
    trial = replace(scene, sampler=Unsampled(scene.posterior), plan=part)
    started = time.perf_counter()
    for tile in part.tiles:
        _TileWriter(ObservedTile(trial, tile), layers, question).write()
    for layer in layers:
        layer.clipped.clear()
    return (time.perf_counter() - started) * plan.scene.pixels / core.pixels


@dataclass
class _Effort:
    """How much is computed at once: less and less where memory runs out."""

    plan: Plan
    at_once: int  # sub-networks
    pixels: int  # of a tile; larger ones have run out of memory
    say: Say

    def lessened(self, tile: Tile) -> list[Tile]:
        """What to try after `tile` ran out of memory, last first: fewer sub-networks at once, then its halves."""
        if self.at_once > 1:
            self.at_once //= 2
            self.say(f"Out of memory: continuing with {self.at_once} samples at once.")
            return [tile]
        if max(tile.core.rows, tile.core.columns) <= SMALLEST_TILE:
            size = f"{tile.core.rows} x {tile.core.columns}"
            raise ResourceError(f"Out of memory even with a tile of {size} pixels.")
        halves = tile.halves(self.plan.halo, self.plan.seen)
        self.say(
            f"Out of memory: continuing with tiles of {halves[0].core.rows} x {halves[0].core.columns} pixels."
        )
        self.pixels = min(self.pixels, halves[0].core.pixels)
        return list(reversed(halves))


@dataclass(frozen=True)
class _TileWriter:
    """Writes every layer of a tile, span by span."""

    observed: ObservedTile
    layers: Sequence[Layer]
    question: Question

    def write(self) -> None:
        plan, target = self.observed.scene.plan, self.observed.tile.target
        sums: dict[int, Sums] = {}
        clipped = [0] * len(self.layers)
        counts = np.zeros((target.rows, target.columns), np.int64)
        for span in plan.spans:
            evidence, valid_mask = self.observed.evidence(span)
            counts += valid_mask.sum(0)
            bands = [plan.usable[i] for i in span.core]
            for i, layer in enumerate(self.layers):
                values, beyond = self._in_file_numbers(layer, evidence, valid_mask, bands)
                clipped[i] += beyond
                if layer.merged is not None:
                    scaled = _scaled(values, layer.scaling, bands)
                    sums[i] = layer.summary.merging.addends(evidence, scaled, valid_mask) + sums.get(i, 0)
                if layer.cube is not None:
                    self._write_owned(layer, span, dict(zip(bands, values, strict=True)))
                del values
            del evidence, valid_mask  # free them before the network works on the next bands
        for i, layer in enumerate(self.layers):
            if layer.merged is not None:
                layer.merged.write(target, layer.summary.merging.finish(sums[i], counts)[None], slice(None))
            layer.clipped.append(clipped[i])

    @property
    def _reading(self) -> Reading:
        return self.observed.scene.reading

    def _in_file_numbers(
        self, layer: Layer, evidence: Evidence, valid_mask: NDArray[np.bool_], bands: Sequence[int]
    ) -> tuple[NDArray[Any], int]:
        """What a layer shows of some bands, and how many values its type could not hold."""
        summary, radiometry = layer.summary, self._reading.radiometry
        values = evidence.mean if summary.compute is None else summary.compute(evidence, self.question)
        if summary.unit == "value" and layer.cube is not None:
            encoding = Encoding.of(layer.cube.meta)
            clipped = radiometry.clipped(values, valid_mask, encoding, bands)
            return radiometry.finish(values, valid_mask, encoding, bands), clipped
        if summary.unit == "spread":
            values = radiometry.spread_from_unit(values, bands)
        return np.where(valid_mask, values, np.float32(np.nan)), 0

    def _write_owned(self, layer: Layer, span: Span, values: Mapping[int, NDArray[Any]]) -> None:
        """Write the bands that a span owns, computed or not, in runs of as many as were computed."""
        assert layer.cube is not None
        meta, target = layer.cube.meta, self.observed.tile.target
        owned = range(*span.owned.indices(meta.bands))
        for start in range(0, len(owned), len(values)):
            run = owned[start : start + len(values)]
            out = np.empty((len(run), target.rows, target.columns), meta.dtype)
            for plane, band in zip(out, run, strict=True):
                plane[:] = values[band] if band in values else self._unseen_band(band, layer)
            layer.cube.write(target, out, slice(run.start, run.stop))

    def _unseen_band(self, band: int, layer: Layer) -> NDArray[Any]:
        """A constant band as a layer shows it, its value without uncertainty; nodata for any other band."""
        assert layer.cube is not None
        encoding = Encoding.of(layer.cube.meta)
        if band not in self._reading.constant:
            return np.asarray(encoding.hole)
        pixels = self._constant_pixels[band]
        valid_mask = valid(pixels, self._reading.radiometry.nodata)
        shown = np.where(valid_mask, np.float32(0), np.float32(np.nan))
        if layer.summary.unit == "value":
            shown = encoding.encoded(np.where(valid_mask, pixels, 0).astype(np.float64), valid_mask)
        return np.asarray(repeated(shown, self.observed.tile.scale)[0])

    @cached_property
    def _constant_pixels(self) -> dict[int, NDArray[Any]]:
        """The constant bands, read once for all layers: (1, rows, columns) each."""
        constant = self._reading.constant
        pixels = self.observed.scene.cube.read(self.observed.tile.core, constant)
        return dict(zip(constant, pixels[:, None], strict=True))


def _scaled(
    values: NDArray[Any], scaling: tuple[Sequence[float], Sequence[float]] | None, bands: Sequence[int]
) -> NDArray[Any]:
    """The values of some bands with the gains and offsets of these."""
    if scaling is None:
        return values
    gains, offsets = (np.array([factors[band] for band in bands])[:, None, None] for factors in scaling)
    return np.asarray(values * gains + offsets)
