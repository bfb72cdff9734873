"""The maps of uncertainty of a run: which can be made, what their files say, and what they show in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.calibration import Calibration
from pdenet_cli.cube import Cube, CubeMeta
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.inference import Layer
from pdenet_cli.pages.sight import strips
from pdenet_cli.posterior import Posterior
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.summaries import MAPS, MEAN, Question, Summary

WITH_SAMPLES = ("std", "share")
UNITS = {"value": "the file's units", "spread": "the file's units", "percent": "percent", "degrees": "degrees"}
LEVELS = {"percent": (1, 2, 5, 10, 20, 50), "degrees": (0.1, 0.2, 0.5, 1, 2, 5)}
OF_RANGE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of what 0..1 is in the file: levels of a spread
MEDIAN_VALUES = 1 << 20
OF_THE_SCENE = ("long_name", "standard_name")  # in headers, what is true of a scene and not of a map
OF_ITS_NUMBERS = ("units", "unittype", "data units")  # and what is not true of percent and degrees


class Maps:
    """The maps that a run makes, every reason against them checked."""

    def __init__(self, wishes: Sequence[str] | None, question: Question, posterior: Posterior) -> None:
        """`wishes` are names of MAPS; None for those that the model and the question allow."""
        self.posterior = posterior
        self.usual = wishes is None
        nothing = wishes is not None and not wishes and question.tolerance is None
        self.calibration = None if nothing else Calibration.of(posterior.model.spec)
        own = None if self.calibration is None else self.calibration.level
        level = own if question.level is None else question.level
        self.question = replace(question, stretch=self.calibration, level=level)
        wanted = self._usual() if wishes is None else wishes
        self.names = tuple(dict.fromkeys((*wanted, *(() if question.tolerance is None else ("risk",)))))
        if unknown := [name for name in self.names if name not in MAPS]:
            raise UsageError(f"--map {unknown[0]}: no such map. Use {', '.join(MAPS)}.")
        self.summaries = tuple(summary for name in self.names for summary in MAPS[name])
        for summary in self.summaries:
            self._check(summary)
        if question.level is not None and "interval" not in self.names:
            none = "This model is not calibrated and has none. Omit"
            way = "Add --map interval, or omit" if self.calibration else none
            raise UsageError(f"--level {question.level:g} applies only to intervals. {way} --level.")

    def metas(self, fine: CubeMeta) -> Iterator[tuple[str, CubeMeta]]:
        """The name of each file, and what it says of itself; `fine` is what the sharpened cube says."""
        for summary in self.summaries:
            if summary.compute is not None:
                yield summary.name, self._meta(fine, summary, merged=False)
            yield f"{summary.name}_merged", self._meta(fine, summary, merged=True)

    def layers(self, cubes: Mapping[str, Cube]) -> list[Layer]:
        """What fills these cubes: the sharpened one if it is among them, called mean, and the maps."""
        mean = [Layer(MEAN, cubes["mean"])] if "mean" in cubes else []
        return mean + [Layer(s, cubes.get(s.name), cubes[f"{s.name}_merged"]) for s in self.summaries]

    def facts(self) -> dict[str, Any]:
        """What was asked, and what the calibration promises."""
        q, told = self.question, self.calibration
        asked: dict[str, Any] = {
            "levels": q.levels,
            "level": q.level,
            "tolerance": q.tolerance,
            "calibration": None,
        }
        if told is None or not self._calibrated:
            return asked
        assert q.level is not None
        promise = {
            "certified": told.certified_at(q.level),
            "delta": told.delta,
            "scenes": len(told.scenes),
            "samples": told.samples,
            "ensemble": told.ensemble,
            "guarantee": told.promise(q.level),
        }
        return asked | {"calibration": promise}

    def misfits(self) -> tuple[str, ...]:
        """What keeps the usual maps from having intervals, and the calibration from holding for this run."""
        if self.calibration is None and self.usual:
            name = self.posterior.model.name
            return (f"{name} is not calibrated, so there are no intervals; see pdenet calibrate.",)
        if self.calibration is None or not self._calibrated:
            return ()
        return tuple(self.calibration.misfits(len(self.posterior), self.posterior.ensemble))

    def numbers(self, cubes: Mapping[str, Cube], radiometry: Radiometry) -> dict[str, Any]:
        """Mean, median and share of the scene above some levels of each merged map; of intervals, the width."""
        between = float(np.mean(1 / np.abs(radiometry.gain)))  # 0 and 1, in the file's numbers
        levels = LEVELS | {"spread": tuple(float(f"{part * between:.1g}") for part in OF_RANGE)}
        shown = {
            s.name: (s.describe(self.question), s.unit, strips(cubes[f"{s.name}_merged"]))
            for s in self.summaries
            if s.unit != "value"
        }
        if "interval" in self.names:
            high, low = (strips(cubes[f"interval_{end}_merged"]) for end in ("high", "low"))
            says = f"width of the interval at level {self.question.level:g}, mean over the bands"
            shown["interval"] = says, "spread", (top - base for top, base in zip(high, low, strict=True))
        fine = next(iter(cubes.values())).meta
        every = fine.rows * fine.columns // MEDIAN_VALUES | 1  # odd: so as not to step with the scale
        return {
            name: {"says": says, "unit": UNITS[unit]} | _numbers(parts, levels[unit], every)
            for name, (says, unit, parts) in shown.items()
        }

    def _usual(self) -> Iterator[str]:
        yield from WITH_SAMPLES
        if self.calibration is not None:
            yield "interval"

    @property
    def _calibrated(self) -> bool:
        return any(summary.needs == "calibration" for summary in self.summaries)

    def _check(self, summary: Summary) -> None:
        model, q = self.posterior.model, self.question
        if summary.needs != "nothing" and len(self.posterior) < 2:
            if self.posterior.network.random:
                raise UsageError("--samples 1: a single sample has no uncertainty. Use 2 or more.")
            met = f"a {model.spec.network} network is deterministic and gives no uncertainty"
            flips = "" if self.posterior.network.turns else ", or --ensemble flips --samples 8"
            hint = f"Use a pdenet model{flips}."
            raise ModelError(f"{model.name}: {met}. {hint}")
        if summary.name == "risk" and q.tolerance is None:
            raise UsageError("--map risk needs --tolerance, the largest acceptable error in the file's units.")
        if summary.name == "risk" and not np.isfinite(q.tolerance or 0):
            raise UsageError(f"--tolerance {q.tolerance:g}: must be a finite number.")
        if summary.needs == "calibration":
            if self.calibration is None:
                wish = summary.name.split("_")[0]
                raise ModelError(
                    f"{model.name} is not calibrated, so it has no {wish} map. Run pdenet calibrate first."
                )
            assert q.level is not None
            self.calibration.at(q.level)  # refuses a level beyond its table

    def _meta(self, fine: CubeMeta, summary: Summary, merged: bool) -> CubeMeta:
        """On the same ground, float32, NaN where there is nothing."""
        numbers = summary.unit in ("value", "spread")
        says = summary.describe(self.question)
        foreign = OF_THE_SCENE if numbers else OF_THE_SCENE + OF_ITS_NUMBERS
        own = {"description": f"{summary.name}: {says}"} | ({} if numbers else {"units": UNITS[summary.unit]})
        meta = replace(
            fine,
            dtype=np.dtype("<f4"),
            nodata=float("nan"),
            offsets=fine.offsets if summary.unit == "value" else None,  # a spread takes the gain, never the offset
            gains=fine.gains if numbers else None,
            reflectance_scale=fine.reflectance_scale if numbers else None,
            variable=summary.name,
            extra={name: value for name, value in fine.extra.items() if name.lower() not in foreign} | own,
        )
        if not merged:
            return meta
        lists: dict[str, Any] = dict.fromkeys(CubeMeta.PER_BAND) | {"band_names": (says,)}
        scaling = {name: values for name in ("gains", "offsets") if (values := getattr(meta, name))}
        if all(len(set(values)) == 1 for values in scaling.values()):  # else a pixel has no one meaning
            lists |= {name: values[:1] for name, values in scaling.items()}
        return replace(meta.with_bands(slice(0, 1)), default_bands=None, wavelength_units=None, **lists)


def _numbers(parts: Iterator[NDArray[np.float32]], levels: Sequence[float], every: int) -> dict[str, Any]:
    """`every` how many-th value is enough for the median."""
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
