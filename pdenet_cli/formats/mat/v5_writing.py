"""Writing MAT v5: small variables, then a cube whose numbers follow later; the same bytes for the same values."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.scene.cube import Pixels

MATRIX, CHAR, COMPRESSED = 14, 4, 15
HEADER_BYTES, PIECE_BYTES = 128, 1 << 20
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
DOUBLE, UNSIGNED_16, DOUBLES = 6, 4, 9


def create(part: Path, small: dict[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RawArray:
    """A file with some small variables and space for one array, whose `shape` is MATLAB's reversed."""
    order = ">" if dtype.newbyteorder("=") != dtype else "<"
    head = _file_header(order) + b"".join(_small_variable(order, n, v) for n, v in small.items())
    head += _cube_header(order, name, shape[::-1], dtype)
    array = RawArray(part, dtype, shape, len(head))
    with part.open("r+b" if part.exists() else "w+b") as file:  # pixels that it has already are kept
        file.write(head)
        file.truncate(len(head) + -(-array.nbytes // 8) * 8)
    array.reserve()
    return array


def pack(part: Path, target: Path) -> None:
    """Write a finished file again with each variable compressed, as MATLAB itself saves them."""
    with part.open("rb") as source, target.open("wb") as file:
        header = source.read(HEADER_BYTES)
        file.write(header)
        order = "<" if header[126:128] == b"IM" else ">"
        while tag := source.read(8):
            left = struct.unpack(order + "II", tag)[1]
            start, packer = file.tell(), zlib.compressobj()
            file.write(bytes(8))
            file.write(packer.compress(tag))
            while left:
                piece = source.read(min(left, PIECE_BYTES))
                file.write(packer.compress(piece))
                left -= len(piece)
            file.write(packer.flush())
            end = file.tell()
            file.seek(start)
            file.write(struct.pack(order + "II", COMPRESSED, end - start - 8))
            file.seek(end)


def _small_variable(order: str, name: str, value: Any) -> bytes:
    """The element of a small variable: a text, a list of texts, a number or a list of numbers."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str)):
        letters = letter_matrix(value)
        data = letters.astype(order + "u2").tobytes(order="F")
        return _matrix(order, name, CHAR, letters.shape, UNSIGNED_16, data)
    row = np.atleast_2d(np.asarray(value, order + "f8"))
    return _matrix(order, name, DOUBLE, row.shape, DOUBLES, row.tobytes(order="F"))


def letter_matrix(value: str | list[str]) -> Pixels:
    """Texts as the rows of a matrix of UTF-16 units, padded with spaces as by MATLAB's `char`."""
    rows = [value] if isinstance(value, str) else value
    units = [np.frombuffer(row.encode("utf-16-le", "replace"), "<u2") for row in rows]
    matrix = np.full((len(units), max(len(row) for row in units)), ord(" "), "u2")
    for place, row in enumerate(units):
        matrix[place, : len(row)] = row
    return matrix


def _file_header(order: str) -> bytes:
    """The file header; without a date, so that the same cube always gives the same bytes."""
    text = b"MATLAB 5.0 MAT-file, written by pdenet".ljust(116)
    return text + bytes(8) + struct.pack(order + "HH", 0x0100, 0x4D49)


def _cube_header(order: str, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The element of a variable without its numbers, which follow column by column, padded to 8 bytes."""
    kind, stored = (_number(codes, dtype) for codes in (CLASSES, STORED))
    nbytes = math.prod(shape) * dtype.itemsize
    return _matrix(order, name, kind, shape, stored, None, nbytes)


def _number(codes: dict[int, str], dtype: np.dtype[Any]) -> int:
    return next(number for number, code in codes.items() if code == dtype.str[1:])


def _matrix(
    order: str,
    name: str,
    kind: int,
    shape: tuple[int, ...],
    stored: int,
    data: bytes | None,
    nbytes: int = 0,
) -> bytes:
    nbytes = nbytes if data is None else len(data)
    inner = _element(order, 6, struct.pack(order + "II", kind, 0))
    inner += _element(order, 5, np.asarray(shape, order + "i4").tobytes())
    inner += _element(order, 1, name.encode("ascii"))
    inner += struct.pack(order + "II", stored, nbytes)
    padding = -nbytes % 8
    tag = struct.pack(order + "II", MATRIX, len(inner) + nbytes + padding)
    return tag + inner + (b"" if data is None else data + bytes(padding))


def _element(order: str, kind: int, content: bytes) -> bytes:
    return struct.pack(order + "II", kind, len(content)) + content + bytes(-len(content) % 8)
