"""What was done, for the record: a JSON beside every output says all it takes to do it again."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np

from pdenet_cli.errors import FormatError

REPORT = ".report.json"  # how the name of its file ends


@dataclass(frozen=True)
class Report:
    """One finished run: what decided its result, what came out, and how it went."""

    job: dict[str, Any]  # inputs and model with their hashes, seed, samples, settings, versions
    outputs: dict[str, str]
    scene: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    maps: dict[str, Any] = field(default_factory=dict)  # what each map of uncertainty shows, in numbers

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
    """What this run is made with."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def hashes(paths: Sequence[Path]) -> dict[str, str]:
    """The SHA-256 of each file; of a folder, that of its files' names and contents in order."""
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
    """The same, for JSON: what is not finite becomes null, what is NumPy's becomes Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
