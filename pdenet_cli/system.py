"""What the machine offers a run: memory, devices, and how the process uses them."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pdenet_cli.errors import ResourceError, UsageError

if TYPE_CHECKING:
    import torch

MEMORY_SHARE = 0.5  # share of the free memory that a run without `memory` uses
MOST_THREADS = 1024
UNKNOWN_MEMORY = 4 << 30  # bytes assumed to be free where the system does not say
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # from glibc's malloc.h


def usable_memory(device: torch.device) -> int:
    """The bytes that a run on `device` may use if the user gives no limit."""
    if device.type == "cuda":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        # Samples and maps are kept in the memory of the machine.
        free = min(torch.cuda.mem_get_info(device)[0] + cached, free_memory())
    else:
        return_freed_memory()  # what the previous scene used
        free = free_memory()
    return int(free * MEMORY_SHARE)


def free_memory() -> int:
    """Bytes available without swapping and within the memory limits of the container or batch job."""
    return min(
        _free_of_machine(Path("/proc/meminfo")), _free_of_group(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    )


def _free_of_group(membership: Path, groups: Path) -> int:
    """What the limits of the process's control group and its parents leave (Linux, cgroup version 2)."""
    free = sys.maxsize
    try:
        group = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::")).strip("/")
    except (OSError, StopIteration):
        return free
    group_folder = groups / group
    for folder in (group_folder, *group_folder.parents):
        try:
            limit, used = (int((folder / f"memory.{what}").read_text()) for what in ("max", "current"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cache = int(stat.get("inactive_file", 0))  # the kernel reclaims it on demand
            free = min(free, max(0, limit - used + cache))
        except (OSError, ValueError):
            pass  # no such group, or no limit ("max")
        if folder == groups:
            break
    return free


def _free_of_machine(meminfo: Path) -> int:
    """What Linux says is available; elsewhere half of the installed memory."""
    try:
        lines = meminfo.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # Windows has no sysconf
        return UNKNOWN_MEMORY
    return pages * size // 2 if pages > 0 and size > 0 else UNKNOWN_MEMORY


def keep_freed_memory() -> None:
    """Let the process keep the memory it frees: feature maps reuse it instead of being mapped and zeroed again."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def return_freed_memory() -> None:
    """Return the freed memory that the process keeps to the system; call before asking how much is free."""
    if sys.platform != "linux":
        return
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is a GPU where one can be used."""
    import torch

    if name != "auto":
        return _usable(name)
    for gpu, is_there in (("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)):
        with suppress(ResourceError):
            if is_there():
                return _usable(gpu)
    return torch.device("cpu")


def _usable(name: str) -> torch.device:
    """The device of this name, after a try: it may be too old, or taken by another program."""
    import torch

    try:
        device = torch.device(name)
        torch.ones(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).split("\n")[0]
        raise ResourceError(f"Device '{name}' cannot be used here ({why}). Try auto or cpu.") from error
    return device


def tune_process() -> None:
    """Flush denormals to zero, keep freed memory in the process, and use full single precision on GPUs.

    Best called before the first tensor; calling it again does no harm.
    """
    import torch

    # TF32, the default of GPU convolutions, keeps 10 bits: its error is as large as the std of a clean scene.
    torch.backends.cudnn.allow_tf32 = False
    torch.set_flush_denormal(True)  # masks near zero make denormals, which are a hundred times slower
    keep_freed_memory()


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_threads(count: int | None) -> None:
    """Let torch use `count` threads; None: its own default."""
    if count is not None:
        import torch

        if not 1 <= count <= MOST_THREADS:
            raise UsageError(f"`threads` {count}: use a number from 1 to {MOST_THREADS}.")
        torch.set_num_threads(count)
