"""MAT v5 files: their variables, found without being loaded.

SciPy reads only whole variables, and allocates whatever size a header claims.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.common.limits import MOST_EXPANSION, refuse_whole
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.sliceable import Sliceable

HEADER_BYTES = 128
MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
STRUCT, CHAR = 2, 4
OTHERS = {1: "a cell array", STRUCT: "a struct array", 3: "an object", 5: "a sparse matrix"}
COMPLEX_FLAG = 0x0800
DEEPEST = 3  # levels of structs
SMALL_BYTES = 1 << 20  # vectors and texts up to this size are read at once, as metadata


@dataclass(frozen=True)
class InflatedArray:
    """The numbers of a compressed variable, all inflated on the first access."""

    path: Path
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    element: tuple[int, int]  # start and length of the compressed bytes in the file
    start: int  # where the numbers begin in the inflated bytes

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        return np.array(self._whole[key])

    @cached_property
    def _whole(self) -> Pixels:
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        refuse_whole(self.path, self.name, nbytes)
        with self.path.open("rb") as file:
            stream = _Stream(file, self.path, *self.element, compressed=True)
            stream.skip_to(self.start)
            return np.frombuffer(stream.read(nbytes), self.dtype).reshape(self.shape)


class _Stream:
    """The bytes of one variable in order, inflated if they are compressed."""

    def __init__(self, file: BinaryIO, path: Path, start: int, length: int, *, compressed: bool) -> None:
        self.file, self.path, self.start, self.left = file, path, start, length
        self.inflate = zlib.decompressobj() if compressed else None
        self.position = 0
        self.back = b""
        file.seek(start)

    def read(self, count: int) -> bytearray:
        taken = bytearray()
        while len(taken) < count:
            piece = self._piece(min(count - len(taken), 1 << 20))
            if not piece:
                raise FormatError(f"{self.path}: a variable is cut off. Copy the file again.")
            taken += piece
        self.position += count
        return taken

    def unread(self, piece: bytes) -> None:
        self.back, self.position = piece, self.position - len(piece)

    def skip_to(self, position: int) -> None:
        if position < self.position:
            raise FormatError(f"{self.path}: damaged: one part of a variable runs into the next.")
        if self.inflate is None:
            self.left -= position - self.position - len(self.back)
            self.file.seek(self.start + position)
            self.back, self.position = b"", position
        while self.position < position:
            self.read(min(position - self.position, 1 << 20))

    def _piece(self, most: int) -> bytes:
        if self.back:
            piece, self.back = self.back[:most], self.back[most:]
            return piece
        if self.inflate is None:
            piece = self.file.read(max(0, min(most, self.left)))
            self.left -= len(piece)
            return piece
        try:
            while not self.inflate.eof:
                packed = self.inflate.unconsumed_tail or self.file.read(min(1 << 16, self.left))
                self.left -= 0 if self.inflate.unconsumed_tail else len(packed)
                piece = self.inflate.decompress(packed, most)
                if piece or not packed:
                    return piece
        except zlib.error as error:
            raise FormatError(f"{self.path}: a compressed variable is damaged ({error}).") from error
        return b""


def variables(path: Path) -> list[Variable]:
    """Every variable of the file, and those inside its structs as `struct.field`; pixels stay on disk."""
    size = path.stat().st_size
    found: list[Variable] = []
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
        order = "<" if head[126:128] == b"IM" else ">"
        place = HEADER_BYTES
        while place < size:
            file.seek(place)
            tag = file.read(8)
            kind, count = struct.unpack(order + "II", tag.ljust(8, b"\0"))
            missing = place + 8 + count - size
            if missing > 0 and any(tag):  # some writers leave zeros after the last variable
                raise FormatError(f"{path}: the file ends {missing:,} bytes too early. Copy it again.")
            found += _Reader(file, path, order, (place + 8, count), kind).variables()
            place += 8 + count
    return found


class _Reader:
    """Reads the description of a variable from its top-level element; its numbers stay on disk."""

    def __init__(self, file: BinaryIO, path: Path, order: str, element: tuple[int, int], kind: int) -> None:
        self.path, self.order, self.element, self.kind = path, order, element, kind
        self.stream = _Stream(file, path, *element, compressed=kind == COMPRESSED)

    def variables(self) -> Iterator[Variable]:
        length = self.element[1]
        if self.kind == MATRIX:
            yield from self._matrix(length, "", 0)
        elif self.kind == COMPRESSED:
            kind, count = struct.unpack(self.order + "II", self.stream.read(8))
            if count > length * MOST_EXPANSION:
                raise FormatError(
                    f"{self.path}: a variable declares {count:,} bytes, but the file holds only {length:,}."
                )
            if kind == MATRIX:
                yield from self._matrix(count, "", 0)

    def _matrix(self, count: int, inside: str, depth: int, field: str = "") -> Iterator[Variable]:
        end = self.stream.position + count
        if count:
            yield from self._described(end, inside, depth, field)
        if depth:
            self.stream.skip_to(end)

    def _described(self, end: int, inside: str, depth: int, field: str) -> Iterator[Variable]:
        flags = struct.unpack(self.order + "I", self._content(8)[:4].ljust(4, b"\0"))[0]
        kind = flags & 0xFF
        if kind not in (*CLASSES, *OTHERS, CHAR):
            return
        dims = self._content(4 * 32)
        shape = struct.unpack(f"{self.order}{len(dims) // 4}i", dims[: len(dims) // 4 * 4])
        name = inside + (self._content(4096).decode("latin-1") or field)
        if not name:
            return  # MATLAB's own, with the content of objects
        if any(n < 0 for n in shape):
            raise FormatError(f"{self.path}: {name} has the impossible size {shape}.")
        if kind == STRUCT and math.prod(shape) == 1 and depth < DEEPEST:
            yield from self._fields(end, f"{name}.", depth)
            return
        if kind in OTHERS:
            yield Variable(f"{name}, {OTHERS[kind]}", (), None)
            return
        stored, start, nbytes = self._tag()
        if flags & COMPLEX_FLAG:
            yield Variable(name, shape, None, is_complex=True)
            return
        value: Any = None
        vector = kind == CHAR or sum(n > 1 for n in shape) <= 1
        if vector and nbytes <= min(SMALL_BYTES, end - start):
            value = _value(bytes(self.stream.read(nbytes)), kind, stored, self.order, shape)
        if kind == CHAR or stored not in STORED:
            yield Variable(name, shape, None, value)
            return
        array = self._array(name, np.dtype(self.order + STORED[stored]), shape[::-1], start, nbytes)
        yield Variable(name, shape, np.dtype(self.order + CLASSES[kind]), value, array)

    def _fields(self, end: int, inside: str, depth: int) -> Iterator[Variable]:
        width = int.from_bytes(self._content(4), "little" if self.order == "<" else "big")
        texts = self._content(1 << 16)
        if not 0 < width <= len(texts):
            return
        for at in range(0, len(texts), width):
            field = texts[at : at + width].split(b"\0")[0].decode("latin-1")
            kind, start, count = self._tag()
            if kind != MATRIX or start + count > end:
                raise FormatError(f"{self.path}: the struct {inside[:-1]} is damaged at its field {field}.")
            yield from self._matrix(count, inside, depth + 1, field)

    def _array(
        self, name: str, stored: np.dtype[Any], shape: tuple[int, ...], start: int, nbytes: int
    ) -> Sliceable | None:
        if math.prod(shape) * stored.itemsize != nbytes:
            return None
        if self.kind == COMPRESSED:
            return InflatedArray(self.path, name, stored, shape, self.element, start)
        inside = start + nbytes <= self.element[1]
        return RawArray(self.path, stored, shape, self.element[0] + start) if inside else None

    def _tag(self) -> tuple[int, int, int]:
        """The next element's type, where its content starts, and how long that is."""
        tag = bytes(self.stream.read(8))
        first, count = struct.unpack(self.order + "II", tag)
        if first >> 16:  # up to four bytes of content are inside the tag
            self.stream.unread(tag[4:])
            return first & 0xFFFF, self.stream.position, first >> 16
        return first, self.stream.position, count

    def _content(self, most: int) -> bytes:
        """The content of the next element, refused if longer than `most` bytes."""
        _, start, count = self._tag()
        if count > most:
            raise FormatError(f"{self.path}: damaged at byte {self.element[0]:,}: a name of {count:,} bytes.")
        content = bytes(self.stream.read(count))
        self.stream.skip_to(start + (4 if start % 8 else -(-count // 8) * 8))
        return content


def _value(content: bytes, kind: int, stored: int, order: str, shape: tuple[int, ...]) -> Any:
    """A small variable as a text, a list of texts, a number or a list of numbers."""
    if kind != CHAR:
        if stored not in STORED or len(content) % np.dtype(STORED[stored]).itemsize:
            return None
        found = np.frombuffer(content, order + STORED[stored]).tolist()
        return found[0] if len(found) == 1 else found
    code = TEXTS.get(stored, "latin-1")
    wide = {"<": "-le", ">": "-be"}[order] if code in ("utf-16", "utf-32") else ""
    return text_rows(content.decode(code + wide, "replace"), shape)


def text_rows(text: str, shape: tuple[int, ...]) -> str | list[str]:
    """The rows of a matrix of characters, which MATLAB stores column by column."""
    if len(shape) != 2 or shape[0] <= 1 or len(text) != math.prod(shape):
        return text
    return ["".join(text[row :: shape[0]]).rstrip() for row in range(shape[0])]
