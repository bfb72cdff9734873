"""Two 3x3 or 3x1 convolutions and what they refine, in winograd.c: compiled on first use, and torch where it cannot be.

Only inference on a CPU gains by it. PDENET_KERNEL=off leaves everything to torch.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
_Kernel = Callable[..., int]


def refine_(image: Tensor, first: Tensor, second: Tensor) -> bool:
    """Add conv(relu(conv(image))) to (n, channels, rows, cols), channels last; False: left undone, for torch to do."""
    if torch.is_grad_enabled() or not _fits(image):
        return False
    kernel = load_kernel()
    return kernel is not None and _run(kernel, image, first, second)


def _fits(image: Tensor) -> bool:
    return (
        image.device.type == "cpu"
        and image.dtype == torch.float32
        and image.shape[1] % 16 == 0
        and image.numel() > 0
        and image.permute(0, 2, 3, 1).is_contiguous()
    )


def _run(kernel: _Kernel, image: Tensor, first: Tensor, second: Tensor) -> bool:
    n, channels, rows, cols = image.shape
    weights = [_transformed(weight) for weight in (first, second)]  # held until the kernel is done
    sizes = [ctypes.c_long(size) for size in (n, rows, cols, channels)]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (image, *weights)]
    across = 6 if first.shape[3] == 3 else 1
    return kernel(*pointers, *sizes, across, torch.get_num_threads()) == 0


def _transformed(weight: Tensor) -> Tensor:
    """What the kernel multiplies by, (out, in, 3, 3 or 1) -> (36 or 6, in·out)."""
    down = _taps_to_frequencies()
    both = torch.kron(down, down) if weight.shape[3] == 3 else down
    return (both @ weight.double().permute(2, 3, 1, 0).reshape(both.shape[1], -1)).float()


@cache
def _taps_to_frequencies() -> Tensor:
    """Three taps at Winograd's points 0, ±√½, ±√2 and infinity, (6, 3); winograd.c undoes the scaling."""
    rows = [[1.0, 0.0, 0.0]]
    for square, other in ((0.5, 2.0), (2.0, 0.5)):
        scale = 2 * square * (square - other)
        rows += [[1 / scale, point / scale, square / scale] for point in (square**0.5, -(square**0.5))]
    return torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64)


@cache
def load_kernel() -> _Kernel | None:
    """The compiled kernel, if this machine can build one and it agrees with torch."""
    if os.environ.get("PDENET_KERNEL") == "off" or os.name != "posix":
        return None
    if platform.machine() not in ("x86_64", "AMD64") or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None
    try:
        kernel: _Kernel = ctypes.CDLL(str(_compiled())).refine
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError):
        return None
    return kernel if _agrees(kernel) else None


def _compiled() -> Path:
    """The library in the user's cache, named after all it depends on: source, compiler and the CPU it sees."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    macros = _call(compiler, *_FLAGS, "-E", "-dM", "-x", "c", os.devnull)
    key = hashlib.sha256(_SOURCE.read_bytes() + macros).hexdigest()[:16]
    library = _cache_folder() / f"winograd-{key}.so"
    if not library.exists():
        # Beside and renamed: another process finds all of it or nothing.
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            beside = Path(folder) / library.name
            _call(compiler, *_FLAGS, str(_SOURCE), "-o", str(beside))
            beside.replace(library)
    return library


def _call(*command: str) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=120)
    return done.stdout


def _cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = (home if home.is_absolute() else Path.home() / ".cache") / "pdenet"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others, who could leave code there.")
    return folder


@torch.no_grad()
def _agrees(kernel: _Kernel) -> bool:
    """Whether the kernel gives what torch gives, on a small case of either kind."""
    generator = torch.Generator().manual_seed(0)
    for taps in ((3, 3), (3, 1)):
        image = torch.rand(2, 7, 9, 32, generator=generator).permute(0, 3, 1, 2)
        first, second = torch.randn(2, 32, 32, *taps, generator=generator) / 16
        pad = (1, taps[1] // 2)
        expected = image + F.conv2d(F.conv2d(image, first, padding=pad).relu(), second, padding=pad)
        if not _run(kernel, image, first, second) or not torch.allclose(image, expected, rtol=0, atol=1e-5):
            return False
    return True
