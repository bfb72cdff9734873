"""MATLAB files, v5 and v7.3: cubes of (rows, columns, bands), and matrices of spectra as in unmixing sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.hdf5.guard import GuardedFile, is_hdf5
from pdenet_cli.formats.hdf5.writing import DEFLATE
from pdenet_cli.formats.mat import v5, v5_writing, v73
from pdenet_cli.formats.mat.names import AXES, METADATA, USUAL_AXES, line_of, variable_name, wavelength_name
from pdenet_cli.formats.mat.opening import MatFile, read
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta

OURS = b"written by pdenet"
LARGEST_V5 = (1 << 31) - (1 << 20)  # bytes of a variable, with room for its header


def _recognises(path: Path, head: bytes) -> bool:
    v5_or_newer = head[126:128] in (b"IM", b"MI") and head[124:126] in (b"\0\1", b"\1\0", b"\0\2", b"\2\0")
    return v5_or_newer or (path.suffix.lower() == ".mat" and _is_v4(head))


def _is_v4(head: bytes) -> bool:
    """Whether a file begins as MAT v4 does: a number whose decimal digits are type codes, then a size."""
    if len(head) < 20:
        return False
    for order in "<>":
        kind, rows, columns, imaginary, length = (int(n) for n in np.frombuffer(head[:20], order + "i4"))
        if 0 <= kind <= 4052 and rows > 0 and columns > 0 and imaginary in (0, 1) and 1 < length < 64:
            return True
    return False


def _open(path: Path, options: OpenOptions) -> Cube:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[126:128] not in (b"IM", b"MI"):
        raise FormatError(f"{path}: MAT v4 is not read. Save it again in MATLAB with -v7.")
    ours = OURS in head[:116]  # the text of the file header
    if not is_hdf5(head):
        return Cube(path, *read(MatFile(path, v5.Mat5.checked(path).variables(), ours), options))
    guarded = GuardedFile.open(path)
    try:
        found = read(MatFile(path, v73.variables(guarded), ours, guarded), options)
        return Cube(path, *found, guarded.file.close)
    except BaseException:
        guarded.file.close()
        raise


def _refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    if meta.dtype.str[1:] not in v5.CLASSES.values():
        raise OutputError(f"MATLAB cannot hold {meta.dtype.name}. Use `dtype` float32 or another format.")


def _variables(meta: CubeMeta) -> tuple[dict[str, Any], str, str]:
    """The small variables of a cube, the name of its own, and the order of its axes on disk."""
    order = meta.native.get(AXES, USUAL_AXES) if meta.bands > 1 else USUAL_AXES  # to MATLAB, a band is a matrix
    small = attributes.dump_fields(meta) | attributes.dump_georeference(meta.georeference)
    small = {wavelength_name(meta) if n == "wavelength" else n: value for n, value in small.items()}
    if order != USUAL_AXES:
        small["axes"] = order
    if meta.extra:
        small[METADATA] = [line_of(name, value) for name, value in meta.extra.items()]
    return small, variable_name(meta.variable, small), order[::-1]


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    small, name, axes = _variables(meta)
    write = v5_writing.create if meta.nbytes < LARGEST_V5 else v73.create
    return Cube(parts[0], meta, write(parts[0], small, name, meta.shape(axes), meta.dtype), axes)


def _pack(cube: Cube, target: Path, method: str) -> None:
    if cube.meta.nbytes < LARGEST_V5:
        v5_writing.pack(cube.path, target)
    else:
        small, name, _ = _variables(cube.meta)
        v73.pack(target, small, name, cube.array, cube.meta.dtype)


FORMAT = Format(
    name="MATLAB",
    suffixes=(".mat",),
    recognises=_recognises,
    open=_open,
    fragile=is_hdf5,
    create=_create,
    refuse=_refuse,
    compressions=(DEFLATE,),
    pack=_pack,
)
