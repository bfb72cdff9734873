"""What a system says of a scene, kept as cubes and read band by band beside the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.evaluation.trial import Coarse, scratch_cube
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.error_net import ErrorNet
from pdenet_cli.scene.cube import Cube
from pdenet_cli.uncertainty.error_ratios import ErrorRatios
from pdenet_cli.uncertainty.spread import Strata, guess, spread, strata
from pdenet_cli.uncertainty.summaries import MEAN, STD, Summary

CHUNK_VALUES = 1 << 23  # about how many values, in whole bands, are read at once

ValidMask = NDArray[np.bool_]

ROUGHNESS = Summary("roughness", "roughness of the input", lambda evidence, _: evidence.roughness, "spread")
SPREAD = Summary("spread", "scale of the errors", lambda evidence, _: spread(evidence), "spread", foresees=True)


@dataclass(frozen=True)
class EstimateMaps:
    """What a system says of a scene, as cubes of 0..1: its estimate, and what intervals around it are made of."""

    mean: Cube
    std: Cube
    roughness: Cube  # of the input, on the fine grid
    spread: Cube  # half widths are multiples of it

    @classmethod
    def scratch(cls, folder: Path, low: Coarse, scale: int, mean: Cube | None = None) -> EstimateMaps:
        """Empty cubes in files, to be filled with what a system makes of `low`; `mean` may be there already."""
        cubes = (scratch_cube(folder, low, scale) for _ in range(3 if mean is not None else 4))
        return cls(*cubes) if mean is None else cls(mean, *cubes)

    @property
    def outputs(self) -> list[tuple[Summary, Cube]]:
        """Each cube to be filled, with its summary."""
        return [(MEAN, self.mean), (STD, self.std), (ROUGHNESS, self.roughness), (SPREAD, self.spread)]

    def expect(self, low: Coarse, errors: ErrorNet) -> None:
        """Replace the spread by what `errors` expects of each value; `low` is no larger than the maps."""
        scene, bands = self.mean.meta.window, self.mean.meta.bands
        scale = scene.rows // low.part.rows
        at_once = max(1, CHUNK_VALUES // scene.pixels)
        for start in range(0, bands, at_once):
            chosen = slice(start, min(start + at_once, bands))
            mean, std, rough = (cube.read(scene, chosen) for cube in (self.mean, self.std, self.roughness))
            known = low.cube.read(low.part, chosen)
            self.spread.write(scene, errors.expected(scale, known, mean, std, guess(std, rough)), chosen)

    def half_widths(self, factors: Sequence[float], output: Cube) -> Cube:
        """Fill `output` with half the width of the intervals that have these factors, one for each stratum."""
        scene = self.mean.meta.window
        some = max(1, CHUNK_VALUES // scene.pixels)
        for start in range(0, self.mean.meta.bands, some):
            chosen = slice(start, min(start + some, self.mean.meta.bands))
            rough, width = self.roughness.read(scene, chosen), self.spread.read(scene, chosen)
            output.write(scene, np.asarray(factors, np.float32)[strata(rough)] * width, chosen)
        return output


@dataclass(frozen=True)
class BandMaps:
    """One band of a truth and of an estimate, as maps."""

    valid_mask: ValidMask  # (rows, columns)
    error: NDArray[np.float32]
    std: NDArray[np.float32]
    roughness: NDArray[np.float32]
    spread: NDArray[np.float32]

    @cached_property
    def stratum(self) -> Strata:
        return strata(self.roughness)

    @cached_property
    def ratios(self) -> ErrorRatios:
        return ErrorRatios.of(self.error, self.spread, self.stratum, self.valid_mask)


def band_maps(truth: View, maps: EstimateMaps) -> Iterator[tuple[int, BandMaps]]:
    """Each band: its number in the file, and its maps."""
    bands, scene = len(truth.bands), truth.scene
    at_once = max(1, CHUNK_VALUES // scene.pixels)
    for start in range(0, bands, at_once):
        stop = min(start + at_once, bands)
        target, valid_mask = truth.read(scene, range(start, stop))
        mean, *planes = (cube.read(scene, slice(start, stop)) for _, cube in maps.outputs)
        for i in range(stop - start):
            yield (
                truth.bands[start + i],
                BandMaps(valid_mask[i], mean[i] - target[i], *(plane[i] for plane in planes)),
            )
