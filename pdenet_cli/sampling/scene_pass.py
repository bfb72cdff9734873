"""A scene made ready for a posterior: everything that is found out, chosen or refused before the first tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pdenet_cli.errors import UsageError
from pdenet_cli.models.error_net import MARGIN, ErrorNet
from pdenet_cli.sampling.mixtures import Mixtures
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.samplers import Sampler, choose_sampler, sampler_of
from pdenet_cli.sampling.tiling import Plan, plan_tiles
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import FILL_DEPTH
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window
from pdenet_cli.system import usable_memory
from pdenet_cli.uncertainty.evidence import Map
from pdenet_cli.uncertainty.summaries import Summary

ROUGHNESS_HALO = 3  # roughness depends on pixels up to two away, and enlarging it on one more


@dataclass(frozen=True)
class Limits:
    """What a user may ask of the tiles of a pass; None: what is best."""

    memory: int | None = None  # bytes for one piece; None: half of what is free
    tile: int | None = None  # longest side, in input pixels
    halo: int | None = None  # margin of the tiles, in input pixels; None: so many that tiles are exact
    step: int = 1  # tiles begin at multiples of so many input pixels
    processes: int = 1  # that work at once


@dataclass(frozen=True)
class ScenePass:
    """One way of a posterior over a scene, prepared: what is read, seen, summed up and in which tiles."""

    cube: Cube
    posterior: Posterior
    reading: Reading
    sampler: Sampler
    summaries: tuple[Summary, ...]  # the maps that are made
    plan: Plan

    @classmethod
    def prepare(
        cls,
        cube: Cube,
        posterior: Posterior,
        summaries: Sequence[Summary],
        reading: Reading | None = None,
        limits: Limits = Limits(),
        *,
        part: Window | None = None,
        whole_spectra: bool = False,
    ) -> Self:
        """The pass of `posterior` over a cube that makes these summaries.

        `reading` is how the cube is read, None for the usual one; `part` is to be computed, None for all, and the
        rest of the scene is seen beside it; `whole_spectra`: all bands of a pixel are computed at once.
        """
        require_posterior(posterior)
        network, summaries = posterior.network, tuple(summaries)
        if limits.halo is not None and network.halo is None:
            reason = f"{posterior.model.name} looks at the whole scene at once"
            raise UsageError(
                f"`halo` {limits.halo}: {reason}; in pieces its results would be wrong. Leave out `halo`."
            )
        if reading is None:
            reading = Reading.of(cube, network.bands)
        posterior.refuse_other_bands(len(reading.bands))
        sampler = choose_sampler(posterior, cube, reading)
        margin = _margin(posterior, summaries)
        halo = _exact_halo(sampler, margin, holes=reading.holes) if limits.halo is None else limits.halo
        plan = plan_tiles(
            part or cube.meta.window,
            network.scale,
            reading.bands,
            halo,
            None if whole_spectra else sampler.band_halo,
            limits.memory or usable_memory(posterior.device),
            sampler.bytes_for,
            limits.tile,
            surroundings=cube.meta.window,
            margin=margin,
            step=limits.step,
            processes=limits.processes,
        )
        return cls(cube, posterior, reading, sampler, summaries, plan)

    def with_tiling(self, tiling: Mapping[str, int]) -> Self:
        """The same pass cut as another plan of it was, see `Plan.tiling`."""
        return replace(
            self, plan=replace(self.plan, tile=tiling["tile"], depth=tiling["depth"], step=tiling.get("step", 1))
        )

    def bare(self) -> BarePass:
        """What another process needs of this pass, besides the cube and the posterior."""
        return BarePass(self.reading, self.sampler.of_scene, self.plan)

    @property
    def fine(self) -> CubeMeta:
        """The metadata of the scene on the fine grid."""
        return replace(self.cube.meta.upscaled(self.posterior.network.scale), notes=())

    @property
    def error_net(self) -> ErrorNet | None:
        """The network that expects errors, if there is one and a map needs it."""
        return _error_net(self.posterior, self.summaries)

    @property
    def most_at_once(self) -> int:
        """How many sub-networks are computed together: on a GPU as many as fit; a CPU is fastest with one."""
        posterior, plan = self.posterior, self.plan
        if posterior.device.type == "cpu":
            return 1
        counts = range(1, -(-len(posterior) // posterior.views) + 1)  # samples per symmetry
        return max((n for n in counts if self.sampler.bytes_for(plan, n) <= plan.memory), default=1)

    def seconds(self, side: int) -> float:
        """The time that the network takes, from that of one draw on a part of a tile, `side` pixels wide."""
        tile = self.plan.tiles[len(self.plan.tiles) // 2].padded
        part = Window(tile.row, tile.column, min(tile.rows, side), min(tile.columns, side))

        def read(run: range) -> Map:
            bands = [self.plan.usable[i] for i in run]
            unit, _ = self.reading.radiometry.prepare(self.cube.read(part, bands), bands)
            return unit

        return self.sampler.seconds_for(self.plan, read)


@dataclass(frozen=True)
class BarePass:
    """What was found out about a scene and planned for it, small enough to be sent to other processes."""

    reading: Reading
    mixtures: Mixtures | None
    plan: Plan

    def complete(self, cube: Cube, posterior: Posterior, summaries: Sequence[Summary]) -> ScenePass:
        """The pass where the same cube was opened and the same posterior was made."""
        sampler = sampler_of(posterior, self.mixtures)
        return ScenePass(cube, posterior, self.reading, sampler, tuple(summaries), self.plan)


def _exact_halo(sampler: Sampler, margin: int, *, holes: bool) -> int | None:
    """The margin, in input pixels, that makes tiles exact: what samples depend on, and more for maps that look at
    the samples around a pixel and for holes, which are filled from their surroundings.
    """
    halo = sampler.halo
    return None if halo is None else max(halo, ROUGHNESS_HALO) + margin + (FILL_DEPTH if holes else 0)


def _margin(posterior: Posterior, summaries: Sequence[Summary]) -> int:
    """How many input pixels around a tile samples are needed for: to degrade their mean, to expect errors."""
    reach = posterior.degradation.reach if any(summary.degrades for summary in summaries) else 0
    return max(reach, MARGIN) if _error_net(posterior, summaries) is not None else reach


def _error_net(posterior: Posterior, summaries: Sequence[Summary]) -> ErrorNet | None:
    return posterior.model.errors if any(summary.foresees for summary in summaries) else None
