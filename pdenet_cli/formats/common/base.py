"""The interface of all file formats: how a cube is recognised, opened and created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta


@dataclass(frozen=True)
class OpenOptions:
    """What a user may specify about a file that does not say it itself."""

    variable: str | None = None  # which dataset or variable holds the pixels
    axes: str | None = None  # its axes as a permutation of "brc" (bands, rows, columns)
    nodata: float | None = None  # its nodata value


@dataclass(frozen=True)
class Format:
    """One file format: how its bytes are recognised, how a cube is opened and how one is created.

    `create(parts, meta)` makes the files `parts` (named like `outputs(path)`, but beside them) ready to be
    written by windows; where they exist already with the same meta, their pixels are kept.
    """

    name: str
    suffixes: tuple[str, ...]  # of outputs; the first is the usual one
    recognises: Callable[[Path, bytes], bool]  # from the path and the first kilobytes (b"" for a folder)
    open: Callable[[Path, OpenOptions], Cube]
    create: Callable[[tuple[Path, ...], CubeMeta], Cube] | None = None  # None: read-only format
    outputs: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)  # files of an output; readers open the last
    refuse: Callable[[tuple[Path, ...], CubeMeta], None] = lambda finals, meta: None  # raises if it cannot hold it
    named: Callable[[Path, CubeMeta], CubeMeta] = lambda path, meta: meta  # the layout for this name
    compressed: bool = False  # the size of its files is not known beforehand
    compressions: tuple[str, ...] = ()  # how an output may be compressed
    # Writes a finished cube to a new file, compressed; None: its `compressions` are those of every output.
    pack: Callable[[Cube, Path, str], None] | None = None
    tidy: Callable[[tuple[Path, ...]], None] = lambda parts: None  # remove what killed writers have left in them
    fragile: Callable[[bytes], bool] = lambda head: False  # whether a library that may crash reads such a file
    modules: tuple[str, ...] = ()  # that reading imports late, as they take long
    block: int = 1  # rows and columns of output pixels that only one process at a time may write
    portable: bool = False  # an opened cube can be sent between processes, so it is opened only once
