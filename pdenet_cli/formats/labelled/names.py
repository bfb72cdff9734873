"""Names with a meaning of their own in these files: which attributes, dimensions and variables keep theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.choosing import axis_called
from pdenet_cli.formats.labelled import geozarr, placing

INTERNAL = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS", "_ARRAY_DIMENSIONS"}
INTERNAL |= {"_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "MATLAB_class"}
INTERNAL |= {"coordinates", "grid_mapping", "Conventions", "_FillValue", "_Unsigned"}
INTERNAL |= set(attributes.PLACE) - set(attributes.OURS_ONLY)
"""Attributes about the structure of one file: never copied to another."""

GLOBAL = "global attributes"  # in CubeMeta.native: the names of those in `extra`

USUAL = ("band", "y", "x")  # names of dimensions
RESERVED = {"fwhm", "spatial_ref", "zarr.json"}
TAKEN = {*USUAL, *RESERVED, "lat", "lon", "wavelength"}


def is_internal(attribute: str) -> bool:
    """Whether an attribute is about the structure of its file, or about its place as in an ENVI header."""
    known = attribute in INTERNAL or placing.envi_name(attribute) in placing.ENVI_PLACE
    return known or geozarr.is_geozarr(attribute)


def kept_dimensions(along: Mapping[str, str], variable: str) -> tuple[str, str, str] | None:
    """The names of the axes, if they are unusual and can be read back from an output; else None."""
    band, row, column = (along.get(axis, "").rpartition("/")[2] for axis in "brc")
    known = [axis_called(name) for name in (band, row, column)] == ["b", "r", "c"]
    if not known or {band, row, column} & {variable.rpartition("/")[2], *RESERVED}:
        return None
    return None if (band, row, column) == USUAL else (band, row, column)


def variable_name(wanted: str | None, taken: set[str]) -> str:
    """What the variable of the pixels is called in an output: as in the scene, if that name is free."""
    name = (wanted or "").strip("/")
    usable = all(re.fullmatch(r"[A-Za-z_][\w .-]*", step) for step in name.split("/"))
    return name if usable and name.split("/")[0] not in TAKEN | taken else "cube"
