"""The page and the picture of `pdenet uncertainty`, from the cubes that a run has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.files import write_whole
from pdenet_cli.formats import open_cube
from pdenet_cli.pages.uncertainty import Facts, MapFacts, from_cubes, picture_from_cube
from pdenet_cli.report import Report
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.sliceable import Sliceable
from pdenet_cli.uncertainty.spread import STRATA_SAY

PAGE_PRIORITY = ("risk", "interval", "error", "std", "cv", "angle", "consistency", "share")
"""The maps in the order of the page, which shows the first of them that was made."""


def write_page(
    scene: str, source: Cube, cubes: Mapping[str, Path], report: Report, page: Path, picture: Path
) -> None:
    """Write the page and the picture of what a run made of `source`.

    `cubes` are the run's outputs by name, the mean among them.
    """
    facts = _facts(scene, report)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_cube(path)) for name, path in cubes.items()}
        maps = [_merged(opened, told.name) for told in facts.maps]
        ends = (opened["interval_low"], opened["interval_high"]) if "interval_low" in opened else None
        text = from_cubes(source, opened["mean"], maps, facts, ends, opened.get("std"))
        write_whole(page, text, overwrite=True)
        write_whole(picture, picture_from_cube(maps[0], facts), overwrite=True)


def _merged(cubes: Mapping[str, Cube], name: str) -> Cube:
    """A map with one value for each pixel; of intervals, their width."""
    if name == "interval":
        return _width(cubes["interval_low_merged"], cubes["interval_high_merged"])
    return cubes[f"{name}_merged"]


def _facts(scene: str, report: Report) -> Facts:
    job = report.job
    return Facts(
        scene=scene.encode("utf-8", "backslashreplace").decode(),  # fonts cannot show surrogates
        model=job["model"]["name"],
        samples=job["samples"],
        maps=tuple(_map_facts(name, report.maps[name]) for name in PAGE_PRIORITY if name in report.maps),
        level=job["uncertainty"]["level"] if "interval" in report.maps else None,
        notes=tuple(_notes(report)),
        record=job | {"maps": report.maps},
    )


def _map_facts(name: str, told: Mapping[str, Any]) -> MapFacts:
    says = told["says"] if "bands" in told["says"] else f"{told['says']}, merged over the bands"
    return MapFacts(name, says, told["unit"])


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
