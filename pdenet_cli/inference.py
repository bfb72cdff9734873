"""N Monte-Carlo sub-networks over a whole scene: drawn once, run tile by tile, summed up into maps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.calibration import Calibration
from pdenet_cli.cube import Cube, Window
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, ResourceError, UsageError, out_of_memory
from pdenet_cli.formats.limits import free_memory
from pdenet_cli.holes import FILL_DEPTH, filled_from_edges, valid
from pdenet_cli.models import Model
from pdenet_cli.networks.runtime import give_back, tune_process
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.summaries import (
    USUAL,
    Evidence,
    Map,
    Question,
    Samples,
    Summary,
    Sums,
    enlarged,
    mean,
    repeated,
    roughness,
)
from pdenet_cli.tiling import Plan, Span, Tile, plan_tiles

MEMORY_SHARE = 0.5  # of what is free, if the user gives no limit
SMALLEST_TILE = 8
ROUGHNESS_HALO = 3  # the roughness of a pixel is made of those two away, and enlarged with its neighbours'


ENSEMBLES = ("masks", "flips")
SYMMETRIES = 8  # of a square


class Posterior:
    """A model and its N draws, made once from a seed: the same N sub-networks for every tile of every scene.

    With the ensemble "flips", sample n moreover sees the scene under symmetry n mod 8 of a square, undone
    afterwards: as many passes, and even a network without chance gives up to 8 different samples. No sample is
    made twice: without chance there are only as many as it takes until a flip and a member of an ensemble meet
    again. A calibrated model is used as it was calibrated if nothing else is asked for, any other with "masks".
    """

    def __init__(self, model: Model, samples: int, seed: int = 0, ensemble: str | None = None) -> None:
        if ensemble not in (*ENSEMBLES, None):
            raise UsageError(f"--ensemble {ensemble} is unknown; choose {' or '.join(ENSEMBLES)}.")
        if samples < 1:
            raise UsageError(f"--samples {samples}: use at least 1.")
        if not isinstance(model, Model):
            raise UsageError(f"Expected a Model, not a {type(model).__name__}. Pass load_model(NAME).")
        tune_process()
        self.model, self.seed, self.asked = model, int(seed), samples
        calibration = Calibration.of(model.spec)
        self.ensemble = ensemble or (calibration.ensemble if calibration is not None else "masks")
        self.network = model.network.eval()
        self.device = self.network.device
        symmetries = SYMMETRIES if self.ensemble == "flips" and not self.network.turns else 1
        different = self.network.different
        count = samples if different is None else min(samples, lcm(different, symmetries))
        self.views = min(symmetries, count)
        with torch.no_grad():
            # Made one after another on the CPU: N = 20 begins with the draws of N = 10, on any device.
            self.draw = self.network.draw(torch.Generator().manual_seed(self.seed), count).to(self.device)
        self.at_once = 1  # sub-networks

    def __len__(self) -> int:
        return len(self.draw)

    @property
    def degradation(self) -> Degradation:
        """What the model was made to undo, its noise left out."""
        return replace(self.model.spec.learned(), noise=0.0)

    def refuse_other_bands(self, count: int) -> None:
        """Stop where the network takes another number of bands than a cube has."""
        if self.network.bands not in (None, count):
            met = f"but the cube has {count} usable ones"
            raise ModelError(f"{self.model.name}: made for {self.network.bands} bands, {met}.")

    def samples(self, low: Map, bands: slice, crop: Window) -> Samples:
        """What each sub-network makes of `low`, cut to `bands` and `crop`: (samples, bands, rows, columns)."""
        rows, columns = crop.slices
        depth = len(range(len(low))[bands])
        out = np.empty((len(self), depth, crop.rows, crop.columns), np.float32)
        with torch.inference_mode():
            batch = torch.from_numpy(low)[None].to(self.device)
            for symmetry in range(self.views):
                turned = _turned(batch, symmetry).contiguous()
                n = symmetry
                for some in self.network.in_turn(turned, self.draw[symmetry :: self.views], self.at_once):
                    cut = _turned_back(some, symmetry)[:, bands, rows, columns]  # (some, bands, H, W)
                    out[n : n + len(some) * self.views : self.views] = cut.float().cpu().numpy()
                    n += len(some) * self.views
        return out

    def seconds_per_voxel(self, low: NDArray[np.float32]) -> float:
        """About how long one sub-network takes for a voxel of `low`."""
        alone = Posterior(self.model, 1, self.seed, "masks")
        scale, (bands, rows, columns) = self.network.scale, low.shape
        whole = slice(0, bands), Window(0, 0, rows * scale, columns * scale)
        alone.samples(low, *whole)  # the first call warms up
        started = time.perf_counter()
        alone.samples(low, *whole)
        return (time.perf_counter() - started) / low.size

    def bytes_for(self, plan: Plan, at_once: int = 1) -> int:
        """About how much memory the largest piece of a plan takes, with its samples and their maps."""
        results = 4 * self.network.scale**2 * (len(self) + 8)
        return plan.largest * self.network.bytes_per_voxel * at_once + plan.largest_core * results

    def plan(
        self,
        scene: Window,
        usable: Sequence[int],
        halo: int | None,
        memory: int | None = None,
        tile: int | None = None,
        *,
        whole_spectra: bool = False,
        surroundings: Window | None = None,
    ) -> Plan:
        """How a scene is cut so that every piece fits into `memory`, or into half of what is free.

        `whole_spectra`: all bands of a pixel are computed at once; `surroundings`: what else there is to see.
        """
        network = self.network
        band_halo = None if whole_spectra else network.band_halo
        room = memory or usable_memory(self.device)
        return plan_tiles(scene, network.scale, usable, halo, band_halo, room, self.bytes_for, tile, surroundings)

    def settle(self, plan: Plan) -> None:
        """Let a GPU run as many sub-networks at once as fit; a CPU is fastest with one at a time."""
        if self.device.type == "cpu":
            return
        counts = range(1, -(-len(self) // self.views) + 1)  # those that see the scene from one side
        self.at_once = max((n for n in counts if self.bytes_for(plan, n) <= plan.memory), default=1)


def refuse_other(posterior: object) -> None:
    """Stop where something else was given in the place of a posterior, such as a model."""
    if not isinstance(posterior, Posterior):
        met = f"Expected a Posterior, not a {type(posterior).__name__}"
        raise UsageError(f"{met}. Pass Posterior(model, N) for N samples.")


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
            return np.asarray(own.nothing(meta.dtype))
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


def _turned(image: Tensor, symmetry: int) -> Tensor:
    """(..., rows, columns) under one of the symmetries of a square: quarter turns, from 4 on mirrored first."""
    mirrored = image.flip(-1) if symmetry >= 4 else image
    return mirrored.rot90(symmetry % 4, (-2, -1))


def _turned_back(image: Tensor, symmetry: int) -> Tensor:
    """What `_turned` began with."""
    back = image.rot90(-(symmetry % 4), (-2, -1))
    return back.flip(-1) if symmetry >= 4 else back


def usable_memory(device: torch.device) -> int:
    """The share of the free memory that a run takes if the user gives no limit."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for next time
        free = min(torch.cuda.mem_get_info(device)[0] + kept, free_memory())  # samples and maps are not on the GPU
    else:
        give_back()  # what the scene before took
        free = free_memory()
    return int(free * MEMORY_SHARE)
