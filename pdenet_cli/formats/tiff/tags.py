"""The bytes of a TIFF up to its first pixel; not by tifffile, which would write the pixels too."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import OutputError
from pdenet_cli.formats.common import geokeys
from pdenet_cli.formats.tiff import gdal_metadata
from pdenet_cli.scene.dtypes import as_stored
from pdenet_cli.scene.meta import CubeMeta

STRIP_BYTES = 1 << 20  # about; readers read whole strips, so a band must not be a single one
CLASSIC_BYTES = 1 << 32  # limit of a classic TIFF; larger files are BigTIFF
MAX_BANDS = 65535
NODATA = 42113  # GDAL's tag

SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}
FIELD_TYPES = {"S1": 2, "u2": 3, "u4": 4, "f8": 12, "u8": 16}

Field = np.ndarray[Any, np.dtype[Any]]


def is_planar(meta: CubeMeta) -> bool:
    """Whether a cube is written band after band; not a single band, for TIFF."""
    return meta.bands > 1 and meta.interleave != "bip"


def refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    """Stop before anything is written if TIFF cannot hold the type or the number of bands."""
    if meta.dtype.kind not in SAMPLE_FORMATS or meta.bands > MAX_BANDS:
        unheld = f"{meta.bands:,} bands" if meta.bands > MAX_BANDS else meta.dtype.name
        raise OutputError(f"TIFF cannot hold {unheld}. Use another format, or `dtype` float32.")


def header(meta: CubeMeta) -> bytes:
    """A TIFF without its pixels, which follow it; BigTIFF if a classic one cannot hold them."""
    classic = _header(meta, big=False)
    return classic if len(classic) + meta.nbytes < CLASSIC_BYTES else _header(meta, big=True)


def _header(meta: CubeMeta, big: bool) -> bytes:
    order = ">" if meta.dtype.newbyteorder(">") == meta.dtype and meta.dtype.itemsize > 1 else "<"
    fields = _about(meta) | _layout(meta, 0, big)
    length = len(_encoded([fields], order, big))
    return _encoded([fields | _layout(meta, length, big)], order, big)


Places = list[tuple[int, int]]  # where each tile begins in the file, and its bytes


@dataclass(frozen=True)
class TileLayout:
    """A picture in compressed square tiles: its size, that of its tiles, and TIFF's numbers of how."""

    rows: int
    columns: int
    side: int
    compression: int
    predictor: int

    @property
    def tiles(self) -> int:
        """How many tiles a plane has."""
        return -(-self.rows // self.side) * -(-self.columns // self.side)


def tiled_header(meta: CubeMeta, layouts: Sequence[TileLayout], places: Sequence[Places]) -> bytes:
    """The directories of a cube and its overviews, little-endian; BigTIFF if a classic one might be too small."""
    big = 4 * meta.nbytes // 3 + (1 << 24) >= CLASSIC_BYTES
    pages = [_tiled(meta, *page, big) for page in zip(layouts, places, strict=True)]
    about = _about(meta)
    overview = {254: np.array([1], "u4")} | {code: about[code] for code in (NODATA,) if code in about}
    return _encoded([pages[0] | about, *(page | overview for page in pages[1:])], "<", big)


def _tiled(meta: CubeMeta, layout: TileLayout, places: Places, big: bool) -> dict[int, Field]:
    """The fields for the place and the type of the pixels of a page in tiles."""
    wide = "u8" if big else "u4"
    return _samples(meta) | {
        256: np.array([layout.columns], "u4"),
        257: np.array([layout.rows], "u4"),
        259: np.array([layout.compression], "u2"),
        317: np.array([layout.predictor], "u2"),
        322: np.array([layout.side], "u4"),
        323: np.array([layout.side], "u4"),
        324: np.array([offset for offset, _ in places], wide),
        325: np.array([size for _, size in places], wide),
    }


def _layout(meta: CubeMeta, start: int, big: bool) -> dict[int, Field]:
    """The fields for the place and the type of the pixels."""
    planes, samples = (meta.bands, 1) if is_planar(meta) else (1, meta.bands)
    row_bytes = meta.columns * samples * meta.dtype.itemsize
    strip_rows = min(max(STRIP_BYTES // row_bytes, 1), meta.rows)
    starts = np.arange(0, meta.rows, strip_rows)
    sizes = np.tile(np.minimum(strip_rows, meta.rows - starts) * row_bytes, planes)
    offsets = start + np.cumsum(sizes) - sizes
    wide = "u8" if big else "u4"
    return _samples(meta) | {
        256: np.array([meta.columns], "u4"),
        257: np.array([meta.rows], "u4"),
        259: np.array([1], "u2"),  # not compressed
        273: offsets.astype(wide, casting="unsafe"),
        278: np.array([strip_rows], "u4"),
        279: sizes.astype(wide),
    }


def _samples(meta: CubeMeta) -> dict[int, Field]:
    """The fields for the type of the numbers of a pixel."""
    each = np.ones(meta.bands, "u2")
    fields = {
        258: each * (8 * meta.dtype.itemsize),
        262: np.array([1], "u2"),  # grey
        277: np.array([meta.bands], "u2"),
        284: np.array([2 if is_planar(meta) else 1], "u2"),
        339: each * SAMPLE_FORMATS[meta.dtype.kind],
    }
    return fields | ({338: 0 * each[1:]} if meta.bands > 1 else {})  # all but the first are extra samples


def _about(meta: CubeMeta) -> dict[int, Field]:
    """The fields for the meaning of the pixels."""
    ground = geokeys.tags(meta.georeference)
    anchor = meta.georeference.anchor if geokeys.MATRIX in ground else (0.0, 0.0)
    texts = {
        305: "pdenet",
        42112: gdal_metadata.text(meta, anchor if any(anchor) else None),
        NODATA: "" if meta.nodata is None else gdal_metadata.value_text(as_stored(meta.nodata, meta.dtype)),
        geokeys.TEXTS: ground.pop(geokeys.TEXTS, ""),
    }
    directory = ground.pop(geokeys.DIRECTORY, None)
    fields = {code: np.asarray(numbers, "f8").ravel() for code, numbers in ground.items()}
    fields |= {code: np.frombuffer(words.encode() + b"\0", "S1") for code, words in texts.items() if words}
    return fields if directory is None else fields | {geokeys.DIRECTORY: np.asarray(directory, "u2").ravel()}


def _encoded(directories: Sequence[Mapping[int, Field]], order: str, big: bool) -> bytes:
    """A TIFF without pixels: directories of sorted fields, each before the values that it has no room for."""
    magic, count, entry, offset = ("HHHQ", "Q", "HHQ", "Q") if big else ("HI", "H", "HHI", "I")
    first = 16 if big else 8
    start = (43, 8, 0, first) if big else (42, first)
    cell = struct.calcsize(order + offset)
    whole = (b"MM" if order == ">" else b"II") + struct.pack(order + magic, *start)
    for number, fields in enumerate(directories, start=1):
        table = struct.calcsize(order + count) + len(fields) * (struct.calcsize(order + entry) + cell) + cell
        behind, entries, values = len(whole) + table, [], b""
        for code, numbers in sorted(fields.items()):
            raw = numbers.astype(order + numbers.dtype.str[1:]).tobytes()
            kind = FIELD_TYPES[numbers.dtype.str[1:]]
            if len(raw) > cell:
                place = struct.pack(order + offset, behind + len(values))
                values += raw + b"\0" * (-len(raw) % 16)
            else:
                place = raw.ljust(cell, b"\0")
            entries.append(struct.pack(order + entry, code, kind, numbers.size) + place)
        following = behind + len(values) if number < len(directories) else 0
        link = struct.pack(order + offset, following)
        whole += struct.pack(order + count, len(fields)) + b"".join(entries) + link + values
    return whole + b"\0" * (-len(whole) % 16)  # aligned pixels are faster to map
