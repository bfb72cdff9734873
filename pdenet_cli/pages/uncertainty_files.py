"""What a run shows besides its cubes: a sheet of pictures, a page, and a style for QGIS beside every raster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.files import write_whole
from pdenet_cli.formats import open_cube
from pdenet_cli.pages.contents import PAGE_SIZE, MapShown, SceneShown
from pdenet_cli.pages.scene_page import Words, scene_page
from pdenet_cli.pages.sheet import SheetMap, sheet_png
from pdenet_cli.pages.shown import Shown
from pdenet_cli.pages.style import colour_style, map_style
from pdenet_cli.pages.values import Values
from pdenet_cli.report import Report
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.sliceable import Sliceable
from pdenet_cli.uncertainty.spread import STRATA_SAY
from pdenet_cli.uncertainty.summaries import MAPS, MEAN

PAGE_PRIORITY = ("risk", "interval", "error", "std", "cv", "angle", "consistency", "share")
"""The maps in the order of the page, which shows the first of them that was made; others come last."""
SHEET_PRIORITY = ("error", *(name for name in PAGE_PRIORITY if name != "error"))

LAYERS = [MEAN, *(layer for layers in MAPS.values() for layer in layers)]
VALUES = [layer.name for layer in LAYERS if layer.unit == "value"]  # cubes that hold the scene's own quantity
COUNTS = [layer.name for layer in LAYERS if layer.unit == "percent"]  # which are drawn in greys
TITLES = {  # where a description is too long for a heading
    "error": "error to expect",
    "interval": "width of the interval",
    "std": "std of the samples",
    "risk": "probability of a larger error",
    "share": "samples that differ",
    "cv": "std relative to the mean",
    "angle": "angle between samples",
    "consistency": "difference from the input",
}


def write_sheet(scene: str, source: Cube, cubes: Mapping[str, Path], report: Report, picture: Path) -> None:
    """Write the picture of what a run made of `source`: input, bicubic, result and its most telling map.

    `cubes` are the run's outputs by name, the mean among them.
    """
    names = _by_priority(report, SHEET_PRIORITY)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_cube(path)) for name, path in cubes.items()}
        seen = None
        if names:
            values = Values.of(source.meta, report.job["radiometry"])
            factor, unit = values.of_map(report.maps[names[0]]["unit"])
            merged = _merged(opened, names[0])
            heading = TITLES.get(names[0], report.maps[names[0]]["says"])
            seen = SheetMap(merged, heading, unit, factor, counts=names[0] in COUNTS)
        samples = "" if report.job["samples"] == 1 else f", {report.job['samples']} samples"
        title = f"{_printable(scene)}: {report.job['model']['name']}{samples}"
        write_whole(picture, sheet_png(source, opened["mean"], seen, title), overwrite=True)


def write_style(name: str, raster: Path, style: Path) -> None:
    """Write the style of the output `name` of a run, so that QGIS opens its `raster` as it is meant."""
    with open_cube(raster) as cube:
        text = colour_style(cube) if name.removesuffix("_merged") in VALUES else _map_style(name, cube)
    write_whole(style, text, overwrite=True)


def _map_style(name: str, cube: Cube) -> str:
    return map_style(cube, counts=name.removesuffix("_merged") in COUNTS)


def write_page(
    scene: str,
    source: Cube,
    cubes: Mapping[str, Path],
    report: Report,
    page: Path,
    page_size: int = PAGE_SIZE,
) -> None:
    """Write the page, of about `page_size` bytes at most, of what a run made of `source`.

    `cubes` are the run's outputs by name, the mean among them.
    """
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_cube(path)) for name, path in cubes.items()}
        values = Values.of(source.meta, report.job["radiometry"])
        half, band = _band(opened, values, report)
        shown = SceneShown(
            Shown.of(source, values),
            Shown.of(opened["mean"], values),
            values.unit,
            tuple(_map(name, opened, values, report) for name in _by_priority(report, PAGE_PRIORITY)),
            half,
            band,
        )
        write_whole(page, scene_page(shown, _words(scene, report), page_size), overwrite=True)


def _map(name: str, cubes: Mapping[str, Cube], values: Values, report: Report) -> MapShown:
    """A map of the page, merged and, where the run wrote that, for each band."""
    factor, unit = values.of_map(report.maps[name]["unit"])
    counts = report.maps[name]["unit"] == "percent"
    says = report.maps[name]["says"].removesuffix(", mean over the bands")
    how = "" if "bands" in says else ", mean over the bands" if name == "interval" else ", merged over the bands"
    merged = Shown(_merged(cubes, name), (factor,))
    each = _each_band(cubes, name)
    if each is None or name == "interval":
        bands = None
    else:
        bands = Shown(each) if counts or unit == "degrees" else Shown.spread(each, values)
    return MapShown(name, TITLES.get(name, name), says, how, unit, merged, name in COUNTS, each is not None, bands)


def _each_band(cubes: Mapping[str, Cube], name: str) -> Cube | None:
    """A map with a value for each band; of intervals, their width."""
    if name == "interval":
        return _width(cubes["interval_low"], cubes["interval_high"]) if "interval_low" in cubes else None
    return cubes.get(name)


def _band(cubes: Mapping[str, Cube], values: Values, report: Report) -> tuple[Shown | None, str]:
    """Half the width of the band around a spectrum, and what that is: the interval, else two std, else none."""
    width = _each_band(cubes, "interval")
    if width is not None:
        return Shown.spread(width, values, 0.5), f"{100 * report.job['uncertainty']['level']:g} % interval"
    if "std" in cubes:
        return Shown.spread(cubes["std"], values, 2), "± 2 std of the samples, not calibrated"
    return None, ""


def _by_priority(report: Report, first: Sequence[str]) -> list[str]:
    """The maps that were made: those in `first` in that order, then all others."""
    return [name for name in dict.fromkeys((*first, *report.maps)) if name in report.maps]


def _printable(name: str) -> str:
    """A name that fonts and pages can show: they have no surrogates."""
    return name.encode("utf-8", "backslashreplace").decode()


def _merged(cubes: Mapping[str, Cube], name: str) -> Cube:
    """A map with one value for each pixel; of intervals, their width."""
    if name == "interval":
        return _width(cubes["interval_low_merged"], cubes["interval_high_merged"])
    return cubes[f"{name}_merged"]


def _words(scene: str, report: Report) -> Words:
    job = report.job
    question = job["uncertainty"] or {"level": None, "calibration": None}
    calibration = question["calibration"]
    return Words(
        scene=_printable(scene),
        model=job["model"]["name"],
        samples=job["samples"],
        level=question["level"] if "interval" in report.maps else None,
        proof=f"{calibration['guarantee']} {STRATA_SAY}" if calibration else "",
        notes=report.notes,
        record=job | {"maps": report.maps},
    )


def _width(low: Cube, high: Cube) -> Cube:
    """The width of an interval, as a cube."""
    return Cube(high.path, high.meta, _Difference(high.array, low.array), high.axes)


@dataclass(frozen=True)
class _Difference:
    """One array minus another, computed when it is read."""

    more: Sliceable
    less: Sliceable

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.more.shape)

    @property
    def strided(self) -> bool:
        return getattr(self.more, "strided", False) and getattr(self.less, "strided", False)

    def __getitem__(self, key: tuple[slice, ...]) -> Any:
        return self.more[key] - self.less[key]
