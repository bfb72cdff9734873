"""3DGAN (Li et al., Remote Sensing 2020): a generator with band attention, and a discriminator (`Rival`).

Its source was never published. This follows its description, and the paper's counts (0.59 M parameters at x4,
0.66 M at x8) to about one percent; what the description leaves open (three convolutions in a block, transposed
convolutions that double, a discriminator that averages before it scores) is ours. Made for one band count, for
scales that are powers of two, and for whole scenes: its attention averages over every pixel.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig, Rival
from pdenet_cli.models.networks.doubling import Residual, require_power_of_two

KERNEL, PADDING = (5, 3, 3), (2, 1, 1)  # band, row, column


@dataclass(frozen=True)
class GAN3DConfig(NetworkConfig):
    """The bands it is made for, and the size of the generator."""

    bands: int = 31
    blocks: int = 3
    convolutions: int = 3  # in a block
    width: int = 32
    squeezed: int = 8  # hidden units of the band attention

    def __post_init__(self) -> None:
        require_power_of_two("3DGAN", self.scale)
        if min(self.bands, self.blocks, self.convolutions, self.width, self.squeezed) < 1:
            raise ModelError(f"{self} cannot be built: every size must be at least 1.")


CONFIGS = {
    "paper": GAN3DConfig(),
    "tiny": GAN3DConfig(bands=6, blocks=1, convolutions=2, width=4, squeezed=3),
}


class GAN3D(Network):
    """The generator: residual blocks with band attention, a long skip, then one doubling after another."""

    Config = GAN3DConfig
    configs = CONFIGS
    random = False
    halo = None
    band_halo = None

    def __init__(self, config: GAN3DConfig) -> None:
        super().__init__(config)
        self.bands, width = config.bands, config.width
        self.head = nn.Conv3d(1, width, KERNEL, padding=PADDING)
        self.body = Residual(*(_block(config) for _ in range(config.blocks)))
        self.doublings = nn.Sequential(*(_doubling(width) for _ in range(self.scale.bit_length() - 1)))
        self.tail = nn.Conv3d(width, 1, KERNEL, padding=PADDING)
        self.bytes_per_voxel = 5 * width * (3 * self.scale**2 + 16)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        x = F.leaky_relu(self.head(low[:, None]), 0.2)  # (n, 1, bands, h, w) -> (n, width, bands, h, w)
        high: Tensor = self.tail(self.doublings(self.body(x)))  # (n, 1, bands, scale·h, scale·w)
        return high[:, 0]

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
        if rival is None:
            return error
        # The discriminator's own loss with the sides exchanged: the estimate should score higher than the truth.
        return error + 1e-3 * rival.loss(high, estimate) + 1e-2 * spectral_angle(estimate, high)

    def new_rival(self) -> Rival:
        return Discriminator()


class BandAttention(nn.Module):
    """Each band weighted by a function of the means of all bands over the image, channel by channel."""

    def __init__(self, bands: int, squeezed: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(bands, squeezed), nn.ReLU(), nn.Linear(squeezed, bands), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = self.weigh(x.mean((3, 4)))  # (n, width, bands, h, w) -> (n, width, bands)
        return x * weights[..., None, None]


class Discriminator(Rival):
    """Strided convolutions to one score per cube, of any size and any number of bands."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [1, width, 2 * width, 4 * width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv3d(inputs, outputs, KERNEL, stride=2, padding=PADDING), nn.LeakyReLU(0.2)]
        self.features = nn.Sequential(*layers)
        self.judge = nn.Linear(widths[-1], 1, bias=False)  # only differences of scores count

    def forward(self, cube: Tensor) -> Tensor:
        """The score of each cube, (n, bands, h, w) -> (n, 1)."""
        score: Tensor = self.judge(self.features(cube[:, None]).mean((2, 3, 4)))
        return score

    def loss(self, lower: Tensor, higher: Tensor) -> Tensor:
        # Relativistic, pair by pair and not against the mean of the batch: the loss does not depend on the batch.
        return F.softplus(self(lower) - self(higher)).mean()


def spectral_angle(estimate: Tensor, high: Tensor) -> Tensor:
    """The mean angle between the spectra of two cubes, in radians."""
    cosine = F.cosine_similarity(estimate, high, dim=1, eps=1e-6)
    return torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6)).mean()  # at ±1 its slope would be infinite


def _block(config: GAN3DConfig) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(config.convolutions):
        layers += [nn.Conv3d(config.width, config.width, KERNEL, padding=PADDING), nn.LeakyReLU(0.2)]
    return Residual(*layers[:-1], BandAttention(config.bands, config.squeezed))


def _doubling(width: int) -> nn.Module:
    layer = nn.ConvTranspose3d(width, width, (5, 4, 4), stride=(1, 2, 2), padding=PADDING)
    return nn.Sequential(layer, nn.LeakyReLU(0.2))
