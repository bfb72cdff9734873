"""The elements inside a variable of a MAT v5 file, checked before SciPy reads them.

SciPy allocates as many cells and fields as are declared, and crashes on numbers of an unknown type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

import numpy as np

MATRIX, CHAR, SPARSE = 14, 4, 5
CONTAINERS = {1: (), 2: (5, 1), 3: (1, 5, 1)}
"""Cell arrays, structs and objects, and the types of the parts before what they contain."""

FUNCTIONS = {16: [6, 5, 1, MATRIX], 17: [6, 1, 1, 1, MATRIX]}
"""Function handles and objects of newer kinds, and the types of all their parts."""

CLASS_BYTES = {6: 8, 7: 4, 8: 1, 9: 1, 10: 2, 11: 2, 12: 4, 13: 4, 14: 8, 15: 8}
STORED_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
TEXTS = (1, 2, 4, 16, 17, 18)
DEEPEST = 32  # levels of containers; SciPy follows any number, until the process crashes
TAG_BYTES = 8
CELL_BYTES = 100  # about; of memory for a cell besides its content
COMPLEX_FLAG, LOGICAL_FLAG = 0x0800, 0x0200

Part = tuple[int, int, memoryview]
"""An element: its type, the length of its content, and the content or what is known of it."""


def check_head(head: bytes, order: str, nbytes: int) -> tuple[int, bool]:
    """The class of a variable of `nbytes`, of which `head` are the first, and whether it is complex.

    ValueError if it cannot be read.

    Only that of numbers is checked whole, as only these are read without `check_nested`.
    """
    parts = list(_parts(memoryview(head), order, nbytes))
    kind, flags = _class(parts, order)
    stored, count, _ = parts[3] if len(parts) > 3 else (0, 0, b"")
    if kind in CLASS_BYTES and math.prod(_sizes(parts, order)) * STORED_BYTES.get(stored, 0) != count:
        raise ValueError(f"{count:,} bytes are not what an array of size {_sizes(parts, order)} has")
    if kind == CHAR and stored not in TEXTS:
        raise ValueError(f"a text of the unknown type {stored}")
    if flags & LOGICAL_FLAG and kind != SPARSE and kind not in CLASS_BYTES:
        raise ValueError(f"true and false in something of class {kind}")
    return kind, bool(flags & COMPLEX_FLAG)


def check_nested(content: memoryview, order: str, depth: int = 0) -> int:
    """The bytes of memory that a matrix takes; ValueError if it lacks a part that its class and size ask for."""
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} levels of structs and cells")
    parts = list(_parts(content, order, len(content)))
    if not parts:
        return 0  # an empty field
    kind, flags = _class(parts, order)
    codes = [code for code, _, _ in parts]
    if codes == FUNCTIONS.get(kind):
        return check_nested(parts[-1][2], order, depth + 1)
    if kind not in (*CONTAINERS, CHAR, SPARSE, *CLASS_BYTES):
        raise ValueError(f"a part of the unknown class {kind}")
    if kind in CONTAINERS:
        _check_container(parts, order, CONTAINERS[kind])
        return sum(check_nested(part, order, depth + 1) + CELL_BYTES for code, _, part in parts if code == MATRIX)
    halves = 2 if flags & COMPLEX_FLAG else 1
    items = math.prod(_sizes(parts, order))
    _check_numbers(parts[3:], kind, halves, items)
    return items * CLASS_BYTES[kind] * halves if kind in CLASS_BYTES else len(content)


def _check_container(parts: list[Part], order: str, heads: Sequence[int]) -> None:
    """ValueError if a struct or cell array has other parts than its `heads` and a matrix for each item."""
    items = math.prod(_sizes(parts, order))
    if heads[1:]:  # a struct: the width of its names, then all names
        width = int.from_bytes(parts[3][2][:4], "little" if order == "<" else "big")
        items *= parts[2 + len(heads)][1] // max(1, width)
    found = [code for code, _, _ in parts[3:]]
    if found[: len(heads)] != list(heads) or found[len(heads) :] != [MATRIX] * items:
        raise ValueError(f"{items:,} fields or cells declared, {len(found):,} parts found")


def _check_numbers(numbers: Sequence[Part], kind: int, halves: int, items: int) -> None:
    """ValueError if the parts of an array of numbers, or of a text, are not those of its class and size."""
    types = [TEXTS] if kind == CHAR else [STORED_BYTES] * (halves + (2 if kind == SPARSE else 0))
    if len(numbers) != len(types) or any(part[0] not in known for part, known in zip(numbers, types, strict=True)):
        raise ValueError("a part that is not of its class")
    if kind in CLASS_BYTES and any(items != count / STORED_BYTES.get(code, 1) for code, count, _ in numbers):
        raise ValueError(f"{items:,} numbers declared, not what its bytes are")


def _class(parts: list[Part], order: str) -> tuple[int, int]:
    """The class of a matrix and its flags."""
    if not parts or len(parts[0][2]) < 4:
        raise ValueError("a part without a class")
    (flags,) = struct.unpack(order + "I", parts[0][2][:4])
    return flags & 0xFF, flags


def _sizes(parts: list[Part], order: str) -> list[int]:
    if [code for code, _, _ in parts[:3]] != [6, 5, 1] or parts[1][1] % 4:
        raise ValueError("a part without size or name")
    sizes: list[int] = np.frombuffer(parts[1][2], order + "i4").tolist()
    if min(sizes, default=-1) < 0:
        raise ValueError(f"the impossible size {sizes}")
    return sizes


def _parts(content: memoryview, order: str, length: int) -> Iterator[Part]:
    """Each element in turn; `content` may be only the beginning of what has `length` bytes."""
    place = 0
    while place + TAG_BYTES <= len(content):
        first, count = struct.unpack(order + "II", content[place : place + TAG_BYTES])
        start = place + TAG_BYTES
        if first >> 16:  # up to four bytes of content are inside the tag
            first, count, start, end = first & 0xFFFF, first >> 16, place + 4, start
        else:
            end = start + (count if first == MATRIX else -(-count // 8) * 8)
        if first != MATRIX and first not in STORED_BYTES and first not in TEXTS:
            raise ValueError(f"a part of the unknown type {first}")
        if start + count > length or end < start + count:
            raise ValueError(f"a part of {count:,} bytes, more than there are")
        yield first, count, content[start : start + count]
        place = end
