"""Scenes whose truth is known: settings, reading, and the part that is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import PdenetError, UsageError
from pdenet_cli.evaluation.metrics import PROTOCOLS
from pdenet_cli.evaluation.view import LOWER_RIGHT_ALONE, PARTS, View
from pdenet_cli.files import refuse_scenes
from pdenet_cli.formats import files_of, open_cube
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.report import Say, versions
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window
from pdenet_cli.training.data import held_out, sha256_of
from pdenet_cli.uncertainty.calibration import ENSEMBLES


@dataclass(frozen=True)
class TruthSettings:
    """How systems are compared, apart from the systems."""

    protocol: str = "pdenet"
    part: str = "whole"
    value_range: ValueRange | None = None
    bands: BandChoice | None = None
    window: Window | None = None  # the part of each scene that is read
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # None: as declared in the file
    look: bool = False  # also make pictures and spectra
    pixels: tuple[tuple[int, int], ...] = ()  # (row, column) whose spectra are wanted; empty: some are chosen
    memory: int | None = None
    uncertainty: bool = False  # also assess the uncertainty of models that give several samples
    level: float | None = None  # of the intervals; None: that of the calibrations, else the default
    ensemble: str | None = None  # None: each model as it was calibrated, else masks
    mixtures: int | None = None  # of scenes with many bands; None: each model as it was calibrated, else as usual
    kernel: str | None = None  # of the degradation; None: as in the models' training
    fwhm: float | None = None  # of a Gaussian kernel, or of the lens in front of an area kernel
    noise: float | None = None  # None: as in the models' training
    psf: str | None = None  # that models for any point spread are told; None: how truths are degraded
    spread: Degradation | None = None  # how truths are degraded, instead of `kernel` and `fwhm`

    def __post_init__(self) -> None:
        for name, table in (("protocol", tuple(PROTOCOLS)), ("part", tuple(PARTS)), ("ensemble", ENSEMBLES)):
            if getattr(self, name) not in (*table, None):
                raise UsageError(f"`{name}` {getattr(self, name)} is unknown; choose {' or '.join(table)}.")

    @property
    def alone(self) -> bool:
        """Whether the part is cut out before it is degraded, so that no system sees its surroundings."""
        return self.part == LOWER_RIGHT_ALONE

    def degradation(self, trained_for: Degradation) -> Degradation:
        """The degradation of truths for a model that was trained for `trained_for`."""
        if self.spread is not None:
            return replace(self.spread, noise=trained_for.noise if self.noise is None else self.noise)
        return trained_for.changed(self.kernel, self.fwhm, self.noise)

    def job(self, scale: int) -> dict[str, Any]:
        """The settings that decide the result, for the report."""
        return {
            "protocol": self.protocol,
            "scale": scale,
            "part": self.part,
            "variable": self.variable,
            "axes": self.axes,
            "range": self.value_range,
            "nodata": self.nodata,
            "window": self.window and asdict(self.window),
            "versions": versions("torch", "numpy"),
        }


def open_truth(path: Path, settings: TruthSettings) -> Cube:
    """The cube in `path`, read as the settings say."""
    cube = open_cube(path, settings.variable, settings.axes, settings.nodata, settings.window)
    return cube if settings.bands is None else cube.with_bands(settings.bands)


def first_repeated(scenes: Sequence[Path], settings: TruthSettings) -> Path | None:
    """The first scene that is given again, perhaps by another of its files; None if all differ."""
    seen: set[Path] = set()
    for scene in scenes:
        main, _ = files_of(scene, settings.variable, settings.axes)
        files = {file.resolve() for file in main or (scene,)}
        if files & seen:
            return scene
        seen |= files
    return None


def refuse_to_replace(outputs: Sequence[Path], scenes: Sequence[Path], settings: TruthSettings) -> None:
    """Stop before any work where an output would replace a scene, or another output."""
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError(f"{outputs[0]}: two outputs cannot have the same name.")
    for scene in scenes if outputs else ():
        files, others = files_of(scene, settings.variable, settings.axes)
        if files:
            refuse_scenes(outputs, (scene, *files, *others))


class Truth:
    """A scene whose truth is known, as settings read it: opened, looked over and hashed once, whatever asks."""

    def __init__(self, path: Path, settings: TruthSettings) -> None:
        self.path, self.settings = path, settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if "whole" in self.__dict__:
            self.whole.close()

    @cached_property
    def whole(self) -> Cube:
        """The cube with all its bands."""
        return open_truth(self.path, replace(self.settings, bands=None))

    @cached_property
    def cube(self) -> Cube:
        return self.whole if self.settings.bands is None else self.whole.with_bands(self.settings.bands)

    @cached_property
    def files(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Its files, and sidecar files that other scenes may share; none where it cannot be read."""
        try:
            return self.whole.own_files, self.whole.beside
        except PdenetError:
            return (), ()

    @cached_property
    def survey(self) -> Survey:
        return Survey.of(self.cube)

    @cached_property
    def sha256(self) -> str:
        """The hash of the numbers of all bands."""
        return sha256_of(self.whole)

    def view(self, scale: int, count: int | None, say: Say = lambda text: None) -> View:
        """What is compared of it at this scale, see `truth_view`."""
        return truth_view(self.cube, scale, self.settings, scale, count, say, self.survey)

    def trained_on(self, specs: Sequence[ModelSpec]) -> list[bool]:
        """Whether each model was trained on the part that is compared, whichever bands are chosen now."""
        cubes = [list(spec.training_cubes()) for spec in specs]
        if not any(cubes):
            return [False] * len(specs)
        meta = self.whole.meta
        shape, size = list(meta.shape()), (meta.rows, meta.columns)

        def used(scale: int | None, holdout: str) -> bool:
            """Whether training at this scale used the part: it holds the lower right out of large cubes only."""
            whole = self.settings.part == "whole" or holdout == "none"
            return whole or scale is None or held_out(size, scale) is None

        known = [
            {
                fact.get("sha256")
                for scale, fact in of_model
                if fact.get("shape") == shape and used(scale, fact.get("holdout", "quarter"))
            }
            for of_model in cubes
        ]
        digest = self.sha256 if any(known) else ""
        return [digest in hashes for hashes in known]


def truth_view(
    cube: Cube,
    scale: int,
    settings: TruthSettings,
    multiple: int,
    count: int | None,
    say: Say = lambda text: None,
    survey: Survey | None = None,
) -> View:
    """What is compared of a truth: the bands for a network that takes `count` of them, None for any number, and
    the part that was asked for, cut to a `multiple` of pixels. `say` gets notes on suspicious values;
    `survey` is that of the cube, None if it is still to be made.
    """
    reading = Reading.of(cube, count, settings.value_range, survey)
    for note in reading.survey.notes:
        say(f"{cube.path.name}: {note}.")
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
            problem = f"`pixels` {row} {column} is outside the part that is compared"
            raise UsageError(f"{cube.path}: {problem}: {inside}.")
    return View(cube, reading.radiometry, reading.bands, part)
