"""How far a file's claims are believed: as far as its own bytes and the machine's memory reach."""

from __future__ import annotations

import math
from pathlib import Path

from pdenet_cli.errors import FormatError, ResourceError
from pdenet_cli.memory import free_memory

MOST_EXPANSION = 1032
"""What deflate makes of one byte at the very best; a file that claims to hold more than that lies."""

UNWRITTEN_BYTES = 1 << 20
"""What a sparse array is taken to hold at least: chunks of nothing but the fill value need not be there."""


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
