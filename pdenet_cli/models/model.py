"""Models: checked against what they say of themselves, loaded and saved.

torch is imported only where weights are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pdenet_cli.errors import ModelError, PdenetError
from pdenet_cli.models.catalogue import BICUBIC, DEFAULT_SCALE, choose_model, find_model
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import Header, read_header, read_tensors, write_weights
from pdenet_cli.reprs import html_table
from pdenet_cli.uncertainty.calibration import Calibration

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pdenet_cli.models.error_net import ErrorNet
    from pdenet_cli.models.networks import Network

TRAINING = "training."  # prefix of tensors that only a resumed training needs
ERRORS = "errors."  # prefix of the weights of the network that expects errors
LARGEST_WEIGHT = 1e6  # those of the shipped models are below 10


@dataclass(frozen=True, repr=False)
class Model:
    """A spec and its network, ready to run on a device."""

    spec: ModelSpec
    network: Network
    name: str = "unnamed"
    sha256: str = ""  # hash of its file
    errors: ErrorNet | None = None  # how large its errors will be, if it has learned to tell
    path: Path | None = None  # its file, if it came from one as it is

    def __repr__(self) -> str:
        """One line, for notebooks: printing a whole network is long."""
        return f"Model({self.name}: {self.spec.network} x{self.scale})"

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of its intervals; ModelError if this version cannot read it."""
        return Calibration.of(self.spec)

    def _repr_html_(self) -> str:
        spec = self.spec
        lessons = len(spec.error_lessons())
        return html_table(
            f"Model {self.name}",
            {
                "scale": f"x{self.scale}",
                "network": spec.network,
                "trained": f"{spec.steps:,} steps on {len(spec.data)} cubes, seed {spec.seed}",
                "gain over bicubic": "not measured" if spec.gain is None else f"{spec.gain:+.2f} dB in training",
                "expects errors": f"learned from {lessons} scenes" if lessons else "no",
                "licence": spec.licence,
                "file": f"SHA-256 {self.sha256[:16]}" if self.sha256 else "none",
            },
        )

    @property
    def scale(self) -> int:
        return self.spec.scale


def load_model(name_or_path: str | Path, device: torch.device | str = "cpu") -> Model:
    """The model of this name or in this file, on `device`."""
    from pdenet_cli.models.networks import build_network

    path = find_model(name_or_path)
    header = read_header(path)
    spec = header.spec
    wanted = _wanted_shapes(header)
    _refuse_other_shapes(header, wanted)
    weights = {name: t.float() for name, t in read_tensors(path).items() if name in wanted}
    # Written so that NaN counts too.
    if large := [name for name, t in weights.items() if t.numel() and not bool(t.abs().max() <= LARGEST_WEIGHT)]:
        problem = f"some weights of {large[0]} are not finite or beyond {LARGEST_WEIGHT:g}"
        raise ModelError(f"{path}: {problem}, which no training gives. Copy it again, or train it anew.")
    network = build_network(spec.network, spec.config)
    errors = {name.removeprefix(ERRORS): weights.pop(name) for name in list(weights) if name.startswith(ERRORS)}
    network.load_state_dict(weights)
    network.eval().requires_grad_(False)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Model(spec, network.to(device), path.stem, digest, _error_net(errors, device), path)


def _error_net(weights: Mapping[str, Tensor], device: torch.device | str) -> ErrorNet | None:
    """The network with these weights that expects errors; None without weights."""
    from pdenet_cli.models.error_net import ErrorNet

    if not weights:
        return None
    network = ErrorNet()
    network.load_state_dict(weights)
    return network.eval().requires_grad_(False).to(device)


def _wanted_shapes(header: Header) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that the described network has; ModelError if no network fits the description."""
    import torch

    from pdenet_cli.models.error_net import ErrorNet
    from pdenet_cli.models.networks import build_network

    path, spec = header.path, header.spec
    try:
        degradation = spec.training_degradation()
        with torch.device("meta"):  # without memory: only the shapes are wanted
            empty = build_network(spec.network, spec.config).state_dict()
            if any(name.startswith(ERRORS) for name in header.shapes):
                empty |= {ERRORS + name: tensor for name, tensor in ErrorNet().state_dict().items()}
    except (PdenetError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path}: {' '.join(str(error).split())}") from error
    if degradation.scale != spec.scale:
        raise ModelError(f"{path}: an x{spec.scale} model for cubes degraded by x{degradation.scale}.")
    return {name: tuple(tensor.shape) for name, tensor in empty.items()}


def _refuse_other_shapes(header: Header, wanted: Mapping[str, tuple[int, ...]]) -> None:
    """ModelError if the weights in the file are not of the wanted shapes."""
    stored = {name: shape for name, shape in header.shapes.items() if not name.startswith(TRAINING)}
    if wrong := sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name)):
        first, others = wrong[0], f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        problem = f"{first} is {stored.get(first, 'not there')}, expected {wanted.get(first, 'nothing')}{others}"
        network = header.spec.network
        raise ModelError(f"{header.path}: its weights do not fit its network '{network}': {problem}.")


def bicubic_model(scale: int, device: torch.device | str = "cpu") -> Model:
    """MATLAB's bicubic as a model without a file."""
    from pdenet_cli import __version__
    from pdenet_cli.degradation import Degradation
    from pdenet_cli.models.networks import build_network

    config = {"scale": scale}
    spec = ModelSpec(BICUBIC, config, scale, Degradation(scale).to_dict(), __version__)
    return Model(spec, build_network(BICUBIC, config).to(device), BICUBIC)


def open_model(
    name_or_path: str | None, scale: int | None, device: torch.device | str = "cpu", *, any_psf: bool = False
) -> Model:
    """The model that a user means, on `device`: bicubic, or that of `choose_model`."""
    if name_or_path == BICUBIC:
        return bicubic_model(scale or DEFAULT_SCALE, device)
    return load_model(choose_model(name_or_path, scale, any_psf=any_psf), device)


def save_model(
    path: Path, model: Model, training: Mapping[str, Tensor] | None = None, *, overwrite: bool = True
) -> None:
    """Write a model, completely or not at all; `training` are further tensors that a resumed training needs."""
    tensors = dict(model.network.state_dict())
    if model.errors is not None:
        tensors |= {ERRORS + name: tensor for name, tensor in model.errors.state_dict().items()}
    tensors |= {TRAINING + name: tensor for name, tensor in (training or {}).items()}
    write_weights(path, model.spec, tensors, overwrite=overwrite)


def training_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors that `save_model` was given as `training`."""
    tensors = read_tensors(path)
    return {name.removeprefix(TRAINING): t for name, t in tensors.items() if name.startswith(TRAINING)}
