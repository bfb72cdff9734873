"""What a run has finished so far, on disk: so that a broken-off run goes on where it was."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import OutputError
from pdenet_cli.formats.output import locked


@dataclass(frozen=True)
class Journal:
    """A text file beside the outputs: the job on its first line, then one line for each finished step."""

    output: Path  # all of the run is named after it

    @property
    def path(self) -> Path:
        """One for every suffix: fine.hdr and fine.img are the same files, and fine.tif has their report."""
        return self.output.with_name(f".{self.output.stem}.journal")

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs away from these outputs."""
        return locked(self.path)

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
        told = self._read()
        if told is None:
            return None
        begun, steps = told
        differ = sorted(k for k in job if k != "plan" and job[k] != begun.get(k))
        if differ:
            raise OutputError(
                f"{self.output}: the interrupted run differs in {', '.join(differ)}. "
                "Use the same options, or --overwrite instead of --resume to start again."
            )
        return begun, steps

    @property
    def steps(self) -> list[str]:
        """Those that are done."""
        told = self._read()
        return [] if told is None else told[1]

    def left(self, key: str) -> list[str]:
        """What a broken-off run said of itself under a key, empty if there was none."""
        told = self._read()
        found = None if told is None else told[0].get(key)
        return [word for word in found if isinstance(word, str)] if isinstance(found, list) else []

    def _read(self) -> tuple[dict[str, Any], list[str]] | None:
        try:
            first, *steps = self.path.read_text().split("\n")
            begun = json.loads(first)
        except (OSError, ValueError):
            return None  # not there, or broken off while it wrote its first line
        if not isinstance(begun, dict):
            return None
        return begun, [step for step in steps[:-1] if step]  # a last line without its end was not finished

    def end(self) -> None:
        """Forget it all."""
        self.path.unlink(missing_ok=True)
