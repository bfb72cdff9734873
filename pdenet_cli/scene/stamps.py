"""Whether the files of a scene are still as they were when it was opened."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdenet_cli.errors import FormatError


@dataclass(frozen=True)
class Stamps:
    """The size and the time of the last change of each file, of folders those of the files in them."""

    of_files: dict[Path, tuple[int, int]]
    given: tuple[Path, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Stamps:
        """The stamps of files and folders as they are now."""
        return cls({file: stamp for path in paths for file, stamp in _stamped(path)}, tuple(paths))

    def refuse_changed(self) -> None:
        """Stop if a file has changed, gone or come since: what was read of it may be of two states."""
        now = Stamps.of(self.given).of_files
        for file, stamp in self.of_files.items():
            if now.get(file) != stamp:
                raise FormatError(f"{file}: changed while it was read. Start again when it is complete.")
        if new := now.keys() - self.of_files.keys():
            raise FormatError(f"{min(new)}: came while the scene was read. Start again when it is complete.")


def _stamped(path: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """The stamp of a file, or of each in a folder; nothing of one that is no longer there."""
    try:
        status = path.stat()
        if not path.is_dir():
            yield path, (status.st_size, status.st_mtime_ns)
            return
        folders = [str(path)]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        seen = entry.stat()
                        yield Path(entry.path), (seen.st_size, seen.st_mtime_ns)
    except OSError:
        return
