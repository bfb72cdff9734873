"""`pdenet doctor`: what this installation and this machine can do, and why not where they cannot."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import imagecodecs
import torch

from pdenet_cli import __version__
from pdenet_cli.models.catalogue import available_models
from pdenet_cli.models.networks import winograd
from pdenet_cli.models.networks.compiled import cache_folder
from pdenet_cli.system import free_memory, usable_cores

LIBRARIES = ("torch", "numpy", "scipy", "h5py", "tifffile", "imagecodecs", "spectral", "safetensors", "matplotlib")
OPTIONAL = ("zarr", "dask", "distributed")
CODECS = ("DEFLATE", "ZSTD", "LZW", "LERC", "JPEG", "JPEG2K", "LZMA", "WEBP")
CLUSTER = {"zarr": (3, 1, 3), "dask": (2024, 8), "distributed": (2024, 8)}  # the oldest that will do


def examine() -> dict[str, Any]:
    """All of it, as JSON holds it."""
    return {
        "pdenet": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libraries": {name: _version(name) for name in (*LIBRARIES, *OPTIONAL)},
        "models": sorted(available_models()),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "memory": free_memory(),
        "devices": _devices(),
        "kernel": _kernel(),
        "cache": _cache(),
        "codecs": {name.lower(): bool(getattr(imagecodecs, name).available) for name in CODECS},
        "workers": _workers(),
    }


def _version(name: str) -> str | None:
    """The version of a library, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]]:
    """The CPU and every GPU that torch sees."""
    cpu = {"name": "cpu", "is": platform.processor() or platform.machine()}
    found: list[dict[str, Any]] = [cpu | {"instructions": torch.backends.cpu.get_cpu_capability()}]
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append({"name": f"cuda:{number}", "is": name, "free": free, "memory": total})
    if torch.backends.mps.is_available():
        found.append({"name": "mps", "is": "Apple"})
    return found


def _kernel() -> dict[str, Any]:
    """What computes networks on the CPU, and why."""
    why = winograd.why_no_kernel()
    return {"in_use": winograd.kernel_name(), "why": why or "compiled on this machine, and agrees with torch"}


def _cache() -> dict[str, Any]:
    """The folder of compiled kernels."""
    folder = cache_folder()
    try:
        kernels = list(folder.glob("winograd-*.so"))
        there = next(place for place in (folder, *folder.parents) if place.exists())
        usable = os.access(there, os.W_OK)
        size = sum(path.stat().st_size for path in kernels)
    except OSError as error:
        return {"folder": str(folder), "writable": False, "why": error.strerror}
    return {"folder": str(folder), "writable": usable, "kernels": len(kernels), "bytes": size}


def _workers() -> dict[str, Any]:
    """Whether work can be spread over processes and machines, and why not."""
    for name, oldest in CLUSTER.items():
        found = _version(name)
        if found is None or _numbers(found) < oldest:
            wanted = ".".join(map(str, oldest))
            met = f"{name} {found} is too old" if found else f"{name} is not installed"
            return {"usable": False, "why": f"{met}; {wanted} or later is needed: pip install '.[cluster]'"}
    return {"usable": True, "why": None}


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())
