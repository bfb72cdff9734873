"""Monte-Carlo dropout on Template-Net: PDE-Net's masks, all with one given probability instead of learned ones."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch

from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks.base import Draw
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENetConfig, Stage, TemplateNet


@dataclass(frozen=True)
class DropoutConfig(PDENetConfig):
    """A Template-Net, and how often a channel is dropped."""

    rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise ModelError(f"{self} cannot be built: the rate must lie between 0 and 1.")


class DropoutNet(TemplateNet):
    """Template-Net in which each sample drops channels at random, where PDE-Net has its masks."""

    Config = DropoutConfig
    configs: ClassVar[Mapping[str, DropoutConfig]] = {
        name: DropoutConfig(**asdict(config)) for name, config in CONFIGS.items()
    }
    random = True

    def __init__(self, config: DropoutConfig) -> None:
        super().__init__(config)
        self.rate = config.rate
        self.masks = sum(sum(stage.masks) for stage in self.stages if isinstance(stage, Stage))  # number of all

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        """As every network draws, but whatever the temperature, a channel is kept or dropped."""
        rows = [torch.rand(self.masks, generator=generator, dtype=torch.float64) for _ in range(samples)]
        # Kept channels are scaled up, so that their mean is the same as with every mask at 1.
        masks = (torch.stack(rows) >= self.rate) / (1 - self.rate)
        return Draw(masks.to(self.degradation.logits))
