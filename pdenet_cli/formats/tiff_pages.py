"""The pictures in a TIFF: its structure checked before anything is believed, its strips and tiles decoded."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tifffile.tifffile import jpeg_shape

from pdenet_cli.cube import Pixels
from pdenet_cli.errors import FormatError, PdenetError
from pdenet_cli.formats.limits import refuse_large_block
from pdenet_cli.formats.raw import RawArray

Page = Any  # a TiffPage; its annotations promise less than it holds once it was read

MAX_PAGES, MAX_TAGS = 65536, 4096
MAX_EXPANSION = 100_000  # ZSTD reaches 30,000 on constant pixels; beyond this a size is a lie
FIELD_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
FIELD_BYTES |= {16: 8, 17: 8, 18: 8}

NONE, JPEG = 1, 7
COMPRESSIONS = {NONE: "none", 5: "LZW", JPEG: "JPEG", 8: "deflate", 32946: "deflate", 32773: "PackBits"}
COMPRESSIONS |= {34887: "LERC", 34925: "LZMA", 50000: "ZSTD", 50001: "WebP"}


def check_structure(path: Path) -> None:
    """Follow the chain of directories from byte to byte and refuse what leads out of the file or in a circle."""
    size = path.stat().st_size
    with path.open("rb") as file:

        def take(place: int, layout: str) -> tuple[Any, ...]:
            file.seek(min(place, size))
            raw = file.read(struct.calcsize(layout))
            if len(raw) < struct.calcsize(layout):
                raise FormatError(f"{path}: ends at byte {size:,} within its tags. Copy it again.")
            return struct.unpack(layout, raw)

        order = "<" if file.read(2) == b"II" else ">"
        big = take(2, order + "H") == (43,)
        offset, count, entry = ("Q", "Q", "HHQ8s") if big else ("I", "H", "HHI4s")
        offset, count, entry = order + offset, order + count, order + entry
        (place,) = take(8 if big else 4, offset)
        if not place:
            raise FormatError(f"{path}: a TIFF without a picture.")
        seen: set[int] = set()
        while place:
            if place in seen or len(seen) == MAX_PAGES:
                raise FormatError(f"{path}: its chain of pages never ends (byte {place:,} comes again).")
            seen.add(place)
            (tags,) = take(place, count)
            if tags > MAX_TAGS:
                raise FormatError(f"{path}: {tags:,} tags in one page are not a TIFF's.")
            place += struct.calcsize(count)
            claimed = 0
            for _ in range(tags):
                code, kind, length, cell = take(place, entry)
                place += struct.calcsize(entry)
                nbytes = length * FIELD_BYTES.get(kind, 0)
                start = struct.unpack(offset, cell)[0] if nbytes > len(cell) else 0
                claimed += nbytes
                if start + nbytes > size or claimed > 2 * size:
                    where = f"tag {code} lies at bytes {start:,} to {start + nbytes:,}"
                    raise FormatError(f"{path}: {where}, the file has {size:,}. Copy it again.")
            (place,) = take(place, offset)


@dataclass(frozen=True)
class Picture:
    """The cube of a TIFF: its array, the order of the array's axes, and the page whose tags speak for it."""

    array: RawArray | SegmentArray
    axes: str
    page: Page
    notes: tuple[str, ...] = ()


def picture(path: Path, file: Any) -> Picture:
    """The first full-size picture of the file; pages of one band each and of one size are its bands."""
    whole = [page for page in file.pages if not (page.is_reduced or page.is_mask)] or [file.pages[0]]
    page = whole[0]
    _check_page(path, page)
    alike = [other for other in whole if other.hash == page.hash]
    dtype = page.dtype.newbyteorder(file.byteorder)
    planes, _, rows, columns, samples = page.shaped
    if len(file.pages) == 1 and (stack := _stack_behind(path, file)) is not None:
        return Picture(stack, "brc", page)
    if len(alike) == len(whole) > 1 and planes == samples == 1:
        for other in alike[1:]:
            _check_segments(path, other)
        return Picture(SegmentArray(path, dtype, (len(whole), rows, columns), tuple(alike)), "brc", page)
    left = f"{len(whole) - 1} further pages are left out: not one band each of one size"
    notes = (left,) if len(whole) > 1 else ()
    shape, axes = ((rows, columns, samples), "rcb") if samples > 1 else ((planes, rows, columns), "brc")
    if page.is_final and page.dtype.kind != "b":
        return Picture(RawArray(path, dtype, shape, page.dataoffsets[0]), axes, page, notes)
    return Picture(SegmentArray(path, dtype, shape, (page,)), axes, page, notes)


def _stack_behind(path: Path, file: Any) -> RawArray | None:
    """ImageJ and tifffile may describe one page only and put the other planes right behind it."""
    page = file.pages[0]
    if not (page.is_imagej or page.is_shaped) or not page.is_final:
        return None
    series = file.series[0]
    if len(series.shape) != 3 or series.size <= page.size or series.shape[1:] != page.shape:
        return None
    stack = RawArray(path, page.dtype.newbyteorder(file.byteorder), series.shape, page.dataoffsets[0])
    _check_end(path, stack.offset + stack.nbytes)
    return stack


def _check_page(path: Path, page: Page) -> None:
    sizes = (page.imagewidth, page.imagelength, page.samplesperpixel, page.imagedepth)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise FormatError(f"{path}: {sizes[0]} columns, {sizes[1]} rows, {sizes[2]} bands are not a picture.")
    if page.imagedepth != 1:
        raise FormatError(f"{path}: a volume of {page.imagedepth} slices, not a cube of bands.")
    if page.dtype is None:
        kind = f"{page.bitspersample} bits, sample format {page.sampleformat}"
        raise FormatError(f"{path}: numbers of this kind are not read ({kind}).")
    if page.compression not in COMPRESSIONS:
        known = ", ".join(dict.fromkeys(COMPRESSIONS.values()))
        raise FormatError(f"{path}: compression {int(page.compression)} is not read. Use one of {known}.")
    _check_segments(path, page)
    size = path.stat().st_size
    if page.nbytes > MAX_EXPANSION * size:
        raise FormatError(f"{path}: declares {page.nbytes:,} bytes of pixels in a file of {size:,}.")
    if page.compression != NONE:
        refuse_large_block(path, "its picture", math.prod(page.chunks) * page.dtype.itemsize)


def _check_segments(path: Path, page: Page) -> None:
    if min((page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip,)) < 1:
        raise FormatError(f"{path}: its strips or tiles have no size.")
    needed = math.prod(page.chunked)
    there = min(len(page.dataoffsets), len(page.databytecounts))
    if there < needed:
        raise FormatError(f"{path}: {needed:,} strips or tiles are needed, {there:,} are listed.")
    offsets = np.asarray(page.dataoffsets[:needed], np.uint64)
    counts = np.asarray(page.databytecounts[:needed], np.uint64)
    _check_end(path, max(map(sum, zip(offsets.tolist(), counts.tolist(), strict=True))))
    if page.compression == NONE and counts.all() and page.bitspersample in (8, 16, 32, 64):
        held = int(counts.sum())
        if held < page.nbytes:
            met = f"the picture takes {page.nbytes:,} bytes, its strips or tiles hold {held:,}"
            raise FormatError(f"{path}: {met}. Copy it again.")


def _check_end(path: Path, end: int) -> None:
    size = path.stat().st_size
    if end > size:
        missing = f"pixels reach to byte {end:,}, the file has {size:,} ({end - size:,} missing)"
        raise FormatError(f"{path}: {missing}. Copy it again.")


@dataclass(frozen=True)
class SegmentArray:
    """Pixels in strips or tiles, of one page or of one page per band; a window decodes what it touches.

    The file is mapped for each access, nothing is kept: a scene larger than memory is read window by window.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pages: tuple[Page, ...]

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        ranges = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        if self.pages[0].shaped[4] > 1:
            whole = self._decoded(range(1), ranges[0], ranges[1])[0, :, :, key[2]]
        else:
            whole = self._decoded(*ranges)[..., 0]
        return whole[tuple(slice(None, None, r.step) for r in ranges)]

    def _decoded(self, planes: range, rows: range, columns: range) -> Pixels:
        """The box from first to last of each range, as (planes, rows, columns, samples)."""
        page = self.pages[0]
        box = [(r[0], r[-1] + 1) if r else (0, 0) for r in (planes, rows, columns)]
        (top, bottom), (left, right) = box[1:]
        shape = (*(stop - start for start, stop in box), page.shaped[4])
        out = np.full(shape, page.nodata, self.dtype.newbyteorder("="))
        if not out.size:
            return out
        data = np.memmap(self.path, np.uint8, "r")
        for plane in planes:
            for index in self._touched(plane, range(top, bottom), range(left, right)):
                part, (_, _, row, column, _) = self._segment(data, plane, index)
                if part is None:  # left out of the file, as GDAL does with strips that are all nodata
                    continue
                stop_row = min(bottom, row + part.shape[0])
                stop_column = min(right, column + part.shape[1])
                inside = part[max(top - row, 0) : stop_row - row, max(left - column, 0) : stop_column - column]
                row, column = max(row - top, 0), max(column - left, 0)
                out[plane - planes[0], row : stop_row - top, column : stop_column - left] = inside
        return out

    def _touched(self, plane: int, rows: range, columns: range) -> Iterator[int]:
        """The numbers of the strips or tiles that hold these rows and columns of a plane."""
        page = self.pages[0]
        height, width = page.chunks[0], page.chunks[1]
        down, across = math.ceil(page.imagelength / height), math.ceil(page.imagewidth / width)
        first = 0 if len(self.pages) > 1 else plane * down * across
        for row in range(rows[0] // height, rows[-1] // height + 1):
            for column in range(columns[0] // width, columns[-1] // width + 1):
                yield first + row * across + column

    def _segment(self, data: Pixels, plane: int, index: int) -> tuple[Pixels | None, tuple[int, ...]]:
        page = self.pages[plane] if len(self.pages) > 1 else self.pages[0]
        offset, count = int(page.dataoffsets[index]), int(page.databytecounts[index])
        raw = data[offset : offset + count] if count else None
        try:
            tables = {"jpegtables": page.jpegtables} if page.compression == JPEG else {}
            if raw is not None and page.compression == JPEG:
                self._refuse_giant(raw, page)
            part, place, _ = self.pages[0].decode(raw, index, **tables)
        except PdenetError:
            raise
        except Exception as error:
            # Each codec has its own exceptions; all of them mean that these bytes are not what they should be.
            text = " ".join(str(error).split())[:200]
            met = f"strip or tile {index} cannot be decoded ({type(error).__name__}: {text})"
            raise FormatError(f"{self.path}: {met}. Copy it again.") from error
        return (None if part is None else part[0]), place

    def _refuse_giant(self, raw: Pixels, page: Page) -> None:
        # A JPEG carries its own size, and libjpeg would believe it.
        _, rows, columns, _ = jpeg_shape(raw[:65536].tobytes())
        if rows * columns > 4 * math.prod(page.chunks[:2]):
            raise FormatError(f"{self.path}: a JPEG of {rows} x {columns} pixels in place of {page.chunks[:2]}.")
