"""Where a scene lies on the ground, in the one form that every format is converted to and from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Transform = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class GroundPoint:
    """A ground control point: pixels from the upper-left corner of the picture, and the place on the ground."""

    column: float
    row: float
    x: float
    y: float
    z: float = 0.0


@dataclass(frozen=True)
class Georeference:
    """A scene's place on the ground; every part may be unknown.

    `transform` is (x0, x per column, x per row, y0, y per column, y per row), counted from the upper-left
    CORNER of the upper-left pixel even if the file counts from pixel centres (`pixel_is_point`).
    """

    transform: Transform | None = None
    crs: str | None = None  # WKT or "EPSG:n"
    pixel_is_point: bool = False
    anchor: tuple[float, float] = (0.0, 0.0)  # (column, row) of the corner the file names as its tie point
    points: tuple[GroundPoint, ...] = ()
    rpc: Mapping[str, str] | None = None  # rational polynomial coefficients, by GDAL's names
    native: Mapping[str, Any] = field(default_factory=dict)  # verbatim, for the format it came from

    def ground(self, column: float, row: float) -> tuple[float, float]:
        """Where a place in the picture, in pixels from its upper-left corner, lies on the ground."""
        assert self.transform is not None
        x0, xc, xr, y0, yc, yr = self.transform
        return x0 + xc * column + xr * row, y0 + yc * column + yr * row

    def max_corner_offset(self, other: Georeference, columns: int, rows: int) -> float:
        """The largest distance between the corners of this grid and of another one, in pixels of this one.

        0 where one of them has no transform, or this one's pixels have no size.
        """
        if self.transform is None or other.transform is None:
            return 0.0
        _, xc, xr, _, yc, yr = self.transform
        area = xc * yr - xr * yc
        largest = 0.0
        for corner in ((0, 0), (columns, 0), (0, rows), (columns, rows)) if area else ():
            (x, y), (u, v) = self.ground(*corner), other.ground(*corner)
            across, down = ((u - x) * yr - (v - y) * xr) / area, ((v - y) * xc - (u - x) * yc) / area
            largest = max(largest, abs(across), abs(down))
        return largest

    def upscaled(self, factor: int) -> Georeference:
        """The same ground under a grid `factor` times finer."""
        transform = self.transform
        if transform is not None:
            x0, xc, xr, y0, yc, yr = transform
            transform = (x0, xc / factor, xr / factor, y0, yc / factor, yr / factor)
        return replace(
            self,
            transform=transform,
            anchor=(self.anchor[0] * factor, self.anchor[1] * factor),
            points=tuple(replace(p, column=p.column * factor, row=p.row * factor) for p in self.points),
            rpc=None if self.rpc is None else _upscaled_rpc(self.rpc, factor),
        )


PIXEL_WORDS = ("geo points", "pixel size", "x start", "y start")
"""ENVI's header fields, besides its map info, that are given in pixels."""


def upscaled_words(words: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """A header's fields on a grid `factor` times finer; one in pixels that cannot be parsed is left out."""
    finer = dict(words)
    for name in words.keys() & {*PIXEL_WORDS}:
        try:
            finer[name] = _upscaled_word(name, str(words[name]).strip(), factor)
        except ValueError:
            del finer[name]
    return finer


def _upscaled_word(name: str, text: str, factor: int) -> str:
    items = [item.strip() for item in text.strip("{}").split(",")]
    for i, item in enumerate(items):
        # A point is column, row and its place on the ground; a size may end in units=...
        if "=" not in item and not (name == "geo points" and i % 4 > 1):
            number = float(item)  # ENVI counts pixel corners from 1
            items[i] = f"{number / factor if name == 'pixel size' else (number - 1) * factor + 1:.15g}"
    joined = ", ".join(items)
    return f"{{{joined}}}" if text.startswith("{") else joined


def _upscaled_rpc(rpc: Mapping[str, str], factor: int) -> dict[str, str]:
    # RPC offsets count from the centre of the first pixel, hence the two halves.
    finer = dict(rpc)
    for axis in ("LINE", "SAMP"):
        offset, scale = float(rpc[f"{axis}_OFF"]), float(rpc[f"{axis}_SCALE"])
        finer[f"{axis}_OFF"] = repr((offset + 0.5) * factor - 0.5)
        finer[f"{axis}_SCALE"] = repr(scale * factor)
    return finer
