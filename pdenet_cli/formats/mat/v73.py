"""MAT v7.3: HDF5 after a user block of 512 bytes, with the axes of arrays reversed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.formats.hdf5 import writing
from pdenet_cli.formats.hdf5.guard import GuardedArray, GuardedFile, is_complex, number_type
from pdenet_cli.formats.mat.names import text_rows
from pdenet_cli.formats.mat.v5 import CLASSES
from pdenet_cli.formats.mat.v5_writing import letter_matrix
from pdenet_cli.scene.sliceable import Sliceable

TEXT = b"MATLAB 7.3 MAT-file, written by pdenet".ljust(116)
USER_BLOCK = (TEXT + bytes(8) + struct.pack("<HH", 0x0200, 0x4D49)).ljust(512, b"\0")
INTERNAL = ("#refs#", "#subsystem#")  # groups with the content of cells and objects
CLASS_NAMES = {"f8": "double", "f4": "single"} | {
    code: np.dtype(code).name for code in CLASSES.values() if code[0] in "iu"
}


def variables(guarded: GuardedFile) -> list[Variable]:
    """Every variable of the file, and those inside its structs as `struct.field`; pixels stay on disk."""
    found = []
    for dataset in guarded.datasets():
        name = dataset.name.lstrip("/")
        if name.startswith(INTERNAL) or dataset.shape is None or "MATLAB_empty" in dataset.attrs:
            continue
        found.append(_variable(guarded, name, dataset))
    return found


def _variable(guarded: GuardedFile, name: str, dataset: h5py.Dataset) -> Variable:
    shape, kind = tuple(dataset.shape)[::-1], number_type(dataset)
    is_text = guarded.attributes(name).get("MATLAB_class") == "char"
    value = None
    if is_text or sum(n > 1 for n in shape) <= 1:
        value = guarded.small(name)
        value = value[0] if isinstance(value, list) and len(value) == 1 and not is_text else value
    if is_text:
        units = np.asarray(value if isinstance(value, list) else [], "<u2")
        text = units.reshape(dataset.shape).ravel().tobytes().decode("utf-16-le", "replace") if units.size else ""
        return Variable(dotted(name), shape, None, text_rows(text, shape))
    array = GuardedArray(guarded.path, dataset)
    return Variable(dotted(name), shape, kind, value, array, is_complex(dataset))


def dotted(name: str) -> str:
    return name.replace("/", ".")


def create(part: Path, small: dict[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RawArray:
    """A file with some small variables and space for one array, whose `shape` is MATLAB's reversed."""

    def build(file: h5py.File) -> h5py.Dataset:
        return _lay_out(file, small, name, shape, dtype, writing.plain_block)

    return writing.around_pixels(part, dtype, shape, build, USER_BLOCK)


def pack(target: Path, small: dict[str, Any], name: str, array: Sliceable, dtype: np.dtype[Any]) -> None:
    """A new file with some small variables and one array, whose shape is MATLAB's reversed, in deflated chunks."""
    options: dict[str, Any] = dict(libver=writing.LIBRARY, track_order=True, userblock_size=len(USER_BLOCK))
    with h5py.File(target, "w", **options) as file:
        pixels = _lay_out(file, small, name, tuple(array.shape), dtype, writing.chunked_block)
        writing.copy_chunks(array, pixels)
    with target.open("r+b") as raw:
        raw.write(USER_BLOCK)


def _lay_out(
    file: h5py.File,
    small: dict[str, Any],
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    block: writing.Block,
) -> h5py.Dataset:
    """The dataset of the pixels, made by `block`, after the small variables."""
    for text_name, value in small.items():
        _write_small(file, text_name, value)
    dataset = block(file, name, dtype, shape)
    dataset.attrs["MATLAB_class"] = np.bytes_(CLASS_NAMES[dtype.str[1:]])
    return dataset


def _write_small(file: h5py.File, name: str, value: Any) -> None:
    is_text = isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str))
    matrix = letter_matrix(value) if is_text else np.atleast_2d(np.asarray(value, "<f8"))
    dataset = file.create_dataset(name, data=matrix.T, track_times=False)
    dataset.attrs["MATLAB_class"] = np.bytes_("char" if is_text else "double")
    if is_text:
        dataset.attrs["MATLAB_int_decode"] = np.int32(2)
