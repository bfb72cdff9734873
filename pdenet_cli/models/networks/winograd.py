"""A unit of PDE-Net in compiled code, winograd.c: built on first use; where that fails, torch computes it.

Only inference on a CPU uses it. PDENET_KERNEL=off leaves everything to torch.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
_Kernel = Callable[..., int]


def unit(features: list[Tensor], compress: Tensor, *convolutions: Tensor) -> Tensor | None:
    """The output of a unit with these weights, (n, bands, h, w, channels); None: torch must compute it."""
    if torch.is_grad_enabled() or len(compress) % 16 or features[0].numel() == 0:
        return None
    if any(x.device.type != "cpu" or x.dtype != torch.float32 for x in (*features, compress)):
        return None
    kernel = load_kernel()
    return None if kernel is None else _run(kernel, features, compress, convolutions)


def _run(
    kernel: _Kernel, features: list[Tensor], compress: Tensor, convolutions: tuple[Tensor, ...]
) -> Tensor | None:
    features = [feature.contiguous() for feature in features]
    weights = [
        compress.t().contiguous(),
        *map(_transformed, convolutions),
    ]  # keep them alive until the kernel is done
    *shape, depth = features[0].shape
    x = features[0].new_empty(*shape, len(compress))
    squeeze, *transformed = (weight.data_ptr() for weight in weights)
    failed = kernel(
        _pointers(feature.data_ptr() for feature in features),
        *map(ctypes.c_long, (len(features), depth)),
        ctypes.c_void_p(squeeze),
        _pointers(transformed[:2]),
        _pointers(transformed[2:]),
        ctypes.c_void_p(x.data_ptr()),
        *map(ctypes.c_long, x.shape),
        torch.get_num_threads(),
    )
    return None if failed else x


def _pointers(addresses: Iterable[int]) -> "ctypes.Array[ctypes.c_void_p]":
    pointers = [ctypes.c_void_p(address) for address in addresses]
    return (ctypes.c_void_p * len(pointers))(*pointers)


def _transformed(weight: Tensor) -> Tensor:
    """Weights in Winograd's frequencies, (out, in, 3, 3 or 1) -> (36 or 6, in·out)."""
    taps = weight.permute(2, 3, 1, 0).flatten(0, 1).flatten(1)  # (9 or 3, in·out)
    # In double, so that the result does not depend on the number of threads or the BLAS.
    return (_taps_to_frequencies(weight.shape[3]) @ taps.double()).float()


@cache
def _taps_to_frequencies(across: int) -> Tensor:
    """The matrix from three or 3x3 taps to Winograd's points 0, ±√½, ±√2 and infinity, (6, 3) or (36, 9)."""
    rows = [[1.0, 0.0, 0.0]]
    for square, other in ((0.5, 2.0), (2.0, 0.5)):
        scale = 2 * square * (square - other)
        rows += [[1 / scale, point / scale, square / scale] for point in (square**0.5, -(square**0.5))]
    down = torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64)
    return torch.kron(down, down) if across == 3 else down


@cache
def load_kernel() -> _Kernel | None:
    """The compiled kernel; None if this machine cannot build it or it does not agree with torch."""
    if os.environ.get("PDENET_KERNEL") == "off" or os.name != "posix":
        return None
    if platform.machine() not in ("x86_64", "AMD64") or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None
    try:
        kernel: _Kernel = ctypes.CDLL(str(_compiled())).unit
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError):
        return None
    return kernel if _agrees(kernel) else None


def _compiled() -> Path:
    """The library in the user's cache, named by a hash of all it depends on: source, compiler and CPU."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    macros = _call(compiler, *_FLAGS, "-E", "-dM", "-x", "c", os.devnull)
    key = hashlib.sha256(_SOURCE.read_bytes() + macros).hexdigest()[:16]
    library = _cache_folder() / f"winograd-{key}.so"
    if not library.exists():
        # Built beside and renamed, so that no other process loads a part of it.
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
    """Whether the kernel gives what torch gives, on a small case."""
    generator = torch.Generator().manual_seed(0)
    features = [torch.rand(1, 5, 6, 7, 16, generator=generator) for _ in range(2)]
    shapes = ((32, 32), (32, 32, 3, 1), (32, 32, 3, 1), (32, 32, 3, 3), (32, 32, 3, 3))
    compress, *convolutions = (torch.randn(shape, generator=generator) / 10 for shape in shapes)
    x = torch.cat(features, dim=-1)[0].permute(3, 0, 1, 2)  # (channels, bands, h, w)
    x = F.conv3d(x, compress[..., None, None, None]).relu()
    kernels = [w[..., None] if w.shape[3] == 1 else w[:, :, None] for w in convolutions]
    for first, second in (kernels[:2], kernels[2:]):
        x = x + F.conv3d(F.conv3d(x, first, padding="same").relu(), second, padding="same")
    result = _run(kernel, features, compress, tuple(convolutions))
    return result is not None and torch.allclose(result[0].permute(3, 0, 1, 2), x, rtol=1e-5, atol=1e-5)
