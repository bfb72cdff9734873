"""Coordinates of pixels as CF files keep them, one number for each row and each column, and what they tell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyproj
from pyproj.exceptions import CRSError

from pdenet_cli.formats import crs
from pdenet_cli.georeference import Georeference

DEGREES = "EPSG:4326"
EVEN = 0.1  # by how much of a pixel a centre may lie beside its place on an even grid

LENGTHS = {"m": 1.0, "km": 1000.0, "foot": 0.3048, "US_survey_foot": 1200 / 3937}
"""The units of length that have a name in CF, in metres."""

_USUAL = {
    "m": "m metre metres meter meters",
    "km": "km kilometre kilometres kilometer kilometers",
    "foot": "ft foot feet internationalfoot internationalfeet",
    "US_survey_foot": "ussurveyfoot ussurveyfeet ussurveyft usft ftus usfoot usfeet footus",
}
METRES = {word: LENGTHS[unit] for unit, names in _USUAL.items() for word in names.split()}


@dataclass(frozen=True)
class Coordinate:
    """Where the centres of the pixels lie along one axis, as a file says it."""

    name: str
    values: tuple[float, ...]
    units: str
    rounding: float = 0.0  # what their type may have rounded off, as a share of the largest

    @property
    def is_angle(self) -> bool:
        return self.units.strip().lower().startswith("degree")

    @property
    def metres(self) -> float | None:
        """The unit in metres, which may be a multiple such as "0.3048 metre"; None for no known length."""
        match = re.fullmatch(r"\s*(\d[\d.]*(?:[eE][+-]?\d+)?)?(.*)", self.units, re.DOTALL)
        number, name = match.groups() if match else (None, "")
        length = METRES.get(re.sub(r"[^a-z]", "", name.lower()))
        return None if length is None else length * float(number or 1)

    def line(self) -> tuple[float, float] | None:
        """The first corner and the step, None where the centres are not evenly spaced."""
        values = np.asarray(self.values)
        if not np.isfinite(values).all():
            return None
        step = (values[-1] - values[0]) / (len(values) - 1)
        beside = np.abs(values - (values[0] + step * np.arange(len(values))))
        if not step or not (beside <= EVEN * abs(step) + self.rounding * np.abs(values).max()).all():
            return None
        return float(values[0] - step / 2), float(step)

    def factor(self, system: pyproj.CRS | None) -> float | None:
        """What makes these numbers those of a coordinate system (metres without one), None if nothing does."""
        if self.is_angle or (system is not None and system.is_geographic):
            return 1.0 if self.is_angle and (system is None or system.is_geographic) else None
        if self.metres is None:
            return None
        ratio = self.metres / _metres(system)
        # Whoever writes "feet" beside a system in US survey feet means those.
        return 1.0 if math.isclose(ratio, 1, rel_tol=1e-5) else ratio


def placed(where: Georeference, rows: Coordinate, columns: Coordinate) -> tuple[Georeference, tuple[str, ...]]:
    """A georeference with the transform that the coordinates give, or a note on why they give none."""
    code = where.crs or (DEGREES if rows.is_angle else None)
    system = crs.parsed(code)
    lines = []
    for axis in (rows, columns):
        line, factor = axis.line(), axis.factor(system)
        if line is None or factor is None:
            why = "not evenly spaced" if line is None else f"in '{axis.units}', not in units of the ground"
            return where, (f"not placed by its coordinates: {axis.name} is {why}",)
        lines.append((line[0] * factor, line[1] * factor))
    (y0, yr), (x0, xc) = lines
    return replace(where, crs=code, transform=(x0, xc, 0.0, y0, 0.0, yr)), ()


def described(mapping: Mapping[str, Any], metres: float) -> str | None:
    """The coordinate system that the parameters of a grid mapping describe, None where they do not."""
    values = {name: value[0] if _is_single(value) else value for name, value in mapping.items()}
    try:
        for name in values.keys() & {"false_easting", "false_northing"}:
            values[name] *= metres  # CF has them in the unit of the coordinates
        return pyproj.CRS.from_cf(values).to_wkt()
    except (CRSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _is_single(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def spoken_units(system: pyproj.CRS | None) -> str:
    """The unit of length of a coordinate system as CF writes it; metres where there is none."""
    metres = _metres(system)
    names = (name for name, length in LENGTHS.items() if math.isclose(length, metres, rel_tol=1e-9))
    return next(names, f"{metres!r} m")


def _metres(system: pyproj.CRS | None) -> float:
    return system.axis_info[0].unit_conversion_factor if system is not None and system.axis_info else 1.0
