"""Cubes in files: `open_cube` reads any format of the table, `create_cube` writes by the suffix."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdenet_cli.cube import Cube, CubeMeta
from pdenet_cli.errors import FormatError, OutputError, PdenetError
from pdenet_cli.formats import envi
from pdenet_cli.formats.base import Format, OpenOptions

FORMATS: tuple[Format, ...] = (envi.FORMAT,)
"""Asked in this order; ENVI stands last because any bytes at all may be its data file."""

HEAD_BYTES = 4096


def open_cube(path: str | Path, variable: str | None = None, axes: str | None = None) -> Cube:
    """The cube in `path`, whatever its format; only its header is read now."""
    path = Path(path)
    options = OpenOptions(variable, axes)
    try:
        head = b"" if path.is_dir() else _head(path)
        return _recognised(path, head).open(path, options)
    except PdenetError:
        raise
    except MemoryError as error:
        raise FormatError(f"{path}: needs more memory than there is ({error}).") from error
    except Exception as error:
        # The libraries below raise almost anything on a damaged file; the user needs one line.
        raise FormatError(f"{path}: cannot be read as a cube ({_one_line(error)}).") from error


@contextmanager
def create_cube(path: str | Path, meta: CubeMeta, *, overwrite: bool = False) -> Iterator[Cube]:
    """A new cube in the format of `path`'s suffix; its name appears only when the block ends well."""
    path = Path(path)
    chosen = output_format(path)
    assert chosen.create is not None
    finals = chosen.outputs(path)
    refuse_existing(finals, overwrite)
    parts = tuple(beside(final) for final in finals)
    _remove(parts)
    try:
        with chosen.create(parts, meta) as cube:
            yield cube
        commit(parts, finals)
    except OSError as error:
        if isinstance(error, PdenetError):
            raise
        raise OutputError(f"{path}: cannot be written ({_one_line(error)}).") from error
    finally:
        _remove(parts)


def output_format(path: Path) -> Format:
    """The format that an output of this name is written in."""
    writable = [f for f in FORMATS if f.create is not None]
    for candidate in writable:
        if path.suffix.lower() in candidate.suffixes:
            return candidate
    known = " ".join(s for f in writable for s in f.suffixes)
    raise OutputError(f"{path}: no format is written with the suffix '{path.suffix}'. Use one of {known}.")


def beside(final: Path) -> Path:
    """Where an output grows until it is whole: a hidden neighbour, so that the last step is a rename."""
    return final.with_name(f".{final.name}.partial")


def refuse_existing(finals: tuple[Path, ...], overwrite: bool) -> None:
    """Stop before any work if an output is there already, or its folder is not."""
    for final in finals:
        if final.exists() and not overwrite:
            raise OutputError(f"{final} exists. Use --overwrite to replace it.")
        if not final.parent.is_dir():
            raise OutputError(f"{final.parent} is not a folder. Make it first.")
        if not os.access(final.parent, os.W_OK):
            raise OutputError(f"{final.parent}: no permission to write there.")


def commit(parts: tuple[Path, ...], finals: tuple[Path, ...]) -> None:
    """Give finished outputs their names, the one that readers open last."""
    for part, final in zip(parts, finals, strict=True):
        if final.is_dir():
            shutil.rmtree(final)
        if part.is_file():
            with part.open("rb+") as file:
                os.fsync(file.fileno())
        part.replace(final)


def _remove(parts: tuple[Path, ...]) -> None:
    for part in parts:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def _head(path: Path) -> bytes:
    if not path.exists():
        raise FormatError(f"{path}: no such file.")
    if not path.is_file():
        raise FormatError(f"{path}: neither a file nor a folder.")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except PermissionError as error:
        raise FormatError(f"{path}: no permission to read it.") from error
    if not head:
        raise FormatError(f"{path}: the file is empty.")
    return head


def _recognised(path: Path, head: bytes) -> Format:
    for candidate in FORMATS:
        if candidate.recognises(path, head):
            return candidate
    names = ", ".join(f.name for f in FORMATS)
    raise FormatError(f"{path}: not a cube in any known format ({names}).")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
