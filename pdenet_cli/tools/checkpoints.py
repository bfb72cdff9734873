"""`pdenet models import` and `export`: checkpoints of the systems' published codes as models, and back."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdenet_cli import __version__
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.files import refuse_existing, refuse_folders, write_whole
from pdenet_cli.models.model import Model, load_model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS
from pdenet_cli.models.published import BAND_MEANS, LAYOUTS, layout_of, network_of, published_weights
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import SUFFIX

HOLDERS = ("model", "state_dict", "net")  # where a checkpoint may have its weights, beside its epoch and optimizer
PARALLEL = "module."  # what names begin with that several GPUs saved
PUBLISHED = {
    name: getattr(CONFIGS["paper"], name)
    for name in ("kernel", "border", "upsampling", "brightness", "psf", "masks")
}
"""The choices of the published PDE-Net."""


def import_checkpoint(
    path: Path,
    output: Path,
    *,
    means: str | Sequence[float] | None = None,
    fields: Mapping[str, Any] | None = None,
    licence: str = "not stated",
    overwrite: bool = False,
) -> ModelSpec:
    """Write the checkpoint in `path` as a model to `output`; returns its description.

    `means`, the name of a data set or numbers, are what MCNet and ERCSR subtract from the bands; `fields` of the
    configuration are what the file does not hold, such as `overlap` of SSPSR.
    """
    if output.suffix != SUFFIX:
        raise UsageError(f"{output}: a model's name must end in {SUFFIX}.")
    refuse_folders((output,))
    refuse_existing((output,), overwrite)
    content = _content(path)
    weights = _weights(path, content)
    try:
        layout = layout_of(weights)
        extra = dict(fields or {}) | _mean_field(layout.network, means)
        network = network_of(weights, layout, extra)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    origin = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    spec = ModelSpec(
        network=layout.network,
        config=asdict(network.config),
        scale=network.scale,
        degradation=Degradation(network.scale).to_dict(),
        version=__version__,
        licence=licence,
        imported=origin,
    )
    save_model(output, Model(spec, network), overwrite=overwrite)
    return spec


def export_checkpoint(name_or_path: str | Path, output: Path, *, overwrite: bool = False) -> None:
    """Write a model as a checkpoint that the published code of its system loads."""
    refuse_folders((output,))
    refuse_existing((output,), overwrite)
    model = load_model(name_or_path)
    layout = next((layout for layout in LAYOUTS if layout.network == model.spec.network), None)
    if layout is None:
        known = ", ".join(layout.network for layout in LAYOUTS)
        raise UsageError(f"{model.name}: no published code has a network '{model.spec.network}'; only {known}.")
    if reason := _unpublished(model.spec):
        raise UsageError(f"{model.name}: {reason}, which the published code cannot; train with `config` paper.")
    state: dict[str, Any] = published_weights(model.network, layout)
    if layout.parallel:
        state = {"epoch": 0, "model": {PARALLEL + name: tensor for name, tensor in state.items()}}
    held = io.BytesIO()
    torch.save(state, held)
    write_whole(output, held.getvalue(), overwrite=overwrite)


def _unpublished(spec: ModelSpec) -> str | None:
    """What a network does that the published one does not; None if nothing."""
    differing = {
        name: spec.config[name] for name, usual in PUBLISHED.items() if spec.config.get(name, usual) != usual
    }
    if differing:
        return "it has " + ", ".join(f"{name}={value}" for name, value in differing.items())
    return None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from error


def _weights(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name; nothing in it is run."""
    try:
        held = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, almost any kind
        if isinstance(error, pickle.UnpicklingError) and content.startswith((b"PK", b"\x80\x02")):
            problem = "it holds more than numbers, for example a whole module, and opening that could run code"
            raise ModelError(f"{path}: {problem}. Save its state_dict() alone, where it is trusted.") from error
        raise ModelError(f"{path}: not a checkpoint of PyTorch ({' '.join(str(error).split())[:200]}).") from error
    for name in HOLDERS:
        if isinstance(held, Mapping) and isinstance(held.get(name), Mapping):
            held = held[name]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise ModelError(f"{path}: no weights by name in it; expected a state_dict, or one under 'model'.")
    return {str(name).removeprefix(PARALLEL): tensor for name, tensor in held.items()}


def _mean_field(network: str, means: str | Sequence[float] | None) -> dict[str, Any]:
    """The configuration field of the band means, for networks that have them."""
    has_means = network in ("mcnet", "ercsr")
    if has_means and means is None:
        problem = f"{network} subtracts the mean of each band, which the file does not hold"
        raise UsageError(
            f"{problem}. Give them with `means`: {', '.join(BAND_MEANS)}, or one number for each band."
        )
    if not has_means and means is not None:
        raise UsageError(f"`means`: {network} subtracts no means. Omit it.")
    if isinstance(means, str):
        if means not in BAND_MEANS:
            raise UsageError(f"`means` {means} is unknown; choose {', '.join(BAND_MEANS)}, or give numbers.")
        means = BAND_MEANS[means]
    return {} if means is None else {"mean": tuple(means)}
