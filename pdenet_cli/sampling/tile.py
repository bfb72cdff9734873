"""What is known about a tile of a scene: its samples, from every band or from mixtures of bands, and its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.degradation import bicubic_up
from pdenet_cli.models.error_net import MARGIN, ErrorNet
from pdenet_cli.sampling.mixtures import MixedSamples, detail_margin, detail_of, even_margin
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.tiling import Plan, Span, Tile
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import FILL_DEPTH
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.reading import read_unit
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Evidence, Map, Samples, repeated, roughness
from pdenet_cli.uncertainty.spread import guess
from pdenet_cli.uncertainty.summaries import Summary

ROUGHNESS_HALO = 3  # roughness depends on pixels up to two away, and enlarging it on one more


def halo_for(posterior: Posterior, summaries: Sequence[Summary], *, holes: bool) -> int | None:
    """The margin, in input pixels, that makes tiles exact: the network's receptive field, and more for maps that
    look at the samples around a pixel and for holes, which are filled from their surroundings.
    """
    halo = posterior.network.halo
    if halo is None:
        return None
    margin = margin_for(posterior, summaries)
    if posterior.mixtures is not None:
        degradation = posterior.degradation
        halo = max(halo + detail_margin(degradation), even_margin(degradation))
    return max(halo, ROUGHNESS_HALO) + margin + (FILL_DEPTH if holes else 0)


def margin_for(posterior: Posterior, summaries: Sequence[Summary]) -> int:
    """How many input pixels around a tile samples are needed for: to degrade their mean, to expect errors."""
    reach = posterior.degradation.reach if any(summary.degrades for summary in summaries) else 0
    return max(reach, MARGIN) if _error_net(posterior, summaries) is not None else reach


def _error_net(posterior: Posterior, summaries: Sequence[Summary]) -> ErrorNet | None:
    """The network that expects errors, if there is one and a map needs it."""
    return posterior.model.errors if any(summary.foresees for summary in summaries) else None


@dataclass(frozen=True)
class ObservedTile:
    """A tile of a scene as a posterior sees it; what its spans of bands have in common is computed once."""

    source: Cube
    posterior: Posterior
    plan: Plan
    radiometry: Radiometry
    tile: Tile
    summaries: Sequence[Summary] = ()  # the maps that are made of it

    def evidence(self, span: Span) -> tuple[Evidence, NDArray[np.bool_]]:
        """What is known about some bands of the tile, and where on the fine grid there is data."""
        tile, wide = self.tile, self._wide
        bands = [self.plan.usable[i] for i in span.padded]  # as the file counts them
        padded, there = read_unit(self.source, tile.padded, bands, self.radiometry)
        fine_there = repeated(there[span.crop, *tile.core.relative_to(tile.padded).slices], tile.scale)
        known = bool(fine_there.any())
        unit = padded[span.crop]
        near = wide.grown(1, within=tile.padded)  # to enlarge a pixel takes its neighbours
        around = Evidence(
            self._samples(padded, span) if known else self._no_samples(len(unit)),
            low=unit[:, *wide.relative_to(tile.padded).slices],
            low_roughness=roughness(unit)[:, *near.relative_to(tile.padded).slices],
            scale=tile.scale,
            gain=self.radiometry.units(bands[span.crop]),
            measured=self.radiometry.measured(bands[span.crop]),
            inside=wide.relative_to(near),
        )
        # Without data, both are anything: it is not shown. But intervals divide by what is expected.
        unexplained = self._unexplained(around) if known else np.zeros_like(around.low)
        expected = self._expected(around) if known else np.ones_like(around.roughness)
        return around.cropped(tile.core.relative_to(wide), unexplained, expected), fine_there

    def _unexplained(self, evidence: Evidence) -> Map | None:
        """The input minus the degraded mean; None if no map needs it."""
        if not any(summary.degrades for summary in self.summaries):
            return None
        degraded: Map = self.posterior.degradation(torch.from_numpy(evidence.mean)).numpy()
        return evidence.low - degraded

    def _expected(self, evidence: Evidence) -> Map | None:
        """The error to expect; None if no map needs it, or if the model cannot tell."""
        errors = _error_net(self.posterior, self.summaries)
        if errors is None:
            return None
        first = guess(evidence.std, evidence.roughness)
        expected: Map = errors.expected(evidence.scale, evidence.low, evidence.mean, evidence.std, first)
        return expected

    @property
    def _wide(self) -> Window:
        """The window that samples are needed in."""
        return self.tile.core.grown(margin_for(self.posterior, self.summaries), within=self.tile.padded)

    def _no_samples(self, bands: int) -> NDArray[np.float32]:
        """Samples of zeros where there is no data: the network is spared."""
        fine = self._wide.scaled(self.tile.scale)
        return np.zeros((len(self.posterior), bands, fine.rows, fine.columns), np.float32)

    def _samples(self, unit: NDArray[np.float32], span: Span) -> Samples:
        """The samples of a span in the window `_wide`; `unit` is the padded tile."""
        posterior, padded, scale = self.posterior, self.tile.padded, self.tile.scale
        mixtures = posterior.mixtures
        if mixtures is None:
            return posterior.samples(unit, span.crop, self._wide.relative_to(padded).scaled(scale))
        bands = slice(span.core.start, span.core.stop)
        near = self._wide.grown(even_margin(posterior.degradation), within=padded)
        own = near.relative_to(padded).slices
        even = mixtures.even(unit[span.crop][:, *own], self._mixed[:, *own], bands, posterior.degradation)
        inner = self._wide.relative_to(near).scaled(scale).slices
        return MixedSamples(even[:, *inner].contiguous(), self._details, torch.from_numpy(mixtures.unmix[bands]))

    @cached_property
    def _mixed(self) -> NDArray[np.float32]:
        """The mixtures of the padded tile, (mixtures, rows, columns)."""
        mixtures, window = self.posterior.mixtures, self.tile.padded
        assert mixtures is not None
        mixed = np.zeros((len(mixtures), window.rows, window.columns), np.float32)
        for span in self.plan.spans:
            bands = [self.plan.usable[i] for i in span.core]
            unit, _ = read_unit(self.source, window, bands, self.radiometry)
            mixed += mixtures.mixed(unit, slice(span.core.start, span.core.stop))
        return mixed

    @cached_property
    def _details(self) -> list[torch.Tensor]:
        """What each sample adds to the mixtures in the window `_wide`, (mixtures, rows, columns) each."""
        posterior, padded, scale = self.posterior, self.tile.padded, self.tile.scale
        degradation = posterior.degradation
        around = self._wide.grown(detail_margin(degradation), within=padded)
        own = around.relative_to(padded).scaled(scale)
        enlarged = bicubic_up(torch.from_numpy(self._mixed), scale)[:, *own.slices]
        inner = self._wide.relative_to(around).scaled(scale).slices
        samples = posterior.samples(self._mixed, slice(None), own)
        return [detail_of(sample, enlarged, degradation)[:, *inner] for sample in samples]
