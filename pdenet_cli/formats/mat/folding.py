"""Matrices of pixels x bands or bands x pixels, as in unmixing sets, folded into cubes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.choosing import FoldedPixels, Variable, listed
from pdenet_cli.scene.sliceable import Sliceable

ROWS = {"nrow", "nrows", "row", "rows", "numrows", "h", "height", "lines", "nlines"}
COLUMNS = {"ncol", "ncols", "col", "cols", "column", "columns", "numcols", "w", "width", "samples", "nsamples"}


@dataclass(frozen=True)
class Spectra:
    """The matrices of spectra in a file, and the size of the picture that the pixels of each make."""

    matrices: list[Variable]
    rows: int
    columns: int

    @classmethod
    def among(cls, variables: Sequence[Variable], small: Mapping[str, Any], asked: str | None) -> Spectra | None:
        """Those of a file without a cube, or the one asked for; None without any, or without the picture's size.

        `small` are the small values of the file itself, which may give that size.
        """
        rows, columns = _count(small, ROWS), _count(small, COLUMNS)
        if not rows or not columns or (asked is None and any(v.is_cube for v in variables)):
            return None
        matrices = [
            v
            for v in variables
            if v.dtype is not None and len(v.shape) == 2 and rows * columns in v.shape and asked in (None, v.name)
        ]
        return cls(matrices, rows, columns) if matrices else None

    def only_one(self, path: Path, wavelength_counts: set[int]) -> Variable:
        """The only matrix, else the only one with as many bands as wavelengths."""
        found = self.matrices
        fitting = [v for v in found if set(v.shape) & wavelength_counts] if len(found) > 1 else found
        if len(fitting) != 1:
            raise FormatError(
                f"{path}: {len(found)} matrices of spectra: {listed(found)}. Choose one with `variable`."
            )
        return fitting[0]

    def folded(self, matrix: Variable, array: Sliceable) -> tuple[Sliceable, str, tuple[str, ...]]:
        """The array of a matrix as a cube, the order of its axes on disk, and a note on how it was folded."""
        bands_first = matrix.shape[1] == self.rows * self.columns
        cube = FoldedPixels(array, self.rows, self.columns, pixels_first=bands_first)  # reversed on disk
        note = f"a matrix of spectra, folded into {self.rows} rows x {self.columns} columns, column by column"
        return cube, "crb" if bands_first else "bcr", (note,)


def _count(small: Mapping[str, Any], names: set[str]) -> int:
    """The number of rows or columns that a file gives under one of their names; 0 if it gives none."""
    plain = {name.lower().replace("_", ""): value for name, value in small.items()}
    return int(next((plain[name] for name in sorted(names) if _is_count(plain.get(name))), 0))


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 1 and float(value).is_integer()
