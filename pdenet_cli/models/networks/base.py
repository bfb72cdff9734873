"""The interface of all networks."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError


@dataclass(frozen=True)
class NetworkConfig:
    """The configuration of a network in plain values: `asdict` of it goes into the weights file."""

    scale: int = 4


@dataclass(frozen=True)
class Draw:
    """What some Monte-Carlo samples of a network have besides its weights.

    One row of masks per sample, (samples, masks); and how the input was degraded, for networks with `any_psf`.
    """

    masks: Tensor
    degradation: Degradation | None = None

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, index: int | slice) -> Self:
        """The draw of sample `index` alone, or of a slice of samples."""
        rows = index if isinstance(index, slice) else slice(index, index + 1 or None)
        return type(self)(self.masks[rows], self.degradation)

    def turned(self) -> Self:
        """The draw for an input that is turned by a quarter."""
        return self if self.degradation is None else type(self)(self.masks, self.degradation.turned())

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.masks.to(device), self.degradation)


class Rival(nn.Module):
    """A discriminator: a network that learns to give the truth a higher score than estimates."""

    @abstractmethod
    def loss(self, lower: Tensor, higher: Tensor) -> Tensor:
        """The loss that falls as the scores of `higher` rise above those of `lower`."""


class Network(nn.Module):
    """A super-resolution network: a pure function of a low-resolution cube and a draw."""

    Config: ClassVar[type[NetworkConfig]]
    configs: ClassVar[Mapping[str, NetworkConfig]]  # by name; "tiny" is for tests
    random: ClassVar[bool]  # False: the output does not depend on the draw
    turns: ClassVar[bool] = False  # True: equivariant to quarter turns and mirroring
    mixable: ClassVar[bool] = False  # True: it takes any bands, as bright as they may be: mixtures.py
    any_psf: bool = False  # True: it undoes the degradation that its draw names; False: that of its training

    config: NetworkConfig
    halo: int | None  # receptive field: low-resolution pixels on each side, exactly; None: the whole scene
    band_halo: int | None  # the same in bands; None: the whole spectrum
    bands: int | None  # the only number of bands it takes; None: any
    bytes_per_voxel: int  # peak memory of one sample, per voxel of its input

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.scale = config.scale

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        """The masks of `samples` sub-networks, drawn one after another.

        So the first ten of twenty samples are the ten of the same seed, whether drawn in one call or in ten. The
        noise is made on the CPU: a seed means the same on every device.
        """
        return Draw(torch.empty(samples, 0))

    def draw_for(self, degradation: Degradation, draw: Draw | None) -> Draw | None:
        """The draw (None: every mask is 1) for inputs that were degraded so, where `any_psf` is true."""
        return draw

    @abstractmethod
    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        """The high-resolution cube, (n, bands, h, w) -> (n, bands, scale·h, scale·w), not clipped.

        `draw` holds one sample for the whole batch or one for each of its n elements; None: every mask is 1.
        """

    @torch.no_grad()
    def samples(self, low: Tensor, draw: Draw) -> Tensor:
        """The outputs of all sub-networks of a draw for one cube, (1, bands, h, w) -> (samples, bands, H, W)."""
        _, bands, h, w = low.shape
        high = low.new_empty(len(draw), bands, self.scale * h, self.scale * w)
        at_once = 1 if low.device.type == "cpu" else len(draw)  # a CPU is fastest with one at a time
        for i, part in enumerate(self.in_turn(low, draw, at_once)):
            high[i * at_once : i * at_once + len(part)] = part
        return high

    def in_turn(self, low: Tensor, draw: Draw, at_once: int) -> Iterator[Tensor]:
        """The same, `at_once` samples at a time; what they have in common is computed only once."""
        for i in range(0, len(draw), at_once):
            part = draw[i : i + at_once]
            yield self(low.expand(len(part), -1, -1, -1), part)

    @property
    def different(self) -> int | None:
        """How many different samples there are; None: any number."""
        return None if self.random else 1

    def chances(self) -> list[Tensor]:
        """The learned probabilities of its masks; none for most networks."""
        return [p for name, p in self.named_parameters() if name.endswith(".chance")]

    def tails(self) -> list[Tensor]:
        """The last weights of stages that correct an enlarged image: without them it stays as it is."""
        return [p for name, p in self.named_parameters() if name.endswith(".tail")]

    @property
    def device(self) -> torch.device:
        """The device of its weights, and of its inputs."""
        return next(chain(self.parameters(), self.buffers())).device

    def loss(
        self,
        estimate: Tensor,
        high: Tensor,
        low: Tensor,
        consistency: float = 1.0,
        rival: Rival | None = None,
        degradation: Degradation | None = None,
    ) -> Tensor:
        """The training loss: mean absolute error, plus the squared error of the degraded estimate if known.

        `rival` is None in the warm-up, and always for a network that has none. `degradation` made `low` of `high`.
        """
        loss = (estimate - high).abs().mean()
        if type(self).degrade is not Network.degrade:
            loss = loss + consistency * (low - self.degrade(estimate, degradation)).square().mean()
        return loss

    def starting_from(self, weights: Mapping[str, Tensor], scale: int) -> dict[str, Tensor]:
        """The weights of a network of this kind, maybe smaller or for another scale, adapted to this one."""
        if scale != self.scale:
            raise ModelError(f"an x{scale} {type(self).__name__} cannot initialise an x{self.scale} one.")
        return dict(weights)

    def new_rival(self) -> Rival | None:
        """An untrained discriminator for this network; None: it is trained without one."""
        return None

    def degrade(self, high: Tensor, degradation: Degradation | None = None) -> Tensor:
        """`high` at low resolution, for the consistency loss.

        By the degradation that the network has learned; if it has `any_psf`, by `degradation` (None: bicubic).
        """
        raise NotImplementedError(f"{type(self).__name__} does not learn how its input was degraded.")
