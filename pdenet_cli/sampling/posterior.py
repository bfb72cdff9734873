"""A model and its Monte-Carlo draws: the same N sub-networks for every tile of every scene."""

from __future__ import annotations

import time
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
from pdenet_cli.models.networks import Draw
from pdenet_cli.reprs import html_table
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.calibration import ENSEMBLES, Calibration
from pdenet_cli.uncertainty.evidence import Map

MIXTURES = 16  # of a cube with many bands, unless asked otherwise
SYMMETRIES = 8  # of a square: four quarter turns, each also mirrored


class Posterior:
    """A model and its N draws, made once from a seed: the same N sub-networks for every tile of every scene.

    With the ensemble "flips", sample n moreover sees the scene under symmetry n mod 8 of a square, undone
    afterwards: the same number of passes, and even a deterministic network gives up to 8 different samples. No
    sample is computed twice: deterministic networks give fewer than N if symmetries and members of an ensemble
    repeat before.

    Of scenes with many bands, the network sees `most_mixtures` mixtures of bands, 0: every band (see mixtures.py).
    Without `ensemble` or `mixtures`, a calibrated model is used as it was calibrated; any other with "masks" and
    the usual number of mixtures, or none where the network learned from whole spectra or does not scale with
    brightness.

    `psf` is how the scene's own pixels came about, for networks that undo any point spread; None: as in training.
    """

    def __init__(
        self,
        model: Model,
        samples: int,
        seed: int = 0,
        ensemble: str | None = None,
        mixtures: int | None = None,
        psf: Degradation | None = None,
    ) -> None:
        if ensemble not in (*ENSEMBLES, None):
            raise UsageError(f"`ensemble` {ensemble} is unknown; choose {' or '.join(ENSEMBLES)}.")
        if samples < 1:
            raise UsageError(f"`samples` {samples}: use at least 1.")
        if not isinstance(model, Model):
            raise UsageError(f"Expected a Model, not a {type(model).__name__}. Pass load_model(NAME).")
        self.model, self.seed, self.asked = model, int(seed), samples
        calibration = model.calibration
        self.ensemble = ensemble or (calibration.ensemble if calibration is not None else "masks")
        self.network = model.network.eval()
        self.most_mixtures = _most_mixtures(model, mixtures, calibration)
        self.device = self.network.device
        self.psf = None if psf is None else replace(psf, noise=0.0)
        self._refuse_psf()
        symmetries = SYMMETRIES if self.ensemble == "flips" and not self.network.turns else 1
        different = self.network.different
        count = samples if different is None else min(samples, lcm(different, symmetries))
        self.views = min(symmetries, count)
        with torch.no_grad():
            # Made one after another on the CPU: N = 20 begins with the draws of N = 10, on any device.
            masks = self.network.draw(torch.Generator().manual_seed(self.seed), count)
            self.draw = self._seeing_the_psf(masks).to(self.device)

    def __len__(self) -> int:
        return len(self.draw)

    def __repr__(self) -> str:
        """One line, for notebooks."""
        mixtures = f", up to {self.most_mixtures} mixtures of bands" if self.most_mixtures else ""
        return f"Posterior({self.model.name}: {len(self)} samples ({self.ensemble}), seed {self.seed}{mixtures})"

    def _repr_html_(self) -> str:
        calibration = self.model.calibration
        level = (
            ""
            if calibration is None
            else f"calibrated at {calibration.level:.0%} with {calibration.samples} samples"
        )
        return html_table(
            f"Posterior of {self.model.name}",
            {
                "scale": f"x{self.network.scale}",
                "samples": f"{len(self)} ({self.ensemble}), seed {self.seed}",
                "bands": f"up to {self.most_mixtures} mixtures of them"
                if self.most_mixtures
                else "each by itself",
                "undoes": str(self.degradation),
                "intervals": level or "none: not calibrated",
                "device": str(self.device),
            },
        )

    @property
    def degradation(self) -> Degradation:
        """The degradation that is undone, without noise: `psf`, or that of the model's training."""
        return self.psf or replace(self.model.spec.training_degradation(), noise=0.0)

    @property
    def finer_fwhm(self) -> float | None:
        """The point spread of the finer pixels that errors are expected of; None if they are not expected."""
        return None if self.model.errors is None else float(self.model.errors.finer_fwhm)

    def _refuse_psf(self) -> None:
        """Stop where the network cannot undo the point spread that it should."""
        trained = replace(self.model.spec.training_degradation(), noise=0.0)
        if self.psf not in (None, trained) and not self.network.any_psf:
            found = f"{self.model.name} undoes {trained} and no other point spread, not {self.psf}"
            raise ModelError(f"{found}. Omit `psf`, or use a model that takes any (psf=any), as sensor-x4 does.")

    def _seeing_the_psf(self, draw: Draw) -> Draw:
        """The draw as it is for inputs of this posterior's degradation."""
        seeing = self.network.draw_for(self.degradation, draw)
        assert seeing is not None
        return seeing

    def with_model(self, model: Model) -> Self:
        """The same draws of a model with the same network."""
        return type(self)(model, self.asked, self.seed, self.ensemble, self.most_mixtures, self.psf)

    def with_psf(self, psf: Degradation) -> Self:
        """The same draws for scenes with another point spread; of a network that takes no other, these."""
        if not self.network.any_psf:
            return self
        return type(self)(self.model, self.asked, self.seed, self.ensemble, self.most_mixtures, psf)

    def for_truths_of(self, finer_fwhm: float | None) -> Self:
        """The same draws, with errors expected of a truth as sharp as this; None: as sharp as usual.

        It is the FWHM of the point spread of the finer pixels, in these pixels.
        """
        if finer_fwhm is None:
            return self
        if self.model.errors is None:
            problem = f"{self.model.name} has not learned how large its errors are"
            raise ModelError(f"`finer_psf` {finer_fwhm:g}: {problem}. See pdenet calibrate `learn_errors`.")
        return self.with_model(replace(self.model, errors=self.model.errors.for_truths_of(finer_fwhm)))

    def refuse_other_bands(self, count: int) -> None:
        """Stop if the network takes another number of bands than `count`."""
        if self.network.bands not in (None, count):
            problem = f"but the cube has {count} usable ones"
            raise ModelError(f"{self.model.name}: made for {self.network.bands} bands, {problem}.")

    def samples(self, low: Map, bands: slice, crop: Window, at_once: int = 1) -> NDArray[np.float32]:
        """The output of each sub-network for `low`, cut to `bands` and `crop`: (samples, bands, rows, columns).

        `at_once` sub-networks are computed together.
        """
        rows, columns = crop.slices
        depth = len(range(len(low))[bands])
        out = np.empty((len(self), depth, crop.rows, crop.columns), np.float32)
        with torch.inference_mode():
            batch = torch.from_numpy(low)[None].to(self.device)
            for symmetry in range(self.views):
                turned = _turned(batch, symmetry).contiguous()
                draw = self.draw.turned() if symmetry % 2 else self.draw  # after one quarter turn or three
                n = symmetry
                for outputs in self.network.in_turn(turned, draw[symmetry :: self.views], at_once):
                    cut = _turned_back(outputs, symmetry)[:, bands, rows, columns]  # (outputs, bands, H, W)
                    out[n : n + len(outputs) * self.views : self.views] = cut.float().cpu().numpy()
                    n += len(outputs) * self.views
        return out

    def seconds_per_voxel(self, low: NDArray[np.float32]) -> float:
        """The time that one sub-network takes per voxel of `low`, measured."""
        alone = Posterior(self.model, 1, self.seed, "masks")
        scale, (bands, rows, columns) = self.network.scale, low.shape
        whole = slice(0, bands), Window(0, 0, rows * scale, columns * scale)
        alone.samples(low, *whole)  # the first call warms up
        started = time.perf_counter()
        alone.samples(low, *whole)
        return (time.perf_counter() - started) / low.size

    def with_every_mask_one(self) -> Self:
        """The same network under the same symmetries, nothing drawn: every mask is 1."""
        certain = type(self)(self.model, self.views, self.seed, self.ensemble, self.most_mixtures, self.psf)
        with torch.no_grad():
            certain.draw = self._seeing_the_psf(Draw(torch.ones_like(certain.draw.masks)))
        return certain


def require_posterior(posterior: object) -> None:
    """Stop if something else, such as a model, was given as a posterior."""
    if not isinstance(posterior, Posterior):
        problem = f"Expected a Posterior, not a {type(posterior).__name__}"
        raise UsageError(f"{problem}. Pass Posterior(model, N) for N samples.")


def _turned(image: Tensor, symmetry: int) -> Tensor:
    """(..., rows, columns) under a symmetry of a square: 0 to 3 quarter turns; 4 to 7, mirrored before."""
    mirrored = image.flip(-1) if symmetry >= 4 else image
    return mirrored.rot90(symmetry % 4, (-2, -1))


def _turned_back(image: Tensor, symmetry: int) -> Tensor:
    """The inverse of `_turned`."""
    back = image.rot90(-(symmetry % 4), (-2, -1))
    return back.flip(-1) if symmetry >= 4 else back


def _most_mixtures(model: Model, asked: int | None, calibration: Calibration | None) -> int:
    """The number of mixtures that was asked for, else that of the calibration, else the usual one of the model."""
    mixable = model.network.mixable
    if asked is None:
        usual = MIXTURES if mixable and not model.spec.sees_every_band else 0
        return usual if calibration is None else calibration.mixtures
    if asked < 0 or (asked and not mixable):
        problem = "use 0, or a number of mixtures" if asked < 0 else f"{model.name} must see every band; use 0"
        raise UsageError(f"`mixtures` {asked}: {problem}.")
    return asked
