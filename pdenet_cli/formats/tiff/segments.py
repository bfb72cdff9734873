"""Strips and tiles of a TIFF, decoded one by one as a window touches them."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from tifffile.tifffile import jpeg_shape

from pdenet_cli.errors import FormatError, PdenetError
from pdenet_cli.formats.common.regular import part_of
from pdenet_cli.scene.cube import Pixels

Page = Any  # a TiffPage, whose annotations are incomplete

ROOM = 1 << 16  # bytes of heads and tables
NONE, JPEG, LERC = 1, 7, 34887
COMPRESSIONS = {NONE: "none", 5: "LZW", JPEG: "JPEG", 8: "deflate", 32946: "deflate", 32773: "PackBits"}
COMPRESSIONS |= {LERC: "LERC", 34925: "LZMA", 50000: "ZSTD"}
"""Codecs that never write more than the buffer they are given, and two whose sizes `_checked` verifies."""


@dataclass(frozen=True)
class SegmentArray:
    """Pixels in strips or tiles, of one page or of one page per band; a window decodes those it touches.

    Nothing is kept, so a scene may be larger than memory.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pages: tuple[Page, ...]
    decode: Callable[..., tuple[Any, tuple[int, ...], tuple[int, ...]]]  # bound while the file was open

    @property
    def block(self) -> tuple[int, ...]:
        """The sizes of a strip or tile along the array's axes."""
        height, width = self.pages[0].chunks[:2]
        samples = self.pages[0].shaped[4]
        return (1, height, width) if samples == 1 else (height, width, samples)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        ranges = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        if self.pages[0].shaped[4] == 1:
            box = self._decoded(*ranges)[..., 0]
        else:
            box = self._decoded(range(1), ranges[0], ranges[1])[0][:, :, ranges[2].start : ranges[2].stop]
        return box[tuple(slice(None, None, wanted.step) for wanted in ranges)]

    def _decoded(self, planes: range, rows: range, columns: range) -> Pixels:
        """The box from first to last of each range, as (planes, rows, columns, samples)."""
        page = self.pages[0]
        box = [(r[0], r[-1] + 1) if r else (0, 0) for r in (planes, rows, columns)]
        (top, bottom), (left, right) = box[1:]
        shape = (*(stop - start for start, stop in box), page.shaped[4])
        out = np.full(shape, page.nodata, self.dtype.newbyteorder("="))
        if not out.size:
            return out
        for plane in planes:
            for index in self._touched(plane, range(top, bottom), range(left, right)):
                part, (_, _, row, column, _) = self._segment(plane, index)
                if part is None:  # left out of the file, as GDAL does with strips that are all nodata
                    continue
                stop_row = min(bottom, row + part.shape[0])
                stop_column = min(right, column + part.shape[1])
                inside = part[max(top - row, 0) : stop_row - row, max(left - column, 0) : stop_column - column]
                row, column = max(row - top, 0), max(column - left, 0)
                out[plane - planes[0], row : stop_row - top, column : stop_column - left] = inside
        return out

    def _touched(self, plane: int, rows: range, columns: range) -> Iterator[int]:
        """The indices of the strips or tiles that hold these rows and columns of a plane."""
        page = self.pages[0]
        height, width = page.chunks[0], page.chunks[1]
        down, across = math.ceil(page.imagelength / height), math.ceil(page.imagewidth / width)
        first = 0 if len(self.pages) > 1 else plane * down * across
        for row in range(rows[0] // height, rows[-1] // height + 1):
            for column in range(columns[0] // width, columns[-1] // width + 1):
                yield first + row * across + column

    def _segment(self, plane: int, index: int) -> tuple[Pixels | None, tuple[int, ...]]:
        page = self.pages[plane] if len(self.pages) > 1 else self.pages[0]
        offset, count = int(page.dataoffsets[index]), int(page.databytecounts[index])
        # A copy of its bytes: predictors are undone in place, which would crash on a mapped file.
        raw: Any = part_of(self.path, offset, min(count, self._longest)) if count else None
        more = {"jpegtables": page.jpegtables} if page.compression == JPEG else {}
        try:
            if raw is not None and page.compression in (JPEG, LERC):
                raw = self._checked(bytes(raw))
            part, place, _ = self.decode(raw, index, **more)
        except PdenetError:
            raise
        except Exception as error:
            # Each codec has its own exceptions; all of them mean damaged bytes.
            text = " ".join(str(error).split())[:200]
            problem = f"strip or tile {index} cannot be decoded ({type(error).__name__}: {text})"
            raise FormatError(f"{self.path}: {problem}. Copy it again.") from error
        return (None if part is None else part[0]), place

    @property
    def _longest(self) -> int:
        """More bytes than a strip or tile is ever packed into."""
        page = self.pages[0]
        return 2 * math.prod(map(int, page.chunks)) * int(page.dtype.itemsize) + ROOM

    def _checked(self, raw: bytes) -> bytes:
        """A JPEG or LERC picture, refused if its own size, which the codec would use, is too large."""
        page = self.pages[0]
        height, width = page.chunks[:2]
        if page.compression == LERC:
            raw = _unwrapped(raw, room=self._longest)
            version = struct.unpack_from("<i", raw, 6)[0]
            rows, columns = struct.unpack_from("<ii", raw, 10 if version < 3 else 14)
        else:
            _, rows, columns, _ = jpeg_shape(raw)
        if rows > height or columns > width:
            problem = f"a picture of {rows:,} x {columns:,} pixels where {height:,} x {width:,} belong"
            raise FormatError(f"{self.path}: {problem}. The file is damaged.")
        return raw


def _unwrapped(raw: bytes, room: int) -> bytes:
    """A LERC picture without the deflate or ZSTD compression that GDAL may add."""
    if raw.startswith(b"Lerc2 "):
        return raw
    if raw.startswith(b"\x28\xb5\x2f\xfd"):
        return bytes(imagecodecs.zstd_decode(raw, out=room))
    return zlib.decompressobj().decompress(raw, room)
