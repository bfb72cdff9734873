"""Scenes whose truth is known: how a user wants them read, and the part that is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli.cube import Cube, Window
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, UsageError
from pdenet_cli.evaluation.view import ALONE, PARTS, View
from pdenet_cli.formats import files_of, open_cube
from pdenet_cli.formats.output import refuse_scenes
from pdenet_cli.metrics import PROTOCOLS
from pdenet_cli.models import ModelSpec
from pdenet_cli.posterior import ENSEMBLES
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.report import versions
from pdenet_cli.survey import Survey
from pdenet_cli.training.data import held_out, sha256_of


@dataclass(frozen=True)
class Settings:
    """How systems are compared, apart from the systems."""

    protocol: str = "pdenet"
    part: str = "whole"
    value_range: tuple[float, float] | None = None
    bands: slice | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # the number that stands for nothing, None: what the file says
    look: bool = False  # gather pictures and spectra too
    pixels: tuple[tuple[int, int], ...] = ()
    memory: int | None = None
    uncertainty: bool = False  # judge the uncertainty of models that have samples too
    level: float | None = None  # of the intervals; None: that of the calibrations, or the usual one
    ensemble: str | None = None  # None: each model as it was calibrated, else masks
    kernel: str | None = None  # how truths are made coarse; None: as the models have learned
    fwhm: float | None = None  # of a Gaussian kernel, or of the lens before an area
    noise: float | None = None  # None: as the models have learned

    def __post_init__(self) -> None:
        for name, table in (("protocol", tuple(PROTOCOLS)), ("part", tuple(PARTS)), ("ensemble", ENSEMBLES)):
            if getattr(self, name) not in (*table, None):
                raise UsageError(f"--{name} {getattr(self, name)} is unknown; choose {' or '.join(table)}.")

    @property
    def alone(self) -> bool:
        """Whether the part is cut out before it is made coarse, so that no system sees what lies around it."""
        return self.part == ALONE

    def degradation(self, learned: Degradation) -> Degradation:
        """How truths are made coarse for a model that has `learned` from coarse cubes made in this way."""
        return learned.changed(self.kernel, self.fwhm, self.noise)

    def job(self, scale: int) -> dict[str, Any]:
        """What of this decides the result."""
        return {
            "protocol": self.protocol,
            "scale": scale,
            "part": self.part,
            "range": self.value_range,
            "nodata": self.nodata,
            "bands": None if self.bands is None else [self.bands.start, self.bands.stop],
            "versions": versions("torch", "numpy"),
        }


def open_truth(path: Path, settings: Settings) -> Cube:
    cube = open_cube(path, settings.variable, settings.axes, settings.nodata)
    return cube if settings.bands is None else cube.with_bands(settings.bands)


def first_repeated(scenes: Sequence[Path], settings: Settings) -> Path | None:
    """The first scene that was there before, maybe by another of its files; None: all differ."""
    seen: set[Path] = set()
    for scene in scenes:
        own, _ = files_of(scene, settings.variable, settings.axes)
        files = {file.resolve() for file in own or (scene,)}
        if files & seen:
            return scene
        seen |= files
    return None


def refuse_to_replace(outputs: Sequence[Path], scenes: Sequence[Path], settings: Settings) -> None:
    """Stop before any work where an output would replace a scene, or another output."""
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError(f"{outputs[0]}: two outputs cannot have the same name.")
    for scene in scenes if outputs else ():
        own, others = files_of(scene, settings.variable, settings.axes)
        if own:
            refuse_scenes(outputs, (scene, *own, *others))


def trained_on(path: Path, settings: Settings, spec: ModelSpec) -> bool:
    """Whether a model has learned from what it is tried on: these very numbers, whichever bands are compared."""
    facts = list(spec.learned_from())
    if not facts or settings.part != "whole":  # training keeps away from the other part
        return False
    with open_truth(path, replace(settings, bands=None)) as cube:
        shape = list(cube.meta.shape())
        alike = {str(fact.get("sha256")) for fact in facts if fact.get("shape") == shape}
        return bool(alike) and sha256_of(cube) in alike


def truth_view(
    cube: Cube,
    scale: int,
    settings: Settings,
    multiple: int,
    count: int | None,
    say: Callable[[str], None] = lambda text: None,
) -> View:
    """What is compared of a truth: the bands for networks that take `count` of them, None for any number, and of
    the part that was asked for a `multiple` of pixels. `say` is told what looks wrong.
    """
    survey = Survey.of(cube)
    for note in survey.notes:
        say(f"{cube.path.name}: {note}.")
    bands = survey.bands_for(cube.meta, count)
    if not bands:
        raise FormatError(f"{cube.path}: every band is marked bad or empty; nothing is left to compare.")
    size = rows, columns = cube.meta.rows, cube.meta.columns
    part = Window(0, 0, rows // multiple * multiple, columns // multiple * multiple)
    if settings.part != "whole":
        part = held_out(size, scale) or Window(0, 0, 0, 0)
    if not part.rows or not part.columns:
        asked = "a comparison" if settings.part == "whole" else "a lower-right part"
        raise UsageError(f"{cube.path}: {rows} x {columns} pixels are too few for {asked} at x{scale}.")
    for row, column in settings.pixels:
        if not (part.row <= row < part.bottom and part.column <= column < part.right):
            inside = f"rows {part.row} to {part.bottom - 1}, columns {part.column} to {part.right - 1}"
            met = f"--pixel {row} {column} is outside the part that is compared"
            raise UsageError(f"{cube.path}: {met}: {inside}.")
    return View(cube, Radiometry.of(cube.meta, survey, settings.value_range), bands, part)
