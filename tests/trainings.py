"""Small networks and short trainings of them."""

from dataclasses import replace

import torch

from pdenet_cli import open_cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.models.networks import NETWORKS
from pdenet_cli.tools.train import TrainingPlan
from pdenet_cli.training.data import Scene
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.recipe import recipe_for
from pdenet_cli.training.trainer import Trainer, new_network


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tiny(name, **changes):
    """An untrained network of the smallest size."""
    return NETWORKS[name](replace(NETWORKS[name].configs["tiny"], **changes))


def plan(cubes, **changes):
    """A run of six steps on the cubes of a folder."""
    small = dict(batch=2, patch=32, bands=6)
    defaults = dict(network="pdenet", config="tiny", changes=small, steps=6, threads=1)
    return TrainingPlan((cubes,), Degradation(changes.pop("scale", 4)), **defaults | changes)


def trainer_of(cubes, name, **changes):
    """The trainer of a tiny network on the cube a.hdr of a folder; the changes are to the recipe."""
    network = new_network(name, "tiny", 4, seed=0)
    recipe = replace(recipe_for("fast", name, 4), **dict(batch=2, patch=16, bands=4) | changes)
    patches = Patches([Scene.read(open_cube(cubes / "a.hdr"))], recipe, 4, 0, network.bands)
    return Trainer(network, patches, Degradation(4), torch.device("cpu"))
