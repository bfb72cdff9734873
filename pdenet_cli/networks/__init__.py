"""The networks, by name. A new one is a file in this folder and a line in the table."""

from collections.abc import Mapping
from typing import Any

from pdenet_cli.errors import ModelError
from pdenet_cli.networks.base import Draw, Network, NetworkConfig
from pdenet_cli.networks.pdenet import PDENet, TemplateNet

__all__ = ["NETWORKS", "Draw", "Network", "NetworkConfig", "build_network"]

NETWORKS: dict[str, type[Network]] = {
    "pdenet": PDENet,
    "template": TemplateNet,
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
