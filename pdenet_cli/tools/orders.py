"""Work as it is sent to other processes: an order is small and can be pickled; opened, it does items."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from pdenet_cli.errors import ModelError, PdenetError, UsageError, as_pdenet_error
from pdenet_cli.models.networks.pdenet import kernel_of
from pdenet_cli.report import versions
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.batch import each

Item = TypeVar("Item")
Result = TypeVar("Result")
Taken = TypeVar("Taken", contravariant=True)
Given = TypeVar("Given", covariant=True)


@dataclass(frozen=True)
class Facts:
    """What a process computes with; where any of it differs, so may the bytes of results."""

    versions: dict[str, str]
    kernels: tuple[str, ...]  # of each posterior
    models: tuple[str, ...]  # hashes of their files

    @classmethod
    def of(cls, *posteriors: Posterior) -> Facts:
        """Those of this process."""
        kernels = tuple(kernel_of(posterior.network) for posterior in posteriors)
        models = tuple(posterior.model.sha256 for posterior in posteriors)
        return cls(versions("torch", "numpy"), kernels, models)

    def refuse_others(self, found: Facts) -> None:
        """Stop where a worker computes with something else than these."""
        for name, version in self.versions.items():
            if found.versions.get(name) != version:
                met = f"{name} {found.versions.get(name)}, and {version} where the run began"
                raise UsageError(f"it has {met}. Install the same version on every machine.")
        if found.models != self.models:
            raise ModelError("it has another model file of the same name. Copy the model again.")
        for theirs, ours in zip(found.kernels, self.kernels, strict=True):
            if theirs != ours:
                met = f"it computes with {theirs}, and {ours} where the run began"
                raise UsageError(f"{met}. Set PDENET_KERNEL=off for all, or use machines of one kind.")


def whereabouts() -> dict[str, Any]:
    """Which process this is, and its threads, for the report."""
    host = socket.gethostname()
    return {"host": host, "process": os.getpid(), "threads": torch.get_num_threads(), "cpu": platform.machine()}


class Order(Protocol[Taken, Given]):
    """Work that any process can open and do."""

    @property
    def name(self) -> str:
        """What the work is about, for messages."""

    @property
    def facts(self) -> Facts:
        """What every process must compute with."""

    def open(self) -> Callable[[Taken], Given]:
        """What does one item; models and scenes are opened here, once."""


class Engine(Protocol):
    """Processes that do orders."""

    count: int  # how many
    crowd: int  # the most of them on one machine, which share its memory
    shared: bool  # whether all of them are on this machine
    here: bool  # whether they work in this folder, as processes of this one
    tally: dict[str, dict[str, Any]]  # of each: where it is, items done, seconds at work

    def spread(
        self, order: Order[Item, Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result | Exception]]:
        """Each item with its result, or with the error that it led to, as they come."""


class Planned:
    """Processes of this machine that are not started, as only a forecast is wanted."""

    shared = here = True

    def __init__(self, count: int) -> None:
        self.count = self.crowd = count
        self.tally: dict[str, dict[str, Any]] = {}

    def spread(
        self, order: Order[Item, Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result | Exception]]:
        """There is nobody to do it."""
        raise NotImplementedError


def in_order(
    engine: Engine | None, order: Order[Item, Result], items: Sequence[Item], here: Callable[[Item], Result]
) -> Iterator[tuple[Item, Result | PdenetError]]:
    """Every item with its result or its error, in the order of `items`: done by an engine, else by `here`.

    The error of a single item is raised.
    """
    if engine is None:
        yield from each(items, here)
        return
    numbers = {item: number for number, item in enumerate(items)}
    early: dict[int, Result | PdenetError] = {}
    number = 0
    for item, result in engine.spread(order, items):
        if isinstance(result, Exception) and len(items) == 1:
            raise result
        early[numbers[item]] = as_pdenet_error(result) if isinstance(result, Exception) else result
        while number in early:
            yield items[number], early.pop(number)
            number += 1
