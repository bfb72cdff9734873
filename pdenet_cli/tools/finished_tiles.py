"""Which tiles of the outputs are on disk: recorded with checksums, verified before they are trusted."""

from __future__ import annotations

import contextlib
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import imagecodecs

from pdenet_cli.errors import PdenetError
from pdenet_cli.files import sync
from pdenet_cli.sampling.tiling import Tile
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.journal import Checksums, Journal, Record

AT_ONCE = 1 << 26  # bytes of pixels read for a checksum
ROWS = 128  # read at least, as chunks have so many
SYNC_SHARE = 0.01  # of the time of a run may be spent waiting for the disk
LONGEST_WAIT = 60.0  # seconds of work that a power cut may cost, if the disk is quick enough

# The same CRC-32; libdeflate's is six times as fast.
_crc32: Callable[..., int] = imagecodecs.deflate_crc32 if imagecodecs.DEFLATE.available else zlib.crc32


@dataclass
class TileRecorder:
    """Records finished tiles in a journal, several at a time: first their pixels reach the disk, then their lines.

    As a context manager it records the last ones at the end, however this comes.
    """

    journal: Journal
    parts: Sequence[Path]  # the files and folders that hold the pixels of the cubes
    waiting: dict[int, Checksums] = field(default_factory=dict)
    _last: float = 0.0  # when tiles were recorded
    _pause: float = 0.0  # seconds until they are again

    def add(self, number: int, read: Checksums) -> None:
        """Take note of a tile whose pixels are written, and were read back with these checksums."""
        self.waiting[number] = read
        if time.monotonic() >= self._last + self._pause:
            self.flush()

    def flush(self) -> None:
        """Record the tiles of which note was taken."""
        if not self.waiting:
            return
        started = time.monotonic()
        for part in self.parts:
            sync(part)
        # Forgotten first: Ctrl-C may come as soon as they are recorded, and the last flush must not do it again.
        tiles, self.waiting = self.waiting, {}
        self.journal.append(*tile_lines(tiles))
        self._last = time.monotonic()
        self._pause = min(LONGEST_WAIT, (self._last - started) / SYNC_SHARE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The error that ends a run says more than the one it leads to here.
        with contextlib.nullcontext() if error is None else contextlib.suppress(OSError):
            self.flush()


def tile_lines(tiles: Mapping[int, Checksums]) -> Iterator[dict[str, Any]]:
    """What a journal says of tiles."""
    return ({"tile": {"number": number, "checksums": read}} for number, read in tiles.items())


def checksums(cubes: Mapping[str, Cube], window: Window) -> Checksums:
    """A checksum of the pixels of each cube in a window, as they are read back."""
    return {name: _pixels_checksum(cube, window) for name, cube in cubes.items()}


def checksum(content: bytes) -> str:
    """The checksum of a file."""
    return f"{_crc32(content):08x}"


def verify(journal: Journal, record: Record, cubes: Mapping[str, Cube], tiles: Sequence[Tile]) -> None:
    """Stop where a recorded tile of these cubes has other pixels than when it was written."""
    for number, recorded in record.tiles.items():
        if number >= len(tiles):
            raise journal.odd(f"it records tile {number} of {len(tiles)}")
        try:
            found = checksums(cubes, tiles[number].target)
        except PdenetError as error:
            raise journal.odd(f"tile {number} can no longer be read ({error})") from error
        if changed := [name for name, value in found.items() if recorded.get(name) != value]:
            raise journal.odd(f"the pixels of tile {number} in {cubes[changed[0]].path.name} have changed since")


def described(part: Path, names: Collection[str] | None = None) -> Any:
    """What the journal says of a new partial file, its size, or of a folder, the checksums of its files.

    `names`: only of these files of a folder, in which others may be written meanwhile.
    """
    mode = part.lstat().st_mode
    if stat.S_ISREG(mode):
        return part.stat().st_size
    if not stat.S_ISDIR(mode):
        return None
    inside = part.rglob("*") if names is None else (part / name for name in names)
    files = sorted(path for path in inside if path.is_file())
    return {file.relative_to(part).as_posix(): checksum(file.read_bytes()) for file in files}


def refuse_changed(journal: Journal, record: Record, parts: Sequence[Path]) -> None:
    """Stop where a partial file has grown or shrunk since it was made, or a file in a partial folder changed."""
    for part in parts:
        made = (record.files or {}).get(part.name)
        # A folder has got chunks of pixels since.
        found = described(part, made if isinstance(made, dict) else None)
        if made is None or found != made:
            numbers = type(found) is type(made) is int
            what = f"{found:,} bytes instead of {made:,}" if numbers else "other contents than it was made with"
            raise journal.odd(f"{part.name} has {what}")


def _pixels_checksum(cube: Cube, window: Window) -> str:
    """The CRC-32 of pixels in rows of all bands, so many rows at a time that little memory is needed."""
    row = cube.meta.bands * window.columns * cube.meta.dtype.itemsize
    rows = max(ROWS, AT_ONCE // max(1, row))
    value = 0
    for block in window.blocks(rows, window.columns):
        value = _crc32(cube.read(block).reshape(-1).view("u1"), value)
    return f"{value:08x}"
