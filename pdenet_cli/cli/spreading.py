"""Where a command works: in its own process, in several of this machine, on a cluster, or a part of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pdenet_cli.errors import UsageError

if TYPE_CHECKING:
    from pdenet_cli.tools.orders import Engine
    from pdenet_cli.tools.truths import TruthSettings


def spread_memory(settings: TruthSettings, workers: int | None) -> TruthSettings:
    """The settings with the memory of each of several processes of this machine."""
    from pdenet_cli.system import MEMORY_SHARE, free_memory

    if workers is None or workers < 2:
        return settings
    return replace(settings, memory=(settings.memory or int(free_memory() * MEMORY_SHARE)) // workers)


@dataclass(frozen=True)
class Spreading:
    """The options that say which processes do the work."""

    workers: int | None = None
    cluster: str | None = None
    threads: int | None = None

    @contextmanager
    def engine(self, *, only_planned: bool = False) -> Iterator[Engine | None]:
        """The processes, until the block ends; None: this one. `only_planned`: none of this machine is started."""
        if self.workers is not None and self.cluster is not None:
            raise UsageError(
                "--workers starts processes here, --cluster uses those of a scheduler; give one of them."
            )
        if self.cluster is not None:
            from pdenet_cli.tools.cluster import workers_at

            with workers_at(self.cluster) as engine:
                yield engine
        elif self.workers is None:
            yield None
        elif only_planned:
            from pdenet_cli.tools.orders import Planned

            yield Planned(self.workers)
        else:
            from pdenet_cli.tools.cluster import workers_here

            with workers_here(self.workers, self.threads) as engine:
                yield engine
