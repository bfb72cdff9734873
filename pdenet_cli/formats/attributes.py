"""What a cube says of itself as named values, for formats that keep attributes or small variables.

Our own files use ENVI's words with underscores; foreign ones are understood by the names that are usual.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from pdenet_cli.cube import CubeMeta
from pdenet_cli.formats import crs
from pdenet_cli.formats.envi_header import zero_based
from pdenet_cli.georeference import Georeference, GroundPoint

_USUAL = {
    "wavelengths": """wavelength wavelengths wavlength wavlengths wl wls wvl wvls lambda lambdas wave waves
        bandcenter bandcenters bandcentre bandcentres centerwavelength centerwavelengths centrewavelengths
        centralwavelength centralwavelengths wavelengthnm wavelengthsnm wavelengthum wavelengthsum bandsnm""",
    "wavelength_units": "wavelengthunits wavelengthunit wavelengthsunits wavelengthsunit wlunits",
    "fwhm": "fwhm fwhms fwhmnm bandwidth bandwidths",
    "good_bands": "bbl goodbands goodband goodbandlist goodwavelengths",
    "band_names": "bandnames bandname",
    "default_bands": "defaultbands",
    "nodata": "nodata nodatavalue fillvalue missingvalue dataignorevalue",
    "reflectance_scale": "reflectancescalefactor reflectancescale",
    "gains": "datagainvalues",
    "offsets": "dataoffsetvalues",
}
FIELDS = {word: field for field, words in _USUAL.items() for word in words.split()}
"""The plain form of every usual name, and the field of CubeMeta that it stands for."""

PLACE = ("crs_wkt", "crs", "GeoTransform", "pixel_is_point", "anchor", "points", "rpc", "native")
"""The names under which a georeference is kept."""


NANOMETRES, MICROMETRES = (200.0, 20_000.0), (0.2, 20.0)
"""From where to where bands of light lie."""

OURS_ONLY = ("points", "anchor", "rpc", "native")
"""Those of them that are our own words, and may be anything in a file of somebody else's."""


def field_of(name: str) -> str | None:
    """The field of CubeMeta that a value of this name usually is."""
    return FIELDS.get(re.sub(r"[^a-z0-9]", "", name.lower()))


def understood(values: Mapping[str, Any], bands: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of CubeMeta that are among `values`, and what is left over."""
    fields: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=_rank):
        field = "gains" if name == "scale_factor" else "offsets" if name == "add_offset" else field_of(name)
        meant = None if field is None or _is_mere_list(name, value) else _as_field(field, value, bands)
        if field is None or meant is None:
            rest[name] = value
        elif field not in fields or fields[field] != fields[field]:  # NaN is nodata whatever a file says
            fields[field] = meant
    if "wavelengths" in fields and "wavelength_units" not in fields:
        fields |= _units_by_name(values)
    return fields, rest


def _rank(item: tuple[str, Any]) -> int:
    """`nodata` before others: it is exact where `_FillValue` is rounded to the pixels' type."""
    return {"nodata": 0, "_FillValue": 1}.get(item[0], 2)


def unheeded(values: Mapping[str, Any], nodata: float | None) -> tuple[str, ...]:
    """A note on every number that a file calls missing and that is not its one `nodata` value."""
    if nodata is None:
        return ()
    others = {
        name: [f"{number:.10g}" for number in numbers(value) or () if _differ(number, nodata)]
        for name, value in values.items()
        if field_of(name) == "nodata" and not _is_mere_list(name, value)
    }
    why = f"counts as data: only one value can be nodata, here {nodata:.10g}"
    return tuple(f"{name} {', '.join(dict.fromkeys(found))} {why}" for name, found in others.items() if found)


def _is_mere_list(name: str, value: Any) -> bool:
    """Whether what is called nodata is a list of something else, such as places; CF alone has lists of values."""
    several = len(numbers(value) or ()) > 1
    return several and field_of(name) == "nodata" and name not in ("_FillValue", "missing_value")


def _differ(number: float, nodata: float) -> bool:
    # Single precision rounds by less than the tolerance; NaN and infinity are never data.
    return math.isfinite(number) and not math.isclose(number, nodata, rel_tol=1e-7)


def _as_field(field: str, value: Any, bands: int) -> Any:
    if field == "wavelength_units":
        return value if isinstance(value, str) else None
    if field == "band_names":
        names = [value] if isinstance(value, str) else value
        return tuple(names) if isinstance(names, list) and all(isinstance(n, str) for n in names) else None
    found = numbers(value)
    if found is None:
        return None
    if field == "nodata":
        return found[0]
    if field == "reflectance_scale":
        return found[0] if len(found) == 1 else None
    if field == "default_bands":
        return zero_based(found, bands)
    if field == "good_bands":
        return tuple(g != 0 for g in found) if set(found) <= {0, 1} else None
    if field in ("gains", "offsets") and len(found) == 1:
        return found * bands
    return found


def numbers(value: Any) -> tuple[float, ...] | None:
    """A number, a list of them or a text of them as floats; None for anything else."""
    if isinstance(value, str):
        value = value.strip("{}[]() \n").replace(",", " ").split()
    elif not isinstance(value, (list, tuple)):
        value = [value]
    try:
        return tuple(float(item) for item in value) or None
    except (TypeError, ValueError):
        return None


def _units_by_name(values: Mapping[str, Any]) -> dict[str, str]:
    for name in values:
        if field_of(name) == "wavelengths" and name.lower().endswith(("nm", "um")):
            return {"wavelength_units": "Micrometers" if name.lower().endswith("um") else "Nanometers"}
    return {}


def spoken(meta: CubeMeta) -> dict[str, Any]:
    """The fields of a cube, but for its georeference and `extra`, under the names that `understood` knows."""
    values: dict[str, Any] = {
        "wavelength": meta.wavelengths,
        "wavelength_units": meta.wavelength_units,
        "fwhm": meta.fwhm,
        "bbl": None if meta.good_bands is None else [int(good) for good in meta.good_bands],
        "band_names": meta.band_names,
        "default_bands": None if meta.default_bands is None else [band + 1 for band in meta.default_bands],
        "nodata": meta.nodata,
        "reflectance_scale_factor": meta.reflectance_scale,
        "data_gain_values": meta.gains,
        "data_offset_values": meta.offsets,
    }
    return {name: _listed(value) for name, value in values.items() if value is not None}


def is_spectrum(values: Any) -> bool:
    """Whether numbers can be nothing but wavelengths of bands, in nanometres or micrometres."""
    found = numbers(values) if isinstance(values, list) else None
    return (
        found is not None
        and are_wavelengths(values)
        and all(a < b for a, b in itertools.pairwise(found))
        # Small whole numbers are those of the bands themselves.
        and (found[0] >= NANOMETRES[0] or not all(value.is_integer() for value in found))
    )


def are_wavelengths(values: Any) -> bool:
    """Whether all numbers are as large as wavelengths are, in nanometres or in micrometres."""
    found = numbers(values) or (0.0,)
    return any(all(low <= value <= high for value in found) for low, high in (NANOMETRES, MICROMETRES))


def spoken_extra(meta: CubeMeta, taken: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of a header as values that any attribute can hold: texts, numbers, lists of either."""
    return {
        name: _plain(value) for name, value in meta.extra.items() if name not in taken and field_of(name) is None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        kinds = {str if isinstance(v, str) else float if isinstance(v, (int, float)) else None for v in value}
        if kinds in ({str}, {float}):
            return list(value)
    return json.dumps(value, default=str)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def spoken_place(where: Georeference) -> dict[str, Any]:
    """A georeference as named values, in the words of GDAL and the CF conventions where they have one."""
    values: dict[str, Any] = {
        "crs_wkt": crs.gdal_wkt(where.crs),
        "crs": where.crs,
        "GeoTransform": where.transform and " ".join(repr(float(v)) for v in where.transform),
        "pixel_is_point": int(where.pixel_is_point) or None,
        "anchor": list(where.anchor) if any(where.anchor) else None,
        "points": [v for p in where.points for v in (p.column, p.row, p.x, p.y, p.z)] or None,
        "rpc": where.rpc and _json(where.rpc),
        "native": where.native and _json(where.native),
    }
    return {name: value for name, value in values.items() if value}


def place_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some named values that say where a scene lies; our own words only beside a known one."""
    known = "crs_wkt" in values or "GeoTransform" in values
    return {n: v for n, v in values.items() if n in PLACE and (known or n not in OURS_ONLY)}


def understood_place(values: Mapping[str, Any]) -> Georeference:
    """The georeference that named values give, ours or those of GDAL and rioxarray."""
    transform = numbers(values.get("GeoTransform"))
    anchor = numbers(values.get("anchor"))
    flat = numbers(values.get("points")) or ()
    points = np.reshape(flat[: len(flat) // 5 * 5], (-1, 5))
    system = values.get("crs") or values.get("crs_wkt") or values.get("spatial_ref")
    return Georeference(
        transform=transform if transform is not None and len(transform) == 6 else None,
        crs=system if isinstance(system, str) else None,
        pixel_is_point=bool(values.get("pixel_is_point", False)),
        anchor=anchor if anchor is not None and len(anchor) == 2 else (0.0, 0.0),
        points=tuple(GroundPoint(*map(float, point)) for point in points),
        rpc=_mapping(values.get("rpc")),
        native=_mapping(values.get("native")) or {},
    )


def _json(values: Mapping[str, Any]) -> str:
    kept = {}
    for name, value in values.items():
        try:
            kept[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue  # bytes and the like: only the format they came from could use them
    return json.dumps(kept) if kept else ""


def _mapping(text: Any) -> dict[str, Any] | None:
    try:
        found = _tuples(json.loads(text))
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples, and the number keys that JSON made texts of as numbers again."""
    if isinstance(value, dict):
        return {int(name) if name.isdigit() else name: _tuples(item) for name, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
