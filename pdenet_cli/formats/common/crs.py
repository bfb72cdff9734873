"""Coordinate systems in the notations of the formats: EPSG numbers, WKT, ENVI's map info."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import pyproj
from pyproj.enums import WktVersion
from pyproj.exceptions import CRSError

DEGREES = "EPSG:4326"
LONGITUDE_FIRST = {"CRS84": 4326, "CRS83": 4269, "CRS27": 4267}
"""OGC's names for degrees with the longitude first, and the EPSG numbers of the same datums."""
LONGEST = 1 << 16  # characters of a coordinate system; of real ones, compound ones with all usages have 20,000
FOOT, SURVEY_FOOT = 0.3048, 1200 / 3937  # metres


@lru_cache(maxsize=64)
def parsed(crs: str | None) -> pyproj.CRS | None:
    """The coordinate system of a WKT or "EPSG:n" text, None if it cannot be parsed."""
    if not crs or len(crs) > LONGEST:
        return None
    try:
        return pyproj.CRS.from_user_input(crs)
    except CRSError:
        return None


def number(system: pyproj.CRS) -> int | None:
    """The EPSG number of a coordinate system, None if it is not certain; degrees may have either order of axes."""
    code = system.to_epsg(min_confidence=90)
    if code is None and (known := system.to_authority(min_confidence=90)) is not None:
        return LONGITUDE_FIRST.get(known[1]) if known[0] == "OGC" else None
    return code


def metres(system: pyproj.CRS | None) -> float:
    """The length of the unit of a coordinate system in metres; 1 where it has none."""
    return (system.axis_info[0].unit_conversion_factor if system is not None and system.axis_info else 1.0) or 1.0


def esri_wkt(crs: str | None) -> str | None:
    """The WKT that ENVI and ArcGIS read; an unknown text is returned unchanged."""
    system = parsed(crs)
    if system is None:
        return crs
    try:
        return system.to_wkt(WktVersion.WKT1_ESRI)
    except CRSError:
        return system.to_wkt(WktVersion.WKT1_GDAL)


def gdal_wkt(crs: str | None) -> str | None:
    """The WKT that GDAL, xarray and most Python tools read; an unknown text is returned unchanged."""
    system = parsed(crs)
    return crs if system is None else system.to_wkt()


DATUMS = {
    "wgs-84": (4326, 32600, 32700),
    "wgs-72": (4322, 32200, 32300),
    "north america 1983": (4269, 26900, 0),
    "north america 1927": (4267, 26700, 0),
    "european 1950": (4230, 23000, 0),
    "geocentric datum of australia 1994": (4283, 0, 28300),
}
"""ENVI's datum names: the EPSG numbers of their degrees and, minus the zone, of UTM north and south (0: none)."""


def from_map_info(projection: str, tail: tuple[str, ...]) -> str | None:
    """The coordinate system of an ENVI map info that has no coordinate system string beside it."""
    plain = [t.strip().lower() for t in tail]
    kind = projection.strip().lower()
    if kind == "geographic lat/lon":
        known = next((DATUMS[word] for word in plain if word in DATUMS), None)
        return f"EPSG:{known[0]}" if known else None
    if kind == "utm" and len(plain) >= 3 and plain[2] in DATUMS and plain[0].isdecimal():
        base = DATUMS[plain[2]][2 if plain[1].startswith("s") else 1]
        code = f"EPSG:{base + int(plain[0])}"
        system = parsed(code) if base else None
        # Most datums have only some of the zones; other numbers are those of unrelated systems.
        if system is not None and re.search(rf"(UTM|MGA) zone {int(plain[0])}[NS]?$", system.name):
            return code
    return None


UNITS = {"Meters": 1.0, "Km": 1000.0, "Feet": FOOT, "US Survey Feet": SURVEY_FOOT}
"""Lengths that pdenet writes to map info, in metres."""


LENGTHS = UNITS | {"Yards": 3 * FOOT, "Miles": 5280 * FOOT, "Nautical Miles": 1852.0}
ANGLES = {"Minutes": 1 / 60, "Seconds": 1 / 3600, "Radians": math.degrees(1)}
"""Further units of map info: lengths in metres, angles in degrees."""


def map_unit(projection: str, tail: tuple[str, ...]) -> float:
    """The factor from the unit of an ENVI map info to that of its coordinate system; 1 if it names none."""
    if from_map_info(projection, tail) is None:
        return 1.0
    sizes = ANGLES if projection.strip().lower() == "geographic lat/lon" else LENGTHS
    words = [word.partition("=")[2].strip().lower() for word in tail if word.strip().lower().startswith("units")]
    return next((size for name, size in sizes.items() if name.lower() in words), 1.0)


def to_map_info(crs: str | None) -> tuple[str, tuple[str, ...]]:
    """ENVI's name of a projection, and the fields of map info after the pixel size."""
    system = parsed(crs)
    if system is None:
        return "Arbitrary", ()
    if system.is_geographic:
        # With a unit, even the default one, GDAL drops the EPSG number.
        return "Geographic Lat/Lon", _datum(system) or ("units=Degrees",)
    # GDAL prefers this unit to the one in the WKT, so a unit that ENVI has no name for is left out.
    length = metres(system)
    units = tuple(f"units={name}" for name, size in UNITS.items() if math.isclose(size, length, rel_tol=1e-9))
    if system.utm_zone and _datum(system):
        hemisphere = "South" if system.utm_zone.endswith("S") else "North"
        return "UTM", (system.utm_zone[:-1], hemisphere, *_datum(system), *units)
    return system.name.replace(",", " "), (*_datum(system), *units)


def _datum(system: pyproj.CRS) -> tuple[str, ...]:
    names = {4326: "WGS-84", 4269: "North America 1983", 4267: "North America 1927"}
    geodetic = system.geodetic_crs
    code = (geodetic.to_epsg(min_confidence=70) or number(geodetic)) if geodetic is not None else None
    return (names[code],) if code in names else ()
