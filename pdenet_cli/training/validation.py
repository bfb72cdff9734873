"""How good a network is on held-out parts of its scenes, beside MATLAB's bicubic on the same input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.metrics import MOST_DECIBELS, PROTOCOLS
from pdenet_cli.models.networks import Draw, Network
from pdenet_cli.scene.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.scene.window import Window
from pdenet_cli.training.data import Scene

# Validation must stay cheap: the middle of a large part, and two runs of bands of a long spectrum.
LARGEST_SIDE = 32  # low-resolution pixels
LARGEST_WHOLE_SIDE = 64  # low-resolution pixels of a scene that is there for validation only
ALL_BANDS = 32  # spectra of up to this many bands are used whole
RUN_BANDS = 16  # bands in each of the two runs
LEAST_WHOLE = 0.1  # share of a part's spectra that must be without nodata
DRAWS = 4  # samples of the network in a validation


@dataclass(frozen=True)
class HeldOutPart:
    """A held-out piece of a scene: runs of bands at low and high resolution, (runs, bands, rows, columns)."""

    name: str
    low: Tensor
    high: Tensor
    valid_mask: Tensor  # where the truth has a value
    bicubic: dict[str, float]


def held_out_parts(
    scenes: Iterable[Scene], degradation: Degradation, seed: int, bands: int | None = None
) -> list[HeldOutPart]:
    """The validation part of every scene that is large enough and has enough whole spectra there.

    UsageError if no scene has one.
    """
    parts = []
    for scene in scenes:
        window = scene.held_out(degradation.scale)
        if window is None or (bands is not None and len(scene.pixels) < bands):
            continue
        largest = LARGEST_WHOLE_SIDE if scene.holdout == "whole" else LARGEST_SIDE
        window = _middle(window, largest * degradation.scale, degradation.scale)
        runs = [scene.unit(window, run) for run in _runs(len(scene.pixels), bands)]
        valid_mask = torch.stack([torch.from_numpy(present) for _, present in runs])
        if valid_mask.all(1).double().mean() < LEAST_WHOLE:
            continue
        filled = [filled_from_edges(*run, FILL_DEPTH * degradation.scale) for run in runs]
        high = torch.stack([torch.from_numpy(unit) for unit in filled])
        low = degradation(high, torch.Generator().manual_seed(seed))
        bicubic = _score(bicubic_up(low, degradation.scale), high, valid_mask)
        parts.append(HeldOutPart(scene.name, low, high, valid_mask, bicubic))
    if not parts:
        raise UsageError("No cube has enough pixels and valid values for validation. Give a larger cube.")
    return parts


def _middle(window: Window, largest: int, scale: int) -> Window:
    rows, columns = min(window.rows, largest), min(window.columns, largest)
    row, column = ((free // 2) // scale * scale for free in (window.rows - rows, window.columns - columns))
    return Window(window.row + row, window.column + column, rows, columns)


def _runs(bands: int, only: int | None) -> list[slice]:
    if only is not None or bands <= ALL_BANDS:
        return [slice(0, only or bands)]
    starts = (bands // 4 - RUN_BANDS // 2, 3 * bands // 4 - RUN_BANDS // 2)
    return [slice(start, start + RUN_BANDS) for start in starts]


@torch.no_grad()
def validate(
    network: Network, parts: Sequence[HeldOutPart], draw: Draw | None, device: torch.device
) -> dict[str, Any]:
    """Scores of `network` as the mean of the samples of `draw` (None: every mask 1), and of one sample alone."""
    network.eval()
    cubes: dict[str, dict[str, float]] = {}
    for part in parts:
        means, singles = [], []
        for low in part.low.to(device).tensor_split(len(part.low)):
            samples = network(low) if draw is None else network.samples(low, draw)
            means.append(samples.mean(0).cpu())
            singles.append(samples[0].cpu())
        single = _score(torch.stack(singles), part.high, part.valid_mask)["psnr"]
        bicubic = {f"bicubic_{name}": value for name, value in part.bicubic.items()}
        name, again = part.name, 2
        while name in cubes:
            name, again = f"{part.name} ({again})", again + 1
        cubes[name] = _score(torch.stack(means), part.high, part.valid_mask) | {"single_psnr": single} | bicubic
    network.train()
    names = ("psnr", "sam", "single_psnr", "bicubic_psnr", "bicubic_sam")
    mean = {name: sum(cube[name] for cube in cubes.values()) / len(cubes) for name in names}
    return mean | {"draws": 0 if draw is None else len(draw), "cubes": cubes}


def _score(estimate: Tensor, truth: Tensor, valid_mask: Tensor) -> dict[str, float]:
    """Mean PSNR of the bands in dB, and mean angle in degrees of whole spectra, as `pdenet evaluate` has them."""
    bands, spectra = (PROTOCOLS["pdenet"].tally(1, (name,)) for name in ("MPSNR", "SAM"))
    part = Window(0, 0, *truth.shape[2:])
    bands.add(part, part, *(cube.flatten(0, 1).numpy() for cube in (estimate, truth, valid_mask)))
    whole = valid_mask & valid_mask.all(1, keepdim=True)
    for run in zip(estimate.numpy(), truth.numpy(), whole.numpy(), strict=True):
        spectra.add(part, part, *run)
    # JSON has no number for the infinite PSNR of a perfect estimate.
    return {"psnr": min(bands.values()["MPSNR"], MOST_DECIBELS), "sam": spectra.values()["SAM"]}
