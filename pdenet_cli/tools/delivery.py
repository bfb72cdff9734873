"""The files of one run: refused before any work, grown out of sight, and given their names when all are whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.cube import Cube, CubeMeta
from pdenet_cli.errors import FormatError, OutputError, ResourceError
from pdenet_cli.formats import files_of, open_cube
from pdenet_cli.formats.output import (
    PARTIAL,
    Output,
    beside,
    is_same,
    refuse_existing,
    refuse_folders,
    refuse_scenes,
    refuse_small_disk,
    remove,
    rename,
    write_beside,
)
from pdenet_cli.picture import map_quicklook, png, quicklook
from pdenet_cli.report import REPORT, Report, finite
from pdenet_cli.tools.journal import Journal
from pdenet_cli.tools.page import write_page

COMPLETE = "complete"
PARTS = "files"  # of the journal: those that grow


@dataclass(frozen=True)
class Delivery:
    """What a run makes of one scene: cubes and a report, and if wished pictures and a page that show them."""

    path: Path  # all is named after it
    cubes: Mapping[str, tuple[Output, CubeMeta]]  # by the name of what they show
    overwrite: bool = False
    quicklook: bool = False  # a picture of every cube
    page: bool = False

    @property
    def report_path(self) -> Path:
        return self._named(REPORT)

    @property
    def journal(self) -> Journal:
        return Journal(self.path)

    @property
    def pages(self) -> dict[str, Path]:
        """The page and its picture, if they are wished for."""
        kinds = {"page": "html", "picture": "png"} if self.page else {}
        return {kind: self._named(f"_uncertainty.{suffix}") for kind, suffix in kinds.items()}

    @property
    def pictures(self) -> dict[Path, Path]:
        """Each quick look, if they are wished for, and the cube that it shows."""
        return {path.with_suffix(".png"): path for path in self._paths.values()} if self.quicklook else {}

    @property
    def names(self) -> dict[str, str]:
        """Where everything will be, by the name of what it shows."""
        return {name: str(path) for name, path in (self._paths | self.pages).items()}

    def refuse(self, files: Sequence[Path]) -> None:
        """Stop where a format cannot hold its cube, a folder is in the way, or the scene of these files would be
        replaced or added to.
        """
        refuse_scenes(self._every, files)
        refuse_folders((*self._shown, self.report_path))
        for output, meta in self.cubes.values():
            output.refuse_folders()
            output.refuse(meta)

    def refuse_others(self, scenes: Sequence[Path], variable: str | None, axes: str | None) -> None:
        """Stop where a file of another scene of the same command would be replaced."""
        taken = [final for final in self._every if final.exists()]
        folders = {final.parent.resolve() for final in taken}
        for scene in scenes:
            # Opened only where a file of it can be met: there may be thousands.
            near = {scene.absolute().parent.resolve(), scene.resolve().parent} & folders
            own, others = files_of(scene, variable, axes) if near else ((), ())
            for file in (scene, *own, *others):
                if met := next((final for final in taken if is_same(final, file)), None):
                    what = "another input scene" if file == scene else f"a file of {scene.name}"
                    raise OutputError(f"{met} is {what}. Write the results into a separate folder.")

    def refuse_existing(self) -> None:
        """Stop where something would be replaced without having been told to."""
        refuse_existing(self._every, self.overwrite)

    def refuse_small_disk(self) -> None:
        """Stop where the cubes do not all have room, of which one alone might."""
        plain = [(output, meta) for output, meta in self.cubes.values() if not output.format.compressed]
        refuse_small_disk(self.path.parent, {output.parts[0]: meta.nbytes for output, meta in plain})

    @property
    def in_the_way(self) -> list[Path]:
        """What is there and would be replaced without having been told to."""
        return [] if self.overwrite else [path for path in self._every if path.exists()]

    def made(self, job: dict[str, Any]) -> Report | None:
        """The report of an earlier run that made these very cubes, if they are all still there."""
        report = Report.read(self.report_path)
        if report is None or report.job != job or self.journal.path.exists():
            return None
        names = {name: Path(path).name for name, path in report.outputs.items()}
        same = all(names.get(name) == path.name for name, path in self._paths.items())
        return report if same and all(final.exists() for final in self._finals) else None

    def begin(self, job: dict[str, Any]) -> None:
        """Start anew; what an earlier run left half done, maybe of other cubes too, is gone."""
        self.refuse_existing()
        for name in self.journal.left(PARTS):
            part = self.path.with_name(Path(name).name)
            # A run of its own may be writing an output of that name by now.
            other = Journal(part.with_name(part.name.removeprefix(".").removesuffix(PARTIAL))).path
            taken = other != self.journal.path and other.exists()
            if part.name.endswith(PARTIAL) and not taken:
                remove(part)
        self._discard()
        self.journal.begin(job | self._parts)

    def begun(self, job: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """The job as a broken-off run began it and the steps it did, if its pixels are there to go on with."""
        begun = self.journal.resume(job | self._parts)
        if begun is None or COMPLETE in begun[1]:
            return begun
        # The first file of a cube is that of its pixels.
        return begun if all(output.parts[0].exists() for output, _ in self.cubes.values()) else None

    @contextmanager
    def created(self) -> Iterator[dict[str, Cube]]:
        """Every cube, ready to be written by windows, closed in the end; what a broken-off run wrote is in it."""
        with ExitStack() as opened:
            yield {name: opened.enter_context(output.create(meta)) for name, (output, meta) in self.cubes.items()}

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Leave nothing behind if the work fails, unless it may succeed another time: after an interrupt, or where
        in its midst the scene could not be read or memory ran out, what is done stays to go on with.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, (FormatError, ResourceError)) and self.journal.steps:
                raise type(error)(f"{error} The finished tiles are kept: continue with --resume.") from error
            self._discard()
            self.journal.end()
            raise

    def complete(self, report: Report) -> None:
        """Every pixel is written."""
        beside(self.report_path).write_text(json.dumps(finite(asdict(report)), indent=2))
        self.journal.note(COMPLETE)

    def commit(self, scene: str, source: Cube) -> Report:
        """Give all files their names, and show what was made of `source`.

        Where this fails no pixel is lost, and another run can begin here.
        """
        for output, _ in self.cubes.values():
            output.commit()
        if beside(self.report_path).exists():
            rename(beside(self.report_path), self.report_path)
        report = Report.read(self.report_path)
        assert report is not None
        self.show(scene, source, report)
        self.journal.end()
        return report

    def show(self, scene: str, source: Cube, report: Report, *, missing: bool = False) -> None:
        """Make the pictures and the page from the cubes; `missing`: only those that are not there."""
        for picture, path in self.pictures.items():
            if missing and picture.exists():
                continue
            look = quicklook if path == self._paths.get("mean") else map_quicklook
            with open_cube(path) as cube:
                write_beside(picture, png(look(cube)), overwrite=True)
        if self.page and not (missing and all(path.exists() for path in self.pages.values())):
            write_page(scene, source, self._paths, report, **self.pages)

    @property
    def _parts(self) -> dict[str, list[str]]:
        return {PARTS: [part.name for output, _ in self.cubes.values() for part in output.parts]}

    @property
    def _paths(self) -> dict[str, Path]:
        return {name: output.path for name, (output, _) in self.cubes.items()}

    @property
    def _finals(self) -> tuple[Path, ...]:
        return tuple(final for output, _ in self.cubes.values() for final in output.finals)

    @property
    def _shown(self) -> tuple[Path, ...]:
        """What shows the cubes to people."""
        return (*self.pictures, *self.pages.values())

    @property
    def _every(self) -> tuple[Path, ...]:
        return (*self._finals, *self._shown, self.report_path)

    def _named(self, ending: str) -> Path:
        return self.path.with_name(self.path.stem + ending)

    def _discard(self) -> None:
        for output, _ in self.cubes.values():
            output.discard()
        remove(beside(self.report_path))
