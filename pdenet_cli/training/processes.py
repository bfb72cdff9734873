"""The processes of a run that torchrun started; usually there is only one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pdenet_cli.system import choose_device


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int = 0
    count: int = 1
    rank_here: int = 0  # among those of this machine
    count_here: int = 1

    @property
    def first(self) -> bool:
        """The one that validates, logs and saves."""
        return self.rank == 0

    @property
    def first_of_machine(self) -> bool:
        return self.rank_here == 0

    @property
    def shares_machine(self) -> bool:
        """Whether a machine has several processes of the run."""
        return self.count_here > 1

    def wait(self, device: torch.device) -> None:
        """Go on once every process is here."""
        self.sum([torch.zeros(1, device=device)])

    def share(self, batch: int) -> range:
        """The indices of the global batch that are this process's."""
        return range(self.rank, batch, self.count)

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over all processes."""
        if self.count == 1:
            return
        tensors = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        flat = flat.to(_exchange_device(flat.device))
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def broadcast(self, values: tuple[float, ...], device: torch.device) -> tuple[float, ...]:
        """The values of the first process, in every process."""
        if self.count == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64, device=_exchange_device(device))
        dist.broadcast(shared, src=0)
        return tuple(shared.tolist())


ONE_PROCESS = Processes()


def _exchange_device(device: torch.device) -> torch.device:
    """Where processes on `device` exchange tensors: NCCL works on GPUs, Gloo only on the CPU."""
    return device if device.type == "cuda" else torch.device("cpu")


@contextmanager
def joined_processes(device: str) -> Iterator[tuple[Processes, torch.device]]:
    """This process's place among those that torchrun started, and its own device of the wanted kind."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ONE_PROCESS, choose_device(device)
        return
    if device.startswith(("auto", "cuda")) and torch.cuda.is_available():
        # By its name: if it cannot be used the run must end, not go on with one process on a CPU.
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    joined = choose_device(device)
    if joined.type == "cuda":
        torch.cuda.set_device(joined)
    dist.init_process_group("nccl" if joined.type == "cuda" else "gloo")
    try:
        here = [
            int(os.environ.get(name, usual)) for name, usual in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
        ]
        yield Processes(dist.get_rank(), count, *here), joined
    finally:
        dist.destroy_process_group()
