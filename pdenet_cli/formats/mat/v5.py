"""MAT v5 through SciPy, which reads whole variables and believes what they declare: so that is checked first."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.common.limits import MOST_EXPANSION, refuse_whole
from pdenet_cli.formats.mat.elements import SPARSE, check_head, check_nested
from pdenet_cli.formats.mat.names import text_rows
from pdenet_cli.scene.cube import Pixels

HEADER_BYTES = 128
MATRIX, COMPRESSED = 14, 15
CLASSES = {"double": "f8", "single": "f4", "logical": "u1"}
CLASSES |= {
    name: np.dtype(name).str[1:] for sign in ("int", "uint") for name in (f"{sign}{n}" for n in (8, 16, 32, 64))
}
OTHERS = {"cell": "a cell array", "struct": "a struct array", "object": "an object", "sparse": "a sparse matrix"}
HEAD_BYTES = 4096  # of a variable, which hold its size and its name
DEEPEST = 3  # levels of structs
SMALL_BYTES = 1 << 20  # vectors and texts up to this size are read at once, as metadata


@dataclass(frozen=True)
class Declared:
    """What a top-level variable declares about itself, before SciPy reads it."""

    place: int  # of its element in the file
    stored: int  # bytes in the file
    nbytes: int  # the same inflated
    kind: int  # its class
    is_complex: bool


@dataclass(frozen=True)
class WholeVariable:
    """The numbers of a variable, all read on the first access; their axes are MATLAB's reversed."""

    file: Mat5
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        return np.array(self._whole[key])

    @cached_property
    def _whole(self) -> Pixels:
        refuse_whole(self.file.path, self.name, math.prod(self.shape) * self.dtype.itemsize)
        numbers: Pixels = self.file.load([self.name])[self.name].T
        if numbers.shape != self.shape:
            raise FormatError(f"{self.file.path}: {self.name} is in the file twice, with different sizes.")
        return numbers


class _UpTo(io.BufferedReader):
    """A file that seems to end at `end`: SciPy stumbles over the zeros that some writers leave at the end."""

    end = 0

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self.end - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@dataclass(frozen=True)
class Mat5:
    """A MAT v5 file whose variables were checked to be no larger than their bytes allow."""

    path: Path
    order: str  # "<" or ">"
    declared: tuple[Declared, ...]

    @classmethod
    def checked(cls, path: Path) -> Mat5:
        """The file; FormatError where an element runs past its end or past what packing can reach."""
        with path.open("rb") as file:
            order = "<" if file.read(HEADER_BYTES)[126:128] == b"IM" else ">"
            return cls(path, order, tuple(_declared(path, file, order)))

    def variables(self) -> list[Variable]:
        """Every variable, and those inside its structs as `struct.field`; large arrays stay on disk."""
        with self._opened() as file, np.errstate(over="ignore"):  # damaged sizes may be beyond any integer
            listed = scipy.io.whosmat(file, chars_as_strings=False)
        heads = [
            (name, shape, "sparse" if declared.kind == SPARSE else kind, declared)  # to SciPy, some are logical
            for (name, shape, kind), declared in zip(listed, self.declared, strict=True)
            if not name.startswith("__")  # MATLAB's, with the content of objects
        ]
        structs = [
            name for name, shape, kind, d in heads if kind == "struct" and self._is_readable(name, shape, d)
        ]
        small = [n for n, shape, kind, d in heads if not d.is_complex and is_small(kind, shape, d.nbytes)]
        values, inside = self.load(small), self.load(structs, mat_dtype=True)
        found: list[Variable] = []
        for name, shape, kind, declared in heads:
            if name in inside:
                found += self._fields(f"{name}.", inside[name], 1)
            elif kind in OTHERS:
                found.append(Variable(f"{name}, {OTHERS[kind]}", (), None))
            elif kind == "char":
                found.append(Variable(name, shape, None, _value(values.get(name))))
            elif kind in CLASSES and declared.is_complex:
                found.append(Variable(name, shape, None, is_complex=True))
            elif kind in CLASSES:
                dtype = np.dtype(self.order + CLASSES[kind])
                array = WholeVariable(self, name, shape[::-1], dtype)
                found.append(Variable(name, shape, dtype, _value(values.get(name)), array))
        return found

    def load(self, names: Sequence[str], **options: Any) -> dict[str, Any]:
        """Variables by name; without texts that cannot be decoded."""
        if not names:
            return {}
        options |= dict(chars_as_strings=False, uint16_codec="utf-16-le" if self.order == "<" else "utf-16-be")
        try:
            with self._opened() as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that the file has twice
                return dict(scipy.io.loadmat(file, variable_names=list(names), **options))
        except UnicodeError:
            return {k: v for name in names for k, v in self.load([name], **options).items()} if names[1:] else {}
        except MemoryError:
            raise
        except Exception as error:  # of damaged files, SciPy and zlib raise many kinds
            reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
            raise FormatError(f"{self.path}: {', '.join(names[:3])} cannot be read ({reason}).") from error

    def _opened(self) -> _UpTo:
        file = _UpTo(self.path.open("rb", buffering=0))
        file.end = max((d.place + 8 + d.stored for d in self.declared), default=HEADER_BYTES)
        return file

    def _is_readable(self, name: str, shape: tuple[int, ...], declared: Declared) -> bool:
        """Whether a struct is a single one, which SciPy can read safely; a hostile or too large one is refused."""
        if math.prod(shape) != 1:
            return False
        refuse_whole(self.path, name, declared.nbytes)
        with self.path.open("rb") as file:
            file.seek(declared.place)
            kind, _ = struct.unpack(f"{self.order}II", file.read(8))
            content = file.read(declared.stored)
        try:
            content = _inflated(content, 8 + declared.nbytes)[8:] if kind == COMPRESSED else content
            nbytes = check_nested(memoryview(content), self.order)
        except (ValueError, struct.error, zlib.error) as error:
            raise FormatError(f"{self.path}: the struct {name} is damaged ({error}).") from error
        refuse_whole(self.path, name, nbytes)
        return True

    def _fields(self, inside: str, value: Pixels, depth: int) -> Iterator[Variable]:
        """The variables in a single struct, and in those inside it."""
        record = value.ravel()[0]
        for field in value.dtype.names or ():
            yield from self._field(f"{inside}{field}", record[field], depth)

    def _field(self, name: str, value: Any, depth: int) -> Iterator[Variable]:
        if scipy.sparse.issparse(value):
            yield Variable(f"{name}, {OTHERS['sparse']}", (), None)
        elif isinstance(value, scipy.io.matlab.MatlabObject):
            yield Variable(f"{name}, {OTHERS['object']}", (), None)
        elif value.dtype.names and value.size == 1 and depth < DEEPEST:
            yield from self._fields(f"{name}.", value, depth + 1)
        elif value.dtype.names or value.dtype.hasobject:
            yield Variable(f"{name}, {OTHERS['struct' if value.dtype.names else 'cell']}", (), None)
        elif value.dtype.kind == "U":
            yield Variable(name, value.shape, None, _value(value))
        elif value.dtype.kind == "c":
            yield Variable(name, value.shape, None, is_complex=True)
        else:
            numbers = value.view("u1") if value.dtype.kind == "b" else value
            small = is_small("double", numbers.shape, numbers.nbytes)
            dtype = np.dtype(self.order + numbers.dtype.str[1:])
            yield Variable(name, numbers.shape, dtype, _value(numbers) if small else None, numbers.T)


def is_small(kind: str, shape: tuple[int, ...], nbytes: int) -> bool:
    """Whether a variable is read as metadata: a text, a number or a short list of them."""
    vector = kind in CLASSES and sum(size > 1 for size in shape) <= 1
    return nbytes <= SMALL_BYTES and (kind == "char" or vector)


def _declared(path: Path, file: BinaryIO, order: str) -> Iterator[Declared]:
    """What each top-level element says of its size, up to the zeros that some writers leave at the end."""
    size, place = path.stat().st_size, HEADER_BYTES
    while place < size:
        file.seek(place)
        tag = file.read(8).ljust(8, b"\0")
        if not any(tag):
            return
        kind, count = struct.unpack(order + "II", tag)
        if (missing := place + 8 + count - size) > 0:
            raise FormatError(f"{path}: the file ends {missing:,} bytes too early. Copy it again.")
        nbytes, head = count, file.read(min(count, HEAD_BYTES))
        try:
            if kind == COMPRESSED:
                head = _inflated(head, HEAD_BYTES)
                kind, nbytes = struct.unpack(order + "II", head[:8].ljust(8, b"\0"))
                head = head[8:]
            if kind != MATRIX:
                raise ValueError(f"a part of the unknown type {kind}")
            if nbytes > count * MOST_EXPANSION:
                raise ValueError(f"it declares {nbytes:,} bytes, but the file holds only {count:,}")
            about = check_head(head, order, nbytes)
        except (ValueError, zlib.error) as error:
            raise FormatError(f"{path}: a variable is damaged at byte {place:,}: {error}.") from error
        yield Declared(place, count, nbytes, *about)
        place += 8 + count


def _inflated(content: bytes, most: int) -> bytes:
    return zlib.decompressobj().decompress(content, most)


def _value(found: Pixels | None) -> Any:
    """A small variable as a text, a list of texts, a number or a list of numbers."""
    if found is None or found.dtype.kind == "c":
        return None
    items = found.ravel(order="F").tolist()
    if found.dtype.kind == "U":
        return text_rows("".join(items), found.shape)
    return items[0] if len(items) == 1 else items
