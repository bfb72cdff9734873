"""3DFCNN (Mei et al., Remote Sensing 2017): four convolutions of the bicubic cube, any number of bands."""

from dataclasses import dataclass

from torch import Tensor, nn

from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig, Rival
from pdenet_cli.models.networks.bicubic import bicubic_reach


@dataclass(frozen=True)
class FCNN3DConfig(NetworkConfig):
    """The widths of the three hidden layers."""

    wide: int = 64
    middle: int = 32
    narrow: int = 9

    def __post_init__(self) -> None:
        if self.scale < 2 or min(self.wide, self.middle, self.narrow) < 1:
            raise ModelError(f"{self} cannot be built: the scale must be at least 2, every width at least 1.")


CONFIGS = {"paper": FCNN3DConfig(), "tiny": FCNN3DConfig(wide=8, middle=4, narrow=3)}


class FCNN3D(Network):
    """A shallow network on the fine grid, without a skip: it learns the image, not a correction."""

    Config = FCNN3DConfig
    configs = CONFIGS
    random = False
    bands = None
    band_halo = 3 + 1

    def __init__(self, config: FCNN3DConfig) -> None:
        super().__init__(config)
        self.layers = nn.Sequential(
            nn.Conv3d(1, config.wide, (7, 9, 9), padding="same"),
            nn.ReLU(),
            nn.Conv3d(config.wide, config.middle, 1),
            nn.ReLU(),
            nn.Conv3d(config.middle, config.narrow, 1),
            nn.ReLU(),
            nn.Conv3d(config.narrow, 1, (3, 5, 5), padding="same"),
        )
        self.halo = bicubic_reach(self.scale, 4 + 2)
        self.bytes_per_voxel = 5 * self.scale**2 * (2 * config.wide + config.middle + 8)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        high: Tensor = self.layers(bicubic_up(low, self.scale)[:, None])  # (n, 1, bands, scale·h, scale·w)
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
        return (estimate - high).square().mean()
