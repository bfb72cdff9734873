"""Scenes and small untrained models for tests of `pdenet evaluate`, and a contest between them.

Modules that want the fixtures name them: `truth, contestants = contests.truth, contests.contestants`.
"""

import dataclasses

import numpy as np
import pytest
import torch

from pdenet_cli.models.model import Model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.truths import TruthSettings
from tests.cubes import written

SIZE = dict(bands=5, rows=50, columns=41)
CONFIG = dataclasses.replace(CONFIGS["tiny"], stages=1, units=3, mask_start=0.6)


def smooth(bands, rows, columns, seed=0):
    """A cube of 0..1 with something to see in it."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns] / 6
    waves = [0.5 + 0.3 * np.sin(x + b) * np.cos(y - b / 2) for b in range(bands)]
    return (np.stack(waves) + 0.03 * rng.standard_normal((bands, rows, columns))).clip(0.01, 1)


@pytest.fixture(scope="session")
def truth(tmp_path_factory):
    """A scene of 16-bit reflectance with wavelengths, and its pixels as 0..1."""
    pixels = np.rint(smooth(**SIZE) * 10000).astype("<u2")
    waves = (450.0, 500.0, 550.0, 600.0, 650.0)
    path = tmp_path_factory.mktemp("truth") / "scene.hdr"
    written(path, pixels, wavelengths=waves, wavelength_units="Nanometers", reflectance_scale=10000.0)
    return path, (pixels / 10000).astype(np.float32)


@pytest.fixture(scope="session")
def contestants(tmp_path_factory):
    """Weights files of small untrained networks: with chance, without it, and for another scale."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    kinds = {"chance": (PDENet, 4), "plain": (TemplateNet, 4), "double": (TemplateNet, 2)}
    for name, (kind, scale) in kinds.items():
        config = dataclasses.replace(CONFIG, scale=scale)
        network = "pdenet" if kind is PDENet else "template"
        spec = ModelSpec(network, dataclasses.asdict(config), scale, {}, "test")
        save_model(folder / f"{name}.safetensors", Model(spec, kind(config)))
    return {name: str(folder / f"{name}.safetensors") for name in kinds}


def contest(contestants, names=("chance",), samples=(2,), **settings):
    return Benchmark([contestants[name] for name in names], samples, 3, "cpu", TruthSettings(**settings))
