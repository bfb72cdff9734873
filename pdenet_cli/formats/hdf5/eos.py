"""HDF-EOS5: grids whose place is a text, `StructMetadata.0`, and Tanager's products, which are such files."""

from __future__ import annotations

import re
from dataclasses import replace

from pdenet_cli.formats.common.attributes import numbers
from pdenet_cli.formats.hdf5.guard import GuardedFile
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.meta import CubeMeta

STRUCTURE = "HDFEOS INFORMATION/StructMetadata.0"
GRID = re.compile(r"/?HDFEOS/GRIDS/([^/]+)/Data Fields/[^/]+")
NORTHERN_UTM, SOUTHERN_UTM = 32600, 32700  # EPSG numbers less the zone

TANAGER_GROUPS = ("HDFEOS/SWATHS/HYP", "HDFEOS/GRIDS/HYP")
TANAGER_CUBES = {"surface_reflectance": "surface reflectance", "toa_radiance": "radiance"}  # the first that exists


def tanager_variable(guarded: GuardedFile) -> str | None:
    """The cube of a Tanager product: surface reflectance, else radiance; None for any other file."""
    names = (f"{group}/Data Fields/{cube}" for group in TANAGER_GROUPS for cube in TANAGER_CUBES)
    return next((name for name in names if guarded.has(name)), None)


def tanager_product(variable: str | None) -> str | None:
    """What Tanager calls the product with this variable; None for variables of others."""
    group, _, field = (variable or "").strip("/").partition("/Data Fields/")
    if group not in TANAGER_GROUPS:
        return None
    kind = "basic (swath)" if "SWATHS" in group else "ortho"
    return f"Tanager {kind}: {TANAGER_CUBES.get(field, field.replace('_', ' '))}"


def place_grid(guarded: GuardedFile, meta: CubeMeta) -> CubeMeta:
    """A cube of an HDF-EOS5 grid, georeferenced by the corners in its structure text; any other cube unchanged."""
    name = GRID.fullmatch(meta.variable or "")
    where = meta.georeference
    text = guarded.text(STRUCTURE) if name is not None and where.transform is None else None
    if name is None or text is None:
        return meta
    grid = _grid(text, name[1])
    corners = [_numbers(grid, key, 2) for key in ("UpperLeftPointMtrs", "LowerRightMtrs")]
    if not all(corners):
        return meta.noting(f"{STRUCTURE} is not understood: no corners of the grid {name[1]}")
    (left, top), (right, bottom) = corners  # of the picture, not of the centres of its corner pixels
    wide, high = (right - left) / meta.columns, (bottom - top) / meta.rows
    if not wide or not high:
        return meta.noting(f"{STRUCTURE} is not understood: the grid {name[1]} has no size")
    code = numbers(meta.extra.get("epsg_code"))
    system = f"EPSG:{int(code[0])}" if code else where.crs or _utm(grid)
    place = Georeference(transform=(left, wide, 0.0, top, 0.0, high), crs=system)
    note = f"georeferenced by the corners in {STRUCTURE}"
    kept = {field: value for field, value in meta.extra.items() if field != "epsg_code"}
    return replace(meta, georeference=place, extra=kept).noting(note)


def _grid(text: str, name: str) -> str:
    """The part of a structure text about the grid of this name; all of it where none is named."""
    parts = re.split(r"END_GROUP\s*=\s*GRID_\d+", text)
    named = re.compile(rf'GridName\s*=\s*"{re.escape(name)}"')
    return next((part for part in parts if named.search(part)), text)


def _numbers(grid: str, key: str, count: int) -> tuple[float, ...]:
    """The numbers of a line `key=(1,2)`; empty where there are not `count` of them."""
    match = re.search(rf"\b{key}\s*=\s*\(?([-+\d.,eE \t]+)\)?", grid)
    found = numbers(match[1]) if match else None
    return found if found is not None and len(found) == count else ()


def _utm(grid: str) -> str | None:
    """The coordinate system of a grid in UTM; a negative zone is south of the equator."""
    zone = _numbers(grid, "ZoneCode", 1)
    if "HE5_GCTP_UTM" not in grid or not zone or not 1 <= abs(zone[0]) <= 60:
        return None
    return f"EPSG:{(NORTHERN_UTM if zone[0] > 0 else SOUTHERN_UTM) + abs(int(zone[0]))}"
