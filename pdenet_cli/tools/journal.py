"""What a run has finished so far, on disk, so that an interrupted run can be continued."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError
from pdenet_cli.files import locked


@dataclass(frozen=True)
class Journal:
    """A text file beside the outputs: the job on its first line, then one line for each finished step."""

    output: Path  # the journal is named after it

    @property
    def path(self) -> Path:
        """The same for every suffix: fine.hdr and fine.img are one cube, and fine.tif has the same report."""
        return self.output.with_name(f".{self.output.stem}.journal")

    def locked(self) -> AbstractContextManager[None]:
        """Keep other runs from writing these outputs."""
        return locked(self.path)

    def begin(self, job: dict[str, Any]) -> None:
        """Start a new journal."""
        self.path.write_text(json.dumps(job, sort_keys=True) + "\n")

    def note(self, step: str) -> None:
        """Record that a step is done; its results must be on disk by now."""
        with self.path.open("a") as file:
            file.write(step + "\n")

    def resume(self, job: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
        """The recorded job and its finished steps; None if there are none.

        OutputError if `job` differs from it in more than the plan of tiles, which does not change the result.
        """
        found = self._read()
        if found is None:
            return None
        begun, steps = found
        differ = sorted(k for k in job if k != "plan" and job[k] != begun.get(k))
        if differ:
            raise OutputError(
                f"{self.output}: the interrupted run differs in {', '.join(differ)}. "
                "Use the same options, or `overwrite` instead of `resume` to start again."
            )
        return begun, steps

    @property
    def steps(self) -> list[str]:
        """The finished steps."""
        found = self._read()
        return [] if found is None else found[1]

    def recorded(self, key: str) -> list[str]:
        """The list of texts that the recorded job has under `key`; empty if there is none."""
        found = self._read()
        texts = None if found is None else found[0].get(key)
        return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []

    def _read(self) -> tuple[dict[str, Any], list[str]] | None:
        try:
            first, *steps = self.path.read_text().split("\n")
            begun = json.loads(first)
        except (OSError, ValueError):
            return None  # no file, or an unfinished first line
        if not isinstance(begun, dict):
            return None
        return begun, [step for step in steps[:-1] if step]  # without a last line that is not finished

    def end(self) -> None:
        """Delete the journal."""
        self.path.unlink(missing_ok=True)
