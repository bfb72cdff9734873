"""MCNet (Li et al., Remote Sensing 2020): spectral-spatial and spatial convolutions side by side, any band count.

Every convolution has its weights normalised. The original subtracts each band's mean over its data set, numbers
that belong to one sensor: `mean` may be those. With one constant for all bands a model serves any sensor.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig


@dataclass(frozen=True)
class MCNetConfig(NetworkConfig):
    """The size of the network, and the mean value of its cubes."""

    modules: int = 4
    width: int = 64
    mean: float | tuple[float, ...] = 0.25  # of every band, or of each; then it takes only these bands

    def __post_init__(self) -> None:
        mean: Any = self.mean
        if isinstance(mean, list):  # from JSON
            object.__setattr__(self, "mean", mean := tuple(mean))
        means = mean if isinstance(mean, tuple) else (mean,)
        if not means or not all(isinstance(m, (int, float)) and isfinite(m) for m in means):
            raise ModelError(f"mean {self.mean} is no number, nor one for each band.")
        if self.scale < 2 or min(self.modules, self.width) < 1:
            raise ModelError(f"{self} cannot be built: the scale must be at least 2, every size at least 1.")


CONFIGS = {"paper": MCNetConfig(), "tiny": MCNetConfig(modules=1, width=6)}


class MCNet(Network):
    """Modules in a row, each with a skip from the head; the image is made at the end, around the mean."""

    Config = MCNetConfig
    configs = CONFIGS
    random = False
    mean: Tensor

    def __init__(self, config: MCNetConfig) -> None:
        super().__init__(config)
        width = config.width
        self.bands = band_count(config)
        self.register_buffer("mean", as_column(config.mean), persistent=False)  # the configuration has it
        self.head = conv(1, width, 3, 3, 3)
        self.body = nn.ModuleList(Mixed(width) for _ in range(config.modules))
        self.tail = nn.Sequential(enlarging(width, self.scale), conv(width, 1, 3, 3, 3))
        self.halo = 1 + 6 * config.modules + 1
        self.band_halo = 1 + 4 * config.modules + 2 if self.bands is None else None
        self.bytes_per_voxel = bytes_per_voxel(width, self.scale)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        start = self.head((low - self.mean)[:, None])  # (n, 1, bands, h, w) -> (n, width, bands, h, w)
        x = start
        for module in self.body:
            x = module(x) + start
        high: Tensor = self.tail(x)  # (n, 1, bands, scale·h, scale·w)
        return high[:, 0] + self.mean


def band_count(config: MCNetConfig) -> int | None:
    """The only number of bands that a mean for each allows; None for any."""
    return len(config.mean) if isinstance(config.mean, tuple) else None


def as_column(mean: float | tuple[float, ...]) -> Tensor:
    """A mean as (1 or bands, 1, 1)."""
    return torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1)


class Mixed(nn.Module):
    """Three separable 3-D convolutions in a row, each with a 2-D branch, and a mixture of the branches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.separable = nn.ModuleList(separable(width) for _ in range(3))
        self.planar = nn.ModuleList(
            nn.Sequential(conv(width, width, 1, 3, 3), nn.ReLU(), conv(width, width, 1, 3, 3)) for _ in range(3)
        )
        self.gamma = nn.Parameter(torch.ones(3))
        self.mix = nn.Sequential(conv(3 * width, width, 1, 1, 1), nn.ReLU())
        self.last = separable(width)

    def forward(self, x: Tensor) -> Tensor:
        start, seen = x, []
        for block, planar, gamma in zip(self.separable, self.planar, self.gamma, strict=True):
            x = block(x) + x
            seen.append(gamma * planar(x))
        mixed: Tensor = self.last(self.mix(torch.cat(seen, dim=1)) + start)
        return mixed


def separable(width: int) -> nn.Sequential:
    """A convolution across the pixels, then one along the spectrum."""
    return nn.Sequential(conv(width, width, 1, 3, 3), nn.ReLU(), conv(width, width, 3, 1, 1), nn.ReLU())


def conv(inputs: int, outputs: int, *kernel: int) -> nn.Module:
    """A 3-D convolution, (band, row, column), that keeps the size; its weights are normalised."""
    normed: nn.Module = weight_norm(nn.Conv3d(inputs, outputs, kernel, padding="same"))  # type: ignore[arg-type]
    return normed


def enlarging(width: int, scale: int) -> nn.Module:
    """A transposed convolution to the fine grid; its weights are normalised."""
    kernel = (3, scale + 2, scale + 2)
    normed: nn.Module = weight_norm(nn.ConvTranspose3d(width, width, kernel, stride=(1, scale, scale), padding=1))
    return normed


def bytes_per_voxel(width: int, scale: int) -> int:
    """Memory for the feature maps: 16 on the coarse grid and three on the fine one."""
    return 5 * width * (16 + 3 * scale**2)
