"""`pdenet psf`: how wide the point spread of a scene is, by the edges in the scene itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.sharpness import sharpness_of
from pdenet_cli.evaluation.view import View
from pdenet_cli.files import refuse_existing, refuse_folders, refuse_scenes, write_whole
from pdenet_cli.formats import open_cube
from pdenet_cli.pages.point_spread import point_spread_png
from pdenet_cli.point_spread.measure import Measured, measure
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.picture import refuse_other_than_png
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.sensors import sensor_of
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window


@dataclass(frozen=True)
class PointSpreadReport:
    """The point spread of one scene, beside what else is known of it."""

    path: Path
    found: Measured
    spectrum: float | None  # FWHM that its spectrum of power looks like
    sensor: str | None  # the published width of the sensor, in words

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        facts = {"path": str(self.path), **self.found.to_dict()}
        return facts | {"spectrum_of_power": self.spectrum, "published": self.sensor}


def point_spread_report(
    path: Path,
    *,
    variable: str | None = None,
    axes: str | None = None,
    nodata: float | None = None,
    value_range: ValueRange | None = None,
    bands: BandChoice | None = None,
    window: Window | None = None,
    picture: Path | None = None,
    overwrite: bool = False,
) -> PointSpreadReport:
    """What the scene in `path` tells of its point spread; a `picture` shows it, also where that is too little."""
    if picture is not None:
        refuse_other_than_png(picture)
        refuse_folders((picture,))
        refuse_existing((picture,), overwrite)
    with open_cube(path, variable, axes, nodata, window) as whole:
        if picture is not None:
            refuse_scenes((picture,), (path, *whole.files))
        cube = whole if bands is None else whole.with_bands(bands)
        found, reading = measured_in(cube, value_range)
        view = View(cube, reading.radiometry, reading.bands, cube.meta.window)
        known = sensor_of(cube.meta.product)
        published = (
            None if known is None else f"{known.name} {known.narrowest:g} to {known.widest:g} ({known.source})"
        )
        report = PointSpreadReport(path, found, sharpness_of(view), published)
    if picture is not None:
        write_whole(picture, point_spread_png(found, path.name), overwrite=overwrite)
    return report


def measured_in(cube: Cube, value_range: ValueRange | None = None) -> tuple[Measured, Reading]:
    """What an open cube tells of its point spread, and how it was read."""
    reading = Reading.of(cube, None, value_range, Survey.quick(cube))
    return measure(cube, reading), reading


def scene_psf(
    path: Path,
    variable: str | None = None,
    axes: str | None = None,
    nodata: float | None = None,
    value_range: ValueRange | None = None,
    bands: BandChoice | None = None,
    window: Window | None = None,
) -> str:
    """The point spread that is measured in a scene, as `psf` takes it; UsageError where it cannot be told."""
    with open_cube(path, variable, axes, nodata, window) as whole:
        try:
            return measured_in(whole if bands is None else whole.with_bands(bands), value_range)[0].psf
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
