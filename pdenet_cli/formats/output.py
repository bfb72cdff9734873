"""Outputs that are never half there: they grow beside their final names and are renamed when they are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pdenet_cli.cube import INTERLEAVES, Cube, CubeMeta
from pdenet_cli.errors import OutputError, PdenetError
from pdenet_cli.formats.base import Format

try:
    import fcntl
except ImportError:  # Windows: there, two runs that write the same output are not kept apart
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"


@dataclass(frozen=True)
class Output:
    """A cube on its way to `path`: the files it will be, and the hidden ones it grows in."""

    path: Path
    format: Format

    @property
    def finals(self) -> tuple[Path, ...]:
        return self.format.outputs(self.path)

    @property
    def parts(self) -> tuple[Path, ...]:
        return tuple(beside(final) for final in self.finals)

    def refuse_folders(self) -> None:
        """Stop where a folder has the name of an output: only a cube of the same format is replaced."""
        for final in self.finals:
            if _is_there(final) and final.is_dir() and not self.format.recognises(final, b""):
                raise OutputError(f"{final} is a folder that holds no {self.format.name} cube. Use another name.")

    def refuse(self, meta: CubeMeta) -> None:
        """Stop before anything is written if the format cannot say what `meta` says, or not under this name."""
        if min(meta.shape()) < 1 or meta.interleave not in INTERLEAVES:
            what = f"{' x '.join(map(str, meta.shape()))} values, {meta.interleave}"
            raise OutputError(f"{self.path}: no cube can be made of {what}.")
        self.format.refuse(self.finals, meta)

    def create(self, meta: CubeMeta) -> Cube:
        """The cube, ready to be written by windows; pixels of a broken-off attempt are still in it."""
        assert self.format.create is not None
        try:
            return self.format.create(self.parts, self.format.named(self.path, meta))
        except OSError as error:
            raise unwritable(self.path, error) from error

    def commit(self) -> None:
        """Give the files their names, the one that readers open last; those already renamed are left."""
        self.refuse_folders()
        for part, final in zip(self.parts, self.finals, strict=True):
            if part.exists():
                rename(part, final)

    def discard(self) -> None:
        """Remove what has grown so far."""
        for part in self.parts:
            remove(part)


def beside(final: Path) -> Path:
    """Where an output grows until it is whole: a hidden neighbour, so that the last step is a rename."""
    return final.with_name(f".{final.name}{PARTIAL}")


def refuse_existing(finals: tuple[Path, ...], overwrite: bool) -> None:
    """Stop before any work if an output is there already, or its folder is not."""
    for final in finals:
        if (_is_there(final) or final.is_symlink()) and not overwrite:
            raise OutputError(f"{final} exists. Use --overwrite to replace it.")
        if not final.parent.is_dir():
            raise OutputError(f"{final.parent} is not a folder. Create it first.")
        if not os.access(final.parent, os.W_OK):
            raise OutputError(f"{final.parent}: no permission to write there.")


def refuse_scenes(finals: Sequence[Path], scenes: Sequence[Path]) -> None:
    """Stop where an output would replace a file of a scene, or become a part of a folder that is one."""
    for final in finals:
        for scene in scenes:
            if is_same(final, scene):
                raise OutputError(f"{final} is the scene itself. Give the output another name.")
            inside = scene.is_dir() and scene.resolve() in final.resolve().parents
            # To a folder of pictures, a file of another kind is nothing.
            if inside and (final.suffix.lower() == ".png" or not any(scene.rglob("*.[pP][nN][gG]"))):
                raise OutputError(f"{final} is inside the scene {scene.resolve().name}. Write it elsewhere.")


def is_same(one: Path, other: Path) -> bool:
    """Whether both are there and are one file or folder, whatever they are called."""
    return _is_there(one) and _is_there(other) and one.samefile(other)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name too long for the file system
        raise unwritable(path, error) from error


def is_folder(path: Path) -> bool:
    """Whether a folder is there; no, too, where the system does not let us look."""
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    """Whether a file is there; no, too, where the system does not let us look."""
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def refuse_folders(files: tuple[Path, ...]) -> None:
    """Stop before any work if a folder has the name of a file: not even --overwrite empties a folder."""
    for file in files:
        if _is_there(file) and file.is_dir():
            raise OutputError(f"{file} is a folder. Give the name of a file in it.")


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other runs away from the outputs that this file stands for; where it is empty, it goes afterwards.

    A killed run holds nothing, whatever file it leaves. Where there are no such locks (Windows), neither does a
    living one: an open file could not be removed in the end.
    """
    with contextlib.nullcontext() if fcntl is None else _locked(path):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()


def _locked(path: Path) -> TextIO:
    """The file, opened and locked; OutputError if another run has it."""
    while True:
        try:
            file = path.open("a")
        except OSError as error:
            raise unwritable(path.parent, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            raise OutputError(f"{path.absolute().parent}: another run is writing the same output.") from None
        except FileNotFoundError:
            pass
        except OSError:
            return file  # a file system without locks
        file.close()  # a run that ended took it away after it was opened: this lock is of nothing


def write_beside(path: Path, content: bytes | str, *, overwrite: bool = False) -> None:
    """Write a small file as outputs are written: refused if it exists, never half there."""
    refuse_folders((path,))
    refuse_existing((path,), overwrite)
    part = beside(path)
    # A text may name a file whose own name is no text: some bytes of old archives and shares are not UTF-8.
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        part.write_bytes(raw)
        rename(part, path)
    except OSError as error:
        left = ("The existing file is unchanged.",) if path.exists() else ()
        raise unwritable(path, error, *left) from error
    finally:
        remove(part)


def rename(part: Path, final: Path) -> None:
    """Put a finished file in the place of a file of its name, and a finished folder in that of anything."""
    if part.is_dir():
        remove(final)
    if part.is_file():
        with part.open("rb+") as file:
            os.fsync(file.fileno())
    part.replace(final)


def remove(path: Path) -> None:
    """Remove a file or a folder that may not be there; of a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError, left: str = "No partial file was left.") -> PdenetError:
    """The one line for a write that the system refused, and what is `left` of the output."""
    if isinstance(error, PdenetError):
        return error
    return OutputError(f"{path}: cannot be written ({error.strerror or error}). {left}")
