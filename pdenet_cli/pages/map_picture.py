"""An uncertainty map as a picture for a report: colours, a colour bar, a legend."""

from __future__ import annotations

import io
import warnings

import numpy as np

from pdenet_cli.pages.overview import MergedMap, upper_end

COLOURS = "cividis"  # perceptually uniform, with any colour vision and in grey
INCHES = 7.0  # longer side of the map
DPI = 150


def map_png(merged: MergedMap, title: str, unit: str, step: int = 1) -> bytes:
    """The map as a PNG with a colour bar in `unit`; its axes count the pixels of the scene, from 0."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state
    from matplotlib.patches import Patch

    rows, columns = merged.shape
    scale = INCHES / max(rows, columns)
    size = max(columns * scale, 3.5) + 1.6, max(rows * scale, 2.5) + 1.2
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title.replace("$", r"\$"), fontsize=10, wrap=True)  # $ would start a formula
    axes.patch.set(facecolor="0.80", edgecolor="0.55", hatch="////")  # shows through where there is no data
    extent = (-0.5, columns * step - 0.5, rows * step - 0.5, -0.5)
    top = upper_end(merged)
    image = axes.imshow(
        np.ma.masked_invalid(merged), vmin=0, vmax=top, cmap=COLOURS, interpolation="nearest", extent=extent
    )
    axes.set_xlabel("column", fontsize=8)
    axes.set_ylabel("row", fontsize=8)
    axes.tick_params(labelsize=8)
    known = np.isfinite(merged)
    more = "max" if known.any() and merged[known].max() > top else "neither"
    figure.colorbar(image, ax=axes, label=unit, extend=more, shrink=0.9)
    if not known.all():
        patch = Patch(facecolor="0.80", edgecolor="0.55", hatch="////", label="no data")
        figure.legend(handles=[patch], loc="outside lower right", fontsize=8, frameon=False)
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # boxes for letters that the font lacks are fine
        figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()
