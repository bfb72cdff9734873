"""A cube to be written: hidden files first, final names when it is complete, compressed then if that is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdenet_cli.errors import OutputError
from pdenet_cli.files import is_there, partial_path, remove, rename
from pdenet_cli.formats.common.base import Format
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta


@dataclass(frozen=True)
class Output:
    """A cube to be written to `path`: its final files, and the hidden partial ones."""

    path: Path
    format: Format
    compress: str | None = None  # one of the format's `compressions`

    @property
    def finals(self) -> tuple[Path, ...]:
        return self.format.outputs(self.path)

    @property
    def parts(self) -> tuple[Path, ...]:
        return tuple(partial_path(final) for final in self.finals)

    def refuse_folders(self) -> None:
        """Stop if an output has the name of a folder that is not a cube of the same format."""
        for final in self.finals:
            if is_there(final) and final.is_dir() and not self.format.recognises(final, b""):
                raise OutputError(f"{final} is a folder that holds no {self.format.name} cube. Use another name.")

    def refuse_irregular(self) -> None:
        """Stop if a partial file is a link, a pipe or a device: none of them was made by an interrupted run."""
        for part in self.parts:
            if part.is_symlink() or (is_there(part) and not (part.is_file() or part.is_dir())):
                raise OutputError(f"{part} is no regular file. Remove it, then start again.")

    def refuse(self, meta: CubeMeta) -> None:
        """Stop before anything is written if the format cannot hold such a cube, or not under this name."""
        if min(meta.shape()) < 1 or meta.interleave not in INTERLEAVES:
            what = f"{' x '.join(map(str, meta.shape()))} values, {meta.interleave}"
            raise OutputError(f"{self.path}: no cube can be made of {what}.")
        known = self.format.compressions
        if self.compress not in (*known, None):
            choice = f"choose {' or '.join(known)}" if known else "write a .tif, .h5, .nc, .mat or .zarr"
            raise OutputError(f"{self.path}: {self.format.name} takes no `compress` {self.compress}; {choice}.")
        self.format.refuse(self.finals, meta)

    def create(self, meta: CubeMeta) -> Cube:
        """The cube, ready to be written by windows; it keeps the pixels of an interrupted run.

        Its paths are absolute: other processes may work on it too.
        """
        assert self.format.create is not None
        self.refuse_irregular()
        parts = tuple(part.absolute() for part in self.parts)
        return self.format.create(parts, self.format.named(self.path, meta))

    def commit(self, meta: CubeMeta) -> None:
        """Rename the partial files, those not renamed yet; last the one that readers open.

        `meta` is that of `create`: a compressed file is written from the partial one, which is then removed.
        """
        self.refuse_folders()
        self.refuse_irregular()
        self.format.tidy(self.parts)
        for part, final in zip(self.parts, self.finals, strict=True):
            if part.exists() and self._packed is not None and self.format.pack is not None:
                remove(self._packed)
                with self.create(meta) as cube:
                    self.format.pack(cube, self._packed, str(self.compress))
                rename(self._packed, final)
                remove(part)
            elif part.exists():
                rename(part, final)

    def discard(self) -> None:
        """Remove the partial files."""
        for part in (*self.parts, *([] if self._packed is None else [self._packed])):
            remove(part)

    @property
    def _packed(self) -> Path | None:
        """The partial file that is compressed; None where partial files only get their final names."""
        packs = self.compress is not None and self.format.pack is not None
        return partial_path(self.path.with_name(f"{self.path.name}.packed")) if packs else None
