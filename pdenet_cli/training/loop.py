"""The loop: steps until the budget is spent, and validation now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pdenet_cli.errors import UsageError
from pdenet_cli.training.trainer import Stepped, Trainer
from pdenet_cli.training.validation import DRAWS, Part, validate

VALIDATIONS = 20  # in a run, at most
PATIENCE = 12  # so many times as long as a validation takes is trained before the next
CLOSING = 3.0  # seconds for the last files of a run that must end on time


@dataclass(frozen=True)
class Budget:
    """How long a run is: so many steps, or so many seconds with all that belongs to it."""

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise UsageError("Use --minutes or --steps, not both.")
        if not 0 < (self.steps or self.seconds or 0) < math.inf:
            raise UsageError("--minutes and --steps must be positive.")

    def done(self, step: int, seconds: float, reserve: float) -> float:
        """The share of the run that is behind, `reserve` seconds being kept for its end."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / max(self.seconds - reserve, 1e-3))


@dataclass(frozen=True)
class Validated:
    """How good the network is after so many steps."""

    step: int
    done: float
    seconds: float  # of the run so far
    scores: dict[str, Any]
    masked: bool  # False in the warm-up, whose networks are not the product of one with masks or with a rival
    took: float


class Clock:
    """Seconds of a run, over all its sittings."""

    def __init__(self, started: float | None = None, before: float = 0.0) -> None:
        self.started = time.monotonic() if started is None else started
        self.before = before

    def __call__(self) -> float:
        return self.before + time.monotonic() - self.started


def run(
    trainer: Trainer,
    parts: Sequence[Part],
    budget: Budget,
    clock: Clock,
    stop: Callable[[], bool] = lambda: False,
    took: float = 0.0,
) -> Iterator[Stepped | Validated]:
    """Train until the budget is spent or `stop` says so, telling of every step and every validation.

    `took` is what the last validation before a pause took; the end of a run keeps time for one more.
    Every process of the run walks this loop; only the first validates.
    """
    rested_since = step_took = behind = 0.0

    def share_done() -> float:
        """What is behind, with time kept for a last step, a last validation and the files."""
        nonlocal behind
        passes = DRAWS if trainer.network.random and not trainer.masked else 1  # it will be masked by then
        reserve = 1.3 * took * passes + step_took + CLOSING
        # The reserve comes and goes with the load of the machine; the schedule must not run back.
        behind = max(behind, budget.done(trainer.step, clock(), reserve))
        return behind

    def validated(done: float) -> Validated:
        nonlocal took, rested_since
        begun = clock()
        scores = validate(trainer.product, parts, trainer.draw(DRAWS), trainer.device)
        rested_since = clock()
        took = rested_since - begun
        return Validated(trainer.step, done, rested_since, scores, trainer.masked, took)

    if trainer.step == 0 and trainer.processes.first:
        yield validated(0.0)
    while True:
        done, stopped = trainer.processes.agree((share_done(), float(stop())), trainer.device)
        if stopped or (done >= 1 and trainer.step):  # at least one step, or there would be no model
            break
        begun = clock()
        yield trainer.advance(done, begun)
        step_took = clock() - begun
        after = share_done()
        due = math.floor(after * VALIDATIONS) > math.floor(done * VALIDATIONS) and after < 1
        rested = budget.steps is not None or clock() - rested_since > PATIENCE * took
        if trainer.processes.first and due and rested:
            yield validated(after)
    if trainer.processes.first and not stopped:
        yield validated(1.0)
