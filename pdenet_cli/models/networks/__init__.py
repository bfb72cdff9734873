"""The networks, by name. A new one is a file in this folder and a line in the table."""

from collections.abc import Mapping
from typing import Any

from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig, Rival
from pdenet_cli.models.networks.bicubic import Bicubic
from pdenet_cli.models.networks.dropout import DropoutNet
from pdenet_cli.models.networks.ensemble import EnsembleNet
from pdenet_cli.models.networks.ercsr import ERCSR
from pdenet_cli.models.networks.fcnn3d import FCNN3D
from pdenet_cli.models.networks.gan3d import GAN3D
from pdenet_cli.models.networks.mcnet import MCNet
from pdenet_cli.models.networks.nas import NASNet
from pdenet_cli.models.networks.pdenet import PDENet, TemplateNet
from pdenet_cli.models.networks.sspsr import SSPSR

__all__ = ["NETWORKS", "Draw", "Network", "NetworkConfig", "Rival", "build_network"]

NETWORKS: dict[str, type[Network]] = {
    "pdenet": PDENet,
    "template": TemplateNet,
    "dropout": DropoutNet,
    "ensemble": EnsembleNet,
    "nas": NASNet,
    "3dfcnn": FCNN3D,
    "3dgan": GAN3D,
    "sspsr": SSPSR,
    "mcnet": MCNet,
    "ercsr": ERCSR,
    "bicubic": Bicubic,
}


def build_network(name: str, config: Mapping[str, Any]) -> Network:
    """A fresh network of the kind `name`, with the configuration a weights file or a table gives."""
    if name not in NETWORKS:
        raise ModelError(f"Network '{name}' is unknown; choose one of {', '.join(NETWORKS)}.")
    kind = NETWORKS[name]
    try:
        return kind(kind.Config(**config))
    except TypeError as error:
        raise ModelError(f"Network '{name}' cannot be built from {dict(config)}: {error}.") from error
