"""A unit of PDE-Net in compiled code, winograd.c: built on first use; where that fails, torch computes it.

PDENET_KERNEL=off leaves everything to torch; PDENET_CACHE_DIR is the folder for what is compiled.
"""

import ctypes
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pdenet_cli.models.networks.compiled import compiled

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("winograd.h", "winograd.c", "winograd_gradients.c"))
Weights = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # of a unit: compress, two spectral, two spatial ones


class Kernel:
    """The compiled functions of a library."""

    def __init__(self, library: Path) -> None:
        functions = ctypes.CDLL(str(library))
        self.unit: Callable[..., int] = functions.unit
        self.gradients: Callable[..., int] = functions.unit_gradients


def unit(features: list[Tensor], compress: Tensor, *convolutions: Tensor) -> Tensor | None:
    """The output of a unit with these weights, (n, bands, h, w, channels); None: torch must compute it."""
    if torch.is_grad_enabled() or not _can_take(features[0], [compress]):
        return None
    if any(x.device.type != "cpu" or x.dtype != torch.float32 for x in features):
        return None
    kernel = load_kernel()
    return None if kernel is None else _run(kernel, features, (compress, *convolutions))


def units(start: Tensor, weights: list[Weights]) -> Tensor | None:
    """The last of several units, the first of which takes `start` and each other all before it; with gradients.

    None: torch must compute them.
    """
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in chain([start], *weights)):
        return None
    if start.shape[-1] % 16 or not _can_take(start, [of_unit[0] for of_unit in weights]):
        return None
    if load_kernel() is None:
        return None
    last: Tensor = _Units.apply(start, *chain(*weights))  # type: ignore[no-untyped-call]
    return last


def _can_take(x: Tensor, compress: list[Tensor]) -> bool:
    """Whether the kernel is made for such features and weights."""
    if x.numel() == 0 or any(len(weight) % 16 for weight in compress):
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in (x, *compress))


class _Units(torch.autograd.Function):
    """Units from the start to the last one, and back: the gradients of all features are summed in the kernel."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, *flat: Tensor) -> Tensor:
        kernel = load_kernel()
        assert kernel is not None
        features = [start.contiguous()]
        kept: list[Tensor] = []
        for weights in _fives(flat):
            # After compression, within and after the spectral step, within the spatial one.
            between = tuple(start.new_empty(*start.shape[:4], len(weights[0])) for _ in range(4))
            x = _run(kernel, features[1:] or features, weights, between)
            if x is None:
                raise MemoryError("There is no memory left for a unit of the network.")
            features.append(x)
            kept += between
        ctx.save_for_backward(*flat, *features[:-1], *kept)
        ctx.count = len(flat) // 5
        return features[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, ...]:
        kernel = load_kernel()
        assert kernel is not None
        saved, count = ctx.saved_tensors, ctx.count
        features, kept = saved[5 * count : 6 * count], saved[6 * count :]
        gradients = [torch.empty_like(x) for x in features] + [
            upstream[0].clone(memory_format=torch.contiguous_format)
        ]
        of_weights: list[Tensor] = []
        for i in reversed(range(count)):
            places = slice(1, i + 1) if i else slice(0, 1)
            of_weights[:0] = _run_back(
                kernel, features[places], saved[5 * i : 5 * i + 5], kept[4 * i : 4 * i + 4], gradients[i + 1],
                gradients[places], add=0 < i < count - 1,
            )  # fmt: skip
        return gradients[0], *of_weights


def _fives(flat: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    return (flat[i : i + 5] for i in range(0, len(flat), 5))


def _run(
    kernel: Kernel, features: list[Tensor], weights: tuple[Tensor, ...], kept: tuple[Tensor, ...] = ()
) -> Tensor | None:
    features = [feature.contiguous() for feature in features]
    compress = weights[0].t().contiguous()
    transformed = [_transformed(weight) for weight in weights[1:]]  # kept alive until the kernel is done
    *shape, depth = features[0].shape
    x = features[0].new_empty(*shape, len(weights[0]))
    failed = kernel.unit(
        _pointers(features),
        *map(ctypes.c_long, (len(features), depth)),
        ctypes.c_void_p(compress.data_ptr()),
        _pointers(transformed[:2]),
        _pointers(transformed[2:]),
        _pointers(kept) if kept else None,
        ctypes.c_void_p(x.data_ptr()),
        *map(ctypes.c_long, (*x.shape, torch.get_num_threads())),
    )
    return None if failed else x


def _run_back(
    kernel: Kernel,
    features: tuple[Tensor, ...],
    weights: tuple[Tensor, ...],
    kept: tuple[Tensor, ...],
    upstream: Tensor,
    gradients: list[Tensor],
    *,
    add: bool,
) -> list[Tensor]:
    """The gradients of a unit's weights; those of its features are put into, or added to, `gradients`."""
    width, depth = len(weights[0]), features[0].shape[-1]
    spread = weights[0].view(width, len(features), depth).transpose(0, 1).contiguous()
    # The gradient of an input is a convolution with flipped weights, their inputs and outputs exchanged.
    transformed = [_transformed(weight.flip(2, 3).transpose(0, 1)) for weight in weights[1:]]
    of_compress = upstream.new_empty(weights[0].shape[::-1])
    of_taps = [upstream.new_empty(w.shape[2] * w.shape[3], width, width) for w in weights[1:]]
    failed = kernel.gradients(
        _pointers(features),
        _pointers(gradients),
        *map(ctypes.c_long, (len(features), depth, add)),
        ctypes.c_void_p(spread.data_ptr()),
        _pointers(transformed[:2]),
        _pointers(transformed[2:]),
        _pointers(kept),
        ctypes.c_void_p(upstream.data_ptr()),
        ctypes.c_void_p(of_compress.data_ptr()),
        _pointers(of_taps[:2]),
        _pointers(of_taps[2:]),
        *map(ctypes.c_long, (*upstream.shape, torch.get_num_threads())),
    )
    if failed:
        raise MemoryError("There is no memory left for the gradients of a unit of the network.")
    convolutions = [taps.permute(2, 1, 0).reshape(w.shape) for taps, w in zip(of_taps, weights[1:], strict=True)]
    return [of_compress.t().contiguous(), *convolutions]


def _pointers(tensors: Iterable[Tensor]) -> "ctypes.Array[ctypes.c_void_p]":
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
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
    for square, second in ((0.5, 2.0), (2.0, 0.5)):
        scale = 2 * square * (square - second)
        rows += [[1 / scale, point / scale, square / scale] for point in (square**0.5, -(square**0.5))]
    down = torch.tensor([*rows, [0.0, 0.0, 1.0]], dtype=torch.float64)
    return torch.kron(down, down) if across == 3 else down


@cache
def load_kernel() -> Kernel | None:
    """The compiled kernel; None if this machine cannot build it or it does not agree with torch."""
    return _found()[0]


def is_off() -> bool:
    """Whether the user wants none."""
    return os.environ.get("PDENET_KERNEL") == "off"


def why_no_kernel() -> str | None:
    """Why there is no compiled kernel here; None: there is one."""
    return None if load_kernel() is not None else _found()[1]


def _found() -> tuple[Kernel | None, str | None]:
    """The kernel, or why there is none."""
    if is_off():
        return None, "PDENET_KERNEL is off"
    if os.name != "posix" or platform.machine() not in ("x86_64", "AMD64"):
        return (
            None,
            f"it is made for x86-64 under Linux and macOS, not {platform.system()} on {platform.machine()}",
        )
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return None, "this CPU has no AVX2"
    try:
        kernel = Kernel(_compiled())
    except FileNotFoundError:
        return None, "there is no C compiler (cc, gcc)"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, f"the C compiler failed ({lines[0][:200] if lines else error.returncode})"
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as error:
        return None, " ".join(str(error).split())[:300]
    return (kernel, None) if _agrees(kernel) else (None, "it does not give what torch gives")


def kernel_name() -> str:
    """What computes a unit on the CPU of this machine: the kernel as it is compiled here, or torch."""
    return "torch" if load_kernel() is None else _compiled().stem


def _compiled() -> Path:
    return compiled("winograd", _SOURCES[:1], _SOURCES[1:])


@torch.no_grad()
def _agrees(kernel: Kernel) -> bool:
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
    result = _run(kernel, features, (compress, *convolutions))
    return result is not None and torch.allclose(result[0].permute(3, 0, 1, 2), x, rtol=1e-5, atol=1e-5)
