"""A model and its Monte-Carlo draws: the same N sub-networks for every tile of every scene."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.models.model import Model
from pdenet_cli.sampling.mixtures import MIXTURES, MixedSamples, Mixtures, detail_margin
from pdenet_cli.sampling.tiling import Plan, plan_tiles
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.window import Window
from pdenet_cli.system import tune_process, usable_memory
from pdenet_cli.uncertainty.calibration import ENSEMBLES, Calibration
from pdenet_cli.uncertainty.evidence import Map

SYMMETRIES = 8  # of a square: four quarter turns, each also mirrored


class Posterior:
    """A model and its N draws, made once from a seed: the same N sub-networks for every tile of every scene.

    With the ensemble "flips", sample n moreover sees the scene under symmetry n mod 8 of a square, undone
    afterwards: the same number of passes, and even a deterministic network gives up to 8 different samples. No
    sample is computed twice: deterministic networks give fewer than N if symmetries and members of an ensemble
    repeat before.

    Of scenes with many bands, the network sees `most_mixtures` mixtures of bands, 0: every band (see mixtures.py).
    Without `ensemble` or `mixtures`, a calibrated model is used as it was calibrated; any other with "masks" and
    the usual number of mixtures, or none where the network does not scale with brightness.
    """

    mixtures: Mixtures | None = None  # those of the scene, see `for_scene`

    def __init__(
        self,
        model: Model,
        samples: int,
        seed: int = 0,
        ensemble: str | None = None,
        mixtures: int | None = None,
    ) -> None:
        if ensemble not in (*ENSEMBLES, None):
            raise UsageError(f"`ensemble` {ensemble} is unknown; choose {' or '.join(ENSEMBLES)}.")
        if samples < 1:
            raise UsageError(f"`samples` {samples}: use at least 1.")
        if not isinstance(model, Model):
            raise UsageError(f"Expected a Model, not a {type(model).__name__}. Pass load_model(NAME).")
        tune_process()
        self.model, self.seed, self.asked = model, int(seed), samples
        calibration = Calibration.of(model.spec)
        self.ensemble = ensemble or (calibration.ensemble if calibration is not None else "masks")
        self.network = model.network.eval()
        if mixtures is not None and (mixtures < 0 or (mixtures and not self.network.mixable)):
            met = "use 0, or a number of mixtures" if mixtures < 0 else f"{model.name} must see every band; use 0"
            raise UsageError(f"`mixtures` {mixtures}: {met}.")
        usual = MIXTURES if self.network.mixable else 0
        calibrated = usual if calibration is None else calibration.mixtures
        self.most_mixtures = calibrated if mixtures is None else mixtures
        self.device = self.network.device
        symmetries = SYMMETRIES if self.ensemble == "flips" and not self.network.turns else 1
        different = self.network.different
        count = samples if different is None else min(samples, lcm(different, symmetries))
        self.views = min(symmetries, count)
        with torch.no_grad():
            # Made one after another on the CPU: N = 20 begins with the draws of N = 10, on any device.
            self.draw = self.network.draw(torch.Generator().manual_seed(self.seed), count).to(self.device)
        self.at_once = 1  # sub-networks computed together

    def __len__(self) -> int:
        return len(self.draw)

    @property
    def degradation(self) -> Degradation:
        """The degradation that the model was trained to undo, without its noise."""
        return replace(self.model.spec.training_degradation(), noise=0.0)

    def with_model(self, model: Model) -> Self:
        """The same draws of a model with the same network."""
        return type(self)(model, self.asked, self.seed, self.ensemble, self.most_mixtures)

    def refuse_other_bands(self, count: int) -> None:
        """Stop if the network takes another number of bands than `count`."""
        if self.network.bands not in (None, count):
            met = f"but the cube has {count} usable ones"
            raise ModelError(f"{self.model.name}: made for {self.network.bands} bands, {met}.")

    def for_scene(self, scene: Cube, bands: Sequence[int], radiometry: Radiometry) -> Self:
        """The same posterior with the mixtures of some bands of a scene, if it has so many of them."""
        own = copy.copy(self)
        own.mixtures = Mixtures.of(scene, bands, radiometry, self.most_mixtures)
        return own

    def samples(self, low: Map, bands: slice, crop: Window) -> NDArray[np.float32]:
        """The output of each sub-network for `low`, cut to `bands` and `crop`: (samples, bands, rows, columns)."""
        rows, columns = crop.slices
        depth = len(range(len(low))[bands])
        out = np.empty((len(self), depth, crop.rows, crop.columns), np.float32)
        with torch.inference_mode():
            batch = torch.from_numpy(low)[None].to(self.device)
            for symmetry in range(self.views):
                turned = _turned(batch, symmetry).contiguous()
                n = symmetry
                for some in self.network.in_turn(turned, self.draw[symmetry :: self.views], self.at_once):
                    cut = _turned_back(some, symmetry)[:, bands, rows, columns]  # (some, bands, H, W)
                    out[n : n + len(some) * self.views : self.views] = cut.float().cpu().numpy()
                    n += len(some) * self.views
        return out

    def seconds_for(self, plan: Plan, low: Map) -> float:
        """The time that a plan takes, from that of a part of the scene: of one span, or of all bands if mixed."""
        if self.mixtures is None:
            return self.seconds_per_voxel(low) * plan.voxels * len(self)
        mixed = self.mixtures.mixed(low)
        voxels = plan.voxels * len(mixed) / len(low)
        started = time.perf_counter()
        even = self.mixtures.even(low, mixed, slice(None), self.degradation)
        details = [torch.zeros(len(mixed), *even.shape[1:])] * len(self)
        MixedSamples(even, details, torch.from_numpy(self.mixtures.unmix)).std()
        unmixing = (time.perf_counter() - started) * plan.scene.pixels / mixed[0].size
        return float(self.seconds_per_voxel(mixed) * voxels * len(self) + unmixing)

    def seconds_per_voxel(self, low: NDArray[np.float32]) -> float:
        """The time that one sub-network takes per voxel of `low`, measured."""
        alone = Posterior(self.model, 1, self.seed, "masks")
        scale, (bands, rows, columns) = self.network.scale, low.shape
        whole = slice(0, bands), Window(0, 0, rows * scale, columns * scale)
        alone.samples(low, *whole)  # the first call warms up
        started = time.perf_counter()
        alone.samples(low, *whole)
        return (time.perf_counter() - started) / low.size

    def bytes_for(self, plan: Plan, at_once: int = 1) -> int:
        """An estimate of the memory for the largest piece of a plan, its samples and their maps."""
        fine = 4 * self.network.scale**2  # bytes of a fine map per voxel of the input
        work = self.network.bytes_per_voxel * at_once
        mapped = plan.pixels(plan.margin) * min(plan.depth, len(plan.usable)) * fine
        if self.mixtures is None:
            return plan.largest * work + mapped * (len(self) + 8)
        count, margin = len(self.mixtures), plan.margin + detail_margin(self.degradation)
        network = plan.pixels() * count * (work + 8)
        details = plan.pixels(margin) * count * fine * (len(self) + 4)
        reading = plan.largest * 48  # numbers of the file on their way to 0..1
        return max(network, reading + mapped * 14) + details

    def plan(
        self,
        scene: Window,
        usable: Sequence[int],
        halo: int | None,
        memory: int | None = None,
        tile: int | None = None,
        *,
        whole_spectra: bool = False,
        surroundings: Window | None = None,
        margin: int = 0,
    ) -> Plan:
        """How a scene is cut so that every piece fits into `memory` (default: half of what is free).

        `whole_spectra`: compute all bands of a pixel at once; `surroundings`: where margins may reach; `margin`:
        of the halo, how much samples are needed for too.
        """
        network = self.network
        # Mixtures are made of all bands at once; after that, each band is by itself.
        band_halo = None if whole_spectra else network.band_halo if self.mixtures is None else 0
        limit = memory or usable_memory(self.device)
        return plan_tiles(
            scene, network.scale, usable, halo, band_halo, limit, self.bytes_for, tile, surroundings, margin
        )

    def settle(self, plan: Plan) -> None:
        """Choose how many sub-networks a GPU computes at once: as many as fit; a CPU is fastest with one."""
        if self.device.type == "cpu":
            return
        counts = range(1, -(-len(self) // self.views) + 1)  # samples per symmetry
        self.at_once = max((n for n in counts if self.bytes_for(plan, n) <= plan.memory), default=1)


def require_posterior(posterior: object) -> None:
    """Stop if something else, such as a model, was given as a posterior."""
    if not isinstance(posterior, Posterior):
        met = f"Expected a Posterior, not a {type(posterior).__name__}"
        raise UsageError(f"{met}. Pass Posterior(model, N) for N samples.")


def _turned(image: Tensor, symmetry: int) -> Tensor:
    """(..., rows, columns) under a symmetry of a square: 0 to 3 quarter turns; 4 to 7, mirrored before."""
    mirrored = image.flip(-1) if symmetry >= 4 else image
    return mirrored.rot90(symmetry % 4, (-2, -1))


def _turned_back(image: Tensor, symmetry: int) -> Tensor:
    """The inverse of `_turned`."""
    back = image.rot90(-(symmetry % 4), (-2, -1))
    return back.flip(-1) if symmetry >= 4 else back
