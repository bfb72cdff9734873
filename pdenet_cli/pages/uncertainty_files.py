"""What a run shows besides its cubes: a sheet of pictures, a page, and a style for QGIS beside every raster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.files import write_whole
from pdenet_cli.formats import open_cube
from pdenet_cli.pages.sheet import SheetMap, sheet_png
from pdenet_cli.pages.style import colour_style, map_style
from pdenet_cli.pages.uncertainty import Facts, MapFacts, from_cubes
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


def write_page(scene: str, source: Cube, cubes: Mapping[str, Path], report: Report, page: Path) -> None:
    """Write the page of what a run made of `source`.

    `cubes` are the run's outputs by name, the mean among them.
    """
    facts = _facts(scene, report)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_cube(path)) for name, path in cubes.items()}
        maps = [_merged(opened, shown.name) for shown in facts.maps]
        ends = (opened["interval_low"], opened["interval_high"]) if "interval_low" in opened else None
        text = from_cubes(source, opened["mean"], maps, facts, ends, opened.get("std"))
        write_whole(page, text, overwrite=True)


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


def _facts(scene: str, report: Report) -> Facts:
    job = report.job
    return Facts(
        scene=_printable(scene),
        model=job["model"]["name"],
        samples=job["samples"],
        maps=tuple(_map_facts(name, report.maps[name]) for name in _by_priority(report, PAGE_PRIORITY)),
        level=job["uncertainty"]["level"] if "interval" in report.maps else None,
        notes=tuple(_notes(report)),
        record=job | {"maps": report.maps},
    )


def _map_facts(name: str, found: Mapping[str, Any]) -> MapFacts:
    says = found["says"] if "bands" in found["says"] else f"{found['says']}, merged over the bands"
    return MapFacts(name, says, found["unit"])


def _notes(report: Report) -> Iterator[str]:
    calibration = report.job["uncertainty"]["calibration"]
    if calibration:
        yield f"{calibration['guarantee']} {STRATA_SAY}"
    yield from report.notes


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
