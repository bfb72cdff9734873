"""How a run unfolds: learning rate, masks and their temperature as functions of how much of it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import cos, pi
from typing import Any

from pdenet_cli.errors import UsageError

SHARP = 0.05  # the temperature of masks at inference


@dataclass(frozen=True)
class Moment:
    """What the schedule says now."""

    rate: float  # of learning, as a share of the recipe's
    temperature: float | None  # of the masks; None: every mask is 1


@dataclass(frozen=True)
class Recipe:
    """Everything about a run that is chosen and not found."""

    name: str
    schedule: Callable[[float], Moment]  # of the share of the run that is done
    lr: float
    batch: int
    patch: int  # high-resolution pixels on a side
    bands: int  # adjacent ones in a patch
    betas: tuple[float, float] = (0.9, 0.999)
    start: float = 1.0  # share of their usual size that the last layers begin with
    fresh: bool = False  # Adam starts anew when the masks come on
    average: float = 0.0  # decay of the running mean of the weights; 0: none
    clip: float = 1.0  # largest norm of a gradient
    consistency: float = 1.0  # λ of the loss
    chances: tuple[float, float] = (0.0, 1.0)  # where the masks' chances are kept
    gains: tuple[float, float] = (1.0, 1.0)  # a patch is multiplied by a number between these
    skipping: float = 0.0  # share of patches that take every second or third band

    def __post_init__(self) -> None:
        if self.lr <= 0 or min(self.batch, self.patch, self.bands) < 1:
            raise UsageError("--lr, --batch, --patch and --bands must be positive.")

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON holds it."""
        values = {name: value for name, value in asdict(self).items() if name != "schedule"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def paper(scale: int) -> Recipe:
    """The paper's: 50 epochs with every mask at 1, then 100 with masks and a fresh Adam."""
    return Recipe("paper", _paper_schedule, lr=5e-4, batch=4, patch=128 // scale * scale, bands=31, fresh=True)


PAPER_EPOCHS, PAPER_WARM_UP = 150, 50


def _paper_schedule(done: float) -> Moment:
    epoch = min(int(done * PAPER_EPOCHS), PAPER_EPOCHS - 1)
    if epoch < PAPER_WARM_UP:
        return Moment(0.5 ** (epoch // 25), None)
    epoch -= PAPER_WARM_UP
    return Moment(0.5 ** (epoch // 25), 1 - epoch / 35 if epoch <= 30 else SHARP)


def fast(scale: int) -> Recipe:
    """For hours of a CPU rather than days of a GPU, and for cubes of any sensor together."""
    return Recipe(
        "fast",
        _fast_schedule,
        lr=2e-3,
        batch=2,
        patch=20 * scale,
        bands=16,
        start=0.1,
        betas=(0.9, 0.99),
        average=0.998,
        chances=(0.05, 0.95),
        gains=(0.5, 1.5),
        skipping=0.25,
    )


RISE, MASKS_ON, MASKS_SHARP = 0.02, 0.2, 0.6


def _fast_schedule(done: float) -> Moment:
    rate = done / RISE if done < RISE else 0.5 + 0.5 * cos(pi * min(1.0, (done - RISE) / (1 - RISE)))
    if done < MASKS_ON:
        return Moment(max(rate, 0.01), None)
    # Soft masks first, so that chances learn; sharp ones for the rest, as inference draws them.
    return Moment(max(rate, 0.001), SHARP ** min(1.0, (done - MASKS_ON) / (MASKS_SHARP - MASKS_ON)))


RECIPES: dict[str, Callable[[int], Recipe]] = {"fast": fast, "paper": paper}
"""Each recipe as a function of the scale."""
