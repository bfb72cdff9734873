"""ENVI headers as real tools write them.

Not parsed by SPy, which stops at a byte-order mark, at an unknown data type and where a field is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from spectral.io import envi as spy

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import crs, geokeys
from pdenet_cli.formats.common.regular import small_file
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta

DTYPES = {int(code): np.dtype(kind) for code, kind in spy.dtype_map}
MAX_HEADER_BYTES = 16 << 20

# Fields about the layout of this one file: never copied to another.
LAYOUT = {"samples", "lines", "bands", "data type", "interleave", "byte order", "header offset", "file type"}
LAYOUT |= {"file compression", "major frame offsets", "minor frame offsets"}

# Fields with a counterpart in CubeMeta; all others are kept unchanged.
KNOWN = {"wavelength", "wavelength units", "fwhm", "bbl", "band names", "default bands", "data ignore value"}
KNOWN |= {"reflectance scale factor", "data gain values", "data offset values"}
KNOWN |= {"map info", "coordinate system string"}

UPSIDE_DOWN = 180.0  # GDAL reads this rotation as rows that go north, not as half a turn

GEO_POINTS = "geo points"  # column, row, latitude, longitude of each

RPC = "rpc info"  # ninety numbers in GeoTIFF's order, then row and column if the scene was cut out of a larger one

OWN = LAYOUT | KNOWN | {RPC}


@dataclass(frozen=True)
class EnviHeader:
    """The fields of an ENVI header: lower-case names, values as text, lists still in their braces."""

    path: Path
    fields: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> EnviHeader:
        """The header in `path`: any line ends, any case, with comments or a byte-order mark."""
        raw = small_file(path, MAX_HEADER_BYTES)
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        fields: dict[str, str] = {}
        lines = iter(text.splitlines()[1:])
        for line in lines:
            name, equals, value = line.partition("=")
            if not equals or line.lstrip().startswith(";"):
                continue
            value = value.strip()
            if value.startswith("{"):
                rest = [value]
                while "}" not in rest[-1]:
                    try:
                        rest.append(next(lines))
                    except StopIteration:
                        raise FormatError(f"{path}: '{name.strip()}' opens a brace and never closes it.") from None
                    if rest[-1].lstrip().startswith(";") and "}" not in rest[-1]:
                        rest.pop()
                value = "\n".join(rest).strip()
            fields[name.strip().lower()] = value
        return cls(path, fields)

    def meta(self) -> CubeMeta:
        """The metadata of the cube; what cannot be trusted is refused or noted."""
        self._refuse_unread()
        interleave = self.fields.get("interleave", "bsq").strip().lower()
        if interleave not in INTERLEAVES:
            raise FormatError(f"{self.path}: interleave '{interleave}' is not bsq, bil or bip.")
        defaults = self.numbers("default bands")
        good = self.numbers("bbl")
        bands = self.size("bands")
        where = replace(self.georeference(), rpc=self.rpc())
        # Points beside a transform stay in `extra`.
        known = OWN | ({GEO_POINTS} if where.points else set())
        doubts = {
            "no byte order in the header: little-endian assumed": "byte order" not in self.fields,
            f"{RPC} left out: not the coefficients of a whole scene": RPC in self.fields and where.rpc is None,
            f"coordinate system '{self.projection}' of map info is unknown: kept only in ENVI": bool(
                self.projection and where.crs is None and where.transform is not None
            ),
            "map info ignored: its place, pixel size or rotation is not a number": bool(
                self.projection and where.transform is None
            ),
        }
        lists = ("wavelength", "fwhm", "bbl", "data gain values", "data offset values")
        doubts |= {f"{name} ignored: not all entries are numbers": self.in_words(name) for name in lists}
        scale = self.number("reflectance scale factor")
        return CubeMeta(
            bands=bands,
            rows=self.size("lines"),
            columns=self.size("samples"),
            dtype=self.dtype(),
            interleave=interleave,
            wavelengths=self.numbers("wavelength"),
            wavelength_units=self.fields.get("wavelength units"),
            fwhm=self.numbers("fwhm"),
            good_bands=None if good is None else tuple(g != 0 for g in good),
            band_names=self.items("band names"),
            default_bands=zero_based(defaults, bands),
            nodata=self.number("data ignore value"),
            reflectance_scale=scale if scale else None,
            gains=self.numbers("data gain values"),
            offsets=self.numbers("data offset values"),
            georeference=where,
            extra={
                name: unbraced_text(value) if name == "description" else value
                for name, value in self.fields.items()
                if name not in known
            },
            notes=tuple(note for note, holds in doubts.items() if holds),
        )

    def _refuse_unread(self) -> None:
        """FormatError for what ENVI can hold besides plain cubes."""
        if "spectral library" in self.fields.get("file type", "").lower():
            raise FormatError(f"{self.path}: a spectral library, not a cube.")
        if self.fields.get("file compression", "0").strip() not in ("0", ""):
            raise FormatError(f"{self.path}: compressed ENVI data are not read. Save it uncompressed.")
        if any(float(x) for name in ("major", "minor") for x in self.numbers(f"{name} frame offsets") or ()):
            raise FormatError(f"{self.path}: frame offsets are not read. Save it as plain ENVI.")

    def dtype(self) -> np.dtype[Any]:
        code = self.integer("data type", None)
        if code not in DTYPES:
            raise FormatError(f"{self.path}: data type {code} is none of ENVI's ({', '.join(map(str, DTYPES))}).")
        order = self.integer("byte order", 0)
        if order not in (0, 1):
            raise FormatError(f"{self.path}: byte order {order} is neither 0 (little) nor 1 (big).")
        kind: np.dtype[Any] = DTYPES[code]
        return kind.newbyteorder(">" if order else "<")

    def georeference(self) -> Georeference:
        items = self.items("map info")
        system = self.fields.get("coordinate system string", "").strip("{} \t\r\n") or None
        if items is None or len(items) < 7:
            points = self.points()
            known = crs.parsed(system)
            if points and not (known is not None and known.is_geographic):
                system = crs.DEGREES  # points are always in degrees
            return Georeference(crs=system, points=points)
        turned = next((t.partition("=")[2] for t in items[7:] if t.lower().startswith("rotation")), "")
        try:
            column, row, x, y, width, height = (float(item) for item in items[1:7])
            rotation = float(turned.strip() or 0)  # some tools leave it empty
        except ValueError:
            return Georeference(crs=system, native={"map info": (items[0], items[7:])})
        angle = math.radians(rotation)
        cos, sin = math.cos(angle), math.sin(angle)
        xc, xr, yc, yr = width * cos, width * sin, height * sin, -height * cos
        if abs(rotation) == UPSIDE_DOWN:
            xc, xr, yc, yr = width, 0.0, 0.0, height
        column, row = column - 1, row - 1  # the header counts pixel corners from 1
        tail = tuple(t for t in items[7:] if not t.lower().startswith("rotation"))
        unit = 1.0 if system else crs.map_unit(items[0], tail)
        x0, y0 = x - xc * column - xr * row, y - yc * column - yr * row
        return Georeference(
            transform=(x0 * unit, xc * unit, xr * unit, y0 * unit, yc * unit, yr * unit),
            crs=system or crs.from_map_info(items[0], tail),
            anchor=(column, row),
            native={"map info": (items[0], tail)} | ({"wkt": system} if system else {}),
        )

    @property
    def projection(self) -> str:
        """The name of the coordinate system in map info, with its datum; empty if there is none."""
        items = self.items("map info") or ()
        if len(items) < 7 or items[0].lower() == "arbitrary":
            return ""
        return ", ".join((items[0], *(word for word in items[7:] if "=" not in word)))

    def points(self) -> tuple[GroundPoint, ...]:
        """The ground control points, in degrees; none if the numbers are not groups of four."""
        numbers = self.numbers(GEO_POINTS) or ()
        if len(numbers) % 4:
            return ()
        # Pixel corners are counted from 1, and the latitude comes first.
        fours = zip(*(numbers[i::4] for i in range(4)), strict=True)
        return tuple(GroundPoint(column - 1, row - 1, x, y) for column, row, y, x in fours)

    def rpc(self) -> dict[str, str] | None:
        """The rational polynomials by GDAL's names; None for a scene cut out of a larger one."""
        numbers = self.numbers(RPC) or ()
        whole = all(map(math.isfinite, numbers)) and not any(numbers[geokeys.RPC_LENGTH :][:2])
        return geokeys.named_rpc(numbers) if whole else None

    def size(self, name: str) -> int:
        value = self.integer(name, None)
        if value < 1:
            raise FormatError(f"{self.path}: '{name} = {value}' is not a size.")
        return value

    def integer(self, name: str, default: int | None) -> int:
        text = self.fields.get(name, "").strip()
        if not text and default is not None:
            return default
        try:
            value = int(text)
        except ValueError:
            problem = f"'{name} = {text}' is not a whole number" if text else f"the header has no '{name}'"
            raise FormatError(f"{self.path}: {problem}.") from None
        if value < 0:
            raise FormatError(f"{self.path}: '{name} = {text}' is negative.")
        return value

    def number(self, name: str) -> float | None:
        try:
            return float(self.fields[name].strip("{} \t"))
        except (KeyError, ValueError):
            return None

    def items(self, name: str) -> tuple[str, ...] | None:
        text = self.fields.get(name, "").strip()
        if not text:
            return None
        return tuple(" ".join(item.split()) for item in text.strip("{}").split(",") if item.strip())

    def numbers(self, name: str) -> tuple[float, ...] | None:
        items = self.items(name)
        try:
            return None if items is None else tuple(float(item) for item in items)
        except ValueError:
            return None

    def in_words(self, name: str) -> bool:
        """Whether a list that should hold numbers holds something else."""
        return self.items(name) is not None and self.numbers(name) is None


def zero_based(bands: Sequence[float] | None, count: int) -> tuple[int, ...] | None:
    """Band numbers counted from 1 as numbers counted from 0; None if one is not between 1 and `count`."""
    if bands is None or not all(1 <= b <= count and b == int(b) for b in bands):
        return None
    return tuple(int(b) - 1 for b in bands)


def unbraced_text(text: str) -> str:
    """A text of several lines without ENVI's braces, and without spaces around its lines."""
    return "\n".join(line.strip() for line in text.strip("{} \t\r\n").splitlines())
