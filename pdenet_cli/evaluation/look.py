"""Pictures of systems beside the truth: colours, errors, and the spectra of a few telling pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.evaluation.view import Reader, View
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.picture import Picture, rgb_bands
from pdenet_cli.scene.window import Window

LONGEST_SIDE = 400  # pixels on a side of a picture
TRUTH, INPUT = "truth", "degraded input"

ErrorMap = NDArray[np.float32]  # (rows, columns)


@dataclass(frozen=True)
class Spot:
    """A pixel worth a look, counted in the truth's file."""

    row: int
    column: int
    why: str


@dataclass(frozen=True)
class Look:
    """Pictures of one scene, every `step`-th pixel of it; truth and systems by name."""

    step: int
    colours: dict[str, Picture]
    errors: dict[str, ErrorMap]  # root mean square over the bands; NaN where there is no data
    top: float  # the error at the upper end of the colour scale
    spots: tuple[Spot, ...]
    spectra: dict[str, NDArray[np.float32]]  # (spots, bands), 0..1, NaN where there is no data
    rgb: tuple[int, int, int]  # the file's bands that are red, green and blue
    channels: tuple[int, int, int]  # those by their place among the compared bands
    limits: NDArray[np.float32]  # what of them is dark and bright in the truth, (3, 2)
    half_widths: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # of intervals around the spectra

    @classmethod
    def of(cls, truth: View, estimates: Mapping[str, View], pixels: Sequence[tuple[int, int]] = ()) -> Look:
        """Pictures of all of them, and spectra of `pixels` of the file, or of a few telling ones."""
        spots = [Spot(row, column, "chosen") for row, column in pixels]
        step = math.ceil(max(truth.part.rows, truth.part.columns) / LONGEST_SIDE)
        rgb = _nearest(rgb_bands(truth.cube.meta), truth.bands)
        readers = {name: Reader(view, step) for name, view in {TRUTH: truth, **estimates}.items()}
        red, green, blue = channels = tuple(truth.bands.index(band) for band in rgb)
        colours, errors = _maps(truth, readers, step, list(channels))
        limits = _limits(colours[TRUTH])
        part, numbers = truth.part, truth.cube.band_numbers
        spots = spots or [
            Spot(part.row + row * step, part.column + column * step, why)
            for row, column, why in telling_pixels(list(errors.values()))
        ]
        known = np.concatenate([error[np.isfinite(error)] for error in errors.values()])
        return cls(
            step=step,
            colours={name: _stretched(image, limits) for name, image in colours.items()},
            errors=errors,
            top=float(np.percentile(known, 99.5)) if known.size else 1.0,
            spots=tuple(spots),
            spectra={
                name: np.stack([reader.spectrum(spot.row - part.row, spot.column - part.column) for spot in spots])
                for name, reader in readers.items()
            },
            rgb=(numbers[rgb[0]], numbers[rgb[1]], numbers[rgb[2]]),
            channels=(red, green, blue),
            limits=limits,
        )

    def with_input(self, low: NDArray[np.float32], scale: int, part: Window) -> Look:
        """With what the systems were given of the `part` of the truth: 0..1, (bands, rows, columns)."""
        rows, columns = (np.arange(0, size, self.step) // scale for size in (part.rows, part.columns))
        image = _stretched(low[list(self.channels)][:, rows][:, :, columns], self.limits)
        places = [((spot.row - part.row) // scale, (spot.column - part.column) // scale) for spot in self.spots]
        spectra = np.stack([low[:, row, column] for row, column in places])
        return replace(
            self,
            colours={TRUTH: self.colours[TRUTH], INPUT: image} | self.colours,
            spectra={TRUTH: self.spectra[TRUTH], INPUT: spectra} | self.spectra,
        )

    def with_intervals(self, system: str, half_widths: Cube, part: Window) -> Look:
        """With intervals around the spectra of a system; the cube of their half widths is of the `part`."""
        pixels = (Window(spot.row - part.row, spot.column - part.column, 1, 1) for spot in self.spots)
        found = np.stack([half_widths.read(pixel)[:, 0, 0] for pixel in pixels])
        return replace(self, half_widths=self.half_widths | {system: found})


def telling_pixels(errors: Sequence[ErrorMap]) -> list[tuple[int, int, str]]:
    """A few pixels that tell most about some error maps: where systems differ, where all fail, a typical one."""
    stack = np.stack(errors)
    known = np.isfinite(stack).all(0)
    if not known.any():
        return [(0, 0, "no pixel has a valid value")]
    apart, least, mean = np.ptp(stack, 0), stack.min(0), stack.mean(0)
    typical = np.abs(mean - np.median(mean[known]))
    found = [(least, "where all systems err most" if len(errors) > 1 else "the largest error")]
    if len(errors) > 1:
        found.insert(0, (apart, "where the systems differ most"))
    places = [(*_largest_at(np.where(known, goal, -np.inf)), why) for goal, why in found]
    return [*places, (*_largest_at(np.where(known, -typical, -np.inf)), "a typical error")]


def _largest_at(goal: NDArray[np.floating]) -> tuple[int, int]:
    row, column = np.unravel_index(np.argmax(goal), goal.shape)
    return int(row), int(column)


def _maps(
    truth: View, readers: Mapping[str, Reader], step: int, rgb: Sequence[int]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, ErrorMap]]:
    """Colours (3, rows, columns) of truth and estimates and errors of the estimates, every `step`-th pixel."""
    rows, columns = (-(-length // step) for length in (truth.part.rows, truth.part.columns))
    colours = {name: np.empty((3, rows, columns), np.float32) for name in readers}
    errors = {name: np.empty((rows, columns), np.float32) for name in readers if name != TRUTH}
    for block in truth.blocks(multiple=step):
        target, valid_mask = readers[TRUTH].read(block)
        place = Window(block.row // step, block.column // step, *target.shape[1:]).slices
        colours[TRUTH][(slice(None), *place)] = np.where(valid_mask, target, np.nan)[rgb]
        for name, error in errors.items():
            unit, known = readers[name].read(block)
            both = valid_mask & known
            colours[name][(slice(None), *place)] = np.where(known, unit, np.nan)[rgb]
            squares = np.where(both, unit - target, 0).astype(np.float64) ** 2
            count = both.sum(0)
            mean = np.divide(squares.sum(0), count, out=np.full(count.shape, np.nan), where=count > 0)
            error[place] = np.sqrt(mean)
    return colours, errors


def _limits(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """The 2nd and the 98th percentile of each channel."""
    known = [channel[np.isfinite(channel)] for channel in image]
    ends = [np.percentile(channel, [2, 98]) if channel.size else (0, 1) for channel in known]
    return np.array(ends, np.float32)


def _stretched(image: NDArray[np.float32], limits: NDArray[np.float32]) -> Picture:
    """A picture as 8-bit colours."""
    low, high = limits.T[..., None, None]
    share = np.nan_to_num((image - low) / np.maximum(high - low, 1e-12)).clip(0, 1)
    return np.asarray(np.rint(255 * share).astype(np.uint8).transpose(1, 2, 0))


def _nearest(wanted: tuple[int, int, int], bands: tuple[int, ...]) -> tuple[int, int, int]:
    """Of the compared `bands`, the nearest to those wanted."""
    red, green, blue = (min(bands, key=lambda band: abs(band - want)) for want in wanted)
    return red, green, blue
