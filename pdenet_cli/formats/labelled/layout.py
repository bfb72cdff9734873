"""How a new file holds a cube: its arrays, their dimensions and attributes, as the CF conventions have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import OutputError
from pdenet_cli.formats.common import attributes, crs
from pdenet_cli.formats.labelled import coordinates, spectra
from pdenet_cli.formats.labelled.ground_grid import GroundGrid, degrees_of
from pdenet_cli.formats.labelled.names import GLOBAL, USUAL, is_internal, variable_name
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.dtypes import as_stored
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta

LATITUDE = {"long_name": "latitude", "standard_name": "latitude", "units": "degrees_north"}
LONGITUDE = {"long_name": "longitude", "standard_name": "longitude", "units": "degrees_east"}


@dataclass(frozen=True)
class LayoutArray:
    """One array of a file to be written; `values` is None for the pixels, which are written later."""

    name: str
    dimensions: tuple[str, ...]
    values: Pixels | GroundGrid | None
    attributes: dict[str, Any] = field(default_factory=dict)


def by_planes(path: Path, meta: CubeMeta) -> CubeMeta:
    """The metadata of an output with the bands first or last, never between rows and columns."""
    # GDAL takes the last two axes for a picture, unless they are columns and bands.
    return replace(meta, interleave="bsq") if meta.interleave == "bil" else meta


def refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    """Stop before anything is written if such a cube cannot be read back."""
    if meta.dtype.kind == "c":
        raise OutputError(f"HDF5, netCDF and Zarr cubes cannot hold {meta.dtype.name}. Use ENVI or TIFF.")


def arrays(meta: CubeMeta) -> list[LayoutArray]:
    """The arrays that hold a cube and its metadata; the pixels come last."""
    names = dimensions(meta)
    beside = [*_centres(meta, names), *_lists_per_band(meta, names["b"]), *_degrees(meta, names)]
    attrs = _fields(meta, {part.name for part in beside})
    outside = [part.name for part in beside if part.dimensions != (part.name,)]
    if outside:
        attrs["coordinates"] = " ".join(outside)
    if meta.georeference != Georeference():
        place = attributes.dump_georeference(meta.georeference)
        beside.append(LayoutArray("spatial_ref", (), np.zeros((), "<i4"), place))
        attrs["grid_mapping"] = "spatial_ref"
    attrs = _with_cf_scaling(attrs)
    above = global_attributes(meta)
    more = attributes.dump_extra(meta, attrs)
    attrs |= {n: v for n, v in more.items() if n not in above and not is_internal(n)}
    name = variable_name(meta.variable, {part.name for part in beside})
    axes = tuple(names[axis] for axis in INTERLEAVES[meta.interleave])
    return [*beside, LayoutArray(name, axes, None, attrs)]


def dimensions(meta: CubeMeta) -> dict[str, str]:
    """The names of bands b, rows r and columns c: those of the input file, or the usual ones."""
    names = meta.dimensions or USUAL
    if names[1:] != USUAL[1:] and degrees_of(meta):
        names = (names[0], *USUAL[1:])  # `lat` and `lon` are then grids
    if meta.wavelengths is None and spectra.field_of(names[0]) == "wavelengths":
        names = (USUAL[0], *names[1:])
    return dict(zip("brc", names, strict=True))


def global_attributes(meta: CubeMeta) -> dict[str, Any]:
    """The attributes of an output as a whole: those that its scene has there too."""
    names = meta.native.get(GLOBAL, ())
    return {n: v for n, v in attributes.dump_extra(meta, {}).items() if n in names and not is_internal(n)}


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


def _centres(meta: CubeMeta, dimension_names: Mapping[str, str]) -> list[LayoutArray]:
    """The ground coordinates of the pixel centres, for a scene that is not rotated."""
    where = meta.georeference
    if where.transform is None or where.transform[2] or where.transform[4]:
        return []
    x0, xc, _, y0, _, yr = where.transform
    system = crs.parsed(where.crs)
    if system is not None and system.is_geographic:
        about = {"y": LATITUDE, "x": LONGITUDE}
    else:
        units = coordinates.cf_units(system)
        about = {
            axis: {
                "long_name": f"{axis} of the centre of the pixel",
                "standard_name": f"projection_{axis}_coordinate",
                "units": units,
            }
            for axis in "yx"
        }
    centres = {"y": y0 + yr * (np.arange(meta.rows) + 0.5), "x": x0 + xc * (np.arange(meta.columns) + 0.5)}
    dimensions = {"y": dimension_names["r"], "x": dimension_names["c"]}
    return [
        LayoutArray(dimensions[axis], (dimensions[axis],), centres[axis].astype("<f8"), dict(about[axis]))
        for axis in "yx"
    ]


def _lists_per_band(meta: CubeMeta, band: str) -> list[LayoutArray]:
    """Wavelengths and widths along the dimension `band`."""
    lists = []
    units = {"units": meta.wavelength_units} if meta.wavelength_units else {}
    if meta.wavelengths is not None:
        # Named like its dimension if possible, so that xarray can select bands by wavelength.
        name = band if spectra.field_of(band) == "wavelengths" else "wavelength"
        about = {"long_name": "wavelength of the centre of the band", "standard_name": "radiation_wavelength"}
        lists.append(LayoutArray(name, (band,), np.asarray(meta.wavelengths, "<f8"), about | units))
    if meta.fwhm is not None:
        about = {"long_name": "full width at half maximum of the band"}
        lists.append(LayoutArray("fwhm", (band,), np.asarray(meta.fwhm, "<f8"), about | units))
    return lists


def _degrees(meta: CubeMeta, dimension_names: Mapping[str, str]) -> list[LayoutArray]:
    """Latitude and longitude of every pixel, for a scene that only points place."""
    picture = (dimension_names["r"], dimension_names["c"])
    about = {"lat": LATITUDE, "lon": LONGITUDE}
    return [LayoutArray(name, picture, grid, dict(about[name])) for name, grid in degrees_of(meta).items()]


def _fields(meta: CubeMeta, beside: Collection[str]) -> dict[str, Any]:
    """The fields of a cube as attributes of its pixels, without the lists that are arrays `beside` them."""
    attrs = attributes.dump_fields(meta)
    if meta.wavelengths is not None:
        attrs = {name: value for name, value in attrs.items() if name not in ("wavelength", "wavelength_units")}
    attrs = {name: value for name, value in attrs.items() if name not in beside}
    fill = fill_value(meta)
    if fill is not None and (float(fill) == meta.nodata or fill != fill):
        del attrs["nodata"]  # `_FillValue` says the same
    return attrs


def _with_cf_scaling(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes with gains and offsets under their CF names, where one value is for all bands."""
    scaling = {"data_gain_values": "scale_factor", "data_offset_values": "add_offset"}
    given = [name for name in scaling if name in attrs]
    # Other tools apply what has a CF name; one without the other would mislead them.
    if not all(len(set(attrs[name])) == 1 for name in given):
        return attrs
    others = {name: value for name, value in attrs.items() if name not in given}
    return others | {scaling[name]: attrs[name][0] for name in given}


CHUNK = dict(b=16, r=128, c=128)  # bands, rows and columns of a chunk that is written


def chunks(meta: CubeMeta, axes: str) -> tuple[int, ...]:
    """Few bands: tiles are written some bands at a time, and each time their chunks are decoded and encoded."""
    return tuple(min(CHUNK[axis], size) for axis, size in zip(axes, meta.shape(axes), strict=True))
