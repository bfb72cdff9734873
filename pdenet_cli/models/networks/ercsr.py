"""ERCSR (Li et al., IEEE TCSVT 2021): MCNet's successor, leaner modules and a skip around them, any band count.

Weights are normalised and `mean` is one constant or one for each band, as in MCNet.
"""

import torch
from torch import Tensor, nn

from pdenet_cli.models.networks.base import Draw, Network
from pdenet_cli.models.networks.mcnet import (
    CONFIGS,
    MCNetConfig,
    as_column,
    band_count,
    bytes_per_voxel,
    conv,
    enlarging,
)


class ERCSR(Network):
    """Modules in a row, whose outputs are all combined at the end; the result corrects the enlarged input."""

    Config = MCNetConfig
    configs = CONFIGS
    random = False
    mean: Tensor

    def __init__(self, config: MCNetConfig) -> None:
        super().__init__(config)
        width = config.width
        self.bands = band_count(config)
        self.register_buffer("mean", as_column(config.mean), persistent=False)
        self.head = nn.Sequential(conv(1, width, 1, 3, 3), conv(width, width, 3, 1, 1))
        self.body = nn.ModuleList(Crossed(width) for _ in range(config.modules))
        self.gamma = nn.Parameter(torch.ones(config.modules))
        self.mix = nn.Sequential(
            conv(config.modules * width, width, 1, 1, 1),
            conv(width, width, 1, 3, 3),
            conv(width, width, 3, 1, 1),
        )
        self.tail = nn.Sequential(
            enlarging(width, self.scale), conv(width, width, 1, 3, 3), conv(width, 1, 3, 1, 1)
        )
        self.halo = 1 + 6 * config.modules + 1 + 1
        self.band_halo = 1 + config.modules + 1 + 2 if self.bands is None else None
        self.bytes_per_voxel = bytes_per_voxel(width, self.scale)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        low = low - self.mean
        x = start = self.head(low[:, None])  # (n, 1, bands, h, w) -> (n, width, bands, h, w)
        seen = []
        for module, gamma in zip(self.body, self.gamma, strict=True):
            x = module(x)
            seen.append(gamma * x)
        x = self.mix(torch.cat(seen, dim=1)) + start
        nearest = low.repeat_interleave(self.scale, 2).repeat_interleave(self.scale, 3)
        high: Tensor = self.tail(x)  # (n, 1, bands, scale·h, scale·w)
        return high[:, 0] + nearest + self.mean


class Crossed(nn.Module):
    """Convolutions over bands and rows and over bands and columns, then refinement within each band."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spatial = nn.Sequential(conv(width, width, 1, 3, 3), nn.ReLU())
        self.rows, self.columns = conv(width, width, 3, 3, 1), conv(width, width, 3, 1, 3)
        self.planar = nn.ModuleList(
            nn.Sequential(conv(width, width, 1, 3, 3), nn.ReLU(), conv(width, width, 1, 3, 3)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        spatial = self.spatial(x)
        crossed: Tensor = self.rows(spatial) + self.columns(spatial)
        refined = crossed
        for planar in self.planar:
            refined = planar(refined) + refined
        return refined + crossed + x
