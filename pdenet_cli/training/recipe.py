"""Recipes: the schedule, the loss, how patches are cut and varied."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from typing import Any

from pdenet_cli.errors import UsageError
from pdenet_cli.training import schedules
from pdenet_cli.training.schedules import Schedule


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a run."""

    name: str
    schedule: Schedule
    lr: float
    batch: int
    patch: int  # high-resolution pixels on a side
    bands: int  # adjacent bands in a patch; 0: all
    epochs: int = 0  # length of a run; 0: an hour
    stride: int = 0  # patches begin this far apart, each comes once an epoch; 0: anywhere
    block: int = 0  # scenes are cut into squares of this side before that; 0: not cut
    cut_low: bool = False  # inputs are cut from the degraded scene or block, not made from the patch alone
    band_means: bool = False  # a network that subtracts a mean subtracts that of each band
    keep_last: bool = False  # the model is the last state, not the best of the validations
    betas: tuple[float, float] = (0.9, 0.999)
    start: float = 1.0  # initial weights of the last layers are multiplied by this
    fresh: bool = False  # reset Adam when the masks come on
    average: float = 0.0  # decay of the running mean of the weights; 0: none
    clip: float = 1.0  # largest norm of a gradient; 0: any
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
        if self.lr <= 0 or min(self.batch, self.patch) < 1 or min(self.bands, self.stride, self.block) < 0:
            raise UsageError("`lr`, `batch`, `patch` and `patch_bands` must be positive.")
        if self.zoom < 1 or self.average >= 1:
            raise UsageError("`recipe`: zoom must be at least 1, average less than 1.")
        if not self.stride and (self.epochs or self.block or self.cut_low):
            raise UsageError("`recipe`: epochs and blocks need a stride of the patches, for example stride=32.")
        if more := [name for name in SHARES if getattr(self, name) > 1]:
            setting = f"`recipe`: {more[0]}={getattr(self, more[0])}"
            raise UsageError(f"{setting} must be between 0 and 1 (a fraction of the patches).")

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
    return Recipe(
        "paper",
        schedules.pde_net,
        lr=5e-4,
        batch=4,
        patch=128 // scale * scale,
        bands=0,
        epochs=schedules.EPOCHS,
        stride=-(-32 // scale) * scale,
        cut_low=True,
        keep_last=True,
        fresh=True,
        clip=0.0,
    )


def fast(scale: int) -> Recipe:
    """For hours of a CPU rather than days of a GPU, and for cubes of any sensor together."""
    return Recipe(
        "fast",
        schedules.fast,
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


def general(scale: int) -> Recipe:
    """`fast` for models of many sensors, as the shipped ones: with blurred, turned and noisy patches too."""
    return replace(
        fast(scale),
        name="general",
        keep_last=True,
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


_FAST_CHANGES: dict[str, dict[str, Any]] = {
    "nas": dict(schedule=schedules.with_search(schedules.fast)),
    "ensemble": dict(batch=8, schedule=schedules.without_warm_up(schedules.fast)),
    "3dgan": dict(lr=5e-4),  # 2e-3 learns more slowly with it, and diverges with SSPSR
    "sspsr": dict(lr=5e-4),
}

NETWORK_CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "nas": dict(schedule=schedules.with_search(schedules.pde_net)),
        "ensemble": dict(batch=16, schedule=schedules.without_warm_up(schedules.pde_net)),  # four members, 4 each
        "3dfcnn": dict(lr=5e-5, batch=16, epochs=200, schedule=schedules.constant),
        "3dgan": dict(lr=1e-4),  # not published
        "sspsr": dict(lr=1e-4, batch=32, epochs=40, schedule=schedules.falling(40, 30, 0.1)),
        "mcnet": dict(lr=1e-4, batch=16, epochs=200, schedule=schedules.falling(200, 35, 0.5), band_means=True),
        "ercsr": dict(lr=1e-4, batch=12, epochs=85, schedule=schedules.falling(85, 35, 0.5), band_means=True),
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
