"""From a spread to a promise: how far the truth strays from the mean of the samples, learned where it is known.

    half width at a level = factor(stratum, level) · spread

`spread` and the rule for strata are two small functions here. The factors are found on whole scenes: at the factor
of a level, the share of pixels outside the interval is 1 - level in the mean over the scenes, and what new scenes
of their kind lose at most is bounded by how few scenes there were (`risk_control`). The factor is chosen by the
scenes and yet the bound holds for it: the share is fixed beforehand and falls as the factor grows, so this factor
is the one that risk control picks for the certified level (Bates et al. 2021, theorem 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, PdenetError, UsageError
from pdenet_cli.models import ModelSpec
from pdenet_cli.risk_control import allowed_mean, least_bound, provable, scenes_needed, upper_bound
from pdenet_cli.summaries import Evidence, Map

KEY = "calibration"  # among the extra facts of a model
STRATA = ("flat", "edge")
FLOOR = 1e-4  # unit values: where all samples agree, the truth still does not
ROUGH = 0.3  # of the input's roughness: what it has of detail at its finest, it lacks still finer
LEVEL = 0.9  # of intervals, where nothing else is asked for
EDGE = 5e-4  # of the roughness: below it nothing is to be seen there, not even noise
STRATA_SAY = (
    f"Flat is where the input hardly varies around a pixel (roughness at most {EDGE:g} of the 0..1 range); "
    "edge is everywhere else."
)
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995)

# Of error / spread: so fine that the next edge above a factor is less than 1 % away.
RATIOS: NDArray[np.float64] = np.geomspace(1e-4, 1e4, 2001)

Strata = NDArray[np.intp]  # which of STRATA, shaped as a map


def spread(std: Map, detail: Map) -> Map:
    """What a half width is a multiple of, unit values, above 0: from the samples' std and the input's roughness.

    The samples tell what the network is unsure of. Of what no network can know, the detail that the input never
    had, its roughness tells more: with it, one factor serves smooth scenes and rough ones.
    """
    return std + np.float32(ROUGH) * detail + np.float32(FLOOR)


def strata(detail: Map) -> Strata:
    """Where the scene is flat and where it has edges: the number of each pixel's stratum."""
    return np.asarray(detail > EDGE, np.intp)


@dataclass(frozen=True)
class Errors:
    """How large the errors of one scene are beside their spread, by stratum; parts of a scene add up exactly."""

    counts: NDArray[np.int64]  # (strata, len(RATIOS) + 1): how many errors up to each ratio, and beyond the last
    spreads: NDArray[np.float64]  # (strata,): the sum of the spreads

    @classmethod
    def of(cls, error: Map, spread: Map, stratum: Strata, there: NDArray[np.bool_]) -> Self:
        """The errors where something is `there`."""
        own = stratum[there]
        ratio = np.abs(error[there], dtype=np.float64) / spread[there]
        bins = len(RATIOS) + 1
        # side left: an error of exactly that ratio is inside the interval.
        places = own * bins + np.searchsorted(RATIOS, ratio, side="left")
        counts = np.bincount(places, minlength=len(STRATA) * bins).reshape(len(STRATA), bins)
        spreads = np.bincount(own, spread[there], len(STRATA)).astype(np.float64)
        return cls(counts, spreads)

    def __add__(self, other: Self) -> Self:
        return type(self)(self.counts + other.counts, self.spreads + other.spreads)

    @property
    def pixels(self) -> NDArray[np.int64]:
        """How many numbers are in each stratum."""
        return np.asarray(self.counts.sum(1))

    def missed(self) -> NDArray[np.float64]:
        """The share of each stratum that is outside at each ratio, (strata, len(RATIOS)); NaN for an empty one."""
        inside = self.counts.cumsum(1)[:, :-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(1 - inside / self.pixels[:, None])

    def coverage(self, factors: Sequence[float]) -> float:
        """The share of the scene inside the intervals with these factors, one for each stratum."""
        places = np.searchsorted(RATIOS, np.asarray(factors) * (1 + 1e-9), side="right")
        inside = [self.counts[i, :place].sum() for i, place in enumerate(places)]
        return float(sum(inside) / self.pixels.sum())

    def width(self, factors: Sequence[float]) -> float:
        """The mean width of those intervals, unit values."""
        return float(2 * np.dot(factors, self.spreads) / self.pixels.sum())


@dataclass(frozen=True)
class Calibration:
    """The factors of a model, what they promise, and where they come from."""

    levels: tuple[float, ...]
    factors: tuple[tuple[float, ...], ...]  # for each of STRATA, for each level
    certified: tuple[tuple[float, ...], ...]  # the coverage that is proved there, in the mean over new scenes
    counted: tuple[int, ...]  # scenes that have pixels of each stratum
    level: float  # the one that was asked for
    delta: float  # how probable it may be that the scenes misled us
    certify: bool  # the factors are so large that `certified` is the level
    samples: int
    seed: int
    ensemble: str
    scenes: tuple[Mapping[str, Any], ...] = ()  # name, inputs with their hashes, coverage, width ...
    degradation: Mapping[str, Any] | None = None  # how those were made coarse; None: as the model has learned

    @classmethod
    def of(cls, spec: ModelSpec) -> Self | None:
        """The calibration that a model carries; None if it has none."""
        told = spec.extra.get(KEY)
        return None if told is None else cls.from_dict(told)

    @classmethod
    def fit(
        cls,
        errors: Sequence[Errors],
        *,
        level: float = LEVEL,
        delta: float = 0.1,
        certify: bool = False,
        samples: int = 0,
        seed: int = 0,
        ensemble: str = "masks",
        scenes: Sequence[Mapping[str, Any]] = (),
        degradation: Degradation | None = None,
    ) -> Self:
        """The calibration that the errors of some scenes give; UsageError if `certify` asks too much of them."""
        refuse_hopeless(len(errors), level, delta, certify)
        counted = tuple(int(n) for n in np.sum([scene.pixels > 0 for scene in errors], 0))
        some, rarest = min((n, name) for n, name in zip(counted, STRATA, strict=True) if n)
        levels = tuple(sorted({*LEVELS, level}))
        if certify:
            _refuse_too_few(f" with {rarest} pixels", some, level, delta)
            levels = tuple(wanted for wanted in levels if provable(1 - wanted, some, delta))
        factors, certified = [], []
        for losses, n in zip(_losses(errors), counted, strict=True):
            allowed = [_allowed(wanted, n or some, delta, certify) for wanted in levels]
            factors.append(_factors(losses, allowed))
            beyond = _beyond(losses)
            if certify and beyond > allowed[levels.index(level)]:
                met = f"{beyond:.1%} of the errors are larger than any interval can be"
                raise UsageError(f"{met}. Check --range and the scenes.")
            certified.append(tuple(1 - upper_bound(max(loss, beyond), n, delta) for loss in allowed))
        made = None if degradation is None else degradation.to_dict()
        facts = (level, delta, certify, samples, seed, ensemble, tuple(scenes), made)
        return cls(levels, tuple(factors), tuple(certified), counted, *facts)

    def half_width(self, evidence: Evidence, level: float) -> Map:
        """h of the interval mean ± h that holds the truth with probability `level`, unit values."""
        factors = np.asarray(self.at(level), np.float32)[strata(evidence.detail)]
        return factors * spread(evidence.std, evidence.detail)

    def beyond(self, evidence: Evidence, tolerance: NDArray[np.float64] | float) -> Map:
        """The probability, 0..1, that the truth is further than `tolerance` (unit values) from the mean."""
        ratio = np.abs(tolerance) / spread(evidence.std, evidence.detail)
        return np.asarray(1 - self.level_at(ratio, strata(evidence.detail)), np.float32)

    def at(self, level: float) -> tuple[float, ...]:
        """The factor of each stratum at a level."""
        first, last = self.levels[0], self.levels[-1]
        if not first <= level <= last:
            raise UsageError(f"--level {level:g}: this model is calibrated for levels from {first:g} to {last:g}.")
        return tuple(float(np.interp(level, self.levels, factors)) for factors in self.factors)

    def level_at(self, ratio: NDArray[Any], stratum: Strata) -> NDArray[np.float64]:
        """The level whose half width is `ratio` times the spread; that of the last factor for all beyond it."""
        levels = np.zeros(ratio.shape)
        for number, factors in enumerate(self.factors):
            own = stratum == number
            levels[own] = np.interp(ratio[own], (0.0, *factors), (0.0, *self.levels))
        return levels

    def certified_at(self, level: float) -> float:
        """The coverage that is proved at a level, in the stratum where it is least."""
        place = self._place(level)
        return min(proved[place] for proved in self.certified)

    @property
    def guarantee(self) -> str:
        """What is promised at the level that was asked for, in a sentence."""
        return self.promise(self.level)

    def promise(self, level: float) -> str:
        """What is promised at a level, in a sentence."""
        place = self._place(level)
        proved = " and ".join(
            f"{table[place]:.1%} ({name}, {_scenes(n)})"
            for name, table, n in zip(STRATA, self.certified, self.counted, strict=True)
        )
        alike = _scenes(len(self.scenes), "calibration scene")
        sentence = (
            f"The {100 * level:g}% interval of new scenes like the {alike}, degraded {self.how}, is proved to "
            f"contain at least {proved} of the true values, on average over such scenes. Each figure holds with "
            f"probability {100 * (1 - self.delta):g}% over the choice of calibration scenes."
        )
        if learned := sum(bool(scene.get("learned")) for scene in self.scenes):
            return f"{sentence} However, the model was trained on {learned} of these scenes, so nothing is proved."
        parts = sum(scene.get("part", "whole") != "whole" for scene in self.scenes)
        if not parts:
            return sentence
        return (
            f"{sentence} For {parts} of these scenes only the quarter held out from training was used. If the "
            "model was trained on the rest of them, new scenes will be less familiar to it. Treat this as an "
            "indication, not a proof."
        )

    @property
    def how(self) -> str:
        """How the scenes were made coarse, in words."""
        told = self.degradation
        return "like the model's training data" if told is None else f"by {Degradation.from_dict(told)}"

    def _place(self, level: float) -> int:
        """Where the table says what is proved at a level."""
        # Between two levels of the table the factor is at least the lower one's, and so is what it holds.
        return int(np.searchsorted(self.levels, level, side="right")) - 1

    def misfits(self, samples: int, ensemble: str, degradation: Degradation | None = None) -> Iterator[str]:
        """What keeps this calibration from holding for a run with so many samples.

        `degradation` is how the run's scenes were made coarse, None where that is not known.
        """
        if (samples, ensemble) != (self.samples, self.ensemble):
            made, met = f"{self.samples} samples ({self.ensemble})", f"{samples} ({ensemble})"
            yield f"The intervals were calibrated with {made}. With {met} their coverage is less exact."
        if degradation and self.degradation and degradation != Degradation.from_dict(self.degradation):
            yield f"The intervals were calibrated on scenes degraded {self.how}, which differs from this run."

    def to_dict(self) -> dict[str, Any]:
        """The calibration as JSON holds it, with its promise in words."""
        return asdict(self) | {"strata": list(STRATA), "guarantee": self.guarantee}

    @classmethod
    def from_dict(cls, told: Any) -> Self:
        """The calibration that `to_dict` gave; ModelError if it is not one that this version understands."""
        try:
            told = {"degradation": None} | told  # which the first calibrations did not speak of
            known = {field.name: told[field.name] for field in fields(cls)}
            for name in ("factors", "certified"):
                known[name] = tuple(tuple(map(float, table)) for table in known[name])
            for name in ("levels", "counted", "scenes"):
                known[name] = tuple(known[name])
            made = cls(**known)
            tables = np.array([*made.factors, *made.certified, made.levels], float)  # one length for all
            factors = tables[: len(STRATA)]
            rising = (np.diff(made.levels) > 0).all() and (np.diff(factors, axis=1) >= 0).all()
            if list(told["strata"]) != list(STRATA) or len(made.factors) != len(STRATA):
                raise ValueError(f"strata {told['strata']}")
            if not rising or not np.isfinite(tables).all() or (factors <= 0).any():
                raise ValueError("factors that do not rise with the level")
            if made.level not in made.levels or not made.guarantee:
                raise ValueError(f"level {made.level}")
        except (TypeError, KeyError, ValueError, AttributeError, PdenetError) as error:
            raise ModelError(f"The model's calibration cannot be read ({error}); calibrate it again.") from error
        return made


def refuse_hopeless(scenes: int, level: float, delta: float, certify: bool) -> None:
    """Stop before any work if no such number of scenes, whatever they show, gives what is asked for."""
    if not 0 < level < 1 or not 0 < delta < 1:
        raise UsageError(f"--level {level:g} --delta {delta:g}: both must be between 0 and 1.")
    if certify:
        _refuse_too_few("", scenes, level, delta)


def unseen(errors: Sequence[Errors], level: float) -> list[float]:
    """The coverage of each scene by the factors that the others give, not widened: what a new scene may expect."""
    covered = []
    for i, own in enumerate(errors):
        others = [*errors[:i], *errors[i + 1 :]]
        covered.append(own.coverage(Calibration.fit(others, level=level).at(level)) if others else float("nan"))
    return covered


def _losses(errors: Sequence[Errors]) -> NDArray[np.float64]:
    """(strata, scenes, RATIOS); a stratum that no scene has takes the losses of all pixels together."""
    losses = np.stack([scene.missed() for scene in errors], 1)
    for loss in losses:
        if not np.isfinite(loss).any():
            loss[:] = [1 - s.counts.sum(0).cumsum()[:-1] / s.counts.sum() for s in errors]
    return losses


def _factors(losses: NDArray[np.float64], allowed: Sequence[float]) -> tuple[float, ...]:
    """The smallest ratios at which the mean loss over the scenes is at most what is allowed."""
    mean = np.nanmean(losses, 0)  # falls with the ratio
    places = np.searchsorted(-mean, -np.asarray(allowed) - 1e-12, side="left")
    return tuple(RATIOS[np.minimum(places, len(RATIOS) - 1)].tolist())


def _beyond(losses: NDArray[np.float64]) -> float:
    """The share that even the largest factor leaves outside, in the mean over the scenes."""
    return float(np.nanmean(losses[:, -1]))


def _allowed(level: float, count: int, delta: float, certify: bool) -> float:
    """How much the scenes may miss in the mean at a level."""
    most = allowed_mean(1 - level, count, delta) if certify else 1 - level
    assert most is not None
    return most


def _scenes(count: int, what: str = "scene") -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _refuse_too_few(which: str, count: int, level: float, delta: float) -> None:
    """UsageError if so many scenes, those `which` count, can prove less than the level."""
    if not provable(1 - level, count, delta):
        best = np.floor(1000 * (1 - least_bound(count, delta)) + 1e-6) / 1000
        lower = f"Use --level {best:g} or lower, or give" if best else "Give"
        more = _scenes(scenes_needed(1 - level, delta))
        raise UsageError(
            f"{_scenes(count)}{which} can certify at most {best:.1%} with probability {100 * (1 - delta):g}%, "
            f"not {100 * level:g}%. {lower} at least {more}{which}, or omit --certify."
        )
