"""Chunks of HDF5 datasets, decoded by pdenet: the library would unpack each to whatever size it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import h5py
import imagecodecs
import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.bounded import inflated, refuse_larger
from pdenet_cli.scene.cube import Pixels

DEFLATE, SHUFFLE, FLETCHER32, SZIP, LZF = 1, 2, 3, 4, 32000
DECODED = {DEFLATE, SHUFFLE, FLETCHER32, LZF}
SUM_BYTES = 4  # of a checksum at the end of a chunk
LONGEST = 2  # a stored chunk may be so many times as long as its pixels, as nothing compresses noise
ROOM = 1 << 16  # and this much longer


@dataclass(frozen=True)
class Chunks:
    """The chunks of a dataset, read in parts; where other filters packed them, the library reads them."""

    path: Path
    dataset: h5py.Dataset

    @cached_property
    def filters(self) -> tuple[int, ...]:
        """The codes of its filters, in the order in which they were applied."""
        plan = self.dataset.id.get_create_plist()
        return tuple(plan.get_filter(place)[0] for place in range(plan.get_nfilters()))

    @cached_property
    def decoded_here(self) -> bool:
        """Whether the chunks hold what NumPy holds, packed by filters of which pdenet knows the inverse."""
        kind = self.dataset.dtype
        plain = kind.kind in "iufb" and self.dataset.id.get_type() == h5py.h5t.py_create(kind, logical=True)
        return plain and set(self.filters) <= DECODED

    @cached_property
    def nbytes(self) -> int:
        """The size of each chunk."""
        return math.prod(map(int, self.dataset.chunks)) * int(self.dataset.dtype.itemsize)

    def read(self, key: tuple[slice, ...]) -> Pixels:
        """The part of the dataset at `key`."""
        ranges = [range(size)[part] for size, part in zip(self.dataset.shape, key, strict=True)]
        out = np.empty([len(wanted) for wanted in ranges], self.dataset.dtype)
        touched = [list(_touched(wanted, size)) for wanted, size in zip(ranges, self.dataset.chunks, strict=True)]
        for axes in product(*touched):
            start, into, inside = tuple(a[0] for a in axes), tuple(a[1] for a in axes), tuple(a[2] for a in axes)
            chunk = self._chunk(start)
            if chunk is not None:
                out[into] = chunk[inside]
            elif self.decoded_here:  # not stored, or damaged, which the library says
                out[into] = self.dataset[_moved(inside, start)]
        return out if self.decoded_here else np.asarray(self.dataset[key])

    def _chunk(self, start: tuple[int, ...]) -> Pixels | None:
        """The chunk that begins at these indices; None if it cannot be read, or is only checked here."""
        try:
            mask, raw = self.dataset.id.read_direct_chunk(start)
        except (OSError, RuntimeError, ValueError, KeyError):
            return None
        refuse_larger(len(raw), LONGEST * self.nbytes + ROOM)
        if not self.decoded_here:
            if self.filters and self.filters[-1] == SZIP and not mask >> (len(self.filters) - 1) & 1:
                refuse_larger(int.from_bytes(raw[:SUM_BYTES], "little"), LONGEST * self.nbytes + ROOM)
            return None
        for place, code in reversed(list(enumerate(self.filters))):
            if not mask >> place & 1:
                raw = self._undone(code, raw)
        refuse_larger(self.nbytes, len(raw))
        kind = np.dtype("u1") if self.dataset.dtype.kind == "b" else self.dataset.dtype
        return np.frombuffer(raw, kind, self.nbytes // kind.itemsize).reshape(self.dataset.chunks)

    def _undone(self, code: int, raw: bytes) -> bytes:
        """The content of a chunk before a filter was applied."""
        most = self.nbytes + SUM_BYTES * len(self.filters)
        if code == DEFLATE:
            return inflated(raw, most)
        if code == LZF:
            return bytes(imagecodecs.lzf_decode(raw, out=most))
        if code == FLETCHER32:
            if imagecodecs.H5CHECKSUM.available:
                kept, found = raw[-SUM_BYTES:], imagecodecs.h5checksum_fletcher32(raw[:-SUM_BYTES])
                if int.from_bytes(kept, "little") not in (found, _swapped(found)):
                    raise FormatError("its checksum is another")
            return raw[:-SUM_BYTES]
        return _unshuffled(raw, self.dataset.dtype.itemsize)


def _unshuffled(raw: bytes, size: int) -> bytes:
    """Numbers whose first bytes are stored together, then all second ones; what is left over comes last."""
    whole = len(raw) // size * size
    planes, numbers = np.frombuffer(raw, "u1", whole).reshape(size, -1), np.empty(whole, "u1")
    for place, plane in enumerate(planes):
        numbers[place::size] = plane
    return numbers.tobytes() + raw[whole:]


def _swapped(checksum: int) -> int:
    """The checksum as old versions of the library wrote it: the bytes of each half exchanged."""
    low, high = checksum & 0x00FF00FF, checksum >> 8 & 0x00FF00FF
    return low << 8 | high


def _touched(wanted: range, size: int) -> Iterator[tuple[int, slice, slice]]:
    """Each chunk along an axis that has wanted indices: its start, their places in the result and in the chunk."""
    if not wanted:
        return
    for number in range(wanted[0] // size, wanted[-1] // size + 1):
        start = number * size
        first, stop = (max(0, -(-(edge - wanted.start) // wanted.step)) for edge in (start, start + size))
        if part := wanted[first:stop]:
            yield start, slice(first, first + len(part)), slice(part[0] - start, part[-1] - start + 1, wanted.step)


def _moved(inside: tuple[slice, ...], start: tuple[int, ...]) -> tuple[slice, ...]:
    """The slices of the dataset for those of a chunk that begins at `start`."""
    return tuple(slice(s.start + at, s.stop + at, s.step) for s, at in zip(inside, start, strict=True))
