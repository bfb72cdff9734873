"""What is known about a tile of a scene: its samples, from every band or from mixtures of bands, and its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.cube import Cube, Window
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.holes import FILL_DEPTH, filled_from_edges
from pdenet_cli.mixtures import MixedSamples, Mixtures, detail_margin, detail_of, even_margin
from pdenet_cli.posterior import Posterior
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.summaries import Evidence, Samples, Summary, cropped, mean, repeated, roughness
from pdenet_cli.tiling import Plan, Span, Tile

ROUGHNESS_HALO = 3  # roughness depends on pixels up to two away, and enlarging it on one more


def halo_for(posterior: Posterior, summaries: Sequence[Summary], *, holes: bool) -> int | None:
    """The margin, in input pixels, that makes tiles exact: the network's receptive field, and more for maps that
    degrade the mean and for holes, which are filled from their surroundings.
    """
    halo = posterior.network.halo
    if halo is None:
        return None
    margin = degradation_margin(posterior, summaries) or 0
    if posterior.mixtures is not None:
        degradation = posterior.degradation
        halo = max(halo + detail_margin(degradation), even_margin(degradation))
    return max(halo, ROUGHNESS_HALO) + margin + (FILL_DEPTH if holes else 0)


def degradation_margin(posterior: Posterior, summaries: Sequence[Summary]) -> int | None:
    """The margin in input pixels that is needed to degrade the mean; None if no map does."""
    return posterior.degradation.reach if any(summary.degrades for summary in summaries) else None


def gather(
    source: Cube,
    posterior: Posterior,
    tile: Tile,
    span: Span,
    radiometry: Radiometry,
    usable: Sequence[int],
    margin: int | None = None,
    mixed: MixedTile | None = None,
) -> tuple[Evidence, NDArray[np.bool_]]:
    """What is known about some bands of a tile, and where on the fine grid there is data.

    `margin` is None if no map needs what the degraded mean leaves unexplained. `mixed` is the tile as
    the network sees it if the posterior has mixtures.
    """
    bands = [usable[i] for i in span.padded]  # as the file counts them
    unit, there = _read(source, tile.padded, bands, radiometry)
    rows, columns = tile.core.relative_to(tile.padded).slices
    fine_there = repeated(there[span.crop, rows, columns], tile.scale)
    low = unit[span.crop, rows, columns]
    wide = tile.core.grown(margin or 0, within=tile.padded)
    inner = tile.core.relative_to(wide)
    samples: Samples
    if not fine_there.any():  # no data: spare the network
        samples = np.zeros((len(posterior), *fine_there.shape), np.float32)
        unexplained = None if margin is None else np.zeros_like(low)
    else:
        samples = _samples(unit, posterior, tile, span, wide, mixed)
        unexplained = None
        if margin is not None:
            degraded = posterior.degradation(torch.from_numpy(mean(samples))).numpy()
            unexplained = low - degraded[:, *inner.slices]
            samples = cropped(samples, *inner.scaled(tile.scale).slices)
    near = tile.core.grown(1, within=tile.padded)  # to enlarge a pixel takes its neighbours
    evidence = Evidence(
        samples,
        low,
        rough=roughness(unit[span.crop])[:, *near.relative_to(tile.padded).slices],
        scale=tile.scale,
        unexplained=unexplained,
        gain=radiometry.units(bands[span.crop]),
        measured=radiometry.measured(bands[span.crop]),
        inner=tile.core.relative_to(near).scaled(tile.scale).slices,
    )
    return evidence, fine_there


def _samples(
    unit: NDArray[np.float32], posterior: Posterior, tile: Tile, span: Span, wide: Window, mixed: MixedTile | None
) -> Samples:
    """The samples of a span in the window `wide`; `unit` is the padded tile."""
    if mixed is None:
        assert posterior.mixtures is None
        return posterior.samples(unit, span.crop, wide.relative_to(tile.padded).scaled(tile.scale))
    return mixed.samples(unit[span.crop], span.core, wide)


def _read(
    source: Cube, window: Window, bands: Sequence[int], radiometry: Radiometry
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Some bands of a window as the network sees them, holes filled, and where there are no holes."""
    unit, there = radiometry.prepare(source.read(window, bands), bands)
    return filled_from_edges(unit, there, FILL_DEPTH), there


@dataclass(frozen=True)
class MixedTile:
    """A tile as mixtures of all its bands: the network sees it once for all spans."""

    source: Cube
    posterior: Posterior
    tile: Tile
    plan: Plan
    radiometry: Radiometry
    margin: int  # as of `gather`

    @cached_property
    def low(self) -> NDArray[np.float32]:
        """The mixtures of the padded tile, (mixtures, rows, columns)."""
        mixtures, window = self._mixtures, self.tile.padded
        low = np.zeros((len(mixtures), window.rows, window.columns), np.float32)
        for span in self.plan.spans:
            bands = [self.plan.usable[i] for i in span.core]
            unit, _ = _read(self.source, window, bands, self.radiometry)
            low += mixtures.mixed(unit, slice(span.core.start, span.core.stop))
        return low

    @cached_property
    def details(self) -> list[torch.Tensor]:
        """What each sample adds to the mixtures, (mixtures, rows, columns) each, around the core."""
        posterior, padded, scale = self.posterior, self.tile.padded, self.tile.scale
        degradation = posterior.degradation
        wide = self.tile.core.grown(self.margin, within=padded)
        around = wide.grown(detail_margin(degradation), within=padded)
        own = around.relative_to(padded).scaled(scale)
        enlarged = bicubic_up(torch.from_numpy(self.low), scale)[:, *own.slices]
        inner = wide.relative_to(around).scaled(scale).slices
        samples = posterior.samples(self.low, slice(None), own)
        return [detail_of(sample, enlarged, degradation)[:, *inner] for sample in samples]

    def samples(self, unit: NDArray[np.float32], core: range, wide: Window) -> MixedSamples:
        """The samples of the bands `core`, whose padded tile is `unit`, in the window `wide`."""
        padded, degradation, bands = self.tile.padded, self.posterior.degradation, slice(core.start, core.stop)
        near = wide.grown(even_margin(degradation), within=padded)
        own = (slice(None), *near.relative_to(padded).slices)
        even = self._mixtures.even(unit[own], self.low[own], bands, degradation)
        inner = wide.relative_to(near).scaled(self.tile.scale).slices
        unmix = torch.from_numpy(self._mixtures.unmix[bands])
        return MixedSamples(even[:, *inner].contiguous(), self.details, unmix)

    @property
    def _mixtures(self) -> Mixtures:
        assert self.posterior.mixtures is not None
        return self.posterior.mixtures
