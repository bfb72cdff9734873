"""The pictures in a TIFF, after a check of its structure."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.limits import refuse_large_block
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.formats.common.regular import opened
from pdenet_cli.formats.tiff.segments import COMPRESSIONS, NONE, Page, SegmentArray

MAX_PAGES, MAX_TAGS = 16384, 4096
MAX_EXPANSION = 100_000  # ZSTD reaches 30,000 on constant pixels; larger ratios are impossible
FIELD_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
FIELD_BYTES |= {16: 8, 17: 8, 18: 8}


def check_structure(path: Path) -> None:
    """Follow the chain of directories and refuse one that leads out of the file or in a circle."""
    size = path.stat().st_size
    with opened(path) as file:

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
            if place in seen:
                raise FormatError(f"{path}: its chain of pages runs in a circle (byte {place:,} comes again).")
            if len(seen) == MAX_PAGES:
                raise FormatError(f"{path}: over {MAX_PAGES:,} pages, too many for the bands of a cube.")
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
class TiffPicture:
    """The cube of a TIFF: its array, the order of the array's axes, and the page whose tags describe it."""

    array: RawArray | SegmentArray
    axes: str
    page: Page
    notes: tuple[str, ...] = ()
    stacked: bool = False  # one plane per page: bands, unless a tool wrote the rows of a cube as pages


def picture(path: Path, file: Any) -> TiffPicture:
    """The first full-size picture of the file; pages of one plane and the same size are its bands."""
    whole = [page for page in file.pages if not (page.is_reduced or page.is_mask)] or [file.pages[0]]
    page = whole[0]
    _check_page(path, page)
    alike = [similar for similar in whole if similar.hash == page.hash]
    for similar in alike:
        if similar.compression == NONE:
            similar.predictor = 1  # a predictor belongs to a compression; libtiff, and so GDAL, ignores others
    kind = np.dtype(np.uint8) if page.dtype.kind == "b" else page.dtype  # single bits become 0 and 1
    dtype = kind.newbyteorder(file.byteorder)
    planes, _, rows, columns, samples = page.shaped
    if len(file.pages) == 1 and (stack := _stack_behind(path, file)) is not None:
        return TiffPicture(stack, "brc", page, stacked=True)
    if len(alike) == len(whole) > 1 and planes == samples == 1:
        for similar in alike[1:]:
            _check_segments(path, similar)
        pages = SegmentArray(path, dtype, (len(whole), rows, columns), tuple(alike), page.decode)
        return TiffPicture(pages, "brc", page, stacked=True)
    left = f"{len(whole) - 1} further pages are ignored: not single bands of the same size"
    notes = (left,) if len(whole) > 1 else ()
    shape, axes = ((rows, columns, samples), "rcb") if samples > 1 else ((planes, rows, columns), "brc")
    if page.is_final:
        block = RawArray(path, dtype, shape, page.dataoffsets[0])
        _check_end(path, block.offset + block.nbytes)
        return TiffPicture(block, axes, page, notes)
    return TiffPicture(SegmentArray(path, dtype, shape, (page,), page.decode), axes, page, notes)


def is_masked(path: Path, file: Any) -> bool:
    """Whether a page of the file, or a file beside it, is a mask of valid pixels."""
    return any(page.is_mask for page in file.pages) or path.with_name(f"{path.name}.msk").exists()


def mask_of(path: Path, file: Any, page: Page) -> SegmentArray | None:
    """The mask of a page as (1, rows, columns), 0 where there is no data; None unless there is one to be read."""
    size = (1, page.imagelength, page.imagewidth)
    masks = [mask for mask in file.pages if mask.is_mask and not mask.is_reduced]
    if [(mask.samplesperpixel, mask.imagelength, mask.imagewidth) for mask in masks] != [size]:
        return None
    try:
        _check_page(path, masks[0])
    except FormatError:
        return None
    return SegmentArray(path, np.dtype(np.uint8), size, (masks[0],), masks[0].decode)


def _stack_behind(path: Path, file: Any) -> RawArray | None:
    """The planes behind the first in files of ImageJ and tifffile that describe only one page; else None."""
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
    if page.planarconfig not in (1, 2):
        raise FormatError(f"{path}: planar configuration {page.planarconfig} is neither 1 nor 2.")
    if page.imagedepth != 1:
        raise FormatError(f"{path}: a volume of {page.imagedepth} slices, not a cube of bands.")
    if page.dtype is None:
        kind = f"{page.bitspersample} bits, sample format {page.sampleformat}"
        raise FormatError(f"{path}: values of this kind are not read ({kind}).")
    if page.compression not in COMPRESSIONS:
        known = ", ".join(dict.fromkeys(COMPRESSIONS.values()))
        raise FormatError(f"{path}: compression {int(page.compression)} is not read. Use one of {known}.")
    _check_segments(path, page)
    size = path.stat().st_size
    if page.nbytes > MAX_EXPANSION * size:
        raise FormatError(f"{path}: declares {page.nbytes:,} bytes of pixels in a file of {size:,}.")
    if page.compression != NONE:
        refuse_large_block(path, "its picture", math.prod(page.chunks) * page.dtype.itemsize, size)


def _check_segments(path: Path, page: Page) -> None:
    if min((page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip,)) < 1:
        raise FormatError(f"{path}: its strips or tiles have no size.")
    needed = math.prod(page.chunked)
    listed = min(len(page.dataoffsets), len(page.databytecounts))
    if listed < needed:
        raise FormatError(f"{path}: {needed:,} strips or tiles are needed, {listed:,} are listed.")
    offsets = np.asarray(page.dataoffsets[:needed], np.uint64)
    counts = np.asarray(page.databytecounts[:needed], np.uint64)
    _check_end(path, max(map(sum, zip(offsets.tolist(), counts.tolist(), strict=True))))
    if page.compression == NONE and counts.all() and page.bitspersample in (8, 16, 32, 64):
        held = int(counts.sum())
        if held < page.nbytes:
            problem = f"the picture takes {page.nbytes:,} bytes, its strips or tiles hold {held:,}"
            raise FormatError(f"{path}: {problem}. Copy it again.")


def _check_end(path: Path, end: int) -> None:
    size = path.stat().st_size
    if end > size:
        missing = f"pixels reach to byte {end:,}, the file has {size:,} ({end - size:,} missing)"
        raise FormatError(f"{path}: {missing}. Copy it again.")
