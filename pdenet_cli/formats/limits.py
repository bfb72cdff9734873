"""How far a file's claims are believed: as far as its own bytes and the machine's memory reach."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from pdenet_cli.errors import FormatError, ResourceError

MOST_EXPANSION = 1032
"""What deflate makes of one byte at the very best; a file that claims to hold more than that lies."""

UNWRITTEN_BYTES = 1 << 20
"""What a sparse array is taken to hold at least: chunks of nothing but the fill value need not be there."""

UNTOLD_MEMORY = 4 << 30


def refuse_lie(
    path: Path, name: str, shape: tuple[int, ...], itemsize: int, held: int, *, sparse: bool = False
) -> None:
    """Stop where a shape of this size cannot come out of the bytes that are there, however compressed."""
    declared = math.prod(shape) * itemsize
    if declared > max(held, UNWRITTEN_BYTES if sparse else 0) * MOST_EXPANSION:
        raise FormatError(f"{path}: {name} declares {declared:,} bytes {shape}, but the file holds only {held:,}.")


def refuse_large_block(path: Path, name: str, nbytes: int) -> None:
    """Stop where the smallest part that can be read at once would take over a quarter of the free memory."""
    if nbytes > free_memory() // 4:
        raise FormatError(
            f"{path}: {name} is stored in blocks of {nbytes:,} bytes, too many to read. Save it in smaller ones."
        )


def refuse_whole(path: Path, name: str, nbytes: int) -> None:
    """Stop where a variable that can only be read as a whole does not fit into the free memory."""
    free = free_memory()
    if nbytes > free // 2:
        raise ResourceError(
            f"{path}: {name} must be read as a whole: {nbytes:,} bytes with {free:,} free. "
            "Save it uncompressed or as -v7.3, which are read in parts."
        )


def free_memory() -> int:
    """Bytes of memory that can be had without swapping, and without the limit that a container or a job has."""
    return min(
        _free_of_machine(Path("/proc/meminfo")), _free_of_group(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    )


def _free_of_group(membership: Path, groups: Path) -> int:
    """What the process's control group and those around it still allow (Linux, version 2)."""
    free = sys.maxsize
    try:
        group = next(line[3:] for line in membership.read_text().splitlines() if line.startswith("0::")).strip("/")
    except (OSError, StopIteration):
        return free
    own = groups / group
    for folder in (own, *own.parents):
        try:
            limit, used = (int((folder / f"memory.{what}").read_text()) for what in ("max", "current"))
            told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cache = int(told.get("inactive_file", 0))  # given back where it is needed
            free = min(free, max(0, limit - used + cache))
        except (OSError, ValueError):
            pass  # no such group, or no limit ("max")
        if folder == groups:
            break
    return free


def _free_of_machine(told: Path) -> int:
    """What Linux tells, elsewhere half of what the machine has, and where nothing is told 4 GiB."""
    try:
        lines = told.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # Windows has no such question
        return UNTOLD_MEMORY
    return pages * size // 2 if pages > 0 and size > 0 else UNTOLD_MEMORY
