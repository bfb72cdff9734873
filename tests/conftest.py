"""What the tests share: where real cubes are, cubes made on the fly, and the command as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pdenet_cli import CubeMeta, create_cube

# Two test processes on two cores: one thread each, before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parent.parent

PEAK = """
def peak():
    # In kB, of this program alone: what getrusage tells begins with the memory of the parent.
    import re
    from pathlib import Path
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
"""Source of a function for programs that tests start: the most memory that they have held."""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads its peak memory from Linux's /proc")


@pytest.fixture(autouse=True)
def _usual_floats():
    """Undoes what a fast network sets for the whole process: Hypothesis wants its denormal numbers."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real cubes, named by PDENET_DATA; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("PDENET_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real cubes are not here: set PDENET_DATA ({folder})")
    return folder


@pytest.fixture
def pdenet():
    """Runs `pdenet ...` in its own process and returns exit code, output and errors."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pdenet_cli", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)

    return run


@pytest.fixture
def make_cube(tmp_path):
    """Writes a small cube of random numbers and returns its path and pixels."""

    def make(name="scene.hdr", bands=5, rows=9, columns=7, dtype="<u2", seed=0, **meta):
        pixels = np.random.default_rng(seed).integers(1, 120, (bands, rows, columns)).astype(dtype)
        path = tmp_path / name
        with create_cube(path, CubeMeta(bands, rows, columns, np.dtype(dtype), **meta)) as cube:
            cube.write(cube.meta.window, pixels)
        return path, pixels

    return make
