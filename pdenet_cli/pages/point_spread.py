"""The picture of `pdenet psf`: where the edges are that were used, and the profile that they fold into."""

from __future__ import annotations

import io
from math import sqrt
from typing import Any

import numpy as np

from pdenet_cli.pages.chart import COLOURS
from pdenet_cli.point_spread.edges import FWHM, REACH, Array, erf
from pdenet_cli.point_spread.measure import ACROSS, ALONG, DIRECTIONS, Measured
from pdenet_cli.scene.picture import stretched

DPI = 110
MOST_POINTS = 4000  # of a profile that are drawn
COLOUR = {ALONG: COLOURS[0], ACROSS: COLOURS[1]}


def point_spread_png(found: Measured, title: str) -> bytes:
    """A PNG with the scene, its edges, and a profile for each direction."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    figure = Figure(figsize=(13.5, 5), layout="constrained", dpi=DPI)
    scene, *profiles = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _draw_scene(scene, found)
    for axes, side in zip(profiles, DIRECTIONS, strict=True):
        _draw_profile(axes, found, side)
    figure.suptitle(title.replace("$", r"\$"), fontsize=11)  # $ would start a formula
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def _draw_scene(axes: Any, found: Measured) -> None:
    axes.imshow(stretched(found.look), cmap="gray", interpolation="nearest")
    for side, edges in found.edges.items():
        half = REACH * np.array([-1.0, 1.0])
        for i in range(len(edges)):
            along, across = edges.rows[i] + half, edges.columns[i] + edges.tangent[i] * half
            right, down = (across, along) if side == ACROSS else (along, across)
            axes.plot(right, down, color=COLOUR[side], linewidth=1.4)
    axes.set_title(
        "edges used: " + ", ".join(f"{len(found.edges[side])} {side}" for side in DIRECTIONS), fontsize=9
    )
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_profile(axes: Any, found: Measured, side: str) -> None:
    width, edges = getattr(found.spread, side), found.edges[side]
    axes.set_xlabel("pixels across the edge")
    axes.set_title(f"{side} track: too few edges", fontsize=9)
    if width is None or not len(edges):
        axes.set_axis_off()
        return
    distance, values = edges.distance.ravel(), edges.values.ravel()
    step = max(1, distance.size // MOST_POINTS)
    axes.plot(distance[::step], values[::step], ".", markersize=2, alpha=0.35, color=COLOUR[side])
    axes.plot(*_folded(distance, values), "o", markersize=3, color="#333333", label="medians of the fold")
    line = np.linspace(-REACH, REACH, 241)
    axes.plot(
        line, (1 + erf(line * FWHM / width.fwhm / sqrt(2))) / 2, color="black", linewidth=1, label="Gaussian"
    )
    sure = "" if width.sure else ", not sure"
    said = f"FWHM {width.fwhm:.2f} ({width.low:.2f} to {width.high:.2f}) pixels{sure}"
    axes.set_title(f"{side} track: {said}", fontsize=9)
    axes.set_xlim(-REACH, REACH)
    axes.set_ylim(-0.3, 1.3)
    axes.legend(fontsize=8, loc="upper left", frameon=False)


def _folded(distance: Array, values: Array, step: float = 0.25) -> tuple[Array, Array]:
    """The median of a profile in steps of a quarter of a pixel."""
    bins = np.round(distance / step).astype(int)
    places = [place for place in np.unique(bins) if abs(place * step) <= REACH]
    return np.array(places) * step, np.array([np.median(values[bins == place]) for place in places])
