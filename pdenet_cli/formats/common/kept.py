"""Decoded blocks of a scene, kept for the next windows that touch them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, product
from operator import itemgetter
from threading import Lock

import numpy as np

from pdenet_cli.scene.cube import Cube, Pixels
from pdenet_cli.scene.sliceable import Sliceable
from pdenet_cli.system import free_memory

KEPT_BYTES = 256 << 20  # decoded pixels of one scene that are kept
KEPT_SHARE = 0.125  # of the free memory, where this is less


@dataclass(frozen=True)
class KeptBlocks:
    """An array in blocks, such as compressed strips, of which those used last are kept.

    A window whose blocks take more than `most` bytes is read as if nothing were kept.
    """

    array: Sliceable
    block: tuple[int, ...]
    itemsize: int
    most: int  # bytes that are kept
    kept: OrderedDict[tuple[int, ...], Pixels] = field(default_factory=OrderedDict, repr=False)
    lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        ranges = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        touched = [_blocks(wanted, size) for wanted, size in zip(ranges, self.block, strict=True)]
        whole = math.prod(map(len, self._pixels(touched))) * self.itemsize
        if not 0 < whole <= self.most or any(wanted.step > 1 for wanted in ranges):
            return np.asarray(self.array[key])
        places = list(product(*touched))
        found = self._found(places)
        missing = [place for place in places if place not in found]
        if missing:
            found |= self._decoded(missing)
        out = np.empty([len(wanted) for wanted in ranges], next(iter(found.values())).dtype)
        for place in places:
            block = self._block(place)
            both = [range(max(w.start, b.start), min(w.stop, b.stop)) for w, b in zip(ranges, block, strict=True)]
            out[_within(both, ranges)] = found[place][_within(both, block)]
        return out

    def forget(self) -> None:
        """Free the memory."""
        with self.lock:
            self.kept.clear()

    def _found(self, places: list[tuple[int, ...]]) -> dict[tuple[int, ...], Pixels]:
        """The blocks that are kept; now they count as used last."""
        with self.lock:
            found = {place: self.kept[place] for place in places if place in self.kept}
            for place in found:
                self.kept.move_to_end(place)
        return found

    def _decoded(self, missing: list[tuple[int, ...]]) -> dict[tuple[int, ...], Pixels]:
        """The missing blocks, kept in place of those not used for longest."""
        new = {}
        for together in _boxes(missing):
            box = self._pixels([range(min(axis), max(axis) + 1) for axis in zip(*together, strict=True)])
            pixels = np.asarray(self.array[tuple(slice(part.start, part.stop) for part in box)])
            for place in together:
                new[place] = pixels[_within(self._block(place), box)].copy()  # a view would keep the whole box
        with self.lock:
            self.kept.update(new)
            total = sum(block.nbytes for block in self.kept.values())
            while total > self.most:
                total -= self.kept.popitem(last=False)[1].nbytes
        return new

    def _block(self, place: tuple[int, ...]) -> list[range]:
        """The indices of the array in one block."""
        return self._pixels([range(at, at + 1) for at in place])

    def _pixels(self, blocks: list[range]) -> list[range]:
        """The indices of the array in ranges of blocks."""
        sizes = zip(blocks, self.block, self.shape, strict=True)
        return [range(part.start * block, min(part.stop * block, size)) for part, block, size in sizes]


def _boxes(places: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """The places in boxes without others between them, which would be decoded again."""
    for _, group in groupby(places, key=itemgetter(0)):  # at once, all of them would be in memory twice
        slab = list(group)
        if math.prod(max(axis) - min(axis) + 1 for axis in zip(*slab, strict=True)) == len(slab):
            yield slab
        else:
            # Neighbours along the last axis have the same difference to their number.
            runs = groupby(enumerate(slab), key=lambda found: (found[1][:-1], found[1][-1] - found[0]))
            yield from ([place for _, place in run] for _, run in runs)


def _blocks(wanted: range, size: int) -> range:
    """The blocks along an axis that hold these indices."""
    return range(wanted[0] // size, wanted[-1] // size + 1) if wanted else range(0)


def _within(inner: list[range], outer: list[range]) -> tuple[slice, ...]:
    """The slices of `inner` in an array that begins where `outer` does."""
    return tuple(
        slice(part.start - whole.start, part.stop - whole.start) for part, whole in zip(inner, outer, strict=True)
    )


def keep_blocks(cube: Cube) -> Cube:
    """The same cube, whose decoded blocks are kept until it is closed, if it is stored in blocks."""
    sizes = getattr(cube.array, "block", None)
    if sizes is None:
        return cube
    most = min(KEPT_BYTES, int(KEPT_SHARE * free_memory()))
    array, close = KeptBlocks(cube.array, tuple(sizes), cube.meta.dtype.itemsize, most), cube.close

    def forget_and_close() -> None:
        array.forget()
        close()

    cube.array, cube.close = array, forget_and_close
    return cube
