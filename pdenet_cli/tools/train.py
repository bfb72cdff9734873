"""`pdenet train`: from cubes to a model file, its checkpoint, its log and its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli import __version__
from pdenet_cli.cube import Cube, CubeMeta
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, PdenetError, UsageError
from pdenet_cli.formats import is_one_scene, open_cube, output_format, writable_suffixes
from pdenet_cli.formats.output import is_folder, locked, refuse_existing, refuse_folders
from pdenet_cli.models import SUFFIX, ModelSpec, find_model, load_model, read_header
from pdenet_cli.networks import Network, build_network
from pdenet_cli.networks.runtime import tune_process, use_threads
from pdenet_cli.report import REPORT, Report
from pdenet_cli.training.data import Scene
from pdenet_cli.training.loop import Budget, Clock, Validated
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.processes import joined
from pdenet_cli.training.recipe import PAPER_EPOCHS, Recipe, recipe_for
from pdenet_cli.training.sitting import Files, Sitting, Trained
from pdenet_cli.training.trainer import Stepped, Trainer, name_of, new_network, started_from
from pdenet_cli.training.validation import Part, held_out_parts

DEFAULT_NETWORK = "pdenet"
GENTLER = 4  # times lower a learning rate, where a run begins with a model that has learned already
FEW_BANDS, MANY_BANDS = 4, 20  # a file of so few beside one of so many is a mask, a map or a picture, no spectrum


@dataclass(frozen=True)
class Note:
    """Something a user may want to know before the first step."""

    text: str


Event = Note | Stepped | Validated
Watch = Callable[[Event], None]


@dataclass(frozen=True)
class Plan:
    """What to train, on what, and for how long."""

    data: tuple[Path, ...]
    degradation: Degradation
    network: str | None = None  # None: that of `init`, else PDE-Net
    config: str | None = None
    recipe: str = "fast"
    changes: Mapping[str, Any] | None = None  # of the recipe
    minutes: float | None = None
    steps: int | None = None
    seed: int = 0
    init: str | None = None  # a model whose weights the run starts from
    device: str = "auto"
    precision: str = "float32"
    threads: int | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # the number that stands for nothing, None: what the file says
    bands: slice | None = None  # of the cubes
    value_range: tuple[float, float] | None = None
    licence: str = "not stated"


def train(
    plan: Plan,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watch: Watch = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
    started: float | None = None,
) -> Trained:
    """Train a model as planned and write it to `output`, its other files beside it."""
    clock = Clock(started)
    tune_process()
    use_threads(plan.threads)
    if plan.minutes is not None or plan.steps is not None:
        _length(plan)  # refused before the cubes are read
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    files = Files.of(output)
    resumed = resume and files.last.exists()
    refuse_folders(files.every)
    refuse_existing(files.every, overwrite or resumed)
    with ExitStack() as stack:
        processes, device = stack.enter_context(joined(plan.device))
        if processes.first:
            stack.enter_context(locked(files.lock))
        tell = watch if processes.first else lambda event: None
        recipe = _recipe(plan)
        network = _network(plan, recipe.start)
        scenes = list(_scenes(plan, network.bands, tell))
        patches = Patches(scenes, recipe, plan.degradation.scale, plan.seed, network.bands)
        parts = held_out_parts(scenes, plan.degradation, plan.seed, network.bands)
        if not parts:
            met = "No cube has enough pixels and valid values to hold out a quarter for validation"
            raise UsageError(f"{met}. Give a larger cube.")
        tell(Note(_summary(scenes, patches, parts)))
        trainer = Trainer(network, patches, plan.degradation, device, plan.precision, processes)
        sitting = Sitting(trainer, parts, _budget(plan, patches), clock, files, _spec(plan, trainer, scenes))
        if resumed:
            sitting.resume()
        (first,) = processes.agree((float(trainer.step),), device)
        if trainer.step != first:
            raise UsageError(f"{files.last} is not the same on every machine; put the outputs on a shared disk.")
        if resumed:
            tell(Note(f"resumed after step {trainer.step:,}"))
        return sitting.run(tell, stop)


def _scenes(plan: Plan, bands: int | None, tell: Watch) -> Iterator[Scene]:
    """What there is to learn from; a cube of nothing but bad or empty bands teaches nothing and is left out."""
    some = False
    for cube in find_cubes(plan, tell):
        try:
            scene = Scene.read(cube, plan.value_range, bands, plan.bands)
        except FormatError as error:
            tell(Note(f"left out: {error}"))
            continue
        some = True
        if plan.nodata is not None:
            scene.facts["nodata"] = plan.nodata
        for note in scene.notes:
            tell(Note(f"{scene.name}: {note}"))
        yield scene
    if not some:
        raise FormatError(f"{plan.data[0]}: no cube has a usable band.")


def find_cubes(plan: Plan, tell: Watch) -> Iterator[Cube]:
    """The cubes of the plan, each once; in folders, at any depth, and what is no cube there, a result of pdenet
    and so no truth, or a mask or picture beside cubes, is left out.
    """
    seen: set[Path] = set()
    for path in plan.data:
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


def _cubes_in(path: Path, plan: Plan, tell: Watch, folders: set[Path]) -> Iterator[Cube]:
    """The cube that `path` is, or those in it; `folders` are those looked into, to which links may lead back."""
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
        made = _results_in(path)
        results = [child for child in children if child.name in made]
        if results:
            tell(Note(f"left out: {len(results)} files in {path} that pdenet made"))
        others = [child for child in children if child not in results]
        aside = _accessories(others, plan)
        if aside:
            names = ", ".join(sorted({cube.name for cube in aside.values()}))
            way = "they look like masks or pictures beside cubes; give their names to train on them"
            tell(Note(f"left out: {names} in {path}: {way}"))
        for child in others:
            if child not in aside:
                yield from _cubes_in(child, plan, tell, folders)


def _accessories(paths: Sequence[Path], plan: Plan) -> dict[Path, Path]:
    """What lies beside the cubes of a folder and is none, and the path that each has as a cube.

    Products come with masks, quick looks and maps of geometry: these have few bands, or are the shape of another
    cube whose numbers need more than their 8 bits.
    """
    found: dict[Path, tuple[Path, CubeMeta]] = {}
    for path in paths:
        with suppress(PdenetError, OSError):  # who looks into it is told why
            if path.is_file():  # a folder that is a cube was made to be one
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


def _results_in(folder: Path) -> set[str]:
    """What may be in a folder that pdenet made: reports and all that they tell of, and what training leaves."""
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


def _network(plan: Plan, start: float = 1.0) -> Network:
    scale = plan.degradation.scale
    if plan.init is None:
        return new_network(plan.network or DEFAULT_NETWORK, plan.config, scale, plan.seed, start)
    model = load_model(plan.init)
    name, config = plan.network or model.spec.network, plan.config
    if plan.network is None and config is None:
        if model.scale == scale:
            return model.network.requires_grad_(True)
        return started_from(build_network(name, {**model.spec.config, "scale": scale}), model)
    return started_from(new_network(name, config, scale, plan.seed), model)


def _recipe(plan: Plan) -> Recipe:
    network = plan.network or (read_header(find_model(plan.init)).spec.network if plan.init else DEFAULT_NETWORK)
    changes = {name: value for name, value in (plan.changes or {}).items() if value is not None}
    recipe = recipe_for(plan.recipe, network, plan.degradation.scale)
    if plan.init is not None:
        recipe = replace(recipe, lr=recipe.lr / GENTLER)
    return replace(recipe, **changes)


def _budget(plan: Plan, patches: Patches) -> Budget:
    if plan.minutes is not None or plan.steps is not None:
        return _length(plan)
    if patches.recipe.name == "paper":
        return Budget(steps=patches.steps_of(PAPER_EPOCHS))
    return Budget(seconds=3600.0)


def _length(plan: Plan) -> Budget:
    """How long the run is to be, as the user said."""
    return Budget(plan.steps, None if plan.minutes is None else 60 * plan.minutes)


def _spec(plan: Plan, trainer: Trainer, scenes: Sequence[Scene]) -> ModelSpec:
    network = trainer.network
    return ModelSpec(
        network=name_of(network),
        config=asdict(network.config),
        scale=network.scale,
        degradation=plan.degradation.to_dict(),
        version=__version__,
        data=tuple(scene.facts for scene in scenes),
        began_with=_beginning(plan),
        recipe=trainer.recipe.to_dict(),
        seed=plan.seed,
        licence=plan.licence,
    )


def _beginning(plan: Plan) -> dict[str, Any]:
    if plan.init is None:
        return {}
    model = load_model(plan.init)
    return {"name": model.name, "sha256": model.sha256} | model.spec.history()


def _summary(scenes: Sequence[Scene], patches: Patches, parts: Sequence[Part]) -> str:
    size = sum(scene.pixels.nbytes for scene in scenes) / 1e6
    cubes = f"{len(scenes)} cubes, {size:,.0f} MB in memory"
    return f"{cubes}; patches from {len(patches.scenes)}, validation on a quarter of {len(parts)}"
