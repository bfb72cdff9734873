"""The files of one run: checked before the work, written under hidden names, renamed when all are complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError, PdenetError
from pdenet_cli.files import (
    PARTIAL,
    is_same,
    partial_path,
    refuse_existing,
    refuse_folders,
    refuse_scenes,
    refuse_small_disk,
    remove,
    rename,
)
from pdenet_cli.formats import files_of
from pdenet_cli.formats.common.output import Output
from pdenet_cli.pages.style import STYLED, style_path
from pdenet_cli.pages.uncertainty_files import write_page, write_sheet, write_style
from pdenet_cli.report import REPORT, Report, finite
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.tools.journal import Journal

KEPT = "The finished tiles are kept: continue with `resume`."
COMPLETE = "complete"  # the journal's step after the last tile
PARTIAL_FILES = "files"  # the journal's key for the hidden files of a run
REPLACES = "replaces"  # the journal's key for whether a run was begun with `overwrite`


@dataclass(frozen=True)
class Delivery:
    """The outputs of one scene: cubes, styles and a report, on request also a picture and a page."""

    path: Path  # all outputs are named after it
    cubes: Mapping[str, tuple[Output, CubeMeta]]  # by the name of their map
    overwrite: bool = False
    quicklook: bool = False  # a sheet of pictures
    page: bool = False  # an HTML page, and the sheet
    style: bool = True  # a style for QGIS beside every raster

    @property
    def report_path(self) -> Path:
        return self._beside_output(REPORT)

    @property
    def journal(self) -> Journal:
        return Journal(self.path)

    @property
    def page_path(self) -> Path | None:
        """The page, if it is asked for."""
        return self._beside_output("_uncertainty.html") if self.page else None

    @property
    def sheet_path(self) -> Path | None:
        """The sheet of pictures, if it or the page is asked for."""
        if self.page:
            return self._beside_output("_uncertainty.png")
        return self._beside_output(".png") if self.quicklook and "mean" in self.cubes else None

    @property
    def styles(self) -> dict[str, Path]:
        """The style of every raster that QGIS opens, by the name of its map."""
        styled = [name for name, (output, _) in self.cubes.items() if output.format.name in STYLED]
        return {name: style_path(self._paths[name]) for name in styled} if self.style else {}

    @property
    def names(self) -> dict[str, str]:
        """The path of every output, by the name of what it shows."""
        shown = {"page": self.page_path, "picture": self.sheet_path}
        return {name: str(path) for name, path in (self._paths | shown).items() if path is not None}

    def refuse(self, files: Sequence[Path]) -> None:
        """Stop where a format cannot hold its cube, a folder has the name of an output, or an output would replace
        the scene of these `files` or be read as a part of it.
        """
        refuse_scenes(self._all_files, files)
        refuse_folders((*self._shown, self.report_path))
        for output, meta in self.cubes.values():
            output.refuse_folders()
            output.refuse(meta)

    def refuse_others(self, scenes: Sequence[Path], variable: str | None, axes: str | None) -> None:
        """Stop where a file of another scene of the same command would be replaced."""
        taken = [final for final in self._all_files if final.exists()]
        if not taken:
            return
        folders = {final.parent.resolve() for final in taken}
        for scene in scenes:
            # Opened only where its files may be among the outputs: there may be thousands of scenes.
            near = {scene.absolute().parent.resolve(), scene.resolve().parent} & folders
            own, others = files_of(scene, variable, axes) if near else ((), ())
            for file in (scene, *own, *others):
                if met := next((final for final in taken if is_same(final, file)), None):
                    what = "another input scene" if file == scene else f"a file of {scene.name}"
                    raise OutputError(f"{met} is {what}. Write the results into a separate folder.")

    def refuse_existing(self) -> None:
        """Stop where a file would be replaced without `overwrite`."""
        refuse_existing(self._all_files, self.overwrite)

    def refuse_small_disk(self) -> None:
        """Stop where the disk has too little space for all cubes together."""
        plain = [(output, meta) for output, meta in self.cubes.values() if not output.format.compressed]
        refuse_small_disk(self.path.parent, {output.parts[0]: meta.nbytes for output, meta in plain})

    @property
    def in_the_way(self) -> list[Path]:
        """Existing files that the outputs would replace, unless `overwrite` allows it."""
        return [] if self.overwrite else [path for path in self._all_files if path.exists()]

    def finished_report(self, job: dict[str, Any]) -> Report | None:
        """The report of an earlier run of the same job, if all its cubes are still there."""
        report = Report.read(self.report_path)
        if report is None or report.job != job or self.journal.path.exists():
            return None
        names = {name: Path(path).name for name, path in report.outputs.items()}
        same = all(names.get(name) == path.name for name, path in self._paths.items())
        return report if same and all(final.exists() for final in self._finals) else None

    def begin(self, job: dict[str, Any]) -> None:
        """Start again: delete what an interrupted run left, which may have had other outputs."""
        self.refuse_existing()
        for name in self.journal.recorded(PARTIAL_FILES):
            part = self.path.with_name(Path(name).name)
            # Another run may be writing an output of that name by now.
            other = Journal(part.with_name(part.name.removeprefix(".").removesuffix(PARTIAL))).path
            taken = other != self.journal.path and other.exists()
            if part.name.endswith(PARTIAL) and not taken:
                remove(part)
        self._discard()
        self.journal.begin(job | self._parts | {REPLACES: self.overwrite})

    def interrupted(self, job: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """The job and the finished steps of an interrupted run, if its pixels are still there.

        Stops where a file has appeared since that the run was not begun to replace.
        """
        found = self.journal.resume(job | self._parts)
        if found is None:
            return None
        begun, steps = found
        allowed = self.overwrite or begun.get(REPLACES) is True
        if COMPLETE in steps:
            refuse_existing(tuple(self._not_yet_renamed()), allowed)
            return found
        refuse_existing(self._all_files, allowed)
        # The first file of a cube holds its pixels.
        return found if all(output.parts[0].exists() for output, _ in self.cubes.values()) else None

    @contextmanager
    def open_outputs(self, described: Mapping[str, CubeMeta]) -> Iterator[dict[str, Cube]]:
        """Every cube, open for writing, with the pixels that an interrupted run has written.

        `described` is what is known by now of some cubes besides their shapes.
        """
        with ExitStack() as opened:
            yield {
                name: opened.enter_context(output.create(described.get(name, meta)))
                for name, (output, meta) in self.cubes.items()
            }

    @contextmanager
    def cleanup_on_failure(self) -> Iterator[None]:
        """Delete partial files on an error, unless `resume` can continue: after some tiles, or an interrupt."""
        try:
            yield
        except Exception as error:
            if not self.journal.steps:
                self._discard()
                self.journal.end()
            elif isinstance(error, PdenetError):
                raise type(error)(f"{error} {KEPT}") from error
            raise

    def complete(self, report: Report) -> None:
        """Record that every pixel is written, with the report."""
        partial_path(self.report_path).write_text(json.dumps(finite(asdict(report)), indent=2))
        self.journal.note(COMPLETE)

    def commit(self, scene: str, source: Cube) -> Report:
        """Rename all files to their final names and draw what was made of `source`.

        If this fails, `resume` continues from here.
        """
        for output, _ in self.cubes.values():
            output.commit()
        if partial_path(self.report_path).exists():
            rename(partial_path(self.report_path), self.report_path)
        report = Report.read(self.report_path)
        assert report is not None
        self.draw(scene, source, report)
        self.journal.end()
        return report

    def draw(self, scene: str, source: Cube, report: Report, *, missing: bool = False) -> None:
        """Write the pictures and the page of the cubes; `missing`: only those that do not exist."""
        wanted = {path for path in self._shown if not (missing and path.exists())}
        for name, style in self.styles.items():
            if style in wanted:
                write_style(name, self._paths[name], style)
        if self.sheet_path in wanted:
            write_sheet(scene, source, self._paths, report, self.sheet_path)
        if self.page_path in wanted:
            write_page(scene, source, self._paths, report, self.page_path)

    @property
    def _parts(self) -> dict[str, list[str]]:
        return {PARTIAL_FILES: [part.name for output, _ in self.cubes.values() for part in output.parts]}

    @property
    def _paths(self) -> dict[str, Path]:
        return {name: output.path for name, (output, _) in self.cubes.items()}

    @property
    def _finals(self) -> tuple[Path, ...]:
        return tuple(final for output, _ in self.cubes.values() for final in output.finals)

    def _not_yet_renamed(self) -> Iterator[Path]:
        """The final names of the files of a complete run that are still hidden; those renamed are its own."""
        for output, _ in self.cubes.values():
            yield from (final for part, final in zip(output.parts, output.finals, strict=True) if part.exists())
        if partial_path(self.report_path).exists():
            yield self.report_path

    @property
    def _shown(self) -> tuple[Path, ...]:
        """What shows the cubes: styles, picture and page."""
        shown = (*self.styles.values(), self.sheet_path, self.page_path)
        return tuple(path for path in shown if path is not None)

    @property
    def _all_files(self) -> tuple[Path, ...]:
        return (*self._finals, *self._shown, self.report_path)

    def _beside_output(self, ending: str) -> Path:
        return self.path.with_name(self.path.stem + ending)

    def _discard(self) -> None:
        for output, _ in self.cubes.values():
            output.discard()
        remove(partial_path(self.report_path))
