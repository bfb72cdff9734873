"""A posterior over a whole scene: tile by tile, its samples are drawn, summed up into maps and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import ResourceError, out_of_memory
from pdenet_cli.report import Say
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.tile import ObservedTile
from pdenet_cli.sampling.tiling import Plan, Span, Tile
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Evidence, repeated
from pdenet_cli.uncertainty.summaries import USUAL, Question, Summary, Sums

SMALLEST_TILE = 8  # input pixels a side; smaller tiles are not tried when memory runs out


class Sink(Protocol):
    """What a map with a value per band is written to: a cube, or something that keeps less than the pixels."""

    meta: CubeMeta

    def write(self, window: Window, pixels: Pixels, bands: slice) -> None:
        """Take in `bands` of a window, (bands, rows, columns)."""


@dataclass(frozen=True)
class Layer:
    """A map to be written: per band to `cube`, merged over the bands to `merged`."""

    summary: Summary
    cube: Sink | None = None
    merged: Cube | None = None
    clipped: list[int] = field(default_factory=list)  # values beyond the type of `cube`, of each written tile
    scaling: tuple[Sequence[float], Sequence[float]] | None = None  # gains and offsets to apply before merging


def super_resolve(
    source: Cube,
    posterior: Posterior,
    plan: Plan,
    radiometry: Radiometry,
    layers: Sequence[Layer],
    first: int = 0,
    say: Say = lambda text: None,
    question: Question = USUAL,
    constant: Sequence[int] = (),
) -> Iterator[Tile]:
    """Write every layer tile by tile, from tile number `first` on; yields each tile when it is written.

    Of the bands that the network does not see, those in `constant` keep their numbers, the others become nodata.
    Where memory runs out, fewer sub-networks at once and then smaller tiles are tried; `say` gets a message.
    """
    posterior.settle(plan)
    summaries = [layer.summary for layer in layers]
    most = plan.scene.pixels  # of a tile; larger ones have run out of memory
    for tile in plan.tiles[first:]:
        pending = [tile]
        while pending:
            piece = pending.pop()
            if piece.core.pixels > most:
                pending += reversed(piece.halves(plan.halo, plan.seen))
                continue
            try:
                observed = ObservedTile(source, posterior, plan, radiometry, piece, summaries)
                _TileWriter(observed, layers, question, constant).write()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                smaller = _smaller(piece, posterior, plan, say)
                most = min(most, smaller[-1].core.pixels) if len(smaller) > 1 else most
                pending += smaller
        yield tile


@dataclass(frozen=True)
class _TileWriter:
    """Writes every layer of a tile, span by span."""

    observed: ObservedTile
    layers: Sequence[Layer]
    question: Question
    constant: Sequence[int]  # bands that the network does not see, with the same value everywhere

    def write(self) -> None:
        plan, target = self.observed.plan, self.observed.tile.target
        sums: dict[int, Sums] = {}
        clipped = [0] * len(self.layers)
        counts = np.zeros((target.rows, target.columns), np.int64)
        for span in plan.spans:
            evidence, there = self.observed.evidence(span)
            counts += there.sum(0)
            bands = [plan.usable[i] for i in span.core]
            for i, layer in enumerate(self.layers):
                values, beyond = self._in_file_numbers(layer, evidence, there, bands)
                clipped[i] += beyond
                if layer.merged is not None:
                    scaled = _scaled(values, layer.scaling, bands)
                    sums[i] = layer.summary.merging.addends(evidence, scaled, there) + sums.get(i, 0)
                if layer.cube is not None:
                    self._write_owned(layer, span, dict(zip(bands, values, strict=True)))
                del values
            del evidence, there  # free them before the network works on the next bands
        for i, layer in enumerate(self.layers):
            if layer.merged is not None:
                layer.merged.write(target, layer.summary.merging.finish(sums[i], counts)[None])
            layer.clipped.append(clipped[i])

    def _in_file_numbers(
        self, layer: Layer, evidence: Evidence, there: NDArray[np.bool_], bands: Sequence[int]
    ) -> tuple[NDArray[Any], int]:
        """What a layer shows of some bands, and how many values its type could not hold."""
        summary, radiometry = layer.summary, self.observed.radiometry
        values = evidence.mean if summary.compute is None else summary.compute(evidence, self.question)
        if summary.unit == "value" and layer.cube is not None:
            meta = layer.cube.meta
            # Each output has its own nodata value: maps use NaN, where their scene may use a number.
            own = replace(radiometry, nodata=meta.nodata)
            dtype = meta.dtype.newbyteorder("=")
            return own.finish(values, there, dtype, bands), own.clipped(values, there, dtype, bands)
        if summary.unit == "spread":
            values = radiometry.spread_from_unit(values, bands)
        return np.where(there, values, np.float32(np.nan)), 0

    def _write_owned(self, layer: Layer, span: Span, values: Mapping[int, NDArray[Any]]) -> None:
        """Write the bands that a span owns, computed or not, in runs of as many as were computed."""
        assert layer.cube is not None
        meta, target = layer.cube.meta, self.observed.tile.target
        own = range(*span.owned.indices(meta.bands))
        for start in range(0, len(own), len(values)):
            some = own[start : start + len(values)]
            out = np.empty((len(some), target.rows, target.columns), meta.dtype)
            for plane, band in zip(out, some, strict=True):
                plane[:] = values[band] if band in values else self._other_band(band, layer)
            layer.cube.write(target, out, slice(some.start, some.stop))

    def _other_band(self, band: int, layer: Layer) -> NDArray[Any]:
        """A constant band as a layer shows it, its value without uncertainty; nodata for any other band."""
        assert layer.cube is not None
        meta, radiometry = layer.cube.meta, self.observed.radiometry
        own = replace(radiometry, nodata=meta.nodata)
        if band not in self.constant:
            return np.asarray(own.nodata_in(meta.dtype))
        pixels = self._constant_pixels[band]
        there = valid(pixels, radiometry.nodata)
        shown = np.where(there, np.float32(0), np.float32(np.nan))
        if layer.summary.unit == "value":
            shown = own.kept(pixels, there, meta.dtype.newbyteorder("="))
        return np.asarray(repeated(shown, self.observed.tile.scale)[0])

    @cached_property
    def _constant_pixels(self) -> dict[int, NDArray[Any]]:
        """The constant bands, read once for all layers: (1, rows, columns) each."""
        pixels = self.observed.source.read(self.observed.tile.core, self.constant)
        return dict(zip(self.constant, pixels[:, None], strict=True))


def _scaled(
    values: NDArray[Any], scaling: tuple[Sequence[float], Sequence[float]] | None, bands: Sequence[int]
) -> NDArray[Any]:
    """The values of some bands with the gains and offsets of these."""
    if scaling is None:
        return values
    gains, offsets = (np.array([some[band] for band in bands])[:, None, None] for some in scaling)
    return np.asarray(values * gains + offsets)


def _smaller(tile: Tile, posterior: Posterior, plan: Plan, say: Say) -> list[Tile]:
    """What to try after `tile` ran out of memory: fewer sub-networks at once, then its halves."""
    if posterior.at_once > 1:
        posterior.at_once //= 2
        say(f"Out of memory: continuing with {posterior.at_once} samples at once.")
        return [tile]
    if max(tile.core.rows, tile.core.columns) <= SMALLEST_TILE:
        raise ResourceError(f"Out of memory even with a tile of {tile.core.rows} x {tile.core.columns} pixels.")
    halves = tile.halves(plan.halo, plan.seen)
    say(f"Out of memory: continuing with tiles of {halves[0].core.rows} x {halves[0].core.columns} pixels.")
    return list(reversed(halves))
