"""Network search in PDE-Net's space: of all sub-networks, the one with every mask at its mode is kept."""

import torch
from torch import Tensor

from pdenet_cli.degradation import Degradation
from pdenet_cli.models.networks.base import Draw, Network
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, PDENetConfig


class NASNet(Network):
    """A PDE-Net that draws sub-networks in training, and is a single one afterwards.

    A positive temperature draws masks as PDE-Net does; at 0 each mask is 1 if its chance is above 1/2, else 0.
    Masks at their mode carry no gradient: the choice stays as it is while the weights are tuned for it.
    """

    Config = PDENetConfig
    configs = CONFIGS
    random = False
    bands = None

    def __init__(self, config: PDENetConfig) -> None:
        super().__init__(config)
        self.space = PDENet(config)
        self.halo, self.band_halo = self.space.halo, self.space.band_halo
        self.bytes_per_voxel = self.space.bytes_per_voxel

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.0) -> Draw:
        if temperature > 0:
            return self.space.draw(generator, samples, temperature)
        chance = torch.cat(self.chances())
        return Draw((chance > 0.5).to(chance).expand(samples, -1))

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        high: Tensor = self.space(low, draw)
        return high

    def degrade(self, high: Tensor, degradation: Degradation | None = None) -> Tensor:
        return self.space.degrade(high, degradation)
