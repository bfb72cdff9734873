"""Monte-Carlo dropout on Template-Net: PDE-Net's masks with one chance for all, which is given and not learned."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch

from pdenet_cli.errors import ModelError
from pdenet_cli.networks.base import Draw
from pdenet_cli.networks.pdenet import CONFIGS, PDENetConfig, Stage, TemplateNet


@dataclass(frozen=True)
class DropoutConfig(PDENetConfig):
    """A Template-Net, and how often it does without a channel."""

    rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise ModelError(f"{self} cannot be built: the rate must lie between 0 and 1.")


class DropoutNet(TemplateNet):
    """Template-Net in which each sample leaves out channels by chance, where PDE-Net has its masks."""

    Config = DropoutConfig
    configs: ClassVar[Mapping[str, DropoutConfig]] = {
        name: DropoutConfig(**asdict(config)) for name, config in CONFIGS.items()
    }
    random = True

    def __init__(self, config: DropoutConfig) -> None:
        super().__init__(config)
        self.rate = config.rate
        self.masks = sum(sum(stage.masks) for stage in self.stages if isinstance(stage, Stage))  # of all stages

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        """As every network draws, at no temperature: a channel is in or out, in all phases of a training."""
        rows = [torch.rand(self.masks, generator=generator, dtype=torch.float64) for _ in range(samples)]
        # What stays is enlarged, so that a channel counts as much in the mean as with every mask at 1.
        masks = (torch.stack(rows) >= self.rate) / (1 - self.rate)
        return Draw(masks.to(self.degradation.logits))
