"""A cube in memory, for notebooks: an array in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.report import WatchTiles
from pdenet_cli.reprs import html_table
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.run import super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.spectral_axis import spectral_axis
from pdenet_cli.tools.maps import UNIT_TEXTS, Maps
from pdenet_cli.uncertainty.summaries import MEAN, USUAL, Question, Summary

AXES = {"b": "bands", "r": "rows", "c": "columns"}
USUAL_AXES = ("brc", "rbc", "rcb")  # by the place of the bands


class Results(dict[str, NDArray[np.float32]]):
    """The arrays that `sharpen` makes, by name; a notebook shows what each is."""

    def __init__(self, arrays: dict[str, NDArray[np.float32]], says: dict[str, str]) -> None:
        super().__init__(arrays)
        self.says = says  # what each array shows, and its unit

    def __repr__(self) -> str:
        """One line for each array."""
        return "\n".join(f"{name}: {text}" for name, text in self._lines().items())

    def _repr_html_(self) -> str:
        return html_table("Results of pdenet", self._lines())

    def _lines(self) -> dict[str, str]:
        return {name: f"{' x '.join(map(str, array.shape))}, {self.says[name]}" for name, array in self.items()}


@dataclass(frozen=True)
class ArrayPass:
    """A cube ready to be sharpened into arrays: all of it, or one tile after the other."""

    scene: ScenePass
    maps: Maps
    question: Question

    @classmethod
    def of(
        cls,
        source: Cube,
        posterior: Posterior,
        maps: Sequence[str],
        question: Question = USUAL,
        value_range: ValueRange | None = None,
        memory: int | None = None,
    ) -> Self:
        """The pass of `posterior` over `source` that makes the finer cube and these maps."""
        asked = Maps(maps, question, posterior)
        reading = Reading.of(source, posterior.network.bands, value_range)
        scene = ScenePass.prepare(source, posterior, asked.summaries, reading, Limits(memory))
        return cls(scene, asked, asked.question_for(reading.radiometry))

    @property
    def tiles(self) -> tuple[Self, ...]:
        """The passes over each tile alone, row by row, which give what the whole pass gives there."""
        plan = self.scene.plan
        cuts = (replace(plan, scene=tile.core, surroundings=plan.seen) for tile in plan.tiles)
        return tuple(replace(self, scene=replace(self.scene, plan=cut)) for cut in cuts)

    @property
    def metas(self) -> dict[str, CubeMeta]:
        """The metadata of each array that `arrays` makes."""
        part, scale = self.scene.plan.scene, self.scene.plan.scale
        fine = replace(
            self.scene.cube.meta.upscaled(scale),
            rows=part.rows * scale,
            columns=part.columns * scale,
            dtype=np.dtype("f4"),
            nodata=float("nan"),
        )
        return {"mean": fine} | dict(self.maps.metas(fine, self.question))

    @property
    def summaries(self) -> dict[str, Summary]:
        """What each array shows, by its name without "_merged"."""
        return {"mean": MEAN} | {summary.name: summary for summary in self.maps.summaries}

    def arrays(self, watch: WatchTiles = lambda done, total: None) -> dict[str, NDArray[np.float32]]:
        """The finer cube as "mean" and its maps, (bands, rows, columns), merged ones with a single band."""
        metas = self.metas
        made = {name: np.empty(meta.shape(), np.float32) for name, meta in metas.items()}
        cubes = {name: Cube(Path(name), meta, made[name]) for name, meta in metas.items()}
        layers = self.maps.layers(cubes, metas["mean"])
        for done, _ in enumerate(super_resolve(self.scene, layers, question=self.question), start=1):
            watch(done, len(self.scene.plan.tiles))
        return made

    def says(self, name: str) -> str:
        """What an array shows, and its unit."""
        summary = self.summaries[name.removesuffix("_merged")]
        merged = ", merged over the bands" if name.endswith("_merged") else ""
        return f"{summary.describe(self.question)}{merged} ({UNIT_TEXTS[summary.unit]})"


def sharpen(
    pixels: NDArray[Any],
    posterior: Posterior,
    *,
    axes: str | None = None,
    maps: Sequence[str] = (),
    question: Question = USUAL,
    value_range: ValueRange | None = None,
    nodata: float | None = None,
    memory: int | None = None,
    watch: WatchTiles = lambda done, total: None,
) -> Results:
    """The finer cube of `pixels` as "mean", and the maps that are asked for, in the order of the axes of `pixels`.

    `axes` is that order: b bands, r rows, c columns, such as "rcb". Without it the bands come first, and an array
    whose values show that they do not is refused. All are float32 in the units of `pixels`, NaN where there is no
    data. Maps are those of `pdenet uncertainty` and named like its files: "std" has a value for each band,
    "std_merged" one for each pixel. `value_range` are the numbers that mean 0 and 1, if the usual rule does not
    find them.
    """
    require_posterior(posterior)
    if axes is not None and sorted(axes) != ["b", "c", "r"]:
        raise UsageError(f"`axes` {axes}: expected b, r and c once each, such as rcb.")
    pixels = _checked(pixels, axes)
    axes = axes or "brc"
    size = dict(zip(axes, pixels.shape, strict=True))
    meta = CubeMeta(size["b"], size["r"], size["c"], pixels.dtype, nodata=nodata)
    work = ArrayPass.of(
        Cube(Path("the array"), meta, pixels, axes), posterior, maps, question, value_range, memory
    )
    made = {name: _in_order(array, axes, name) for name, array in work.arrays(watch).items()}
    return Results(made, {name: work.says(name) for name in made})


def _checked(pixels: NDArray[Any], axes: str | None) -> NDArray[Any]:
    """The pixels as an array of NumPy; refused if they are no cube, or not one with these axes."""
    if isinstance(pixels, np.ma.MaskedArray):
        advice = "Pass pixels.filled(VALUE) and nodata=VALUE, so that masked pixels stay nodata"
        raise UsageError(f"Masked arrays are not supported. {advice}.")
    pixels = np.asarray(pixels)
    if pixels.ndim != 3 or not pixels.size or pixels.dtype.kind not in "uif":
        found = f"an array of {pixels.dtype.name} with shape {pixels.shape}"
        raise UsageError(f"Got {found}; expected real numbers with the axes (bands, rows, columns).")
    bands = spectral_axis(pixels) if axes is None else None
    if bands:
        likely = USUAL_AXES[bands]
        found = f"An array of shape {pixels.shape} whose {('middle', 'last')[bands - 1]} axis looks spectral"
        names = ", ".join(AXES[axis] for axis in likely)
        raise UsageError(f"{found}. Pass axes='{likely}' for ({names}), or axes='brc' if its bands come first.")
    return pixels


def _in_order(array: NDArray[np.float32], axes: str, name: str) -> NDArray[np.float32]:
    """(bands, rows, columns) in another order; a merged map without its only band."""
    if name.endswith("_merged"):
        return array[0] if axes.index("r") < axes.index("c") else np.transpose(array[0])
    return array.transpose(["brc".index(axis) for axis in axes])
