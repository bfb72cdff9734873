"""What is known about a tile of a scene: its samples, its input, and what follows from the two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.errors import ModelError
from pdenet_cli.sampling.samplers import TileInput, TileSampler
from pdenet_cli.sampling.scene_pass import ScenePass
from pdenet_cli.sampling.tiling import Span, Tile
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Evidence, Map, Samples, repeated, roughness
from pdenet_cli.uncertainty.spread import guess


@dataclass(frozen=True)
class ObservedTile:
    """A tile of a scene as a posterior sees it; what its spans of bands have in common is computed once."""

    scene: ScenePass
    tile: Tile
    at_once: int = 1  # sub-networks that are computed together

    def evidence(self, span: Span) -> tuple[Evidence, NDArray[np.bool_]]:
        """What is known about some bands of the tile, and where on the fine grid there is data."""
        tile, wide, radiometry = self.tile, self._wide, self.scene.reading.radiometry
        padded, valid_mask = self._read(span.padded)
        fine_mask = repeated(valid_mask[span.crop, *tile.core.relative_to(tile.padded).slices], tile.scale)
        any_data = bool(fine_mask.any())
        unit, bands = padded[span.crop], self._bands(span.core)
        near = wide.grown(1, within=tile.padded)  # to enlarge a pixel takes its neighbours
        around = Evidence(
            self._samples(span, padded) if any_data else self._no_samples(len(unit)),
            low=unit[:, *wide.relative_to(tile.padded).slices],
            low_roughness=roughness(unit)[:, *near.relative_to(tile.padded).slices],
            scale=tile.scale,
            gain=radiometry.units(bands),
            measured=radiometry.measured(bands),
            inside=wide.relative_to(near),
        )
        # Without data, both are anything: it is not shown. But intervals divide by what is expected.
        unexplained = self._unexplained(around) if any_data else np.zeros_like(around.low)
        expected = self._expected(around) if any_data else np.ones_like(around.roughness)
        return around.cropped(tile.core.relative_to(wide), unexplained, expected), fine_mask

    def _bands(self, run: range) -> list[int]:
        """A run of the bands that the network sees, as the file counts them."""
        return [self.scene.plan.usable[i] for i in run]

    def _read(self, run: range) -> tuple[Map, NDArray[np.bool_]]:
        """A run of bands of the padded tile, 0..1 with holes filled, and where there are no holes."""
        return self.scene.reading.unit(self.scene.cube, self.tile.padded, self._bands(run))

    def _unexplained(self, evidence: Evidence) -> Map | None:
        """The input minus the degraded mean; None if no map needs it."""
        if not any(summary.degrades for summary in self.scene.summaries):
            return None
        degraded: Map = self.scene.posterior.degradation(torch.from_numpy(evidence.mean)).numpy()
        return evidence.low - degraded

    def _expected(self, evidence: Evidence) -> Map | None:
        """The error to expect; None if no map needs it, or if the model cannot tell."""
        errors = self.scene.error_net
        if errors is None:
            return None
        first = guess(evidence.std, evidence.roughness)
        expected: Map = errors.expected(evidence.scale, evidence.low, evidence.mean, evidence.std, first)
        return expected

    @property
    def _wide(self) -> Window:
        """The window that samples are needed in."""
        return self.tile.core.grown(self.scene.plan.margin, within=self.tile.padded)

    def _samples(self, span: Span, padded: Map) -> Samples:
        """The samples of some bands; ModelError where the network gives something else than numbers."""
        samples = self._sampler.samples(span, padded)
        total = samples.sum(dtype=np.float64) if isinstance(samples, np.ndarray) else samples.total
        if not np.isfinite(total):
            problem = f"{self.scene.posterior.model.name} gives values that are not finite"
            raise ModelError(f"{problem}: its weights are damaged or were never trained. Use another model.")
        return samples

    def _no_samples(self, bands: int) -> Samples:
        """Samples of zeros where there is no data: the network is spared."""
        fine = self._wide.scaled(self.tile.scale)
        return np.zeros((len(self.scene.posterior), bands, fine.rows, fine.columns), np.float32)

    @cached_property
    def _sampler(self) -> TileSampler:
        def read(run: range) -> Map:
            return self._read(run)[0]

        tile = TileInput(self.tile, self._wide, self.scene.plan.spans, read, self.at_once)
        return self.scene.sampler.of_tile(tile)
