"""How a sensor with larger pixels would see a scene: blur, decimation, noise; and enlarging it again."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil, inf, log, pi, sqrt
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.errors import UsageError


def bicubic_down(cube: Tensor, scale: int) -> Tensor:
    """MATLAB's imresize(cube, 1/scale): (..., scale·h, scale·w) -> (..., h, w)."""
    rows, cols = cube.shape[-2:]
    h, w = _low_size(cube, scale)
    # Inside the image torch agrees with MATLAB (antialias=True means a = -0.5); at the border it cuts its kernel.
    padded = symmetric_pad(cube.reshape(1, -1, rows, cols), 2 * scale)
    low = F.interpolate(padded, (h + 4, w + 4), mode="bicubic", antialias=True, align_corners=False)
    return low[..., 2:-2, 2:-2].reshape(*cube.shape[:-2], h, w)


def bicubic_up(cube: Tensor, scale: int) -> Tensor:
    """MATLAB's imresize(cube, scale): (..., h, w) -> (..., scale·h, scale·w)."""
    return cubic_up(symmetric_pad(cube, 2), scale, a=-0.5)


def bicubic_pixels(pixels: NDArray[np.floating], scale: int) -> NDArray[np.float32]:
    """MATLAB's imresize of an array with holes (NaN): those stay as large as they are, and spread no further."""
    known = np.isfinite(pixels)
    filled, weight = (
        bicubic_up(torch.from_numpy(part.astype(np.float32)), scale).numpy()
        for part in (np.where(known, pixels, 0), known)
    )
    mostly_known = known.repeat(scale, -2).repeat(scale, -1)  # where the weights of what is known are above a half
    return np.asarray(
        np.divide(filled, weight, out=np.full(mostly_known.shape, np.nan, np.float32), where=mostly_known)
    )


def cubic_up(padded: Tensor, scale: int, a: float) -> Tensor:
    """A cube enlarged by cubic convolution with parameter `a`; its outer two pixels are a margin, not enlarged.

    The same arithmetic at every pixel, so a tile gives what the whole gives; the coordinates of torch's own
    interpolation are off by 1e-5 far from the origin unless the scale is a power of two.
    """
    *leading, rows, cols = padded.shape
    offset = (torch.arange(scale, dtype=torch.float64) + 0.5) / scale - 0.5  # from the old pixel's centre
    x = (offset[:, None] - torch.arange(-2, 3)).abs()  # (scale, 5 taps)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
    weights = torch.where(x <= 1, near, torch.where(x < 2, far, 0)).to(padded)[:, None]
    high = F.conv2d(padded.reshape(-1, 1, rows, cols), weights[..., None])  # (n, scale, h, cols)
    high = high.transpose(1, 2).reshape(-1, 1, scale * (rows - 4), cols)
    high = F.conv2d(high, weights[:, :, None])  # (n, scale, scale·h, w)
    return high.permute(0, 2, 3, 1).reshape(*leading, scale * (rows - 4), scale * (cols - 4))


def smooth_up(cube: Tensor, scale: int, reach: int) -> Tensor:
    """The mean of the pixels up to `reach` away, at every pixel of (n, bands, h, w), enlarged linearly."""
    means = F.avg_pool2d(symmetric_pad(cube, reach), 2 * reach + 1, stride=1)
    return F.interpolate(means, scale_factor=scale, mode="bilinear")


def symmetric_pad(cube: Tensor, pad: int) -> Tensor:
    """The cube with `pad` mirrored pixels on each side, edge pixels repeated; mirrored again where it is small."""
    rows, cols = (_mirrored(size, pad, cube.device) for size in cube.shape[-2:])
    return cube.index_select(-2, rows).index_select(-1, cols)


def _mirrored(size: int, pad: int, device: torch.device) -> Tensor:
    index = torch.arange(-pad, size + pad, device=device) % (2 * size)  # one period: 0..size-1, size-1..0
    return torch.minimum(index, 2 * size - 1 - index)


def _low_size(cube: Tensor, scale: int) -> tuple[int, int]:
    rows, cols = cube.shape[-2:]
    if rows % scale or cols % scale:
        raise UsageError(f"{rows} x {cols} pixels are not a multiple of {scale}; crop the cube first.")
    return rows // scale, cols // scale


def gaussian_down(cube: Tensor, scale: int, fwhm: float, across: float | None = None) -> Tensor:
    """Blurred by a Gaussian PSF of `fwhm` low-resolution pixels, sampled at the centres of those pixels.

    `across` is its FWHM along each row, None: the same as down the columns.
    """
    down, right = (_gaussian_weights(scale, width) for width in (fwhm, across or fwhm))
    return _decimated(cube, scale, down, right)


def area_down(cube: Tensor, scale: int, fwhm: float | None = None) -> Tensor:
    """The mean over each low-resolution pixel, after a Gaussian blur of `fwhm` such pixels if given."""
    weights = _area_weights(scale, fwhm)
    return _decimated(cube, scale, weights, weights)


def _area_weights(scale: int, fwhm: float | None) -> Tensor:
    """The weights of a low-resolution pixel along one side: a box, after a Gaussian blur of `fwhm` if given."""
    weights = torch.ones(scale, dtype=torch.float64)
    if fwhm is None:
        return weights
    sigma = _sigma(fwhm, scale)
    pad = ceil(4 * sigma)
    blur = _gaussian(torch.arange(-pad, pad + 1), sigma)
    return F.conv1d(blur.view(1, 1, -1), weights.view(1, 1, -1), padding=scale - 1).flatten()


def _gaussian_weights(scale: int, fwhm: float) -> Tensor:
    """The weights of a low-resolution pixel along one side under a Gaussian point spread."""
    sigma = _sigma(fwhm, scale)
    pad = ceil(4 * sigma)
    return _gaussian(torch.arange(-pad, scale + pad) - (scale - 1) / 2, sigma)


def _bicubic_weights(scale: int) -> Tensor:
    """The weights of a low-resolution pixel along one side in MATLAB's antialiased bicubic, a = -0.5."""
    x = (torch.arange(4 * scale, dtype=torch.float64) - (4 * scale - 1) / 2).abs() / scale
    return torch.where(x <= 1, 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2)


def _gaussian(places: Tensor, sigma: float) -> Tensor:
    return torch.exp(-0.5 * (places.double() / sigma) ** 2)


def _decimated(cube: Tensor, scale: int, down: Tensor, right: Tensor) -> Tensor:
    """Each low-resolution pixel as the mean around its centre, with these weights down columns and along rows."""
    h, w = _low_size(cube, scale)
    down, right = ((weights / weights.sum()).to(cube) for weights in (down, right))
    pads = [(len(weights) - scale) // 2 for weights in (down, right)]
    rows, cols = (_mirrored(size, pad, cube.device) for size, pad in zip(cube.shape[-2:], pads, strict=True))
    padded = cube.reshape(-1, 1, *cube.shape[-2:]).index_select(-2, rows).index_select(-1, cols)
    blurred = F.conv2d(padded, down.view(1, 1, -1, 1), stride=(scale, 1))
    low = F.conv2d(blurred, right.view(1, 1, 1, -1), stride=(1, scale))
    return low.reshape(*cube.shape[:-2], h, w)


def _sigma(fwhm: float, scale: int) -> float:
    """The standard deviation of a Gaussian PSF, in high-resolution pixels."""
    return fwhm * scale / (2 * sqrt(2 * log(2)))


SQUARE = "square"  # what `point_spread` calls square pixels without a lens
FREQUENCIES = (0.125, 0.25, 0.375, 0.5)  # cycles per low-resolution pixel; the last is the finest it can hold


@dataclass(frozen=True)
class Degradation:
    """A recipe that turns a high-resolution cube into the low-resolution one a coarser sensor would record."""

    scale: int
    kernel: Literal["bicubic", "gaussian", "area"] = "bicubic"
    fwhm: float | None = None  # of the Gaussian, or of the lens of an area; in low-resolution pixels
    noise: float = 0.0  # standard deviation, in units of the 0..1 range
    across: float | None = None  # FWHM of a Gaussian along each row (across track); None: as down the columns

    def __post_init__(self) -> None:
        if self.kernel not in ("bicubic", "gaussian", "area"):
            raise UsageError(
                f"Degradation kernel '{self.kernel}' is unknown; choose 'bicubic', 'gaussian' or 'area'."
            )
        if self.kernel != "area" and (self.kernel == "gaussian") != (self.fwhm is not None):
            raise UsageError(
                f"Kernel {self.kernel} with fwhm {self.fwhm}: gaussian needs an FWHM, area may have one, "
                "bicubic must not."
            )
        widths = [width for width in (self.fwhm, self.across) if width is not None]
        if self.scale < 1 or not 0 <= self.noise < inf or not all(0.1 <= width <= 100 for width in widths):
            raise UsageError(
                f"{self} is not valid: scale must be at least 1, noise not negative, fwhm from 0.1 to 100."
            )
        if self.across is not None and self.kernel != "gaussian":
            raise UsageError(f"{self}: only a Gaussian may have another width along rows than down columns.")

    def __call__(self, high: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The low-resolution cube, (..., scale·h, scale·w) -> (..., h, w); not clipped."""
        if self.kernel == "area":
            low = area_down(high, self.scale, self.fwhm)
        elif self.fwhm is not None:
            low = gaussian_down(high, self.scale, self.fwhm, self.across)
        else:
            low = bicubic_down(high, self.scale)
        if self.noise == 0:
            return low
        # On the CPU, so that a seed means the same noise on every device.
        noise = torch.randn(low.shape, generator=generator, dtype=torch.float32)
        return low + self.noise * noise.to(low)

    def changed(self, kernel: str | None = None, fwhm: float | None = None, noise: float | None = None) -> Self:
        """The same but for what is given; a fwhm without a kernel means a Gaussian, or the lens of an area."""
        if kernel is None and fwhm is not None:
            kernel = "area" if self.kernel == "area" else "gaussian"
        changes: dict[str, Any] = {} if noise is None else {"noise": noise}
        # Without a width, area has no lens; a Gaussian needs one, so it keeps its own.
        if kernel is not None and (fwhm is not None or not kernel == self.kernel == "gaussian"):
            changes |= {"kernel": kernel, "fwhm": fwhm, "across": None}
        return replace(self, **changes)

    def __str__(self) -> str:
        width = "" if self.fwhm is None else f" of fwhm {self.fwhm:g}"
        width += "" if self.across is None else f" x {self.across:g}"
        kernel = f"area behind a lens{width}" if width and self.kernel == "area" else self.kernel + width
        return f"x{self.scale} {kernel}" + (f", noise {self.noise:g}" if self.noise else "")

    def weights(self) -> tuple[Tensor, Tensor]:
        """The weights of the high-resolution pixels around a low-resolution one, down columns and along rows."""
        if self.fwhm is not None and self.kernel == "gaussian":
            widths = self.fwhm, self.across or self.fwhm
            return _gaussian_weights(self.scale, widths[0]), _gaussian_weights(self.scale, widths[1])
        side = _area_weights(self.scale, self.fwhm) if self.kernel == "area" else _bicubic_weights(self.scale)
        return side, side

    def transfer(self) -> Tensor:
        """The share of contrast that is left at `FREQUENCIES`: the modulation transfer,
        the mean of both directions.
        """
        return torch.stack([_transfer(weights, self.scale) for weights in self.weights()]).mean(0)

    def turned(self) -> Self:
        """The same seen by a scene that is turned by a quarter."""
        return self if self.across is None else replace(self, fwhm=self.across, across=self.fwhm)

    @property
    def width(self) -> float:
        """The FWHM of its Gaussian or its lens, the larger of both directions; 0 where it has neither."""
        return max(self.fwhm or 0.0, self.across or 0.0)

    @property
    def reach(self) -> int:
        """How many low-resolution pixels beyond its own area a pixel depends on, on each side."""
        if self.fwhm is not None:
            return ceil(ceil(4 * _sigma(self.width, self.scale)) / self.scale)
        return 0 if self.kernel == "area" else 2

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "across" or value is not None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The degradation that `to_dict` gave; fields of later versions are ignored."""
        known = ("scale", "kernel", "fwhm", "noise", "across")
        return cls(**{name: fields[name] for name in known if name in fields})


def _transfer(weights: Tensor, scale: int) -> Tensor:
    """The modulation transfer of these weights at `FREQUENCIES`."""
    places = (torch.arange(len(weights)) - (len(weights) - 1) / 2) / scale
    waves = torch.cos(2 * pi * torch.tensor(FREQUENCIES, dtype=torch.float64)[:, None] * places)
    return (waves @ weights / weights.sum()).float()


def point_spread(text: str, scale: int) -> Degradation:
    """The degradation that a point spread means: an FWHM in low-resolution pixels, one down columns and one along
    rows (1.4x1.8), "square" or "bicubic".
    """
    if text == SQUARE:
        return Degradation(scale, "area")
    if text == "bicubic":
        return Degradation(scale)
    try:
        fwhm, *across = (float(width) for width in text.lower().split("x"))
        if len(across) > 1:
            raise ValueError(text)
        return Degradation(scale, "gaussian", fwhm, across=across[0] if across else None)
    except ValueError as error:
        wanted = (
            "a full width at half maximum of 0.1 to 100 pixels of the scene, such as 1.4, one down the columns "
            f"and one along the rows, such as 1.4x1.8, {SQUARE} or bicubic"
        )
        raise UsageError(f"`psf` {text}: expected {wanted}.") from error
