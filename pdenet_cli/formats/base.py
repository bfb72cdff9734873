"""What every file format offers: how a cube in it is recognised, opened and created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdenet_cli.cube import Cube, CubeMeta


@dataclass(frozen=True)
class OpenOptions:
    """What a user may say about a file that does not say it itself."""

    variable: str | None = None  # --var: which dataset or variable holds the pixels
    axes: str | None = None  # --axes: its axes as a permutation of "brc" (bands, rows, columns)


@dataclass(frozen=True)
class Format:
    """One file format: how its bytes are recognised, how a cube is opened and how one is created.

    `create(parts, meta)` makes the files `parts` (named like `outputs(path)`, but beside them) ready to be
    written by windows; where they exist already with the same meta, their pixels are kept.
    """

    name: str
    suffixes: tuple[str, ...]  # what an output of this format ends in; the first is the usual one
    recognises: Callable[[Path, bytes], bool]  # from the path and the first kilobytes (b"" for a folder)
    open: Callable[[Path, OpenOptions], Cube]
    create: Callable[[tuple[Path, ...], CubeMeta], Cube] | None = None  # None: only read
    outputs: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)  # the file that readers open last
    refuse: Callable[[tuple[Path, ...], CubeMeta], None] = lambda finals, meta: None  # what it cannot hold
    named: Callable[[Path, CubeMeta], CubeMeta] = lambda path, meta: meta  # what the name says of the layout
    compressed: bool = False  # its files are smaller than their numbers, nobody knows by how much
