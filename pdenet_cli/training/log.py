"""The log of a training run, beside its model: a line of JSON for every step and every validation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdenet_cli.errors import PdenetError
from pdenet_cli.files import unwritable
from pdenet_cli.training.loop import ValidationResult
from pdenet_cli.training.trainer import StepResult


class TrainingLog:
    """A JSONL file that grows as the run does."""

    def __init__(self, path: Path, from_step: int = 0) -> None:
        """Start the log, or continue it after `from_step`; later records are dropped, as those steps run again."""
        kept = [record for record in read_log(path) if record["step"] <= from_step] if from_step else []
        self.path = path
        try:
            path.write_text("".join(json.dumps(record) + "\n" for record in kept))
            self.file = path.open("a", buffering=1)
        except OSError as error:
            raise self._unwritable(error) from error

    def add(self, event: StepResult | ValidationResult, **more: Any) -> None:
        kind = "step" if isinstance(event, StepResult) else "validation"
        try:
            self.file.write(json.dumps({"kind": kind} | asdict(event) | more) + "\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> PdenetError:
        return unwritable(self.path, error, "The last checkpoint is kept: continue with `resume`.")

    def close(self) -> None:
        self.file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, without unfinished lines and lines that are no records."""
    records = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "step" in record:
            records.append(record)
    return records
