"""`pdenet train`: from cubes to a model file, its checkpoint, its log and its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli import __version__
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, UsageError
from pdenet_cli.files import locked, refuse_existing, refuse_folders
from pdenet_cli.formats import open_cube
from pdenet_cli.models.model import Model, load_model
from pdenet_cli.models.networks import Network, build_network
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import SUFFIX
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.window import Window
from pdenet_cli.system import tune_process, use_threads
from pdenet_cli.training.data import HoldOut, Scene, band_means
from pdenet_cli.training.find_cubes import find_cubes
from pdenet_cli.training.loop import Budget, Clock, ValidationResult
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.processes import joined_processes
from pdenet_cli.training.recipe import Recipe, recipe_for
from pdenet_cli.training.run import Files, Trained, TrainingRun
from pdenet_cli.training.shelf import Shelf
from pdenet_cli.training.trainer import StepResult, Trainer, has_mean, name_of, new_network, started_from
from pdenet_cli.training.validation import HeldOutPart, held_out_parts

DEFAULT_NETWORK = "pdenet"
ALL_USABLE = 0  # a band count that makes every usable band be read, whether it varies or not
INIT_RATE_DIVISOR = 4  # a run that starts from a trained model learns this many times more slowly


@dataclass(frozen=True)
class Note:
    """A text for the user before the first step."""

    text: str


Facts = dict[str, Any]  # of a cube, for the model's description
Event = Note | StepResult | ValidationResult
Tell = Callable[[Event], None]


@dataclass(frozen=True)
class TrainingPlan:
    """What to train, on what, and for how long."""

    data: tuple[Path, ...]
    degradation: Degradation
    validate: tuple[Path, ...] = ()  # whole cubes to validate on, none of them trained on
    holdout: HoldOut | None = None  # None: a quarter of every cube, or nothing with `validate`
    network: str | None = None  # None: that of `init`, else PDE-Net
    config: str | None = None
    recipe: str = "fast"
    changes: Mapping[str, Any] | None = None  # fields of the recipe to change; None values do not count
    minutes: float | None = None
    steps: int | None = None
    seed: int = 0
    init: str | None = None  # a model whose weights the run starts from
    device: str = "auto"
    precision: str = "float32"
    threads: int | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # None: as declared in the file
    bands: BandChoice | None = None  # of the cubes
    window: Window | None = None  # the part of each cube that is trained on
    validate_window: Window | None = None  # the same of each cube to validate on
    value_range: ValueRange | None = None
    licence: str = "not stated"

    def __post_init__(self) -> None:
        if self.holdout not in (None, "quarter", "none"):
            raise UsageError(f"`holdout` {self.holdout} is unknown; choose quarter or none.")
        if self.holdout == "none" and not self.validate:
            raise UsageError("`holdout` none: a run needs something to validate on. Give cubes with `validate`.")

    @property
    def held_out(self) -> HoldOut:
        """What is held out of the cubes that are trained on."""
        return self.holdout or ("none" if self.validate else "quarter")


def train(
    plan: TrainingPlan,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watch: Tell = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
    started: float | None = None,
) -> Trained:
    """Train a model as planned and write it to `output`, its other files beside it."""
    clock = Clock(started)
    tune_process()
    use_threads(plan.threads)
    files = _files(plan, output)
    resumed = resume and files.last.exists()
    refuse_existing(files.every, overwrite or resumed)
    with ExitStack() as stack:
        processes, device = stack.enter_context(joined_processes(plan.device))
        if processes.first:
            stack.enter_context(locked(files.lock))
        tell = watch if processes.first else lambda event: None
        init = None if plan.init is None else load_model(plan.init)
        recipe, scale = _recipe(plan, init), plan.degradation.scale
        network = _network(plan, init, recipe)
        learns_means = recipe.band_means and init is None and has_mean(network)
        count = ALL_USABLE if learns_means else network.bands
        shelf = Shelf(files.model, processes, device)
        scenes = list(shelf.kept(_scenes(plan, plan.data, plan.held_out, count, tell)))
        if learns_means:
            network = _network(plan, init, recipe, mean=band_means(scenes))
        patches = Patches(scenes, recipe, scale, plan.seed, network.bands, plan.degradation.reach)
        unseen: list[Facts] = []
        validation = _unseen(_scenes(plan, plan.validate, "whole", count, tell), scenes, unseen)
        parts = held_out_parts(chain(scenes, validation), plan.degradation, plan.seed, network.bands)
        tell(Note(_summary(scenes, patches, parts)))
        same = init is not None and init.spec.network == name_of(network)
        trainer = Trainer(network, patches, plan.degradation, device, plan.precision, processes, trained=same)
        spec = _spec(plan, trainer, scenes, unseen, {} if init is None else _origin(init))
        run = TrainingRun(trainer, parts, _budget(plan, patches), clock, files, spec)
        if resumed:
            run.resume()
            tell(Note(f"resumed after step {trainer.step:,}"))
        (first,) = processes.broadcast((float(trainer.step),), device)
        if trainer.step != first:
            raise UsageError(f"{files.last} is not the same on every machine; put the outputs on a shared disk.")
        return run.run(tell, stop)


def _files(plan: TrainingPlan, output: Path) -> Files:
    """The files of a training; a wrong length or a wrong name is refused before the cubes are read."""
    if plan.minutes is not None or plan.steps is not None:
        _asked_budget(plan)
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    files = Files.of(output)
    refuse_folders(files.every)
    return files


def _scenes(
    plan: TrainingPlan, paths: Sequence[Path], holdout: HoldOut, bands: int | None, tell: Tell
) -> Iterator[Scene]:
    """The scenes in `paths`; cubes without usable bands or values are left out with a note.

    A cube that is too large for the memory stops the run.
    """
    found = not paths
    window = plan.validate_window if holdout == "whole" else plan.window

    def open_path(path: Path) -> Cube:
        return open_cube(path, plan.variable, plan.axes, plan.nodata, window)

    for cube in find_cubes(paths, open_path, lambda text: tell(Note(text))):
        try:
            scene = Scene.read(cube, plan.value_range, bands, plan.bands, holdout)
        except FormatError as error:
            tell(Note(f"left out: {error}"))
            continue
        found = True
        if plan.nodata is not None:
            scene.facts["nodata"] = plan.nodata
        if window is not None:
            scene.facts["window"] = asdict(window)
        for note in scene.notes:
            tell(Note(f"{scene.name}: {note}"))
        yield scene
        del scene  # the next one needs its memory
    if not found:
        raise FormatError(f"{paths[0]}: no cube has a usable band.")


def _unseen(scenes: Iterable[Scene], seen: Sequence[Scene], facts: list[Facts]) -> Iterator[Scene]:
    """The scenes to validate on, one by one: none of them has to stay in memory. Adds to their `facts`."""
    for scene in scenes:
        _refuse_seen(seen, scene.facts)
        facts.append(scene.facts)
        yield scene


def _refuse_seen(scenes: Sequence[Scene], unseen: Facts) -> None:
    """UsageError where a cube to validate on is also one to train on, under whatever name."""
    for scene in scenes:
        if scene.facts["sha256"] == unseen["sha256"]:
            seen, name = scene.facts["name"], unseen["name"]
            problem = f"`validate` {name}: the same cube is trained on"
            raise UsageError(f"{problem}{'' if name == seen else f' as {seen}'}.")


def _network(plan: TrainingPlan, init: Model | None, recipe: Recipe, **fields: Any) -> Network:
    """The network to train: with the weights of `init`, else with fresh ones; `fields` of its configuration."""
    scale = plan.degradation.scale
    if init is None:
        config = plan.config or ("paper" if recipe.name == "paper" else None)
        return new_network(plan.network or DEFAULT_NETWORK, config, scale, plan.seed, recipe.start, **fields)
    name, config = plan.network or init.spec.network, plan.config
    if name == init.spec.network and config is None:
        if init.scale == scale:
            return init.network.requires_grad_(True)
        return started_from(build_network(name, {**init.spec.config, "scale": scale}), init)
    return started_from(new_network(name, config, scale, plan.seed), init)


def _recipe(plan: TrainingPlan, init: Model | None) -> Recipe:
    """The recipe with the user's changes; gentler where the run starts from a trained model."""
    network = plan.network or (DEFAULT_NETWORK if init is None else init.spec.network)
    changes = {name: value for name, value in (plan.changes or {}).items() if value is not None}
    slower = 1 if init is None else INIT_RATE_DIVISOR
    return replace(recipe_for(plan.recipe, network, plan.degradation.scale, slower), **changes)


def _budget(plan: TrainingPlan, patches: Patches) -> Budget:
    """The length of the run: as the user gave it, else that of the recipe."""
    if plan.minutes is not None or plan.steps is not None:
        return _asked_budget(plan)
    if patches.recipe.epochs:
        return Budget(steps=patches.recipe.epochs * patches.steps_an_epoch)
    return Budget(seconds=3600.0)


def _asked_budget(plan: TrainingPlan) -> Budget:
    """The length of the run as the user gave it."""
    return Budget(plan.steps, None if plan.minutes is None else 60 * plan.minutes)


def _spec(
    plan: TrainingPlan,
    trainer: Trainer,
    scenes: Sequence[Scene],
    unseen: Sequence[Facts],
    origin: dict[str, Any],
) -> ModelSpec:
    """The description of the model to be trained."""
    network = trainer.network
    return ModelSpec(
        network=name_of(network),
        config=asdict(network.config),
        scale=network.scale,
        degradation=plan.degradation.to_dict(),
        version=__version__,
        data=tuple(scene.facts for scene in scenes),
        validation=tuple(unseen),
        began_with=origin,
        recipe=trainer.recipe.to_dict(),
        seed=plan.seed,
        licence=plan.licence,
    )


def _origin(init: Model) -> dict[str, Any]:
    """What a model's description says of the one that its run started from."""
    return {"name": init.name, "sha256": init.sha256} | init.spec.history()


def _summary(scenes: Sequence[Scene], patches: Patches, parts: Sequence[HeldOutPart]) -> str:
    size = sum(scene.pixels.nbytes for scene in scenes) / 1e6
    where = "on disk" if any(isinstance(scene.pixels, np.memmap) for scene in scenes) else "in memory"
    cubes = f"{len(scenes)} cubes, {size:,.0f} MB {where}"
    part = "whole cubes" if all(scene.holdout == "none" for scene in scenes) else "held-out parts"
    return f"{cubes}; patches from {len(patches.scenes)}, validation on {len(parts)} {part}"
