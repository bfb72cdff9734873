"""Between a file's numbers and the network's 0..1: a linear rule, chosen once per scene so that all tiles agree.

The rule, first match wins (`reason` says which it was):

1. the user's range: LO becomes 0, HI becomes 1; by name, `dtype` is from 0 to the largest integer of the file's
   type, `max` from 0 to the largest number of the whole scene, whatever part of it is used;
2. a reflectance scale factor in the header: 0..factor, unless that leaves the brightest numbers below 0.001 or
   above 10;
3. gains and offsets in the header: the physical values they give, if those look like reflectance (the brightest
   above 0.05 and at most 2);
4. 8-bit numbers: 0..255;
5. floating-point numbers between -0.5 (their 0.1th percentile) and 1.5, the 99.9th above 0.05: taken as they are;
6. otherwise 0..p, p the 99.9th percentile of the valid numbers, so that one hot pixel does not darken the
   rest; from the 0.1th percentile instead of 0 if that is below -p/10.

Numbers outside the range are not clipped: they become less than 0 or more than 1. A number a million times as
large as the range is no measurement: it counts as a hole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.dtypes import limits
from pdenet_cli.scene.encoding import Encoding
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.survey import Survey

Bands = slice | Sequence[int]
ValueRange = tuple[float, float] | Literal["dtype", "max"]
"""The numbers that are read as 0 and 1, or the name of a rule for them."""
ALL = slice(None)
DARKEST = 0.05  # reflectances reach at least this; radiances may stay far below
BRIGHTEST = 2.0  # reflectances reach at most this: glint and noise are above 1
# A reflectance scale factor is believed if 99.9th percentile / factor lies between these.
PLAUSIBLE = (0.001, 10.0)
IMPOSSIBLE = 1e6  # 0..1; such as 1e37, which netCDF files have where nothing was written


@dataclass(frozen=True)
class Radiometry:
    """Gain and offset from a file's numbers to the network's 0..1, and which of its numbers are no data.

    `gain` and `offset` hold one number, or one per band: unit value = gain · number + offset.
    """

    gain: tuple[float, ...]
    offset: tuple[float, ...]
    reason: str
    nodata: float | None = None  # of the scene; outputs have their own, see Encoding
    fill: tuple[float, ...] = (0.0,)  # what the network sees deep in holes, 0..1: one, or one per band
    floor: float = -math.inf  # smallest number in outputs: 0 where the scene has no negative value
    measures: tuple[float, ...] = (1.0,)  # what a number measures by the header: one, or one per band

    @classmethod
    def of(cls, meta: CubeMeta, survey: Survey, value_range: ValueRange | None = None) -> Radiometry:
        """The radiometry of a scene by the rule at the top of this module."""
        chosen = _range(meta, survey, value_range)
        low, high = chosen.low, chosen.high
        gains = (chosen.physical and meta.gains) or (1.0,)
        offsets = (chosen.physical and meta.offsets) or (0.0,)
        if not high > low or not math.isfinite(high - low):
            raise UsageError(f"The range {low:g} to {high:g} is empty. Use `value_range` LO HI with LO below HI.")
        gain = tuple(g / (high - low) for g in gains)
        offset = tuple((o - low) / (high - low) for o in offsets)
        physical = _physical(without_implausible_scale(meta, survey))
        means = np.array(survey.means) * np.array(gain) + np.array(offset)
        return cls(
            gain=gain,
            offset=offset,
            reason=chosen.reason,
            nodata=meta.nodata,
            # Numbers that count as holes are in the means of a survey.
            fill=tuple(np.nan_to_num(means).clip(-1, 2).tolist()),
            # A survey of a part of the scene may have missed negative values.
            floor=0.0
            if survey.ends(meta)[0] >= 0 and (survey.looked_at == 1 or meta.dtype.kind in "ub")
            else -math.inf,
            measures=(1.0,) if physical is None else physical[0],
        )

    def for_other_file(self, mine: CubeMeta, other: CubeMeta) -> Radiometry:
        """The same 0..1 for another file of the scene, whose header may scale its numbers differently.

        `this` is the header that this radiometry was made for. Where one of the headers does not say what its
        numbers measure, the numbers of both files are taken to mean the same.
        """
        same = replace(self, nodata=other.nodata)
        scaling, other_scaling = _physical(mine), _physical(other)
        if scaling is None or other_scaling is None or scaling == other_scaling:
            return same
        (gain, offset), (other_gain, other_offset) = (map(np.array, pair) for pair in (scaling, other_scaling))
        unit_per_physical = np.array(self.gain) / gain
        shift = np.array(self.offset) + unit_per_physical * (other_offset - offset)
        return replace(same, gain=tuple((unit_per_physical * other_gain).tolist()), offset=tuple(shift.tolist()))

    def to_unit(self, pixels: Pixels, bands: Bands = ALL) -> NDArray[np.float32]:
        """File numbers (bands, rows, columns) as the network's 0..1."""
        # In float64, for 32-bit integers do not fit into float32; in place, for large tiles.
        unit = np.multiply(pixels, _per_band(self.gain, bands), dtype=np.float64)
        unit += _per_band(self.offset, bands)
        return unit.astype(np.float32)

    def numbers(self, unit: Pixels, bands: Bands = ALL) -> NDArray[np.float64]:
        """The network's 0..1 as numbers of the file, not yet of its type."""
        numbers = np.subtract(unit, _per_band(self.offset, bands), dtype=np.float64)
        numbers /= _per_band(self.gain, bands)
        return np.maximum(numbers, self.floor, out=numbers)

    def finish(
        self, unit: Pixels, valid_mask: NDArray[np.bool_], encoding: Encoding, bands: Bands = ALL
    ) -> Pixels:
        """The network's 0..1 as an output stores it, its nodata value where `valid_mask` is False."""
        return encoding.encoded(self.numbers(unit, bands), valid_mask)

    def clipped(self, unit: Pixels, valid_mask: NDArray[np.bool_], encoding: Encoding, bands: Bands = ALL) -> int:
        """How many values `finish` clips because an integer type does not reach so far."""
        if encoding.dtype.kind not in "ui" or not unit.size:
            return 0
        # The extremes of each band first: hardly ever is anything clipped.
        ends = np.stack((unit.min((1, 2)), unit.max((1, 2))), axis=1)[:, None]  # (bands, 1, 2)
        if not encoding.beyond(self.numbers(ends, bands)).any():
            return 0
        return int(np.count_nonzero(encoding.beyond(self.numbers(unit, bands)) & valid_mask))

    def units(self, bands: Bands = ALL) -> NDArray[np.float64]:
        """0..1 per file number, by band: (bands or 1, 1, 1); negative where numbers fall as light grows."""
        return np.asarray(_per_band(self.gain, bands), np.float64)

    def measured(self, bands: Bands = ALL) -> NDArray[np.float64]:
        """What a difference of one in the file's numbers measures by the header, by band: (bands or 1, 1, 1)."""
        return _per_band(self.measures, bands)

    def spread_from_unit(self, spread: Pixels, bands: Bands = ALL) -> NDArray[np.float32]:
        """A standard deviation in the file's numbers: it takes the gain, never the offset."""
        return (spread / np.abs(_per_band(self.gain, bands))).astype(np.float32)

    def prepare(self, pixels: Pixels, bands: Bands = ALL) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """File numbers as 0..1 with holes filled by their band's mean, and where there are no holes."""
        valid_mask = valid(pixels, self.nodata)
        with np.errstate(invalid="ignore", over="ignore"):
            unit = self.to_unit(pixels, bands)
            valid_mask &= np.abs(unit) < IMPOSSIBLE
        return np.where(valid_mask, unit, _per_band(self.fill, bands).astype(np.float32)), valid_mask

    def has_impossible(self, survey: Survey) -> bool:
        """Whether `prepare` finds holes in a surveyed scene where there is no nodata value."""
        with np.errstate(over="ignore"):
            ends = np.multiply.outer((survey.minimum, survey.maximum), self.gain) + self.offset
        return bool((np.abs(ends) >= IMPOSSIBLE).any())


ALREADY_UNIT = Radiometry((1.0,), (0.0,), "0..1 already")
"""Of a cube that holds 0..1."""


def without_implausible_scale(meta: CubeMeta, survey: Survey) -> CubeMeta:
    """The metadata without a reflectance scale factor that the values contradict."""
    scale = meta.reflectance_scale
    implausible = scale and not PLAUSIBLE[0] < survey.top / scale <= PLAUSIBLE[1]
    return replace(meta, reflectance_scale=None) if implausible else meta


def says_scale(meta: CubeMeta) -> bool:
    """Whether a header says what its numbers measure: by a scale factor, gains or offsets."""
    return _physical(meta) is not None


def physical_top(meta: CubeMeta, survey: Survey) -> float:
    """The 99.9th percentile of what a file's numbers measure, as its header says."""
    if meta.reflectance_scale:
        return survey.top / meta.reflectance_scale
    return survey.top if survey.brightest is None else survey.brightest


def _physical(meta: CubeMeta) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Gains and offsets from a file's numbers to physical values, one or one per band; None: not in the header."""
    if meta.reflectance_scale:
        return (1 / meta.reflectance_scale,), (0.0,)
    gains, offsets = meta.gains or (1.0,), meta.offsets or (0.0,)
    return (gains, offsets) if (meta.gains or meta.offsets) and all(gains) else None


@dataclass(frozen=True)
class _Range:
    """The values that become 0 and 1, and the reason for the choice."""

    low: float
    high: float
    reason: str
    physical: bool = False  # values after the header's gains and offsets, not the file's numbers


def _range(meta: CubeMeta, survey: Survey, value_range: ValueRange | None) -> _Range:
    """The range asked for, else that of the header if the values do not contradict it, else that of the values."""
    if value_range is not None:
        return _asked(meta, survey, value_range)
    return _by_header(meta, survey) or _by_values(meta, survey)


def _asked(meta: CubeMeta, survey: Survey, value_range: ValueRange) -> _Range:
    if value_range == "max":
        top = max(survey.maximum, survey.whole_maximum)
        return _Range(0.0, top, f"the scene's largest number: 0 to {top:g}")
    if value_range == "dtype":
        if meta.dtype.kind not in "ui":
            problem = f"`value_range` dtype: {meta.dtype.name} numbers have no natural largest one"
            raise UsageError(f"{problem}. Use `value_range` max or LO HI.")
        return _Range(0.0, limits(meta.dtype)[1], f"{meta.dtype.name} numbers: 0 to {limits(meta.dtype)[1]:g}")
    if isinstance(value_range, str):
        raise UsageError(f"`value_range` {value_range} is unknown; give LO HI, dtype or max.")
    low, high = value_range
    return _Range(low, high, f"range given: {low:g} to {high:g}")


def _by_header(meta: CubeMeta, survey: Survey) -> _Range | None:
    if meta.reflectance_scale:
        said = "reflectance scale factor in the header"
        plausible = without_implausible_scale(meta, survey)
        if plausible.reflectance_scale:
            return _Range(0.0, meta.reflectance_scale, f"{said}: {meta.reflectance_scale:g}")
        credible = _range(plausible, survey, None)
        ignored = f"the {said} ({meta.reflectance_scale:g}) contradicts the values and is ignored"
        return replace(credible, reason=f"{credible.reason}; {ignored}")
    if (physical := _physical(meta)) is not None:
        gains, offsets = map(np.array, physical)
        with np.errstate(over="ignore", invalid="ignore"):
            highest = gains * np.where(gains > 0, survey.top, survey.bottom) + offsets
        brightest = float(highest.max()) if survey.brightest is None else survey.brightest
        if DARKEST < brightest <= BRIGHTEST:
            said = f"gain and offset in the header: {_span(physical[0])} and {_span(physical[1])}"
            return _Range(0.0, 1.0, said, physical=True)
    return None


def _by_values(meta: CubeMeta, survey: Survey) -> _Range:
    if meta.dtype == np.uint8:
        return _Range(0.0, 255.0, "8-bit numbers: 0 to 255")
    if meta.dtype.kind == "f" and survey.bottom >= -0.5 and survey.maximum <= 1.5 and survey.top > DARKEST:
        return _Range(0.0, 1.0, "floating-point numbers near 0 to 1, taken as they are")
    top = survey.top if survey.top > 0 else survey.maximum
    low = survey.bottom if survey.bottom < -abs(top) / 10 else 0.0
    if top <= low:
        top = low + 1.0
    return _Range(low, top, f"from the data: {low:g} to {top:g} (99.9th percentile)")


def _span(values: Sequence[float]) -> str:
    """Numbers as text: the only one, or the smallest and the largest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _per_band(values: Sequence[float], bands: Bands) -> NDArray[np.float64]:
    column = np.asarray(values, np.float64)[:, None, None]
    chosen = bands if isinstance(bands, slice) else list(bands)  # a tuple would index three axes
    return column[chosen] if len(values) > 1 else column
