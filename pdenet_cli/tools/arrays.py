"""A cube in memory, for notebooks: an array in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.report import WatchTiles
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.run import super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.tools.maps import Maps
from pdenet_cli.uncertainty.summaries import USUAL, Question


def sharpen(
    pixels: NDArray[Any],
    posterior: Posterior,
    *,
    maps: Sequence[str] = (),
    question: Question = USUAL,
    value_range: ValueRange | None = None,
    nodata: float | None = None,
    memory: int | None = None,
    watch: WatchTiles = lambda done, total: None,
) -> dict[str, NDArray[np.float32]]:
    """The finer cube of `pixels`, (bands, rows, columns), as "mean", and the maps that are asked for.

    All are float32 in the units of `pixels`, NaN where there is no data. Maps are those of `pdenet uncertainty`
    and named like its files: "std" has a value for each band, "std_merged" one for each pixel. `value_range` are
    the numbers that mean 0 and 1, if the usual rule does not find them.
    """
    require_posterior(posterior)
    if isinstance(pixels, np.ma.MaskedArray):
        advice = "Pass pixels.filled(VALUE) and nodata=VALUE, so that masked pixels stay nodata"
        raise UsageError(f"Masked arrays are not supported. {advice}.")
    pixels = np.asarray(pixels)
    if pixels.ndim != 3 or not pixels.size or pixels.dtype.kind not in "uif":
        found = f"an array of {pixels.dtype.name} with shape {pixels.shape}"
        raise UsageError(f"Got {found}; expected real numbers with the axes (bands, rows, columns).")
    bands, rows, columns = pixels.shape
    source = Cube(Path("the array"), CubeMeta(bands, rows, columns, pixels.dtype, nodata=nodata), pixels)
    asked = Maps(maps, question, posterior)
    reading = Reading.of(source, posterior.network.bands, value_range)
    scene = ScenePass.prepare(source, posterior, asked.summaries, reading, Limits(memory))
    question = asked.question_for(reading.radiometry)
    fine = replace(source.meta.upscaled(posterior.network.scale), dtype=np.dtype("f4"), nodata=float("nan"))
    metas = {"mean": fine} | dict(asked.metas(fine, question))
    made: dict[str, NDArray[np.float32]] = {
        name: np.empty(meta.shape(), np.float32) for name, meta in metas.items()
    }
    cubes = {name: Cube(Path(name), meta, made[name]) for name, meta in metas.items()}
    for done, _ in enumerate(super_resolve(scene, asked.layers(cubes, fine), question=question), start=1):
        watch(done, len(scene.plan.tiles))
    return {name: array[0] if name.endswith("_merged") else array for name, array in made.items()}
