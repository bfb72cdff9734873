"""One picture of what a run made: input, bicubic, result and a map of trust at the same place."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.degradation import bicubic_pixels
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.picture import NODATA_GREY, colour_limits, rgb_bands, thinned, thinning, upper_end
from pdenet_cli.scene.window import Window

COLOURS = "cividis"  # perceptually uniform, with any colour vision and in grey
GREYS = "Greys_r"  # of shares and other counts, which are no errors
DETAIL = 40  # pixels of the input on a side of the part that is enlarged
WHOLE = 80  # a scene of at most so many pixels of the input on a side is shown as a whole only
LONGEST = 1024  # pixels on a side of the picture of a large scene
DPI = 110
NO_DATA = tuple(part / 255 for part in NODATA_GREY)

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class SheetMap:
    """A merged map with its words: `factor` times its numbers are in `unit`."""

    cube: Cube
    title: str
    unit: str
    factor: float = 1.0
    counts: bool = False  # a percentage, drawn in greys

    @cached_property
    def top(self) -> float:
        """The upper end of the colours: one pixel in 200 of the whole map lies above it."""
        return upper_end(self.factor * thinned(self.cube, 0, thinning(self.cube.meta, LONGEST)))


def sheet_png(source: Cube, mean: Cube, seen: SheetMap | None, title: str) -> bytes:
    """The sheet of a scene and of the cube made of it; of a large one also its richest part enlarged."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    bands = rgb_bands(mean.meta)
    limits = colour_limits(source, bands)
    scene = source.meta.window
    part = scene if max(scene.rows, scene.columns) <= WHOLE else richest_part(source, bands)
    scale = mean.meta.rows // scene.rows
    shape = part.rows / part.columns
    panels = 3 + (seen is not None)
    wide = 3.3 * panels + (0.5 if seen else 0.0)
    figure = Figure(figsize=(wide, 0.85 + 3.3 * shape), layout="constrained", dpi=DPI)
    if part != scene:
        tall = min(1.4, max(0.6, wide / (2 if seen else 1) * scene.rows / scene.columns / (3.3 * shape)))
        figure.set_size_inches(wide, 1.2 + 3.3 * shape * (1 + tall))
        parts: Any = figure.subfigures(2, 1, height_ratios=(tall, 1))
        top, figure_part = parts
        _draw_whole(top, mean, bands, limits, seen, part.scaled(scale))
    else:
        figure_part = figure
    figure.suptitle(title.replace("$", r"\$"), fontsize=11)  # $ would start a formula
    _draw_part(figure_part, (source, mean, seen), bands, limits, part, scale)
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # boxes for letters that the font lacks are fine
        figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def richest_part(source: Cube, bands: Sequence[int], size: int = DETAIL) -> Window:
    """The part of at most `size` pixels a side whose colours vary most."""
    scene = source.meta.window
    step = thinning(source.meta, LONGEST)
    grey = np.mean([thinned(source, band, step) for band in dict.fromkeys(bands)], axis=0)
    rows, columns = (max(1, min(size, length) // step) for length in (scene.rows, scene.columns))
    best, place = -1.0, (0, 0)
    for row in range(0, max(1, grey.shape[0] - rows + 1), max(1, rows // 4)):
        for column in range(0, max(1, grey.shape[1] - columns + 1), max(1, columns // 4)):
            part = grey[row : row + rows, column : column + columns]
            known = part[np.isfinite(part)]
            # Between percentiles, so that a single glint does not win; what has no data counts as flat.
            varies = float(np.ptp(np.percentile(known, (5, 95)))) * known.size if known.size else 0.0
            if varies > best:
                best, place = varies, (row, column)
    height, width = min(size, scene.rows), min(size, scene.columns)
    row, column = min(place[0] * step, scene.rows - height), min(place[1] * step, scene.columns - width)
    return Window(row, column, height, width)


def _draw_part(
    figure: Any,
    cubes: tuple[Cube, Cube, SheetMap | None],
    bands: Sequence[int],
    limits: NDArray[np.float64],
    part: Window,
    scale: int,
) -> None:
    """Input, bicubic, result and map of one part, all pixels enlarged alike."""
    source, mean, seen = cubes
    around = part.grown(2, within=source.meta.window)  # as far as bicubic looks
    coarse = _read(source, around, bands)
    inside = part.relative_to(around)
    fine = inside.scaled(scale)
    pictures = {
        "input": coarse[(slice(None), *inside.slices)],
        "bicubic": bicubic_pixels(coarse, scale)[(slice(None), *fine.slices)],
        f"pdenet, {scale} times finer": _read(mean, part.scaled(scale), bands),
    }
    axes = figure.subplots(1, 3 + (seen is not None), squeeze=False)[0]
    place = part.scaled(scale)
    extent = (place.column - 0.5, place.right - 0.5, place.bottom - 0.5, place.row - 0.5)
    for axis, (name, pixels) in zip(axes, pictures.items(), strict=False):
        axis.imshow(_rgb(pixels, limits), interpolation="nearest", extent=extent)
        axis.set_title(name, fontsize=10)
        axis.set_axis_off()
    if seen is not None:
        _draw_map(figure, axes[3], seen, _read(seen.cube, place, [0])[0], extent)


def _draw_whole(
    figure: Any,
    mean: Cube,
    bands: Sequence[int],
    limits: NDArray[np.float64],
    seen: SheetMap | None,
    place: Window,
) -> None:
    """The whole result and the whole map, with a frame around the part that is enlarged below."""
    from matplotlib.patches import Rectangle

    meta = mean.meta
    step = thinning(meta, LONGEST)
    extent = (-0.5, meta.columns - 0.5, meta.rows - 0.5, -0.5)
    axes = figure.subplots(1, 1 + (seen is not None), squeeze=False)[0]
    colours = np.stack([thinned(mean, band, step) for band in bands]).astype(np.float32)
    axes[0].imshow(_rgb(colours, limits), interpolation="antialiased", extent=extent)
    axes[0].set_title("the whole scene; framed: the part below", fontsize=10)
    if seen is not None:
        _draw_map(figure, axes[1], seen, np.asarray(thinned(seen.cube, 0, step), np.float32), extent)
    for axis in axes:
        axis.tick_params(labelsize=8)
        for colour, width in (("black", 2.4), ("white", 1.2)):
            corner = (place.column - 0.5, place.row - 0.5)
            frame = Rectangle(corner, place.columns, place.rows, fill=False, edgecolor=colour, linewidth=width)
            axis.add_patch(frame)


def _draw_map(figure: Any, axis: Any, seen: SheetMap, values: Pixels, extent: tuple[float, ...]) -> None:
    values = values * np.float32(seen.factor)
    known = values[np.isfinite(values)]
    more = "max" if known.size and known.max() > seen.top else "neither"
    axis.patch.set(facecolor=NO_DATA, edgecolor="0.55", hatch="////")  # shows through where there is no data
    image = axis.imshow(
        np.ma.masked_invalid(values),
        vmin=0,
        vmax=seen.top,
        cmap=GREYS if seen.counts else COLOURS,
        interpolation="nearest",
        extent=extent,
    )
    axis.set_title(seen.title, fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])
    bar = figure.colorbar(image, ax=axis, extend=more, fraction=0.046, pad=0.02)
    bar.set_label(seen.unit, fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _read(cube: Cube, window: Window, bands: Sequence[int]) -> Pixels:
    """Some bands of a part, NaN where there is no data."""
    pixels = cube.read(window, list(bands))
    return np.where(valid(pixels, cube.meta.nodata), pixels, np.nan).astype(np.float32)


def _rgb(pixels: Pixels, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three bands as colours, all pictures stretched alike; grey where there is no data."""
    low, high = limits.T[..., None, None]
    colours = np.clip((np.nan_to_num(pixels) - low) / (high - low), 0, 1).transpose(1, 2, 0)
    colours[~np.isfinite(pixels).all(0)] = NO_DATA
    return np.asarray(colours)
