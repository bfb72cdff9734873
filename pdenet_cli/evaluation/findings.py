"""Figures with their words: what each can show and what it cannot, for a terminal, a page and JSON alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdenet_cli.evaluation.results import Evaluation

COARSER = (
    "how well the model does where the scene, degraded once more, is the input and the scene itself the truth"
)
COARSER_NOT = "how well it does at the scene's own scale, which looks like the coarser one only more or less"


@dataclass(frozen=True)
class Figure:
    """A number that says something of an estimate."""

    name: str
    value: float
    unit: str
    says: str
    digits: int = 3  # that are shown

    @property
    def text(self) -> str:
        """The number as it is printed, with its unit."""
        if self.value != self.value:
            return "-"
        return f"{self.value:.{self.digits}g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Finding:
    """Figures of one kind."""

    title: str
    shows: str
    hides: str  # what these figures cannot show
    figures: tuple[Figure, ...]
    bands: Mapping[str, Sequence[float]] = field(default_factory=dict)  # what is known by band

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "title": self.title,
            "shows": self.shows,
            "cannot_show": self.hides,
            "figures": {f.name: {"value": f.value, "unit": f.unit, "says": f.says} for f in self.figures},
            "bands": {name: list(values) for name, values in self.bands.items()},
        }


@dataclass(frozen=True)
class Judged:
    """All that was found of one estimate."""

    job: dict[str, Any]
    findings: tuple[Finding, ...]
    coarser: Evaluation | None  # one scale down
    notes: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            **self.job,
            "findings": [finding.to_dict() for finding in self.findings],
            "one_scale_down": None if self.coarser is None else self.coarser.to_dict(),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }
