"""The sub-networks of a posterior over a whole scene: run tile by tile, summed up into maps, written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, Window
from pdenet_cli.errors import ResourceError, out_of_memory
from pdenet_cli.holes import FILL_DEPTH, filled_from_edges, valid
from pdenet_cli.posterior import Posterior
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.summaries import (
    USUAL,
    Evidence,
    Question,
    Summary,
    Sums,
    enlarged,
    mean,
    repeated,
    roughness,
)
from pdenet_cli.tiling import Plan, Span, Tile

SMALLEST_TILE = 8
ROUGHNESS_HALO = 3  # the roughness of a pixel is made of those two away, and enlarged with its neighbours'


@dataclass(frozen=True)
class Layer:
    """A map to be written: its summary, its cube with a value per band, its cube merged over the bands."""

    summary: Summary
    cube: Cube | None = None
    merged: Cube | None = None


def halo_for(posterior: Posterior, summaries: Sequence[Summary], *, holes: bool) -> int | None:
    """The margin that makes tiles exact: the network's reach, and more for maps that look around and for holes,
    which are filled from around.
    """
    halo = posterior.network.halo
    if halo is None:
        return None
    return max(halo, ROUGHNESS_HALO) + (_looks_around(posterior, summaries) or 0) + (FILL_DEPTH if holes else 0)


def _looks_around(posterior: Posterior, summaries: Sequence[Summary]) -> int | None:
    """How many input pixels around its own the maps want the mean of, to make it coarse; None: they do not."""
    return posterior.degradation.reach if any(summary.degrades for summary in summaries) else None


def super_resolve(
    source: Cube,
    posterior: Posterior,
    plan: Plan,
    radiometry: Radiometry,
    layers: Sequence[Layer],
    first: int = 0,
    say: Callable[[str], None] = lambda text: None,
    question: Question = USUAL,
    constant: Sequence[int] = (),
) -> Iterator[Tile]:
    """Write every layer tile by tile, from tile number `first` on; yields each tile when it is written.

    Of the bands that the network does not see by the plan, those in `constant` keep their numbers, and the others
    come out as nodata. Where memory runs out, fewer sub-networks at once and then smaller tiles are tried, and
    `say` is told.
    """
    posterior.settle(plan)
    around = _looks_around(posterior, [layer.summary for layer in layers])
    largest = plan.scene.rows * plan.scene.columns  # pixels of a tile that fits into memory, as far as is known
    for tile in plan.tiles[first:]:
        pending = [tile]
        while pending:
            piece = pending.pop()
            if _pixels(piece) > largest:
                pending += reversed(piece.halves(plan.halo, plan.seen))
                continue
            try:
                gathered = (
                    (span, *gather(source, posterior, piece, span, radiometry, plan.usable, around))
                    for span in plan.spans
                )
                unseen = _Unseen(source, piece, radiometry, constant)
                _write_tile(piece, gathered, unseen, radiometry, plan.usable, layers, question)
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                pending += _smaller(piece, posterior, plan, say)
                largest = _pixels(pending[-1])
        yield tile


def gather(
    source: Cube,
    posterior: Posterior,
    tile: Tile,
    span: Span,
    radiometry: Radiometry,
    usable: Sequence[int],
    around: int | None = None,
) -> tuple[Evidence, NDArray[np.bool_]]:
    """What is known of some bands of a tile, and where on the fine grid there is data.

    `around`: the reach of the degradation where it matters what the mean leaves unexplained, else None.
    """
    seen = [usable[i] for i in span.padded]  # of the file's bands
    unit, there = radiometry.prepare(source.read(tile.padded, seen), seen)
    unit = filled_from_edges(unit, there, FILL_DEPTH)
    rows, columns = tile.core.relative_to(tile.padded).slices
    fine = repeated(there[span.crop, rows, columns], tile.scale)
    low = unit[span.crop, rows, columns]
    wide = tile.core.grown(around or 0, within=tile.padded)
    inner = tile.core.relative_to(wide)
    unexplained = None if around is None else np.zeros_like(low)
    if fine.any():
        samples = posterior.samples(unit, span.crop, wide.relative_to(tile.padded).scaled(tile.scale))
        if around is not None:
            again = posterior.degradation(torch.from_numpy(mean(samples))).numpy()
            unexplained = low - again[:, *inner.slices]
        samples = samples[:, :, *inner.scaled(tile.scale).slices]
    else:  # nothing to see: spare the network
        samples = np.zeros((len(posterior), *fine.shape), np.float32)
    near = tile.core.grown(1, within=tile.padded)  # an enlarged pixel looks at its neighbours
    rough = roughness(unit[span.crop])[:, *near.relative_to(tile.padded).slices]
    detail = enlarged(rough, tile.scale)[:, *tile.core.relative_to(near).scaled(tile.scale).slices]
    return Evidence(samples, low, detail, tile.scale, unexplained, radiometry.units(seen[span.crop])), fine


@dataclass(frozen=True)
class _Unseen:
    """What a tile shows of bands that the network did not see."""

    source: Cube
    tile: Tile
    radiometry: Radiometry
    constant: Sequence[int]  # bands that hold one number throughout

    @cached_property
    def pixels(self) -> dict[int, NDArray[Any]]:
        """The constant bands, read once for all layers: (1, rows, columns) each."""
        return dict(zip(self.constant, self.source.read(self.tile.core, self.constant)[:, None], strict=True))

    def __call__(self, band: int, layer: Layer) -> NDArray[Any]:
        """The number of a constant band and no doubt about it; nodata for any other band."""
        assert layer.cube is not None
        meta = layer.cube.meta
        own = replace(self.radiometry, nodata=meta.nodata)
        if band not in self.constant:
            return np.asarray(own.nodata_in(meta.dtype))
        pixels = self.pixels[band]
        there = valid(pixels, self.radiometry.nodata)
        shown = np.where(there, np.float32(0), np.float32(np.nan))
        if layer.summary.unit == "value":
            shown = own.kept(pixels, there, meta.dtype.newbyteorder("="))
        return np.asarray(repeated(shown, self.tile.scale)[0])


def _write_tile(
    tile: Tile,
    gathered: Iterable[tuple[Span, Evidence, NDArray[np.bool_]]],
    unseen: Callable[[int, Layer], NDArray[Any]],
    radiometry: Radiometry,
    usable: Sequence[int],
    layers: Sequence[Layer],
    question: Question,
) -> None:
    sums: dict[int, Sums] = {}
    counts = np.zeros((tile.target.rows, tile.target.columns), np.int64)
    for span, evidence, there in gathered:
        counts += there.sum(0)
        bands = [usable[i] for i in span.core]
        for i, layer in enumerate(layers):
            values = _in_file_numbers(layer, evidence, there, radiometry, bands, question)
            if layer.merged is not None:
                sums[i] = layer.summary.merging.addends(evidence, values, there) + sums.get(i, 0)
            if layer.cube is not None:
                _write_owned(layer, tile.target, span, dict(zip(bands, values, strict=True)), unseen)
            del values
        del evidence, there  # or they stay while the network works on the next bands
    for i, layer in enumerate(layers):
        if layer.merged is not None:
            layer.merged.write(tile.target, layer.summary.merging.finish(sums[i], counts)[None])


def _write_owned(
    layer: Layer,
    target: Window,
    span: Span,
    values: Mapping[int, NDArray[Any]],
    unseen: Callable[[int, Layer], NDArray[Any]],
) -> None:
    """Write the bands that a span owns, those with values and those between, as many at once as have values."""
    assert layer.cube is not None
    meta = layer.cube.meta
    own = range(*span.owned.indices(meta.bands))
    for start in range(0, len(own), len(values)):
        some = own[start : start + len(values)]
        out = np.empty((len(some), target.rows, target.columns), meta.dtype)
        for plane, band in zip(out, some, strict=True):
            plane[:] = values[band] if band in values else unseen(band, layer)
        layer.cube.write(target, out, slice(some.start, some.stop))


def _in_file_numbers(
    layer: Layer,
    evidence: Evidence,
    there: NDArray[np.bool_],
    radiometry: Radiometry,
    bands: Sequence[int],
    question: Question,
) -> NDArray[Any]:
    summary = layer.summary
    values = evidence.mean if summary.compute is None else summary.compute(evidence, question)
    if summary.unit == "value" and layer.cube is not None:
        meta = layer.cube.meta
        # What stands for nothing is the output's own affair: a map has NaN where its scene has a number.
        own = replace(radiometry, nodata=meta.nodata)
        return own.finish(values, there, meta.dtype.newbyteorder("="), bands)
    if summary.unit == "spread":
        values = radiometry.spread_from_unit(values, bands)
    return np.where(there, values, np.float32(np.nan))


def _smaller(tile: Tile, posterior: Posterior, plan: Plan, say: Callable[[str], None]) -> list[Tile]:
    """What to try where `tile` did not fit into memory: fewer sub-networks at once, then half of the tile."""
    if posterior.at_once > 1:
        posterior.at_once //= 2
        say(f"Out of memory: continuing with {posterior.at_once} samples at once.")
        return [tile]
    if max(tile.core.rows, tile.core.columns) <= SMALLEST_TILE:
        raise ResourceError(f"Out of memory even with a tile of {tile.core.rows} x {tile.core.columns} pixels.")
    halves = tile.halves(plan.halo, plan.seen)
    say(f"Out of memory: continuing with tiles of {halves[0].core.rows} x {halves[0].core.columns} pixels.")
    return list(reversed(halves))


def _pixels(tile: Tile) -> int:
    return tile.core.rows * tile.core.columns
