"""Weights of a PDE-Net adapted to one with another scale or more channels."""

import torch
from torch import Tensor


def resized_tail(tail: Tensor, old: int, new: int) -> Tensor:
    """A tail, (in, band, row, col), interpolated for another scale."""
    # Tap k lies (k - 1 - (scale - 1) / 2) / scale voxels from the voxel's centre.
    places = ((torch.arange(new + 2) - (new + 1) / 2) * old / new + (old + 1) / 2).clamp(0, old + 1)
    left = places.floor().clamp(max=old).long()
    share = (places - left).to(tail)
    rows = tail[:, :, left] * (1 - share)[:, None] + tail[:, :, left + 1] * share[:, None]
    return rows[..., left] * (1 - share) + rows[..., left + 1] * share


def widened(name: str, old: Tensor, fresh: Tensor) -> Tensor:
    """The weights `old` as a part of `own`, which has as many channels or more: what they compute stays the same.

    Old channels take nothing from new ones, the tails of new ones are zero, and a unit that grew has the chances
    of a new one.
    """
    if name.endswith(".tail"):
        return torch.cat((old, old.new_zeros(max(0, len(fresh) - len(old)), *old.shape[1:])))
    if old.dim() != fresh.dim() or any(few > many for few, many in zip(old.shape, fresh.shape, strict=True)):
        return old  # does not fit; loading it will say so
    if old.dim() < 2:
        return old if len(old) == len(fresh) else fresh
    # The inputs of a unit are the concatenated outputs of the units before it.
    inputs = max(1, int(name.split(".")[3])) if name.endswith(".compress") else 1
    new = fresh.clone()
    blocks, parts = (w.view(len(w), inputs, -1, *w.shape[2:]) for w in (new, old))
    blocks[: len(parts)] = 0
    blocks[: len(parts), :, : parts.shape[2]] = parts
    return new
