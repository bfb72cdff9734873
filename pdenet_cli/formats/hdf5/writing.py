"""Writing HDF5: a header around one plain block of pixels, the same bytes for the same cube."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.formats.labelled import layout
from pdenet_cli.formats.labelled.ground_grid import GroundGrid
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta
from pdenet_cli.scene.sliceable import Sliceable

# Old enough for all current readers, new enough for attributes of more than 64 kB.
LIBRARY = ("v108", "v108")

DEFLATE, DEFLATE_LEVEL = "deflate", 4  # what every HDF5 library can read
CHUNK_VALUES, CHUNK_BANDS = 1 << 18, 16  # of a chunk; its first axis holds few bands, or lines

Block = Callable[[h5py.File, str, "np.dtype[Any]", tuple[int, ...]], h5py.Dataset]


class _Recorder(io.RawIOBase):
    """A file in memory that records what is written, piece by piece, and takes no memory for gaps."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.place = self.size = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size}[whence]
        return self.place

    def write(self, piece: Any) -> int:
        self.pieces.append((self.place, bytes(piece)))
        self.place += len(self.pieces[-1][1])
        self.size = max(self.size, self.place)
        return len(self.pieces[-1][1])

    def readinto(self, buffer: Any) -> int:
        wanted = bytearray(len(buffer))
        for start, piece in self.pieces:
            first, last = max(start, self.place), min(start + len(piece), self.place + len(wanted))
            if first < last:
                wanted[first - self.place : last - self.place] = piece[first - start : last - start]
        buffer[:] = wanted
        self.place += len(wanted)
        return len(wanted)

    def truncate(self, size: int | None = None) -> int:
        self.size = self.place if size is None else size
        return self.size


def around_pixels(
    part: Path,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    build: Callable[[h5py.File], h5py.Dataset],
    user_block: bytes = b"",
) -> RawArray:
    """The block of pixels in the file that `build` lays out; pixels that `part` has already are kept."""
    # HDF5 would truncate an existing file, and crash on a full disk: it only records what goes where.
    recorder = _Recorder()
    array = RawArray(part, dtype, shape)
    options: dict[str, Any] = dict(alignment_threshold=array.nbytes, alignment_interval=8)
    if user_block:
        options |= dict(userblock_size=len(user_block))
    with h5py.File(recorder, "w", libver=LIBRARY, track_order=True, **options) as file:
        array = replace(array, offset=build(file).id.get_offset())
    with part.open("r+b" if part.exists() else "w+b") as target:
        for place, piece in (*recorder.pieces, (0, user_block)):
            target.seek(place)
            target.write(piece)
        target.truncate(recorder.size)
    array.reserve()
    return array


def create_labelled(part: Path, meta: CubeMeta) -> Cube:
    """A new HDF5 file that is also netCDF-4, ready for its pixels."""
    axes = INTERLEAVES[meta.interleave]
    grids: list[tuple[h5py.Dataset, int, GroundGrid]] = []
    array = around_pixels(
        part, meta.dtype, meta.shape(axes), lambda file: _lay_out(file, meta, grids, plain_block)
    )
    for _, offset, grid in grids:
        block = RawArray(part, grid.dtype, grid.shape, offset)
        for rows, numbers in grid.blocks():
            block[rows, :] = numbers
    return Cube(part, meta, array, axes)


def pack_labelled(cube: Cube, target: Path, method: str) -> None:
    """Write a finished cube to a new HDF5 file, its pixels in compressed chunks."""
    assert method == DEFLATE
    grids: list[tuple[h5py.Dataset, int, GroundGrid]] = []
    with h5py.File(target, "w", libver=LIBRARY, track_order=True) as file:
        pixels = _lay_out(file, cube.meta, grids, chunked_block)
        for dataset, _, grid in grids:
            for rows, numbers in grid.blocks():
                dataset[rows, :] = numbers
        copy_chunks(cube.array, pixels)


def copy_chunks(array: Sliceable, dataset: h5py.Dataset) -> None:
    """Write an array to a dataset of the same shape, chunk by chunk."""
    steps = (range(0, size, chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    for starts in product(*steps):
        key = tuple(slice(at, at + n) for at, n in zip(starts, dataset.chunks, strict=True))
        key = tuple(slice(s.start, min(s.stop, size)) for s, size in zip(key, dataset.shape, strict=True))
        dataset[key] = array[key]


def _lay_out(
    file: h5py.File,
    meta: CubeMeta,
    grids: list[tuple[h5py.Dataset, int, GroundGrid]],
    block: Block,
) -> h5py.Dataset:
    """The dataset of the pixels, after all others; `grids` gets those to be filled later, with their offsets.

    `block` makes the datasets of pixels and grids.
    """
    set_attributes(file, {"Conventions": "CF-1.8"} | layout.global_attributes(meta))
    parts = layout.arrays(meta)
    scales = {name: _dimension(file, name, size) for name, size in _missing_dimensions(parts, meta)}
    for part in parts:
        if part.values is None:
            dataset = block(file, part.name, meta.dtype, meta.shape(INTERLEAVES[meta.interleave]))
            fill = layout.fill_value(meta)
            if fill is not None:
                dataset.attrs["_FillValue"] = np.array([fill], meta.dtype)
        elif isinstance(part.values, GroundGrid):
            dataset = block(file, part.name, part.values.dtype, part.values.shape)
            grids.append((dataset, dataset.id.get_offset() or 0, part.values))
        else:
            dataset = file.create_dataset(part.name, data=part.values, track_times=False)
        set_attributes(dataset, part.attributes)
        if part.dimensions == (part.name,):
            dataset.make_scale(part.name)
            scales[part.name] = dataset
        else:
            for axis, name in enumerate(part.dimensions):
                dataset.dims[axis].attach_scale(scales[name])
    return dataset


def _missing_dimensions(parts: list[layout.LayoutArray], meta: CubeMeta) -> list[tuple[str, int]]:
    sizes = dict(zip(layout.dimensions(meta).values(), meta.shape(), strict=True))
    existing = {part.name for part in parts}
    return [(name, size) for name, size in sizes.items() if name not in existing]


def _dimension(file: h5py.File, name: str, size: int) -> h5py.Dataset:
    """A dimension without coordinates, as netCDF marks one."""
    dataset = file.create_dataset(name, (size,), ">f4", track_times=False)
    dataset.make_scale(f"This is a netCDF dimension but not a netCDF variable.{size:10d}")
    return dataset


def plain_block(file: h5py.File, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> h5py.Dataset:
    """A dataset whose numbers are one uncompressed block, allocated at once and not filled."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_layout(h5py.h5d.CONTIGUOUS)
    plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plan.set_obj_track_times(False)
    group, _, leaf = name.rpartition("/")
    home = file.require_group(group) if group else file
    kind, space = h5py.h5t.py_create(dtype, logical=True), h5py.h5s.create_simple(shape)
    return h5py.Dataset(h5py.h5d.create(home.id, leaf.encode(), kind, space, plan))


def chunked_block(file: h5py.File, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> h5py.Dataset:
    """A dataset whose numbers are in compressed chunks, not filled."""
    side = max(1, int((CHUNK_VALUES / math.prod(min(n, CHUNK_BANDS) for n in shape[:-2])) ** 0.5))
    chunks = (*(min(n, CHUNK_BANDS) for n in shape[:-2]), *(min(n, side) for n in shape[-2:]))
    how = dict(compression="gzip", compression_opts=DEFLATE_LEVEL, shuffle=True, track_times=False)
    return file.create_dataset(name, shape, dtype, chunks=chunks, fill_time="never", **how)


def set_attributes(thing: h5py.Dataset | h5py.File, attributes: dict[str, Any]) -> None:
    """Give a dataset or file its attributes, but for those whose name HDF5 cannot hold: empty, or with a NUL."""
    for name, value in attributes.items():
        if not name or "\0" in name:
            continue
        try:
            thing.attrs[name] = value
        except (TypeError, ValueError, OverflowError):  # an integer or a character that HDF5 cannot hold
            thing.attrs[name] = str(value).replace("\0", "")
