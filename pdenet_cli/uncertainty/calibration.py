"""Calibrated intervals, fitted on scenes whose truth is known:

    half width at a level = factor(stratum, level) · spread

spread.py defines spread and stratum. The factor of a level is the one at which the share of pixels outside the
interval, averaged over the scenes, is 1 - level. `risk_control` bounds that share for new scenes of the same
kind, from the number of scenes. The bound holds although the same scenes choose the factor: the share is fixed
beforehand and falls as the factor grows, so this factor is the one that risk control picks for the certified
level (Bates et al. 2021, theorem 1).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, PdenetError, UsageError
from pdenet_cli.uncertainty.error_ratios import RATIOS, ErrorRatios
from pdenet_cli.uncertainty.evidence import Evidence, Map
from pdenet_cli.uncertainty.risk_control import allowed_mean, least_bound, provable, scenes_needed, upper_bound
from pdenet_cli.uncertainty.spread import STRATA, Strata, spread, strata

ENSEMBLES = ("masks", "flips")  # how samples differ, see Posterior
LEVEL = 0.9  # default level of intervals
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995)


class Described(Protocol):
    """The description of a model that may carry a calibration, as JSON holds it."""

    @property
    def calibration(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class Calibration:
    """The interval factors of a model, the coverage they guarantee, and the scenes they were fitted on."""

    levels: tuple[float, ...]
    factors: tuple[tuple[float, ...], ...]  # for each of STRATA, for each level
    certified: tuple[tuple[float, ...], ...]  # proved coverage for the same, averaged over new scenes
    counted: tuple[int, ...]  # for each stratum, the number of scenes that have pixels of it
    level: float  # the level that was asked for
    delta: float  # probability that a proved coverage does not hold, by an unlucky choice of scenes
    certify: bool  # True: factors were enlarged until `certified` reached the level
    samples: int
    seed: int
    ensemble: str
    scenes: tuple[Mapping[str, Any], ...] = ()  # name, inputs with their hashes, coverage, width ...
    degradation: Mapping[str, Any] | None = None  # how scenes were degraded; None: as in training
    mixtures: int = 0  # that the network saw of scenes with many bands; 0: every band

    @classmethod
    def of(cls, spec: Described) -> Self | None:
        """The calibration that a model carries; None if it has none."""
        return None if spec.calibration is None else cls.from_dict(spec.calibration)

    @classmethod
    def fit(
        cls,
        ratios: Sequence[ErrorRatios],
        *,
        level: float = LEVEL,
        delta: float = 0.1,
        certify: bool = False,
        samples: int = 0,
        seed: int = 0,
        ensemble: str = "masks",
        scenes: Sequence[Mapping[str, Any]] = (),
        degradation: Degradation | None = None,
        mixtures: int = 0,
    ) -> Self:
        """The calibration for the error ratios of some scenes; UsageError if they cannot `certify` the level."""
        refuse_hopeless(len(ratios), level, delta, certify)
        counted = tuple(int(n) for n in np.sum([scene.pixels > 0 for scene in ratios], 0))
        fewest, rarest = min((n, name) for n, name in zip(counted, STRATA, strict=True) if n)
        levels = tuple(sorted({*LEVELS, level}))
        if certify:
            _refuse_too_few(f" with {rarest} pixels", fewest, level, delta)
            levels = tuple(wanted for wanted in levels if provable(1 - wanted, fewest, delta))
        factors, certified = [], []
        for losses, n in zip(_losses(ratios), counted, strict=True):
            allowed = [_allowed(wanted, n or fewest, delta, certify) for wanted in levels]
            factors.append(_factors(losses, allowed))
            beyond = _beyond(losses)
            if certify and beyond > allowed[levels.index(level)]:
                problem = f"{beyond:.1%} of the errors are larger than any interval can be"
                raise UsageError(f"{problem}. Check `value_range` and the scenes.")
            certified.append(tuple(1 - upper_bound(max(loss, beyond), n, delta) for loss in allowed))
        return cls(
            levels=levels,
            factors=tuple(factors),
            certified=tuple(certified),
            counted=counted,
            level=level,
            delta=delta,
            certify=certify,
            samples=samples,
            seed=seed,
            ensemble=ensemble,
            scenes=tuple(scenes),
            degradation=None if degradation is None else degradation.to_dict(),
            mixtures=mixtures,
        )

    def half_width(self, evidence: Evidence, level: float) -> Map:
        """h of the interval mean ± h that holds the truth with probability `level`, 0..1."""
        factors = np.asarray(self.at(level), np.float32)[strata(evidence.roughness)]
        return factors * spread(evidence)

    def beyond(self, evidence: Evidence, tolerance: NDArray[np.float64] | float) -> Map:
        """The probability that the truth is further than `tolerance` (0..1) from the mean."""
        ratio = np.abs(tolerance) / spread(evidence)
        return np.asarray(1 - self.level_at(ratio, strata(evidence.roughness)), np.float32)

    def at(self, level: float) -> tuple[float, ...]:
        """The factor of each stratum at a level, interpolated between the levels of the table."""
        first, last = self.levels[0], self.levels[-1]
        if not first <= level <= last:
            raise UsageError(f"`level` {level:g}: this model is calibrated for levels from {first:g} to {last:g}.")
        return tuple(float(np.interp(level, self.levels, factors)) for factors in self.factors)

    def level_at(self, ratio: NDArray[Any], stratum: Strata) -> NDArray[np.float64]:
        """The level whose half width is `ratio` times the spread; at most the last level of the table."""
        levels = np.zeros(ratio.shape)
        for number, factors in enumerate(self.factors):
            of_stratum = stratum == number
            levels[of_stratum] = np.interp(ratio[of_stratum], (0.0, *factors), (0.0, *self.levels))
        return levels

    def certified_at(self, level: float) -> float:
        """The coverage that is proved at a level, in the stratum where it is smallest."""
        index = self._index(level)
        return min(proved[index] for proved in self.certified)

    @property
    def guarantee(self) -> str:
        """What is proved at the level that was asked for, in words."""
        return self.promise(self.level)

    def promise(self, level: float) -> str:
        """What is proved at a level, in words."""
        index = self._index(level)
        proved = " and ".join(
            f"{table[index]:.1%} ({name}, {_scenes(n)})"
            for name, table, n in zip(STRATA, self.certified, self.counted, strict=True)
        )
        scenes = _scenes(len(self.scenes), "calibration scene")
        sentence = (
            f"The {100 * level:g}% interval of new scenes like the {scenes}, degraded {self.how}, is proved to "
            f"contain at least {proved} of the true values, on average over such scenes. Each figure holds with "
            f"probability {100 * (1 - self.delta):g}% over the choice of calibration scenes."
        )
        if seen := sum(bool(scene.get("learned")) for scene in self.scenes):
            return f"{sentence} However, the model was trained on {seen} of these scenes, so nothing is proved."
        parts = sum(scene.get("part", "whole") != "whole" for scene in self.scenes)
        if not parts:
            return sentence
        return (
            f"{sentence} For {parts} of these scenes only the quarter held out from training was used. If the "
            "model, or its sense of errors, was trained on the rest of them, new scenes will be less familiar to "
            "it. Treat this as an indication, not a proof."
        )

    @property
    def how(self) -> str:
        """How the scenes were degraded, in words."""
        if self.degradation is None:
            return "like the model's training data"
        return f"by {Degradation.from_dict(self.degradation)}"

    def _index(self, level: float) -> int:
        """The last level of the table up to this one."""
        # Between two levels the factor is at least that of the lower one, and so is the coverage.
        return int(np.searchsorted(self.levels, level, side="right")) - 1

    def misfits(
        self,
        samples: int,
        ensemble: str,
        degradation: Degradation | None = None,
        *,
        mixtures: int,
        seen: Callable[[int], int],
    ) -> Iterator[str]:
        """Warnings if a run differs from what this calibration was made for.

        `degradation` is how the run's scenes were degraded, None if unknown; `mixtures` how many mixtures the
        network may see of scenes with many bands, and `seen` how many it does see of the scenes of the run.
        """
        if seen(mixtures) != seen(self.mixtures):
            asked = f"not with `mixtures` {mixtures}"
            made = f"The intervals were calibrated with `mixtures` {self.mixtures}"
            yield f"{made}, {asked}: coverage is less exact."
        if (samples, ensemble) != (self.samples, self.ensemble):
            made, asked = f"{self.samples} samples ({self.ensemble})", f"{samples} ({ensemble})"
            yield f"The intervals were calibrated with {made}. With {asked} their coverage is less exact."
        if degradation and self.degradation and degradation != Degradation.from_dict(self.degradation):
            yield f"The intervals were calibrated on scenes degraded {self.how}, which differs from this run."

    def to_dict(self) -> dict[str, Any]:
        """The calibration for JSON, with its guarantee in words."""
        return asdict(self) | {"strata": list(STRATA), "guarantee": self.guarantee}

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """The calibration that `to_dict` gave; ModelError if this version cannot read it."""
        try:
            stored = {"degradation": None, "mixtures": 0} | stored  # absent in the first calibrations
            known = {field.name: stored[field.name] for field in fields(cls)}
            for name in ("factors", "certified"):
                known[name] = tuple(tuple(map(float, table)) for table in known[name])
            for name in ("levels", "counted", "scenes"):
                known[name] = tuple(known[name])
            made = cls(**known)
            tables = np.array([*made.factors, *made.certified, made.levels], float)  # fails if lengths differ
            factors = tables[: len(STRATA)]
            rising = (np.diff(made.levels) > 0).all() and (np.diff(factors, axis=1) >= 0).all()
            if list(stored["strata"]) != list(STRATA) or len(made.factors) != len(STRATA):
                raise ValueError(f"strata {stored['strata']}")
            if not rising or not np.isfinite(tables).all() or (factors <= 0).any():
                raise ValueError("factors that do not rise with the level")
            if made.level not in made.levels or not made.guarantee:
                raise ValueError(f"level {made.level}")
            counts = operator.index(made.samples) >= 1 and operator.index(made.mixtures) >= 0
            if made.ensemble not in ENSEMBLES or not counts:
                raise ValueError(f"{made.samples} samples, {made.ensemble}, {made.mixtures} mixtures")
        except (TypeError, KeyError, ValueError, AttributeError, PdenetError) as error:
            raise ModelError(f"The model's calibration cannot be read ({error}); calibrate it again.") from error
        return made


def refuse_hopeless(scenes: int, level: float, delta: float, certify: bool) -> None:
    """Stop before any work if so few scenes cannot certify the level, whatever they show."""
    if not 0 < level < 1 or not 0 < delta < 1:
        raise UsageError(f"`level` {level:g} `delta` {delta:g}: both must be between 0 and 1.")
    if certify:
        _refuse_too_few("", scenes, level, delta)


def leave_one_out_coverage(
    ratios: Sequence[ErrorRatios], level: float, delta: float = 0.1, certify: bool = False
) -> list[float | None]:
    """The coverage of each scene by factors fitted on the others: what to expect of a new scene.

    None where there are no others, or where they alone cannot `certify` the level.
    """
    covered: list[float | None] = []
    for i, held_out in enumerate(ratios):
        others = [*ratios[:i], *ratios[i + 1 :]]
        try:
            made = Calibration.fit(others, level=level, delta=delta, certify=certify) if others else None
        except UsageError:
            made = None
        covered.append(None if made is None else held_out.coverage(made.at(level)))
    return covered


def _losses(ratios: Sequence[ErrorRatios]) -> NDArray[np.float64]:
    """Shares missed, (strata, scenes, RATIOS); a stratum that no scene has takes those of all pixels together."""
    losses = np.stack([scene.missed() for scene in ratios], 1)
    for loss in losses:
        if not np.isfinite(loss).any():
            loss[:] = [1 - s.counts.sum(0).cumsum()[:-1] / s.counts.sum() for s in ratios]
    return losses


def _factors(losses: NDArray[np.float64], allowed: Sequence[float]) -> tuple[float, ...]:
    """The smallest ratios at which the mean loss over the scenes is at most what is allowed."""
    mean = np.nanmean(losses, 0)  # falls with the ratio
    places = np.searchsorted(-mean, -np.asarray(allowed) - 1e-12, side="left")
    return tuple(RATIOS[np.minimum(places, len(RATIOS) - 1)].tolist())


def _beyond(losses: NDArray[np.float64]) -> float:
    """The mean share over the scenes that even the largest factor leaves outside."""
    return float(np.nanmean(losses[:, -1]))


def _allowed(level: float, count: int, delta: float, certify: bool) -> float:
    """The mean share that the scenes may miss at a level."""
    most = allowed_mean(1 - level, count, delta) if certify else 1 - level
    assert most is not None
    return most


def _scenes(count: int, what: str = "scene") -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _refuse_too_few(of_kind: str, count: int, level: float, delta: float) -> None:
    """UsageError if `count` scenes cannot prove the level; `which` says what scenes were counted."""
    if not provable(1 - level, count, delta):
        best = np.floor(1000 * (1 - least_bound(count, delta)) + 1e-6) / 1000
        lower = f"Use `level` {best:g} or lower, or give" if best else "Give"
        more = _scenes(scenes_needed(1 - level, delta))
        raise UsageError(
            f"{_scenes(count)}{of_kind} can certify at most {best:.1%} with probability {100 * (1 - delta):g}%, "
            f"not {100 * level:g}%. {lower} at least {more}{of_kind}, or omit `certify`."
        )
