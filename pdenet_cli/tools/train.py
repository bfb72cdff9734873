"""`pdenet train`: from cubes to a model file, its checkpoint, its log and its curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli import __version__
from pdenet_cli.cube import Cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, PdenetError, TrainingError, UsageError
from pdenet_cli.formats import open_cube
from pdenet_cli.formats.output import refuse_existing, write_beside
from pdenet_cli.models import Model, ModelSpec, choose_device, load_model, save_model, training_tensors
from pdenet_cli.networks import Network
from pdenet_cli.networks.runtime import tune_process
from pdenet_cli.training.curves import draw_curves
from pdenet_cli.training.data import Patches, Scene
from pdenet_cli.training.journal import Journal, read_journal
from pdenet_cli.training.loop import Budget, Clock, Validated, run
from pdenet_cli.training.processes import joined
from pdenet_cli.training.recipe import PAPER_EPOCHS, RECIPES, Recipe
from pdenet_cli.training.trainer import Stepped, Trainer, name_of, new_network, started_from, use_threads
from pdenet_cli.training.validation import Part, held_out_parts

SAVE_EVERY = 60.0  # seconds between checkpoints


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
    value_range: tuple[float, float] | None = None
    licence: str = "not stated"


@dataclass(frozen=True)
class Files:
    """What a run leaves: the best model, the last state, the log, the curves."""

    model: Path
    last: Path
    log: Path
    curves: Path

    @classmethod
    def of(cls, model: Path) -> Files:
        return cls(model, *(model.with_suffix(end) for end in (".last.safetensors", ".log.jsonl", ".curves.png")))


@dataclass(frozen=True)
class Trained:
    """What came of a run."""

    files: Files
    spec: ModelSpec  # of the best model, or of the last state where no model was good enough to keep
    finished: bool  # False: it was stopped and can be resumed

    def to_dict(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in asdict(self.files).items()}
        return {"files": files, "finished": self.finished, **self.spec.to_dict()}


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
    files = Files.of(output)
    if output.suffix != ".safetensors":
        raise UsageError(f"{output}: a model's name must end in .safetensors.")
    resumed = resume and files.last.exists()
    refuse_existing((output, files.last), overwrite or resumed)
    with joined(choose_device(plan.device)) as (processes, device):
        tell = watch if processes.first else lambda event: None
        scenes = [Scene.read(cube, plan.value_range) for cube in find_cubes(plan, tell)]
        network, recipe = _network(plan), _recipe(plan)
        patches = Patches(scenes, recipe, plan.degradation.scale, plan.seed, network.bands)
        parts = held_out_parts(scenes, plan.degradation, plan.seed, network.bands)
        if not parts:
            raise UsageError("No cube is large enough to keep a quarter of it for validation; give a larger one.")
        tell(Note(_summary(scenes, patches, parts)))
        trainer = Trainer(network, patches, plan.degradation, device, plan.precision, processes)
        sitting = Sitting(trainer, parts, _budget(plan, patches), clock, files, _spec(plan, trainer, scenes))
        if resumed:
            sitting.resume()
            tell(Note(f"resumed after step {trainer.step:,}"))
        return sitting.run(tell, stop)


class Sitting:
    """A run, or the rest of one: what the loop tells becomes files."""

    def __init__(
        self, trainer: Trainer, parts: Sequence[Part], budget: Budget, clock: Clock, files: Files, spec: ModelSpec
    ) -> None:
        self.trainer, self.parts, self.budget, self.clock = trainer, parts, budget, clock
        self.files, self.spec = files, spec
        self.best: tuple[bool, float] = (False, float("-inf"))  # masked, dB: a warm-up never beats the masks
        self.best_spec: ModelSpec | None = None
        self.latest: dict[str, Any] = {}
        self.took = 0.0

    def resume(self) -> None:
        """Go on from the checkpoint, if it is of the same run."""
        last = load_model(self.files.last)
        for name in ("network", "config", "scale", "degradation", "recipe", "seed", "data"):
            if (met := getattr(last.spec, name)) != (wanted := getattr(self.spec, name)):
                was = f"{met} there, {wanted} now" if name != "data" else "other cubes"
                raise UsageError(f"--resume: {self.files.last} is of another run: {name} differs ({was}).")
        values = last.spec.extra["training"]
        self.trainer.restore(last.network, training_tensors(self.files.last), values)
        self.clock.before, self.took = values["seconds"], values["took"]
        self.best, self.latest = (values["best"][0], values["best"][1]), dict(last.spec.scores)
        if self.files.model.exists():
            self.best_spec = load_model(self.files.model).spec

    def run(self, tell: Watch, stop: Callable[[], bool]) -> Trained:
        """Walk the loop to its end or to a stop, with a checkpoint now and then and at the end."""
        trainer, first = self.trainer, self.trainer.processes.first
        journal = Journal(self.files.log, trainer.step) if first else None
        if first:
            self._checkpoint()  # at once, or a kill would leave the checkpoint of an earlier run for this one's
        saved, finished = self.clock(), not first
        try:
            for event in run(trainer, self.parts, self.budget, self.clock, stop, self.took):
                if journal is None:
                    continue
                tell(event)
                if isinstance(event, Validated):
                    journal.add(event, **trainer.chance_facts())
                    self._keep(event)
                    finished = event.done >= 1
                else:
                    journal.add(event)
                if self.clock() - saved > SAVE_EVERY:
                    self._checkpoint()
                    saved = self.clock()
        except TrainingError as error:
            if first:
                self._checkpoint()
            kept = f"The weights before it are in {self.files.last}; try --init with it and a smaller --lr."
            raise TrainingError(f"{error} {kept}") from error
        finally:
            if journal is not None:
                journal.close()
        if first:
            self._checkpoint()
            title = f"{self.files.model.stem}: {self.spec.network}, x{self.spec.scale}, {trainer.step:,} steps"
            write_beside(self.files.curves, draw_curves(read_journal(self.files.log), title), overwrite=True)
        return Trained(self.files, self.best_spec or self._described(self.latest), finished)

    def _keep(self, event: Validated) -> None:
        self.latest, self.took = event.scores, event.took
        if event.step and (event.masked, event.scores["psnr"]) > self.best:
            self.best = event.masked, event.scores["psnr"]
            self.best_spec = self._described(event.scores)
            save_model(self.files.model, Model(self.best_spec, self.trainer.product))

    def _checkpoint(self) -> None:
        tensors, values = self.trainer.state()
        values |= {"seconds": self.clock(), "took": self.took, "best": list(self.best)}
        spec = replace(self._described(self.latest), extra={"training": values})
        save_model(self.files.last, Model(spec, self.trainer.product), tensors)

    def _described(self, scores: Mapping[str, Any]) -> ModelSpec:
        minutes = round(self.clock() / 60, 2)
        extra = {"masks": self.trainer.chance_facts()}
        return replace(self.spec, steps=self.trainer.step, minutes=minutes, scores=scores, extra=extra)


def find_cubes(plan: Plan, tell: Watch) -> Iterator[Cube]:
    """The cubes of the plan, each once; in folders, at any depth, and what is no cube there is left out."""
    seen = set()

    def opened(path: Path, named: bool) -> Iterator[Cube]:
        try:
            cube = open_cube(path, plan.variable, plan.axes)
        except PdenetError as error:
            if path.is_dir():
                for child in sorted(path.iterdir()):
                    if not child.name.startswith("."):
                        yield from opened(child, named=False)
            elif named:
                raise
            else:
                tell(Note(f"left out: {error}"))
            return
        with cube:
            # An ENVI header and its data file are one cube.
            if cube.path.resolve() not in seen:
                seen.add(cube.path.resolve())
                yield cube

    for path in plan.data:
        before = len(seen)
        yield from opened(path, named=True)
        if path.is_dir() and len(seen) == before:
            raise FormatError(f"{path}: no cube in this folder.")


def _network(plan: Plan) -> Network:
    scale = plan.degradation.scale
    if plan.init is None:
        return new_network(plan.network or "pdenet", plan.config, scale, plan.seed)
    model = load_model(plan.init)
    if model.scale != scale:
        raise UsageError(f"--init {plan.init} is a x{model.scale} model, and --scale is {scale}.")
    if plan.network is None and plan.config is None:
        return model.network.requires_grad_(True)
    network = new_network(plan.network or model.spec.network, plan.config, scale, plan.seed)
    return started_from(network, model)


def _recipe(plan: Plan) -> Recipe:
    if plan.recipe not in RECIPES:
        raise UsageError(f"--recipe {plan.recipe} is unknown; choose one of {', '.join(RECIPES)}.")
    changes = {name: value for name, value in (plan.changes or {}).items() if value is not None}
    return replace(RECIPES[plan.recipe](plan.degradation.scale), **changes)


def _budget(plan: Plan, patches: Patches) -> Budget:
    steps, seconds = plan.steps, None if plan.minutes is None else 60 * plan.minutes
    if steps is None and seconds is None:
        if plan.recipe == "paper":
            steps = patches.steps_of(PAPER_EPOCHS)
        else:
            seconds = 3600.0
    return Budget(steps, seconds)


def _spec(plan: Plan, trainer: Trainer, scenes: Sequence[Scene]) -> ModelSpec:
    network = trainer.network
    return ModelSpec(
        network=name_of(network),
        config=asdict(network.config),
        scale=network.scale,
        degradation=plan.degradation.to_dict(),
        version=__version__,
        data=tuple(scene.facts for scene in scenes),
        recipe=trainer.recipe.to_dict(),
        seed=plan.seed,
        licence=plan.licence,
    )


def _summary(scenes: Sequence[Scene], patches: Patches, parts: Sequence[Part]) -> str:
    size = sum(scene.pixels.nbytes for scene in scenes) / 1e6
    cubes = f"{len(scenes)} cubes, {size:,.0f} MB in memory"
    return f"{cubes}; patches from {len(patches.scenes)}, validation on a quarter of {len(parts)}"
