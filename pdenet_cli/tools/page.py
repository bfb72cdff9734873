"""The page and the picture of `pdenet uncertainty`, from the cubes that a run has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.calibration import STRATA_SAY
from pdenet_cli.cube import Cube, Sliceable
from pdenet_cli.formats import open_cube
from pdenet_cli.formats.output import write_beside
from pdenet_cli.pages.uncertainty import Facts, from_cubes, picture_from_cube
from pdenet_cli.report import Report

PAGE_PRIORITY = ("risk", "interval", "std", "cv", "angle", "consistency", "share")
"""Which map the page shows: the first of these that was made."""


def write_page(scene: str, cubes: Mapping[str, Path], report: Report, page: Path, picture: Path) -> None:
    """Write the page and the picture; `cubes` are the run's outputs by name, the mean among them."""
    facts = _facts(scene, report)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(open_cube(path)) for name, path in cubes.items()}
        if facts.map == "interval":
            risk = _width(opened["interval_low_merged"], opened["interval_high_merged"])
        else:
            risk = opened[f"{facts.map}_merged"]
        ends = opened.get("interval_low"), opened.get("interval_high")
        text = from_cubes(opened["mean"], *ends, risk, facts, opened.get("std"))
        write_beside(page, text, overwrite=True)
        write_beside(picture, picture_from_cube(risk, facts), overwrite=True)


def _facts(scene: str, report: Report) -> Facts:
    job = report.job
    name = next(name for name in PAGE_PRIORITY if name in report.maps)
    told = report.maps[name]
    return Facts(
        scene=scene.encode("utf-8", "backslashreplace").decode(),  # fonts cannot show surrogates
        model=job["model"]["name"],
        samples=job["samples"],
        map=name,
        says=told["says"] if "bands" in told["says"] else f"{told['says']}, merged over the bands",
        unit=told["unit"],
        level=job["uncertainty"]["level"] if "interval" in report.maps else None,
        notes=tuple(_notes(report)),
        record=job | {"maps": report.maps},
    )


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
