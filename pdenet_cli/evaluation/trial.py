"""A truth degraded as by a coarser sensor, and sharpened again by a system."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ResourceError
from pdenet_cli.evaluation.view import View
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.report import Say, WatchTiles
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.run import Layer, Sink, super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window
from pdenet_cli.system import usable_memory
from pdenet_cli.uncertainty.summaries import Summary

BAND_VALUES = 1 << 26  # values of the truth that are degraded at once
BYTES_PER_VALUE = 25  # memory that degrading takes per value, for the largest data type


@dataclass(frozen=True)
class Coarse:
    """A degraded truth with its surroundings, unless it was cut out: 0..1, in memory."""

    cube: Cube
    part: Window  # where the truth itself is in the cube


def make_coarse(
    truth: View, degradation: Degradation, seed: int, memory: int | None = None, *, alone: bool = False
) -> Coarse:
    """The truth degraded with the rest of its scene, or `alone`; holes are filled as for the network.

    Its noise depends on the seed and on the scene's values: each scene has its own, whatever its name or place.
    `memory` limits how many bands are degraded at once; at least one is.
    """
    scale = degradation.scale
    seen = truth if alone else truth.with_surroundings(scale)
    part = truth.part.relative_to(seen.part).coarsened(scale)
    bands, scene = len(seen.bands), seen.scene
    low = np.empty((bands, scene.rows // scale, scene.columns // scale), np.float32)
    blur = replace(degradation, noise=0.0)
    values = min(BAND_VALUES, (memory or usable_memory(torch.device("cpu"))) // BYTES_PER_VALUE)
    at_once = max(1, values // scene.pixels)
    content = hashlib.sha256(str(seed).encode())
    for start in range(0, bands, at_once):  # whole bands: no seams
        high, valid_mask = seen.read(scene, range(start, min(start + at_once, bands)))
        if degradation.noise:
            for plane, known in zip(high, valid_mask, strict=True):
                content.update(plane[known])
        high = filled_from_edges(high, valid_mask, FILL_DEPTH * scale)
        low[start : start + at_once] = blur(torch.from_numpy(high)).numpy()
    if degradation.noise:
        generator = torch.Generator().manual_seed(int.from_bytes(content.digest()[:8], "big"))
        low += degradation.noise * torch.randn(low.shape, generator=generator).numpy()
    return Coarse(Cube(truth.cube.path, CubeMeta(*low.shape, low.dtype), low), part)


def sharpen_coarse(
    low: Coarse,
    posterior: Posterior,
    outputs: Sequence[tuple[Summary, Sink]],
    memory: int | None = None,
    watch: WatchTiles = lambda done, total: None,
    say: Say = lambda text: None,
    *,
    whole_spectra: bool = False,
) -> None:
    """Sharpen `low` and write each summary to its sink; `watch` gets (tiles done, tiles in all).

    `whole_spectra`: all bands of a pixel are written at once.
    """
    scene = ScenePass.prepare(
        low.cube,
        posterior,
        [summary for summary, _ in outputs],
        Reading.of_unit(low.cube.meta.bands),
        Limits(memory),
        part=low.part,
        whole_spectra=whole_spectra,
    )
    layers = [Layer(summary, sink) for summary, sink in outputs]
    for done, _ in enumerate(super_resolve(scene, layers, say=say), start=1):
        watch(done, len(scene.plan.tiles))


def scratch_cube(folder: Path, low: Coarse, scale: int) -> Cube:
    """An empty cube for an estimate, in a file: several estimates of a large scene do not fit into memory."""
    part, meta = low.part.scaled(scale), low.cube.meta
    meta = CubeMeta(meta.bands, part.rows, part.columns, meta.dtype)
    path = folder / f"{len(list(folder.iterdir()))}.raw"
    array = RawArray(path, meta.dtype, meta.shape())
    try:
        array.reserve()
    except OSError as error:
        problem = f"{meta.nbytes:,} bytes for an estimate do not fit into {folder} ({error.strerror or error})"
        raise ResourceError(f"{problem}. Set TMPDIR to a folder on a larger disk.") from error
    return Cube(path, meta, array)
