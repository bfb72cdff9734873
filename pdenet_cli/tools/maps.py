"""The uncertainty maps of a run: which can be made, the metadata of their files, and their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.pages.levels import strips
from pdenet_cli.sampling.mixtures import mixtures_seen
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.run import Layer, Sink
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.reading import Reading
from pdenet_cli.uncertainty.summaries import FILE_UNITS, MAPS, MEAN, SCALED_UNITS, Question, Summary

DEFAULT_MAPS = ("std", "share")  # and error or interval, if the model can tell them
UNIT_TEXTS = {"value": FILE_UNITS, "spread": FILE_UNITS, "percent": "percent", "degrees": "degrees"}
UNIT_TEXTS |= {"scaled": SCALED_UNITS}
REPORT_LEVELS = {"percent": (1, 2, 5, 10, 20, 50), "degrees": (0.1, 0.2, 0.5, 1, 2, 5)}
SPREAD_LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # as shares of the 0..1 range
MEDIAN_VALUES = 1 << 20  # about how many values a median is taken of
SCENE_ATTRIBUTES = ("long_name", "standard_name")  # header fields that describe the scene, not a map of it
UNIT_ATTRIBUTES = ("units", "unittype", "data units")  # header fields that are wrong for percent and degrees


class Maps:
    """The maps that a run makes of any scene; refused here if the model or the question does not allow them."""

    def __init__(
        self,
        names: Sequence[str] | None,
        question: Question,
        posterior: Posterior,
        *,
        per_band: bool = True,
    ) -> None:
        """`names` are names of MAPS, or a single one; None for the default ones of the model.

        Intervals have a value for each band, the other maps too where `per_band`; all are merged over the bands.
        """
        self.posterior, self.per_band = posterior, per_band
        self.by_default = names is None
        self.calibration = posterior.model.calibration
        usual_level = None if self.calibration is None else self.calibration.level
        level = usual_level if question.level is None else question.level
        self.question = replace(question, calibration=self.calibration, level=level)
        wanted = self._default_names() if names is None else (names,) if isinstance(names, str) else names
        self.names = tuple(dict.fromkeys((*wanted, *(() if question.tolerance is None else ("risk",)))))
        if unknown := [name for name in self.names if name not in MAPS]:
            raise UsageError(f"`maps` {unknown[0]}: no such map. Use {', '.join(MAPS)}.")
        self.summaries = tuple(summary for name in self.names for summary in MAPS[name])
        for summary in self.summaries:
            self._refuse(summary)
        if question.level is not None and "interval" not in self.names:
            none = "This model is not calibrated and has none. Omit"
            advice = "Add `maps` interval, or omit" if self.calibration else none
            raise UsageError(f"`level` {question.level:g} applies only to intervals. {advice} `level`.")

    def question_for(self, radiometry: Radiometry) -> Question:
        """The question put to a scene: it says the tolerance in both units where the header scales values."""
        tolerance, sizes = self.question.tolerance, np.abs(radiometry.measures)
        if tolerance is None or not (sizes != 1).any():
            return self.question
        numbers = " to ".join(dict.fromkeys(f"{tolerance / size:g}" for size in (sizes.max(), sizes.min())))
        return replace(self.question, scaled=f" as the header scales values ({numbers} in the file's numbers)")

    def metas(self, fine: CubeMeta, question: Question) -> Iterator[tuple[str, CubeMeta]]:
        """The name and the metadata of each map's cube; `fine` is the metadata of the sharpened cube."""
        for summary in self.summaries:
            if self._has_bands(summary):
                yield summary.name, _meta(fine, summary, question, merged=False)
            yield f"{summary.name}_merged", _meta(fine, summary, question, merged=True)

    def layers(self, cubes: Mapping[str, Sink], fine: CubeMeta) -> list[Layer]:
        """The layers that fill these cubes: the maps and, if it is among them, the sharpened cube, called mean.

        `fine` is the metadata of the sharpened cube.
        """
        mean = [Layer(MEAN, cubes["mean"])] if "mean" in cubes else []
        return mean + [
            Layer(s, cubes.get(s.name), cubes[f"{s.name}_merged"], scaling=self._scaling(s, fine))
            for s in self.summaries
        ]

    def _has_bands(self, summary: Summary) -> bool:
        """Whether there is a cube of a value for each band."""
        return summary.compute is not None and (self.per_band or summary.unit == "value")

    def _scaling(self, summary: Summary, fine: CubeMeta) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Gains and offsets without which the bands of a map cannot be merged."""
        if summary.compute is None:
            return None
        return _scaling(_meta(fine, summary, self.question, merged=False))

    def facts(self, question: Question) -> dict[str, Any]:
        """The parameters of the maps and the guarantee of the calibration, for the report."""
        q, calibration = question, self.calibration
        asked: dict[str, Any] = {
            "levels": q.grey_levels,
            "level": q.level,
            "tolerance": q.tolerance,
            "tolerance_unit": None if q.tolerance is None else q.scaled.strip() or "in the file's numbers",
            "calibration": None,
        }
        if calibration is None or not self._uses_calibration:
            return asked
        assert q.level is not None
        promise = {
            "certified": calibration.certified_at(q.level),
            "delta": calibration.delta,
            "scenes": len(calibration.scenes),
            "samples": calibration.samples,
            "ensemble": calibration.ensemble,
            "guarantee": calibration.promise(q.level),
        }
        return asked | {"calibration": promise}

    def notes(self, scene: CubeMeta, reading: Reading, question: Question) -> Iterator[str]:
        """Notes on the unit of merged maps and of a tolerance, on one that no error can exceed, on default maps
        without intervals, and on a calibration made for other samples.
        """
        if any(_scaling(_meta(scene, summary, question, merged=False)) for summary in self.summaries):
            yield f"The bands differ in gain or offset: maps in {FILE_UNITS} are merged as {SCALED_UNITS}."
        if self.calibration is None and self.by_default:
            name = self.posterior.model.name
            yield f"{name} is not calibrated, so there are no intervals; see pdenet calibrate."
        if self.calibration is None or not any(summary.foresees for summary in self.summaries):
            return
        if question.scaled:
            yield f"`tolerance` {question.tolerance:g} is taken{question.scaled}."
        yield from _doubts(question, reading)
        posterior = self.posterior
        count, ensemble, mixtures = len(posterior), posterior.ensemble, posterior.most_mixtures
        seen = partial(mixtures_seen, len(reading.bands))
        yield from self.calibration.misfits(count, ensemble, mixtures=mixtures, seen=seen)

    def statistics(
        self, cubes: Mapping[str, Cube], fine: CubeMeta, radiometry: Radiometry, question: Question
    ) -> dict[str, Any]:
        """Mean, median and shares of the scene above some levels, for each merged map and for interval widths."""
        sizes = 1 / np.abs(radiometry.gain)  # from 0 to 1, in the file's units
        with np.errstate(over="ignore"):  # absurd gains of a header make them infinite
            scaled_sizes = sizes * np.abs(radiometry.measures)
        ranges = {"spread": float(np.mean(sizes)), "scaled": float(np.mean(scaled_sizes))}
        levels = REPORT_LEVELS | {
            unit: tuple(float(f"{part * unit_range:.1g}") for part in SPREAD_LEVELS)
            for unit, unit_range in ranges.items()
        }
        scaled = {summary.name for summary in self.summaries if self._scaling(summary, fine)}
        shown: dict[str, tuple[str, str, Iterator[NDArray[np.float32]]]] = {
            s.name: (
                s.describe(question),
                "scaled" if s.name in scaled else s.unit,
                strips(cubes[f"{s.name}_merged"]),
            )
            for s in self.summaries
            if s.unit != "value"
        }
        if "interval" in self.names:
            high, low = (strips(cubes[f"interval_{end}_merged"]) for end in ("high", "low"))
            says = f"width of the interval at level {question.level:g}, mean over the bands"
            unit = "scaled" if "interval_low" in scaled else "spread"
            shown["interval"] = says, unit, (top - base for top, base in zip(high, low, strict=True))
        every = fine.rows * fine.columns // MEDIAN_VALUES | 1  # odd: an even step could pick the same subpixels
        return {
            name: {"says": says, "unit": UNIT_TEXTS[unit]} | _statistics(parts, levels[unit], every)
            for name, (says, unit, parts) in shown.items()
        }

    def _default_names(self) -> Iterator[str]:
        if self.posterior.model.errors is not None:
            yield "error"
        yield from DEFAULT_MAPS
        if self.calibration is not None:
            yield "interval"

    @property
    def _uses_calibration(self) -> bool:
        return any(summary.needs == "calibration" for summary in self.summaries)

    def _refuse(self, summary: Summary) -> None:
        model, q = self.posterior.model, self.question
        if summary.needs != "nothing" and len(self.posterior) < 2:
            if self.posterior.network.random:
                raise UsageError("`samples` 1: a single sample has no uncertainty. Use 2 or more.")
            reason = f"a {model.spec.network} network is deterministic and gives no uncertainty"
            flips = "" if self.posterior.network.turns else ", or `ensemble` flips `samples` 8"
            hint = f"Use a pdenet model{flips}."
            raise ModelError(f"{model.name}: {reason}. {hint}")
        if summary.name == "risk" and q.tolerance is None:
            raise UsageError("`maps` risk needs `tolerance`, the largest acceptable error.")
        if summary.name == "risk" and not np.isfinite(q.tolerance or 0):
            raise UsageError(f"`tolerance` {q.tolerance:g}: must be a finite number.")
        if summary.needs == "errors" and model.errors is None:
            advice = "Run pdenet calibrate --learn-errors first"
            raise ModelError(f"{model.name} has not learned how large its errors are. {advice}.")
        if summary.needs == "calibration":
            if self.calibration is None:
                wanted = summary.name.split("_")[0]
                raise ModelError(
                    f"{model.name} is not calibrated, so it has no {wanted} map. Run pdenet calibrate first."
                )
            assert q.level is not None
            self.calibration.at(q.level)  # refuses a level beyond its table


def _doubts(question: Question, reading: Reading) -> Iterator[str]:
    """A note on a tolerance that is larger than any difference of the scene's values."""
    survey, tolerance = reading.survey, question.tolerance
    differ = float((survey.maximum - survey.minimum) * np.abs(reading.radiometry.measures).max())
    if tolerance is not None and 0 < differ < tolerance:
        found = f"`tolerance` {tolerance:g} is larger than any difference of this scene's values ({differ:.3g})"
        yield f"{found}: is it in the right unit?"


def _meta(fine: CubeMeta, summary: Summary, question: Question, *, merged: bool) -> CubeMeta:
    """The metadata of a map: the georeference of the scene, float32, NaN where there is no data."""
    numbers = summary.unit in ("value", "spread")
    says = summary.describe(question)
    foreign = SCENE_ATTRIBUTES if numbers else SCENE_ATTRIBUTES + UNIT_ATTRIBUTES
    attributes = {"description": f"{summary.name}: {says}"}
    if not numbers:
        attributes["units"] = UNIT_TEXTS[summary.unit]
    meta = replace(
        fine,
        dtype=np.dtype("<f4"),
        nodata=float("nan"),
        offsets=fine.offsets if summary.unit == "value" else None,  # a spread takes the gain, never the offset
        gains=fine.gains if numbers else None,
        reflectance_scale=fine.reflectance_scale if numbers else None,
        variable=summary.name,
        extra={name: value for name, value in fine.extra.items() if name.lower() not in foreign} | attributes,
    )
    if not merged:
        return meta
    if _scaling(meta):
        says = f"{says}, {SCALED_UNITS}"
        meta = replace(meta, extra={**meta.extra, "description": f"{summary.name}: {says}"})
    lists: dict[str, Any] = dict.fromkeys(CubeMeta.PER_BAND) | {"band_names": (says,)}
    scaling = {name: values for name in ("gains", "offsets") if (values := getattr(meta, name))}
    if all(len(set(values)) == 1 for values in scaling.values()):  # else merged values have no common scale
        lists |= {name: values[:1] for name, values in scaling.items()}
    return replace(meta.with_bands(slice(0, 1)), default_bands=None, wavelength_units=None, **lists)


def _scaling(meta: CubeMeta) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Gains and offsets of a map whose bands differ in them: only as scaled can their values be merged.

    None where bands do not differ, or where negative gains would turn the ends of intervals round.
    """
    gains, offsets = meta.gains or (1.0,) * meta.bands, meta.offsets or (0.0,) * meta.bands
    differ = len({*zip(gains, offsets, strict=True)}) > 1
    return (gains, offsets) if differ and min(gains) > 0 and not meta.reflectance_scale else None


def _statistics(parts: Iterator[NDArray[np.float32]], levels: Sequence[float], every: int) -> dict[str, Any]:
    """Mean, median (of each `every`-th value) and shares above `levels` of a map that comes in parts."""
    total, count = 0.0, 0
    above = np.zeros(len(levels), np.int64)
    picked = []
    for part in parts:
        values = part[np.isfinite(part)]
        total, count = total + float(values.sum(dtype=np.float64)), count + values.size
        above += [np.count_nonzero(values > level) for level in levels]
        picked.append(values[::every])
    if not count:
        return {"mean": None, "median": None, "above": []}
    shares = [{"level": level, "share": float(n / count)} for level, n in zip(levels, above, strict=True)]
    return {"mean": total / count, "median": float(np.median(np.concatenate(picked))), "above": shares}
