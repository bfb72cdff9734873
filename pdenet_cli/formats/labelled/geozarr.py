"""GeoZarr's conventions for a place on the ground: attributes `proj:` and `spatial:` of a group or an array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdenet_cli.formats.common import crs
from pdenet_cli.formats.common.attributes import numbers
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.meta import CubeMeta

CONVENTIONS = "zarr_conventions"
PREFIXES = ("proj:", "spatial:")
SPATIAL = {
    "uuid": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/spatial/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/spatial/blob/v1/README.md",
    "name": "spatial:",
    "description": "Spatial coordinate information",
}
PROJ = {
    "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f",
    "schema_url": "https://raw.githubusercontent.com/zarr-experimental/geo-proj/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-experimental/geo-proj/blob/v1/README.md",
    "name": "proj:",
    "description": "Coordinate reference system information for geospatial data",
}


def is_geozarr(name: str) -> bool:
    """Whether an attribute belongs to these conventions."""
    return name == CONVENTIONS or name.startswith(PREFIXES)


def attributes_of(meta: CubeMeta, rows: str, columns: str) -> dict[str, Any]:
    """The attributes of a cube on a map grid whose dimensions are called `rows` and `columns`; else empty."""
    where = meta.georeference
    if where.transform is None:
        return {}
    x0, xc, xr, y0, yc, yr = where.transform
    corners = [where.ground(c, r) for c in (0, meta.columns) for r in (0, meta.rows)]
    xs, ys = zip(*corners, strict=True)
    system = crs.parsed(where.crs)
    code = None if system is None else crs.number(system)
    named = {} if code is None else {"proj:code": f"EPSG:{code}"}
    if system is not None and not named:
        named = {"proj:wkt2": system.to_wkt()}
    return {
        CONVENTIONS: [SPATIAL, PROJ] if named else [SPATIAL],
        **named,
        "spatial:dimensions": [rows, columns],
        "spatial:shape": [meta.rows, meta.columns],
        "spatial:transform": [xc, xr, x0, yc, yr, y0],
        "spatial:bbox": [min(xs), min(ys), max(xs), max(ys)],
        "spatial:registration": "pixel",
    }


def place(values: Mapping[str, Any]) -> Georeference:
    """The georeference in these attributes; an empty one where they give none."""
    found = numbers(values.get("spatial:transform"))
    kind = values.get("spatial:transform_type", "affine")
    names = (values.get(name) for name in ("proj:code", "proj:wkt2"))
    system = next((name for name in names if isinstance(name, str) and crs.parsed(name) is not None), None)
    if found is None or len(found) != 6 or kind != "affine":
        return Georeference(crs=system)
    xc, xr, x0, yc, yr, y0 = found
    if values.get("spatial:registration") == "node":  # counted from the centre of the first pixel
        x0, y0 = x0 - (xc + xr) / 2, y0 - (yc + yr) / 2
    return Georeference(transform=(x0, xc, xr, y0, yc, yr), crs=system)
