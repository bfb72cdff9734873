"""Where a scene lies on the ground, in the one form that every format is converted to and from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def cut(self, row: int, column: int) -> Georeference:
        """The same ground under a grid that begins at this row and column."""
        transform = self.transform
        if transform is not None:
            x0, y0 = self.ground(column, row)
            transform = (x0, *transform[1:3], y0, *transform[4:])
        return replace(
            self,
            transform=transform,
            anchor=(0.0, 0.0),
            points=tuple(replace(p, column=p.column - column, row=p.row - row) for p in self.points),
            rpc=None if self.rpc is None else _cut_rpc(self.rpc, row, column),
        )


PIXEL_WORDS = ("geo points", "pixel size", "x start", "y start")
"""ENVI's header fields, besides its map info, that are given in pixels."""


def upscaled_words(words: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """A header's fields on a grid `factor` times finer; one in pixels that cannot be parsed is left out."""

    def finer(name: str, item: int, number: float) -> float:
        return number / factor if name == "pixel size" else (number - 1) * factor + 1  # corners count from 1

    return _converted(words, finer)


def cut_words(words: Mapping[str, Any], row: int, column: int) -> dict[str, Any]:
    """A header's fields on a grid that begins at this row and column; the same is left out."""

    def moved(name: str, item: int, number: float) -> float:
        # A point is counted from the corner of the grid, a start tells where that corner is in a larger scene.
        steps = {"geo points": (-column, -row), "x start": (column,), "y start": (row,)}.get(name, (0,))
        return number + steps[item % 4 % len(steps)]

    return _converted(words, moved)


def _converted(words: Mapping[str, Any], convert: Callable[[str, int, float], float]) -> dict[str, Any]:
    """A header's fields with every number of pixels converted; one that cannot be parsed is left out."""
    changed = dict(words)
    for name in words.keys() & {*PIXEL_WORDS}:
        try:
            changed[name] = _converted_word(name, str(words[name]).strip(), convert)
        except ValueError:
            del changed[name]
    return changed


def _converted_word(name: str, text: str, convert: Callable[[str, int, float], float]) -> str:
    items = [item.strip() for item in text.strip("{}").split(",")]
    for i, item in enumerate(items):
        # A point is column, row and its place on the ground; a size may end in units=...
        if "=" not in item and not (name == "geo points" and i % 4 > 1):
            items[i] = f"{convert(name, i, float(item)):.15g}"
    joined = ", ".join(items)
    return f"{{{joined}}}" if text.startswith("{") else joined


def _upscaled_rpc(rpc: Mapping[str, str], factor: int) -> dict[str, str] | None:
    # RPC offsets count from the centre of the first pixel, hence the two halves.
    def finer(name: str, number: float) -> float:
        return (number + 0.5) * factor - 0.5 if name.endswith("_OFF") else number * factor

    return _converted_rpc(rpc, finer, ("LINE_OFF", "LINE_SCALE", "SAMP_OFF", "SAMP_SCALE"))


def _cut_rpc(rpc: Mapping[str, str], row: int, column: int) -> dict[str, str] | None:
    start = {"LINE_OFF": row, "SAMP_OFF": column}
    return _converted_rpc(rpc, lambda name, number: number - start[name], tuple(start))


def _converted_rpc(
    rpc: Mapping[str, str], convert: Callable[[str, float], float], names: tuple[str, ...]
) -> dict[str, str] | None:
    """Polynomials with these numbers converted; None if one is no number, as they place nothing then."""
    try:
        return {**rpc, **{name: repr(convert(name, float(rpc[name]))) for name in names if name in rpc}}
    except ValueError:
        return None
