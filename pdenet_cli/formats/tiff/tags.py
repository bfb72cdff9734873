"""The bytes of a TIFF up to its first pixel; not by tifffile, which would write the pixels too."""

from __future__ import annotations

import struct
from collections.abc import Mapping
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
    length = len(_encoded(fields, order, big))
    return _encoded(fields | _layout(meta, length, big), order, big)


def _layout(meta: CubeMeta, start: int, big: bool) -> dict[int, Field]:
    """The fields for the place and the type of the pixels."""
    planes, samples = (meta.bands, 1) if is_planar(meta) else (1, meta.bands)
    row_bytes = meta.columns * samples * meta.dtype.itemsize
    strip_rows = min(max(STRIP_BYTES // row_bytes, 1), meta.rows)
    starts = np.arange(0, meta.rows, strip_rows)
    sizes = np.tile(np.minimum(strip_rows, meta.rows - starts) * row_bytes, planes)
    offsets = start + np.cumsum(sizes) - sizes
    wide, each = "u8" if big else "u4", np.ones(meta.bands, "u2")
    fields = {
        256: np.array([meta.columns], "u4"),
        257: np.array([meta.rows], "u4"),
        258: each * (8 * meta.dtype.itemsize),
        259: np.array([1], "u2"),  # not compressed
        262: np.array([1], "u2"),  # grey
        273: offsets.astype(wide, casting="unsafe"),
        277: np.array([meta.bands], "u2"),
        278: np.array([strip_rows], "u4"),
        279: sizes.astype(wide),
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
        42113: "" if meta.nodata is None else gdal_metadata.value_text(as_stored(meta.nodata, meta.dtype)),
        geokeys.TEXTS: ground.pop(geokeys.TEXTS, ""),
    }
    directory = ground.pop(geokeys.DIRECTORY, None)
    fields = {code: np.asarray(numbers, "f8").ravel() for code, numbers in ground.items()}
    fields |= {code: np.frombuffer(words.encode() + b"\0", "S1") for code, words in texts.items() if words}
    return fields if directory is None else fields | {geokeys.DIRECTORY: np.asarray(directory, "u2").ravel()}


def _encoded(fields: Mapping[int, Field], order: str, big: bool) -> bytes:
    """A TIFF of one directory: the sorted fields, then the values that do not fit into them."""
    magic, count, entry, offset = ("HHHQ", "Q", "HHQ", "Q") if big else ("HI", "H", "HHI", "I")
    first = 16 if big else 8
    start = (43, 8, 0, first) if big else (42, first)
    cell = struct.calcsize(order + offset)
    table = struct.calcsize(order + count) + len(fields) * (struct.calcsize(order + entry) + cell) + cell
    entries, values = [], b""
    for code, numbers in sorted(fields.items()):
        raw = numbers.astype(order + numbers.dtype.str[1:]).tobytes()
        kind = FIELD_TYPES[numbers.dtype.str[1:]]
        if len(raw) > cell:
            place = struct.pack(order + offset, first + table + len(values))
            values += raw + b"\0" * (-len(raw) % 16)
        else:
            place = raw.ljust(cell, b"\0")
        entries.append(struct.pack(order + entry, code, kind, numbers.size) + place)
    head = (b"MM" if order == ">" else b"II") + struct.pack(order + magic, *start)
    directory = struct.pack(order + count, len(fields)) + b"".join(entries) + bytes(cell)
    whole = head + directory + values
    return whole + b"\0" * (-len(whole) % 16)  # aligned pixels are faster to map
