"""What a network costs: its parameters, and the multiply-adds of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pdenet_cli.models.networks import Network, build_network
from pdenet_cli.models.networks.pdenet import PDENetConfig

SIDE, BANDS = 32, 31  # input pixels on a side, and bands for networks that take any number, unless told otherwise


@dataclass(frozen=True)
class Cost:
    """The cost of one sample of one cube."""

    parameters: int
    multiply_adds: int
    as_published: int  # multiply-adds as papers of this field count them: see `cost_of`
    bands: int
    side: int


def cost_of(name: str, config: dict[str, Any], bands: int | None = None, side: int = SIDE) -> Cost:
    """The cost of the network of this kind for an input of `side` x `side` pixels; only shapes are computed.

    A transposed convolution multiplies each input voxel with its whole kernel. Papers of this field count the
    kernel for each output voxel instead, scale² times as many.
    """
    with torch.device("meta"):
        network = build_network(name, config)
        bands = network.bands or bands or BANDS
        parameters = sum(parameter.numel() for parameter in network.parameters())
        if isinstance(network.config, PDENetConfig):
            products, enlarging = _pde_net(network.config, bands * side**2)
        else:
            products, enlarging = _counted(network, torch.empty(1, bands, side, side))
    return Cost(parameters, products, products + (network.scale**2 - 1) * enlarging, bands, side)


def _pde_net(config: PDENetConfig, voxels: int) -> tuple[int, int]:
    """The products of a PDE-Net, without those with zeros in its fast form; and of its transposed convolutions."""
    scale, head, taps = config.scale, config.head, (config.scale + 1) ** 2
    widths = [config.width] * (config.units - 1) + [head]
    inputs = [head] + [config.width * unit for unit in range(1, config.units)]
    units = sum(i * w + 2 * (3 + 9) * w * w for i, w in zip(inputs, widths, strict=True))
    tail = 3 * (scale + 2) ** 2 * head
    stage = 27 * head + units + tail + 27 * scale**2
    if config.kernel != "paper":
        taps = (2 * scale - scale % 2) ** 2
    again = config.stages - 1 + (config.brightness == "kept")  # how often the estimate is degraded
    return voxels * (config.stages * stage + again * taps), voxels * config.stages * tail


def _counted(network: Network, low: Tensor) -> tuple[int, int]:
    """The same of any other network, counted as it runs; transposed convolutions that double have scale 2."""
    enlarging = 0

    def add(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal enlarging
        assert isinstance(layer, nn.ConvTranspose3d)
        stride = layer.stride[1] * layer.stride[2]
        products = inputs[0].numel() * layer.out_channels * torch.Size(layer.kernel_size).numel()
        enlarging += products * (stride - 1) // (network.scale**2 - 1)

    hooks = [m.register_forward_hook(add) for m in network.modules() if isinstance(m, nn.ConvTranspose3d)]
    with FlopCounterMode(display=False) as counter:
        network(low)
    for hook in hooks:
        hook.remove()
    return counter.get_total_flops() // 2, enlarging
