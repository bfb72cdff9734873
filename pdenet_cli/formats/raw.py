"""Pixels that lie in a file as one plain block: ENVI data, and whatever we write ourselves."""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.cube import Pixels
from pdenet_cli.formats.output import refuse_small_disk

# What a file system answers that cannot reserve room, and does not mean that there is none.
UNABLE = {errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(frozen=True)
class RawArray:
    """A block of numbers in a file; each access maps the file, copies what it needs, and lets go.

    So nothing stays open, and the pages of a scene larger than memory do not pile up in the process.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        return np.array(self._map("r")[key])

    def __setitem__(self, key: tuple[slice, ...], pixels: Pixels) -> None:
        self._map("r+")[key] = pixels

    def _map(self, mode: Any) -> np.memmap[Any, Any]:
        return np.memmap(self.path, self.dtype, mode, self.offset, self.shape)

    def reserve(self) -> None:
        """Claim the block's bytes on disk, leaving those already there as they are.

        A mapped write to a full disk kills the process, so a disk too small must show before the first one.
        """
        size = self.offset + self.nbytes
        refuse_small_disk(self.path.parent, {self.path: size})
        self.path.touch()
        with self.path.open("r+b") as file:  # where the C library does the reserving, it refuses to append
            if not _reserved(file.fileno(), size):
                file.truncate(max(size, file.seek(0, os.SEEK_END)))  # HDF5 keeps its own words behind the pixels


def _reserved(descriptor: int, size: int) -> bool:
    """Whether the system could claim the first `size` bytes of a file; a full disk is an error."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in UNABLE:
            raise
        return False
    return True
