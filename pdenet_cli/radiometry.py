"""How a file's numbers become the network's 0..1 and back, decided once per scene so that all tiles agree.

The rule, first match wins (`reason` says which it was):

1. the user's range: LO becomes 0, HI becomes 1;
2. a reflectance scale factor in the header: 0..factor, unless that leaves the brightest numbers below 0.001 or
   above 10;
3. gains and offsets in the header: the physical values they give, if those look like reflectance (the brightest
   above 0.05 and at most 2);
4. 8-bit numbers: 0..255;
5. floating-point numbers between -0.5 and 1.5, the 99.9th percentile above 0.05: taken as they are;
6. otherwise 0..p, p the 99.9th percentile of the valid numbers, so that one hot pixel does not darken the
   rest; from the smallest number instead of 0 if that is below -p/10.

Numbers outside the range are not clipped: they become less than 0 or more than 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.cube import CubeMeta, Pixels
from pdenet_cli.dtypes import as_stored, can_hold
from pdenet_cli.errors import UsageError
from pdenet_cli.holes import valid
from pdenet_cli.survey import Survey

Bands = slice | Sequence[int]
ALL = slice(None)
DARKEST = 0.05  # what physical values reach at least if they are reflectance; radiance may be far below
BRIGHTEST = 2.0  # what they reach at most: glint and noise are above 1
LIKELY = (0.001, 10.0)  # between these a scale factor leaves the brightest numbers, if it is that of the file


@dataclass(frozen=True)
class Radiometry:
    """Gain and offset from a file's numbers to the network's 0..1, and what stands where there is no data.

    `gain` and `offset` hold one number, or one per band: unit value = gain · number + offset.
    """

    gain: tuple[float, ...]
    offset: tuple[float, ...]
    reason: str
    nodata: float | None = None
    fill: tuple[float, ...] = (0.0,)  # unit values that the network sees in holes, one or one per band
    floor: float = -math.inf  # no output number below this: 0 where the scene has no negative number

    @classmethod
    def of(cls, meta: CubeMeta, survey: Survey, value_range: tuple[float, float] | None = None) -> Radiometry:
        """The radiometry of a scene by the rule at the top of this module."""
        chosen = _range(meta, survey, value_range)
        low, high = chosen.low, chosen.high
        gains = (chosen.physical and meta.gains) or (1.0,)
        offsets = (chosen.physical and meta.offsets) or (0.0,)
        if not high > low or not math.isfinite(high - low):
            raise UsageError(f"The range {low:g} to {high:g} is empty. Use --range LO HI with LO below HI.")
        gain = tuple(g / (high - low) for g in gains)
        offset = tuple((o - low) / (high - low) for o in offsets)
        means = np.array(survey.means) * np.array(gain) + np.array(offset)
        return cls(
            gain=gain,
            offset=offset,
            reason=chosen.reason,
            nodata=meta.nodata,
            fill=tuple(np.nan_to_num(means).tolist()),
            # A survey of some blocks may have missed the negative numbers.
            floor=0.0
            if survey.ends(meta)[0] >= 0 and (survey.looked_at == 1 or meta.dtype.kind in "ub")
            else -math.inf,
        )

    def for_twin(self, own: CubeMeta, twin: CubeMeta) -> Radiometry:
        """The same 0..1 for another file of the scene, whose header may scale its numbers in another way.

        `own` is the header that this radiometry is of. Where one of them says nothing, the numbers are alike.
        """
        same = replace(self, nodata=twin.nodata)
        scales, others = _physical(own), _physical(twin)
        if scales is None or others is None or scales == others:
            return same
        (gain, offset), (twin_gain, twin_offset) = (map(np.array, pair) for pair in (scales, others))
        steps = np.array(self.gain) / gain  # of a physical unit, in 0..1
        shift = np.array(self.offset) + steps * (twin_offset - offset)
        return replace(same, gain=tuple((steps * twin_gain).tolist()), offset=tuple(shift.tolist()))

    def to_unit(self, pixels: Pixels, bands: Bands = ALL) -> NDArray[np.float32]:
        """File numbers (bands, rows, columns) as the network's 0..1."""
        exact = np.result_type(pixels.dtype, np.float32)  # 32-bit integers do not fit into float32
        unit = pixels.astype(exact) * _per_band(self.gain, bands) + _per_band(self.offset, bands)
        return unit.astype(np.float32)

    def from_unit(self, unit: Pixels, dtype: np.dtype[Any], bands: Bands = ALL) -> Pixels:
        """The network's 0..1 as file numbers of `dtype`, rounded and kept inside what it can hold."""
        numbers = (np.asarray(unit, np.float64) - _per_band(self.offset, bands)) / _per_band(self.gain, bands)
        return self._written(np.maximum(numbers, self.floor), dtype)

    def kept(self, pixels: Pixels, there: NDArray[np.bool_], dtype: np.dtype[Any]) -> Pixels:
        """File numbers as they are, in another type, and nodata where `there` is False."""
        numbers = self._written(np.where(there, pixels, 0).astype(np.float64), dtype)
        numbers[~there] = self.nothing(dtype)
        return numbers

    def _written(self, numbers: NDArray[np.float64], dtype: np.dtype[Any]) -> Pixels:
        """Numbers rounded and kept inside what `dtype` can hold, none of them nodata."""
        if dtype.kind in "ui":
            numbers = np.rint(numbers)
        limits = np.iinfo(dtype) if dtype.kind in "ui" else np.finfo(dtype)
        # float64 rounds the largest 64-bit integers up, out of range: clip to the next number below.
        top = min(float(limits.max), float(np.nextafter(float(limits.max), 0)) if dtype.itemsize == 8 else np.inf)
        numbers = np.clip(numbers, float(limits.min), top)
        # An estimate that happens to be the nodata value is still an estimate.
        if self.nodata is not None and dtype.kind in "ui":
            numbers[numbers == self.nodata] += -1 if self.nodata >= top else 1
        written = numbers.astype(dtype)
        if self.nodata is not None and dtype.kind == "f":
            with np.errstate(over="ignore"):
                nodata = np.float64(self.nodata).astype(dtype)
            # Towards 0, for beyond the largest there is infinity; beside 0, what no fast processor takes for 0.
            nearest = np.nextafter(nodata, dtype.type(0)) if nodata else np.finfo(dtype).tiny
            written[written == nodata] = nearest
        return written

    def units(self, bands: Bands = ALL) -> NDArray[np.float64]:
        """How much of 0..1 one of the file's numbers is, by band; negative where numbers fall as light grows."""
        return np.asarray(_per_band(self.gain, bands), np.float64)

    def spread_from_unit(self, spread: Pixels, bands: Bands = ALL) -> NDArray[np.float32]:
        """A standard deviation in the file's numbers: it takes the gain, never the offset."""
        return (spread / np.abs(_per_band(self.gain, bands))).astype(np.float32)

    def prepare(self, pixels: Pixels, bands: Bands = ALL) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """File numbers as 0..1 with holes filled by the scene's mean, and where there were no holes."""
        there = valid(pixels, self.nodata)
        with np.errstate(invalid="ignore", over="ignore"):
            unit = self.to_unit(pixels, bands)
        return np.where(there, unit, _per_band(self.fill, bands).astype(np.float32)), there

    def finish(self, unit: Pixels, there: NDArray[np.bool_], dtype: np.dtype[Any], bands: Bands = ALL) -> Pixels:
        """The network's 0..1 as file numbers, nodata again where `there` is False."""
        numbers = self.from_unit(unit, dtype, bands)
        numbers[~there] = self.nothing(dtype)
        return numbers

    def nothing(self, dtype: np.dtype[Any]) -> Any:
        """What stands for nodata in `dtype`: the file's own value if it can hold that, else NaN, else 0."""
        if self.nodata is not None and can_hold(dtype, self.nodata):
            return as_stored(self.nodata, dtype)
        return np.nan if dtype.kind == "f" else 0


def believed(meta: CubeMeta, survey: Survey) -> CubeMeta:
    """What a header says, without a reflectance scale factor that the numbers contradict."""
    scale = meta.reflectance_scale
    unlikely = scale and not LIKELY[0] < survey.top / scale <= LIKELY[1]
    return replace(meta, reflectance_scale=None) if unlikely else meta


def says_scale(meta: CubeMeta) -> bool:
    """Whether a header says what its numbers measure."""
    return _physical(meta) is not None


def _physical(meta: CubeMeta) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Gains and offsets from the file's numbers to what they measure, one or one per band; None: not said."""
    if meta.reflectance_scale:
        return (1 / meta.reflectance_scale,), (0.0,)
    gains, offsets = meta.gains or (1.0,), meta.offsets or (0.0,)
    return (gains, offsets) if (meta.gains or meta.offsets) and all(gains) else None


@dataclass(frozen=True)
class _Range:
    """What becomes 0 and what becomes 1, and why."""

    low: float
    high: float
    reason: str
    physical: bool = False  # of the values that the header's gains and offsets give, not of the file's numbers


def _range(meta: CubeMeta, survey: Survey, value_range: tuple[float, float] | None) -> _Range:
    if value_range is not None:
        low, high = value_range
        return _Range(low, high, f"range given: {low:g} to {high:g}")
    if meta.reflectance_scale:
        said = "reflectance scale factor in the header"
        likely = believed(meta, survey)
        if likely.reflectance_scale:
            return _Range(0.0, meta.reflectance_scale, f"{said}: {meta.reflectance_scale:g}")
        other = _range(likely, survey, None)
        ignored = f"the {said} ({meta.reflectance_scale:g}) contradicts the values and is ignored"
        return replace(other, reason=f"{other.reason}; {ignored}")
    if (physical := _physical(meta)) is not None:
        gains, offsets = map(np.array, physical)
        highest = gains * np.where(gains > 0, survey.top, survey.minimum) + offsets
        brightest = float(highest.max()) if survey.brightest is None else survey.brightest
        if DARKEST < brightest <= BRIGHTEST:
            said = f"gain and offset in the header: {_span(physical[0])} and {_span(physical[1])}"
            return _Range(0.0, 1.0, said, physical=True)
    if meta.dtype == np.uint8:
        return _Range(0.0, 255.0, "8-bit numbers: 0 to 255")
    if meta.dtype.kind == "f" and survey.minimum >= -0.5 and survey.maximum <= 1.5 and survey.top > DARKEST:
        return _Range(0.0, 1.0, "floating-point numbers near 0 to 1, taken as they are")
    top = survey.top if survey.top > 0 else survey.maximum
    low = survey.minimum if survey.minimum < -abs(top) / 10 else 0.0
    if top <= low:
        top = low + 1.0
    return _Range(low, top, f"from the data: {low:g} to {top:g} (99.9th percentile)")


def _span(values: Sequence[float]) -> str:
    """Numbers by band as a reason tells them: the one that all are, or the smallest and the largest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _per_band(values: Sequence[float], bands: Bands) -> NDArray[np.float64]:
    column = np.asarray(values, np.float64)[:, None, None]
    chosen = bands if isinstance(bands, slice) else list(bands)  # a tuple would index three axes
    return column[chosen] if len(values) > 1 else column
