"""Pixels stored in a file as one uncompressed block: ENVI data, and nearly everything that pdenet writes."""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.files import refuse_small_disk
from pdenet_cli.scene.cube import Pixels

# Errors of a file system that cannot reserve space, as opposed to one that is full.
UNABLE = {errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
GAP = 1 << 18  # bytes; smaller gaps are read over, as skipping them takes as long


@dataclass(frozen=True)
class RawArray:
    """A block of numbers in a file; each access maps the file, copies a part, and closes it again.

    So nothing stays open, and the pages of a scene larger than memory do not accumulate in the process.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0
    strided = True

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        ranges = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        runs = [self.dtype.itemsize * math.prod(self.shape[axis + 1 :]) for axis in range(len(ranges))]
        apart = [axis for axis, wanted in enumerate(ranges) if (wanted.step - 1) * runs[axis] >= GAP]
        return self._picked(ranges, apart[-1], key) if apart else np.array(self._map("r")[key])

    def _picked(self, ranges: list[range], axis: int, key: tuple[slice, ...]) -> Pixels:
        """Parts that lie far apart along an axis, read one by one; mapped, the gaps would be read too."""
        outer, inner = self.shape[: axis + 1], self.shape[axis + 1 :]
        size = math.prod(inner) * self.dtype.itemsize
        picked = np.empty([len(numbers) for numbers in ranges], self.dtype)
        places, wanted = np.ndindex(picked.shape[: axis + 1]), product(*ranges[: axis + 1])
        with self.path.open("rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):  # else the system reads ahead after each part, up to megabytes
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for place, index in zip(places, wanted, strict=True):
                file.seek(self.offset + int(np.ravel_multi_index(index, outer)) * size)
                picked[place] = np.frombuffer(file.read(size), self.dtype).reshape(inner)[key[axis + 1 :]]
        return picked

    def __setitem__(self, key: tuple[slice, ...], pixels: Pixels) -> None:
        self._map("r+")[key] = pixels

    def _map(self, mode: Any) -> np.memmap[Any, Any]:
        return np.memmap(self.path, self.dtype, mode, self.offset, self.shape)

    def reserve(self) -> None:
        """Reserve the block's bytes on disk; bytes that are there already stay as they are.

        A mapped write to a full disk kills the process, so a full disk must be noticed before the first write.
        """
        size = self.offset + self.nbytes
        refuse_small_disk(self.path.parent, {self.path: size})
        self.path.touch()
        with self.path.open("r+b") as file:  # not "ab": the C library's own fallocate refuses it
            if not _reserved(file.fileno(), size):
                file.truncate(max(size, file.seek(0, os.SEEK_END)))  # HDF5 keeps metadata behind the pixels


def _reserved(descriptor: int, size: int) -> bool:
    """Whether the system could reserve the first `size` bytes of a file; a full disk is an error."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in UNABLE:
            raise
        return False
    return True
