"""A training run and its files: the best model, a checkpoint, the log and the curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pdenet_cli.errors import ModelError, TrainingError, UsageError
from pdenet_cli.files import write_whole
from pdenet_cli.models.model import Model, load_model, save_model, training_tensors
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import SUFFIX
from pdenet_cli.training.curves import draw_curves
from pdenet_cli.training.log import TrainingLog, read_log
from pdenet_cli.training.loop import Budget, Clock, ValidationResult, training_loop
from pdenet_cli.training.recipe import DEFAULTS, FIELDS
from pdenet_cli.training.trainer import StepResult, Trainer
from pdenet_cli.training.validation import HeldOutPart

SAVE_EVERY = 60.0  # seconds between checkpoints
LAST = f".last{SUFFIX}"  # how the name of a checkpoint ends
NO_BEST = (False, -1000.0)  # (with masks, PSNR in dB): any score with masks beats any score of the warm-up


@dataclass(frozen=True)
class Files:
    """The files of a run: the best model, the last state, the log, the curves."""

    model: Path
    last: Path
    log: Path
    curves: Path

    @classmethod
    def of(cls, model: Path) -> Files:
        return cls(model, *(model.with_suffix(end) for end in (LAST, ".log.jsonl", ".curves.png")))

    @classmethod
    def around(cls, weights: Path) -> Files:
        """The files of the run that wrote these weights: its best model or its last state."""
        name = weights.name
        return cls.of(weights.with_name(name.removesuffix(LAST) + SUFFIX) if name.endswith(LAST) else weights)

    @property
    def every(self) -> tuple[Path, ...]:
        return self.model, self.last, self.log, self.curves

    @property
    def lock(self) -> Path:
        """The lock file, which is there while a run writes the others."""
        return self.model.with_name(f".{self.model.name}.lock")


@dataclass(frozen=True)
class Trained:
    """The result of a run."""

    files: Files
    spec: ModelSpec  # of the best model, or of the last state where no model was good enough to keep
    finished: bool  # False: it was stopped and can be resumed
    first: bool  # False in the other processes of a run, which know no scores
    before: float | None = None  # gain over bicubic, in dB, of the model that it started from; None: of none

    def to_dict(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in asdict(self.files).items()}
        return {"files": files, "finished": self.finished, "gain_before": self.before, **self.spec.to_dict()}


def _identity(spec: ModelSpec) -> dict[str, Any]:
    """What a checkpoint must share with the run that resumes it.

    A recipe of an earlier version may lack fields, and may have 0 in fields that no longer exist.
    """
    names = ("network", "config", "scale", "degradation", "recipe", "seed")
    recipe = {name: value for name, value in spec.recipe.items() if name in FIELDS or value}
    # NaN, a possible nodata value, would differ from itself.
    cubes = (*spec.data, *spec.validation)
    data = [{name: "NaN" if value != value else value for name, value in facts.items()} for facts in cubes]
    return {name: getattr(spec, name) for name in names} | {"recipe": {**DEFAULTS, **recipe}, "data": data}


def _difference(name: str, stored: Any, wanted: Any) -> str:
    """How a checkpoint differs from the run that would resume it, in words."""
    if name == "data":
        return "data differs (different cubes or bands)"
    if isinstance(stored, Mapping):
        field = next(key for key in (*wanted, *stored) if stored.get(key) != wanted.get(key))
        name, stored, wanted = f"{name} {field}", stored.get(field), wanted.get(field)
    return f"{name} differs ({stored} there, {wanted} now)"


class TrainingRun:
    """A run, or the rest of one after a pause: the events of the loop become files."""

    def __init__(
        self,
        trainer: Trainer,
        parts: Sequence[HeldOutPart],
        budget: Budget,
        clock: Clock,
        files: Files,
        spec: ModelSpec,
    ) -> None:
        self.trainer, self.parts, self.budget, self.clock = trainer, parts, budget, clock
        self.files, self.spec = files, spec
        self.best = NO_BEST
        self.best_spec: ModelSpec | None = None
        self.latest: dict[str, Any] = {}
        self.start: dict[str, Any] = {}  # the scores before the first step; empty where the run is resumed
        self.took = 0.0  # seconds of the last validation

    def resume(self) -> None:
        """Continue from the checkpoint, if it is of the same run."""
        last = load_model(self.files.last)
        began, now = _identity(last.spec), _identity(self.spec)
        for name, stored in began.items():
            if stored != (wanted := now[name]):
                raise UsageError(
                    f"`resume`: {self.files.last} belongs to a different run: {_difference(name, stored, wanted)}."
                )
        model = load_model(self.files.model) if self.files.model.exists() else None
        self._refuse_other_origin(last.spec.began_with, model)
        self.spec = replace(self.spec, began_with=last.spec.began_with)
        if not (values := last.spec.training):
            raise ModelError(f"`resume`: {self.files.last} is a model, not a checkpoint.")
        self.trainer.restore(last.network, training_tensors(self.files.last), values)
        self.clock.before, self.took = values["seconds"], values["took"]
        self.best, self.latest = (values["best"][0], values["best"][1]), dict(last.spec.scores)
        if model is not None and _identity(model.spec) == began:
            self.best_spec = model.spec
        else:
            self.best = NO_BEST  # the best model so far is lost, or belongs to another run

    def _refuse_other_origin(self, start: Mapping[str, Any], model: Model | None) -> None:
        """Stop where the checkpoint was started from a model other than the one given now.

        A run may have replaced the model that it started from by its best one, `model`.
        """
        given = self.spec.began_with
        replaced = model is not None and model.sha256 == given.get("sha256")
        # Checkpoints of earlier versions do not record it.
        if given and start and given["sha256"] != start.get("sha256") and not replaced:
            problem = f"was started from a model other than {given.get('name')}"
            raise UsageError(f"`resume`: {self.files.last} {problem}.")

    def run(self, tell: Callable[[StepResult | ValidationResult], None], stop: Callable[[], bool]) -> Trained:
        """Train to the end or until stopped, with a checkpoint now and then and at the end."""
        trainer, first = self.trainer, self.trainer.processes.first
        if first:
            self._checkpoint()  # at once: if killed, the checkpoint of an earlier run must not pass for this one's
        log = TrainingLog(self.files.log, trainer.step) if first else None
        saved, finished = self.clock(), False
        try:
            for event in training_loop(trainer, self.parts, self.budget, self.clock, stop, self.took):
                if log is None:
                    continue
                tell(event)
                if isinstance(event, ValidationResult):
                    log.add(event, **trainer.chance_facts())
                    self._keep(event)
                    finished = event.done >= 1
                else:
                    log.add(event)
                if self.clock() - saved > SAVE_EVERY:
                    self._checkpoint()
                    saved = self.clock()
        except TrainingError as error:
            if first:
                self._checkpoint()
            last = self.files.last
            kept = f"The last good weights are in {last}. Try `init` {last} with a smaller `lr`."
            raise TrainingError(f"{error} {kept}") from error
        finally:
            if log is not None:
                log.close()
        (whole,) = trainer.processes.broadcast((float(finished),), trainer.device)
        if first:
            self._checkpoint()
            title = f"{self.files.model.stem}: {self.spec.network}, x{self.spec.scale}, {trainer.step:,} steps"
            write_whole(self.files.curves, draw_curves(read_log(self.files.log), title), overwrite=True)
        before = self.start["psnr"] - self.start["bicubic_psnr"] if self.start and self.spec.began_with else None
        return Trained(self.files, self.best_spec or self._described(self.latest), bool(whole), first, before)

    def _keep(self, event: ValidationResult) -> None:
        self.latest, self.took = event.scores, event.took
        self.start = self.start if event.step else event.scores
        better = self.trainer.recipe.keep_last or (event.masked, event.scores["psnr"]) > self.best
        if event.step and better:
            self.best = event.masked, event.scores["psnr"]
            self.best_spec = self._described(event.scores)
            save_model(self.files.model, Model(self.best_spec, self.trainer.average))

    def _checkpoint(self) -> None:
        tensors, values = self.trainer.state()
        values |= {"seconds": self.clock(), "took": self.took, "best": self.best}
        spec = replace(self._described(self.latest), training=values)
        save_model(self.files.last, Model(spec, self.trainer.average), tensors)

    def _described(self, scores: Mapping[str, Any]) -> ModelSpec:
        minutes = round(self.clock() / 60, 2)
        masks = self.trainer.chance_facts()
        return replace(self.spec, steps=self.trainer.step, minutes=minutes, scores=scores, masks=masks)
