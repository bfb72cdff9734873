"""What the tests share: where real cubes are, cubes and models made on the fly, the command as a user runs it."""

import dataclasses
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import settings

from pdenet_cli.scene.georeference import Georeference
from tests import command
from tests.cubes import picture, written

# Two test processes on two cores: one thread each, before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing on a machine with other work.
settings.register_profile("pdenet", deadline=None)
settings.load_profile("pdenet")

ROOT = Path(__file__).parent.parent

PEAK = """
def peak():
    # In kB, of this program alone: what getrusage tells begins with the memory of the parent.
    import re
    from pathlib import Path
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
"""Source of a function for programs that tests start: the most memory that they have held."""


def with_room_for(free, monkeypatch):
    """A disk that has so many bytes free, in a file system that reserves none of them."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Mock(free=free))


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads its peak memory from Linux's /proc")


@pytest.fixture(autouse=True)
def _usual_floats():
    """Undoes what a fast network sets for the whole process: Hypothesis wants its denormal numbers."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture
def same_weights():
    """Untrained networks are the same in whatever order tests run."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real cubes, named by PDENET_DATA; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("PDENET_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real cubes are not here: set PDENET_DATA ({folder})")
    return folder


@pytest.fixture
def pdenet():
    """Runs `pdenet ...` in this process and returns exit code, output and errors."""
    return command.run


@pytest.fixture
def pdenet_process():
    """The same in its own process: for what a user's terminal and shell have a part in."""
    return command.run_process


@pytest.fixture
def make_cube(tmp_path):
    """Writes a small cube of random numbers and returns its path and pixels."""

    def make(name="scene.hdr", bands=5, rows=9, columns=7, dtype="<u2", seed=0, **meta):
        pixels = np.random.default_rng(seed).integers(1, 120, (bands, rows, columns)).astype(dtype)
        return written(tmp_path / name, pixels, **meta), pixels

    return make


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Weights files of small untrained networks: `pdenet` with chance, `calibrated` too, `template` without."""
    import torch

    from pdenet_cli.models.model import Model, save_model
    from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, TemplateNet
    from pdenet_cli.models.spec import ModelSpec

    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    for name, kind in (("pdenet", PDENet), ("template", TemplateNet)):
        spec = ModelSpec(name, dataclasses.asdict(config), 4, {}, "test")
        model = Model(spec, kind(config))
        save_model(folder / f"{name}.safetensors", model)
        if name == "pdenet":
            fitted = dataclasses.replace(spec, calibration=calibration().to_dict())
            save_model(folder / "calibrated.safetensors", dataclasses.replace(model, spec=fitted))
    return folder


def calibration(**settings):
    """The calibration that two scenes of random errors, about twice their spread, give."""
    from pdenet_cli.uncertainty.calibration import Calibration
    from pdenet_cli.uncertainty.error_ratios import ErrorRatios

    rng = np.random.default_rng(0)
    spread, stratum = np.ones((1, 60, 60), np.float32), rng.integers(0, 2, (1, 60, 60))
    scenes = [ErrorRatios.of(2 * rng.normal(size=spread.shape), spread, stratum, spread > 0) for _ in range(2)]
    return Calibration.fit(scenes, samples=4, scenes=[{"name": "a"}, {"name": "b"}], **settings)


@pytest.fixture
def scene(tmp_path):
    """A small georeferenced ENVI scene."""
    pixels = np.random.default_rng(0).integers(100, 9000, (5, 40, 30), dtype="<i2")
    pixels[:, :6, :6] = -999
    return written(
        tmp_path / "scene.hdr",
        pixels,
        interleave="bil",
        wavelengths=(450, 550, 650, 750, 850),
        wavelength_units="Nanometers",
        nodata=-999.0,
        reflectance_scale=10000.0,
        georeference=Georeference((500000.0, 30.0, 0.0, 4649000.0, 0.0, -30.0), "EPSG:32616"),
    )


@pytest.fixture(scope="module")
def cubes(tmp_path_factory):
    """A folder of three small cubes to learn from, one of them deeper down, and a file that is none."""
    folder = tmp_path_factory.mktemp("cubes")
    (folder / "deeper").mkdir()
    written(folder / "a.hdr", picture(12, 64, 72))
    written(folder / "deeper" / "b.hdr", picture(40, 50, 48, seed=1))
    written(folder / "small.hdr", picture(3, 17, 20, seed=2))
    (folder / "notes.txt").write_text("not a cube")
    return folder


@pytest.fixture(scope="module")
def scenes(cubes):
    """The three as training reads them."""
    from pdenet_cli.training.data import Scene
    from pdenet_cli.training.find_cubes import find_cubes

    return [Scene.read(cube) for cube in find_cubes((cubes,))]


@pytest.fixture
def bicubic(pdenet, scene):
    """Runs `upscale SCENE -o OUTPUT` without a network; the return code, and the line that was said."""

    def run(output, *words, of=scene):
        ran = pdenet("upscale", of, "-o", output, "--model", "bicubic", *words)
        return ran.returncode, " ".join(ran.stderr.split())

    return run
