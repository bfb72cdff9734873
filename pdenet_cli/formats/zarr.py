"""Zarr v2 and v3: a folder of compressed chunks. Written as v2, for GDAL."""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError, OutputError, PdenetError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.common.limits import refuse_impossible_size, refuse_large_block
from pdenet_cli.formats.labelled import geozarr, layout, opening, swaths
from pdenet_cli.formats.labelled.ground_grid import GroundGrid
from pdenet_cli.formats.zarr_bounds import bounded, open_bounded
from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta

FILL, DIMENSIONS = "_FillValue", "_ARRAY_DIMENSIONS"
UNFINISHED = "*.*.partial"  # chunks that a killed run was writing, as zarr calls them
HEADERS = ("zarr.json", ".zarray", ".zgroup")
MOST_ARRAYS = 2_000
DEEPEST = 8  # levels of groups
SMALL_BYTES = 1 << 20  # arrays up to this size may be read as metadata


@dataclass(frozen=True)
class ZarrArray:
    """An array that raises a FormatError for damaged chunks."""

    path: Path
    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def block(self) -> tuple[int, ...]:
        return tuple(self.array.chunks)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        try:
            return np.asarray(self.array[key])
        except Exception as error:  # each codec raises its own kind
            _settle()
            reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
            raise FormatError(f"{self.path}: a chunk cannot be read ({reason}).") from error

    def __setitem__(self, key: tuple[slice, ...], pixels: Pixels) -> None:
        try:
            self.array[key] = pixels
        except BaseException:
            _settle()
            raise


@dataclass(frozen=True)
class Folder:
    """A Zarr hierarchy, read from its JSON headers, so that they can be checked before zarr opens it."""

    path: Path

    def variables(self) -> list[Variable]:
        """The arrays by name, shape and type."""
        return [self.variable(name) for name in self._arrays()]

    def _arrays(self) -> Iterator[str]:
        groups, count = [(self.path, 0)], 0
        while groups:
            place, depth = groups.pop(0)
            count += 1
            if count > MOST_ARRAYS:
                raise FormatError(
                    f"{self.path}: more than {MOST_ARRAYS:,} arrays to look through. Use `variable`."
                )
            if self._is_array(place):
                yield "" if place == self.path else place.relative_to(self.path).as_posix()
            elif depth < DEEPEST:
                inside = sorted(p for p in place.iterdir() if p.is_dir() and not p.is_symlink())
                groups += [(p, depth + 1) for p in inside if any((p / header).is_file() for header in HEADERS)]

    def _is_array(self, place: Path) -> bool:
        if (place / ".zarray").is_file():
            return True
        header = place / "zarr.json"
        return header.is_file() and self._json(header).get("node_type") == "array"

    def _json(self, file: Path) -> dict[str, Any]:
        if file.is_symlink():
            raise FormatError(f"{file}: a link to another file, which is not followed.")
        if not file.is_file():
            return {}
        if file.stat().st_size > SMALL_BYTES * 16:
            raise FormatError(f"{file}: {file.stat().st_size:,} bytes are too many for a header.")
        try:
            found = json.loads(file.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{file}: not JSON ({error}).") from None
        if not isinstance(found, dict):
            raise FormatError(f"{file}: not a Zarr header.")
        return found

    def header(self, name: str) -> dict[str, Any]:
        """The metadata of an array, whichever version it is."""
        place = self._place(name)
        if not self._is_array(place):
            raise FormatError(f"{self.path}: no array '{name}'.")
        return self._json(place / ".zarray") or self._json(place / "zarr.json")

    def _place(self, name: str) -> Path:
        place = self.path
        for step in filter(None, name.split("/")):
            place = place / step
            if step == ".." or place.is_symlink():
                raise FormatError(f"{self.path}: '{name}' leads out of the folder.")
        return place

    def variable(self, name: str) -> Variable:
        header = self.header(name)
        try:
            shape = tuple(int(size) for size in header["shape"])
            kind = np.dtype(header["dtype" if header.get("zarr_format") == 2 else "data_type"])
        except (KeyError, TypeError, ValueError):
            return Variable(name.strip("/"), (), None)
        if any(size < 0 for size in shape):
            raise FormatError(f"{self.path}: {name or 'the array'} has the impossible size {shape}.")
        numbers = np.dtype("u1") if kind.kind == "b" else kind if kind.kind in "iuf" else None
        return Variable(name.strip("/"), shape, numbers, is_complex=kind.kind == "c")

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of an array or a group."""
        place = self._place(name)
        if not any((place / header).is_file() for header in HEADERS):
            raise FormatError(f"{self.path}: no array '{name}'.")
        found = self._json(place / ".zattrs") or self._json(place / "zarr.json").get("attributes", {})
        return {n: _number(v) if n == FILL else v for n, v in found.items()} if isinstance(found, dict) else {}

    def fill(self, name: str) -> float | None:
        """The fill value of chunks that are not stored, if it is a number."""
        value = self.header(name).get("fill_value")
        found = None if isinstance(value, bool) else attributes.numbers(value)
        return found[0] if found else None

    def dimensions(self, name: str) -> list[str]:
        """The names of the axes, as the coordinates beside them are called."""
        names = self.header(name).get("dimension_names") or self.attributes(name).get(DIMENSIONS)
        group = name.rpartition("/")[0]
        return [f"{group}/{n}".strip("/") for n in names or () if isinstance(n, str)]

    def small(self, name: str) -> Any:
        """A small array as a number or a list; None if it is large or not there."""
        try:
            variable = self.variable(name)
        except FormatError:
            return None
        if variable.dtype is None or math.prod(variable.shape) * variable.dtype.itemsize > SMALL_BYTES:
            return None
        return self.array(name)[(slice(None),) * len(variable.shape)].tolist()

    def array(self, name: str) -> ZarrArray:
        """The pixels of an array, if they are stored there and only by known codecs."""
        _zarr()
        variable = self.variable(name)
        if variable.dtype is None:
            raise FormatError(f"{self.path}: {variable} does not hold plain numeric values.")
        itemsize, label = variable.dtype.itemsize, name or "the array"
        place = self._place(name)
        held = _stored(place)
        refuse_impossible_size(self.path, label, variable.shape, itemsize, held, sparse=True)
        array = open_bounded(place, bounded(place, self.header(name), itemsize, held), itemsize)
        refuse_large_block(self.path, label, math.prod(array.shards or array.chunks) * itemsize, held)
        return ZarrArray(self.path, array)


def _number(fill: Any) -> Any:
    """A `_FillValue` as a number, if xarray has encoded it as base64."""
    try:
        return struct.unpack("<d", base64.b64decode(fill))[0]
    except (TypeError, ValueError, struct.error):
        return fill


def _fill_attribute(fill: Any) -> float | str:
    """The `_FillValue` attribute, as v2's own fill value may be a mere default; NaN as text, for JSON has none."""
    return fill.item() if np.isfinite(fill) else str(fill)


def _stored(place: Path) -> int:
    """The size of an array's chunks; links are refused, as they could lead to any file of the machine."""
    total, folders = 0, [str(place)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise FormatError(f"{entry.path}: a link to another file, which is not followed.")
                if entry.is_dir():
                    folders.append(entry.path)
                elif not entry.is_file():
                    raise FormatError(f"{entry.path}: not a regular file.")
                elif entry.name not in (*HEADERS, ".zattrs", ".zmetadata"):
                    total += entry.stat().st_size
    return total


def _zarr() -> Any:
    try:
        import zarr
    except ImportError:
        raise FormatError(
            "Zarr support is not installed. In the pdenet folder run: pip install '.[zarr]'"
        ) from None
    return zarr


def _settle() -> None:
    """Wait for the other chunks of a failed access: at the end of the program, each would print a traceback."""
    import asyncio

    from zarr.core.sync import sync

    async def others() -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*running, return_exceptions=True)

    sync(others())


def _recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and any((path / header).is_file() for header in HEADERS)


def _open(path: Path, options: OpenOptions) -> Cube:
    folder = Folder(path)
    meta, array, axes = opening.read(folder, options)
    return Cube(path, swaths.place_swath(folder, meta), array, axes)


def _refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    try:
        _zarr()
    except PdenetError as error:
        raise OutputError(str(error)) from None
    layout.refuse(finals, meta)


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    zarr = _zarr()
    part, axes = parts[0], INTERLEAVES[meta.interleave]
    pieces, called = layout.arrays(meta), layout.dimensions(meta)
    pieces[-1].attributes.update(geozarr.attributes_of(meta, called["r"], called["c"]))
    kept = Folder(part) if (part / ".zgroup").is_file() else None
    group = zarr.open_group(str(part), mode="a", zarr_format=2)
    group.attrs.update(layout.global_attributes(meta))
    for piece in pieces:
        if kept is None or not kept._is_array(part / piece.name):
            _make(group, piece, meta, axes)
        if isinstance(piece.values, GroundGrid):  # again, as an interrupted run may have left it incomplete
            for rows, numbers in piece.values.blocks():
                group[piece.name][rows, :] = numbers
    zarr.consolidate_metadata(str(part), zarr_format=2)  # one file instead of many; xarray warns without it
    return Cube(part, meta, ZarrArray(part, group[pieces[-1].name]), axes)


def _tidy(parts: tuple[Path, ...]) -> None:
    for unfinished in parts[0].rglob(UNFINISHED):
        unfinished.unlink(missing_ok=True)


def _make(group: Any, piece: layout.LayoutArray, meta: CubeMeta, axes: str) -> None:
    # Readers of v2 take a fill value, even 0, for nodata: arrays without nodata must have none.
    attrs = piece.attributes | {DIMENSIONS: list(piece.dimensions)}
    about: dict[str, Any] = dict(name=piece.name, attributes=attrs, fill_value=None)
    if isinstance(piece.values, GroundGrid):
        grid, chunk = piece.values, (piece.values.rows_at_once, piece.values.shape[1])
        group.create_array(shape=grid.shape, dtype=grid.dtype, chunks=chunk, **about)
        return
    if piece.values is not None:
        group.create_array(data=piece.values, **about)
        return
    fill = layout.fill_value(meta)
    if fill is not None:
        about |= dict(fill_value=fill, attributes=attrs | {FILL: _fill_attribute(fill)})
    # Zarr does not know all names of a type, such as those of tifffile's 64-bit integers.
    dtype = np.dtype(meta.dtype.str)
    group.create_array(shape=meta.shape(axes), dtype=dtype, chunks=layout.chunks(meta, axes), **about)


FORMAT = Format(
    name="Zarr",
    suffixes=(".zarr",),
    recognises=_recognises,
    open=_open,
    fragile=lambda head: True,
    modules=("zarr",),
    create=_create,
    refuse=_refuse,
    named=layout.by_planes,
    compressed=True,
    compressions=("zstd",),
    tidy=_tidy,
    block=layout.CHUNK["r"],
)
