"""A cube among named arrays with attributes, as in HDF5, netCDF-4 and Zarr: how it is found and laid out.

What we write follows the CF conventions (dimensions named as in the input, else band, y, x; coordinates; a
`spatial_ref` variable), so that xarray, GDAL and netCDF tools understand it. What we read may have less metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.cube import INTERLEAVES, CubeMeta, Pixels, Sliceable
from pdenet_cli.dtypes import as_stored
from pdenet_cli.errors import OutputError
from pdenet_cli.formats import attributes, crs
from pdenet_cli.formats.base import OpenOptions
from pdenet_cli.formats.choosing import (
    OneBand,
    Variable,
    axis_called,
    choose_axes,
    choose_variable,
    interleave,
    single_axis,
)
from pdenet_cli.formats.labelled import coordinates, placing, spectra
from pdenet_cli.formats.labelled.ground_grid import GroundGrid, degrees_of
from pdenet_cli.formats.labelled.store import Store
from pdenet_cli.formats.labelled.views import Unsigned, WithoutAxis, unsigned
from pdenet_cli.georeference import Georeference

INTERNAL = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_ARRAY_DIMENSIONS"}
INTERNAL |= {"_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "MATLAB_class"}
INTERNAL |= {"coordinates", "grid_mapping", "Conventions", "_FillValue", "_Unsigned", *attributes.PLACE}
"""Attributes about the structure of one file: never copied to another."""

GLOBAL = "global attributes"  # in CubeMeta.native: the names of those in `extra`

ADVICE = {
    2: "A matrix is read as one band if it is named with --var.",
    4: "A cube has three axes: first cut out one time (or whatever the other axis is), such as with "
    "xarray's isel(time=0) or with ncks -d time,0.",
}


def read(store: Store, options: OpenOptions) -> tuple[CubeMeta, Sliceable, str]:
    """The cube in a store: its metadata, its pixels, and the order of their axes."""
    variables = store.variables()
    if options.variable is not None:
        asked = store.variable(options.variable)
        options = replace(options, variable=asked.name)
        variables = [asked, *(v for v in variables if v.name != asked.name)]
    variables = [_without_single_axis(store, variable) for variable in variables]
    lists = spectra.lists_in(store, variables)
    counts = spectra.counts_of(lists)
    chosen, notes = choose_variable(store.path, variables, options.variable, counts, ADVICE)
    attrs = _inherited(store, chosen.name)
    array, dimensions, left_out = _pixels(store, chosen.name)
    more: tuple[str, ...]
    if len(chosen.shape) == 2:
        array, axes, more = OneBand(array), "rcb", ("a matrix, read as one band",)
        dimensions = [*dimensions, ""]
    else:
        counts |= {
            len(v) for n, v in attrs.items() if spectra.field_of(n) == "wavelengths" and isinstance(v, list)
        }
        names = spectra.named_axes(store, dimensions, lists)
        axes, more = choose_axes(store.path, chosen, options.axes, counts, names=names)
    kind, fill = chosen.dtype, store.fill(chosen.name)
    assert kind is not None
    if str(attrs.get("_Unsigned")).lower() == "true" and kind.kind == "i":
        array, attrs, fill = Unsigned(array), _without_sign(attrs, kind), _positive(fill, kind)
        kind = unsigned(kind)
    along = dict(zip(axes, dimensions, strict=False))
    sizes = dict(zip(axes, array.shape, strict=True))
    beside = spectra.beside(store, chosen.name, lists, along.get("b", ""), sizes["b"])
    fields, rest = attributes.parse_fields(attrs | {n: v for n, v in beside.items() if n not in attrs}, sizes["b"])
    if "nodata" not in fields and fill:  # not 0, which is the default and may be data
        fields["nodata"] = fill
        more = (*more, f"its fill value {fill:.10g} is read as nodata")
    extra = {name: value for name, value in rest.items() if not _is_internal(name)}
    own = store.attributes(chosen.name)
    above = tuple(name for name in store.attributes("") if name in extra and name not in own)
    place, doubts = placing.placed(store, chosen.name, attrs, along)
    meta = CubeMeta(
        bands=sizes["b"],
        rows=sizes["r"],
        columns=sizes["c"],
        dtype=kind,
        interleave=interleave(axes),
        georeference=place,
        dimensions=_kept_dimensions(along, chosen.name),
        variable=chosen.name or None,
        extra=extra,
        native={GLOBAL: above} if above else {},
        notes=(*notes, *left_out, *more, *doubts, *attributes.notes_on_other_nodata(attrs, fields.get("nodata"))),
        **fields,
    )
    return meta, array, axes


def _kept_dimensions(along: Mapping[str, str], variable: str) -> tuple[str, str, str] | None:
    """The names of the axes, if they are unusual and can be read back from an output; else None."""
    band, row, column = (along.get(axis, "").rpartition("/")[2] for axis in "brc")
    known = [axis_called(name) for name in (band, row, column)] == ["b", "r", "c"]
    if not known or {band, row, column} & {variable.rpartition("/")[2], *RESERVED}:
        return None
    return None if (band, row, column) == USUAL else (band, row, column)


def _without_single_axis(store: Store, variable: Variable) -> Variable:
    """The variable; of four axes, one of length 1 is left out."""
    if len(variable.shape) != 4 or (axis := single_axis(variable.shape, store.dimensions(variable.name))) is None:
        return variable
    return replace(variable, shape=variable.shape[:axis] + variable.shape[axis + 1 :])


def _pixels(store: Store, name: str) -> tuple[Sliceable, list[str], tuple[str, ...]]:
    """The array of a variable, the names of its axes, and a note; of four axes, one of length 1 is left out."""
    array, dimensions = store.array(name), list(store.dimensions(name))
    axis = single_axis(array.shape, dimensions)
    if axis is None:
        return array, dimensions, ()
    called = dimensions.pop(axis) if axis < len(dimensions) else ""
    return WithoutAxis(array, axis), dimensions, (f"{called or 'an axis'} has length 1 and is ignored",)


def _without_sign(attrs: Mapping[str, Any], kind: np.dtype[Any]) -> dict[str, Any]:
    """Attributes of unsigned numbers, with nodata values that are written with a sign made positive."""
    return {
        n: [_positive(number, kind) for number in attributes.numbers(v) or ()]
        if spectra.field_of(n) == "nodata"
        else v
        for n, v in attrs.items()
    }


def _positive(number: float | None, kind: np.dtype[Any]) -> float | None:
    return number + 2.0 ** (8 * kind.itemsize) if number is not None and number < 0 else number


def _is_internal(name: str) -> bool:
    return name in INTERNAL or placing.envi_name(name) in placing.ENVI_PLACE


def _inherited(store: Store, name: str) -> dict[str, Any]:
    """A variable's attributes, and those of the groups around it that it does not override."""
    attrs = dict(store.attributes(name))
    while name:
        name = name.rpartition("/")[0]
        attrs = {**store.attributes(name), **attrs}
    return attrs


def global_attributes(meta: CubeMeta) -> dict[str, Any]:
    """The attributes of an output as a whole: those that its scene has there too."""
    names = meta.native.get(GLOBAL, ())
    return {n: v for n, v in attributes.dump_extra(meta, {}).items() if n in names and not _is_internal(n)}


@dataclass(frozen=True)
class LayoutArray:
    """One array of a file to be written; `values` is None for the pixels, which are written later."""

    name: str
    dimensions: tuple[str, ...]
    values: Pixels | GroundGrid | None
    attributes: dict[str, Any] = field(default_factory=dict)


USUAL = ("band", "y", "x")  # names of dimensions
RESERVED = {"fwhm", "spatial_ref", "zarr.json"}
TAKEN = {*USUAL, *RESERVED, "lat", "lon", "wavelength"}


def by_planes(path: Path, meta: CubeMeta) -> CubeMeta:
    """The metadata of an output with the bands first or last, never between rows and columns."""
    # GDAL takes the last two axes for a picture, unless they are columns and bands.
    return replace(meta, interleave="bsq") if meta.interleave == "bil" else meta


def refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    """Stop before anything is written if such a cube cannot be read back."""
    if meta.dtype.kind == "c":
        raise OutputError(f"HDF5, netCDF and Zarr cubes cannot hold {meta.dtype.name}. Use ENVI or TIFF.")


def dimensions(meta: CubeMeta) -> dict[str, str]:
    """The names of bands b, rows r and columns c: those of the input file, or the usual ones."""
    names = meta.dimensions or USUAL
    if names[1:] != USUAL[1:] and degrees_of(meta):
        names = (names[0], *USUAL[1:])  # `lat` and `lon` are then grids
    if meta.wavelengths is None and spectra.field_of(names[0]) == "wavelengths":
        names = (USUAL[0], *names[1:])
    return dict(zip("brc", names, strict=True))


def layout(meta: CubeMeta) -> list[LayoutArray]:
    """The arrays that hold a cube and its metadata; the pixels come last."""
    names = dimensions(meta)
    band = names["b"]
    parts = [*_coordinates(meta, names)]
    attrs = attributes.dump_fields(meta)
    fill = fill_value(meta)
    if fill is not None and (float(fill) == meta.nodata or fill != fill):
        del attrs["nodata"]  # `_FillValue` says the same
    if meta.wavelengths is not None:
        units = {"units": meta.wavelength_units} if meta.wavelength_units else {}
        # Named like its dimension if possible, so that xarray can select bands by wavelength.
        name = band if spectra.field_of(band) == "wavelengths" else "wavelength"
        parts.append(LayoutArray(name, (band,), np.asarray(meta.wavelengths, "<f8"), units))
    if meta.fwhm is not None:
        parts.append(LayoutArray("fwhm", (band,), np.asarray(meta.fwhm, "<f8")))
    for name, grid in degrees_of(meta).items():
        latitude = {"standard_name": "latitude", "units": "degrees_north"}
        longitude = {"standard_name": "longitude", "units": "degrees_east"}
        parts.append(LayoutArray(name, (names["r"], names["c"]), grid, latitude if name == "lat" else longitude))
    beside = [part.name for part in parts if part.dimensions != (part.name,)]
    if beside:
        attrs["coordinates"] = " ".join(beside)
    if meta.georeference != Georeference():
        parts.append(
            LayoutArray("spatial_ref", (), np.zeros((), "<i4"), attributes.dump_georeference(meta.georeference))
        )
        attrs["grid_mapping"] = "spatial_ref"
    scaling = {"data_gain_values": "scale_factor", "data_offset_values": "add_offset"}
    given = [name for name in scaling if name in attrs]
    # One value for all bands has a CF name, which other tools apply; one without the other would mislead them.
    if all(len(set(attrs[name])) == 1 for name in given):
        attrs |= {scaling[name]: attrs.pop(name)[0] for name in given}
    above = global_attributes(meta)
    attrs |= {
        n: v for n, v in attributes.dump_extra(meta, attrs).items() if n not in above and not _is_internal(n)
    }
    axes = tuple(names[axis] for axis in INTERLEAVES[meta.interleave])
    return [*parts, LayoutArray(_variable_name(meta.variable, {part.name for part in parts}), axes, None, attrs)]


def _variable_name(wanted: str | None, taken: set[str]) -> str:
    name = (wanted or "").strip("/")
    usable = all(re.fullmatch(r"[A-Za-z_][\w .-]*", step) for step in name.split("/"))
    return name if usable and name.split("/")[0] not in TAKEN | taken else "cube"


def _coordinates(meta: CubeMeta, dimension_names: Mapping[str, str]) -> list[LayoutArray]:
    """The ground coordinates of the pixel centres, for a scene that is not rotated."""
    where = meta.georeference
    if where.transform is None or where.transform[2] or where.transform[4]:
        return []
    x0, xc, _, y0, _, yr = where.transform
    system = crs.parsed(where.crs)
    if system is not None and system.is_geographic:
        names = {"y": ("latitude", "degrees_north"), "x": ("longitude", "degrees_east")}
    else:
        names = {axis: (f"projection_{axis}_coordinate", coordinates.cf_units(system)) for axis in "yx"}
    centres = {"y": y0 + yr * (np.arange(meta.rows) + 0.5), "x": x0 + xc * (np.arange(meta.columns) + 0.5)}
    own = {"y": dimension_names["r"], "x": dimension_names["c"]}
    return [
        LayoutArray(own[axis], (own[axis],), centres[axis].astype("<f8"), {"standard_name": name, "units": units})
        for axis, (name, units) in names.items()
    ]


def fill_value(meta: CubeMeta) -> Any:
    """The nodata value in the type of the pixels, None if that type cannot hold it."""
    if meta.nodata is None:
        return None
    if meta.dtype.kind == "f":
        with np.errstate(over="ignore"):
            fill = meta.dtype.type(meta.nodata)
        return fill if np.isinf(fill) == np.isinf(meta.nodata) else None
    value = as_stored(meta.nodata, meta.dtype)
    return meta.dtype.type(value) if isinstance(value, int) else None
