"""The georeference of a cube among named arrays: its grid mapping, pixel coordinates, or ENVI's map info."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import attributes, crs
from pdenet_cli.formats.envi import header
from pdenet_cli.formats.labelled import coordinates, geozarr
from pdenet_cli.formats.labelled.coordinates import Coordinate
from pdenet_cli.formats.labelled.store import Store, units_text
from pdenet_cli.scene.georeference import Georeference, Transform

ENVI_PLACE = {"map info", "coordinate system string"}
"""ENVI's georeference fields, which some tools store as attributes; valid for one grid only."""

LATITUDES, LONGITUDES = ("lat", "latitude"), ("lon", "longitude")
DEGREES = {**dict.fromkeys(LATITUDES, 90), **dict.fromkeys(LONGITUDES, 360)}
"""Names of coordinates that are in degrees even without a unit, and their largest absolute value."""

ON_MAPS = ("x", "y", "easting", "northing")


def placed(
    store: Store, name: str, attrs: Mapping[str, Any], along: Mapping[str, str]
) -> tuple[Georeference, tuple[str, ...]]:
    """The georeference by grid mapping, own attributes, regular x and y, or ENVI's map info; and notes."""
    rows, columns = (_coordinate(store, along.get(axis, "")) for axis in "rc")
    place = _mapped(store, name, attrs, (columns and columns.metres) or 1.0)
    if place == Georeference():
        place = attributes.parse_georeference(attributes.georeference_fields(attrs))
    if place == Georeference():
        place = geozarr.place(attrs)
    doubts: tuple[str, ...] = ()
    if rows and columns and not place.points:
        place, doubts = _by_coordinates(place, rows, columns)
    if place.transform is None and not place.points:
        place = _map_info(store.path, attrs, place)
    return place, doubts


def _mapped(store: Store, name: str, attrs: Mapping[str, Any], metres: float) -> Georeference:
    """The georeference in the grid mapping of a variable, as a text or as CF parameters."""
    mapping = attrs.get("grid_mapping")
    if not isinstance(mapping, str):
        return Georeference()
    mapping = mapping.partition(":")[0].strip()
    for candidate in (f"{name.rpartition('/')[0]}/{mapping}", mapping):
        try:
            values = store.attributes(candidate.strip("/"))
        except FormatError:
            continue
        place = attributes.parse_georeference(values)
        return replace(place, crs=place.crs or coordinates.described(values, metres))
    return Georeference()


def _coordinate(store: Store, name: str) -> Coordinate | None:
    """The coordinate of this name, if it has a unit or its name implies one."""
    units = units_text(store, name) if name else ""
    values = attributes.numbers(store.small(name)) if units or _leaf(name) in (*DEGREES, *ON_MAPS) else None
    if values is None or len(values) < 2:
        return None
    kind = store.variable(name).dtype
    rounding = float(np.finfo(kind).eps) if kind is not None and kind.kind == "f" else 0.0
    return Coordinate(name, values, units, rounding)


def _leaf(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _by_coordinates(
    place: Georeference, rows: Coordinate, columns: Coordinate
) -> tuple[Georeference, tuple[str, ...]]:
    """The georeference by pixel coordinates, unless they give none or the transform agrees with them."""
    known = [_with_unit(axis, place.crs) for axis in (rows, columns)]
    if not all(axis.units for axis in known):
        return place, ()
    found, doubts = coordinates.placed(place, known[0], known[1])
    for axis, unit in zip((rows, columns), known, strict=True):
        if not axis.units and found is not place:
            doubts += (f"{axis.name} has no unit, assumed to be in {unit.units}",)
    if place.transform is None or found.transform is None:
        return found, doubts
    if place.transform[2] or place.transform[4] or _agree(place.transform, found.transform, rows, columns):
        return place, ()
    # Tools that crop or flip a scene keep coordinates with their pixels, but leave a text as it was.
    names = f"{columns.name} and {rows.name}"
    note = f"GeoTransform disagrees with the coordinates {names}; the coordinates are used"
    return replace(found, anchor=(0.0, 0.0), rpc=None), (*doubts, note)


def _agree(first_place: Transform, second_place: Transform, rows: Coordinate, columns: Coordinate) -> bool:
    """Whether two transforms agree at the corners of a scene to a tenth of a pixel."""
    for axis, first, step in ((columns, 0, 1), (rows, 3, 5)):
        at_first = first_place[first] - second_place[first]
        at_last = at_first + len(axis.values) * (first_place[step] - second_place[step])
        rounded = axis.rounding * max(
            abs(second_place[first]), abs(second_place[first] + len(axis.values) * second_place[step])
        )
        if not max(abs(at_first), abs(at_last)) <= coordinates.EVEN * abs(second_place[step]) + rounded:
            return False
    return True


def _with_unit(axis: Coordinate, system: str | None) -> Coordinate:
    """The coordinate, if it has no unit, with the one that its name and coordinate system imply (metres without a
    system).
    """
    name, values = _leaf(axis.name), np.asarray(axis.values)
    if axis.units or (_are_counts(values) and values.min() in (0, 1)):
        return axis
    if name in DEGREES:
        return replace(axis, units="degrees") if (np.abs(values) <= DEGREES[name]).all() else axis
    known = crs.parsed(system)
    if name not in ON_MAPS or (known is None and system is not None) or _are_counts(values):
        return axis
    geographic = known is not None and known.is_geographic
    return replace(axis, units="degrees" if geographic else coordinates.cf_units(known))


def _are_counts(values: Any) -> bool:
    """Whether numbers are pixel numbers, of a scene without georeference or a part of one."""
    by_ones = bool((np.abs(np.diff(values)) == 1).all())
    return by_ones and values.min() >= 0 and values.max() < 10_000 + len(values)  # map coordinates are larger


def _map_info(path: Path, attrs: Mapping[str, Any], place: Georeference) -> Georeference:
    texts = {envi_name(n): v for n, v in attrs.items() if envi_name(n) in ENVI_PLACE and isinstance(v, str)}
    try:
        found = header.EnviHeader(path, texts).georeference()
    except ValueError:
        return place
    return replace(found, crs=place.crs or found.crs, rpc=place.rpc) if texts else place


def envi_name(name: str) -> str:
    """A name in the spelling of ENVI headers."""
    return name.lower().replace("_", " ")
