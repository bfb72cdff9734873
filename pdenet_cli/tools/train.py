"""`pdenet train`: from cubes to a model file, its checkpoint, its log and its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli import __version__
from pdenet_cli.bands import BandChoice
from pdenet_cli.cube import Cube
from pdenet_cli.cube_meta import CubeMeta
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, PdenetError, UsageError
from pdenet_cli.formats import is_one_scene, open_cube, output_format, writable_suffixes
from pdenet_cli.formats.output import is_folder, locked, refuse_existing, refuse_folders
from pdenet_cli.model_spec import ModelSpec
from pdenet_cli.models import Model, load_model
from pdenet_cli.networks import Network, build_network
from pdenet_cli.networks.runtime import tune_process, use_threads
from pdenet_cli.report import REPORT, Report
from pdenet_cli.training.data import HoldOut, Scene
from pdenet_cli.training.loop import Budget, Clock, ValidationResult
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.processes import joined_processes
from pdenet_cli.training.recipe import PAPER_EPOCHS, Recipe, recipe_for
from pdenet_cli.training.run import Files, Trained, TrainingRun
from pdenet_cli.training.trainer import StepResult, Trainer, name_of, new_network, started_from
from pdenet_cli.training.validation import HeldOutPart, held_out_parts
from pdenet_cli.weights_file import SUFFIX, read_header

DEFAULT_NETWORK = "pdenet"
INIT_RATE_DIVISOR = 4  # a run that starts from a trained model learns this many times more slowly
# A file of at most FEW_BANDS beside one of at least MANY_BANDS is a mask, a map or a picture.
FEW_BANDS, MANY_BANDS = 4, 20


@dataclass(frozen=True)
class Note:
    """A text for the user before the first step."""

    text: str


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
    value_range: tuple[float, float] | None = None
    licence: str = "not stated"

    def __post_init__(self) -> None:
        if self.holdout not in (None, "quarter", "none"):
            raise UsageError(f"--holdout {self.holdout} is unknown; choose quarter or none.")
        if self.holdout == "none" and not self.validate:
            raise UsageError("--holdout none: a run needs something to validate on. Give cubes with --validate.")

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
    if plan.minutes is not None or plan.steps is not None:
        _asked_budget(plan)  # refuses a wrong length before the cubes are read
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    files = Files.of(output)
    resumed = resume and files.last.exists()
    refuse_folders(files.every)
    refuse_existing(files.every, overwrite or resumed)
    with ExitStack() as stack:
        processes, device = stack.enter_context(joined_processes(plan.device))
        if processes.first:
            stack.enter_context(locked(files.lock))
        tell = watch if processes.first else lambda event: None
        init = None if plan.init is None else load_model(plan.init)
        recipe = _recipe(plan, init)
        network = _network(plan, init, recipe.start)
        scenes = list(_scenes(plan, plan.data, plan.held_out, network.bands, tell))
        unseen = list(_scenes(plan, plan.validate, "whole", network.bands, tell)) if plan.validate else []
        _refuse_seen(scenes, unseen)
        patches = Patches(scenes, recipe, plan.degradation.scale, plan.seed, network.bands)
        parts = held_out_parts([*scenes, *unseen], plan.degradation, plan.seed, network.bands)
        if not parts:
            met = "No cube has enough pixels and valid values for validation"
            raise UsageError(f"{met}. Give a larger cube.")
        tell(Note(_summary(scenes, patches, parts)))
        same = init is not None and init.spec.network == name_of(network)
        trainer = Trainer(network, patches, plan.degradation, device, plan.precision, processes, trained=same)
        spec = _spec(plan, trainer, scenes, unseen, {} if init is None else _origin(init))
        run = TrainingRun(trainer, parts, _budget(plan, patches), clock, files, spec)
        if resumed:
            run.resume()
        (first,) = processes.broadcast((float(trainer.step),), device)
        if trainer.step != first:
            raise UsageError(f"{files.last} is not the same on every machine; put the outputs on a shared disk.")
        if resumed:
            tell(Note(f"resumed after step {trainer.step:,}"))
        return run.run(tell, stop)


def _scenes(
    plan: TrainingPlan, paths: Sequence[Path], holdout: HoldOut, bands: int | None, tell: Tell
) -> Iterator[Scene]:
    """The scenes in `paths`; cubes without usable bands or values are left out with a note.

    A cube that is too large for the memory stops the run.
    """
    found = False
    for cube in find_cubes(plan, tell, paths):
        try:
            scene = Scene.read(cube, plan.value_range, bands, plan.bands, holdout)
        except FormatError as error:
            tell(Note(f"left out: {error}"))
            continue
        found = True
        if plan.nodata is not None:
            scene.facts["nodata"] = plan.nodata
        for note in scene.notes:
            tell(Note(f"{scene.name}: {note}"))
        yield scene
    if not found:
        raise FormatError(f"{paths[0]}: no cube has a usable band.")


def _refuse_seen(scenes: Sequence[Scene], unseen: Sequence[Scene]) -> None:
    """UsageError where a cube to validate on is also one to train on, under whatever name."""
    seen = {scene.facts["sha256"]: scene.facts["name"] for scene in scenes}
    for scene in unseen:
        if (name := seen.get(scene.facts["sha256"])) is not None:
            met = f"--validate {scene.facts['name']}: the same cube is trained on"
            raise UsageError(f"{met}{'' if name == scene.facts['name'] else f' as {name}'}.")


def find_cubes(plan: TrainingPlan, tell: Tell, paths: Sequence[Path] | None = None) -> Iterator[Cube]:
    """The cubes in `paths`, those of the plan if not given, each once; those in folders at any depth.

    Files in folders that are no cubes, results of pdenet, or masks and pictures beside cubes are left out.
    """
    seen: set[Path] = set()
    for path in plan.data if paths is None else paths:
        empty = is_folder(path)
        for cube in _cubes_in(path, plan, tell, set()):
            empty = False
            with cube:
                # An ENVI header and its data file are one cube.
                if cube.path.resolve() not in seen:
                    seen.add(cube.path.resolve())
                    yield cube
        if empty:
            raise FormatError(f"{path}: no cube in this folder.")


def _cubes_in(path: Path, plan: TrainingPlan, tell: Tell, folders: set[Path]) -> Iterator[Cube]:
    """The cube in `path`, or the cubes in this folder; `folders` were visited, links may lead back to them."""
    try:
        if not path.is_dir() or is_one_scene(path):
            yield open_cube(path, plan.variable, plan.axes, plan.nodata)
            return
        children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    except (PdenetError, OSError) as error:
        if not folders and isinstance(error, PdenetError):
            raise
        tell(Note(f"left out: {error}"))
        return
    if path.resolve() not in folders:
        folders.add(path.resolve())
        made = _own_results_in(path)
        results = [child for child in children if child.name in made]
        if results:
            tell(Note(f"left out: {len(results)} files in {path} that pdenet made"))
        others = [child for child in children if child.name not in made]
        aside = _masks_and_pictures(others, plan)
        if aside:
            names = ", ".join(sorted({cube.name for cube in aside.values()}))
            way = "they look like masks or pictures beside cubes; give their names to train on them"
            tell(Note(f"left out: {names} in {path}: {way}"))
        for child in others:
            if child not in aside:
                yield from _cubes_in(child, plan, tell, folders)


def _masks_and_pictures(paths: Sequence[Path], plan: TrainingPlan) -> dict[Path, Path]:
    """The masks, quick looks and geometry maps that lie beside the cubes of a folder, with their path as a cube.

    They have few bands, or they are 8-bit and have the shape of a cube with a larger data type.
    """
    found: dict[Path, tuple[Path, CubeMeta]] = {}
    for path in paths:
        with suppress(PdenetError, OSError):  # `_cubes_in` says why
            if path.is_file():  # a folder that is a cube is never a mask
                with open_cube(path, plan.variable, plan.axes) as cube:
                    found[path] = cube.path, cube.meta
    metas = [meta for _, meta in found.values()]
    few = FEW_BANDS if any(meta.bands >= MANY_BANDS for meta in metas) else 0
    wide = {meta.shape() for meta in metas if meta.dtype.itemsize > 1}
    return {
        path: cube
        for path, (cube, meta) in found.items()
        if meta.bands <= few or (meta.dtype.itemsize == 1 and meta.shape() in wide)
    }


def _own_results_in(folder: Path) -> set[str]:
    """The names of files in a folder that pdenet made: reports and their outputs, models and their logs."""
    reports = {path: report for path in folder.glob(f"*{REPORT}") if (report := Report.read(path)) is not None}
    paths = [folder / Path(name).name for report in reports.values() for name in report.outputs.values()]
    written = [path for path in paths if path.suffix.lower() in writable_suffixes()]
    finals = [final for path in written for final in output_format(path).outputs(path)]
    looks = [path.with_suffix(".png") for path in written]
    left = [path for model in folder.glob(f"*{SUFFIX}") if _is_model(model) for path in Files.around(model).every]
    return {path.name for path in (*reports, *paths, *finals, *looks, *left)}


def _is_model(path: Path) -> bool:
    with suppress(ModelError, OSError):
        return bool(read_header(path))
    return False


def _network(plan: TrainingPlan, init: Model | None, start: float = 1.0) -> Network:
    """The network to train: with the weights of `init`, else with fresh ones."""
    scale = plan.degradation.scale
    if init is None:
        return new_network(plan.network or DEFAULT_NETWORK, plan.config, scale, plan.seed, start)
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
    if patches.recipe.name == "paper":
        return Budget(steps=patches.steps_of(PAPER_EPOCHS))
    return Budget(seconds=3600.0)


def _asked_budget(plan: TrainingPlan) -> Budget:
    """The length of the run as the user gave it."""
    return Budget(plan.steps, None if plan.minutes is None else 60 * plan.minutes)


def _spec(
    plan: TrainingPlan,
    trainer: Trainer,
    scenes: Sequence[Scene],
    unseen: Sequence[Scene],
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
        validation=tuple(scene.facts for scene in unseen),
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
    cubes = f"{len(scenes)} cubes, {size:,.0f} MB in memory"
    part = "whole cubes" if all(scene.holdout == "none" for scene in scenes) else "held-out parts"
    return f"{cubes}; patches from {len(patches.scenes)}, validation on {len(parts)} {part}"
