"""`pdenet calibrate`: fit a model's intervals on scenes whose truth is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, UsageError, as_pdenet_error
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.sharpness import sharpness_of
from pdenet_cli.evaluation.trial import make_coarse, sharpen_coarse
from pdenet_cli.evaluation.uncertainty import error_ratios_of
from pdenet_cli.files import refuse_existing, refuse_folders
from pdenet_cli.formats import files_of
from pdenet_cli.models.catalogue import find_model
from pdenet_cli.models.model import Model, load_model, save_model, training_tensors
from pdenet_cli.models.spec import ERRORS_KEY, ModelSpec
from pdenet_cli.models.weights_file import SUFFIX
from pdenet_cli.report import Say, Watch, WatchTiles, hashes
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.system import choose_device
from pdenet_cli.tools.learn_errors import Taught, Trial, learn_from, trials
from pdenet_cli.tools.truths import TruthSettings, first_repeated, open_truth, trained_on, truth_view
from pdenet_cli.uncertainty.calibration import KEY, LEVEL, Calibration, leave_one_out_coverage, refuse_hopeless
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
        told = {"output": str(self.output), "failed": self.failed, "seconds": self.seconds}
        return told | self.calibration.to_dict()


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
) -> Calibrated:
    """Write `model` to `output` with intervals calibrated on `scenes`; scenes that fail are left out.

    `learn`: before that, it learns from the scenes, or from what is not held out of them, how large its errors
    are; the intervals of each scene are fitted as if it were new to what was learned.
    """
    started = time.monotonic()
    level = LEVEL if settings.level is None else settings.level
    refuse_hopeless(len(scenes), level, delta, certify)
    if twice := first_repeated(scenes, settings):
        raise UsageError(f"{twice} is given twice; the proof depends on the number of different scenes.")
    if learn and certify:
        way = "Learn first; then certify on other scenes"
        raise UsageError(f"`certify` with `learn_errors`: what was learned from scenes certifies nothing. {way}.")
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
    if learn:
        # What an earlier error network has learned from does not matter: a new one takes its place.
        seen = replace(seen, extra={name: value for name, value in seen.extra.items() if name != ERRORS_KEY})
        _refuse_trained_on(scenes, settings, seen)
        taught = learn_from(posterior, scenes, degradation, settings, watch, say)
        posterior = posterior.with_model(taught.model)
    known, failed = _measure_scenes(
        scenes, posterior, taught, seen, degradation, settings, watch, say, certify=certify
    )
    ratios = [own for _, own in known]
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
        before = Calibration.of(model.spec)
        if before is not None:
            ensemble = ensemble or before.ensemble
            mixtures = before.mixtures if mixtures is None else mixtures
    # The rest of an earlier calibration does not matter, not even if it cannot be read.
    bare = {name: value for name, value in model.spec.extra.items() if name != KEY}
    model = replace(model, spec=replace(model.spec, extra=bare))
    psf = settings.degradation(model.spec.training_degradation()) if model.network.any_psf else None
    posterior = Posterior(model, samples, seed, ensemble, mixtures, psf)
    if len(posterior) < 2:
        way = "`samples` 2 or more" if samples < 2 else "`ensemble` flips, because this network is not random"
        raise UsageError(f"{model.name}: a single sample has no spread. Use {way}.")
    return posterior


def _refuse_trained_on(scenes: Sequence[Path], settings: TruthSettings, spec: ModelSpec) -> None:
    """Stop where the network was trained on a scene: its errors there are smaller than on any new one."""
    for path in scenes:
        with suppress(FormatError):  # a scene that cannot be read is told of later
            if trained_on(path, settings, [spec]) == [True]:
                why = "its errors there tell nothing of new scenes. Use other scenes, or `part` lower-right"
                raise UsageError(f"{path}: the model was trained on this scene; {why}.")


def _with_calibration(model: Model, calibration: Calibration) -> Model:
    """The model with a calibration."""
    return replace(model, spec=replace(model.spec, extra={**model.spec.extra, KEY: calibration.to_dict()}))


def _measure_scenes(
    scenes: Sequence[Path],
    posterior: Posterior,
    taught: Taught,
    seen: ModelSpec,
    degradation: Degradation,
    settings: TruthSettings,
    watch: Watch,
    say: Say,
    *,
    certify: bool,
) -> tuple[list[tuple[dict[str, Any], ErrorRatios]], dict[str, str]]:
    """The facts and the error ratios of each scene, and why scenes failed; `seen` names the scenes trained on."""
    inputs = _hash_scenes(scenes, settings)
    known: list[tuple[dict[str, Any], ErrorRatios]] = []
    failed: dict[str, str] = {}
    for number, path in enumerate(scenes):
        try:
            (was_trained_on,) = trained_on(path, settings, [seen])
            if was_trained_on and certify:
                raise UsageError(f"{path}: the model was trained on this scene, so it certifies nothing.")
            if was_trained_on:
                say(f"{path}: the model was trained on this scene, so its intervals will be too narrow on others.")
            judged = posterior.with_model(taught.as_if_new(path))
            shown = trials(number, degradation, any_psf=judged.network.any_psf) if taught.without else ()
            ways = (Trial(0.0, degradation), *shown[2:])
            pairs = [_scene_ratios(path, judged, way, settings, partial(watch, path.name), say) for way in ways]
            found, sharpness = sum((ratios for ratios, _ in pairs[1:]), pairs[0][0]), pairs[0][1]
        except Exception as error:
            if len(scenes) == 1:
                raise
            why = as_pdenet_error(error)
            failed[str(path)] = str(why)
            if len(failed) == len(scenes):
                first = next(iter(failed.values()))
                raise type(why)(f"None of the {len(scenes)} scenes can be used; {first}") from error
            continue
        fact = {"name": path.name, "inputs": inputs[path], "part": settings.part, "learned": was_trained_on}
        fact |= {} if sharpness is None else {"finer_fwhm": sharpness}
        known.append((fact, found))
    return known, failed


def _scene_facts(
    known: Sequence[tuple[dict[str, Any], ErrorRatios]], made: Calibration
) -> Iterator[dict[str, Any]]:
    """The facts of each scene with its coverage and width, and its coverage if calibrated on the others."""
    factors = made.at(made.level)
    by_others = leave_one_out_coverage([own for _, own in known], made.level, made.delta, made.certify)
    for (fact, own), expected in zip(known, by_others, strict=True):
        yield fact | {"coverage": own.coverage(factors), "unseen": expected, "width": own.width(factors)}


def _hash_scenes(scenes: Sequence[Path], settings: TruthSettings) -> dict[Path, dict[str, str]]:
    """The files of each scene with their hashes; UsageError where one is a copy of another."""
    inputs: dict[Path, dict[str, str]] = {}
    seen: dict[tuple[str, ...], Path] = {}
    for path in scenes:
        files, others = files_of(path, settings.variable, settings.axes)
        inputs[path] = hashes((*files, *others))
        # Without side files such as .aux.xml, which a copy may have lost.
        own = tuple(sorted(inputs[path][file.name] for file in files))
        if own and own in seen:
            raise UsageError(
                f"{path} is a copy of {seen[own]}; the proof depends on the number of different scenes."
            )
        seen[own] = path
    return inputs


def _scene_ratios(
    path: Path,
    posterior: Posterior,
    trial: Trial,
    settings: TruthSettings,
    watch: WatchTiles,
    say: Say,
) -> tuple[ErrorRatios, float | None]:
    """The error ratios of the samples' mean on one scene, and how sharp the scene is."""
    spec = posterior.model.spec
    with open_truth(path, settings) as cube, TemporaryDirectory(prefix="pdenet-") as folder:
        truth = truth_view(cube, spec.scale, settings, multiple=spec.scale, count=posterior.network.bands, say=say)
        truth = replace(truth, softened=trial.softened)
        sharpness = sharpness_of(truth.with_surroundings(spec.scale))
        low = make_coarse(truth, trial.degradation, posterior.seed, settings.memory, alone=settings.alone)
        maps = EstimateMaps.scratch(Path(folder), low, spec.scale)
        judged = posterior.with_psf(trial.degradation)
        judged = judged if judged.model.errors is None else judged.for_truths_of(sharpness)
        sharpen_coarse(low, judged, maps.outputs, settings.memory, watch, say)
        return error_ratios_of(truth, maps), sharpness
