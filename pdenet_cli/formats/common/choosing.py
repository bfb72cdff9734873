"""Which of a file's variables is the cube, and which of its axes are bands, rows and columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.sigmas import sigma_of
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.meta import INTERLEAVES
from pdenet_cli.scene.sliceable import Sliceable


@dataclass(frozen=True)
class Variable:
    """A named array in a file; small ones with their value, others with an array to read from."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None  # None: not numbers
    value: Any = None  # a text, a number or a list of them
    array: Sliceable | None = None
    is_complex: bool = False

    def __str__(self) -> str:
        name = self.name or "the array"
        if self.dtype is None:
            kind = "complex" if self.is_complex else "not numeric"
            return f"{name} {self.shape} {kind}" if self.shape else name
        return f"{name} {self.shape} {self.dtype.name}"

    @property
    def is_cube(self) -> bool:
        return self.has_axes(3, 3)

    def has_axes(self, least: int, most: int = 64) -> bool:
        """Whether it has numbers, and at least and at most so many axes (NumPy has up to 64)."""
        return self.dtype is not None and least <= len(self.shape) <= most and 0 not in self.shape


def choose_variable(
    path: Path,
    variables: Sequence[Variable],
    asked: str | None,
    wavelength_counts: Collection[int],
    advice: Mapping[int, str],
) -> tuple[Variable, tuple[str, ...]]:
    """The variable asked for, else the only cube, else the only cube with as many bands as wavelengths.

    A variable of more than three axes may hold the scene, and a cube beside it only flags: it counts as another.
    `advice` says what to do with variables of two axes, and of four or more.
    """
    cubes = [v for v in variables if v.is_cube]
    larger = [v for v in variables if v.has_axes(4)]
    candidates = cubes or [v for v in variables if len(v.shape) > 1] or variables
    if asked is not None:
        chosen, because = _named(path, variables, asked, candidates, advice), ""
    elif cubes:
        chosen, why = _only(path, cubes, larger, wavelength_counts)
        because = f"{chosen.name} chosen because {why}; "
    else:
        problem = f"no numeric three-dimensional variable. It has {listed(candidates)}"
        raise FormatError(f"{path}: {problem}.{_advised(larger or candidates, advice)}")
    others = [v for v in (*cubes, *larger) if v is not chosen]
    return chosen, (f"{because}other variables: {listed(others)}",) if others else ()


def _named(
    path: Path, variables: Sequence[Variable], name: str, candidates: Sequence[Variable], advice: Mapping[int, str]
) -> Variable:
    """The variable with this name; FormatError if none has it, or if it is neither a cube nor a matrix."""
    found = [v for v in variables if v.name.strip("/") == name.strip("/")]
    if not found:
        raise FormatError(f"{path}: no variable '{name}'. It has {listed(candidates)}.")
    if not found[0].has_axes(2, 3):
        raise FormatError(
            f"{path}: {found[0]} is not a cube. It has {listed(candidates)}.{_advised(found, advice)}"
        )
    return found[0]


def _only(
    path: Path, cubes: Sequence[Variable], larger: Sequence[Variable], wavelength_counts: Collection[int]
) -> tuple[Variable, str]:
    """The only cube that can be meant, and why; FormatError if there are several, or larger variables."""
    spreads = {sigma_of(cube.name, (v.name for v in cubes)) for cube in cubes}
    values = [v for v in cubes if v.name not in spreads]  # the 1-sigma of another cube is never meant
    if len(values) == 1 and not larger:
        return values[0], "the others are its 1-sigma"
    matching = [v for v in values if set(v.shape) & set(wavelength_counts)]
    if len(matching) == 1:
        return matching[0], "it has as many bands as the file has wavelengths"
    many = f"{len(cubes)} three-dimensional variable{'s' if len(cubes) > 1 else ''}: {listed(cubes)}"
    beside = f", and with more axes: {listed(larger)}" if larger else ""
    raise FormatError(f"{path}: {many}{beside}. Choose one with `variable`.")


def _advised(variables: Sequence[Variable], advice: Mapping[int, str]) -> str:
    axes = max((len(v.shape) for v in variables if v.dtype is not None or v.is_complex), default=0)
    if any(v.is_complex and len(v.shape) == axes for v in variables):
        return " Complex numbers are not read: first save abs(X), or real(X) and imag(X), as other variables."
    return f" {advice[min(axes, 4)]}" if min(axes, 4) in advice else ""


def listed(variables: Sequence[Variable | str], most: int = 8) -> str:
    """The first variables by name, shape and type, or names, for a message."""
    if not variables:
        return "none"
    more = f" and {len(variables) - most} more" if len(variables) > most else ""
    return ", ".join(str(v) for v in variables[:most]) + more


BAND_AXES = {"band", "bands", "wavelength", "wavelengths", "wl", "lambda", "spectral", "channel", "channels"}
ROW_AXES = {"y", "row", "rows", "line", "lines", "lat", "latitude", "northing", "downtrack", "height"}
COLUMN_AXES = {"x", "column", "columns", "sample", "samples", "lon", "longitude", "easting", "crosstrack"}
COLUMN_AXES |= {"width", "col", "cols"}
# Names in NASA's ocean colour files, such as those of PACE.
BAND_AXES |= {"wavelength_3d"}
ROW_AXES |= {"number_of_lines", "number_of_scans", "scans"}
COLUMN_AXES |= {"pixels_per_line", "pixels", "ccd_pixels"}


def choose_axes(
    path: Path,
    variable: Variable,
    asked: str | None,
    wavelength_counts: Collection[int],
    *,
    names: Sequence[str] = (),
    convention: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The order of a variable's axes and, where it was guessed, a note on how.

    In this order: what the user says; the names of the dimensions; the axis as long as the list of
    wavelengths; the format's own `convention`; of a square scene, the axis of another length. Else an error.
    """
    shape = variable.shape
    if asked is not None:
        return asked, ()
    named = _by_name(names)
    if named:
        return named, ()
    fitting = {axes for axes in ("brc", "rbc", "rcb") if shape[axes.index("b")] in wavelength_counts}
    if convention and (not fitting or convention in fitting):
        usual = f"axes assumed to be {spelled(convention)}, as usual for this format; change with `axes`"
        return convention, () if fitting else (usual,)
    if len(fitting) == 1:
        axes = fitting.pop()
        return axes, (f"axes assumed to be {spelled(axes)}: the band axis is as long as the list of wavelengths",)
    odd = [i for i in range(3) if shape.count(shape[i]) == 1]
    if not fitting and len(odd) == 1:
        axes = ("brc", "rbc", "rcb")[odd[0]]
        return axes, (f"axes assumed to be {spelled(axes)}: the other two axes have the same length",)
    raise FormatError(
        f"{path}: {variable.name} {shape} does not say which axis holds the bands. Set it with `axes`, "
        "such as rcb for rows, columns, bands."
    )


def axis_called(name: str) -> str:
    """b, r or c for a dimension that has a usual name, else a question mark."""
    plain = name.rpartition("/")[2].lower()
    known = {"b": BAND_AXES, "r": ROW_AXES, "c": COLUMN_AXES}
    usual = next((letter for letter, words in known.items() if plain in words), "?")
    return "b" if plain.endswith("_bands") else usual


def single_axis(shape: Sequence[int], names: Sequence[str]) -> int | None:
    """Which of four axes has length 1 and can be left out, preferably one without a usual name; None if none."""
    single = [axis for axis, size in enumerate(shape) if size == 1] if len(shape) == 4 else []
    others = [axis for axis in single if axis < len(names) and axis_called(names[axis]) == "?"]
    return next(iter([*others, *single]), None)


def _by_name(names: Sequence[str]) -> str | None:
    letters = "".join(map(axis_called, names))
    if letters.count("b") == 1 and len(letters) == 3 and letters.count("?") == 2:
        letters = letters.replace("?", "r", 1).replace("?", "c", 1)
    elif letters.count("?") == 1:
        letters = letters.replace("?", (set("brc") - set(letters)).pop())
    return letters if sorted(letters) == ["b", "c", "r"] else None


def spelled(axes: str) -> str:
    """The order of the axes in words."""
    return " x ".join({"b": "bands", "r": "rows", "c": "columns"}[axis] for axis in axes)


def overridden(axes: str, said: str) -> tuple[str, ...]:
    """A note if a file is read with other axes than it says."""
    note = f"read as {spelled(axes)}, as `axes` says; the file itself says {spelled(said)}"
    return (note,) if axes != said else ()


def interleave(axes: str) -> str:
    """The interleave nearest to an order of axes: the one with the bands at the same position."""
    return {order.index("b"): name for name, order in INTERLEAVES.items()}[axes.index("b")]


@dataclass(frozen=True)
class OneBand:
    """A view of a matrix as a cube of one band, its last axis."""

    matrix: Sliceable

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.matrix.shape, 1)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        part: Pixels = np.asarray(self.matrix[key[:2]])[..., None]
        return part[:, :, key[2]]


@dataclass(frozen=True)
class FoldedPixels:
    """A view of a matrix of spectra as a cube; its pixels go down the columns of the picture, as in MATLAB.

    Its axes are (columns, rows, bands) where the pixels come first and (bands, columns, rows) elsewhere.
    """

    matrix: Sliceable
    rows: int
    columns: int
    pixels_first: bool

    @property
    def shape(self) -> tuple[int, ...]:
        bands = self.matrix.shape[1 if self.pixels_first else 0]
        picture = (self.columns, self.rows)
        return (*picture, bands) if self.pixels_first else (bands, *picture)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        bands = key[2] if self.pixels_first else key[0]
        columns, rows = key[:2] if self.pixels_first else key[1:]
        first, end, _ = columns.indices(self.columns)
        pixels = slice(first * self.rows, max(first, end) * self.rows)
        if self.pixels_first:
            part = np.asarray(self.matrix[pixels, bands])
            return part.reshape(-1, self.rows, part.shape[1])[:, rows]
        part = np.asarray(self.matrix[bands, pixels])
        return part.reshape(part.shape[0], -1, self.rows)[:, :, rows]
