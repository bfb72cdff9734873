"""The two ways in which a posterior makes samples of a scene: from every band of it, or from mixtures of bands.

A sampler is made for one scene. What it gets of a tile is a `TileInput`; what it gives are the samples of one span
of bands after the other, and what these have in common is computed once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from pdenet_cli.degradation import bicubic_up
from pdenet_cli.sampling.mixtures import MixedSamples, Mixtures, detail_margin, detail_of, even_margin
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.tiling import Plan, Span, Tile
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Map, Samples


@dataclass(frozen=True)
class TileInput:
    """What a sampler gets of a tile."""

    tile: Tile
    wide: Window  # the window that samples are needed in
    spans: tuple[Span, ...]  # all of its plan
    read: Callable[[range], Map]  # bands, as a span counts them, of the padded tile: 0..1, holes filled
    at_once: int = 1  # sub-networks that are computed together


class TileSampler(Protocol):
    """A sampler at work on one tile."""

    def samples(self, span: Span, unit: Map) -> Samples:
        """The samples of the core of a span in the window that they are needed in; `unit` is its padded run."""


class Sampler(Protocol):
    """How a posterior makes samples of one scene."""

    @property
    def halo(self) -> int | None:
        """Input pixels on each side that a sample depends on; None: the whole scene."""

    @property
    def band_halo(self) -> int | None:
        """Neighbouring bands on each side that must be read with a run of bands; None: all bands."""

    @property
    def mixtures(self) -> int:
        """How many mixtures the network sees; 0: it sees every band."""

    @property
    def of_scene(self) -> Mixtures | None:
        """These mixtures."""

    def bytes_for(self, plan: Plan, at_once: int = 1) -> int:
        """An estimate of the memory for the largest piece of a plan, its samples and their maps."""

    def seconds_for(self, plan: Plan, read: Callable[[range], Map]) -> float:
        """The time that a plan takes, from that of a part of the scene, of which `read` gives bands."""

    def of_tile(self, tile: TileInput) -> TileSampler:
        """The sampler at work on a tile."""


def choose_sampler(posterior: Posterior, cube: Cube, reading: Reading) -> Sampler:
    """Mixtures of bands if the scene has so many that these are of use, else every band."""
    return sampler_of(posterior, Mixtures.of(cube, reading.bands, reading.radiometry, posterior.most_mixtures))


def sampler_of(posterior: Posterior, of_scene: Mixtures | None) -> Sampler:
    """The sampler for a scene whose bands are seen as these mixtures; None: each by itself."""
    return EveryBand(posterior) if of_scene is None else MixedBands(posterior, of_scene)


@dataclass(frozen=True)
class EveryBand:
    """The network sees every band of the scene."""

    posterior: Posterior
    mixtures: int = 0
    of_scene: None = None

    @property
    def halo(self) -> int | None:
        return self.posterior.network.halo

    @property
    def band_halo(self) -> int | None:
        return self.posterior.network.band_halo

    def bytes_for(self, plan: Plan, at_once: int = 1) -> int:
        posterior = self.posterior
        return plan.largest * posterior.network.bytes_per_voxel * at_once + _mapped(posterior, plan) * (
            len(posterior) + 8
        )

    def seconds_for(self, plan: Plan, read: Callable[[range], Map]) -> float:
        unit = read(plan.spans[0].padded)
        return self.posterior.seconds_per_voxel(unit) * plan.voxels * len(self.posterior)

    def of_tile(self, tile: TileInput) -> TileSampler:
        return _EveryBandOfTile(self.posterior, tile)


@dataclass(frozen=True)
class _EveryBandOfTile:
    posterior: Posterior
    input: TileInput

    def samples(self, span: Span, unit: Map) -> NDArray[np.float32]:
        tile = self.input.tile
        crop = self.input.wide.relative_to(tile.padded).scaled(tile.scale)
        return self.posterior.samples(unit, span.crop, crop, self.input.at_once)


@dataclass(frozen=True)
class MixedBands:
    """The network sees mixtures of the scene's bands; each band gets its share of what it finds."""

    posterior: Posterior
    of_scene: Mixtures

    @property
    def mixtures(self) -> int:
        return len(self.of_scene)

    @property
    def halo(self) -> int | None:
        halo, degradation = self.posterior.network.halo, self.posterior.degradation
        return None if halo is None else max(halo + detail_margin(degradation), even_margin(degradation))

    @property
    def band_halo(self) -> int:
        return 0  # mixtures are made of all bands at once; after that, each band is by itself

    def bytes_for(self, plan: Plan, at_once: int = 1) -> int:
        posterior, count = self.posterior, self.mixtures
        margin = plan.margin + detail_margin(posterior.degradation)
        network = plan.pixels() * count * (posterior.network.bytes_per_voxel * at_once + 8)
        details = plan.pixels(margin) * count * _fine_bytes(posterior) * (len(posterior) + 4)
        reading = plan.largest * 48  # numbers of the file on their way to 0..1
        return max(network, reading + _mapped(posterior, plan) * 14) + details

    def seconds_for(self, plan: Plan, read: Callable[[range], Map]) -> float:
        posterior, mixtures = self.posterior, self.of_scene
        unit = read(range(len(plan.usable)))
        mixed = mixtures.mixed(unit)
        voxels = plan.voxels * len(mixed) / len(unit)
        started = time.perf_counter()
        even = mixtures.even(unit, mixed, slice(None), posterior.degradation)
        details = [torch.zeros(len(mixed), *even.shape[1:])] * len(posterior)
        MixedSamples(even, details, torch.from_numpy(mixtures.unmix)).std()
        unmixing = (time.perf_counter() - started) * plan.scene.pixels / mixed[0].size
        return float(posterior.seconds_per_voxel(mixed) * voxels * len(posterior) + unmixing)

    def of_tile(self, tile: TileInput) -> TileSampler:
        return _MixedBandsOfTile(self.posterior, self.of_scene, tile)


@dataclass(frozen=True)
class _MixedBandsOfTile:
    posterior: Posterior
    mixtures: Mixtures
    input: TileInput

    def samples(self, span: Span, unit: Map) -> MixedSamples:
        tile, wide, degradation = self.input.tile, self.input.wide, self.posterior.degradation
        bands = slice(span.core.start, span.core.stop)
        near = wide.grown(even_margin(degradation), within=tile.padded)
        crop = near.relative_to(tile.padded).slices
        even = self.mixtures.even(unit[span.crop][:, *crop], self._mixed[:, *crop], bands, degradation)
        inner = wide.relative_to(near).scaled(tile.scale).slices
        unmix = torch.from_numpy(self.mixtures.unmix[bands])
        return MixedSamples(even[:, *inner].contiguous(), self._details, unmix)

    @cached_property
    def _mixed(self) -> NDArray[np.float32]:
        """The mixtures of the padded tile, (mixtures, rows, columns)."""
        padded = self.input.tile.padded
        mixed = np.zeros((len(self.mixtures), padded.rows, padded.columns), np.float32)
        for span in self.input.spans:
            mixed += self.mixtures.mixed(self.input.read(span.core), slice(span.core.start, span.core.stop))
        return mixed

    @cached_property
    def _details(self) -> list[torch.Tensor]:
        """What each sample adds to the mixtures in the window `wide`, (mixtures, rows, columns) each."""
        tile, wide, degradation = self.input.tile, self.input.wide, self.posterior.degradation
        around = wide.grown(detail_margin(degradation), within=tile.padded)
        crop = around.relative_to(tile.padded).scaled(tile.scale)
        enlarged = bicubic_up(torch.from_numpy(self._mixed), tile.scale)[:, *crop.slices]
        inner = wide.relative_to(around).scaled(tile.scale).slices
        samples = self.posterior.samples(self._mixed, slice(None), crop, self.input.at_once)
        return [detail_of(sample, enlarged, degradation)[:, *inner] for sample in samples]


class Unsampled(EveryBand):
    """A sampler without a network, whose samples are noise: for the time that all else takes."""

    def of_tile(self, tile: TileInput) -> TileSampler:
        return _Noise(len(self.posterior), tile)


@dataclass(frozen=True)
class _Noise:
    count: int
    input: TileInput

    def samples(self, span: Span, unit: Map) -> NDArray[np.float32]:
        fine = self.input.wide.scaled(self.input.tile.scale)
        shape = (self.count, len(span.core), fine.rows, fine.columns)
        return np.random.default_rng(0).random(shape, np.float32)


def _fine_bytes(posterior: Posterior) -> int:
    """Bytes of a map on the fine grid per voxel of the input."""
    return 4 * posterior.network.scale**2


def _mapped(posterior: Posterior, plan: Plan) -> int:
    """Bytes of one map of the largest piece of a plan."""
    return plan.pixels(plan.margin) * min(plan.depth, len(plan.usable)) * _fine_bytes(posterior)
