"""HDF5 and netCDF-4: a cube is a dataset; its metadata are attributes and datasets beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.hdf5 import eos, products
from pdenet_cli.formats.hdf5.guard import GuardedFile, is_hdf5
from pdenet_cli.formats.hdf5.writing import DEFLATE, create_labelled, pack_labelled
from pdenet_cli.formats.labelled import layout, opening, swaths
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta

CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")  # netCDF-3


def _open(path: Path, options: OpenOptions) -> Cube:
    guarded = GuardedFile.open(path)
    try:
        options = replace(options, variable=products.variable(guarded, options.variable))
        if (parts := products.prisma_parts(guarded, options.variable)) is not None:
            meta, array, axes = products.read_prisma(guarded, parts)
        else:
            meta, array, axes = opening.read(guarded, options)
        meta = eos.place_grid(guarded, products.place_neon(guarded, meta))
        is_emit = products.is_emit(guarded)
        meta = products.place_emit(guarded, meta) if is_emit else swaths.place_swath(guarded, meta)
        return Cube(path, products.named(guarded, meta), array, axes, guarded.file.close)
    except BaseException:
        guarded.file.close()
        raise


def _refuse_classic(path: Path, options: OpenOptions) -> Cube:
    raise FormatError(f"{path}: netCDF-3 is not read. Convert it: nccopy -k nc4 {path.name} new.nc")


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    return create_labelled(parts[0], meta)


def _refuse_netcdf(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    if meta.dtype.kind not in "iuf" or meta.dtype == np.float16:
        raise OutputError(f"netCDF cannot hold {meta.dtype.name}. Use `dtype` float32 or another format.")


FORMAT = Format(
    name="HDF5",
    suffixes=(".h5", ".hdf5", ".he5"),
    recognises=lambda path, head: is_hdf5(head),
    open=_open,
    fragile=lambda head: True,
    create=_create,
    refuse=layout.refuse,
    named=layout.by_planes,
    compressions=(DEFLATE,),
    pack=pack_labelled,
)
NETCDF = Format(
    name="netCDF",
    suffixes=(".nc",),
    recognises=lambda path, head: head[:4] in CLASSIC,
    open=_refuse_classic,
    create=_create,
    refuse=_refuse_netcdf,
    named=layout.by_planes,
    compressions=(DEFLATE,),
    pack=pack_labelled,
)
"""netCDF-4 is HDF5 and opened as such; this entry is for its suffix, and to refuse netCDF-3."""
