"""HDF5's heaps of texts and references, walked before the library does: in a damaged one it would never end."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from pdenet_cli.errors import FormatError

SIGNATURE = b"GCOL\x01\0\0\0"
REACH = 64 << 20  # heaps lie with the other small things at the start of a file, or were added at its end


def refuse_damaged_heaps(path: Path) -> None:
    """Stop where the objects of a heap do not follow each other to its end."""
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
        place += length if index == 0 else 16 + -(-length // 8) * 8  # object 0 is the free rest, header included
        if (index == 0 and length < 16) or place > end:
            return False
    return True
