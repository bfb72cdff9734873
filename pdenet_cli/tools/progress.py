"""What of a scene's outputs is done, as their journal records it, and whether a resumed run can trust it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError, PdenetError
from pdenet_cli.files import final_path, partial_path, refuse_existing, remove, sync
from pdenet_cli.formats import writable_suffixes
from pdenet_cli.report import Report, finite
from pdenet_cli.sampling.tiling import Tile
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.tools.delivery import KEPT, Delivery, named_after
from pdenet_cli.tools.finished_tiles import (
    TileRecorder,
    checksum,
    described,
    refuse_changed,
    tile_lines,
    verify,
)
from pdenet_cli.tools.journal import FILES, REPLACES, Journal, JournalError, Record
from pdenet_cli.tools.parts import Part


@dataclass(frozen=True)
class Progress:
    """The journal of a delivery: begun, continued, verified, completed."""

    delivery: Delivery
    part: Part | None = None  # the journal is that of a part

    @property
    def journal(self) -> Journal:
        return replace(self.delivery.journal, part=None if self.part is None else self.part.label)

    @property
    def _names(self) -> dict[str, list[str]]:
        return {FILES: [part.name for output, _ in self.delivery.cubes.values() for part in output.parts]}

    def refuse_interrupted(self) -> None:
        """Stop where an interrupted run has left tiles, or something that cannot be understood."""
        record = self.journal.read()
        if record is not None and record.tiles:
            what = f"{self.delivery.path}: an interrupted run is here"
            raise OutputError(f"{what}. `resume` continues it, `overwrite` starts again.")

    def begin(self, job: dict[str, Any]) -> Record:
        """Start again: delete what an interrupted run left, which may have had other outputs."""
        self.delivery.refuse_existing()
        for part in self._left_behind():
            # Another run may be writing an output of that name by now.
            beside = Journal(named_after(final_path(part))).path
            if beside == self.journal.path or not beside.exists():
                remove(part)
        self.delivery.discard()
        begun = job | self._names | {REPLACES: self.delivery.overwrite}
        self.journal.begin(begun)
        return Record(begun)

    def _left_behind(self) -> list[Path]:
        """The partial files of an interrupted run, if they can be told."""
        try:
            record = self.journal.read()
            return [] if record is None else self._parts_of(record)
        except JournalError:
            return []

    def _parts_of(self, record: Record) -> list[Path]:
        """The partial files that the journal names; JournalError where one is not of this output."""
        names, stem = record.job[FILES], self.delivery.path.stem
        plain = [name for name in names if name not in ("", "..") and Path(name).name == name and "\0" not in name]
        parts = [self.delivery.path.with_name(name) for name in plain]
        finals = [final_path(part) for part in parts if part == partial_path(final_path(part))]
        cubes = [final for final in finals if final.suffix.lower() in writable_suffixes()]
        if len([cube for cube in cubes if cube.stem == stem or cube.stem.startswith(f"{stem}_")]) < len(names):
            raise self.journal.odd("it names files that are not of this output")
        return parts

    def interrupted(self, job: dict[str, Any]) -> Record | None:
        """The record of an interrupted run, if its pixels are still there and as it left them.

        Stops where a file has appeared since that the run was not begun to replace.
        """
        record = self.journal.resume(job | self._names)
        if record is None:
            return None
        self._parts_of(record)
        allowed = self.delivery.overwrite or record.job[REPLACES]
        if record.report is not None:
            refuse_existing(tuple(self.delivery.not_yet_renamed()), allowed)
            self._refuse_incomplete(record)
        else:
            refuse_existing(self.delivery.all_files, allowed)
        if record.files is None:
            self.delivery.discard()  # the run was broken off while it made them
        elif record.report is None and not all(part.exists() for part in self.delivery.pixel_parts.values()):
            return None
        else:
            refuse_changed(self.journal, record, self.delivery.unrenamed)
        return record

    def absorbed(self, record: Record) -> Record:
        """The record with the tiles of all parts, which are in its journal then; none of them may be at work."""
        tiles = dict(record.tiles)
        with ExitStack() as stack:
            parts = self.journal.parts
            for part in parts:
                stack.enter_context(part.locked())
            for part in parts:
                theirs = part.read()
                if theirs is None:
                    continue
                if (theirs.job, theirs.files) != (record.job, record.files):
                    raise part.odd("it is of another run")
                new = {number: read for number, read in theirs.tiles.items() if number not in tiles}
                self.journal.append(*tile_lines(new))
                tiles |= new
        self.journal.remove_parts()
        return replace(record, tiles=tiles)

    def begin_part(self, record: Record) -> Record:
        """What this part has done of the run that `record` is of."""
        mine = self.journal.read()
        if mine is not None and (mine.job, mine.files) == (record.job, record.files):
            self.journal.repair()
            return mine
        self.journal.begin(record.job)
        self.journal.append({"files": record.files})
        return Record(record.job, record.files)

    def with_files(self, record: Record) -> Record:
        """The record with the partial files, which are described in the journal if they are new."""
        if record.files is not None:
            return record
        parts = self.delivery.pixel_parts.values()
        files = {part.name: described(part) for part in parts}
        self.journal.append({"files": files})
        return replace(record, files=files)

    def _refuse_incomplete(self, record: Record) -> None:
        """Stop where a run whose every pixel is written lacks a file or its report."""
        for output, _ in self.delivery.cubes.values():
            for part, final in zip(output.parts, output.finals, strict=True):
                if not part.exists() and not final.exists():
                    raise self.journal.odd(f"{part.name} is missing")
        hidden = partial_path(self.delivery.report_path)
        text = hidden if hidden.exists() else self.delivery.report_path
        if not text.is_file() or checksum(text.read_bytes()) != record.report:
            raise self.journal.odd(f"{text.name} is not its report")

    def trusted(self, record: Record, cubes: Mapping[str, Cube], tiles: Sequence[Tile]) -> set[int]:
        """The numbers of the tiles that need not be written again; stops where one is not as it was written."""
        verify(self.journal, record, cubes, tiles)
        return set(record.tiles)

    def recorder(self) -> TileRecorder:
        """What takes note of the tiles that are written from now on."""
        return TileRecorder(self.journal, tuple(self.delivery.pixel_parts.values()))

    @contextmanager
    def cleanup_on_failure(self) -> Iterator[None]:
        """Delete partial files on an error, unless `resume` can continue: after some tiles, or an interrupt."""
        try:
            yield
        except JournalError:
            raise  # which is about what is there: it stays
        except Exception as error:
            record = self.journal.read()
            if record is None or not record.tiles:
                self.delivery.discard()
                self.journal.end()
            elif isinstance(error, PdenetError):
                raise type(error)(f"{error} {KEPT}") from error
            raise

    def complete(self, report: Report) -> None:
        """Record that every pixel is written, with the report."""
        hidden = partial_path(self.delivery.report_path)
        remove(hidden)  # which could be a link to anywhere
        hidden.write_text(json.dumps(finite(asdict(report)), indent=2))
        sync(hidden)
        self.journal.append({"report": checksum(hidden.read_bytes())})

    def verify_complete(self, record: Record, tiles: Sequence[Tile], metas: Mapping[str, CubeMeta]) -> None:
        """Stop where a run that has recorded its end lacks tiles, or a hidden cube has other pixels than then.

        `metas` are those that are known better than when the delivery was made.
        """
        if missing := set(range(len(tiles))) - set(record.tiles):
            raise self.journal.odd(f"it records an end but not tile {min(missing)}")
        hidden = {name: cube for name, cube in self.delivery.cubes.items() if cube[0].parts[0].exists()}
        with replace(self.delivery, cubes=hidden).open_outputs(metas) as cubes:
            verify(self.journal, record, cubes, tiles)
