"""Schedules: the learning rate and the temperature of the masks at every moment of a run.

The published ones go by epochs, counted from 1. Their schedulers step before the first epoch, so that a rate that
falls "every 25 epochs" is lower already in epoch 25.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import cos, pi

SHARP = 0.05  # temperature of the masks at inference


@dataclass(frozen=True)
class Moment:
    """The schedule at one moment of a run."""

    rate: float  # learning rate, as a share of the recipe's
    temperature: float | None  # of the masks; 0: each at its mode; None: the warm-up, every mask is 1


Schedule = Callable[[float], Moment]
"""The moment when a share of the run is done."""


def by_epoch(epochs: int, moment: Callable[[int], Moment]) -> Schedule:
    """The schedule of a run of so many epochs; `moment` is that of an epoch, counted from 1."""
    # A share of steps such as 25/150 may round to a little less than its epoch.
    return lambda done: moment(min(int(done * epochs + 1e-6), epochs - 1) + 1)


WARM_UP, EPOCHS = 50, 150  # of PDE-Net: as Template-Net, then in all


def _pde_net(epoch: int) -> Moment:
    if epoch <= WARM_UP:
        return Moment(0.5 ** (epoch // 25), None)
    epoch -= WARM_UP  # the second phase begins anew, as a run of its own
    return Moment(0.5 ** (epoch // 25), 1 - epoch / 35 if epoch <= 30 else SHARP)


pde_net = by_epoch(EPOCHS, _pde_net)


def falling(epochs: int, every: int, factor: float) -> Schedule:
    """No masks to learn, and a rate that is multiplied by `factor` every so many epochs."""
    return by_epoch(epochs, lambda epoch: Moment(factor ** (epoch // every), SHARP))


def constant(done: float) -> Moment:
    return Moment(1.0, SHARP)


RISE, MASKS_ON, MASKS_SHARP = 0.02, 0.2, 0.6  # done when the rate peaks, masks start, masks are sharp


def fast(done: float) -> Moment:
    """A cosine, with masks that are soft at first."""
    rate = done / RISE if done < RISE else 0.5 + 0.5 * cos(pi * min(1.0, (done - RISE) / (1 - RISE)))
    if done < MASKS_ON:
        return Moment(max(rate, 0.01), None)
    # Soft masks first, so that their probabilities learn; then sharp ones, as at inference.
    return Moment(max(rate, 0.001), SHARP ** min(1.0, (done - MASKS_ON) / (MASKS_SHARP - MASKS_ON)))


SEARCH_SHARE = 5 / 6  # share of a search with random masks; the rest tunes the chosen network


def with_search(schedule: Schedule) -> Schedule:
    """The schedule of a search: at its end each mask stays at its mode."""
    return lambda done: schedule(done) if done < SEARCH_SHARE else replace(schedule(done), temperature=0.0)


def without_warm_up(schedule: Schedule) -> Schedule:
    """The schedule without a warm-up: masks from the first step."""
    return lambda done: replace(schedule(done), temperature=SHARP)
