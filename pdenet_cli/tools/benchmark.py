"""`pdenet evaluate --model`: models beside bicubic on scenes that are degraded for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pdenet_cli.degradation import Degradation, point_spread
from pdenet_cli.errors import PdenetError, UsageError
from pdenet_cli.evaluation import study
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.look import TRUTH
from pdenet_cli.evaluation.measures import Trust
from pdenet_cli.evaluation.metrics import PROTOCOLS
from pdenet_cli.evaluation.results import Evaluation, SceneResult
from pdenet_cli.evaluation.trial import Coarse, make_coarse, scratch_cube, sharpen_coarse
from pdenet_cli.evaluation.uncertainty import assess, at_known_sharpness
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.catalogue import BICUBIC, DEFAULT_SCALE, find_model
from pdenet_cli.models.model import Model, bicubic_model, load_model
from pdenet_cli.report import Say, Watch
from pdenet_cli.sampling.mixtures import mixtures_seen
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene.cube import Cube
from pdenet_cli.system import choose_device
from pdenet_cli.tools.evaluate import scene_result, seconds_since
from pdenet_cli.tools.orders import Engine, Facts, in_order
from pdenet_cli.tools.truths import Truth, TruthSettings, first_repeated
from pdenet_cli.uncertainty.calibration import LEVEL, Calibration
from pdenet_cli.uncertainty.summaries import MEAN

StudyScores = dict[study.DrawSet, study.Scores]


@dataclass(frozen=True)
class Scored:
    """What a benchmark has found out on one scene."""

    result: SceneResult
    drawn: dict[str, StudyScores]
    notes: tuple[str, ...]


class Benchmark:
    """Models and bicubic, ready to be scored on any number of scenes."""

    def __init__(
        self,
        models: Sequence[str],
        samples: Sequence[int],
        seed: int,
        device: str,
        settings: TruthSettings,
        scale: int | None = None,
    ) -> None:
        """The largest number of `samples` is scored; if there are several, a sampling study compares them.

        `scale` must be that of the models; it chooses the scale of bicubic alone.
        """
        self.samples, self.seed, self.settings = tuple(sorted(set(samples))), seed, settings
        _refuse_repeated(models)
        place = choose_device(device)
        models = [name for name in models if name != BICUBIC]  # it is always among the systems
        loaded = [load_model(name, place) for name in models]
        self.degradation = _common_degradation(loaded, settings) or settings.degradation(
            Degradation(scale or DEFAULT_SCALE)
        )
        self.scale = self.degradation.scale
        if self.scale < 2:
            raise UsageError(f"`scale` {self.scale}: nothing would be degraded. Use 2 or more.")
        if scale not in (None, self.scale):
            raise UsageError(f"`scale` {scale}: the model is made for x{self.scale}. Omit `scale`.")
        self.psf = self.degradation if settings.psf is None else point_spread(settings.psf, self.scale)
        self.posteriors = {BICUBIC: Posterior(bicubic_model(self.scale, place), samples=1)}
        for name, model in zip(models, loaded, strict=True):
            labels = (model.name, name, str(find_model(name).resolve()))
            label = next(label for label in labels if label not in (*self.posteriors, TRUTH))
            # A study needs several sets of draws, but only of a random network.
            count = study.draws_needed(self.samples) if model.network.random else max(self.samples)
            psf = self.psf if model.network.any_psf else None
            self.posteriors[label] = Posterior(model, count, seed, settings.ensemble, settings.mixtures, psf)
        self.calibrations = self._calibrations() if settings.uncertainty else {}
        self.level = self._level()

    def _calibrations(self) -> dict[str, Calibration | None]:
        """The calibration, if any, of each model that gives more than one sample."""
        if len(self.samples) > 1:
            raise UsageError("`uncertainty` takes one number of `samples`, not a list.")
        unsure = {system: p.model.calibration for system, p in self.posteriors.items() if len(p) > 1}
        if not unsure:
            only_bicubic = len(self.posteriors) == 1
            advice = "Use a model other than bicubic." if only_bicubic else "Try `ensemble` flips `samples` 8."
            raise UsageError(f"`uncertainty`: no model gives more than one sample. {advice}")
        return unsure

    def _level(self) -> float:
        """The level of the intervals: as asked for, else one that every calibration has."""
        known = [calibration for calibration in self.calibrations.values() if calibration is not None]
        level = self.settings.level
        if level is not None and self.calibrations and not known:
            raise UsageError(f"`level` {level:g}: no model is calibrated and has intervals. Omit `level`.")
        if level is None:
            level = min((calibration.level for calibration in known), default=LEVEL)
            level = max((level, *(calibration.levels[0] for calibration in known)))
        for calibration in known:
            calibration.at(level)  # refuses a level outside its table, before the work
        return level

    def run(
        self,
        scenes: Sequence[Path],
        watch: Watch = lambda text, done, total: None,
        say: Say = lambda text: None,
        engine: Engine | None = None,
    ) -> Evaluation:
        """Score every system on every scene; one of several scenes that fails does not stop the others.

        `engine` are the processes that do the scenes; None: this one.
        """
        started = time.monotonic()
        if twice := first_repeated(scenes, self.settings):
            raise UsageError(f"{twice} is given twice; it would count twice in the means.")
        counts = Counter(path.name for path in scenes)
        named = [(path, path.name if counts[path.name] == 1 else str(path)) for path in scenes]
        results: list[SceneResult] = []
        failed: dict[str, str] = {}
        studied: dict[str, list[StudyScores]] = {}
        notes: list[str] = []
        order = BenchmarkOrder(self, Facts.of(*self.posteriors.values()))
        for (_, name), scored in in_order(engine, order, named, lambda item: self.scored(*item, watch, say)):
            if isinstance(scored, PdenetError):
                failed[name] = str(scored)
                continue
            results.append(scored.result)
            notes += scored.notes
            for system, scores in scored.drawn.items():
                studied.setdefault(system, []).append(scores)
        return Evaluation(
            self._job(),
            PROTOCOLS[self.settings.protocol].metrics(self.scale),
            tuple(results),
            BICUBIC,
            {system: study.Study.of(scores) for system, scores in studied.items()},
            failed,
            seconds_since(started),
            (*self._mismatch_notes(max((len(r.bands) for r in results), default=0)), *notes),
        )

    def scored(
        self,
        path: Path,
        name: str,
        watch: Watch = lambda text, done, total: None,
        say: Say = lambda text: None,
    ) -> Scored:
        """The scores of a scene that is called `name`."""
        notes: list[str] = []
        result, drawn = self._evaluate_scene(path, name, watch, say, notes.append)
        return Scored(result, drawn, tuple(notes))

    def _evaluate_scene(
        self, path: Path, name: str, watch: Watch, say: Say, note: Say
    ) -> tuple[SceneResult, dict[str, StudyScores]]:
        """The scores of all systems on one scene and, in a study, of all sets of draws.

        `say` is told at once of smaller tiles and the like, `note` what belongs into the results.
        """
        with Truth(path, self.settings) as scene, TemporaryDirectory(prefix="pdenet-") as folder:
            # If a network takes a fixed number of bands, all systems get these.
            counts = [p.network.bands for p in self.posteriors.values() if p.network.bands is not None]
            count = next(iter(counts), None)
            truth = scene.view(self.scale, count, note)
            were_trained_on = scene.trained_on([p.model.spec for p in self.posteriors.values()])
            for system in compress(self.posteriors, were_trained_on):
                note(f"{name}: {system} was trained on this scene; it will do worse on others.")
            low = make_coarse(truth, self.degradation, self.seed, self.settings.memory, alone=self.settings.alone)
            views: dict[str, View] = {}
            seconds: dict[str, float] = {}
            drawn: dict[str, StudyScores] = {}
            trusts: dict[str, Trust] = {}
            halves: dict[str, Cube] = {}
            for system, posterior in self.posteriors.items():
                started = time.monotonic()
                estimate = scratch_cube(Path(folder), low, self.scale)
                options: Any = dict(
                    memory=self.settings.memory, watch=partial(watch, f"{name}: {system}"), say=say
                )
                if system in self.calibrations:
                    maps = EstimateMaps.scratch(Path(folder), low, self.scale, estimate)
                    sharpen_coarse(low, posterior, maps.outputs, **options)
                    calibration = self.calibrations[system]
                    if self.settings.look and calibration is not None:  # before their sharpness is known
                        output = scratch_cube(Path(folder), low, self.scale)
                        halves[system] = maps.half_widths(calibration.at(self.level), output)
                    trusts[system] = self._trust(system, truth, low, maps)
                elif len(self.samples) > 1 and posterior.network.random:
                    drawn[system] = self._study(truth, low, posterior, estimate, options)
                else:
                    sharpen_coarse(low, posterior, [(MEAN, estimate)], **options)
                views[system] = View.whole(estimate)
                seconds[system] = seconds_since(started)
            result = scene_result(name, truth, views, self.scale, self.settings, seconds)
            if (look := result.look) is not None:
                look = look.with_input(low.cube.read(low.part), self.scale, truth.part)
                for system, widths in halves.items():
                    look = look.with_intervals(system, widths, truth.part)
            return replace(result, uncertainty=trusts, look=look), drawn

    def _trust(self, system: str, truth: View, low: Coarse, maps: EstimateMaps) -> Trust:
        """How well a system knew its errors on a scene."""
        calibration, errors = self.calibrations[system], self.posteriors[system].model.errors
        trust = assess(truth, maps, calibration, self.level)
        if calibration is None or errors is None:
            return trust
        known = at_known_sharpness(truth, low, maps, errors, calibration, self.level)
        return replace(trust, values=trust.values | known)

    def _study(self, truth: View, low: Coarse, posterior: Posterior, output: Cube, options: Any) -> StudyScores:
        """The scores of every set of draws and of every mask at 1; the first largest set fills `output`."""
        empty = PROTOCOLS[self.settings.protocol].tally(self.scale, study.METRICS)
        draw_sets = study.draw_sets(self.samples, len(posterior))
        sinks = study.score_sinks(truth, empty, (*draw_sets, study.EVERY_MASK_ONE))
        outputs = [(summary, sinks[draws]) for draws, summary in draw_sets.items()]
        best = draw_sets[min(self.samples[-1], len(posterior)), 0]
        sharpen_coarse(low, posterior, [*outputs, (best, output)], **options, whole_spectra=True)
        certain = [(MEAN, sinks[study.EVERY_MASK_ONE])]
        sharpen_coarse(low, posterior.with_every_mask_one(), certain, **options, whole_spectra=True)
        return {draws: sink.scores() for draws, sink in sinks.items()}

    def _mismatch_notes(self, bands: int) -> tuple[str, ...]:
        """Notes on models and calibrations that were made for other conditions than those of this run.

        `bands` are those of the scene that has most.
        """
        trained = {s: p.model.spec.training_degradation() for s, p in self.posteriors.items() if s != BICUBIC}
        made_for = {
            s: replace(self.psf, noise=degradation.noise) if self.posteriors[s].network.any_psf else degradation
            for s, degradation in trained.items()
        }
        others = [
            f"{s} was {'told' if made != trained[s] else 'trained for'} {made}, not the degradation of this run."
            for s, made in made_for.items()
            if made != self.degradation
        ]
        known = ((system, self.posteriors[system], c) for system, c in self.calibrations.items() if c is not None)
        seen = partial(mixtures_seen, bands)
        notes = (
            (s, note)
            for s, p, c in known
            for note in c.misfits(len(p), p.ensemble, self.degradation, mixtures=p.most_mixtures, seen=seen)
        )
        return (*others, *(f"{system}: {note}" for system, note in notes))

    def _job(self) -> dict[str, Any]:
        """All that decides the result, for the report."""
        models: dict[str, dict[str, Any]] = {
            system: {
                "network": p.model.spec.network,
                "sha256": p.model.sha256,
                "random": p.network.random,
                "ensemble": p.ensemble,
                "mixtures": p.most_mixtures,
            }
            for system, p in self.posteriors.items()
            if system != BICUBIC
        }
        for system, calibration in self.calibrations.items():
            models[system]["guarantee"] = calibration and calibration.promise(self.level)
        return self.settings.job(self.scale) | {
            "models": models,
            "degradation": self.degradation.to_dict(),
            "psf": str(self.psf),
            "level": self.level if self.calibrations else None,
            "samples": list(self.samples),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class BenchmarkOrder:
    """A benchmark as it is sent to other processes, with its models."""

    benchmark: Benchmark
    facts: Facts
    name: str = "scene"

    def open(self) -> Callable[[tuple[Path, str]], Scored]:
        """What scores a scene of some name."""
        self.facts.refuse_others(Facts.of(*self.benchmark.posteriors.values()))
        return lambda item: self.benchmark.scored(*item)


def _refuse_repeated(models: Sequence[str]) -> None:
    """Stop where a model is given twice, perhaps under two names."""
    paths = [name if name == BICUBIC else find_model(name).resolve() for name in models]
    if twice := [name for name, path in zip(models, paths, strict=True) if paths.count(path) > 1]:
        raise UsageError(f"`model` {twice[0]} is given twice.")


def _common_degradation(models: Sequence[Model], settings: TruthSettings) -> Degradation | None:
    """The degradation of the scenes, which must be the same for all models; None without models."""
    wanted = [settings.degradation(model.spec.training_degradation()) for model in models]
    for model, degradation in zip(models, wanted, strict=True):
        if degradation != wanted[0]:
            first = f"{models[0].name} would be evaluated on {wanted[0]}"
            advice = "Evaluate them separately" + (
                ", or set `kernel` and `noise` for both" if model.scale == models[0].scale else ""
            )
            raise UsageError(f"{first} and {model.name} on {degradation}. {advice}.")
    return wanted[0] if wanted else None
