"""What a run has finished so far, on disk, so that an interrupted run can be continued."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from pdenet_cli.errors import OutputError
from pdenet_cli.files import locked, sync_entries

START_AGAIN = "`overwrite` without `resume` starts again"
MOST_BYTES = 1 << 28  # of a journal, a hundred for each tile
PLAN, FILES, REPLACES = "plan", "files", "replaces"  # keys of the job that are not part of what decides the result

Checksums = dict[str, str]  # of the pixels of a tile, by the name of their cube


class JournalError(OutputError):
    """A journal, or the files that it is about, are not as pdenet left them."""


@dataclass(frozen=True)
class Record:
    """What a journal says: the job, and which of its tiles are on disk, in whatever order they were done."""

    job: dict[str, Any]
    files: Mapping[str, Any] | None = None  # the partial files as they were made; None: not all were
    tiles: Mapping[int, Checksums] = field(default_factory=dict)  # by their number in the plan
    report: str | None = None  # checksum of the report of a run whose every pixel is written


@dataclass(frozen=True)
class Journal:
    """A text file beside the outputs: the job on its first line, then one line for each thing that is on disk.

    A line is a checksum and a JSON object. Tiles have numbers and may come in any order, so the journals of
    several writers of one output could be read as one.
    """

    output: Path  # the journal is named after it
    part: str | None = None  # it is that of a part of the tiles, see parts.py

    @property
    def path(self) -> Path:
        if self.part is not None:
            return self._folder / f"{self.part}.journal"
        return self.output.with_name(f".{self.output.name}.journal")

    @property
    def _folder(self) -> Path:
        """Where the journals of parts are."""
        return self.output.with_name(f".{self.output.name}.parts")

    @property
    def parts(self) -> list[Journal]:
        """The journals of parts, as far as these have begun."""
        if self.part is not None or not self._folder.is_dir():
            return []
        return [replace(self, part=path.stem) for path in sorted(self._folder.glob("*-of-*.journal"))]

    def locked(self, patience: float = 0) -> AbstractContextManager[None]:
        """Keep other runs from writing these outputs; where one does, wait for it for so many seconds."""
        if self.part is not None:
            self._folder.mkdir(exist_ok=True)
        return locked(self.path, patience)

    def begin(self, job: dict[str, Any]) -> None:
        """Start a new journal."""
        self.remove_parts()
        self.path.write_bytes(b"")
        self.append({"job": job})
        sync_entries(self.path.parent)

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Record what is done, on disk when this returns; the results must be on disk before."""
        with self.path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            try:
                file.write(b"".join(map(_line, entries)))
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)  # a half line would spoil those after it
                raise

    def read(self) -> Record | None:
        """What is recorded; None if there is no journal, or its first line was not finished.

        JournalError if it is not one that pdenet has left.
        """
        try:
            if self.path.stat().st_size > MOST_BYTES:
                raise self.odd(f"{self.path.stat().st_size:,} bytes are too many")
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.odd(error.strerror or str(error)) from error
        # The last line lacks its end where a run was killed or the disk was full: it counts for nothing.
        entries = [self._entry(number, line) for number, line in enumerate(lines[:-1], start=1)]
        if not entries and lines[-1] and not _may_begin(lines[-1]):
            raise self.odd("it is no journal of pdenet")
        return self._record(entries) if entries else None

    def repair(self) -> None:
        """Remove an unfinished last line, so that the next one can be read."""
        with self.path.open("rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)

    def resume(self, job: dict[str, Any]) -> Record | None:
        """What is recorded of `job`, ready to be continued; None if nothing is.

        OutputError if the recorded job differs in more than the plan of tiles, which does not change the result.
        """
        record = self.read()
        if record is None:
            return None
        differ = sorted(k for k in job if k not in (PLAN, REPLACES) and job[k] != record.job.get(k))
        if differ:
            raise OutputError(
                f"{self.output}: the interrupted run differs in {', '.join(differ)}{self._kernels(job, record)}. "
                "Use the same options, or `overwrite` instead of `resume` to start again."
            )
        self.repair()
        return record

    def end(self) -> None:
        """Delete the journal, and those of parts."""
        self.remove_parts()
        self.path.unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """Delete the journals of parts; OutputError where a part is at work."""
        for part in self.parts:
            with part.locked():
                part.path.unlink(missing_ok=True)
        if self.part is None:
            with suppress(OSError):
                self._folder.rmdir()

    def odd(self, what: str) -> JournalError:
        """The error for a journal, or files, that are not as pdenet left them."""
        return JournalError(f"{self.path}: not as an interrupted run leaves it: {what}. {START_AGAIN}.")

    def _kernels(self, job: dict[str, Any], record: Record) -> str:
        kernels = [str(facts.get("kernel")) for facts in (record.job, job)]
        return f" ({kernels[0]} instead of {kernels[1]})" if kernels[0] != kernels[1] else ""

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        text = line[9:]
        if line[:9] != _checksum(text):
            raise self.odd(f"line {number} is damaged" if number > 1 else "it is no journal of pdenet")
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or len(entry) != 1:
            raise self.odd(f"line {number} has an unknown form")
        return entry

    def _record(self, entries: Sequence[dict[str, Any]]) -> Record:
        """The entries as one record: the job first, its files, its tiles once each, its end last."""
        record = Record({})
        tiles: dict[int, Checksums] = {}
        for number, entry in enumerate(entries, start=1):
            ((kind, value),) = entry.items()
            fits = {
                "job": number == 1 and _is_job(value),
                "files": record.files is None and isinstance(value, dict),
                "tile": record.files is not None and _is_tile(value) and value["number"] not in tiles,
                "report": record.files is not None and isinstance(value, str),
            }
            if not fits.get(kind) or (number == 1) != (kind == "job") or record.report is not None:
                raise self.odd(f"line {number} ({kind[:20]}) is not what should follow there")
            if kind == "tile":
                tiles[value["number"]] = value["checksums"]
            else:
                record = Record(**{**vars(record), kind: value})
        return Record(record.job, record.files, tiles, record.report)


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry, sort_keys=True).encode()
    return _checksum(text) + text + b"\n"


def _checksum(text: bytes) -> bytes:
    return b"%08x " % crc32(text)


def _may_begin(line: bytes) -> bool:
    """Whether an unfinished first line may be one of pdenet's, as far as it goes."""
    start = b'{"job": {'[: max(0, len(line) - 9)]
    digits = all(byte in b"0123456789abcdef" for byte in line[:8])
    return digits and line[8:9] in (b"", b" ") and line[9:].startswith(start)


def _is_job(job: Any) -> bool:
    if not isinstance(job, dict) or not isinstance(job.get(REPLACES), bool):
        return False
    plan, files = job.get(PLAN), job.get(FILES)
    numbers = plan.values() if isinstance(plan, dict) and set(plan) == {"tile", "depth", "step"} else ()
    sound = bool(numbers) and all(type(number) is int and number > 0 for number in numbers)
    return sound and isinstance(files, list) and all(isinstance(name, str) for name in files)


def _is_tile(tile: Any) -> bool:
    if not isinstance(tile, dict) or set(tile) != {"number", "checksums"}:
        return False
    number, checksums = tile["number"], tile["checksums"]
    sound = type(number) is int and number >= 0 and isinstance(checksums, dict)
    return sound and all(isinstance(checksum, str) for checksum in checksums.values())
