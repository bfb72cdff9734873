"""N Monte-Carlo sub-networks over a whole scene: drawn once, run tile by tile, summed up into maps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, Window
from pdenet_cli.errors import ResourceError
from pdenet_cli.formats.limits import free_memory
from pdenet_cli.models import Model
from pdenet_cli.networks.runtime import tune_process
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.summaries import Summary
from pdenet_cli.tiling import Plan, Span, Tile

MEMORY_SHARE = 0.5  # of what is free, if the user gives no limit
SMALLEST_TILE = 8


class Posterior:
    """A model and its N draws, made once from a seed: the same N sub-networks for every tile of every scene."""

    def __init__(self, model: Model, samples: int, seed: int = 0) -> None:
        tune_process()
        self.model, self.seed = model, seed
        self.network = model.network.eval()
        self.device = self.network.device
        count = samples if self.network.random else 1
        with torch.no_grad():
            # Made one after another on the CPU: N = 20 begins with the draws of N = 10, on any device.
            self.draw = self.network.draw(torch.Generator().manual_seed(seed), count).to(self.device)
        # A CPU is fastest with one sub-network at a time; a GPU takes as many as fit.
        self.at_once = 1 if self.device.type == "cpu" else count

    def __len__(self) -> int:
        return len(self.draw)

    def samples(self, low: NDArray[np.float32], bands: slice, crop: Window) -> NDArray[np.float32]:
        """What each sub-network makes of `low`, cut to `bands` and `crop`: (samples, bands, rows, columns)."""
        rows, columns = crop.slices
        depth = len(range(len(low))[bands])
        out = np.empty((len(self), depth, crop.rows, crop.columns), np.float32)
        with torch.inference_mode():
            batch = torch.from_numpy(low)[None].to(self.device)
            start = 0
            for some in self.network.in_turn(batch, self.draw, self.at_once):  # (some, bands, H, W)
                out[start : start + len(some)] = some[:, bands, rows, columns].float().cpu().numpy()
                start += len(some)
        return out

    def seconds_per_voxel(self, low: NDArray[np.float32]) -> float:
        """About how long one sub-network takes for a voxel of `low`."""
        alone = Posterior(self.model, 1, self.seed)
        scale, (bands, rows, columns) = self.network.scale, low.shape
        whole = slice(0, bands), Window(0, 0, rows * scale, columns * scale)
        alone.samples(low, *whole)  # the first call warms up
        started = time.perf_counter()
        alone.samples(low, *whole)
        return (time.perf_counter() - started) / low.size

    def bytes_for(self, plan: Plan) -> int:
        """About how much memory the largest piece of a plan takes, with its samples and their maps."""
        results = 4 * self.network.scale**2 * (len(self) + 4)
        return plan.largest * self.network.bytes_per_voxel * self.at_once + plan.largest_core * results


@dataclass(frozen=True)
class Layer:
    """A map to be written: its summary, its cube with a value per band, its cube merged over the bands."""

    summary: Summary
    cube: Cube | None = None
    merged: Cube | None = None


def super_resolve(
    source: Cube,
    posterior: Posterior,
    plan: Plan,
    radiometry: Radiometry,
    usable: Sequence[int],
    layers: Sequence[Layer],
    first: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Tile]:
    """Write every layer tile by tile, from tile number `first` on; yields each tile when it is written.

    `usable` are the bands that the network sees; the others come out as nodata. Where memory runs out, fewer
    sub-networks at once and then smaller tiles are tried, and `say` is told.
    """
    for tile in plan.tiles[first:]:
        pending = [tile]
        while pending:
            piece = pending.pop()
            try:
                _one_tile(source, posterior, piece, plan.spans, radiometry, usable, layers)
            except (MemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                pending += _smaller(piece, posterior, plan, say)
        yield tile


def _one_tile(
    source: Cube,
    posterior: Posterior,
    tile: Tile,
    spans: Sequence[Span],
    radiometry: Radiometry,
    usable: Sequence[int],
    layers: Sequence[Layer],
) -> None:
    shape = tile.target.rows, tile.target.columns
    sums = [np.zeros(shape) for _ in layers]
    counts = np.zeros(shape, np.int64)
    for span in spans:
        seen = [usable[i] for i in span.padded]  # of the file's bands
        pixels = source.read(tile.padded, slice(seen[0], seen[-1] + 1))[[band - seen[0] for band in seen]]
        unit, there = radiometry.prepare(pixels, seen)
        rows, columns = tile.core.relative_to(tile.padded).slices
        fine = there[span.crop, rows, columns].repeat(tile.scale, 1).repeat(tile.scale, 2)
        counts += fine.sum(0)
        if fine.any():
            samples = posterior.samples(unit, span.crop, tile.crop)
        else:  # nothing to see: spare the network
            samples = np.zeros((1, *fine.shape), np.float32)
        for layer, total in zip(layers, sums, strict=True):
            bands = seen[span.crop]
            values = _in_file_numbers(layer, samples, fine, radiometry, bands)
            if layer.cube is not None:
                _write_owned(layer.cube, tile.target, values, span, bands, radiometry)
            if layer.merged is not None:
                total += layer.summary.addends(values, fine)
    for layer, total in zip(layers, sums, strict=True):
        if layer.merged is not None:
            layer.merged.write(tile.target, layer.summary.merged(total, counts)[None])


def _in_file_numbers(
    layer: Layer,
    samples: NDArray[np.float32],
    there: NDArray[np.bool_],
    radiometry: Radiometry,
    bands: Sequence[int],
) -> NDArray[Any]:
    values = layer.summary.compute(samples)
    if layer.summary.unit == "value" and layer.cube is not None:
        return radiometry.finish(values, there, layer.cube.meta.dtype.newbyteorder("="), bands)
    if layer.summary.unit == "spread":
        values = radiometry.spread_from_unit(values, bands)
    return np.where(there, values, np.float32(np.nan))


def _write_owned(
    cube: Cube, target: Window, values: NDArray[Any], span: Span, bands: Sequence[int], radiometry: Radiometry
) -> None:
    """Write the bands that a span owns: its values, and nodata in the unusable bands between them."""
    first, last, _ = span.owned.indices(cube.meta.bands)
    out = np.full((last - first, *values.shape[1:]), radiometry.nothing(cube.meta.dtype), cube.meta.dtype)
    out[[band - first for band in bands]] = values
    cube.write(target, out, slice(first, last))


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _smaller(tile: Tile, posterior: Posterior, plan: Plan, say: Callable[[str], None]) -> list[Tile]:
    """What to try where `tile` did not fit into memory: fewer sub-networks at once, then half of the tile."""
    if posterior.at_once > 1:
        posterior.at_once //= 2
        say(f"Out of memory: going on with {posterior.at_once} samples at once.")
        return [tile]
    if max(tile.core.rows, tile.core.columns) <= SMALLEST_TILE:
        raise ResourceError(f"Out of memory even with a tile of {tile.core.rows} x {tile.core.columns} pixels.")
    halves = tile.halves(plan.halo, plan.scene)
    say(f"Out of memory: going on with tiles of {halves[0].core.rows} x {halves[0].core.columns} pixels.")
    return list(reversed(halves))


def usable_memory(device: torch.device) -> int:
    """The share of the free memory that a run takes if the user gives no limit."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    return int(free * MEMORY_SHARE)
