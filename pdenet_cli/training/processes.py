"""The processes that share a run, as torchrun starts them; one alone is the usual case."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pdenet_cli.models import choose_device


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """The one that validates, logs and saves."""
        return self.rank == 0

    def share(self, batch: int) -> range:
        """The indices of the global batch that are this process's."""
        return range(self.rank, batch, self.count)

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over all processes."""
        if self.count == 1:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        flat = flat.to(_meeting_place(flat.device))
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def agree(self, values: tuple[float, ...], device: torch.device) -> tuple[float, ...]:
        """The values that the first process has."""
        if self.count == 1:
            return values
        told = torch.tensor(values, dtype=torch.float64, device=_meeting_place(device))
        dist.broadcast(told, src=0)
        return tuple(told.tolist())


ALONE = Processes()


def _meeting_place(device: torch.device) -> torch.device:
    """Where the processes of a run on `device` can share numbers: NCCL on their GPUs, Gloo only on the CPU."""
    return device if device.type == "cuda" else torch.device("cpu")


@contextmanager
def joined(device: str) -> Iterator[tuple[Processes, torch.device]]:
    """This process's place among those that torchrun started, and its own device of the wanted kind."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE, choose_device(device)
        return
    if device.startswith(("auto", "cuda")) and torch.cuda.is_available():
        # By its name: one that cannot be used must end the run, not compute beside GPUs on a CPU.
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    own = choose_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), count), own
    finally:
        dist.destroy_process_group()
