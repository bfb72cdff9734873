"""PDE-Net written the plain way, Conv3d by Conv3d: slow, obvious, and the reference for the fast one."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from pdenet_cli.degradation import bicubic_up
from pdenet_cli.models.networks.pdenet import PDENetConfig


def forward(config: PDENetConfig, state: Mapping[str, Tensor], low: Tensor, masks: Tensor | None = None) -> Tensor:
    """What the network with these weights makes of (n, bands, h, w); masks (1 or n, all of them) or none."""
    x = low[:, None]  # (n, 1, bands, h, w)
    pieces = None if masks is None else _Pieces(masks)
    high = _upsample(config, low)[:, None] + _stage(config, state, "stages.0", x, pieces)
    for t in range(1, config.stages):
        residual = x - degrade(config, state, high[:, 0])[:, None]
        high = high + _stage(config, state, f"stages.{t}", residual, pieces)
    return high[:, 0] + (_lacking(config, state, low, high[:, 0]) if config.brightness == "kept" else 0)


def _lacking(config: PDENetConfig, state: Mapping[str, Tensor], low: Tensor, high: Tensor) -> Tensor:
    """What the image leaves unexplained around each pixel, shared out by brightness."""
    again = degrade(config, state, high)
    share = high.clamp(min=0) / _around(again.clamp(min=0), config.scale).clamp(min=1e-30)
    return _around(low - again, config.scale) * share.clamp(max=3).detach()


def _around(low: Tensor, scale: int) -> Tensor:
    """Means over 5 x 5 pixels, with straight lines between."""
    for axis in (2, 3):  # mirrored, the edge repeated
        size = low.shape[axis]
        first, last = low.narrow(axis, 0, 2).flip(axis), low.narrow(axis, size - 2, 2).flip(axis)
        low = torch.cat([first, low, last], dim=axis)
    return F.interpolate(F.avg_pool2d(low, 5, stride=1), scale_factor=scale, mode="bilinear")


def degrade(config: PDENetConfig, state: Mapping[str, Tensor], high: Tensor) -> Tensor:
    logits = state["degradation.logits"]
    kernel = (logits.exp() / logits.exp().sum())[None, None]
    pad = config.scale // 2
    return torch.cat([_decimate(config, band[:, None], kernel, pad) for band in high.unbind(1)], dim=1)


def _decimate(config: PDENetConfig, band: Tensor, kernel: Tensor, pad: int) -> Tensor:
    for axis in (2, 3) if config.border == "symmetric" else ():
        size = band.shape[axis]
        first, last = band.narrow(axis, 0, pad).flip(axis), band.narrow(axis, size - pad, pad).flip(axis)
        band = torch.cat([first, band, last], dim=axis)
    return F.conv2d(band, kernel, stride=config.scale, padding=0 if config.border == "symmetric" else pad)


def _upsample(config: PDENetConfig, low: Tensor) -> Tensor:
    if config.upsampling == "matlab":
        return bicubic_up(low, config.scale)
    return F.interpolate(low, scale_factor=config.scale, mode="bicubic")


def _stage(
    config: PDENetConfig, state: Mapping[str, Tensor], name: str, x: Tensor, pieces: "_Pieces | None"
) -> Tensor:
    start = F.conv3d(x, state[f"{name}.head"][:, None], padding=1)
    outputs: list[Tensor] = []
    for j in range(1, config.units + 1):
        weights = {part: state[f"{name}.units.{j - 1}.{part}"] for part in _PARTS}
        z = torch.cat(outputs, dim=1) if outputs else start
        if pieces is not None and j >= 2:
            mask = pieces.next(z.shape[1])
            z = z * mask if j >= 3 and "K" in config.masks else z
        u = F.conv3d(z, weights["compress"][..., None, None, None]).relu()
        width = u.shape[1]
        m_spe, m_spa = (1, 1) if pieces is None else (pieces.next(width), pieces.next(width))
        if "L" not in config.masks:
            m_spe = m_spa = 1
        spe1, spe2 = (weights[part][..., None] for part in ("spectral1", "spectral2"))
        o = u + m_spe * F.conv3d(F.conv3d(u, spe1, padding=(1, 0, 0)).relu(), spe2, padding=(1, 0, 0))
        spa1, spa2 = (weights[part][:, :, None] for part in ("spatial1", "spatial2"))
        f = o + m_spa * F.conv3d(F.conv3d(o, spa1, padding=(0, 1, 1)).relu(), spa2, padding=(0, 1, 1))
        outputs.append(f)
    stride = (1, config.scale, config.scale)
    y = F.conv_transpose3d(outputs[-1] + start, state[f"{name}.tail"][:, None], stride=stride, padding=1)
    return F.conv3d(y, state[f"{name}.smooth"][None], padding=1)


_PARTS = ("compress", "spectral1", "spectral2", "spatial1", "spatial2")


class _Pieces:
    """Hands out the masks in order: for each unit its inputs, its spectral and its spatial branch."""

    def __init__(self, masks: Tensor) -> None:
        self.masks, self.used = masks, 0

    def next(self, width: int) -> Tensor:
        piece = self.masks[:, self.used : self.used + width, None, None, None]
        self.used += width
        return piece
