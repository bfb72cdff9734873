"""What a study says of one data set and scale: tables with the paper's figures beside ours, and pictures."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from runs import METRICS, FailedError, Runs, Scores
from scenes import PUBLISHED

SYSTEMS = {
    "3DFCNN": "3dfcnn",
    "3DGAN": "3dgan",
    "SSPSR": "sspsr",
    "MCNet": "mcnet",
    "ERCSR": "ercsr",
    "Template-Net": "template",
    "PDE-Net": "pdenet",
}
"""The networks that `pdenet train` knows, by the paper's names."""

QUALITY = [f"{metric}{end}" for metric in METRICS for end in ("", ", paper")]
DIGITS = (3, 4, 3)  # of METRICS
Cells = Sequence[str]
Found = TypeVar("Found")


@dataclass
class Page:
    """The results of a study, printed and written beside its runs."""

    study: str
    runs: Runs
    systems: Sequence[str]  # of SYSTEMS
    draws: str  # how many samples are compared, with commas between
    failures: list[str] = field(default_factory=list)

    def tried(self, work: Callable[..., Found], *arguments: Any, **options: Any) -> Found | None:
        """What `work` gives; None where a command fails, so that the rest of a study goes on."""
        try:
            return work(*arguments, **options)
        except FailedError as error:
            print(f"failed: {error}", file=sys.stderr)
            self.failures.append(str(error))
            return None

    def say(self, title: str, head: Cells, rows: Sequence[Cells]) -> None:
        """Print a table and keep it."""
        runs, scenes = self.runs, sum(len(part.cubes) for part in self.runs.data.tests)
        setting = f"{runs.data.name} x{runs.scale}, {runs.budget}, networks of size {runs.size}"
        lines = [f"## {title}: {setting}, {scenes} test scenes", ""]
        lines += [_line(cells) for cells in (head, ["---"] * len(head), *rows)]
        if trial := [*runs.more, *(["--crop", str(runs.data.crop)] if runs.data.crop < 512 else [])]:
            lines += ["", f"A trial, not the paper's setting: {shlex.join(trial)}"]
        text = "\n".join([*lines, ""])
        runs.folder.mkdir(parents=True, exist_ok=True)
        (runs.folder / f"{self.study}.md").write_text(text)
        print(text)

    def figure(self, end: str = "") -> Path:
        """Where a figure of this study goes."""
        path = self.runs.folder / f"{self.study}{end}.png"
        print(f"figure: {path}")
        return path

    @property
    def title(self) -> str:
        return f"{self.runs.data.name} x{self.runs.scale}, {self.runs.budget}"

    def trained(self) -> dict[str, str | Path]:
        """Bicubic and the networks, trained, by the paper's names, without those whose training failed."""
        models = {name: self.tried(self.runs.train, SYSTEMS[name]) for name in self.systems}
        return {"BI": "bicubic"} | {name: model for name, model in models.items() if model is not None}

    def samples(self, name: str) -> int:
        """How many samples a system's result is the mean of."""
        return self.runs.samples if name == "PDE-Net" else 1


def published(*keys: str) -> list[float]:
    """The paper's scores; none where it has none."""
    found = PUBLISHED
    for key in keys:
        found = found.get(key, {})
    return list(found)


def cost_published(kind: str, scale: int, name: str, form: str) -> str:
    """A cost that the paper gives for a system, as text; a dash where it gives none."""
    found = PUBLISHED[kind][str(scale)].get(name)
    return "-" if found is None else form.format(found)


def quality(found: Scores | None, paper: Sequence[float]) -> list[str]:
    """Our scores, each with the paper's beside it."""
    cells = []
    for place, (metric, digits) in enumerate(zip(METRICS, DIGITS, strict=True)):
        cells.append("failed" if found is None else f"{found[metric]:.{digits}f}")
        cells.append(f"{paper[place]:.{digits}f}" if paper else "-")
    return cells


def _line(cells: Cells) -> str:
    return f"| {' | '.join(cells)} |"
