"""Line charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

WIDTH, HEIGHT = 640, 280  # SVG units
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44  # margins around the plot


@dataclass(frozen=True)
class Stroke:
    """How a line is drawn; dashes help where colours do not."""

    colour: str
    dashes: str = ""
    width: float = 1.8


# Okabe and Ito's colours, distinct with any colour vision; without their yellow, which is too light for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("", "7 3", "2 2")


def strokes(systems: Sequence[str], grey: str | None, black: str | None = None) -> dict[str, Stroke]:
    """A stroke for each system: the baseline may be `grey`, and the truth `black`."""
    fixed = {grey: Stroke("#767676", "5 3"), black: Stroke("#111111", width=2.4)}
    others = [name for name in systems if name not in fixed]
    drawn = {
        name: Stroke(COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)])
        for i, name in enumerate(others)
    }
    return {name: fixed.get(name) or drawn[name] for name in (*([black] if black else []), *systems)}


@dataclass(frozen=True)
class Line:
    """Values along an axis; NaN breaks the line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    stroke: Stroke
    spread: Sequence[float] = field(default=())  # half the length of an error bar at each value
    marked: bool = False  # draw a point at each value
    half_width: Sequence[float] = field(default=())  # of the band around each value


def line_chart(lines: Sequence[Line], across: str, up: str, title: str) -> str:
    """The lines in one chart; `across` and `up` name the axes, `title` is for screen readers."""
    shown = [(x, y) for line in lines for x, y in _ends(line) if math.isfinite(x) and math.isfinite(y)]
    xs, ys = zip(*shown, strict=True) if shown else ((0.0, 1.0), (0.0, 1.0))
    horizontal = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, 9)
    vertical = Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, 6, room=0.04)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">']
    for value, place in vertical.ticks():
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{value}</text>')
    for value, place in horizontal.ticks():
        parts.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{middle[0]}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    turned = f'transform="translate(14 {middle[1]}) rotate(-90)"'
    parts.append(f'<text {turned} text-anchor="middle">{escape(up)}</text>')
    for line in lines:
        parts += _drawn(line, horizontal, vertical)
    return "\n".join([*parts, "</svg>"])


def legend(drawn: Mapping[str, Stroke]) -> str:
    """The names of the lines with their strokes."""
    items = (
        f'<li><svg viewBox="0 0 32 10" aria-hidden="true"><line x1="0" x2="32" y1="5" y2="5" stroke="{s.colour}" '
        f'stroke-width="{s.width + 0.6}" stroke-dasharray="{s.dashes or "none"}"/></svg>{escape(name)}</li>'
        for name, s in drawn.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


class Axis:
    """Maps values to positions in the chart, with at most `most` intervals between round ticks."""

    def __init__(self, low: float, high: float, start: float, end: float, most: int, room: float = 0.0) -> None:
        span = (high - low) or max(abs(high), 1.0) * 0.1
        low, high = (low, high) if high > low else (low - span / 2, high + span / 2)
        self.low, self.high = low - room * span, high + room * span
        self.start, self.end = start, end
        rough = (self.high - self.low) / most
        unit = 10 ** math.floor(math.log10(rough))
        self.step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
        self.digits = max(0, -math.floor(math.log10(self.step)) + (round(self.step / unit, 3) == 2.5))

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> Iterator[tuple[str, float]]:
        for count in range(math.ceil(self.low / self.step), math.floor(self.high / self.step) + 1):
            value = count * self.step
            plain = self.digits < 6 and max(abs(self.low), abs(self.high)) < 1e6
            yield f"{value:.{self.digits}f}" if plain else f"{value:.6g}", self.place(value)


def _ends(line: Line) -> Iterator[tuple[float, float]]:
    spread = line.spread or line.half_width or (0.0,) * len(line.y)
    for x, y, s in zip(line.x, line.y, np.nan_to_num(spread), strict=True):
        yield from ((x, y - s), (x, y + s))


def _drawn(line: Line, horizontal: Axis, vertical: Axis) -> Iterator[str]:
    places = [(horizontal.place(x), vertical.place(y)) for x, y in zip(line.x, line.y, strict=True)]
    style = f'fill="none" stroke="{line.stroke.colour}" stroke-width="{line.stroke.width}"'
    dashes = f' stroke-dasharray="{line.stroke.dashes}"' if line.stroke.dashes else ""
    title = f"<title>{escape(line.name)}</title>"
    yield from _bands(line, horizontal, vertical)
    for run in _runs(places):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
        if len(run) > 1:
            yield f'<polyline points="{points}" {style}{dashes}>{title}</polyline>'
        if len(run) == 1 or line.marked:
            yield from (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.stroke.colour}">{title}</circle>'
                for x, y in run
            )
    for (x, _), y, spread in zip(places, line.y, line.spread or (math.nan,) * len(places), strict=True):
        if math.isfinite(spread):
            ends = f'y1="{vertical.place(y - spread):.1f}" y2="{vertical.place(y + spread):.1f}"'
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} {style}/>'


def _bands(line: Line, horizontal: Axis, vertical: Axis) -> Iterator[str]:
    """The band around a line, in its colour, broken where that is."""
    if not line.half_width:
        return
    values = list(zip(line.x, line.y, line.half_width, strict=True))
    low, high = ([(horizontal.place(x), vertical.place(y + s * h)) for x, y, h in values] for s in (-1, 1))
    for lower, upper in zip(_runs(low), _runs(high), strict=True):
        edge = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*upper, *reversed(lower)))
        yield f'<polygon class="band" points="{edge}" fill="{line.stroke.colour}" fill-opacity=".16"/>'


def _runs(places: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Runs of finite positions."""
    run: list[tuple[float, float]] = []
    for place in (*places, (math.nan, math.nan)):
        if all(map(math.isfinite, place)):
            run.append(place)
        elif run:
            yield run
            run = []


def ordinal(count: int) -> str:
    """2 as 2nd, 3 as 3rd, 11 as 11th."""
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"
