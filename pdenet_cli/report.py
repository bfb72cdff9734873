"""What a run says: notes and progress while it works, and the JSON file that tells how to repeat it."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from pdenet_cli.errors import FormatError

Say = Callable[[str], None]  # a note for the user
Watch = Callable[[str, int, int], None]  # what is being done, tiles done, tiles in all
WatchTiles = Callable[[int, int], None]  # tiles done, tiles in all

REPORT = ".report.json"  # suffix of its file


@dataclass(frozen=True)
class Report:
    """One finished run: its inputs and settings, its outputs, and how it went."""

    job: dict[str, Any]  # inputs and model with their hashes, seed, samples, settings, versions
    outputs: dict[str, str]
    scene: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    maps: dict[str, Any] = field(default_factory=dict)  # statistics of each uncertainty map
    asked: dict[str, Any] = field(default_factory=dict)  # what was asked for, before the scene was looked at
    stamps: dict[str, list[int]] = field(default_factory=dict)  # size and time of change of each file of the scene

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The report in a file, None if there is none."""
        try:
            report = cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        outputs = report.outputs
        return report if isinstance(outputs, dict) and all(isinstance(p, str) for p in outputs.values()) else None


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, pdenet and some packages; pdenet may be a checkout that is not installed."""
    from pdenet_cli import __version__

    pdenet = {"python": platform.python_version(), "pdenet": __version__}
    return pdenet | {name: version(name) for name in packages}


def hashes(paths: Sequence[Path]) -> dict[str, str]:
    """The SHA-256 of each file; for a folder, of the names and contents of its files in order."""
    try:
        return {path.name: _hash(path) for path in dict.fromkeys(paths)}
    except OSError as error:
        where = error.filename or ", ".join(path.name for path in paths[:3])
        raise FormatError(f"{where}: cannot be read ({error.strerror or error}).") from error


def _hash(path: Path) -> str:
    if path.is_dir():
        whole = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            name = file.relative_to(path).as_posix()
            whole.update(f"{name} {_hash(file)}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def finite(value: Any) -> Any:
    """The same for JSON: null in place of NaN, "inf" or "-inf" of infinity, Python's types of NumPy's."""
    if hasattr(value, "dtype"):  # a number of NumPy, which --help should not wait for
        value = value.item()
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)  # which Python's float() reads back
