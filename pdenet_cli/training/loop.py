"""The training loop: steps until the budget is spent, and validation now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdenet_cli.errors import UsageError
from pdenet_cli.training.trainer import StepResult, Trainer
from pdenet_cli.training.validation import DRAWS, HeldOutPart, validate

MOST_VALIDATIONS = 20  # per run, besides the first and the last
MIN_TRAINING_RATIO = 12  # train at least this many times as long as the last validation took before the next
CLOSING_SECONDS = 3.0  # reserved for writing the last files of a run that must end on time
RESERVE = 1.3  # times the last validation's seconds are reserved for the next, which may be slower


@dataclass(frozen=True)
class Budget:
    """The length of a run: a number of steps, or of seconds including validation and files."""

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise UsageError("Use `minutes` or `steps`, not both.")
        if not 0 < (self.steps or self.seconds or 0) < math.inf:
            raise UsageError("`minutes` and `steps` must be positive.")

    def done(self, step: int, seconds: float, reserve: float) -> float:
        """The share of the run that is done; `reserve` seconds are kept for its end."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / max(self.seconds - reserve, 1e-3))


@dataclass(frozen=True)
class ValidationResult:
    """The scores of the network after some steps."""

    step: int
    done: float
    seconds: float  # of the run so far
    scores: dict[str, Any]
    masked: bool  # False in the warm-up: without masks or a rival, scores cannot be compared with later ones
    took: float  # seconds


class Clock:
    """Seconds of a run, those before a pause included."""

    def __init__(self, started: float | None = None, before: float = 0.0) -> None:
        self.started = time.monotonic() if started is None else started
        self.before = before

    def __call__(self) -> float:
        return self.before + time.monotonic() - self.started


def training_loop(
    trainer: Trainer,
    parts: Sequence[HeldOutPart],
    budget: Budget,
    clock: Clock,
    stop: Callable[[], bool] = lambda: False,
    took: float = 0.0,
) -> Iterator[StepResult | ValidationResult]:
    """Train until the budget is spent or `stop` is true; yields every step and every validation.

    `took` is how many seconds the last validation before a pause took. Every process of the run goes through this
    loop; only the first validates.
    """
    last_validation = step_took = progress = 0.0
    drawn = trainer.masked  # whether the last validation had draws

    def share_done() -> float:
        """Share of the budget spent, with time reserved for a last step, a last validation and the files."""
        nonlocal progress
        # A validation of the warm-up takes one pass; the last one will take a pass for each draw.
        passes = DRAWS if trainer.network.random and not drawn else 1
        reserve = RESERVE * took * passes + step_took + CLOSING_SECONDS
        # The reserve varies with the load of the machine; the schedule must not go back.
        progress = max(progress, budget.done(trainer.step, clock(), reserve))
        return progress

    def validated(done: float) -> ValidationResult:
        nonlocal took, last_validation, drawn
        begun, drawn = clock(), trainer.masked
        scores = validate(trainer.average, parts, trainer.draw(DRAWS), trainer.device)
        last_validation = clock()
        took = last_validation - begun
        return ValidationResult(trainer.step, done, last_validation, scores, trainer.masked, took)

    if trainer.step == 0 and trainer.processes.first:
        yield validated(0.0)
    while True:
        done, stopped = trainer.processes.broadcast((share_done(), float(stop())), trainer.device)
        if stopped or (done >= 1 and trainer.step):  # at least one step, or there would be no model
            break
        begun = clock()
        yield trainer.advance(done, begun)
        step_took = clock() - begun
        after = share_done()
        due = math.floor(after * MOST_VALIDATIONS) > math.floor(done * MOST_VALIDATIONS) and after < 1
        trained_enough = budget.steps is not None or clock() - last_validation > MIN_TRAINING_RATIO * took
        if trainer.processes.first and due and trained_enough:
            yield validated(after)
    if trainer.processes.first and not stopped:
        yield validated(1.0)
