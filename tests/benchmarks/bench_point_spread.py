"""How near `pdenet psf` comes to point spreads that are known.

    python tests/benchmarks/bench_point_spread.py DATA      scenes below DATA: MATLAB files, ENVI, TIFF

Each scene is seen through a known point spread by pixels 4 times as large, with noise of 0.3 % of its range, and
measured. A fine scene has a sharpness of its own, which is measured too and counts in the truth: widths add in
quadrature. Square pixels count as the Gaussian whose edge is nearest to theirs. The middle third of the bands is
used, because some lenses focus colours differently. Printed: how many cases are accepted, and on how many of
these the width is within 10 % of the truth, as the geometric mean of both directions and in each direction.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from math import exp, hypot, log
from pathlib import Path
from statistics import fmean, median

import numpy as np
import torch

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import PdenetError
from pdenet_cli.point_spread.measure import DIRECTIONS, Measured, measure
from pdenet_cli.point_spread.widths import equivalent_fwhm
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading
from pdenet_cli.training.find_cubes import find_cubes

SCALE = 4
NOISE = 0.003
SMALLEST = 256  # pixels on a side of a scene that is still one when its pixels are 4 times as large
BLURS = (
    *(Degradation(SCALE, "gaussian", fwhm, NOISE) for fwhm in (0.9, 1.2, 1.6, 2.0)),
    *(Degradation(SCALE, "area", lens, NOISE) for lens in (0.6, 1.2)),
)


@dataclass(frozen=True)
class Case:
    """One scene behind one point spread: the ratio of what was measured to the truth, in the sure directions."""

    scene: str
    blur: Degradation
    ratios: dict[str, float]

    @property
    def ratio(self) -> float:
        return exp(fmean(log(ratio) for ratio in self.ratios.values()))


def measured(pixels: np.ndarray) -> Measured:
    """What is measured in (bands, rows, columns) of 0..1 and light of one detector."""
    meta = CubeMeta(*pixels.shape, pixels.dtype, wavelengths=tuple(500.0 + i for i in range(len(pixels))))
    cube = Cube("scene", meta, pixels)
    return measure(cube, Reading.of(cube, None))


def fine_pixels(cube: Cube) -> np.ndarray:
    """The middle third of the bands as 0..1, cut to whole coarse pixels."""
    reading = Reading.of(cube, None)
    third = len(reading.bands) // 3
    bands = reading.bands[third : max(third + 1, 2 * third)]
    whole = replace(
        cube.meta.window, rows=cube.meta.rows // SCALE * SCALE, columns=cube.meta.columns // SCALE * SCALE
    )
    return reading.unit(cube, whole, bands)[0]


def cases(name: str, fine: np.ndarray) -> list[Case]:
    """The scene behind every blur; none where its own sharpness cannot be told."""
    own = measured(fine).spread.sure
    found = []
    for number, blur in enumerate(BLURS):
        low = blur(torch.from_numpy(fine), torch.Generator().manual_seed(number)).numpy()
        sure = measured(low).spread.sure
        known = equivalent_fwhm(blur)
        ratios = {
            side: sure[side].fwhm / hypot(known, own[side].fwhm / SCALE)
            for side in DIRECTIONS
            if side in sure and side in own
        }
        found.append(Case(name, blur, ratios))
        said = ", ".join(f"{side} {ratio:.3f}" for side, ratio in ratios.items()) or "refused"
        print(f"{name}  {blur} ({known:.2f}): {said}", flush=True)
    return found


def within(ratios: list[float]) -> str:
    near = sum(0.9 <= ratio <= 1.1 for ratio in ratios)
    return f"{near} of {len(ratios)} within 10 %, median ratio {median(ratios):.3f}" if ratios else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path)
    torch.set_num_threads(1)
    known: list[Case] = []
    for cube in find_cubes(parser.parse_args().data):
        try:
            if min(cube.meta.rows, cube.meta.columns) >= SMALLEST:
                known += cases(cube.path.stem, fine_pixels(cube))
        except PdenetError as error:
            print(error)
    for blur in (None, *BLURS):
        some = [case for case in known if blur in (None, case.blur)]
        accepted = [case for case in some if case.ratios]
        print(f"{blur or 'all'}: {len(accepted)} of {len(some)} accepted; {within([c.ratio for c in accepted])}")
    sides = [ratio for case in known for ratio in case.ratios.values()]
    print(f"single directions: {within(sides)}")


if __name__ == "__main__":
    main()
