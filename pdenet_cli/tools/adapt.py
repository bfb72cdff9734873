"""`pdenet adapt`: a model fitted to one scene, one scale down, and kept only where a held-out part gains."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pdenet_cli.degradation import Degradation, point_spread
from pdenet_cli.errors import UsageError
from pdenet_cli.files import refuse_existing, refuse_folders
from pdenet_cli.models.catalogue import BICUBIC, choose_model
from pdenet_cli.models.model import Model, load_model, save_model
from pdenet_cli.models.weights_file import SUFFIX
from pdenet_cli.report import Say, Watch, hashes
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.calibrate import calibrate
from pdenet_cli.tools.psf import measured_in
from pdenet_cli.tools.train import Event, Note, TrainingPlan, train
from pdenet_cli.tools.truths import TruthSettings, open_truth
from pdenet_cli.training import schedules
from pdenet_cli.training.data import held_out

AUTO = "auto"  # the `psf` that means: as measured in the scene
LEAST_SIDE = 8  # coarse pixels on a side of a held-out part that can tell whether a model gained
LEAST_GAIN = 0.02  # dB on the held-out part; less is chance
PART = "lower-right"
RECIPE = "general"
CHANGES: dict[str, Any] = {
    # The scene as it is: no other sharpness, no other pixel size, masks from the first step.
    "schedule": schedules.without_warm_up(schedules.fast),
    "soft": 0.0,
    "zoom": 1.0,
    "psf": 0.0,
}
ASSUMES = "the scene looks alike at its own scale and one scale down"


@dataclass(frozen=True)
class Adapted:
    """What an adaptation did and gained."""

    output: Path
    kept: bool  # False: the weights are those of the model that it began with
    facts: dict[str, Any]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"output": str(self.output), "kept": self.kept, **self.facts, "seconds": self.seconds}


def adapt(
    scene: Path,
    output: Path,
    minutes: float,
    settings: TruthSettings,
    *,
    model: str | None = None,
    scale: int | None = None,
    samples: int = 8,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    overwrite: bool = False,
    watch: Watch = lambda text, done, total: None,
    say: Say = lambda text: None,
    tell: Callable[[Event], None] = lambda event: None,
) -> Adapted:
    """Write a model fitted to `scene` to `output`; `settings.psf` is the scene's point spread or "auto".

    It is trained on pairs of the scene and its coarser self under that point spread, but for the lower right
    quarter. Where it does not gain there, the model that it began with is written. Either is calibrated there.
    """
    started = time.monotonic()
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    if model == BICUBIC:
        raise UsageError("bicubic has no weights to adapt. Name a model with weights.")
    refuse_folders((output,))
    refuse_existing((output,), overwrite)
    source = choose_model(model, scale, any_psf=True)
    before = load_model(source)
    with open_truth(scene, settings) as cube:
        _refuse_small(cube.meta.rows, cube.meta.columns, before.scale, scene)
        psf, how = _point_spread(scene, before.scale, settings)
        inputs = hashes(cube.files)
    say(f"Point spread: {psf} ({how}). Assumed: {ASSUMES}.")
    judged = replace(settings, part=PART, psf=None, spread=psf)
    with TemporaryDirectory(prefix="pdenet-") as folder:
        fitted = Path(folder) / f"adapted{SUFFIX}"
        plan = _plan(scene, source, psf, minutes, settings, seed, device, threads, before)
        trained = train(plan, fitted, watch=lambda event: None if isinstance(event, Note) else tell(event))
        save_model(fitted, _with_errors(load_model(fitted), before), overwrite=True)
        scores = _scores((source, fitted), scene, samples, seed, device, judged, watch, say)
        gain = scores["after"] - scores["before"]
        kept = gain >= LEAST_GAIN
        facts = {
            "scene": {"name": scene.name, "inputs": inputs},
            "began_with": {"name": before.name, "sha256": before.sha256},
            "psf": psf.to_dict(),
            "psf_from": how,
            "minutes": minutes,
            "steps": trained.spec.steps,
            "held_out": {**scores, "gain": gain, "least_gain": LEAST_GAIN, "metric": "MPSNR in dB", "part": PART},
            "kept": kept,
            "assumes": ASSUMES,
        }
        chosen = Path(folder) / f"chosen{SUFFIX}"
        save_model(chosen, _described(load_model(fitted) if kept else before, psf, facts, kept=kept))
        if before.network.random:
            calibrate(
                str(chosen),
                [scene],
                output,
                judged,
                samples=samples,
                seed=seed,
                device=device,
                overwrite=overwrite,
                watch=watch,
                say=say,
            )
        else:
            say("Not calibrated: this network gives one answer only.")
            save_model(output, load_model(chosen), overwrite=overwrite)
    return Adapted(output, kept, facts, round(time.monotonic() - started, 2))


def _refuse_small(rows: int, columns: int, scale: int, scene: Path) -> None:
    """Stop where the held-out quarter is too small to tell whether a model gained."""
    part = held_out((rows, columns), scale)
    if part is None or min(part.rows, part.columns) < LEAST_SIDE * scale:
        need = 2 * LEAST_SIDE * scale
        met = f"{rows} x {columns} pixels are too few to tell whether a model gains"
        raise UsageError(f"{scene}: {met}; at x{scale} at least {need} x {need} are needed.")


def _point_spread(scene: Path, scale: int, settings: TruthSettings) -> tuple[Degradation, str]:
    """The scene's point spread, and where it is from."""
    if settings.psf not in (AUTO, None):
        return point_spread(str(settings.psf), scale), "as given"
    with open_truth(scene, settings) as cube:
        found, _ = measured_in(cube, settings.value_range)
    if not found.spread.sure:
        raise UsageError(f"{scene}: {found.refusal}")
    return point_spread(found.psf, scale), "measured in the scene"


def _plan(
    scene: Path,
    source: Path,
    psf: Degradation,
    minutes: float,
    settings: TruthSettings,
    seed: int,
    device: str,
    threads: int | None,
    before: Model,
) -> TrainingPlan:
    """A short run from the model's weights, on the scene alone."""
    return TrainingPlan(
        data=(scene,),
        degradation=psf,
        recipe=RECIPE,
        changes=CHANGES,
        minutes=minutes,
        seed=seed,
        init=str(source),
        device=device,
        threads=threads,
        variable=settings.variable,
        axes=settings.axes,
        nodata=settings.nodata,
        bands=settings.bands,
        window=settings.window,
        value_range=settings.value_range,
        licence=before.spec.licence,
    )


def _with_errors(after: Model, before: Model) -> Model:
    """The fitted model with what the one before has learned of its errors; the calibration fits it to them."""
    return replace(after, errors=before.errors, spec=replace(after.spec, errors=before.spec.errors))


def _scores(
    models: tuple[Path, Path],
    scene: Path,
    samples: int,
    seed: int,
    device: str,
    settings: TruthSettings,
    watch: Watch,
    say: Say,
) -> dict[str, float]:
    """MPSNR of bicubic, of the model before and of the fitted one on the held-out part, as both are used."""
    benchmark = Benchmark([str(path) for path in models], [samples], seed, device, settings)
    (result,) = benchmark.run([scene], watch, say).scenes
    found = [scores.values["MPSNR"] for scores in result.systems.values()]
    return dict(zip(("bicubic", "before", "after"), found, strict=True))


def _described(model: Model, psf: Degradation, facts: dict[str, Any], *, kept: bool) -> Model:
    """The model with the facts; one that takes any point spread is told the scene's unless it is told another."""
    degradation = psf.to_dict() if kept or model.network.any_psf else model.spec.degradation
    return replace(model, spec=replace(model.spec, adapted=facts, calibration=None, degradation=degradation))


def words(adapted: Adapted) -> tuple[str, ...]:
    """What was assumed and gained, in sentences."""
    held, psf = adapted.facts["held_out"], Degradation.from_dict(adapted.facts["psf"])
    scores = f"bicubic {held['bicubic']:.2f}, before {held['before']:.2f}, adapted {held['after']:.2f} dB"
    verdict = f"kept: {held['gain']:+.2f} dB" if adapted.kept else f"not kept ({held['gain']:+.2f} dB)"
    then = "" if adapted.kept else f"; the weights are those of {adapted.facts['began_with']['name']}"
    return (
        f"Held-out lower right quarter, one scale down: {scores}; {verdict}{then}.",
        f"Point spread: {psf} ({adapted.facts['psf_from']}); {adapted.facts['steps']} steps.",
        f"Assumed: {adapted.facts['assumes']}. The intervals were calibrated on that quarter, with which the "
        "weights were chosen too.",
    )
