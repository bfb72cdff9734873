"""A check of HDF5's global heaps (texts, references): in a damaged one the library loops forever."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from pdenet_cli.errors import FormatError

SIGNATURE = b"GCOL\x01\0\0\0"
REACH = 64 << 20  # bytes searched at either end of a file, where heaps are


def refuse_damaged_heaps(path: Path) -> None:
    """Stop if the objects of a heap do not fill it exactly."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        for start, end in ((0, REACH), (max(REACH, size - REACH), size)):
            place = view.find(SIGNATURE, start, end)
            while place >= 0:
                if not _is_whole(view, place):
                    raise FormatError(f"{path}: a damaged HDF5 file (its heap at byte {place:,}). Copy it again.")
                place = view.find(SIGNATURE, place + len(SIGNATURE), end)


def _is_whole(view: mmap.mmap, heap: int) -> bool:
    place = heap + 16
    if place > len(view):
        return False
    end = heap + int.from_bytes(view[heap + 8 : place], "little")
    while end - place >= 16:
        if end > len(view):
            return False
        index, _, _, length = struct.unpack("<HHIQ", view[place : place + 16])
        # Object 0 is the free space, its header included.
        place += length if index == 0 else 16 + -(-length // 8) * 8
        if (index == 0 and length < 16) or place > end:
            return False
    return True
