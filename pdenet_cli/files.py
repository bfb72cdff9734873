"""Files that are never incomplete: written under hidden names, on disk before they are renamed; and locks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pdenet_cli.errors import OutputError, PdenetError, UsageError

try:
    import fcntl
except ImportError:  # Windows: two runs that write the same output are not detected there
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"
LOCK_PAUSE = 0.05  # seconds between two attempts to get a lock
NOTHING_LEFT = "No partial file was left."
LONGEST_NAME = 255  # bytes, where the system does not say
UNABLE_TO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES, errno.EBADF, errno.EROFS}


def partial_path(final: Path) -> Path:
    """The hidden file that an output is written to until it is complete, in the same folder for the rename."""
    return final.with_name(f".{final.name}{PARTIAL}")


def final_path(part: Path) -> Path:
    """The output that a partial file will become."""
    return part.with_name(part.name.removeprefix(".").removesuffix(PARTIAL) or part.name)


def refuse_existing(finals: tuple[Path, ...], overwrite: bool) -> None:
    """Stop before any work if an output exists already, or its folder does not or cannot be written to."""
    refuse_long_names(finals)
    for final in finals:
        if (is_there(final) or final.is_symlink()) and not overwrite:
            raise OutputError(f"{final} exists. Use `overwrite` to replace it.")
        if not final.parent.is_dir():
            raise OutputError(f"{final.parent} is not a folder. Create it first.")
        if not os.access(final.parent, os.W_OK):
            raise OutputError(f"{final.parent}: no permission to write there.")


def refuse_long_names(finals: Iterable[Path], others: Iterable[Path] = ()) -> None:
    """Stop before any work if a name is too long for its folder: of an output while hidden, or of `others`."""
    paths = [*map(partial_path, finals), *others]
    sizes = {len(os.fsencode(path.name)): path for path in paths}
    if sizes and (size := max(sizes)) > (most := _longest_name(sizes[size].parent)):
        problem = f"file names there have at most {most} bytes, and {sizes[size].name} would have {size}"
        raise OutputError(f"{paths[0].parent}: {problem}. Use a name that is {size - most} shorter.")


def _longest_name(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.pathconf(folder, "PC_NAME_MAX")
    return LONGEST_NAME


def refuse_small_disk(folder: Path, sizes: Mapping[Path, int]) -> None:
    """Stop before any work if the disk has no space for files of these sizes, minus what they take already."""
    needed = sum(max(0, size - _on_disk(path)) for path, size in sizes.items())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutputError(f"{folder}: {needed:,} bytes needed, {free:,} free. Make room.")


def _on_disk(path: Path) -> int:
    """The bytes that a file takes on disk, 0 if it does not exist; a sparse one takes less than its size."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return 512 * getattr(status, "st_blocks", status.st_size // 512)


def refuse_scenes(finals: Sequence[Path], scenes: Sequence[Path]) -> None:
    """Stop if an output would replace a file of a scene, or lie inside a folder that is one."""
    for final in finals:
        for scene in scenes:
            if is_same(final, scene):
                raise OutputError(f"{final} is the scene itself. Give the output another name.")
            inside = scene.is_dir() and scene.resolve() in final.resolve().parents
            # A folder of pictures may hold files of other kinds.
            if inside and (final.suffix.lower() == ".png" or not any(scene.rglob("*.[pP][nN][gG]"))):
                raise OutputError(f"{final} is inside the scene {scene.resolve().name}. Write it elsewhere.")


def is_same(path: Path, second: Path) -> bool:
    """Whether both exist and are the same file or folder, whatever their names."""
    return is_there(path) and is_there(second) and path.samefile(second)


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; OutputError where its name is impossible."""
    try:
        return path.exists()
    except OSError as error:  # a name too long for the file system
        raise unwritable(path, error) from error


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; False also where the system does not let us look."""
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    """Whether there is such a file; False also where the system does not let us look."""
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def refuse_dash(path: Path) -> None:
    """Stop where other programs would write to standard output."""
    if str(path) == "-":
        raise UsageError("-: results cannot go to standard output. Give the name of a file or a folder.")


def refuse_folders(files: tuple[Path, ...]) -> None:
    """Stop before any work if one of the files is a folder: not even `overwrite` replaces a folder."""
    for file in files:
        refuse_dash(file)
        if is_there(file) and file.is_dir():
            raise OutputError(f"{file} is a folder. Give the name of a file in it.")


@contextlib.contextmanager
def locked(path: Path, patience: float = 0) -> Iterator[None]:
    """Hold a lock on this file, so that no other run writes the same outputs; an empty file is removed then.

    OutputError if another run has it, and keeps it for longer than `patience` seconds.

    The lock of a killed run ends with it, even if the file stays. There are no locks on Windows, where an open
    file could not be removed.
    """
    with contextlib.nullcontext() if fcntl is None else _lock_file(path, patience):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()


def _lock_file(path: Path, patience: float) -> TextIO:
    """The file, opened and locked."""
    late = time.monotonic() + patience
    while True:
        try:
            file = open(path, "a", opener=_open_plainly)  # noqa: SIM115 the lock ends with it
        except OSError as error:
            raise unwritable(path.parent, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            if time.monotonic() < late:
                time.sleep(LOCK_PAUSE)
                continue
            raise OutputError(f"{path.absolute().parent}: another run is writing the same output.") from None
        except FileNotFoundError:
            pass
        except OSError:
            return file  # a file system without locks
        file.close()  # another run removed the file after we opened it: the lock is void, try again


def _open_plainly(path: str, flags: int) -> int:
    """Open a file of this very name: not what a link leads to, and no pipe, which would wait for its other end."""
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"{Path(path).name} is no plain file", path)


def write_whole(path: Path, content: bytes | str, *, overwrite: bool = False) -> None:
    """Write a small file as outputs are written: refused if it exists, never incomplete."""
    refuse_folders((path,))
    refuse_existing((path,), overwrite)
    part = partial_path(path)
    # A text may contain file names, and those of old archives and shares may not be UTF-8.
    raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        remove(part)  # which could be a link to anywhere
        part.write_bytes(raw)
        rename(part, path)
        sync_entries(path.parent)
    except OSError as error:
        left = "The existing file is unchanged." if path.exists() else None
        raise unwritable(path, error, left) from error
    finally:
        remove(part)


def rename(part: Path, final: Path) -> None:
    """Give a finished file or folder, which is on disk then, its final name, replacing what is there.

    The name itself is on disk only after `sync_entries`.
    """
    sync(part)
    if part.is_dir():
        remove(final)
    part.replace(final)


def sync(path: Path) -> None:
    """Wait until a file, or all that a folder contains, has reached the disk."""
    if path.is_dir():
        _sync_everything(path)
    elif path.is_file():
        with path.open("rb+") as file:
            _flush(file.fileno())


def sync_entries(folder: Path) -> None:
    """Wait until the names in a folder have reached the disk; where the system cannot, it does so some time."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _sync_everything(folder: Path) -> None:
    """Flush the file system of a folder: of thousands of chunks, one by one takes far longer."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if sys.platform == "linux" else None
    if syncfs is None:
        if hasattr(os, "sync"):
            os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            code = ctypes.get_errno()
            if code not in UNABLE_TO_SYNC:
                raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    try:
        getattr(os, "fdatasync", os.fsync)(descriptor)
    except OSError as error:
        if error.errno not in UNABLE_TO_SYNC:  # some network and FUSE file systems know no such thing
            raise


def remove(path: Path) -> None:
    """Remove a file, a folder or a link (not its target), if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError, left: str | None = None) -> PdenetError:
    """The error for a write that the system refused; `left` says what remains of the output, None: nothing."""
    if isinstance(error, PdenetError):
        return error
    return OutputError(f"{path}: cannot be written ({error.strerror or error}). {left or NOTHING_LEFT}")
