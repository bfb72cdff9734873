"""`pdenet calibrate`: fit a model's intervals on scenes whose truth is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, PdenetError, UsageError
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.sharpness import sharpness_of
from pdenet_cli.evaluation.trial import make_coarse, sharpen_coarse
from pdenet_cli.evaluation.uncertainty import error_ratios_of
from pdenet_cli.files import refuse_existing, refuse_folders
from pdenet_cli.models.catalogue import find_model
from pdenet_cli.models.model import Model, load_model, save_model, training_tensors
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import SUFFIX
from pdenet_cli.report import Say, Watch, WatchTiles, hashes
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.system import choose_device
from pdenet_cli.tools.learn_errors import Taught, Trial, learn_from, trials
from pdenet_cli.tools.orders import Engine, Facts, in_order
from pdenet_cli.tools.truths import Truth, TruthSettings
from pdenet_cli.uncertainty.calibration import LEVEL, Calibration, leave_one_out_coverage, refuse_hopeless
from pdenet_cli.uncertainty.error_ratios import ErrorRatios


@dataclass(frozen=True)
class Calibrated:
    """A calibrated model, and the scenes that failed."""

    output: Path
    calibration: Calibration
    failed: dict[str, str]  # why, by scene
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        facts = {"output": str(self.output), "failed": self.failed, "seconds": self.seconds}
        return facts | self.calibration.to_dict()


def calibrate(
    model: str,
    scenes: Sequence[Path],
    output: Path,
    settings: TruthSettings,
    *,
    samples: int = 8,
    seed: int = 0,
    device: str = "auto",
    delta: float = 0.1,
    certify: bool = False,
    learn: bool = False,
    overwrite: bool = False,
    watch: Watch = lambda text, done, total: None,
    say: Say = lambda text: None,
    engine: Engine | None = None,
) -> Calibrated:
    """Write `model` to `output` with intervals calibrated on `scenes`; scenes that fail are left out.

    `learn`: before that, it learns from the scenes, or from what is not held out of them, how large its errors
    are; the intervals of each scene are fitted as if it were new to what was learned. `engine` are the processes
    that do the scenes; None: this one.
    """
    started = time.monotonic()
    level = LEVEL if settings.level is None else settings.level
    refuse_hopeless(len(scenes), level, delta, certify)
    if learn and certify:
        problem = "`certify` with `learn_errors`: what was learned from scenes certifies nothing"
        raise UsageError(f"{problem}. Learn first; then certify on other scenes.")
    if learn and settings.part == "whole" and len(scenes) < 2:
        why = "the intervals of each are fitted with what was learned from others"
        raise UsageError(f"`learn_errors` needs two scenes or more, or `part` lower-right: {why}.")
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    source = find_model(model)
    refuse_folders((output,))
    refuse_existing((output,), overwrite)
    posterior = _posterior(source, samples, seed, device, settings)
    trained_for = posterior.model.spec.training_degradation()
    degradation = settings.degradation(trained_for)
    taught, seen = Taught(posterior.model, {}), posterior.model.spec
    with ExitStack() as opened:
        truths = [opened.enter_context(Truth(path, settings)) for path in scenes]
        inputs = _hashes(truths)
        if learn:
            # What an earlier error network has learned from does not matter: a new one takes its place.
            seen = replace(seen, errors={})
            _refuse_trained_on(truths, seen)
            taught = learn_from(posterior, truths, degradation, watch, say)
            posterior = posterior.with_model(taught.model)
        facts = Facts.of(posterior)
        measuring = Measuring(posterior, taught, seen, degradation, settings, certify, facts)
        known, failed = _measure_scenes(truths, inputs, measuring, watch, say, engine)
    ratios = [of_scene for _, of_scene in known]
    made = Calibration.fit(
        ratios,
        level=level,
        delta=delta,
        certify=certify,
        samples=len(posterior),
        seed=seed,
        ensemble=posterior.ensemble,
        degradation=None if degradation == trained_for else degradation,
        mixtures=posterior.most_mixtures,
    )
    made = replace(made, scenes=tuple(_scene_facts(known, made)))
    save_model(output, _with_calibration(posterior.model, made), training_tensors(source), overwrite=overwrite)
    return Calibrated(output, made, failed, round(time.monotonic() - started, 2))


def _posterior(source: Path, samples: int, seed: int, device: str, settings: TruthSettings) -> Posterior:
    """The posterior of the model; UsageError if it gives only one sample."""
    model = load_model(source, choose_device(device))
    ensemble, mixtures = settings.ensemble, settings.mixtures
    with suppress(ModelError):
        before = model.calibration
        if before is not None:
            ensemble = ensemble or before.ensemble
            mixtures = before.mixtures if mixtures is None else mixtures
    # The rest of an earlier calibration does not matter, not even if it cannot be read.
    model = replace(model, spec=replace(model.spec, calibration=None))
    psf = settings.degradation(model.spec.training_degradation()) if model.network.any_psf else None
    posterior = Posterior(model, samples, seed, ensemble, mixtures, psf)
    if len(posterior) < 2:
        advice = "`samples` 2 or more" if samples < 2 else "`ensemble` flips, because this network is not random"
        raise UsageError(f"{model.name}: a single sample has no spread. Use {advice}.")
    return posterior


def _refuse_trained_on(truths: Sequence[Truth], spec: ModelSpec) -> None:
    """Stop where the network was trained on a scene: its errors there are smaller than on any new one."""
    for truth in truths:
        with suppress(FormatError):  # a scene that cannot be read is told of later
            if truth.trained_on([spec]) == [True]:
                why = "its errors there tell nothing of new scenes. Use other scenes, or `part` lower-right"
                raise UsageError(f"{truth.path}: the model was trained on this scene; {why}.")


def _with_calibration(model: Model, calibration: Calibration) -> Model:
    """The model with a calibration."""
    return replace(model, spec=replace(model.spec, calibration=calibration.to_dict()))


@dataclass(frozen=True)
class Measuring:
    """How the error ratios of a scene are found; also as it is sent to other processes, with its models."""

    posterior: Posterior
    taught: Taught
    seen: ModelSpec  # names the scenes trained on
    degradation: Degradation
    settings: TruthSettings
    certify: bool
    facts: Facts
    name: str = "scene"

    def open(self) -> Callable[[tuple[int, Path]], Measured]:
        """What measures a scene of some number."""
        self.facts.refuse_others(Facts.of(self.posterior))

        def work(item: tuple[int, Path]) -> Measured:
            with Truth(item[1], self.settings) as truth:
                return self.measured(item[0], truth)

        return work

    def measured(self, number: int, truth: Truth, watch: Watch | None = None, say: Say | None = None) -> Measured:
        """The error ratios of a scene; it is degraded as its number says, where models learn."""
        notes: list[str] = []
        say, path = say or notes.append, truth.path
        (was_trained_on,) = truth.trained_on([self.seen])
        if was_trained_on and self.certify:
            raise UsageError(f"{path}: the model was trained on this scene, so it certifies nothing.")
        if was_trained_on:
            say(f"{path}: the model was trained on this scene, so its intervals will be too narrow on others.")
        judged = self.posterior.with_model(self.taught.as_if_new(path))
        any_psf = judged.network.any_psf
        shown = trials(number, self.degradation, any_psf=any_psf) if self.taught.without else ()
        every = (Trial(0.0, self.degradation), *shown[2:])
        tiles: WatchTiles = (lambda done, total: None) if watch is None else partial(watch, path.name)
        pairs = [_scene_ratios(truth, judged, trial, tiles, say) for trial in every]
        found, sharpness = sum((ratios for ratios, _ in pairs[1:]), pairs[0][0]), pairs[0][1]
        return Measured(found, sharpness, was_trained_on, tuple(notes))


@dataclass(frozen=True)
class Measured:
    """What was found out on one scene."""

    ratios: ErrorRatios
    sharpness: float | None
    was_trained_on: bool
    notes: tuple[str, ...]


def _measure_scenes(
    truths: Sequence[Truth],
    inputs: Mapping[Path, dict[str, str]],
    measuring: Measuring,
    watch: Watch,
    say: Say,
    engine: Engine | None,
) -> tuple[list[tuple[dict[str, Any], ErrorRatios]], dict[str, str]]:
    """The facts and the error ratios of each scene, and why scenes failed."""

    def here(item: tuple[int, Path]) -> Measured:
        return measuring.measured(item[0], truths[item[0]], watch, say)

    known: list[tuple[dict[str, Any], ErrorRatios]] = []
    failed: dict[Path, PdenetError] = {}
    for (_, path), found in in_order(engine, measuring, [(n, t.path) for n, t in enumerate(truths)], here):
        if isinstance(found, PdenetError):
            failed[path] = found
            continue
        for note in found.notes:
            say(note)
        part = measuring.settings.part
        fact = {"name": path.name, "inputs": inputs[path], "part": part, "learned": found.was_trained_on}
        known.append((fact | ({} if found.sharpness is None else {"finer_fwhm": found.sharpness}), found.ratios))
    if not known:
        first, last = next(iter(failed.values())), list(failed.values())[-1]
        raise type(last)(f"None of the {len(truths)} scenes can be used; {first}") from last
    return known, {str(path): str(error) for path, error in failed.items()}


def _scene_facts(
    known: Sequence[tuple[dict[str, Any], ErrorRatios]], made: Calibration
) -> Iterator[dict[str, Any]]:
    """The facts of each scene with its coverage and width, and its coverage if calibrated on the others."""
    factors = made.at(made.level)
    by_others = leave_one_out_coverage([of_scene for _, of_scene in known], made.level, made.delta, made.certify)
    for (fact, of_scene), expected in zip(known, by_others, strict=True):
        yield fact | {"coverage": of_scene.coverage(factors), "unseen": expected, "width": of_scene.width(factors)}


def _hashes(truths: Sequence[Truth]) -> dict[Path, dict[str, str]]:
    """The files of each scene with their hashes; UsageError where one is given twice, or is a copy of another."""
    inputs: dict[Path, dict[str, str]] = {}
    seen: dict[tuple[str, ...], Path] = {}
    given: set[Path] = set()
    for truth in truths:
        files, others = truth.files
        resolved = {file.resolve() for file in files or (truth.path,)}
        if given & resolved:
            raise UsageError(f"{truth.path} is given twice; the proof depends on the number of different scenes.")
        given |= resolved
        inputs[truth.path] = hashes((*files, *others))
        # Without side files such as .aux.xml, which a copy may have lost.
        content = tuple(sorted(inputs[truth.path][file.name] for file in files))
        if content and content in seen:
            raise UsageError(
                f"{truth.path} is a copy of {seen[content]}; the proof depends on the number of different scenes."
            )
        seen[content] = truth.path
    return inputs


def _scene_ratios(
    scene: Truth,
    posterior: Posterior,
    trial: Trial,
    watch: WatchTiles,
    say: Say,
) -> tuple[ErrorRatios, float | None]:
    """The error ratios of the samples' mean on one scene, and how sharp the scene is."""
    scale, settings = posterior.model.scale, scene.settings
    truth = replace(scene.view(scale, posterior.network.bands, say), softened=trial.softened)
    sharpness = sharpness_of(truth.with_surroundings(scale))
    with TemporaryDirectory(prefix="pdenet-") as folder:
        low = make_coarse(truth, trial.degradation, posterior.seed, settings.memory, alone=settings.alone)
        maps = EstimateMaps.scratch(Path(folder), low, scale)
        judged = posterior.with_psf(trial.degradation)
        judged = judged if judged.model.errors is None else judged.for_truths_of(sharpness)
        sharpen_coarse(low, judged, maps.outputs, settings.memory, watch, say)
        return error_ratios_of(truth, maps), sharpness
