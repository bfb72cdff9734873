"""The metadata of a cube as named values, for formats that keep attributes or small variables.

Our own files use ENVI's names with underscores; those of others are recognised by their usual names.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pdenet_cli.formats.common import crs
from pdenet_cli.formats.envi.header import zero_based
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from pdenet_cli.scene.meta import CubeMeta

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
"""Every usual name, in lower case without punctuation, and the field of CubeMeta that it means."""

PLACE = ("crs_wkt", "crs", "GeoTransform", "pixel_is_point", "anchor", "points", "rpc", "native")
"""The names of the values of a georeference."""

OURS_ONLY = ("points", "anchor", "rpc", "native")
"""Those among them that only pdenet writes; in other files they may mean anything."""

NANOMETRE_RANGE, MICROMETRE_RANGE = (200.0, 20_000.0), (0.2, 20.0)
"""The range of wavelengths of light in either unit."""


def field_of(name: str) -> str | None:
    """The field of CubeMeta that a value of this name usually means."""
    return FIELDS.get(re.sub(r"[^a-z0-9]", "", name.lower()))


def parse_fields(values: Mapping[str, Any], bands: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of CubeMeta that `values` contain, and the remaining values."""
    fields: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in sorted(values.items(), key=_rank):
        field = "gains" if name == "scale_factor" else "offsets" if name == "add_offset" else field_of(name)
        parsed = None if field is None or _is_unrelated_list(name, value) else _as_field(field, value, bands)
        if field is None or parsed is None:
            rest[name] = value
        elif field not in fields or fields[field] != fields[field]:  # not NaN, which is nodata anyway
            fields[field] = parsed
    if "wavelengths" in fields and "wavelength_units" not in fields:
        fields |= _units_by_name(values)
    return fields, rest


def _rank(item: tuple[str, Any]) -> int:
    """Order of precedence: `nodata` is exact, where `_FillValue` is rounded to the type of the pixels."""
    return {"nodata": 0, "_FillValue": 1}.get(item[0], 2)


def misfits(values: Mapping[str, Any], bands: int) -> dict[str, Any]:
    """The fields with a value per band whose lists have another length: CubeMeta ignores them with a note."""
    lists = {field_of(name): value if isinstance(value, list) else [value] for name, value in values.items()}
    return {field: v for field, v in lists.items() if field in CubeMeta.PER_BAND and len(v) not in (0, bands)}


def notes_on_other_nodata(values: Mapping[str, Any], nodata: float | None) -> tuple[str, ...]:
    """A note on every value that a file declares as missing besides its one `nodata` value."""
    if nodata is None:
        return ()
    others = {
        name: [f"{number:.10g}" for number in numbers(value) or () if _differ(number, nodata)]
        for name, value in values.items()
        if field_of(name) == "nodata" and not _is_unrelated_list(name, value)
    }
    why = f"counts as data: only one value can be nodata, here {nodata:.10g}"
    return tuple(f"{name} {', '.join(dict.fromkeys(found))} {why}" for name, found in others.items() if found)


def _is_unrelated_list(name: str, value: Any) -> bool:
    """Whether a list is named like nodata but is something else: only CF has lists of nodata values."""
    several = len(numbers(value) or ()) > 1
    return several and field_of(name) == "nodata" and name not in ("_FillValue", "missing_value")


def _differ(number: float, nodata: float) -> bool:
    # The tolerance is that of single precision; NaN and infinity are nodata anyway.
    return math.isfinite(number) and not math.isclose(number, nodata, rel_tol=1e-7)


def _as_field(field: str, value: Any, bands: int) -> Any:
    """A value as the field of CubeMeta that it gives; None if it is of another kind."""
    if field == "wavelength_units":
        return value if isinstance(value, str) else None
    if field == "band_names":
        names = [value] if isinstance(value, str) else value
        return tuple(names) if isinstance(names, list) and all(isinstance(n, str) for n in names) else None
    found = numbers(value)
    return None if found is None else FROM_NUMBERS.get(field, _every)(found, bands)


def _every(found: tuple[float, ...], bands: int) -> tuple[float, ...]:
    return found


def _for_each_band(found: tuple[float, ...], bands: int) -> tuple[float, ...]:
    return found * bands if len(found) == 1 else found


FROM_NUMBERS: dict[str, Callable[[tuple[float, ...], int], Any]] = {
    "nodata": lambda found, bands: found[0],
    "reflectance_scale": lambda found, bands: found[0] if len(found) == 1 else None,
    "default_bands": zero_based,
    "good_bands": lambda found, bands: tuple(g != 0 for g in found) if set(found) <= {0, 1} else None,
    "gains": _for_each_band,
    "offsets": _for_each_band,
}
"""Fields of CubeMeta that are not simply all the numbers of an attribute: from these and the number of bands."""


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


def dump_fields(meta: CubeMeta) -> dict[str, Any]:
    """The fields of a cube, without georeference and `extra`, under names that `parse_fields` recognises."""
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
    """Whether numbers are surely wavelengths: in range, ascending, and no band numbers."""
    found = numbers(values) if isinstance(values, list) else None
    return (
        found is not None
        and are_wavelengths(values)
        and all(a < b for a, b in itertools.pairwise(found))
        # Small whole numbers may be band numbers.
        and (found[0] >= NANOMETRE_RANGE[0] or not all(value.is_integer() for value in found))
    )


def are_wavelengths(values: Any) -> bool:
    """Whether all numbers are in the range of wavelengths, in nanometres or in micrometres."""
    found = numbers(values) or (0.0,)
    return any(all(low <= value <= high for value in found) for low, high in (NANOMETRE_RANGE, MICROMETRE_RANGE))


def dump_extra(meta: CubeMeta, taken: Mapping[str, Any]) -> dict[str, Any]:
    """`extra` as values that any attribute can hold: texts, numbers, lists of either."""
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


def dump_georeference(where: Georeference) -> dict[str, Any]:
    """A georeference as named values, with the names of GDAL and the CF conventions where they exist."""
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


def georeference_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that belong to a georeference; those of OURS_ONLY only beside one of the others."""
    known = "crs_wkt" in values or "GeoTransform" in values
    return {n: v for n, v in values.items() if n in PLACE and (known or n not in OURS_ONLY)}


def parse_georeference(values: Mapping[str, Any]) -> Georeference:
    """The georeference in named values, written by pdenet, GDAL or rioxarray."""
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
            continue  # such as bytes: of use only to the format that they came from
    return json.dumps(kept) if kept else ""


def _mapping(text: Any) -> dict[str, Any] | None:
    try:
        found = _tuples(json.loads(text))
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _tuples(value: Any) -> Any:
    """Lists of JSON as tuples, and keys that were numbers as numbers again."""
    if isinstance(value, dict):
        return {int(name) if name.isdigit() else name: _tuples(item) for name, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
