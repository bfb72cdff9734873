"""How wide a scene's point spread is along and across track, in each group of its bands and in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.point_spread.edges import REACH, Array, Edges, fitted, steepest
from pdenet_cli.point_spread.images import Group, groups_of, images_of, middle_of
from pdenet_cli.point_spread.widths import LEAST_PLACES, Width, straight, width_of
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window

ALONG, ACROSS = DIRECTIONS = ("along", "across")  # down the columns, along the rows
MOST_EDGES = 1000  # of an image and a direction that are tried
FEWEST_TRIED = 300
PIXELS_AN_EDGE = 50  # an image has one edge to be tried for so many pixels
ROUNDS = 2  # of taking out what one direction puts into the other


@dataclass(frozen=True)
class Spread:
    """The widths in both directions; None where there are too few edges to tell."""

    along: Width | None
    across: Width | None

    @property
    def sure(self) -> dict[str, Width]:
        """The directions whose width is sure."""
        both = {ALONG: self.along, ACROSS: self.across}
        return {name: width for name, width in both.items() if width is not None and width.sure}


@dataclass(frozen=True)
class Measured:
    """The point spread of a scene, and the edges that told it."""

    spread: Spread  # of all bands
    groups: dict[str, Spread]
    tried: int  # steep places
    edges: dict[str, Edges]  # those of `spread`, by direction
    part: Window  # that was looked at
    look: Array  # an image of it

    @property
    def psf(self) -> str:
        """What `psf` takes; UsageError where no direction is sure."""
        sure = {name: f"{width.fwhm:.2f}" for name, width in self.spread.sure.items()}
        if not sure:
            raise UsageError(self.refusal)
        return "x".join(dict.fromkeys(sure[name] for name in DIRECTIONS if name in sure))

    @property
    def refusal(self) -> str:
        """Why the scene does not tell its point spread, if it does not."""
        found = {ALONG: self.spread.along, ACROSS: self.spread.across}
        widths = ", ".join(f"{name} track {_said(width)}" for name, width in found.items())
        advice = "Give `psf` or `sensor`, or measure a scene with roofs, roads or field borders"
        return f"too few straight edges that agree to tell the point spread ({widths}). {advice}."

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        spreads = {"all bands": self.spread, **self.groups}
        return {
            "psf": self.psf if self.spread.sure else None,
            "unit": "FWHM in pixels of the scene, of the Gaussian whose edges are most like the scene's",
            "bands": {
                name: {side: _facts(getattr(spread, side)) for side in DIRECTIONS}
                for name, spread in spreads.items()
            },
            "tried": self.tried,
        }


def _said(width: Width | None) -> str:
    if width is None:
        return "none"
    return f"{width.fwhm:.2f}, {width.low:.2f} to {width.high:.2f}, from {width.places} of {LEAST_PLACES} places"


def _facts(width: Width | None) -> dict[str, Any] | None:
    if width is None:
        return None
    names = ("fwhm", "low", "high")
    return {name: round(getattr(width, name), 3) for name in names} | {
        "edges": width.edges,
        "places": width.places,
        "sure": width.sure,
    }


def measure(cube: Cube, reading: Reading) -> Measured:
    """The point spread of a scene by the straight edges in it."""
    part = middle_of(cube.meta.window)
    found: dict[str, dict[str, list[Edges]]] = {name: {} for name in DIRECTIONS}
    tried, look = 0, np.zeros((part.rows, part.columns))
    groups = groups_of(cube, reading.bands)
    for group in groups:
        for number, image in enumerate(images_of(cube, reading, group, part)):
            look = image if group is groups[0] and not number else look
            for name, seen in ((ACROSS, image), (ALONG, image.T)):
                edges, count = _edges_in(np.ascontiguousarray(seen))
                found[name].setdefault(group.name, []).append(edges)
                tried += count
    together = {
        name: [edges for groups in by_group.values() for edges in groups] for name, by_group in found.items()
    }
    spread, chosen = _spread(together)
    return Measured(spread, {g.name: _of_group(g, found) for g in groups}, tried, chosen, part, look)


def _of_group(group: Group, found: dict[str, dict[str, list[Edges]]]) -> Spread:
    return _spread({name: by_group.get(group.name, []) for name, by_group in found.items()})[0]


def _edges_in(image: Array) -> tuple[Edges, int]:
    """The straight edges near the direction of the columns, and how many steep places were tried."""
    if min(image.shape) <= 2 * REACH + 1:
        return Edges.none(), 0
    most = int(np.clip(image.size // PIXELS_AN_EDGE, FEWEST_TRIED, MOST_EDGES))
    places = steepest(image, most)
    edges = fitted(image, *places)
    return edges.where(straight(edges)), len(places[0])


def _spread(found: Mapping[str, Sequence[Edges]]) -> tuple[Spread, dict[str, Edges]]:
    """The widths that edges of both directions tell, and the edges that told them."""
    edges = {name: Edges.joined(parts) for name, parts in found.items()}
    widths: dict[str, Width | None] = dict.fromkeys(DIRECTIONS)
    chosen: dict[str, NDArray[np.bool_]] = {}
    for _ in range(ROUNDS):
        before = dict(widths)
        for name, other in ((ALONG, ACROSS), (ACROSS, ALONG)):
            known = before[other]
            widths[name], chosen[name] = width_of(edges[name], None if known is None else known.fwhm)
    return Spread(widths[ALONG], widths[ACROSS]), {name: edges[name].where(chosen[name]) for name in DIRECTIONS}
