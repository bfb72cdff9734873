"""Coordinates of pixels as CF files store them, one number per row and per column, and their georeference."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyproj
from pyproj.exceptions import CRSError

from pdenet_cli.formats.common import crs
from pdenet_cli.scene.georeference import Georeference

OTHER_UNITS = re.compile(r"\s*(rad|pixel|count|1\b)", re.IGNORECASE)
EVEN = 0.1  # largest distance of a pixel centre from its place on an even grid, in pixels

LENGTHS = {"m": 1.0, "km": 1000.0, "cm": 0.01, "mm": 0.001, "foot": crs.FOOT, "US_survey_foot": crs.SURVEY_FOOT}
"""Units of length by their CF names, in metres."""

_USUAL = {
    "m": "m metre metres meter meters",
    "km": "km kilometre kilometres kilometer kilometers",
    "cm": "cm centimetre centimetres centimeter centimeters",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "foot": "ft foot feet internationalfoot internationalfeet",
    "US_survey_foot": "ussurveyfoot ussurveyfeet ussurveyft usft ftus usfoot usfeet footus",
}
METRES = {word: LENGTHS[unit] for unit, names in _USUAL.items() for word in names.split()}


@dataclass(frozen=True)
class Coordinate:
    """The pixel centres along one axis, as a file gives them."""

    name: str
    values: tuple[float, ...]
    units: str
    rounding: float = 0.0  # relative precision of their type

    @property
    def is_angle(self) -> bool:
        return re.match(r"\s*(decimal\s*)?(deg|°)", self.units, re.IGNORECASE) is not None

    @property
    def metres(self) -> float | None:
        """The unit in metres, also of a multiple such as "0.3048 metre"; None if it is no known length."""
        match = re.fullmatch(r"\s*(\d[\d.]*(?:[eE][+-]?\d+)?)?(.*)", self.units, re.DOTALL)
        number, name = match.groups() if match else (None, "")
        # First the whole text, then its first word: some write "meters east".
        words = (re.sub(r"[^a-z]", "", text.lower()) for text in (name, *name.split()[:1]))
        length = next((METRES[word] for word in words if word in METRES), None)
        return None if length is None else length * float(number or 1)

    @property
    def is_understood(self) -> bool:
        return self.is_angle or self.metres is not None

    def line(self) -> tuple[float, float] | None:
        """The edge before the first pixel, and the step; None if the centres are not evenly spaced."""
        values = np.asarray(self.values)
        if not np.isfinite(values).all():
            return None
        step = (values[-1] - values[0]) / (len(values) - 1)
        deviation = np.abs(values - (values[0] + step * np.arange(len(values))))
        if not step or not (deviation <= EVEN * abs(step) + self.rounding * np.abs(values).max()).all():
            return None
        return float(values[0] - step / 2), float(step)

    def factor(self, system: pyproj.CRS | None) -> float | None:
        """The factor from these numbers to those of a coordinate system (metres without one); None: none."""
        geographic = system is not None and system.is_geographic
        if self.is_angle:
            return 1.0 if system is None or geographic else None
        if self.metres is None:
            # An unknown unit is taken for that of the system, if there is one, unless it is surely another.
            return None if system is None or OTHER_UNITS.match(self.units) else 1.0
        if geographic:
            return None
        ratio = self.metres / crs.metres(system)
        # "feet" beside a system in US survey feet means US survey feet.
        return 1.0 if math.isclose(ratio, 1, rel_tol=1e-5) else ratio


def placed(where: Georeference, rows: Coordinate, columns: Coordinate) -> tuple[Georeference, tuple[str, ...]]:
    """A georeference with the transform of the coordinates, or a note on why they give none."""
    code = where.crs or (crs.DEGREES if rows.is_angle else None)
    system = crs.parsed(code)
    lines = []
    doubts: tuple[str, ...] = ()
    for axis in (rows, columns):
        line, factor = axis.line(), axis.factor(system)
        if line is None or factor is None:
            why = "not evenly spaced" if line is None else f"in '{axis.units}', which tells no place on the ground"
            return where, (f"not georeferenced by its coordinates: {axis.name} is {why}",)
        if not axis.is_understood:
            doubts += (f"{axis.name} is in '{axis.units}', assumed to be the unit of its coordinate system",)
        lines.append((line[0] * factor, line[1] * factor))
    (y0, yr), (x0, xc) = lines
    return replace(where, crs=code, transform=(x0, xc, 0.0, y0, 0.0, yr)), doubts


def described(mapping: Mapping[str, Any], metres: float) -> str | None:
    """The coordinate system of the CF parameters of a grid mapping, None if they give none."""
    values = {name: value[0] if _is_single(value) else value for name, value in mapping.items()}
    try:
        for name in values.keys() & {"false_easting", "false_northing"}:
            values[name] *= metres  # CF has them in the unit of the coordinates
        system = pyproj.CRS.from_cf(values)
        code = system.to_epsg()
        if code is None and system.is_geographic and system.ellipsoid == pyproj.CRS(crs.DEGREES).ellipsoid:
            return crs.DEGREES
        return system.to_wkt() if code is None else f"EPSG:{code}"
    except (CRSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _is_single(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def cf_units(system: pyproj.CRS | None) -> str:
    """The CF name of the unit of length of a coordinate system; metres where there is none."""
    metres = crs.metres(system)
    names = (name for name, length in LENGTHS.items() if math.isclose(length, metres, rel_tol=1e-9))
    return next(names, f"{metres!r} m")
