"""GeoTIFF: conversion between its tags and a Georeference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyproj
from pyproj.crs import GeographicCRS, ProjectedCRS
from pyproj.exceptions import CRSError

from pdenet_cli.formats.common import crs
from pdenet_cli.scene.georeference import Georeference, GroundPoint, Transform

Number = TypeVar("Number", int, float)

SCALE, TIE_POINTS, MATRIX, RPC = 33550, 33922, 34264, 50844
DIRECTORY, DOUBLES, TEXTS = 34735, 34736, 34737
TAGS = (SCALE, TIE_POINTS, MATRIX, RPC, DIRECTORY, DOUBLES, TEXTS)

MODEL_TYPE, RASTER_TYPE, CITATION = 1024, 1025, 1026
GEOGRAPHIC, GEOGRAPHIC_CITATION = 2048, 2049
DATUM, PROJECTED, PROJECTED_CITATION = 2050, 3072, 3073
ANGLE, DEGREE, MERIDIAN, GREENWICH, MERIDIAN_LONGITUDE = 2054, 9102, 2051, 8901, 2061
USER_DEFINED = 32767
ESRI = "ESRI PE String = "  # prefix of a WKT that ArcGIS and GDAL put in place of a name

RPC_AXES = ("LINE", "SAMP", "LAT", "LONG", "HEIGHT")
RPC_ERRORS = ("ERR_BIAS", "ERR_RAND")
RPC_NUMBERS = (*(f"{a}_OFF" for a in RPC_AXES), *(f"{a}_SCALE" for a in RPC_AXES))
RPC_LISTS = ("LINE_NUM_COEFF", "LINE_DEN_COEFF", "SAMP_NUM_COEFF", "SAMP_DEN_COEFF")  # 20 numbers each
RPC_LENGTH = len(RPC_NUMBERS) + 20 * len(RPC_LISTS)


def georeference(tags: Mapping[int, Any]) -> Georeference:
    """The georeference in the tags of a GeoTIFF."""
    directory = [int(number) for number in _numbers(tags, DIRECTORY) if 0 <= number < 65536]
    doubles, texts = list(_numbers(tags, DOUBLES)), tags.get(TEXTS)
    texts = texts if isinstance(texts, str) else ""
    keys = _keys(directory, doubles, texts)
    point = keys.get(RASTER_TYPE) == 2
    half = 0.5 if point else 0.0  # the file counts from pixel centres, we from corners
    ties = list(_groups(_numbers(tags, TIE_POINTS), 6))
    scale, matrix = _numbers(tags, SCALE), _numbers(tags, MATRIX)
    verbatim = {str(DIRECTORY): directory, str(DOUBLES): doubles, str(TEXTS): texts}
    transform: Transform | None = None
    anchor = (0.0, 0.0)
    points: tuple[GroundPoint, ...] = ()
    if len(matrix) == 16:
        transform = (matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5])
        transform = _moved(transform, -half, -half)
    elif len(scale) >= 2 and ties and scale[0] and scale[1]:
        column, row, _, x, y, _ = ties[0]
        anchor = (column, row)
        transform = _moved((x, scale[0], 0.0, y, 0.0, -abs(scale[1])), -column - half, -row - half)
    else:
        points = tuple(GroundPoint(c + half, r + half, x, y, z) for c, r, _, x, y, z in ties)
    return Georeference(
        transform=transform,
        crs=_crs(keys),
        pixel_is_point=point,
        anchor=anchor,
        points=points,
        rpc=_rpc(_numbers(tags, RPC)),
        native={"geo keys": {code: value for code, value in verbatim.items() if value}} if keys else {},
    )


def is_unknown(where: Georeference) -> bool:
    """Whether the keys of a GeoTIFF describe a coordinate system that is not known here."""
    directory = where.native.get("geo keys", {}).get(str(DIRECTORY), ())
    named = {entry[0] for entry in _groups(directory[4:], 4)} - {RASTER_TYPE}
    return where.crs is None and bool(named)


def tags(where: Georeference) -> dict[int, Any]:
    """The tags for a georeference: numbers as lists of float (the directory: of int), texts as str."""
    kept = where.native.get("geo keys")
    found = {int(code): value for code, value in kept.items()} if kept else _new_keys(where)
    half = 0.5 if where.pixel_is_point else 0.0
    if where.transform is not None:
        _, xc, xr, _, yc, yr = where.transform
        if xr or yc or xc < 0 or yr > 0:
            x, xc, xr, y, yc, yr = _moved(where.transform, half, half)
            found[MATRIX] = [xc, xr, 0.0, x, yc, yr, 0.0, y, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
        else:
            column, row = where.anchor
            x, y = where.ground(column + half, row + half)
            found[SCALE] = [xc, -yr, 0.0]
            found[TIE_POINTS] = [column, row, 0.0, x, y, 0.0]
    elif where.points:
        found[TIE_POINTS] = [
            number for p in where.points for number in (p.column - half, p.row - half, 0.0, p.x, p.y, p.z)
        ]
    if where.rpc is not None and (numbers := rpc_numbers(where.rpc)):
        found[RPC] = [*(float(where.rpc.get(name, -1)) for name in RPC_ERRORS), *numbers]
    return found


def _numbers(tags: Mapping[int, Any], code: int) -> tuple[float, ...]:
    """The numbers of a tag; empty if it holds something else."""
    value = tags.get(code)
    if value is None or isinstance(value, (str, bytes)):
        return ()
    array = np.atleast_1d(np.asarray(value, np.float64)).ravel()
    return tuple(array.tolist()) if np.isfinite(array).all() else ()


def _groups(values: Sequence[Number], size: int) -> Iterator[tuple[Number, ...]]:
    """The values in groups of `size`; an incomplete group at the end is left out."""
    return zip(*[iter(values)] * size, strict=False)


def _moved(transform: Transform, columns: float, rows: float) -> Transform:
    """The transform with its origin moved by some columns and rows."""
    x, xc, xr, y, yc, yr = transform
    return x + xc * columns + xr * rows, xc, xr, y + yc * columns + yr * rows, yc, yr


def _keys(directory: Sequence[int], doubles: Sequence[float], texts: str) -> dict[int, Any]:
    keys: dict[int, Any] = {}
    for key, place, count, value in _groups(directory[4:], 4):
        if place == 0:
            keys[key] = value
        elif place == DOUBLES and value < len(doubles):
            keys[key] = doubles[value]
        elif place == TEXTS:
            keys[key] = texts[value : value + count].rstrip("|\0")
    return keys


def _from_greenwich(keys: Mapping[int, Any]) -> bool:
    """Whether longitudes count from Greenwich; another meridian is given by its code or its longitude."""
    return keys.get(MERIDIAN, GREENWICH) in (0, GREENWICH) and not keys.get(MERIDIAN_LONGITUDE, 0)


def _crs(keys: Mapping[int, Any]) -> str | None:
    code = keys.get(PROJECTED if PROJECTED in keys or keys.get(MODEL_TYPE) == 1 else GEOGRAPHIC)
    if isinstance(code, int) and 0 < code < USER_DEFINED:
        return f"EPSG:{code}"
    for citation in (PROJECTED_CITATION, GEOGRAPHIC_CITATION, CITATION):
        text = str(keys.get(citation, ""))
        if text.startswith(ESRI):
            return text.removeprefix(ESRI)
    try:
        if keys.get(MODEL_TYPE) == 2:
            usual = keys.get(ANGLE, DEGREE) in (0, DEGREE)
            return _base(keys).to_wkt() if usual and _from_greenwich(keys) else None
        return _from_parameters(keys)
    except (CRSError, KeyError, TypeError, ValueError):
        return None


METHODS = {1: "tmerc", 7: "merc", 8: "lcc", 9: "lcc", 10: "laea", 11: "aea", 12: "aeqd", 17: "eqc", 24: "sinu"}
METHODS |= {15: "stere"}
PARAMETERS = {
    "lat_1": (3078,),
    "lat_2": (3079,),
    "lat_0": (3081, 3085, 3089),
    "lon_0": (3080, 3084, 3088, 3095),
    "x_0": (3082, 3086, 3090),
    "y_0": (3083, 3087, 3091),
    "k_0": (3092, 3093),
}
"""PROJ's names for the parameters of common projections, and the keys that may hold each."""

METRES = {9001: 1.0, 9002: crs.FOOT, 9003: crs.SURVEY_FOOT, 9036: 1000.0}
"""Metre, foot, US survey foot and kilometre in metres, by their EPSG numbers."""


def _from_parameters(keys: Mapping[int, Any]) -> str | None:
    """The WKT of a projection given by its parameters, None if it is not a common one."""
    unit = keys.get(3076) or 9001  # 0: not given
    metres = keys.get(3077) if unit == USER_DEFINED else METRES.get(unit)
    words = _proj_words(keys, metres) if metres else []
    if not words:
        return None
    projection = pyproj.CRS.from_proj4(" ".join((*words, f"+ellps=WGS84 +to_meter={metres!r} +no_defs")))
    name = str(keys.get(PROJECTED_CITATION) or keys.get(CITATION) or "unnamed")
    how, axes = projection.coordinate_operation, projection.coordinate_system
    return ProjectedCRS(how, name, axes, _base(keys)).to_wkt()


def _proj_words(keys: Mapping[int, Any], metres: float) -> list[str]:
    """A projection and its parameters in PROJ's words, in metres; none if it is not a common one."""
    method, utm = METHODS.get(keys.get(3075, 0)), keys.get(3074, 0)
    if 16001 <= utm <= 16160:
        return [f"+proj=utm +zone={utm % 100}", "+south" if utm > 16100 else ""]
    if method is None:
        return []
    words = [f"+proj={method}"]
    for name, places in PARAMETERS.items():
        size = metres if name in ("x_0", "y_0") else 1  # PROJ wants these two always in metres
        words += [f"+{name}={keys[key] * size!r}" for key in places if isinstance(keys.get(key), (int, float))][:1]
    if method == "eqc":
        words = [word.replace("lat_1", "lat_ts") for word in words]
    if method == "stere":  # polar: the latitude is that of true scale, the centre is a pole
        pole = math.copysign(90, keys[3081])
        words = [word.replace("lat_0", "lat_ts") for word in words if abs(keys[3081]) < 90 or "lat_0" not in word]
        words.append(f"+lat_0={pole}")
    if keys.get(3075) == 9:  # Lambert with one parallel: PROJ wants it as lat_1 too
        words += [word.replace("lat_0", "lat_1") for word in words if "lat_0" in word]
    return words


def _base(keys: Mapping[int, Any]) -> pyproj.CRS:
    """The geographic system of a projection: by its number, its datum's number, or its ellipsoid."""
    if 0 < keys.get(GEOGRAPHIC, 0) < USER_DEFINED:
        return pyproj.CRS.from_epsg(keys[GEOGRAPHIC])
    if 0 < keys.get(DATUM, 0) < USER_DEFINED:
        return GeographicCRS(datum=f"urn:ogc:def:datum:EPSG::{keys[DATUM]}")
    flattening = f"+rf={keys[2059]!r}" if keys.get(2059) else f"+b={keys.get(2058, keys[2057])!r}"
    return pyproj.CRS.from_proj4(f"+proj=longlat +a={keys[2057]!r} {flattening} +no_defs")


def _new_keys(where: Georeference) -> dict[int, Any]:
    """The three key tags for a coordinate system that came from another format."""
    system = crs.parsed(where.crs)
    if system is not None and system.is_compound:
        system = system.sub_crs_list[0]  # without heights
    raster = 2 if where.pixel_is_point else 1
    if system is None:
        return _encoded({RASTER_TYPE: raster}) if where.pixel_is_point else {}
    code = crs.number(system)
    model, kind = (2, GEOGRAPHIC) if system.is_geographic else (1, PROJECTED)
    if code is not None and code < USER_DEFINED:
        return _encoded({MODEL_TYPE: model, RASTER_TYPE: raster, CITATION: system.name, kind: code})
    wkt = f"{ESRI}{crs.esri_wkt(system.to_wkt())}"
    # GDAL looks for a WKT here only if the model type is user-defined, be it projected or geographic.
    return _encoded({MODEL_TYPE: USER_DEFINED, RASTER_TYPE: raster, PROJECTED_CITATION: wkt})


def _encoded(keys: Mapping[int, Any]) -> dict[int, Any]:
    directory, texts = [1, 1, 0, len(keys)], ""
    for key, value in sorted(keys.items()):
        if isinstance(value, str):
            # Texts end with a bar, and only ASCII is allowed.
            value = value.encode("ascii", "replace").decode().replace("|", "/") + "|"
            directory += [key, TEXTS, len(value), len(texts)]
            texts += value
        else:
            directory += [key, 0, 1, value]
    return {DIRECTORY: directory} | ({TEXTS: texts} if texts else {})


def rpc_numbers(rpc: Mapping[str, str] | None) -> list[float]:
    """The ninety numbers of rational polynomials in the order of GeoTIFF and ENVI; empty if some are missing."""
    if rpc is None or not {*RPC_NUMBERS, *RPC_LISTS} <= rpc.keys():
        return []
    numbers = [float(part) for name in (*RPC_NUMBERS, *RPC_LISTS) for part in rpc[name].split()]
    return numbers if len(numbers) == RPC_LENGTH else []


def named_rpc(numbers: Sequence[float]) -> dict[str, str] | None:
    """Rational polynomials by GDAL's names, from their ninety numbers; None if there are fewer."""
    if len(numbers) < RPC_LENGTH:
        return None
    names = {name: repr(value) for name, value in zip(RPC_NUMBERS, numbers, strict=False)}
    lists = _groups(numbers[10:RPC_LENGTH], 20)
    return names | {name: " ".join(map(repr, part)) for name, part in zip(RPC_LISTS, lists, strict=True)}


def _rpc(numbers: tuple[float, ...]) -> dict[str, str] | None:
    named = named_rpc(numbers[2:])
    return named and dict(zip(RPC_ERRORS, map(repr, numbers), strict=False)) | named
