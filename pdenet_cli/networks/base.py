"""What every network is to the rest of the program."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class NetworkConfig:
    """All it takes to build a network, in plain values: `asdict` of it goes into the weights file."""

    scale: int = 4


@dataclass(frozen=True)
class Draw:
    """What is random in a few Monte-Carlo samples: one row of masks per sample, (samples, masks)."""

    masks: Tensor

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, index: int | slice) -> Self:
        """Sample `index` alone, or a slice of samples; still a draw."""
        rows = index if isinstance(index, slice) else slice(index, index + 1 or None)
        return type(self)(self.masks[rows])

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.masks.to(device))


class Network(nn.Module):
    """A super-resolution network: a pure function of a low-resolution cube and a draw."""

    Config: ClassVar[type[NetworkConfig]]
    configs: ClassVar[Mapping[str, NetworkConfig]]  # by name; "tiny" is for tests
    random: ClassVar[bool]  # False: every draw gives the same output

    config: NetworkConfig
    halo: int  # how many low-resolution pixels away an output pixel still looks, exactly
    band_halo: int | None  # the same in bands; None: the whole spectrum
    bands: int | None  # the only band count that fits; None: any
    bytes_per_voxel: int  # memory that one sample takes, at the most, per voxel of its input

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.scale = config.scale

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        """The masks of `samples` sub-networks, drawn one after another.

        Twenty samples therefore begin with the ten that the same seed gives, and one call for each of ten
        samples is one call for ten. The noise is made on the CPU: a seed means the same on every device.
        """
        return Draw(torch.empty(samples, 0))

    @abstractmethod
    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        """The high-resolution cube, (n, bands, h, w) -> (n, bands, scale·h, scale·w), not clipped.

        `draw` holds one sample for the whole batch or one for each of its n elements; None: every mask is 1.
        """

    @torch.no_grad()
    def samples(self, low: Tensor, draw: Draw) -> Tensor:
        """One cube seen by every sub-network of the draw, (1, bands, h, w) -> (samples, bands, H, W)."""
        if low.device.type != "cpu":
            batch: Tensor = self(low.expand(len(draw), -1, -1, -1), draw)
            return batch
        _, bands, h, w = low.shape
        high = low.new_empty(len(draw), bands, self.scale * h, self.scale * w)
        for i in range(len(draw)):  # one at a time needs the memory of one
            high[i] = self(low, draw[i])[0]
        return high

    def degrade(self, high: Tensor) -> Tensor:
        """The low-resolution cube this network believes `high` would give; for its consistency loss."""
        raise NotImplementedError(f"{type(self).__name__} does not learn how its input was degraded.")
