"""SSPSR (Jiang et al., IEEE TCI 2020): groups of bands through one shared branch, then all of them together.

Made for one band count, for scales that are powers of two, and for whole scenes: its channel attention averages
over every pixel.
"""

from dataclasses import dataclass
from math import ceil

from torch import Tensor, nn

from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig, Rival
from pdenet_cli.models.networks.doubling import Residual, require_power_of_two


@dataclass(frozen=True)
class SSPSRConfig(NetworkConfig):
    """The bands it is made for, how they are grouped, and the size of the network."""

    bands: int = 31
    group: int = 4
    overlap: int = 1
    blocks: int = 8  # in the branch, and as many in the trunk
    width: int = 256
    squeeze: int = 16  # width / hidden units of the channel attention

    def __post_init__(self) -> None:
        require_power_of_two("SSPSR", self.scale)
        if min(self.bands, self.group, self.blocks, self.squeeze) < 1 or self.width < self.squeeze:
            raise ModelError(f"{self} cannot be built: every size must be at least 1, the width at least squeeze.")
        if not 0 <= self.overlap < self.group <= self.bands:
            raise ModelError(f"{self} cannot be built: it needs overlap < group, and group no more than bands.")


CONFIGS = {
    "paper": SSPSRConfig(),
    "tiny": SSPSRConfig(bands=6, blocks=1, width=8, squeeze=2),
}


class SSPSR(Network):
    """All doublings but the last for each group of bands, the last for the whole spectrum."""

    Config = SSPSRConfig
    configs = CONFIGS
    random = False
    halo = None
    band_halo = None

    def __init__(self, config: SSPSRConfig) -> None:
        super().__init__(config)
        self.bands, self.group, width = config.bands, config.group, config.width
        stride = config.group - config.overlap
        count = ceil((config.bands - config.overlap) / stride)
        self.starts = [min(i * stride, config.bands - config.group) for i in range(count)]
        doublings = self.scale.bit_length() - 2  # the trunk makes one more
        self.branch = nn.Sequential(
            _conv(config.group, width),
            _blocks(config),
            *(_doubling(width) for _ in range(doublings)),
            _conv(width, config.group),
        )
        self.trunk = nn.Sequential(_conv(config.bands, width), _blocks(config), _doubling(width))
        self.skip = _conv(config.bands, width)
        self.tail = _conv(width, config.bands)
        self.bytes_per_voxel = 5 * (6 * width * self.scale**2 // config.bands + 8 * self.scale**2)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        finer = self._by_groups(low)  # (n, bands, h, w) -> (n, bands, scale/2·h, scale/2·w)
        x = self.trunk(finer) + self.skip(bicubic_up(low, self.scale))  # (n, width, scale·h, scale·w)
        high: Tensor = self.tail(x)
        return high

    def _by_groups(self, low: Tensor) -> Tensor:
        n, bands, h, w = low.shape
        finer = low.new_zeros(n, bands, self.scale // 2 * h, self.scale // 2 * w)
        coverage = low.new_zeros(bands, 1, 1)
        for start in self.starts:
            bands_of = slice(start, start + self.group)
            finer[:, bands_of] += self.branch(low[:, bands_of])
            coverage[bands_of] += 1
        return finer / coverage

    def loss(
        self,
        estimate: Tensor,
        high: Tensor,
        low: Tensor,
        consistency: float = 1.0,
        rival: Rival | None = None,
        degradation: Degradation | None = None,
    ) -> Tensor:
        error = (estimate - high).abs().mean()
        spatial = estimate.diff(dim=2).square().mean() + estimate.diff(dim=3).square().mean()
        return error + 1e-3 * spatial + 2e-3 * estimate.diff(dim=1).square().mean()


class ChannelAttention(nn.Sequential):
    """Each channel weighted by a function of the means of all channels over the image."""

    def __init__(self, width: int, squeezed: int) -> None:
        narrow, wide = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1)
        super().__init__(nn.AdaptiveAvgPool2d(1), narrow, nn.ReLU(), wide, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x * weights


def _blocks(config: SSPSRConfig) -> nn.Module:
    """Blocks that refine across the pixels, then across the channels, with a skip around all of them."""
    width = config.width
    blocks = [
        nn.Sequential(
            Residual(_conv(width, width), nn.ReLU(), _conv(width, width), share=0.1),
            Residual(
                _conv(width, width, 1),
                nn.ReLU(),
                _conv(width, width, 1),
                ChannelAttention(width, width // config.squeeze),
                share=0.1,
            ),
        )
        for _ in range(config.blocks)
    ]
    return Residual(*blocks)


def _doubling(width: int) -> nn.Module:
    return nn.Sequential(_conv(width, 4 * width), nn.PixelShuffle(2))


def _conv(inputs: int, outputs: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
