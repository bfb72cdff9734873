"""What networks that enlarge by doubling have in common."""

from torch import Tensor, nn

from pdenet_cli.errors import ModelError


def require_power_of_two(name: str, scale: int) -> None:
    """Refuse a scale that doublings cannot make."""
    if scale < 2 or scale & (scale - 1):
        raise ModelError(f"{name} enlarges by doubling, so x{scale} cannot be built; choose x2, x4 or x8.")


class Residual(nn.Sequential):
    """Layers whose output, times `share`, is added to their input."""

    def __init__(self, *layers: nn.Module, share: float = 1.0) -> None:
        super().__init__(*layers)
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + self.share * change
