"""`pdenet models show --plot`: the learned mask probabilities of a model as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pdenet_cli.errors import ModelError
from pdenet_cli.formats.output import refuse_existing, write_whole
from pdenet_cli.models import load_model
from pdenet_cli.networks.pdenet import PDENet
from pdenet_cli.pages.chances import UnitChances, draw_chances
from pdenet_cli.picture import refuse_other_than_png


def plot_chances(name: str, picture: Path, overwrite: bool = False) -> None:
    """Draw the mask probabilities of the model `name` into `picture` (PNG)."""
    refuse_other_than_png(picture)
    refuse_existing((picture,), overwrite)
    model = load_model(name)
    network = getattr(model.network, "space", model.network)  # of a NAS network: the network it was searched in
    if not isinstance(network, PDENet):
        met = f"a {model.spec.network} network has no masks"
        raise ModelError(f"{model.name}: {met}, so it has learned no probabilities. Use a pdenet model.")
    stages: Any = network.stages
    chances = [[_unit_chances(unit) for unit in stage.units] for stage in stages]
    title = f"{model.name}: learned probabilities"
    write_whole(picture, draw_chances(chances, title), overwrite=overwrite)


def _unit_chances(unit: Any) -> UnitChances:
    inputs, spectral, spatial = (
        part.clamp(0.02, 0.98).cpu().numpy() for part in unit.chance.detach().split(unit.masks)
    )
    return UnitChances(inputs if unit.chooses else inputs[:0], spectral, spatial)
