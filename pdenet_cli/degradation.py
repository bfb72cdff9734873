"""How a sensor with larger pixels would have seen the scene: blur, decimation, noise."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil, log, sqrt
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pdenet_cli.errors import UsageError


def bicubic_down(cube: Tensor, scale: int) -> Tensor:
    """MATLAB's imresize(cube, 1/scale): (..., scale·h, scale·w) -> (..., h, w)."""
    rows, cols = cube.shape[-2:]
    if rows % scale or cols % scale:
        raise UsageError(
            f"{rows} x {cols} pixels do not divide by {scale}; crop the cube to a multiple first."
        )
    return _bicubic(cube, (rows // scale, cols // scale), pad=2 * scale)


def bicubic_up(cube: Tensor, scale: int) -> Tensor:
    """MATLAB's imresize(cube, scale): (..., h, w) -> (..., scale·h, scale·w)."""
    rows, cols = cube.shape[-2:]
    return _bicubic(cube, (rows * scale, cols * scale), pad=4)


def symmetric_pad(cube: Tensor, pad: int) -> Tensor:
    """The cube with `pad` mirrored pixels on each side, the edge repeated, as often mirrored as it takes."""
    rows, cols = (_mirrored(size, pad, cube.device) for size in cube.shape[-2:])
    return cube.index_select(-2, rows).index_select(-1, cols)


def _mirrored(size: int, pad: int, device: torch.device) -> Tensor:
    index = torch.arange(-pad, size + pad, device=device) % (2 * size)  # one period: 0..size-1, size-1..0
    return torch.minimum(index, 2 * size - 1 - index)


def _bicubic(cube: Tensor, size: tuple[int, int], pad: int) -> Tensor:
    rows, cols = cube.shape[-2:]
    # torch agrees with MATLAB inside (antialias=True means a = -0.5) but cuts its kernel at the border.
    padded = symmetric_pad(cube.reshape(1, -1, rows, cols), pad)
    top, left = pad * size[0] // rows, pad * size[1] // cols
    grown = (size[0] + 2 * top, size[1] + 2 * left)
    resized = F.interpolate(padded, grown, mode="bicubic", antialias=True, align_corners=False)
    return resized[..., top : top + size[0], left : left + size[1]].reshape(*cube.shape[:-2], *size)


def gaussian_down(cube: Tensor, scale: int, fwhm: float) -> Tensor:
    """A Gaussian PSF, `fwhm` low-resolution pixels wide, sampled at the centre of each low-resolution pixel."""
    rows, cols = cube.shape[-2:]
    if rows % scale or cols % scale:
        raise UsageError(
            f"{rows} x {cols} pixels do not divide by {scale}; crop the cube to a multiple first."
        )
    sigma = fwhm * scale / (2 * sqrt(2 * log(2)))  # in high-resolution pixels
    pad = ceil(4 * sigma)
    taps = torch.arange(-pad, scale + pad, dtype=cube.dtype, device=cube.device)
    weights = torch.exp(-0.5 * ((taps - (scale - 1) / 2) / sigma) ** 2)
    weights = weights / weights.sum()
    padded = symmetric_pad(cube.reshape(-1, 1, rows, cols), pad)
    blurred = F.conv2d(padded, weights.view(1, 1, -1, 1), stride=(scale, 1))
    low = F.conv2d(blurred, weights.view(1, 1, 1, -1), stride=(1, scale))
    return low.reshape(*cube.shape[:-2], rows // scale, cols // scale)


@dataclass(frozen=True)
class Degradation:
    """A recipe that turns a high-resolution cube into the low-resolution one a coarser sensor would record."""

    scale: int
    kernel: Literal["bicubic", "gaussian"] = "bicubic"
    fwhm: float | None = None  # of the Gaussian, in low-resolution pixels
    noise: float = 0.0  # standard deviation, in units of the 0..1 range

    def __post_init__(self) -> None:
        if self.kernel not in ("bicubic", "gaussian"):
            raise UsageError(
                f"Degradation kernel '{self.kernel}' is unknown; choose 'bicubic' or 'gaussian'."
            )
        if (self.kernel == "gaussian") != (self.fwhm is not None):
            raise UsageError(
                f"A {self.kernel} kernel with fwhm {self.fwhm}: give a fwhm to 'gaussian' and to it only."
            )
        if self.scale < 1 or self.noise < 0 or (self.fwhm is not None and self.fwhm <= 0):
            raise UsageError(
                f"{self} makes no sense: scale must be at least 1, noise not negative, fwhm positive."
            )

    def __call__(self, high: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The low-resolution cube, (..., scale·h, scale·w) -> (..., h, w); not clipped."""
        if self.fwhm is None:
            low = bicubic_down(high, self.scale)
        else:
            low = gaussian_down(high, self.scale, self.fwhm)
        if self.noise == 0:
            return low
        # On the CPU, so that a seed means the same noise on every device.
        noise = torch.randn(low.shape, generator=generator, dtype=torch.float32)
        return low + self.noise * noise.to(low)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**fields)
