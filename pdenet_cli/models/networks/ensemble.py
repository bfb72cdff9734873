"""A deep ensemble: Template-Nets in one file, with different initial weights and training patches."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw, Network
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENetConfig, TemplateNet


@dataclass(frozen=True)
class EnsembleConfig(PDENetConfig):
    """The size of each Template-Net, and how many there are."""

    members: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 2:
            raise ModelError(f"{self} cannot be built: an ensemble has at least two members.")


class EnsembleNet(Network):
    """Template-Nets; a sample is one of them, with a mask of 1 for that member and 0 for the others.

    Several masks at 1, or no draw at all, give the mean of those members.
    """

    Config = EnsembleConfig
    configs: ClassVar[Mapping[str, EnsembleConfig]] = {
        name: EnsembleConfig(**asdict(config)) for name, config in CONFIGS.items()
    }
    random = True
    mixable = True
    bands = None

    def __init__(self, config: EnsembleConfig) -> None:
        super().__init__(config)
        self.members = nn.ModuleList(TemplateNet(config) for _ in range(config.members))
        first = self._member(0)
        self.halo, self.band_halo, self.bytes_per_voxel = first.halo, first.band_halo, first.bytes_per_voxel

    @property
    def different(self) -> int:
        return len(self.members)

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        """One member after another, from the one that the seed gives: N samples of N members are each once."""
        first = 0
        if generator is not None:
            # A random choice might repeat a member, so the generator counts: its seed says which is next.
            first = generator.initial_seed()
            generator.manual_seed((first + samples) % 2**64)
        turns = [(first + n) % len(self.members) for n in range(samples)]
        return Draw(torch.eye(len(self.members))[turns].to(self._member(0).degradation.logits))

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        masks = low.new_ones(1, len(self.members)) if draw is None else draw.masks
        if len(masks) not in (1, len(low)):
            raise ValueError(f"{len(masks)} samples for a batch of {len(low)}: pass one, or one per element.")
        # Only members whose mask is not 0 are computed; on the meta device masks have no values.
        rows = (torch.ones(masks.shape) if masks.is_meta else masks).expand(len(low), -1).tolist()
        each = zip(low.tensor_split(len(low)), rows, strict=True)
        return torch.cat([self._mean(x, [i for i, mask in enumerate(row) if mask]) for x, row in each])

    def degrade(self, high: Tensor, degradation: Degradation | None = None) -> Tensor:
        """The mean of all members' degradations: an estimate does not say which member made it."""
        return torch.stack([self._member(i).degrade(high, degradation) for i in range(len(self.members))]).mean(0)

    def starting_from(self, weights: Mapping[str, Tensor], scale: int) -> dict[str, Tensor]:
        taken = dict(weights)
        for i in range(len(self.members)):
            start = f"members.{i}."
            if of_member := {name.removeprefix(start): w for name, w in weights.items() if name.startswith(start)}:
                fitting = self._member(i).starting_from(of_member, scale)
                taken |= {start + name: w for name, w in fitting.items()}
        return taken

    def _mean(self, low: Tensor, members: list[int]) -> Tensor:
        high: Tensor = self.members[members[0]](low)
        for i in members[1:]:
            high = high + self.members[i](low)
        return high / len(members)

    def _member(self, i: int) -> TemplateNet:
        member = self.members[i]
        assert isinstance(member, TemplateNet)
        return member
