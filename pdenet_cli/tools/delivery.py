"""The files of one run: checked before the work, written under hidden names, renamed when all are complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError
from pdenet_cli.files import (
    is_same,
    is_there,
    partial_path,
    refuse_existing,
    refuse_folders,
    refuse_long_names,
    refuse_scenes,
    refuse_small_disk,
    remove,
    rename,
    sync_entries,
)
from pdenet_cli.formats import files_of, output_format
from pdenet_cli.formats.common.output import Output
from pdenet_cli.pages.style import STYLED, style_path
from pdenet_cli.pages.uncertainty_files import write_page, write_sheet, write_style
from pdenet_cli.report import REPORT, Report
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.tools.journal import Journal

KEPT = "The finished tiles are kept: continue with `resume`."


@dataclass(frozen=True)
class Delivery:
    """The outputs of one scene: cubes, styles and a report, on request also a picture and a page."""

    path: Path  # all outputs are named after it
    cubes: Mapping[str, tuple[Output, CubeMeta]]  # by the name of their map
    overwrite: bool = False
    quicklook: bool = False  # a sheet of pictures
    page_size: int | None = None  # bytes at most of an HTML page, which comes with the sheet; None: no page
    style: bool = True  # a style for QGIS beside every raster

    @property
    def report_path(self) -> Path:
        return report_path(self.path)

    @property
    def journal(self) -> Journal:
        return Journal(named_after(self.path))

    @property
    def page_path(self) -> Path | None:
        """The page, if it is asked for."""
        return None if self.page_size is None else self._beside_output(f"{self._about}.html")

    @property
    def sheet_path(self) -> Path | None:
        """The sheet of pictures, if it or the page is asked for."""
        if self.page_size is not None:
            return self._beside_output(f"{self._about}.png")
        return self._beside_output(".png") if self.quicklook and "mean" in self.cubes else None

    @property
    def _about(self) -> str:
        """What page and sheet are called after the name of the outputs, unless that is the sharpened cube's."""
        return "" if "mean" in self.cubes and self.cubes["mean"][0].path == self.path else "_uncertainty"

    @property
    def styles(self) -> dict[str, Path]:
        """The style of every raster that QGIS opens, by the name of its map; without those that exist and stay.

        Nobody may have asked for them, and fine.tif has the same as fine.hdr.
        """
        styled = [name for name, (output, _) in self.cubes.items() if output.format.name in STYLED]
        paths = {name: style_path(self._paths[name]) for name in styled} if self.style else {}
        return {name: path for name, path in paths.items() if self.overwrite or not is_there(path)}

    @property
    def names(self) -> dict[str, str]:
        """The path of every output, by the name of what it shows."""
        shown = {"page": self.page_path, "picture": self.sheet_path}
        return {name: str(path) for name, path in (self._paths | shown).items() if path is not None}

    def refuse(self, files: Sequence[Path]) -> None:
        """Stop where a format cannot hold its cube, a name is too long or that of a folder, or an output would
        replace the scene of these `files` or be read as a part of it.
        """
        refuse_long_names(self.all_files, [self.journal.path])
        refuse_scenes(self.all_files, files)
        refuse_folders((*self._shown, self.report_path))
        for output, meta in self.cubes.values():
            output.refuse_folders()
            output.refuse(meta)

    def refuse_others(self, scenes: Sequence[Path], variable: str | None, axes: str | None) -> None:
        """Stop where a file of another scene of the same command would be replaced."""
        taken = [final for final in self.all_files if final.exists()]
        if not taken:
            return
        folders = {final.parent.resolve() for final in taken}
        for scene in scenes:
            # Opened only where its files may be among the outputs: there may be thousands of scenes.
            near = {scene.absolute().parent.resolve(), scene.resolve().parent} & folders
            files, others = files_of(scene, variable, axes) if near else ((), ())
            for file in (scene, *files, *others):
                if taken_name := next((final for final in taken if is_same(final, file)), None):
                    what = "another input scene" if file == scene else f"a file of {scene.name}"
                    raise OutputError(f"{taken_name} is {what}. Write the results into a separate folder.")

    def refuse_existing(self) -> None:
        """Stop where a file would be replaced without `overwrite`."""
        refuse_existing(self.all_files, self.overwrite)

    def refuse_small_disk(self) -> None:
        """Stop where the disk has too little space for all cubes together."""
        plain = [(output, meta) for output, meta in self.cubes.values() if not output.format.compressed]
        refuse_small_disk(self.path.parent, {output.parts[0]: meta.nbytes for output, meta in plain})

    @property
    def in_the_way(self) -> list[Path]:
        """Existing files that the outputs would replace, unless `overwrite` allows it."""
        return [] if self.overwrite else [path for path in self.all_files if path.exists()]

    def finished_report(self, job: dict[str, Any]) -> Report | None:
        """The report of an earlier run of the same job, if all its cubes are still there."""
        report = Report.read(self.report_path)
        # What another kernel has finished is as good.
        if report is None or report.job | {"kernel": job["kernel"]} != job or self.journal.path.exists():
            return None
        names = {name: Path(path).name for name, path in report.outputs.items()}
        same = all(names.get(name) == path.name for name, path in self._paths.items())
        return report if same and all(final.exists() for final in self._finals) else None

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

    def commit(self, scene: str, source: Cube, described: Mapping[str, CubeMeta]) -> Report:
        """Give all files their final names, compressed if that is wanted, and draw what was made of `source`.

        If this fails, `resume` continues from here.
        """
        for name, (output, meta) in self.cubes.items():
            output.commit(described.get(name, meta))
        if partial_path(self.report_path).exists():
            rename(partial_path(self.report_path), self.report_path)
        sync_entries(self.path.parent)
        report = Report.read(self.report_path)
        if report is None:
            raise self.journal.odd(f"{self.report_path.name} is not its report")
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
        if self.page_size is not None and self.page_path in wanted:
            write_page(scene, source, self._paths, report, self.page_path, self.page_size)

    @property
    def pixel_parts(self) -> dict[str, Path]:
        """The first partial file of each cube, which holds its pixels."""
        return {name: output.parts[0] for name, (output, _) in self.cubes.items()}

    @property
    def unrenamed(self) -> list[Path]:
        """Those of them that have not got their final names."""
        return [part for part in self.pixel_parts.values() if part.exists()]

    @property
    def _paths(self) -> dict[str, Path]:
        return {name: output.path for name, (output, _) in self.cubes.items()}

    @property
    def _finals(self) -> tuple[Path, ...]:
        return tuple(final for output, _ in self.cubes.values() for final in output.finals)

    def not_yet_renamed(self) -> Iterator[Path]:
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
    def all_files(self) -> tuple[Path, ...]:
        """The final names of everything that is written."""
        return (*self._finals, *self._shown, self.report_path)

    def _beside_output(self, ending: str) -> Path:
        return self.path.with_name(self.path.stem + ending)

    def discard(self) -> None:
        """Remove all partial files."""
        for output, _ in self.cubes.values():
            output.discard()
        remove(partial_path(self.report_path))


def report_path(path: Path) -> Path:
    """The report of an output."""
    named = named_after(path)
    return named.with_name(named.name + REPORT)


def named_after(path: Path) -> Path:
    """What journal and report of an output are named after: for fine.img it is fine.hdr, the same cube."""
    return output_format(path).outputs(path)[-1]
