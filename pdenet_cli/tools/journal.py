"""What a run has finished so far, on disk: so that a broken-off run goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError


@dataclass(frozen=True)
class Journal:
    """A text file beside the outputs: the job on its first line, then one line for each finished step."""

    path: Path

    def begin(self, job: dict[str, Any]) -> None:
        """Start anew."""
        self.path.write_text(json.dumps(job, sort_keys=True) + "\n")

    def note(self, step: str) -> None:
        """Remember that a step is done; its results must be on disk by now."""
        with self.path.open("a") as file:
            file.write(step + "\n")

    def resume(self, job: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """The job as it began and its finished steps; None if nothing was begun.

        All that decides the result must be the same now; what does not (the plan of tiles) stays as it began.
        """
        if not self.path.exists():
            return None
        first, *steps = self.path.read_text().split("\n")
        try:
            begun = json.loads(first)
        except ValueError:
            return None  # broken off while it wrote its first line
        differ = sorted(k for k in job if k != "plan" and job[k] != begun.get(k))
        if differ:
            raise OutputError(
                f"{self.path.parent}: the broken-off run had another {', '.join(differ)}. "
                "Use the same options, or leave out --resume to start again."
            )
        return begun, [step for step in steps[:-1] if step]  # a last line without its end was not finished

    def end(self) -> None:
        """Forget it all."""
        self.path.unlink(missing_ok=True)
