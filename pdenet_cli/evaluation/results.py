"""The results of an evaluation: the scores of every system on every scene, and their means."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import nan
from typing import Any

from pdenet_cli.degradation import Degradation
from pdenet_cli.evaluation.look import Look
from pdenet_cli.evaluation.measures import MEASURES, Trust, mean_trust
from pdenet_cli.evaluation.metrics import PROTOCOLS, Metric, comparable, means_over
from pdenet_cli.evaluation.study import METRICS, Study
from pdenet_cli.report import finite

MetricValues = Mapping[str, float]  # by metric


@dataclass(frozen=True)
class SystemScores:
    """How good one system was on one scene."""

    values: dict[str, float]
    bands: dict[str, list[float]]  # of the metrics that have a value for each band
    seconds: float = 0.0
    brightness: float = nan  # mean size of its values, as a multiple of the truth's


@dataclass(frozen=True)
class SceneResult:
    """One scene: what of it was compared, and how every system did."""

    name: str
    inputs: dict[str, str]  # files with their hashes
    rows: int
    columns: int
    row: int  # where the part that was compared begins
    column: int
    chosen_bands: list[list[int]] | None  # ranges [first, last + 1] of the file's bands; None: all
    bands: tuple[int, ...]  # compared, by their number in the file, counted from 0
    bands_left_out: int
    share_left_out: float  # of all numbers in the part, bands left out included
    radiometry: str
    wavelengths: tuple[float, ...] | None  # of the compared bands, in nanometres
    systems: dict[str, SystemScores]
    look: Look | None = None
    uncertainty: dict[str, Trust] = field(default_factory=dict)  # of the systems that have one


@dataclass(frozen=True)
class Evaluation:
    """Several systems on several scenes under one protocol."""

    job: dict[str, Any]  # all that decides the result: protocol, models and their hashes, seed, samples ...
    metrics: tuple[Metric, ...]
    scenes: tuple[SceneResult, ...]
    baseline: str | None = None  # the system that the others are compared with
    studies: dict[str, Study] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # why, by scene
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # models that were made for other conditions, scenes they were trained on ...

    @property
    def problem(self) -> str:
        """The task in words: the scale, and the degradation if truths were degraded."""
        made = self.job.get("degradation")
        return f"x{self.job['scale']}" if made is None else str(Degradation.from_dict(made))

    @property
    def protocol(self) -> str:
        """The protocol, and whether it clips."""
        name = self.job["protocol"]
        return f"protocol {name} (values {'clipped to 0..1' if PROTOCOLS[name].clip else 'not clipped'})"

    def tables(self) -> Iterator[tuple[str, dict[str, MetricValues]]]:
        """The mean over the scenes if there are several, then each scene: system by system, metric by metric."""
        if len(self.scenes) > 1:
            yield f"mean of {len(self.scenes)} scenes", self.means()
        for scene in self.scenes:
            yield scene.name, {name: scores.values for name, scores in scene.systems.items()}

    def means(self) -> dict[str, MetricValues]:
        """The mean of each metric over the scenes where every system has it."""
        return dict(means_over(self._values))

    @property
    def partly(self) -> dict[str, int]:
        """The metrics that some of several scenes lack, and how many scenes have them."""
        several = self.metrics if len(self.scenes) > 1 else ()
        counts = {m.name: len(comparable(self._values, m.name)) for m in several}
        return {name: count for name, count in counts.items() if count < len(self.scenes)}

    def remarks(self) -> Iterator[str]:
        """The notes, and which means are over fewer scenes."""
        yield from self.notes
        if partly := self.partly:
            counts = ", ".join(f"{name} over {count}" for name, count in partly.items())
            yield f"Means over fewer than {len(self.scenes)} scenes: {counts}."

    @property
    def _values(self) -> list[dict[str, MetricValues]]:
        return [{name: scores.values for name, scores in scene.systems.items()} for scene in self.scenes]

    def trusts(self) -> dict[str, dict[str, Trust]]:
        """How well each system with uncertainty knew its errors: by system, then by scene."""
        systems = dict.fromkeys(system for scene in self.scenes for system in scene.uncertainty)
        return {system: {scene.name: scene.uncertainty[system] for scene in self.scenes} for system in systems}

    def to_dict(self) -> dict[str, Any]:
        """All but the pictures, for JSON; NaN becomes null, infinity "inf"."""
        scenes = []
        for scene in self.scenes:
            facts = {
                name: value
                for name, value in vars(scene).items()
                if name not in ("look", "systems", "uncertainty")
            }
            facts["systems"] = {name: asdict(scores) for name, scores in scene.systems.items()}
            if scene.uncertainty:
                facts["uncertainty"] = {name: asdict(trust) for name, trust in scene.uncertainty.items()}
            if scene.look is not None:
                facts["pixels"] = [asdict(spot) for spot in scene.look.spots]
            scenes.append(facts)
        metrics = {m.name: {"unit": m.unit, "better": m.better, "says": m.says} for m in self.metrics}
        measures = {m.name: {"unit": m.unit, "says": m.says} for m in MEASURES} if self.trusts() else {}
        everything = {
            **self.job,
            "metrics": metrics,
            "measures": measures,
            "mean": self.means() if self.scenes else {},
            "uncertainty": {name: mean_trust([*trusts.values()]) for name, trusts in self.trusts().items()},
            "scenes": scenes,
            "sampling": {name: _study(study) for name, study in self.studies.items()},
            "failed": self.failed,
            "notes": list(self.remarks()),
            "seconds": self.seconds,
        }
        plain: dict[str, Any] = finite(everything)
        return plain

    def to_csv(self) -> str:
        """A line for each scene, system and metric, and one for each band of it."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("scene", "system", "metric", "unit", "band", "wavelength_nm", "value"))
        units = {metric.name: metric.unit for metric in self.metrics} | {m.name: m.unit for m in MEASURES}
        for scene in self.scenes:
            waves = scene.wavelengths or ("",) * len(scene.bands)
            scored: list[tuple[str, SystemScores | Trust]] = [*scene.systems.items(), *scene.uncertainty.items()]
            for system, scores in scored:
                for metric, value in scores.values.items():
                    table.writerow((scene.name, system, metric, units[metric], "", "", value))
                for metric, values in scores.bands.items():
                    for band, wave, value in zip(scene.bands, waves, values, strict=True):
                        table.writerow((scene.name, system, metric, units[metric], band, wave, value))
        return text.getvalue()


def _study(study: Study) -> dict[str, Any]:
    rows = [
        {"samples": s.samples, "sets": len(s.sets)} | {m: {"mean": s.mean(m), "std": s.std(m)} for m in METRICS}
        for s in study.sampled
    ]
    return {"draws": rows, "every_mask_one": study.certain}
