"""What every network is to the rest of the program."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pdenet_cli.errors import ModelError


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


class Rival(nn.Module):
    """A network that gives a cube a score, and learns to give the truth a higher one than estimates."""

    @abstractmethod
    def loss(self, lower: Tensor, higher: Tensor) -> Tensor:
        """How far the scores are from saying that `higher` is more like the truth than `lower`."""


class Network(nn.Module):
    """A super-resolution network: a pure function of a low-resolution cube and a draw."""

    Config: ClassVar[type[NetworkConfig]]
    configs: ClassVar[Mapping[str, NetworkConfig]]  # by name; "tiny" is for tests
    random: ClassVar[bool]  # False: every draw gives the same output
    turns: ClassVar[bool] = False  # True: of a turned or mirrored cube it makes the same, turned or mirrored

    config: NetworkConfig
    halo: int | None  # how many low-resolution pixels away an output still looks, exactly; None: everywhere
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
        _, bands, h, w = low.shape
        high = low.new_empty(len(draw), bands, self.scale * h, self.scale * w)
        at_once = 1 if low.device.type == "cpu" else len(draw)  # a CPU is fastest, and leanest, one by one
        for i, some in enumerate(self.in_turn(low, draw, at_once)):
            high[i * at_once : i * at_once + len(some)] = some
        return high

    def in_turn(self, low: Tensor, draw: Draw, at_once: int) -> Iterator[Tensor]:
        """`samples`, so many at once; what they have in common is computed only once."""
        for i in range(0, len(draw), at_once):
            some = draw[i : i + at_once]
            yield self(low.expand(len(some), -1, -1, -1), some)

    @property
    def different(self) -> int | None:
        """How many samples can differ; None: any number."""
        return None if self.random else 1

    @property
    def device(self) -> torch.device:
        """Where its weights are, and its input must be."""
        return next(chain(self.parameters(), self.buffers())).device

    def loss(
        self, estimate: Tensor, high: Tensor, low: Tensor, consistency: float = 1.0, rival: Rival | None = None
    ) -> Tensor:
        """What training makes small: the mean |error|, and what the estimate leaves unexplained of its input.

        `rival` is None in the warm-up, and always for a network that has none.
        """
        loss = (estimate - high).abs().mean()
        if type(self).degrade is not Network.degrade:
            loss = loss + consistency * (low - self.degrade(estimate)).square().mean()
        return loss

    def starting_from(self, weights: Mapping[str, Tensor], scale: int) -> dict[str, Tensor]:
        """The weights of a network of this kind, maybe smaller or for another scale, as this one can take them."""
        if scale != self.scale:
            raise ModelError(f"an x{scale} {type(self).__name__} cannot initialise an x{self.scale} one.")
        return dict(weights)

    def new_rival(self) -> Rival | None:
        """The rival that training pits against this network, untrained; None: it has none."""
        return None

    def degrade(self, high: Tensor) -> Tensor:
        """The low-resolution cube this network believes `high` would give; for its consistency loss."""
        raise NotImplementedError(f"{type(self).__name__} does not learn how its input was degraded.")
