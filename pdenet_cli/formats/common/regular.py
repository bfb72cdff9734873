"""Opening the files of a scene: only regular files, the one place where that is decided.

A FIFO, a device or a socket can hold a run up for ever, so none is opened, whether it is the scene, lies inside it
or beside it. A link to a regular file is followed where a user can have made it: the scene, the header and the
data of an ENVI cube, sidecar files; folders of archives linked together are common. Inside a Zarr folder, which is
copied as a whole, links are refused, and links inside an HDF5 file never leave it: they could show any file of the
machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from pdenet_cli.errors import FormatError


def opened(path: Path) -> BinaryIO:
    """A regular file, open for reading; FormatError where there is something else."""
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except PermissionError as error:
        raise FormatError(f"{path}: no permission to read it.") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened ({error.strerror}).") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError(f"{path}: not a regular file.")
    return os.fdopen(descriptor, "rb")


def part_of(path: Path, offset: int, count: int) -> bytearray:
    """So many bytes of a file; FormatError where it ends before."""
    with opened(path) as file:
        file.seek(offset)
        raw = bytearray(file.read(count))
    if len(raw) < count:
        missing = f"ends {count - len(raw):,} bytes before the end of a part at byte {offset:,}"
        raise FormatError(f"{path}: {missing}. Copy it again.")
    return raw


def small_file(path: Path, most: int) -> bytes:
    """All of a file; FormatError where it has more than `most` bytes, which are no metadata any more."""
    with opened(path) as file:
        # `read` takes as much memory as it is asked for, however short the file.
        raw = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    if len(raw) > most:
        raise FormatError(f"{path}: over {most:,} bytes are too many for metadata.")
    return raw
