"""Many scenes as one job: what became of each, in a file that grows row by row, and in a few numbers."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pdenet_cli.errors import UsageError
from pdenet_cli.files import partial_path, refuse_existing, refuse_folders, rename

KINDS = (".csv", ".json", ".txt")
COLUMNS = ("scene", "status", "seconds", "bytes", "output", "why")
MOST_SHOWN = 100  # failures that are kept to be shown at the end; the file has all


@dataclass
class Totals:
    """The few numbers."""

    scenes: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0  # of all scenes together, in all processes
    bytes: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # the first ones: why, by scene

    def add(self, row: dict[str, Any]) -> None:
        """Count a scene."""
        self.scenes += 1
        setattr(self, row["status"], getattr(self, row["status"]) + 1)
        self.seconds, self.bytes = round(self.seconds + row["seconds"], 3), self.bytes + row["bytes"]
        if row["status"] == "failed" and len(self.failures) < MOST_SHOWN:
            self.failures[row["scene"]] = row["why"]

    def to_dict(self) -> dict[str, Any]:
        """The numbers, without the failures."""
        return {name: value for name, value in vars(self).items() if name != "failures"}

    def text(self) -> str:
        """One line."""
        parts = [f"{self.done:,} done", f"{self.skipped:,} done before", f"{self.failed:,} failed"]
        size = f"{self.seconds:,.1f} s, {self.bytes:,} bytes"
        return f"{self.scenes:,} scenes: {', '.join(parts)}; {size}"


class Summary:
    """What became of the scenes of a command; written to `path` as CSV, JSON or text, by its suffix.

    Rows are written as they come, so that millions of scenes take no memory. The file gets its name at the end,
    also where the command is stopped.
    """

    def __init__(self, path: Path | None = None, *, overwrite: bool = False) -> None:
        self.totals, self.path = Totals(), path
        self._file: TextIO | None = None
        if path is None:
            return
        if path.suffix.lower() not in KINDS:
            raise UsageError(f"`summary` {path}: use a name that ends in {', '.join(KINDS)}.")
        refuse_folders((path,))
        refuse_existing((path,), overwrite)

    def add(
        self,
        scene: Path,
        status: str,
        *,
        seconds: float = 0.0,
        nbytes: int = 0,
        output: Path | str = "",
        why: str = "",
    ) -> None:
        """What became of a scene: done, skipped or failed."""
        values = (str(scene), status, round(seconds, 3), nbytes, str(output), why)
        row = dict(zip(COLUMNS, values, strict=True))
        self.totals.add(row)
        if self._file is not None:
            self._file.write(self._line(row))

    def _line(self, row: dict[str, Any]) -> str:
        match self._kind:
            case ".csv":
                return _csv_line(row.values())
            case ".json":
                comma = "" if self.totals.scenes == 1 else ",\n"
                return comma + json.dumps(row)
            case _:
                told = row["why"] or f"{row['seconds']} s, {row['bytes']:,} bytes"
                return f"{row['scene']}: {row['status']}: {told}\n"

    @property
    def _kind(self) -> str:
        return "" if self.path is None else self.path.suffix.lower()

    def __enter__(self) -> Self:
        if self.path is not None:
            part = partial_path(self.path)
            part.unlink(missing_ok=True)
            self._file = part.open("w", encoding="utf-8", errors="backslashreplace", newline="")
            self._file.write({".csv": _csv_line(COLUMNS), ".json": '{"rows": [\n'}.get(self._kind, ""))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None or self.path is None:
            return
        with self._file as file:
            if self._kind == ".json":
                file.write(f'\n], "totals": {json.dumps(self.totals.to_dict())}}}\n')
            elif self._kind == ".txt":
                file.write(self.totals.text() + "\n")
        rename(partial_path(self.path), self.path)


def _csv_line(values: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
