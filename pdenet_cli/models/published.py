"""Checkpoints of the systems' published codes: what each tensor of ours is called there, and what it looks like.

Every tensor there is one of ours up to axes of length 1; only the probabilities of a unit, one vector here, are
three there. What a file does not hold, such as band means, the caller must know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks import NETWORKS, Network, build_network
from pdenet_cli.models.networks.ercsr import ERCSR
from pdenet_cli.models.networks.mcnet import MCNet
from pdenet_cli.models.networks.pdenet import Stage, TemplateNet, Unit
from pdenet_cli.models.networks.sspsr import SSPSR

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Link:
    """A tensor of ours and the one or more of theirs that hold the same numbers, one after another."""

    ours: str
    theirs: Mapping[str, tuple[int, ...]]  # with their shapes


@dataclass(frozen=True)
class Layout:
    """The checkpoints of one published code."""

    network: str
    mark: str  # a pattern of a name that only they have
    config: Callable[[Weights], dict[str, Any]]
    links: Callable[[Any], Iterator[tuple[str, str]]]  # (our name, their name) of a network of ours
    shape: Callable[[str, tuple[int, ...]], tuple[int, ...]] = lambda name, shape: shape
    parallel: bool = True  # their names begin with "module.", in a dictionary under "model"

    def linked(self, network: Network) -> list[Link]:
        """Every tensor of a network of ours with its counterparts."""
        shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for ours, theirs in self.links(network):
            parts = found.setdefault(ours, {})
            parts[theirs] = self.shape(ours, shapes[ours])
        for name, parts in found.items():
            if len(parts) > 1:  # the probabilities of a unit
                sizes = _unit(network, name).masks
                found[name] = {theirs: (size,) for theirs, size in zip(parts, sizes, strict=True)}
        assert found.keys() == shapes.keys(), found.keys() ^ shapes.keys()
        return [Link(ours, parts) for ours, parts in found.items()]


def layout_of(weights: Weights) -> Layout:
    """The layout that these names are in; ModelError if in none."""
    for layout in LAYOUTS:
        if any(re.fullmatch(layout.mark, name) for name in weights):
            return layout
    known = ", ".join(dict.fromkeys(layout.network for layout in LAYOUTS))
    problem = f"its weights ({', '.join(list(weights)[:3]) or 'none'} ...)"
    raise ModelError(f"{problem} are of no known published code ({known}).")


def network_of(weights: Weights, layout: Layout, fields: Mapping[str, Any]) -> Network:
    """Our network with these weights; `fields` of its configuration are what the file does not hold."""
    try:
        config = layout.config(weights) | dict(fields)
    except (KeyError, IndexError, ValueError) as error:
        raise ModelError(f"it looks like {layout.network}, but {error} is not there.") from error
    with torch.device("meta"):
        links = layout.linked(build_network(layout.network, config))
    wanted = {name: shape for link in links for name, shape in link.theirs.items()}
    for name in (*wanted, *weights):
        shape = tuple(weights[name].shape) if name in weights else "missing"
        if shape != wanted.get(name, "nothing"):
            problem = f"{name} is {shape}, expected {wanted.get(name, 'nothing')}"
            raise ModelError(f"it is not {layout.network} as published with {config}: {problem}.")
    network = build_network(layout.network, config)
    ours = network.state_dict()
    for link in links:
        numbers = torch.cat([weights[name].flatten() for name in link.theirs])
        ours[link.ours] = numbers.float().view(ours[link.ours].shape)
    if not all(bool(tensor.isfinite().all()) for tensor in ours.values()):
        raise ModelError("its weights are not all finite.")
    network.load_state_dict(ours)
    return network.eval().requires_grad_(False)


def published_weights(network: Network, layout: Layout) -> dict[str, Tensor]:
    """The weights of a network of ours by their published names."""
    ours: dict[str, Tensor] = network.state_dict()
    theirs: dict[str, Tensor] = {}
    for link in layout.linked(network):
        sizes = [torch.Size(shape).numel() for shape in link.theirs.values()]
        parts = torch.split(ours[link.ours].flatten(), sizes)
        theirs |= {
            name: part.reshape(shape).clone()
            for (name, shape), part in zip(link.theirs.items(), parts, strict=True)
        }
    return theirs


# PDE-Net and Template-Net.


def _pde_net(weights: Weights) -> dict[str, Any]:
    head, compress = weights["stages.0.head.weight"], weights["stages.0.denselayers.0.Conv_mixdence.weight"]
    return {
        "stages": _count(weights, r"stages\.(\d+)\."),
        "units": _count(weights, r"stages\.0\.denselayers\.(\d+)\."),
        "width": len(compress),
        "head": len(head),
        "scale": weights["stages.0.tail.0.weight"].shape[-1] - 2,
    }


def _pde_net_links(network: TemplateNet) -> Iterator[tuple[str, str]]:
    yield "degradation.logits", "degradation_conv_weight"
    for s, stage in enumerate(network.stages):
        assert isinstance(stage, Stage)
        start = f"stages.{s}"
        yield from ((f"{start}.{a}", f"{start}.{b}.weight") for a, b in _STAGE.items())
        for u in range(len(stage.units)):
            ours, theirs = f"{start}.units.{u}", f"{start}.denselayers.{u}"
            yield from ((f"{ours}.{a}", f"{theirs}.{b}.weight") for a, b in _UNIT.items())
            if network.learns_chances:
                yield from ((f"{ours}.chance", f"{theirs}.{name}") for name in _CHANCE)


_STAGE = {"head": "head", "tail": "tail.0", "smooth": "tail.1"}
_UNIT = {
    "compress": "Conv_mixdence",
    "spectral1": "spectralayer.conv1",
    "spectral2": "spectralayer.conv2",
    "spatial1": "spatiallayer.conv1",
    "spatial2": "spatiallayer.conv2",
}
_CHANCE = ("feat_weight", "component_weight1", "component_weight2")  # inputs, spectral, spatial


def _pde_net_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Ours, without axes that only one of the two has."""
    match name.rsplit(".", 1)[1].rstrip("12"):
        case "logits":
            return (shape[0] * shape[1],)
        case "compress":
            return (*shape, 1, 1, 1)
        case "spectral":
            return (*shape, 1)
        case "spatial":
            return (*shape[:2], 1, *shape[2:])
        case "head" | "tail":
            return (shape[0], 1, *shape[1:])
        case "smooth":
            return (1, *shape)
    return shape


def _unit(network: Network, chance: str) -> Unit:
    """The unit whose probabilities have this name."""
    unit = network.get_submodule(chance.removesuffix(".chance"))
    assert isinstance(unit, Unit)
    return unit


# MCNet and ERCSR: normed weights, each a size and a direction.

_NORMED = {
    "parametrizations.weight.original0": "weight_g",
    "parametrizations.weight.original1": "weight_v",
    "bias": "bias",
}


def _normed(ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    yield from ((f"{ours}.{a}", f"{theirs}.{b}") for a, b in _NORMED.items())


def _planar_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Ours; convolutions within a band are two-dimensional there."""
    return (*shape[:2], *shape[3:]) if ".planar." in name and len(shape) == 5 else shape


def _mcnet(weights: Weights) -> dict[str, Any]:
    tail = weights["tail.0.weight_v"]
    return {"modules": _count(weights, r"SSRM(\d+)\.") - 1, "width": len(tail), "scale": tail.shape[-1] - 2}


def _mcnet_links(network: MCNet) -> Iterator[tuple[str, str]]:
    yield from _normed("head", "head")
    yield from (pair for i in range(2) for pair in _normed(f"tail.{i}", f"tail.{i}"))
    for m in range(len(network.body)):
        ours, theirs = f"body.{m}", f"SSRM{m + 1}"
        yield f"{ours}.gamma", f"{theirs}.gamma"
        yield from _normed(f"{ours}.mix.0", f"{theirs}.reduceF.conv")
        for i in range(2):
            yield from _normed(f"{ours}.last.{2 * i}", f"{theirs}.Conv.conv.{i}.conv")
            for k in range(3):
                yield from _normed(f"{ours}.separable.{k}.{2 * i}", f"{theirs}.Block{k + 1}.0.conv.{i}.conv")
                yield from _normed(f"{ours}.planar.{k}.{2 * i}", f"{theirs}.conv{k + 1}.{2 * i}")


def _ercsr(weights: Weights) -> dict[str, Any]:
    tail = weights["tail.0.weight_v"]
    return {"modules": _count(weights, r"body\.(\d+)\."), "width": len(tail), "scale": tail.shape[-1] - 2}


def _ercsr_links(network: ERCSR) -> Iterator[tuple[str, str]]:
    yield "gamma", "gamma"
    yield from _normed("mix.0", "reduceD")
    for i in range(2):
        yield from (
            pair for a, b in ((f"head.{i}", f"head.{i}"), (f"mix.{i + 1}", f"end.{i}")) for pair in _normed(a, b)
        )
    yield from (pair for i in range(3) for pair in _normed(f"tail.{i}", f"tail.{i}"))
    for m in range(len(network.body)):
        names = {"spatial.0": "conv1", "rows": "conv2", "columns": "conv3"}
        names |= {f"planar.{k}.{2 * i}": f"twoD_body.{k}.conv{i + 1}" for k in range(2) for i in range(2)}
        yield from (pair for a, b in names.items() for pair in _normed(f"body.{m}.{a}", f"body.{m}.{b}"))


# SSPSR.


def _sspsr(weights: Weights) -> dict[str, Any]:
    width, bands = weights["skip_conv.weight"].shape[:2]
    group = len(weights["branch.tail.weight"])
    return {
        "bands": bands,
        "group": group,
        "overlap": 2 if group == 8 else 1,  # not in the file; as in the published settings of 8 and of 4 bands
        "blocks": _count(weights, r"branch\.body\.net\.(\d+)\."),
        "width": width,
        "squeeze": width // len(weights["branch.body.net.0.spc.body.3.conv_du.0.weight"]),
        "scale": 2 * 2 ** sum(bool(re.fullmatch(r"branch\.upsample\.\d+\.weight", name)) for name in weights),
    }


def _sspsr_links(network: SSPSR) -> Iterator[tuple[str, str]]:
    doublings, blocks = len(network.branch) - 3, asdict(network.config)["blocks"]
    pairs = {"branch.0": "branch.head", f"branch.{doublings + 2}": "branch.tail", "trunk.0": "trunk.head"}
    pairs |= {f"branch.{i + 2}.0": f"branch.upsample.{2 * i}" for i in range(doublings)}
    pairs |= {"trunk.2.0": "trunk.upsample.0", "skip": "skip_conv", "tail": "final"}
    block = {"0.0": "spa.body.0", "0.2": "spa.body.2", "1.0": "spc.body.0", "1.2": "spc.body.2"}
    block |= {"1.3.1": "spc.body.3.conv_du.0", "1.3.3": "spc.body.3.conv_du.2"}
    for part in ("branch", "trunk"):
        for b in range(blocks):
            pairs |= {f"{part}.1.{b}.{a}": f"{part}.body.net.{b}.{theirs}" for a, theirs in block.items()}
    yield from ((f"{a}.{end}", f"{b}.{end}") for a, b in pairs.items() for end in ("weight", "bias"))


def _count(weights: Weights, pattern: str) -> int:
    """One more than the largest number that the pattern finds in the names."""
    return 1 + max(int(found[1]) for name in weights if (found := re.match(pattern, name)))


_PDE = Layout("pdenet", r"stages\.0\.denselayers\.0\.component_weight1", _pde_net, _pde_net_links, _pde_net_shape)

LAYOUTS = (
    _PDE,
    replace(_PDE, network="template", mark=r"degradation_conv_weight"),
    Layout("mcnet", r"SSRM1\.gamma", _mcnet, _mcnet_links, _planar_shape),
    Layout("ercsr", r"reduceD\.weight_v", _ercsr, _ercsr_links, _planar_shape),
    Layout("sspsr", r"skip_conv\.weight", _sspsr, _sspsr_links, parallel=False),
)
assert all(layout.network in NETWORKS for layout in LAYOUTS)

BAND_MEANS = {
    "cave": (
        0.0939, 0.0950, 0.0869, 0.0839, 0.0850, 0.0809, 0.0769, 0.0762, 0.0788, 0.0790, 0.0834,
        0.0894, 0.0944, 0.0956, 0.0939, 0.1187, 0.0903, 0.0928, 0.0985, 0.1046, 0.1121, 0.1194,
        0.1240, 0.1256, 0.1259, 0.1272, 0.1291, 0.1300, 0.1352, 0.1428, 0.1541,
    ),
    "harvard": (
        0.0100, 0.0137, 0.0219, 0.0285, 0.0376, 0.0424, 0.0512, 0.0651, 0.0694, 0.0723, 0.0816,
        0.0950, 0.1338, 0.1525, 0.1217, 0.1187, 0.1337, 0.1481, 0.1601, 0.1817, 0.1752, 0.1445,
        0.1450, 0.1378, 0.1343, 0.1328, 0.1303, 0.1299, 0.1456, 0.1433, 0.1303,
    ),
}  # fmt: skip
"""The means that MCNet's and ERCSR's codes subtract from the bands, by data set: their checkpoints lack them."""
