"""Limits for what a file claims to hold: its own size, and the memory of the machine."""

from __future__ import annotations

import math
from pathlib import Path

from pdenet_cli.errors import FormatError, ResourceError
from pdenet_cli.system import free_memory

MOST_EXPANSION = 1032
"""Largest ratio that deflate reaches; a file that claims to expand more is damaged or hostile."""

UNWRITTEN_BYTES = 1 << 20
"""Bytes that a sparse array is assumed to hold at least: chunks with only the fill value need not be stored."""


def refuse_impossible_size(
    path: Path, name: str, shape: tuple[int, ...], itemsize: int, held: int, *, sparse: bool = False
) -> None:
    """Stop if an array of this shape cannot be stored in `held` bytes, however compressed."""
    declared = math.prod(shape) * itemsize
    if declared > max(held, UNWRITTEN_BYTES if sparse else 0) * MOST_EXPANSION:
        raise FormatError(f"{path}: {name} declares {declared:,} bytes {shape}, but the file holds only {held:,}.")


LARGE_BLOCK = 256 << 20
"""Bytes of a block that is believed however few of them are stored."""

USUAL_EXPANSION = 100
"""Ratio up to which a large block is believed; images reach 2 to 10, those with much nodata some more."""


def refuse_large_block(path: Path, name: str, nbytes: int, held: int) -> None:
    """Stop if the smallest part that can be read takes more than a quarter of the free memory.

    Or if it is large, but stored in so few of the `held` bytes of the file that it cannot be an image.
    """
    if nbytes > LARGE_BLOCK and nbytes > held * USUAL_EXPANSION:
        raise FormatError(f"{path}: {name} is a block of {nbytes:,} bytes in a file of {held:,}: not an image.")
    if nbytes > free_memory() // 4:
        raise FormatError(
            f"{path}: {name} is stored in blocks of {nbytes:,} bytes, too many to read. Save it in smaller ones."
        )


def refuse_whole(path: Path, name: str, nbytes: int) -> None:
    """Stop if a variable that can only be read as a whole takes more than half of the free memory."""
    free = free_memory()
    if nbytes > free // 2:
        raise ResourceError(
            f"{path}: {name} must be read as a whole: {nbytes:,} bytes with {free:,} free. "
            "Save it as -v7.3, which is read in parts."
        )
