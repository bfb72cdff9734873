"""What a DataArray says about its pixels, for pixels that are finer: coordinates and attributes."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pdenet_cli.formats.labelled.placing import envi_name
from pdenet_cli.xarray.labels import LabelledCube

COARSE_ONLY = ("map info", "transform", "geotransform", "res", "x start", "y start", "geo points", "rpcs")
"""Attributes, by ENVI's spelling, that hold of the coarse grid; the coordinates say the same of the fine one."""
NODATA = ("_FillValue", "missing_value", "nodata", "data ignore value", "nodatavals")


def fine_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that hold on the fine grid too, where NaN is nodata."""
    gone = {*COARSE_ONLY, *NODATA}
    return {name: value for name, value in attrs.items() if name not in gone and envi_name(name) not in gone}


def fine_coordinates(cube: LabelledCube, scale: int) -> dict[Hashable, xr.Variable]:
    """All coordinates of a cube on a grid `scale` times finer: positions between pixels, labels repeated."""
    fine = {}
    for name, coordinate in cube.array.coords.items():
        variable = coordinate.variable
        for letter in "rc":
            dim = cube.dims[letter]
            if dim in variable.dims:
                variable = _finer(variable, dim, scale, name)
        fine[name] = xr.Variable(variable.dims, variable.values, _placed(variable.attrs, scale))
    return fine


def _finer(variable: xr.Variable, dim: Hashable, scale: int, name: Hashable) -> xr.Variable:
    """A coordinate with `scale` values in place of each along `dim`."""
    axis = variable.dims.index(dim)
    values = variable.values
    if values.dtype.kind in "fM" or (values.dtype.kind in "iu" and name == dim):
        finer = _between(values, axis, scale)
    else:
        finer = np.repeat(values, scale, axis)
    return xr.Variable(variable.dims, finer, variable.attrs)


def _between(values: NDArray[Any], axis: int, scale: int) -> NDArray[Any]:
    """Positions of pixel centres as those of the `scale` finer pixels in each, on the same line as at the ends."""
    dates = values.dtype if values.dtype.kind == "M" else None
    lines = np.moveaxis(values.astype("i8") if dates else values, axis, -1).astype(np.float64)
    count = lines.shape[-1]
    places = (np.arange(count * scale) + 0.5) / scale - 0.5
    if count == 1:
        finer = np.repeat(lines, scale, -1)  # nothing tells how large the pixel is
    else:
        first = np.clip(np.floor(places).astype(int), 0, count - 2)
        finer = lines[..., first] + (lines[..., first + 1] - lines[..., first]) * (places - first)
        steps = np.diff(lines)
        even = lines[..., :1] + (lines[..., -1:] - lines[..., :1]) / (count - 1) * places
        if np.allclose(steps, steps[..., :1], rtol=1e-6, atol=0):
            finer = even  # which rounding of single steps does not bend
    finer = np.moveaxis(finer, -1, axis)
    if dates:
        return np.rint(finer).astype("i8").astype(dates)
    return finer.astype(values.dtype) if values.dtype.kind == "f" else finer


def _placed(attrs: Mapping[str, Any], scale: int) -> dict[str, Any]:
    """The attributes of a coordinate, such as a grid mapping, with its places counted in fine pixels."""
    placed = dict(attrs)
    if isinstance(text := placed.get("GeoTransform"), str):
        corner_and_steps = (float(word) / (1 if i % 3 == 0 else scale) for i, word in enumerate(text.split()))
        placed["GeoTransform"] = " ".join(map(repr, corner_and_steps))
    if isinstance(text := placed.get("gcps"), str):
        points = json.loads(text)
        for point in points["features"]:
            for name in ("row", "col"):
                point["properties"][name] *= scale
        placed["gcps"] = json.dumps(points)
    placed.pop("rpcs", None)
    return placed
