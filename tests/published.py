"""The published networks, written plainly from the names and shapes of the tensors in their checkpoints."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pdenet_cli.degradation import bicubic_up

State = dict[str, Tensor]


def random_state(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> State:
    """Weights of these shapes, small enough that deep networks stay near 1."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        if name.endswith(("feat_weight", "component_weight1", "component_weight2")):
            state[name] = torch.rand(shape, generator=generator)
        else:
            fan = max(1, torch.Size(shape[1:]).numel())
            state[name] = torch.randn(shape, generator=generator) / fan**0.5
    return state


# PDE-Net and Template-Net.


def pde_net_shapes(scale: int, chances: bool, stages: int = 4, width: int = 64, head: int = 32) -> dict:
    shapes = {"degradation_conv_weight": ((scale + 1) ** 2,)}
    for s in range(stages):
        shapes[f"stages.{s}.head.weight"] = (head, 1, 3, 3, 3)
        for j in range(6):
            name, out = f"stages.{s}.denselayers.{j}", head if j == 5 else width
            if chances:
                shapes[f"{name}.feat_weight"] = (j * width,)
                shapes[f"{name}.component_weight1"] = shapes[f"{name}.component_weight2"] = (out,)
            for k in (1, 2):
                shapes[f"{name}.spatiallayer.conv{k}.weight"] = (out, out, 1, 3, 3)
                shapes[f"{name}.spectralayer.conv{k}.weight"] = (out, out, 3, 1, 1)
            shapes[f"{name}.Conv_mixdence.weight"] = (out, head if j == 0 else j * width, 1, 1, 1)
        shapes[f"stages.{s}.tail.0.weight"] = (head, 1, 3, scale + 2, scale + 2)
        shapes[f"stages.{s}.tail.1.weight"] = (1, 1, 3, 3, 3)
    return shapes


def pde_net(state: State, low: Tensor, scale: int, masks: dict[str, Tensor] | None = None) -> Tensor:
    """(n, bands, h, w) -> (n, bands, H, W); `masks` by the names of their probabilities, None: all 1."""
    high = F.interpolate(low, scale_factor=scale, mode="bicubic", align_corners=False)
    kernel = state["degradation_conv_weight"].softmax(0).view(1, 1, scale + 1, scale + 1)
    seen, s = low, 0
    while f"stages.{s}.head.weight" in state:
        high = high + _stage(state, f"stages.{s}", seen[:, None], scale, masks)[:, 0]
        bands = F.conv2d(high.flatten(0, 1)[:, None], kernel, stride=scale, padding=scale // 2)
        seen, s = low - bands.view_as(low), s + 1
    return high


def _stage(state: State, name: str, x: Tensor, scale: int, masks: dict[str, Tensor] | None) -> Tensor:
    def times(y: Tensor, chance: str) -> Tensor:
        return y if masks is None else y * masks[chance][:, :, None, None, None]

    start = F.conv3d(x, state[f"{name}.head.weight"], padding=1)
    found: list[Tensor] = []
    for j in range(6):
        unit = f"{name}.denselayers.{j}"
        y = torch.cat(found, 1) if found else start
        y = times(y, f"{unit}.feat_weight") if j > 1 else y
        y = F.conv3d(y, state[f"{unit}.Conv_mixdence.weight"]).relu()
        for part, pad, chance in (("spectra", (1, 0, 0), 1), ("spatial", (0, 1, 1), 2)):
            first, second = (state[f"{unit}.{part}layer.conv{k}.weight"] for k in (1, 2))
            z = F.conv3d(F.conv3d(y, first, padding=pad).relu(), second, padding=pad)
            y = times(z, f"{unit}.component_weight{chance}") + y
        found.append(y)
    y = F.conv_transpose3d(found[-1] + start, state[f"{name}.tail.0.weight"], stride=(1, scale, scale), padding=1)
    return F.conv3d(y, state[f"{name}.tail.1.weight"], padding=1)


# MCNet and ERCSR.


def _normed(shapes: dict, name: str, *shape: int, outputs: int | None = None) -> None:
    shapes[f"{name}.bias"] = (outputs or shape[0],)
    shapes[f"{name}.weight_g"] = (shape[0],) + (1,) * (len(shape) - 1)
    shapes[f"{name}.weight_v"] = shape


def _conv(state: State, name: str, x: Tensor) -> Tensor:
    """A convolution with normed weights that keeps the size; a flat one goes band by band."""
    v, g = state[f"{name}.weight_v"], state[f"{name}.weight_g"]
    weight = g * v / v.flatten(1).norm(dim=1).view_as(g)
    if weight.dim() == 4:
        flat = x.transpose(1, 2).flatten(0, 1)
        y = F.conv2d(flat, weight, state[f"{name}.bias"], padding=1)
        return y.view(len(x), x.shape[2], *y.shape[1:]).transpose(1, 2)
    return F.conv3d(x, weight, state[f"{name}.bias"], padding=[k // 2 for k in weight.shape[2:]])


def _enlarged(state: State, name: str, x: Tensor, scale: int) -> Tensor:
    v, g = state[f"{name}.weight_v"], state[f"{name}.weight_g"]
    weight = g * v / v.flatten(1).norm(dim=1).view_as(g)
    return F.conv_transpose3d(x, weight, state[f"{name}.bias"], stride=(1, scale, scale), padding=1)


def mcnet_shapes(scale: int, width: int = 64) -> dict:
    shapes: dict = {}
    _normed(shapes, "head", width, 1, 3, 3, 3)
    for m in range(1, 5):
        name = f"SSRM{m}"
        shapes[f"{name}.gamma"] = (3,)
        for block in ("Block1.0", "Block2.0", "Block3.0", "Conv"):
            _normed(shapes, f"{name}.{block}.conv.0.conv", width, width, 1, 3, 3)
            _normed(shapes, f"{name}.{block}.conv.1.conv", width, width, 3, 1, 1)
        _normed(shapes, f"{name}.reduceF.conv", width, 3 * width, 1, 1, 1)
        for k in range(1, 4):
            _normed(shapes, f"{name}.conv{k}.0", width, width, 3, 3)
            _normed(shapes, f"{name}.conv{k}.2", width, width, 3, 3)
    _normed(shapes, "tail.0", width, width, 3, scale + 2, scale + 2)
    _normed(shapes, "tail.1", 1, width, 3, 3, 3)
    return shapes


def mcnet(state: State, low: Tensor, scale: int, means: Tensor) -> Tensor:
    def separable(name: str, x: Tensor) -> Tensor:
        return _conv(state, f"{name}.conv.1.conv", _conv(state, f"{name}.conv.0.conv", x).relu()).relu()

    x = start = _conv(state, "head", (low - means)[:, None])
    for m in range(1, 5):
        y, found = x, []
        for k in range(1, 4):
            y = separable(f"SSRM{m}.Block{k}.0", y) + y
            flat = _conv(state, f"SSRM{m}.conv{k}.2", _conv(state, f"SSRM{m}.conv{k}.0", y).relu())
            found.append(state[f"SSRM{m}.gamma"][k - 1] * flat)
        mixed = _conv(state, f"SSRM{m}.reduceF.conv", torch.cat(found, 1)).relu() + x
        x = separable(f"SSRM{m}.Conv", mixed) + start
    return _conv(state, "tail.1", _enlarged(state, "tail.0", x, scale))[:, 0] + means


def ercsr_shapes(scale: int, width: int = 64) -> dict:
    shapes: dict = {"gamma": (4,)}
    for name in ("head", "end"):
        _normed(shapes, f"{name}.0", width, 1 if name == "head" else width, 1, 3, 3)
        _normed(shapes, f"{name}.1", width, width, 3, 1, 1)
    for m in range(4):
        for k, kernel in enumerate(((1, 3, 3), (3, 3, 1), (3, 1, 3)), start=1):
            _normed(shapes, f"body.{m}.conv{k}", width, width, *kernel)
        for u in range(2):
            _normed(shapes, f"body.{m}.twoD_body.{u}.conv1", width, width, 3, 3)
            _normed(shapes, f"body.{m}.twoD_body.{u}.conv2", width, width, 3, 3)
    _normed(shapes, "reduceD", width, 4 * width, 1, 1, 1)
    _normed(shapes, "tail.0", width, width, 3, scale + 2, scale + 2)
    _normed(shapes, "tail.1", width, width, 1, 3, 3)
    _normed(shapes, "tail.2", 1, width, 3, 1, 1)
    return shapes


def ercsr(state: State, low: Tensor, scale: int, means: Tensor) -> Tensor:
    centred = low - means
    x = start = _conv(state, "head.1", _conv(state, "head.0", centred[:, None]))
    found = []
    for m in range(4):
        y = _conv(state, f"body.{m}.conv1", x).relu()
        y = t = _conv(state, f"body.{m}.conv2", y) + _conv(state, f"body.{m}.conv3", y)
        for u in range(2):
            name = f"body.{m}.twoD_body.{u}"
            y = y + _conv(state, f"{name}.conv2", _conv(state, f"{name}.conv1", y).relu())
        x = y + t + x
        found.append(x * state["gamma"][m])
    x = _conv(state, "reduceD", torch.cat(found, 1))
    x = _conv(state, "end.1", _conv(state, "end.0", x)) + start
    x = _conv(state, "tail.2", _conv(state, "tail.1", _enlarged(state, "tail.0", x, scale)))
    return x[:, 0] + F.interpolate(centred, scale_factor=scale, mode="nearest") + means


# SSPSR.


def sspsr_shapes(scale: int, bands: int = 31, group: int = 4, blocks: int = 2, width: int = 64) -> dict:
    shapes: dict = {}

    def conv(name: str, outputs: int, inputs: int, kernel: int = 3) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs, kernel, kernel), (outputs,)

    doublings = {"branch": scale.bit_length() - 2, "trunk": 1}
    for part, count in (("branch", group), ("trunk", bands)):
        conv(f"{part}.head", width, count)
        for b in range(blocks):
            for k in (0, 2):
                conv(f"{part}.body.net.{b}.spa.body.{k}", width, width)
                conv(f"{part}.body.net.{b}.spc.body.{k}", width, width, 1)
            conv(f"{part}.body.net.{b}.spc.body.3.conv_du.0", width // 16, width, 1)
            conv(f"{part}.body.net.{b}.spc.body.3.conv_du.2", width, width // 16, 1)
        for d in range(doublings[part]):
            conv(f"{part}.upsample.{2 * d}", 4 * width, width)
    conv("branch.tail", group, width)
    conv("skip_conv", width, bands)
    conv("final", bands, width)
    return shapes


def sspsr(state: State, low: Tensor, scale: int, group: int, overlap: int) -> Tensor:
    def conv(name: str, x: Tensor) -> Tensor:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2)

    def body(part: str, x: Tensor) -> Tensor:
        start, b = x, 0
        while (name := f"{part}.body.net.{b}") + ".spa.body.0.weight" in state:
            x = x + 0.1 * conv(f"{name}.spa.body.2", conv(f"{name}.spa.body.0", x).relu())
            y = conv(f"{name}.spc.body.2", conv(f"{name}.spc.body.0", x).relu())
            mean = y.mean((2, 3), keepdim=True)
            gate = conv(
                f"{name}.spc.body.3.conv_du.2", conv(f"{name}.spc.body.3.conv_du.0", mean).relu()
            ).sigmoid()
            x, b = x + 0.1 * y * gate, b + 1
        x, d = x + start, 0
        while f"{part}.upsample.{2 * d}.weight" in state:
            x, d = F.pixel_shuffle(conv(f"{part}.upsample.{2 * d}", x), 2), d + 1
        return x

    n, bands, h, w = low.shape
    finer, count = low.new_zeros(n, bands, scale // 2 * h, scale // 2 * w), low.new_zeros(bands)
    first = 0
    while True:
        first = min(first, bands - group)
        part = slice(first, first + group)
        finer[:, part] += conv("branch.tail", body("branch", conv("branch.head", low[:, part])))
        count[part] += 1
        if first == bands - group:
            break
        first += group - overlap
    x = body("trunk", conv("trunk.head", finer / count[:, None, None]))
    return conv("final", x + conv("skip_conv", bicubic_up(low, scale)))
