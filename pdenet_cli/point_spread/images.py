"""Images of groups of bands in which the edges of a scene stand out: few, and with little noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pdenet_cli.point_spread.edges import Array
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.window import Window

INFRARED = 1000.0  # nanometres: where short-wave infrared begins, which instruments see with another detector
MOST_BANDS = 24  # of a group that are looked at
COMPONENTS = 2  # images of a group: its directions of largest variance
LARGEST_SIDE = 2048  # pixels of the middle of a scene that are looked at


@dataclass(frozen=True)
class Group:
    """Bands that one detector is likely to have seen."""

    name: str
    bands: tuple[int, ...]  # by their number in the cube


def groups_of(cube: Cube, usable: Sequence[int]) -> tuple[Group, ...]:
    """VNIR and SWIR where wavelengths are known, else thirds of the usable bands."""
    waves = cube.meta.wavelengths_nm
    if waves is None:
        parts = [part.tolist() for part in np.array_split(np.array(usable), min(3, len(usable)))]
        return tuple(Group(f"bands {part[0]}-{part[-1]}", tuple(part)) for part in parts)
    split = {
        "VNIR": [b for b in usable if waves[b] <= INFRARED],
        "SWIR": [b for b in usable if waves[b] > INFRARED],
    }
    return tuple(Group(name, tuple(bands)) for name, bands in split.items() if bands)


def middle_of(scene: Window) -> Window:
    """The part of a scene that is looked at: all of it unless it is large."""
    rows, columns = min(scene.rows, LARGEST_SIDE), min(scene.columns, LARGEST_SIDE)
    return Window(
        scene.row + (scene.rows - rows) // 2, scene.column + (scene.columns - columns) // 2, rows, columns
    )


def images_of(cube: Cube, reading: Reading, group: Group, part: Window) -> Iterator[Array]:
    """The first components of a group's bands in a part of the scene, about 1 high; NaN where it has no data."""
    few = np.linspace(0, len(group.bands) - 1, min(len(group.bands), MOST_BANDS)).round().astype(int)
    bands = [group.bands[i] for i in np.unique(few)]
    unit, known = reading.radiometry.prepare(cube.read(part, bands), bands)
    whole = known.all(0)
    if not whole.any():
        return
    spectra = unit[:, whole].astype(np.float64)
    centred = spectra - spectra.mean(1, keepdims=True)
    variances, axes = np.linalg.eigh(centred @ centred.T)
    for i in range(1, min(COMPONENTS, len(bands)) + 1):
        values = axes[:, -i] @ centred
        size = np.ptp(np.percentile(values, (0.1, 99.9)))
        if variances[-i] <= 0 or not size > 0:
            return
        image = np.full(whole.shape, np.nan)
        image[whole] = values / size
        yield image
