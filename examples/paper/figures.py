"""The figures of the studies, as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

MARKS = "osD^v*PX"
Image = np.ndarray  # (rows, columns) or (rows, columns, 3)
Series = Mapping[float, tuple[float, float]]  # mean and standard deviation


def shown(cube: np.ndarray, rgb: Sequence[int], top: float) -> Image:
    """Three bands of (bands, rows, columns) as a picture; `top` is white."""
    bands = [min(band, len(cube) - 1) for band in rgb]
    return np.clip(cube[bands].transpose(1, 2, 0) / max(top, 1e-9), 0, 1) ** (1 / 1.8)


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=130, bbox_inches="tight")
    return path


def scatter(
    path: Path, title: str, ours: Mapping[str, tuple[float, float]], paper: Mapping[str, tuple[float, float]]
) -> Path:
    """PSNR against parameters: a point for each system, here and in the paper."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for panel, points, where in zip(figure.subplots(1, 2), (ours, paper), ("here", "the paper"), strict=True):
        for mark, (name, (parameters, decibels)) in zip(MARKS, points.items(), strict=False):
            panel.plot(parameters, decibels, mark, ms=9, label=name)
        panel.set(title=f"{title}, {where}", xlabel="parameters, millions", ylabel="MPSNR, dB", xscale="log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, loc="best")
    return save(figure, path)


def series(path: Path, title: str, panels: Mapping[str, Mapping[str, Series]], label: str) -> Path:
    """Means with error bars against a number: a panel for each metric, a line for each system."""
    figure = Figure(figsize=(5 * len(panels), 3.8), layout="constrained")
    figure.suptitle(title)
    for panel, (metric, systems) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for mark, (name, points) in zip(MARKS, systems.items(), strict=False):
            means, errors = zip(*points.values(), strict=True)
            panel.errorbar([*points], means, errors, marker=mark, capsize=3, label=name)
        panel.set(xlabel=label, ylabel=metric)
        panel.ticklabel_format(axis="y", useOffset=False)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    return save(figure, path)


def pictures(
    path: Path, title: str, rows: Sequence[Mapping[str, Image | None]], tops: Sequence[float | None]
) -> Path:
    """Rows of named pictures, None where there is none.

    Those of one number a pixel share the scale from 0 to the top of their row; where it is None each has its own.
    """
    count = max(map(len, rows))
    rows_high, columns_wide = next(image.shape[:2] for image in rows[0].values() if image is not None)
    high = 2.4 * rows_high / columns_wide + 0.3
    figure = Figure(figsize=(2.4 * count + 0.6, high * len(rows) + 0.5), layout="constrained")
    figure.suptitle(title)
    for panels, row, top in zip(figure.subplots(len(rows), count, squeeze=False), rows, tops, strict=True):
        drawn = None
        for panel in panels:
            panel.axis("off")
        for panel, (name, image) in zip(panels, row.items(), strict=False):
            if image is None:
                continue
            panel.set_title(name, fontsize=9)
            most = (float(np.percentile(image, 99.5)) or 1.0) if top is None else top
            drawn = panel.imshow(image, vmin=0, vmax=most, cmap="inferno", interpolation="nearest")
            if image.ndim == 2 and top is None:
                figure.colorbar(drawn, ax=panel, shrink=0.8)
        if drawn is not None and drawn.get_array().ndim == 2 and top is not None:
            figure.colorbar(drawn, ax=panels.tolist(), shrink=0.9)
    return save(figure, path)


def spectra(
    path: Path, title: str, picture: Image, pixels: Sequence[tuple[int, int]], cubes: Mapping[str, np.ndarray]
) -> Path:
    """The spectra of some pixels, the first of `cubes` as the truth, and where the pixels are."""
    figure = Figure(figsize=(3.4 * (len(pixels) + 1), 3.2), layout="constrained")
    figure.suptitle(title)
    place, *panels = figure.subplots(1, len(pixels) + 1)
    place.imshow(picture, interpolation="nearest")
    place.axis("off")
    for number, (panel, (row, column)) in enumerate(zip(panels, pixels, strict=True), start=1):
        place.plot(column, row, "o", mfc="none", mec="lime", ms=8)
        place.annotate(str(number), (column, row), color="lime", xytext=(5, 5), textcoords="offset points")
        for name, cube in cubes.items():
            truth = name == next(iter(cubes))
            panel.plot(cube[:, row, column], label=name, lw=2.2 if truth else 1, color="black" if truth else None)
        panel.set(title=f"pixel {number}: row {row}, column {column}", xlabel="band")
        panel.title.set_fontsize(9)
        panel.grid(alpha=0.3)
    figure.legend(*panels[-1].get_legend_handles_labels(), fontsize=7, loc="outside right center")
    return save(figure, path)
