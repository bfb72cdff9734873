"""Recipes: the schedule of learning rate and mask temperature, the loss, and how patches are varied."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields, replace
from math import cos, isfinite, pi
from typing import Any

from pdenet_cli.errors import UsageError

SHARP = 0.05  # temperature of the masks at inference


@dataclass(frozen=True)
class Moment:
    """The schedule at one moment of a run."""

    rate: float  # learning rate, as a share of the recipe's
    temperature: float | None  # of the masks; 0: each at its mode; None: the warm-up, every mask is 1


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a run."""

    name: str
    schedule: Callable[[float], Moment]  # of the share of the run that is done
    lr: float
    batch: int
    patch: int  # high-resolution pixels on a side
    bands: int  # adjacent bands in a patch
    betas: tuple[float, float] = (0.9, 0.999)
    start: float = 1.0  # initial weights of the last layers are multiplied by this
    fresh: bool = False  # reset Adam when the masks come on
    average: float = 0.0  # decay of the running mean of the weights; 0: none
    clip: float = 1.0  # largest norm of a gradient
    consistency: float = 1.0  # weight of the consistency loss, λ in the paper
    spectral: float = 0.0  # weight of the error of the differences between neighbouring bands
    balance: float = 0.0  # weight of the error of the means over 4 x 4 coarse pixels
    energy: float = 0.0  # weight of the energy-score term that rewards distance between two draws; 1: proper
    chances: tuple[float, float] = (0.0, 1.0)  # limits of the masks' probabilities
    gains: tuple[float, float] = (1.0, 1.0)  # limits of the random factor on a patch
    soft: float = 0.0  # share of patches that are blurred, as by a softer lens
    grain: float = 0.0  # share of patches with noise added to the input, not to the truth
    psf: float = 0.0  # share of patches seen through a random point spread, for networks that take any
    skipping: float = 0.0  # share of patches that take every second or third band
    warp: float = 0.0  # share of patches that are rotated by any angle and stretched
    zoom: float = 1.0  # largest factor by which a wider window is downsampled to a patch
    mosaic: float = 0.0  # share of patches that may be a mosaic, where a scene is too small for the patch
    collage: float = 0.0  # share of patches with pasted shapes that show other places of the scene

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and type(value) is not int:
                raise UsageError(f"`recipe`: {field.name}={value} must be a whole number.")
            if field.type == "float" and not (type(value) in (int, float) and isfinite(value) and value >= 0):
                raise UsageError(f"`recipe`: {field.name}={value} must be a number, 0 or more.")
        if self.lr <= 0 or min(self.batch, self.patch, self.bands) < 1:
            raise UsageError("`lr`, `batch`, `patch` and `patch_bands` must be positive.")
        if self.zoom < 1 or self.average >= 1 or self.clip <= 0:
            raise UsageError("`recipe`: zoom must be at least 1, average less than 1, clip more than 0.")
        if more := [name for name in SHARES if getattr(self, name) > 1]:
            met = f"`recipe`: {more[0]}={getattr(self, more[0])}"
            raise UsageError(f"{met} must be between 0 and 1 (a fraction of the patches).")

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON holds it."""
        values = {name: value for name, value in asdict(self).items() if name != "schedule"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


SHARES = ("soft", "grain", "psf", "skipping", "warp", "mosaic", "collage")

FIELDS = frozenset(field.name for field in fields(Recipe))
DEFAULTS = {field.name: field.default for field in fields(Recipe) if isinstance(field.default, int | float)}
"""The numeric fields of a recipe that have a default, and these defaults."""


def paper(scale: int) -> Recipe:
    """The published recipe: 50 epochs with every mask at 1, then 100 with masks and a fresh Adam."""
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
        zoom=2.0,
        collage=0.2,
    )


RISE, MASKS_ON, MASKS_SHARP = 0.02, 0.2, 0.6  # done when the rate peaks, masks start, masks are sharp


def _fast_schedule(done: float) -> Moment:
    rate = done / RISE if done < RISE else 0.5 + 0.5 * cos(pi * min(1.0, (done - RISE) / (1 - RISE)))
    if done < MASKS_ON:
        return Moment(max(rate, 0.01), None)
    # Soft masks first, so that their probabilities learn; then sharp ones, as at inference.
    return Moment(max(rate, 0.001), SHARP ** min(1.0, (done - MASKS_ON) / (MASKS_SHARP - MASKS_ON)))


def general(scale: int) -> Recipe:
    """`fast` for models of many sensors, as the shipped ones: with blurred, turned and noisy patches too."""
    return replace(
        fast(scale),
        name="general",
        spectral=0.5,
        energy=0.4,
        soft=0.3,
        grain=0.3,
        warp=0.3,
        zoom=1.5,
        collage=0.1,
    )


RECIPES: dict[str, Callable[[int], Recipe]] = {"fast": fast, "general": general, "paper": paper}
"""Each recipe as a function of the scale."""


def _halved_every_35_epochs(done: float) -> Moment:
    return Moment(0.5 ** (int(done * PAPER_EPOCHS) // 35), SHARP)


SEARCH_SHARE = 5 / 6  # share of a search with random masks; the rest tunes the chosen network


def _with_search(schedule: Callable[[float], Moment]) -> Callable[[float], Moment]:
    """The schedule of a search: at its end each mask stays at its mode."""
    return lambda done: schedule(done) if done < SEARCH_SHARE else replace(schedule(done), temperature=0.0)


def _without_warm_up(schedule: Callable[[float], Moment]) -> Callable[[float], Moment]:
    """The schedule without a warm-up: masks from the first step."""
    return lambda done: replace(schedule(done), temperature=SHARP)


_FAST_CHANGES: dict[str, dict[str, Any]] = {
    "nas": dict(schedule=_with_search(_fast_schedule)),
    "ensemble": dict(batch=8, schedule=_without_warm_up(_fast_schedule)),
    "3dgan": dict(lr=5e-4),  # 2e-3 learns more slowly with it, and diverges with SSPSR
    "sspsr": dict(lr=5e-4),
}

NETWORK_CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "nas": dict(schedule=_with_search(_paper_schedule)),
        "ensemble": dict(batch=16, schedule=_without_warm_up(_paper_schedule)),  # four members, 4 patches each
        "3dfcnn": dict(lr=5e-5, batch=16, schedule=lambda done: Moment(1.0, SHARP)),
        "3dgan": dict(lr=1e-4),  # not published
        "sspsr": dict(lr=1e-4, schedule=lambda done: Moment(1.0, SHARP)),
        "mcnet": dict(lr=1e-4, batch=16, schedule=_halved_every_35_epochs),
        "ercsr": dict(lr=1e-4, batch=12, schedule=_halved_every_35_epochs),
    },
    "fast": _FAST_CHANGES,
    "general": _FAST_CHANGES,
}
"""How recipes differ for some networks: by recipe, then by network."""


def recipe_for(recipe: str, network: str, scale: int, slower: int = 1) -> Recipe:
    """The recipe of this name, maybe with changes ("fast,zoom=3"), as it is for a network of this name.

    Its own learning rate is divided by `slower`; one among the changes is used as given.
    """
    numbers = [field.name for field in fields(Recipe) if field.type in ("int", "float")]
    name, changes = parse_changes("recipe", recipe, RECIPES, numbers)
    usual = replace(RECIPES[name](scale), **NETWORK_CHANGES.get(name, {}).get(network, {}))
    return replace(usual, **{"lr": usual.lr / slower} | changes)


def parse_changes(
    argument: str, text: str, names: Collection[str], changeable: Collection[str]
) -> tuple[str, dict[str, Any]]:
    """What "NAME,FIELD=VALUE,FIELD=VALUE" says: one of `names`, new values of some fields."""
    name, *changes = text.split(",")
    if name not in names:
        raise UsageError(f"`{argument}` {name} is unknown; choose one of {', '.join(names)}.")
    values = {}
    for change in changes:
        field, _, value = change.partition("=")
        if field not in changeable or not value:
            known = ", ".join(changeable)
            raise UsageError(f"`{argument}`: '{change}' is not FIELD=VALUE; the fields are {known}.")
        try:
            values[field] = json.loads(value)
        except ValueError:
            values[field] = _number(value)
    return name, values


def _number(text: str) -> float | str:
    """The number that a text such as .5 is, which JSON does not know; else the text."""
    try:
        return float(text)
    except ValueError:
        return text
