"""`pdenet evaluate`: an estimate beside its truth, or models on truths that are made coarse for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pdenet_cli.calibration import LEVEL, Calibration
from pdenet_cli.cube import Cube, CubeMeta
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, PdenetError, UsageError, failure
from pdenet_cli.evaluation import study
from pdenet_cli.evaluation.look import TRUTH, Look
from pdenet_cli.evaluation.results import Evaluation, SceneResult, Scores
from pdenet_cli.evaluation.trial import Coarse, coarse, every_mask_one, run, scratch
from pdenet_cli.evaluation.uncertainty import Guess, Trust, trust
from pdenet_cli.evaluation.view import View, compare
from pdenet_cli.metrics import PROTOCOLS
from pdenet_cli.models import BICUBIC, DEFAULT_SCALE, Model, bicubic_model, choose_device, find_model, load_model
from pdenet_cli.posterior import Posterior
from pdenet_cli.radiometry import says_scale, without_implausible_scale
from pdenet_cli.report import hashes
from pdenet_cli.summaries import MEAN
from pdenet_cli.survey import Survey
from pdenet_cli.tools.truths import Settings, first_repeated, open_truth, trained_on, truth_view

SAME_PLACE = 0.1  # of a pixel
Watch = Callable[[str, int, int], None]  # what is being done, how much of it is, of how much
Say = Callable[[str], None]
Taken = dict[study.Take, study.Scores]


def evaluate_files(guess: Path, truth: Path, scale: int | None, settings: Settings) -> Evaluation:
    """Score one cube against another of the same shape; `scale` is the one that ERGAS speaks of."""
    started = time.monotonic()
    factor = scale or DEFAULT_SCALE
    notes: list[str] = []
    with open_truth(truth, settings) as target, _open_estimate(guess, settings) as other:
        if other.meta.shape() != target.meta.shape():
            met = f"{guess} is {_size(other)} and {truth} {_size(target)}"
            raise UsageError(f"{met} (bands x rows x columns); only cubes of the same shape can be compared.")
        notes += [*_other_wavelengths(other.meta, target.meta), *_other_ground(other.meta, target.meta)]
        # All bands, as they are.
        view = truth_view(target, factor, settings, multiple=1, count=target.meta.bands, say=notes.append)
        # The truth decides what 0 and 1 are; how its numbers are scaled is the estimate's own affair.
        own, truths = _credible(other), _credible(target)
        radiometry = view.radiometry.for_other_file(truths, own)
        name = guess.name if guess.name != TRUTH else str(guess)
        silent = [path for path, meta in ((guess, own), (truth, truths)) if not says_scale(meta)]
        scene = _result(truth.name, view, {name: View(other, radiometry, view.bands, view.part)}, factor, settings)
    job = settings.job(factor) | {"estimate": {"path": str(guess), "inputs": hashes(other.files)}}
    note = "has no credible scale factor; its values are read with the other cube's scaling."
    if len(silent) == 1:
        notes.append(f"{silent[0].name} {note}")
    metrics = PROTOCOLS[settings.protocol].metrics(factor)
    return Evaluation(job, metrics, (scene,), seconds=_since(started), notes=tuple(notes))


def _credible(cube: Cube) -> CubeMeta:
    """What a header says, as far as the numbers do not contradict it."""
    return without_implausible_scale(cube.meta, Survey.of(cube)) if cube.meta.reflectance_scale else cube.meta


def _open_estimate(guess: Path, settings: Settings) -> Cube:
    """The estimate, whose one cube may be called otherwise than that of the truth."""
    try:
        return open_truth(guess, settings)
    except FormatError:
        if settings.variable is None:
            raise
        with suppress(PdenetError):
            return open_truth(guess, replace(settings, variable=None))
        raise


def _other_wavelengths(own: CubeMeta, truth: CubeMeta) -> list[str]:
    """What to say where two cubes are not of the same bands."""
    ours, theirs = own.wavelengths_nm, truth.wavelengths_nm
    if ours is None or theirs is None or len(theirs) < 2:
        return []
    apart = np.abs(ours - theirs).max()
    if apart <= np.median(np.abs(np.diff(theirs))) / 2:
        return []
    return [f"The wavelengths of the two cubes differ by up to {apart:.4g} nm; bands are compared by number."]


def _other_ground(own: CubeMeta, truth: CubeMeta) -> list[str]:
    """What to say where two cubes lie on the ground, and not in the same place."""
    ours, theirs = own.georeference, truth.georeference
    if ours.transform is None or theirs.transform is None:
        return []
    told = "pixels are compared by row and column."
    codes = [(place.crs or "").upper() for place in (ours, theirs)]
    # One system has many spellings as text, but only one code.
    if codes[0] != codes[1] and all(code.startswith("EPSG:") for code in codes):
        return [f"The two cubes are in different coordinate systems, {codes[0]} and {codes[1]}; {told}"]
    apart = theirs.max_corner_offset(ours, truth.columns, truth.rows)
    if apart <= SAME_PLACE:
        return []
    how = f"are up to {apart:.3g} pixels apart on the" if codes[0] == codes[1] else "do not cover the same"
    return [f"The two cubes {how} ground; {told}"]


class Contest:
    """Models and bicubic, made ready to be scored on any number of scenes."""

    def __init__(
        self,
        models: Sequence[str],
        samples: Sequence[int],
        seed: int,
        device: str,
        settings: Settings,
        scale: int | None = None,
    ) -> None:
        """One number of `samples` scores their mean; of several, the largest does, and the others are studied.

        `scale` is a wish, which only bicubic leaves open.
        """
        self.samples, self.seed, self.settings = tuple(sorted(set(samples))), seed, settings
        paths = [name if name == BICUBIC else find_model(name).resolve() for name in models]
        if twice := [name for name, path in zip(models, paths, strict=True) if paths.count(path) > 1]:
            raise UsageError(f"--model {twice[0]} is given twice.")
        place = choose_device(device)
        models = [name for name in models if name != BICUBIC]  # which is always there
        loaded = [load_model(name, place) for name in models]
        self.degradation = _common_degradation(loaded, settings) or settings.degradation(
            Degradation(scale or DEFAULT_SCALE)
        )
        self.scale = self.degradation.scale
        if self.scale < 2:
            raise UsageError(f"--scale {self.scale}: nothing would be degraded. Use 2 or more.")
        if scale not in (None, self.scale):
            raise UsageError(f"--scale {scale}: the model is made for x{self.scale}. Omit --scale.")
        self.posteriors = {BICUBIC: Posterior(bicubic_model(self.scale, place), samples=1)}
        for name, model in zip(models, loaded, strict=True):
            labels = (model.name, name, str(find_model(name).resolve()))
            label = next(label for label in labels if label not in (*self.posteriors, TRUTH))
            # Only chance is studied; any other network is scored with what it was asked for.
            count = study.draws(self.samples) if model.network.random else max(self.samples)
            self.posteriors[label] = Posterior(model, count, seed, settings.ensemble)
        self.calibrations = self._calibrations() if settings.uncertainty else {}
        self.level = self._level()

    def _calibrations(self) -> dict[str, Calibration | None]:
        """The models whose samples differ, each with its calibration if it has one."""
        if len(self.samples) > 1:
            raise UsageError("--uncertainty takes one number of --samples, not a list.")
        unsure = {system: Calibration.of(p.model.spec) for system, p in self.posteriors.items() if len(p) > 1}
        if not unsure:
            way = (
                "Try --ensemble flips --samples 8."
                if len(self.posteriors) > 1
                else "Use a model other than bicubic."
            )
            raise UsageError(f"--uncertainty: no model gives more than one sample. {way}")
        return unsure

    def _level(self) -> float:
        """That of the intervals: as asked for, else one that every calibration has."""
        known = [calibration for calibration in self.calibrations.values() if calibration is not None]
        level = self.settings.level
        if level is None:
            level = min((calibration.level for calibration in known), default=LEVEL)
            level = max((level, *(calibration.levels[0] for calibration in known)))
        for calibration in known:
            calibration.at(level)  # refused before the work rather than after it
        return level

    def run(
        self,
        scenes: Sequence[Path],
        watch: Watch = lambda text, done, total: None,
        say: Say = lambda text: None,
    ) -> Evaluation:
        """Score every system on every scene; one of several scenes that fails does not stop the others."""
        started = time.monotonic()
        if twice := first_repeated(scenes, self.settings):
            raise UsageError(f"{twice} is given twice; it would count twice in the means.")
        names = [path.name for path in scenes]
        results: list[SceneResult] = []
        failed: dict[str, str] = {}
        taken: dict[str, list[Taken]] = {}
        notes: list[str] = []
        for path in scenes:
            name = path.name if names.count(path.name) == 1 else str(path)
            try:
                result, drawn = self._scene(path, name, watch, say, notes.append)
            except Exception as error:
                if len(scenes) == 1:
                    raise
                failed[name] = str(failure(error))
                continue
            results.append(result)
            for system, scores in drawn.items():
                taken.setdefault(system, []).append(scores)
        return Evaluation(
            self._job(),
            PROTOCOLS[self.settings.protocol].metrics(self.scale),
            tuple(results),
            BICUBIC,
            {system: study.Study.of(scores) for system, scores in taken.items()},
            failed,
            _since(started),
            (*self._misfits(), *notes),
        )

    def _scene(
        self, path: Path, name: str, watch: Watch, say: Say, note: Say
    ) -> tuple[SceneResult, dict[str, Taken]]:
        """The scores of all systems on one scene, and those of all sets of draws of a study.

        `say` hears at once what goes otherwise than planned, `note` what the scores are to be read with.
        """
        with open_truth(path, self.settings) as cube, TemporaryDirectory(prefix="pdenet-") as folder:
            # A network for a fixed number of bands must get them all, and then all systems do.
            counts = [p.network.bands for p in self.posteriors.values() if p.network.bands is not None]
            count = next(iter(counts), None)
            truth = truth_view(cube, self.scale, self.settings, multiple=self.scale, count=count, say=note)
            for system, posterior in self.posteriors.items():
                if trained_on(path, self.settings, posterior.model.spec):
                    note(f"{name}: {system} was trained on this scene; it will do worse on others.")
            low = coarse(truth, self.degradation, self.seed, self.settings.memory, alone=self.settings.alone)
            views: dict[str, View] = {}
            seconds: dict[str, float] = {}
            drawn: dict[str, Taken] = {}
            trusts: dict[str, Trust] = {}
            for system, posterior in self.posteriors.items():
                started = time.monotonic()
                estimate = scratch(Path(folder), low, self.scale)
                options: Any = dict(
                    memory=self.settings.memory, watch=partial(watch, f"{name}: {system}"), say=say
                )
                if system in self.calibrations:
                    guess = Guess(estimate, *(scratch(Path(folder), low, self.scale) for _ in range(3)))
                    run(low, posterior, guess.outputs, **options)
                    trusts[system] = trust(truth, guess, self.calibrations[system], self.level)
                elif len(self.samples) > 1 and posterior.network.random:
                    drawn[system] = self._study(truth, low, posterior, estimate, options)
                else:
                    run(low, posterior, [(MEAN, estimate)], **options)
                views[system] = View.whole(estimate)
                seconds[system] = _since(started)
            result = _result(name, truth, views, self.scale, self.settings, seconds)
            return replace(result, uncertainty=trusts), drawn

    def _study(self, truth: View, low: Coarse, posterior: Posterior, output: Cube, options: Any) -> Taken:
        """The scores of every set of draws and of no draw; the first set of the largest N fills `output`."""
        empty = PROTOCOLS[self.settings.protocol].tally(self.scale, study.METRICS)
        takes = study.takes(self.samples, len(posterior))
        cubes = study.scored(truth, empty, takes | {study.EVERY_MASK_ONE: MEAN})
        outputs = [(summary, cubes[take]) for take, summary in takes.items()]
        best = takes[min(self.samples[-1], len(posterior)), 0]
        run(low, posterior, [*outputs, (best, output)], **options, whole_spectra=True)
        certain = [(MEAN, cubes[study.EVERY_MASK_ONE])]
        run(low, every_mask_one(posterior), certain, **options, whole_spectra=True)
        return {take: study.scores_in(cube) for take, cube in cubes.items()}

    def _misfits(self) -> tuple[str, ...]:
        """What keeps models from doing what they can in this run, and calibrations from holding."""
        learned = ((s, p.model.spec.learned()) for s, p in self.posteriors.items() if s != BICUBIC)
        others = [
            f"{s} was trained for {own}, not for the degradation of this run."
            for s, own in learned
            if own != self.degradation
        ]
        known = ((system, self.posteriors[system], c) for system, c in self.calibrations.items() if c is not None)
        notes = ((s, note) for s, p, c in known for note in c.misfits(len(p), p.ensemble, self.degradation))
        return (*others, *(f"{system}: {note}" for system, note in notes))

    def _job(self) -> dict[str, Any]:
        models: dict[str, dict[str, Any]] = {
            system: {
                "network": p.model.spec.network,
                "sha256": p.model.sha256,
                "random": p.network.random,
                "ensemble": p.ensemble,
            }
            for system, p in self.posteriors.items()
            if system != BICUBIC
        }
        for system, calibration in self.calibrations.items():
            models[system]["guarantee"] = calibration and calibration.promise(self.level)
        return self.settings.job(self.scale) | {
            "models": models,
            "degradation": self.degradation.to_dict(),
            "level": self.level if self.calibrations else None,
            "samples": list(self.samples),
            "seed": self.seed,
        }


def _common_degradation(models: Sequence[Model], settings: Settings) -> Degradation | None:
    """How the models get their input made; they must agree, or they would not solve the same problem."""
    wanted = [settings.degradation(model.spec.learned()) for model in models]
    for model, other in zip(models, wanted, strict=True):
        if other != wanted[0]:
            first = f"{models[0].name} would be evaluated on {wanted[0]}"
            way = "Evaluate them separately" + (
                ", or set --kernel and --noise for both" if model.scale == models[0].scale else ""
            )
            raise UsageError(f"{first} and {model.name} on {other}. {way}.")
    return wanted[0] if wanted else None


def _result(
    name: str,
    truth: View,
    views: Mapping[str, View],
    scale: int,
    settings: Settings,
    seconds: Mapping[str, float] | None = None,
) -> SceneResult:
    """The scores of all estimates of one truth."""
    meta, part = truth.cube.meta, truth.part
    tallies = {system: PROTOCOLS[settings.protocol].tally(scale) for system in views}
    compare(truth, views, tallies)
    counted = min(tally.counted for tally in tallies.values())
    if not counted:
        raise UsageError(f"{truth.cube.path}: nothing to compare; no pixel has a valid value in both cubes.")
    waves = meta.wavelengths_nm
    return SceneResult(
        name=name,
        inputs=hashes(truth.cube.files),
        rows=part.rows,
        columns=part.columns,
        row=part.row,
        column=part.column,
        bands=truth.bands,
        bands_left_out=meta.bands - len(truth.bands),
        share_left_out=1 - counted / (meta.bands * part.rows * part.columns),
        radiometry=truth.radiometry.reason,
        wavelengths=None if waves is None else tuple(float(waves[band]) for band in truth.bands),
        systems={
            system: Scores(
                tally.values(),
                {metric: values.tolist() for metric, values in tally.bands().items()},
                (seconds or {}).get(system, 0.0),
            )
            for system, tally in tallies.items()
        },
        look=Look.of(truth, views, settings.pixels) if settings.look else None,
    )


def _size(cube: Cube) -> str:
    return " x ".join(map(str, cube.meta.shape()))


def _since(started: float) -> float:
    return round(time.monotonic() - started, 2)
