"""Lessons about errors: patches of a scene that was degraded and sharpened, outside its held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch

from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.trial import Coarse
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.error_net import FAR, USUAL_FWHM, Clues
from pdenet_cli.scene.window import Window
from pdenet_cli.training.error_lessons import Lessons

PLACES, BANDS_EACH = 96, 6  # patches of a scene: this many places, and at each this many bands
PATCH = 12  # their side in input pixels, at most half of the scene's
TRIES = 20  # for each place, to find one outside the held-out part


def lessons_of(
    held_out: View, low: Coarse, maps: EstimateMaps, seed: int, finer_fwhm: float = USUAL_FWHM
) -> Lessons | None:
    """Lessons from the scene around `held_out`: `low` is all of it degraded, `maps` what was made of that.

    Where all of the scene is `held_out`, the lessons are from all of it.

    `finer_fwhm` is how sharp the scene is.

    None if there is no room beside `held_out`, or no data.
    """
    scale = held_out.part.rows // low.part.rows
    truth = held_out.with_surroundings(scale)
    generator = np.random.default_rng(seed)
    every, count = len(truth.bands), min(BANDS_EACH, len(truth.bands))
    patches = [
        _patch(truth, low, maps, finer_fwhm, place, sorted(generator.choice(every, count, replace=False).tolist()))
        for place in places(low, seed)
    ]
    patches = [patch for patch in patches if bool(patch.ratios.isfinite().any())]
    if not patches:
        return None
    coarse, fine = (torch.cat([getattr(patch.clues, name) for patch in patches]) for name in ("coarse", "fine"))
    return Lessons(Clues(coarse, fine), torch.cat([patch.ratios for patch in patches]))


def places(low: Coarse, seed: int) -> list[Window]:
    """Windows of the input at random places that do not touch the held-out part; none where there is no room.

    Where that part is the whole scene, nothing is held out.
    """
    rows, columns = low.cube.meta.rows, low.cube.meta.columns
    side = Window(0, 0, *(max(1, min(PATCH, length // 2)) for length in (rows, columns)))
    generator = np.random.default_rng(seed)
    last = rows - side.rows + 1, columns - side.columns + 1
    corners = generator.integers(last, size=(TRIES * PLACES, 2)).tolist()
    tried = (side.moved(*corner) for corner in corners)
    all_of_it = low.part == low.cube.meta.window
    return list(islice((place for place in tried if all_of_it or not place.overlaps(low.part)), PLACES))


def _patch(
    truth: View, low: Coarse, maps: EstimateMaps, finer_fwhm: float, place: Window, bands: Sequence[int]
) -> Lessons:
    """What is seen of some bands of a window of the input, and their errors."""
    scale = maps.mean.meta.rows // low.cube.meta.rows
    around = place.grown(FAR // 2, within=low.cube.meta.window)  # clues depend on so many pixels
    inside, fine = place.relative_to(around), around.scaled(scale)
    mean, std, spread = (cube.read(fine, bands) for cube in (maps.mean, maps.std, maps.spread))
    arrays = (low.cube.read(around, bands), mean, std, spread)
    clues = Clues.of(scale, finer_fwhm, *(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
    target, valid_mask = truth.read(fine, bands)
    ratios = np.where(valid_mask, np.abs(mean - target) / spread, np.float32(np.nan))
    inner = inside.scaled(scale).slices
    seen = Clues(clues.coarse[..., *inside.slices].half(), clues.fine[..., *inner].half())
    return Lessons(seen, torch.from_numpy(ratios[:, *inner]).half())
