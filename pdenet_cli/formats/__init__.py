"""Cubes in files: `open_cube` reads any format of the table, `create_cube` writes by the suffix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli import child
from pdenet_cli.errors import FormatError, OutputError, PdenetError, UsageError
from pdenet_cli.files import is_folder, refuse_existing, sync_entries, unwritable
from pdenet_cli.formats import envi, hdf5, mat, png, tiff, zarr
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.common.kept import keep_blocks
from pdenet_cli.formats.common.output import Output
from pdenet_cli.formats.common.regular import opened
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.stamps import Stamps
from pdenet_cli.scene.window import Window

FORMATS: tuple[Format, ...] = (
    tiff.FORMAT,
    mat.FORMAT,
    hdf5.FORMAT,
    hdf5.NETCDF,
    zarr.FORMAT,
    png.FORMAT,
    envi.FORMAT,
)
"""In the order of recognition; ENVI is last because any bytes may be its data file."""

ONE_ARRAY = (tiff.FORMAT, png.FORMAT, envi.FORMAT)  # formats without named variables
ENVI_DATA = ("", ".img", ".dat", ".raw", ".bsq", ".bil", ".bip", ".envi", ".bin")  # usual suffixes of data files
HEAD_BYTES = 4096
LOOKED_OVER = 4 << 20  # bytes of pixels that are decoded on trial, which takes some 10 ms
NETCDF_NAMES = (".nc", ".nc4", ".cdf", ".netcdf")


def prepare() -> None:
    """Start the process in which scenes are looked over; best at the beginning of a program, before torch."""
    child.start()


def open_cube(
    path: str | Path,
    variable: str | None = None,
    axes: str | None = None,
    nodata: float | None = None,
    window: Window | None = None,
) -> Cube:
    """The cube in `path`, whatever its format, or the part of it in `window`; only its header is read now.

    `nodata` is the nodata value, if the file does not declare it or is wrong.
    """
    path = Path(path)
    if axes is not None and sorted(axes) != ["b", "c", "r"]:
        raise UsageError(f"`axes` {axes}: expected b, r and c once each, such as rcb.")
    options = OpenOptions(variable, axes, nodata)
    try:
        head = b"" if path.is_dir() else _head(path)
        kind = _recognised(path, head)
        cube = keep_blocks(_opened_apart(kind, path, options) if kind.fragile(head) else kind.open(path, options))
        cube.writable, cube.stamps = False, Stamps.of(cube.own_files)
        if variable is not None and kind in ONE_ARRAY:
            what = f"{kind.name} holds a single unnamed array"
            cube.meta = cube.meta.noting(f"`variable` {variable} is ignored: {what}")
        if nodata is not None:
            cube.meta = _with_nodata(cube.meta, nodata)
        return cube if window is None else cube.windowed(window)
    except PdenetError:
        raise
    except MemoryError as error:
        raise FormatError(f"{path}: needs more memory than is free ({error}).") from error
    except Exception as error:
        # On a damaged file, the libraries raise almost any kind of error; the user needs one line.
        raise FormatError(f"{path}: cannot be read as a cube ({_one_line(error)}).") from error


def open_sigma(cube: Cube) -> Cube | None:
    """The 1-sigma that the product of a cube ships, in its file or in one beside it; None if it has none."""
    sigma = cube.meta.sigma
    if sigma is None:
        return None
    beside = cube.path.with_name(sigma) if "/" not in sigma else cube.path
    found = open_cube(beside) if beside != cube.path and beside.is_file() else open_cube(cube.path, sigma)
    if found.meta.shape() != cube.meta.shape() and cube.band_numbers == tuple(range(cube.meta.bands)):
        found.close()
        raise FormatError(f"{found.path}: the 1-sigma of {cube.path.name} has another shape than it.")
    return found


def _opened_apart(kind: Format, path: Path, options: OpenOptions) -> Cube:
    """The cube in `path`, opened and looked over in a child process, which may crash."""
    try:
        parts = child.run(_look_over, path, options, modules=kind.modules)
    except child.ChildError as error:
        raise FormatError(
            f"{path}: cannot be read: {error} in the attempt. It is damaged: copy it again."
        ) from None
    return kind.open(path, options) if parts is None else Cube(**parts)


def _look_over(path: Path, options: OpenOptions) -> dict[str, Any] | None:
    """In a child process: open a cube and decode some of its pixels. What makes up a portable one, else None."""
    kind = _recognised(path, b"" if path.is_dir() else _head(path))
    with kind.open(path, options) as cube:
        if kind.portable:
            files = dict(files=cube.own_files, beside=cube.beside)
            return dict(path=cube.path, meta=cube.meta, array=cube.array, axes=cube.axes, **files)
        last = Window(cube.meta.rows - 1, cube.meta.columns - 1, 1, 1)
        with suppress(Exception):  # what cannot be decoded may never be wanted
            if cube.meta.nbytes <= LOOKED_OVER:
                cube.read()
            elif math.prod(cube.block) * cube.meta.dtype.itemsize <= LOOKED_OVER:
                cube.read(replace(last, row=0, column=0), (0,))
                cube.read(last, (cube.meta.bands - 1,))
    return None


def _with_nodata(meta: CubeMeta, nodata: float) -> CubeMeta:
    """The metadata with this nodata value, or with a note if the data cannot hold it."""
    if meta.dtype.kind in "ui":
        ends = np.iinfo(meta.dtype)
        if not (ends.min <= nodata <= ends.max and float(nodata).is_integer()):
            return meta.noting(f"`nodata` {nodata:g} is ignored: {meta.dtype.name} data cannot hold this value")
    return replace(meta, nodata=nodata)


def files_of(
    path: Path, variable: str | None = None, axes: str | None = None
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The files of a scene: its own, and sidecar files that other scenes may share.

    No files where it cannot be read; opening it says why.
    """
    try:
        with open_cube(path, variable, axes) as cube:
            return cube.own_files, cube.beside
    except PdenetError:
        return (), ()


def usual_suffix(scene: Path) -> str:
    """The suffix of an output in the format of a scene: the scene's own, if the format has it.

    That of ENVI for files that are not recognised, that of TIFF for a folder of pictures.
    """
    suffix = scene.suffix.lower()
    try:
        kind = _recognised(scene, b"" if scene.is_dir() else _head(scene))
    except (PdenetError, OSError):  # opening it says why
        known = suffix in writable_suffixes() and suffix not in envi.FORMAT.suffixes
        kind = output_format(scene) if known else png.FORMAT if is_folder(scene) else envi.FORMAT
    if kind is hdf5.FORMAT and suffix in NETCDF_NAMES:
        kind = hdf5.NETCDF  # the two cannot be told apart by their bytes
    if kind.create is None:
        return tiff.FORMAT.suffixes[0]
    return suffix if suffix in kind.suffixes and kind is not envi.FORMAT else kind.suffixes[0]


def is_one_scene(folder: Path) -> bool:
    """Whether a folder is a cube: a Zarr store, or a series of pictures with no cubes or folders beside them."""
    if zarr.FORMAT.recognises(folder, b""):
        return True
    others = any(path.is_dir() or path.suffix.lower() in writable_suffixes() for path in _visible(folder))
    return not others and png.is_series(folder)


@contextmanager
def create_cube(
    path: str | Path, meta: CubeMeta, *, overwrite: bool = False, compress: str | None = None
) -> Iterator[Cube]:
    """A new cube in the format of `path`'s suffix; the file gets its name when the block ends without an error.

    It is compressed then, if that is wanted: deflate, zstd or lzw, as the format allows.
    """
    output = new_output(path, overwrite=overwrite, compress=compress)
    output.refuse(meta)
    output.discard()
    try:
        with output.create(meta) as cube:
            yield cube
        output.commit(meta)
        sync_entries(output.path.parent)
    except OSError as error:
        raise unwritable(output.path, error) from error
    finally:
        output.discard()


def new_output(path: str | Path, *, overwrite: bool = False, compress: str | None = None) -> Output:
    """An output in the format of `path`'s suffix; refused at once if it cannot be written there."""
    output = Output(Path(path), output_format(Path(path)), compress)
    output.refuse_folders()
    refuse_existing(output.finals, overwrite)
    return output


def output_format(path: Path) -> Format:
    """The format of an output with this name."""
    for candidate in FORMATS:
        if candidate.create is not None and path.suffix.lower() in candidate.suffixes:
            return candidate
    known = " ".join(writable_suffixes())
    raise OutputError(f"{path}: no output format has the suffix '{path.suffix}'. Use one of {known}.")


def writable_suffixes() -> tuple[str, ...]:
    """All suffixes that outputs may have."""
    return tuple(suffix for f in FORMATS if f.create is not None for suffix in f.suffixes)


def _head(path: Path) -> bytes:
    if not path.exists():
        raise FormatError(f"{path}: no such file.")
    if not path.is_file():
        raise FormatError(f"{path}: neither a file nor a folder.")
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    if not head:
        raise FormatError(f"{path}: the file is empty.")
    return head


def _recognised(path: Path, head: bytes) -> Format:
    for candidate in FORMATS:
        if candidate.recognises(path, head):
            return candidate
    if path.is_dir():
        if not _visible(path):
            raise FormatError(f"{path}: an empty folder. A cube is a file, a Zarr folder or a folder of PNGs.")
        example = path / _pattern(path)
        raise FormatError(f"{path}: a folder, not a cube. Name what is in it, for example {example}")
    raise FormatError(f"{path}: {_why_unknown(path, head)}")


def _why_unknown(path: Path, head: bytes) -> str:
    """Why a file is none of the formats, where it is known what it is."""
    if head.startswith(b"\x93NUMPY") or path.suffix.lower() == ".npz":
        advice = "Sharpen it from Python, with pdenet_cli.sharpen(numpy.load(...)), or save it as .mat"
        return f"an array of NumPy, which says nothing about its bands. {advice}."
    if path.suffix.lower() in ENVI_DATA:
        beside = path.with_suffix(".hdr").name
        return f"if it is an ENVI data file, its header {beside} is missing. Copy it to the same folder."
    return f"not a cube in any known format ({', '.join(f.name for f in FORMATS)})."


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, without hidden files."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _pattern(folder: Path) -> str:
    """A shell pattern for the cubes in a folder: those of one format; of ENVI's two files, the headers."""
    suffixes = {path.suffix.lower(): path.suffix for path in _visible(folder)}
    return next((f"*{suffixes[suffix]}" for suffix in writable_suffixes() if suffix in suffixes), "*")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
