"""A DataArray as a cube: its bands are found by the names and coordinates of its dimensions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr

from pdenet_cli.errors import UsageError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.choosing import axis_called
from pdenet_cli.formats.labelled.spectra import LENGTH_UNITS
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta

STANDARD = ("radiation_wavelength", "sensor_band_central_radiation_wavelength")
"""CF's names of wavelengths."""
ACROSS = ("projection_x_coordinate", "longitude", "grid_longitude")
DOWN = ("projection_y_coordinate", "latitude", "grid_latitude")
PER_BAND = ("wavelengths", "fwhm", "good_bands", "band_names")


@dataclass(frozen=True)
class LabelledCube:
    """A DataArray of three dimensions, its dimensions by what they are, and the cube that it holds."""

    array: xr.DataArray
    dims: Mapping[str, Hashable]  # by letter: b bands, r rows, c columns
    cube: Cube

    @classmethod
    def of(cls, array: object, spectral: Hashable | None = None) -> Self:
        """The cube that a DataArray is; UsageError if it is none, or does not say where its bands are."""
        if not isinstance(array, xr.DataArray):
            advice = "Choose a variable of a Dataset, as in dataset['reflectance']"
            raise UsageError(f"Expected a DataArray, not a {type(array).__name__}. {advice}.")
        array = _three_dimensional(array, spectral)
        if array.dtype.kind not in "uif" or not array.size:
            raise UsageError(f"Got {array.dtype.name} numbers of shape {array.shape}; expected real numbers.")
        bands = _spectral(array) if spectral is None else spectral
        if bands not in array.dims:
            raise UsageError(f"`spectral` {bands}: no dimension of {_listed(array)}.")
        rows, columns = _picture(array, bands)
        dims = {"b": bands, "r": rows, "c": columns}
        letters = {dim: letter for letter, dim in dims.items()}
        axes = "".join(letters[dim] for dim in array.dims)
        pixels = array.data if isinstance(array.data, np.ndarray) and array.chunks is None else Streamed(array)
        return cls(array, dims, Cube(Path(str(array.name or "the DataArray")), _meta(array, dims), pixels, axes))


@dataclass(frozen=True)
class Streamed:
    """The pixels of a lazy DataArray: only what a slice covers is read."""

    lazy: xr.DataArray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lazy.shape

    @property
    def block(self) -> tuple[int, ...]:
        """The size of the largest chunk."""
        return tuple(max(sizes) for sizes in self.lazy.variable.chunks or ())

    def __getitem__(self, key: tuple[slice, ...]) -> Any:
        # Where a tile is already a task of a scheduler, another one would wait for it.
        return self.lazy.variable[key].compute(scheduler="synchronous").values


def _three_dimensional(array: xr.DataArray, spectral: Hashable | None) -> xr.DataArray:
    """The array without dimensions of length 1 that are neither bands, rows nor columns."""
    single = [dim for dim in array.dims if array.sizes[dim] == 1 and dim != spectral]
    unknown = [dim for dim in single if axis_called(str(dim)) == "?" and dim not in _with_wavelengths(array)]
    array = array.squeeze(unknown[: max(0, array.ndim - 3)])
    if array.ndim != 3:
        advice = (
            "Cut out one with isel, as in isel(time=0)" if array.ndim > 3 else "A cube has bands, rows and columns"
        )
        raise UsageError(f"Expected three dimensions, not {_listed(array)}. {advice}.")
    return array


def _spectral(array: xr.DataArray) -> Hashable:
    """The dimension of the bands: that of the wavelengths, else the one that is called so."""
    for found in (_with_wavelengths(array), _with_listed_wavelengths(array), _called(array, "b")):
        if len(found) == 1:
            return found[0]
    advice = "Name it with `spectral`, or give it wavelengths with assign_coords"
    raise UsageError(f"None of {_listed(array)} has the wavelengths as a coordinate. {advice}.")


def _with_wavelengths(array: xr.DataArray) -> list[Hashable]:
    """The dimensions along which a coordinate holds wavelengths; if one is named so, only those."""
    named: list[Hashable] = []
    measured: list[Hashable] = []
    for name, coordinate in array.coords.items():
        if coordinate.ndim != 1 or coordinate.dtype.kind not in "uif":
            continue
        if attributes.field_of(str(name)) == "wavelengths" or coordinate.attrs.get("standard_name") in STANDARD:
            named += coordinate.dims
        elif LENGTH_UNITS.match(str(coordinate.attrs.get("units", ""))) and axis_called(str(name)) == "?":
            measured += coordinate.dims if attributes.are_wavelengths(coordinate.values.tolist()) else ()
    return list(dict.fromkeys(named or measured))


def _with_listed_wavelengths(array: xr.DataArray) -> list[Hashable]:
    """The dimensions as long as a list of wavelengths among the attributes."""
    lists = (value for name, value in _plain(array.attrs) if attributes.field_of(name) == "wavelengths")
    lengths = {len(value) for value in lists if isinstance(value, (list, tuple))}
    return [dim for dim in array.dims if array.sizes[dim] in lengths]


def _called(array: xr.DataArray, letter: str) -> list[Hashable]:
    return [dim for dim in array.dims if _letter(array, dim) == letter]


def _letter(array: xr.DataArray, dim: Hashable) -> str:
    """r or c for a dimension that is rows or columns by its coordinate or its name, b for bands; else ?."""
    about = array[dim].attrs if dim in array.coords else {}
    for letter, axis, names in (("c", "X", ACROSS), ("r", "Y", DOWN)):
        if about.get("axis") == axis or about.get("standard_name") in names:
            return letter
    return axis_called(str(dim))


def _picture(array: xr.DataArray, bands: Hashable) -> tuple[Hashable, Hashable]:
    """The dimensions of rows and columns: by their names, else in their order."""
    first, second = (dim for dim in array.dims if dim != bands)
    turned = _letter(array, first) == "c" or _letter(array, second) == "r"
    return (second, first) if turned else (first, second)


def _meta(array: xr.DataArray, dims: Mapping[str, Hashable]) -> CubeMeta:
    """What the attributes and the coordinates of the bands say about a cube."""
    bands = array.sizes[dims["b"]]
    said = dict(_plain(array.attrs))
    for name, coordinate in array.coords.items():
        field = attributes.field_of(str(name))
        field = "wavelengths" if coordinate.attrs.get("standard_name") in STANDARD else field
        if coordinate.dims == (dims["b"],) and field in PER_BAND:
            said[field if field == "wavelengths" else str(name)] = coordinate.values.tolist()
            if field == "wavelengths" and (units := coordinate.attrs.get("units")):
                said["wavelength_units"] = str(units)
    fields, _ = attributes.parse_fields(said, bands)
    return CubeMeta(bands, array.sizes[dims["r"]], array.sizes[dims["c"]], array.dtype, **fields)


def _plain(attrs: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Attributes with lists and numbers of Python in place of NumPy's."""
    for name, value in attrs.items():
        yield str(name), value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _listed(array: xr.DataArray) -> str:
    """The dimensions with their sizes, as text."""
    return ", ".join(f"{dim} ({size})" for dim, size in array.sizes.items())
