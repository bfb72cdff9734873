"""A page that leads to the pages of all scenes in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from pdenet_cli.files import write_whole
from pdenet_cli.pages.scene_index import MARK, Entry, index_page
from pdenet_cli.report import REPORT, Report

INDEX = "index.html"


def write_index(folder: Path) -> Path | None:
    """Write the index of the pages in a folder, and return its path; None where another file has its name."""
    path = folder / INDEX
    if os.path.lexists(path) and MARK not in _beginning(path):
        return None
    entries = [entry for report in sorted(folder.glob(f"*{REPORT}")) if (entry := _entry(report)) is not None]
    write_whole(path, index_page(entries), overwrite=True)
    return path


def _beginning(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(1000)
    except OSError:
        return ""


def _entry(path: Path) -> Entry | None:
    """What the index says of a scene; None if it has no page here."""
    report = Report.read(path)
    if report is None or "page" not in report.outputs:
        return None
    page, picture = (Path(report.outputs.get(name, "")).name for name in ("page", "picture"))
    if not (path.parent / page).is_file():
        return None
    return Entry(
        name=path.name.removesuffix(REPORT),
        page=page,
        picture=picture if (path.parent / picture).is_file() else "",
        shape=f"{report.scene['rows']} x {report.scene['columns']} pixels, {report.scene['bands']} bands",
        model=report.job["model"]["name"],
        medians={name: (found["median"], found["unit"]) for name, found in report.maps.items()},
    )
