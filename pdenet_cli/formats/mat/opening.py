"""The cube in a MATLAB file, v5 or v7.3: its pixels, and what the small variables around it say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.base import OpenOptions
from pdenet_cli.formats.common.choosing import OneBand, Variable, choose_axes, choose_variable, interleave, listed
from pdenet_cli.formats.common.limits import refuse_whole
from pdenet_cli.formats.hdf5.guard import GuardedArray, GuardedFile
from pdenet_cli.formats.mat import v5
from pdenet_cli.formats.mat.folding import Spectra
from pdenet_cli.formats.mat.names import AXES, USUAL_AXES, WAVELENGTH, variable_name
from pdenet_cli.formats.mat.scopes import Scopes, is_kept, spectrum_in, unpacked
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Sliceable

ADVICE = {
    2: "Arrays of rows x columns x bands are read; matrices of pixels x bands or bands x pixels if the numbers of "
    "rows and columns are beside them as nRow and nCol, with the pixels column by column; other matrices, named "
    "with `variable`, as one band.",
    4: "A cube has three axes: first cut one out in MATLAB, such as X(:, :, :, 1).",
}


@dataclass(frozen=True)
class MatFile:
    """A MATLAB file and its variables; v7.3 is open while it is read."""

    path: Path
    variables: list[Variable]
    ours: bool  # written by pdenet
    guarded: GuardedFile | None = None  # None: v5


@dataclass(frozen=True)
class _Found:
    """The variable that holds the cube, and how it is read as one."""

    variable: Variable
    array: Sliceable
    axes: str  # on disk, where the first of MATLAB's axes is the fastest
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.variable.name


def read(file: MatFile, options: OpenOptions) -> tuple[CubeMeta, Sliceable, str]:
    """The cube in a file: its metadata, its pixels, and the order of their axes on disk."""
    scopes = Scopes.of(file.variables)
    found = _find(file, scopes, options)
    scopes = Scopes.of(v for v in file.variables if v is not found.variable)
    sizes = dict(zip(found.axes, found.array.shape, strict=True))
    beside = scopes.beside(found.name)
    place = _place(file, beside)
    fields, extra = scopes.metadata(found.name, sizes["b"], place)
    assert found.variable.dtype is not None
    meta = CubeMeta(
        bands=sizes["b"],
        rows=sizes["r"],
        columns=sizes["c"],
        dtype=found.variable.dtype,
        interleave=interleave(found.axes),
        georeference=attributes.parse_georeference(place),
        variable=found.name,
        extra=unpacked(extra) if file.ours else extra,
        native=_native(found, scopes.unusual_name(found.name, fields.get("wavelengths"))),
        notes=(*found.notes, *_notes(found.name, beside, fields), *_left_out(file, found.variable)),
        **scopes.misfits(sizes["b"]) | fields,
    )
    return meta, found.array, found.axes


def _find(file: MatFile, scopes: Scopes, options: OpenOptions) -> _Found:
    """The cube: a matrix of spectra to be folded, a matrix as one band, or an array of three axes."""
    counts = scopes.wavelength_counts()
    spectra = Spectra.among(file.variables, scopes.top, options.variable)
    if spectra is not None:
        matrix = spectra.only_one(file.path, counts)
        return _Found(matrix, *spectra.folded(matrix, _trusted(file, matrix)))
    chosen, notes = choose_variable(file.path, file.variables, options.variable, counts, ADVICE)
    array = _trusted(file, chosen)
    if len(chosen.shape) == 2:
        return _Found(chosen, OneBand(array), "crb", (*notes, "a matrix, read as one band"))
    written, damage = _written_axes(scopes.beside(chosen.name)) if file.ours else (None, ())
    order, doubts = choose_axes(file.path, chosen, options.axes or written, counts, convention=USUAL_AXES)
    return _Found(chosen, array, order[::-1], (*notes, *damage, *doubts))


def _written_axes(beside: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The order of axes that pdenet wrote beside its cube, or a note if that is damaged."""
    axes = beside.get("axes")
    if axes is None or (isinstance(axes, str) and sorted(axes) == ["b", "c", "r"]):
        return axes, ()
    return None, (f"axes ignored: {str(axes)[:20]!r} is not an order of b, r and c",)


def _trusted(file: MatFile, chosen: Variable) -> Sliceable:
    """The array of a variable, whose size can be believed and read."""
    if chosen.array is None:
        raise FormatError(f"{file.path}: {chosen} does not hold as many bytes as its size says.")
    if file.guarded is not None and isinstance(chosen.array, GuardedArray):
        file.guarded.trust(chosen.array.dataset)
    if isinstance(chosen.array, v5.WholeVariable):
        refuse_whole(file.path, chosen.name, math.prod(chosen.shape) * chosen.array.dtype.itemsize)
    return chosen.array


def _place(file: MatFile, beside: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the georeference among those beside the cube."""
    if file.ours:  # then `points` means points, even without a coordinate system
        return {n: v for n, v in beside.items() if n in attributes.PLACE}
    return attributes.georeference_fields(beside)


def _native(found: _Found, wavelengths: str | None) -> dict[str, Any]:
    """What only another MATLAB file can have as this one has it: the order of axes and the name of wavelengths."""
    native = {}
    order = found.axes[::-1]
    if len(found.variable.shape) == 3 and order != USUAL_AXES:  # a matrix has no such order to keep
        native[AXES] = order
    if wavelengths is not None:
        native[WAVELENGTH] = wavelengths
    return native


def _left_out(file: MatFile, cube: Variable) -> tuple[str, ...]:
    """A note on variables such as labels and masks; other cubes were named when this one was chosen."""
    others = [v for v in file.variables if v is not cube and not is_kept(v, cube.name)]
    names = [v.name for v in others if v.dtype is None or len(v.shape) < 3]
    return (f"outputs do not keep other variables: {listed(names, 4)}",) if names else ()


def _notes(name: str, beside: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """What a user may not expect of the values beside the cube, and of its name in an output."""
    notes: tuple[str, ...] = ()
    spectrum = spectrum_in(beside)
    if spectrum is not None and list(fields.get("wavelengths", ())) == beside[spectrum]:
        notes += (f"{spectrum} read as the wavelengths of the bands",)
    if "." in name:
        notes += (f"{name} is in a struct: a MAT output has it as {variable_name(name)}",)
    return (*notes, *attributes.notes_on_other_nodata(beside, fields.get("nodata")))
