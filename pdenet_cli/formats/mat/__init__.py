"""MATLAB files, v5 and v7.3: cubes of (rows, columns, bands), and matrices of spectra as in unmixing sets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.cube import Cube, CubeMeta, Sliceable
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats import attributes
from pdenet_cli.formats.base import Format, OpenOptions
from pdenet_cli.formats.choosing import (
    FoldedPixels,
    OneBand,
    Variable,
    choose_axes,
    choose_variable,
    interleave,
    listed,
)
from pdenet_cli.formats.hdf5.guard import GuardedArray, GuardedFile, is_hdf5
from pdenet_cli.formats.limits import refuse_whole
from pdenet_cli.formats.mat import v5, v5_writing, v73

USUAL_AXES = "rcb"  # MATLAB's own toolboxes and nearly all data sets have the bands last
OURS = b"written by pdenet"
LARGEST_V5 = (1 << 31) - (1 << 20)  # bytes of a variable, with room for its header
ROWS = {"nrow", "nrows", "row", "rows", "numrows", "h", "height", "lines", "nlines"}
COLUMNS = {"ncol", "ncols", "col", "cols", "column", "columns", "numcols", "w", "width", "samples", "nsamples"}
LAYOUT = ROWS | COLUMNS | {"nband", "nbands", "bands", "interleave", "axes"}
"""Small variables about the size of this one cube: never copied to another."""

AXES, WAVELENGTH = "MATLAB axes", "MATLAB wavelength"  # in CubeMeta.native: their order, its name

ADVICE = {
    2: "Arrays of rows x columns x bands are read; matrices of pixels x bands or bands x pixels if the numbers of "
    "rows and columns are beside them as nRow and nCol, with the pixels column by column; other matrices, named "
    "with --var, as one band.",
    4: "A cube has three axes: first cut one out in MATLAB, such as X(:, :, :, 1).",
}


def _recognises(path: Path, head: bytes) -> bool:
    v5_or_newer = head[126:128] in (b"IM", b"MI") and head[124:126] in (b"\0\1", b"\1\0", b"\0\2", b"\2\0")
    return v5_or_newer or (path.suffix.lower() == ".mat" and _is_v4(head))


def _is_v4(head: bytes) -> bool:
    """Whether a file begins as MAT v4 does: a number whose decimal digits are type codes, then a size."""
    if len(head) < 20:
        return False
    for order in "<>":
        kind, rows, columns, imaginary, length = (int(n) for n in np.frombuffer(head[:20], order + "i4"))
        if 0 <= kind <= 4052 and rows > 0 and columns > 0 and imaginary in (0, 1) and 1 < length < 64:
            return True
    return False


def _open(path: Path, options: OpenOptions) -> Cube:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[126:128] not in (b"IM", b"MI"):
        raise FormatError(f"{path}: MAT v4 is not read. Save it again in MATLAB with -v7.")
    if not is_hdf5(head):
        return _cube(path, v5.variables(path), options, lambda: None, ours=OURS in head)
    guarded = GuardedFile.open(path)
    try:
        return _cube(path, v73.variables(guarded), options, guarded.file.close, guarded, ours=OURS in head)
    except BaseException:
        guarded.file.close()
        raise


def _cube(
    path: Path,
    variables: list[Variable],
    options: OpenOptions,
    close: Callable[[], None],
    guarded: GuardedFile | None = None,
    *,
    ours: bool = False,
) -> Cube:
    scopes = _scopes(variables)
    counts = {len(v) for values in scopes.values() for v in _wavelengths(values).values()}
    folded = _foldable(variables, scopes, options.variable)
    if folded:
        chosen, notes = _only(path, folded, counts)
    else:
        chosen, notes = choose_variable(path, variables, options.variable, counts, ADVICE)
    array = _trusted(path, chosen, guarded)
    own = scopes.get(chosen.name.rpartition(".")[0], {})
    native: dict[str, Any] = {}
    if folded:
        array, axes, more = _fold(chosen, array, scopes)
    elif len(chosen.shape) == 2:
        array, axes, more = OneBand(array), "crb", ("a matrix, read as one band",)
    else:
        written = own.get("axes") if ours else None
        order, more = choose_axes(path, chosen, options.axes or written, counts, convention=USUAL_AXES)
        native |= {} if order == USUAL_AXES else {AXES: order}
        axes = order[::-1]  # on disk the first of MATLAB's axes is the fastest
    sizes = dict(zip(axes, array.shape, strict=True))
    place = (
        {n: v for n, v in own.items() if n in attributes.PLACE} if ours else attributes.georeference_fields(own)
    )
    fields, rest = _metadata(scopes, chosen, sizes["b"], place)
    if (spectrum := _spectrum(own)) is not None and list(fields.get("wavelengths", ())) == own[spectrum]:
        more = (*more, f"{spectrum} read as the wavelengths of the bands")
    for name, values in (pair for scope in (own, *scopes.values()) for pair in _wavelengths(scope).items()):
        if name != "wavelength" and tuple(values) == fields.get("wavelengths"):
            native.setdefault(WAVELENGTH, name)
    if "." in chosen.name:
        more = (*more, f"{chosen.name} is in a struct: a MAT output has it as {_variable_name(chosen.name)}")
    assert chosen.dtype is not None
    meta = CubeMeta(
        bands=sizes["b"],
        rows=sizes["r"],
        columns=sizes["c"],
        dtype=chosen.dtype,
        interleave=interleave(axes),
        georeference=attributes.parse_georeference(place),
        variable=chosen.name,
        extra=rest,
        native=native,
        notes=(*notes, *more, *attributes.notes_on_other_nodata(own, fields.get("nodata"))),
        **fields,
    )
    return Cube(path, meta, array, axes, close)


def _trusted(path: Path, chosen: Variable, guarded: GuardedFile | None) -> Sliceable:
    if chosen.array is None:
        raise FormatError(f"{path}: {chosen} does not hold as many bytes as its size says.")
    if guarded is not None and isinstance(chosen.array, GuardedArray):
        guarded.trust(chosen.array.dataset)
    if isinstance(chosen.array, v5.InflatedArray):
        refuse_whole(path, chosen.name, math.prod(chosen.shape) * chosen.array.dtype.itemsize)
    return chosen.array


def _scopes(variables: list[Variable]) -> dict[str, dict[str, Any]]:
    """The small values by the struct that holds them ("" for the file itself) and their name there."""
    scopes: dict[str, dict[str, Any]] = {"": {}}
    for variable in variables:
        if variable.value is not None:
            scope, _, name = variable.name.rpartition(".")
            scopes.setdefault(scope, {})[name] = variable.value
    return scopes


def _wavelengths(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    spectrum = _spectrum(values)
    return {
        n: v
        for n, v in values.items()
        if (attributes.field_of(n) == "wavelengths" or n == spectrum) and isinstance(v, list)
    }


def _spectrum(values: Mapping[str, Any]) -> str | None:
    """The variable `bands`, if it holds wavelengths as in ICVL and ARAD, and no other does; else None."""
    if any(attributes.field_of(name) == "wavelengths" for name in values):
        return None
    return next((n for n, v in values.items() if n.lower() == "bands" and attributes.is_spectrum(v)), None)


def _metadata(
    scopes: dict[str, dict[str, Any]], chosen: Variable, bands: int, place: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata in the cube's own struct; wavelengths, units and widths may come from another one, together."""
    home = chosen.name.rpartition(".")[0]
    scopes = {scope: _renamed(values) for scope, values in scopes.items()}
    own = {n: v for n, v in scopes.get(home, {}).items() if n not in place}
    fields, rest = attributes.parse_fields({n: v for n, v in own.items() if _fits(n, v, bands)}, bands)
    for scope in sorted(scopes, key=lambda s: (not s.startswith(home), s)):
        others, _ = attributes.parse_fields({n: v for n, v in scopes[scope].items() if _fits(n, v, bands)}, bands)
        if "wavelengths" not in fields and "wavelengths" in others:
            fields |= {n: others[n] for n in ("wavelengths", "wavelength_units", "fwhm") if n in others}
        if "good_bands" in others:
            fields.setdefault("good_bands", others["good_bands"])
    extra = _extra(rest.pop("extra", None))
    kept = {n: v for n, v in rest.items() if not _is_layout(n, v) and not _is_long(v)}
    return fields, extra | kept


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    spectrum = _spectrum(values)
    return {"wavelength" if name == spectrum else name: value for name, value in values.items()}


def _fits(name: str, value: Any, bands: int) -> bool:
    """Whether a list per band has as many items as bands; a variable `wl` may be something else."""
    per_band = attributes.field_of(name) in CubeMeta.PER_BAND
    return not per_band or bands == (len(value) if isinstance(value, list) else 1)


def _extra(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_layout(name: str, value: Any) -> bool:
    return name.lower() in LAYOUT and not (name.lower() == "bands" and isinstance(value, list))


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 4096


def _picture(scopes: dict[str, dict[str, Any]]) -> tuple[int, int] | None:
    """The rows and columns that the file gives for a matrix of spectra; None if it gives none."""
    plain = {name.lower().replace("_", ""): value for name, value in scopes[""].items()}
    counts = [next((plain[n] for n in sorted(names) if _is_count(plain.get(n))), 0) for names in (ROWS, COLUMNS)]
    return (int(counts[0]), int(counts[1])) if all(counts) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 1 and float(value).is_integer()


def _foldable(variables: list[Variable], scopes: dict[str, dict[str, Any]], asked: str | None) -> list[Variable]:
    """The matrices of spectra in a file without a cube, or the one asked for."""
    picture = _picture(scopes)
    if picture is None or (asked is None and any(v.is_cube for v in variables)):
        return []
    pixels = math.prod(picture)
    return [
        v
        for v in variables
        if v.dtype is not None and len(v.shape) == 2 and pixels in v.shape and asked in (None, v.name)
    ]


def _only(path: Path, folded: list[Variable], counts: set[int]) -> tuple[Variable, tuple[str, ...]]:
    fitting = [v for v in folded if set(v.shape) & counts] if len(folded) > 1 else folded
    if len(fitting) != 1:
        raise FormatError(f"{path}: {len(folded)} matrices of spectra: {listed(folded)}. Choose one with --var.")
    return fitting[0], ()


def _fold(
    chosen: Variable, array: Sliceable, scopes: dict[str, dict[str, Any]]
) -> tuple[Sliceable, str, tuple[str, ...]]:
    picture = _picture(scopes)
    assert picture is not None
    rows, columns = picture
    bands_first = chosen.shape[1] == rows * columns
    note = f"a matrix of spectra, folded into {rows} rows x {columns} columns, column by column"
    folded = FoldedPixels(array, rows, columns, pixels_first=bands_first)  # reversed on disk
    return folded, "crb" if bands_first else "bcr", (note,)


def _refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    if meta.dtype.str[1:] not in v5.CLASSES.values():
        raise OutputError(f"MATLAB cannot hold {meta.dtype.name}. Use --dtype float32 or another format.")


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    part, name = parts[0], _variable_name(meta.variable)
    order = meta.native.get(AXES, USUAL_AXES) if meta.bands > 1 else USUAL_AXES  # to MATLAB, a band is a matrix
    small = attributes.dump_fields(meta) | attributes.dump_georeference(meta.georeference)
    small = {_wavelength_name(meta) if n == "wavelength" else n: value for n, value in small.items()}
    if order != USUAL_AXES:
        small["axes"] = order
    if meta.extra:
        small["extra"] = json.dumps(dict(meta.extra), default=str)
    small.pop(name, None)
    write, axes = v5_writing.create if meta.nbytes < LARGEST_V5 else v73.create, order[::-1]
    return Cube(part, meta, write(part, small, name, meta.shape(axes), meta.dtype), axes)


def _variable_name(wanted: str | None) -> str:
    """What a variable, or one inside a struct or group, is called in an output."""
    name = re.split("[./]", wanted or "")[-1]
    return name if _is_name(name) else "cube"


def _wavelength_name(meta: CubeMeta) -> str:
    """What the wavelengths are called in an output: as in the scene, if they can be found again by that name."""
    name = meta.native.get(WAVELENGTH, "wavelength")
    several = meta.bands > 1 and attributes.is_spectrum(list(meta.wavelengths or ()))
    known = attributes.field_of(name) == "wavelengths" or several
    return name if known and _is_name(name) else "wavelength"


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z]\w{0,62}", text, re.ASCII) is not None


FORMAT = Format(
    name="MATLAB", suffixes=(".mat",), recognises=_recognises, open=_open, create=_create, refuse=_refuse
)
