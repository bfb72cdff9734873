"""`pdenet models show --plot`: the mask probabilities that a model has learned, as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import ModelError
from pdenet_cli.files import refuse_existing, write_whole
from pdenet_cli.models.model import load_model
from pdenet_cli.models.networks.pdenet import PDENet
from pdenet_cli.scene.picture import refuse_other_than_png

Chances = NDArray[np.floating]  # the probability that each channel takes part


@dataclass(frozen=True)
class UnitChances:
    """The probabilities of one unit: of its inputs (empty if it has no choice) and in its two paths."""

    inputs: Chances
    spectral: Chances
    spatial: Chances


def plot_chances(name: str, picture: Path, overwrite: bool = False) -> None:
    """Draw the mask probabilities of the model `name` into `picture` (PNG)."""
    refuse_other_than_png(picture)
    refuse_existing((picture,), overwrite)
    model = load_model(name)
    network = getattr(model.network, "space", model.network)  # of a NAS network: the network it was searched in
    if not isinstance(network, PDENet):
        problem = f"a {model.spec.network} network has no masks"
        raise ModelError(f"{model.name}: {problem}, so it has learned no probabilities. Use a pdenet model.")
    stages: Any = network.stages
    chances = [[_unit_chances(unit) for unit in stage.units] for stage in stages]
    title = f"{model.name}: learned probabilities"
    write_whole(picture, draw_chances(chances, title), overwrite=overwrite)


def _unit_chances(unit: Any) -> UnitChances:
    inputs, spectral, spatial = (
        part.clamp(0.02, 0.98).cpu().numpy() for part in unit.chance.detach().split(unit.masks)
    )
    return UnitChances(inputs if unit.chooses else inputs[:0], spectral, spatial)


def draw_chances(stages: Sequence[Sequence[UnitChances]], title: str) -> bytes:
    """A PNG with a row for each stage: on the left the network level (K), on the right the layer level (L)."""
    from matplotlib.figure import Figure  # without pyplot: no display, no global state

    figure = Figure(figsize=(12, 1.2 + 2.2 * len(stages)), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(len(stages), 2, squeeze=False)
    image = None
    for number, (units, (left, right)) in enumerate(zip(stages, axes, strict=True), start=1):
        network = {f"unit {j}": unit.inputs for j, unit in enumerate(units, start=1) if len(unit.inputs)}
        paths = ("spectral", "spatial")
        layer = {
            f"unit {j} {path}": getattr(unit, path) for j, unit in enumerate(units, start=1) for path in paths
        }
        for panel, rows, what in (
            (left, network, "network level (K): inputs of a unit"),
            (right, layer, "layer level (L): channels of a path"),
        ):
            panel.set_title(f"stage {number}, {what}", fontsize=9)
            if not rows:
                panel.text(0.5, 0.5, "no unit has a choice", ha="center", transform=panel.transAxes)
                panel.set_axis_off()
                continue
            image = panel.imshow(
                _grid(list(rows.values())), vmin=0, vmax=1, cmap="cividis", aspect="auto", interpolation="nearest"
            )
            labels = [f"{name} (mean {chances.mean():.2f})" for name, chances in rows.items()]
            panel.set_yticks(range(len(rows)), labels, fontsize=7)
            panel.tick_params(axis="x", labelsize=7)
            panel.set_facecolor("0.93")
    for panel in axes[-1]:
        panel.set_xlabel("channel", fontsize=8)
    if image is not None:
        figure.colorbar(image, ax=axes, label="probability of taking part", shrink=0.8)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()


def _grid(rows: Sequence[Chances]) -> NDArray[np.float64]:
    """Rows of different lengths as one array; NaN where a row has no channel."""
    grid = np.full((len(rows), max(map(len, rows))), np.nan)
    for line, values in zip(grid, rows, strict=True):
        line[: len(values)] = values
    return grid
