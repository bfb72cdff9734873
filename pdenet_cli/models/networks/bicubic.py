"""MATLAB's bicubic as a network without weights: the baseline of all others."""

import torch
from torch import Tensor

from pdenet_cli.degradation import bicubic_up
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig

CONFIGS = {"paper": NetworkConfig(), "tiny": NetworkConfig()}


class Bicubic(Network):
    """Each band enlarged by the cubic that the field means by bicubic (a = -0.5)."""

    Config = NetworkConfig
    configs = CONFIGS
    random = False
    turns = True
    bands = None
    band_halo = 0

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        if config.scale < 2:
            raise ModelError(f"{config} cannot be built: the scale must be at least 2.")
        self.halo = bicubic_reach(self.scale)
        self.bytes_per_voxel = 4 * (6 * self.scale**2 + 16)
        self.register_buffer("here", torch.empty(0), persistent=False)  # keeps the device; not saved

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        return bicubic_up(low, self.scale)


def bicubic_reach(scale: int, margin: int = 0) -> int:
    """The receptive field, in low-resolution pixels, of outputs that need `margin` fine pixels around them."""

    def before(pixel: int) -> int:
        block, phase = divmod(pixel, scale)
        offset = 2 * phase + 1 - scale  # distance of new and old centre; 0: the old value
        return (2 if offset < 0 else 1 if offset > 0 else 0) - block

    # The first pixel of a block reaches farthest: that of the margin, or of its first whole block.
    return max(before(-margin), before(-(margin // scale) * scale))
