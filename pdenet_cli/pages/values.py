"""The numbers that pages and pictures show: reflectance where the header has a scale, else the file's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.uncertainty.summaries import FILE_UNITS, SCALED_UNITS

Numbers = NDArray[np.float32]
REFLECTANCE, SCALED, PLAIN = "reflectance", "value as the header scales it", "number in the file"


@dataclass(frozen=True)
class Values:
    """Shown value = gain · number in the file + offset; one gain and offset, or one for each band."""

    unit: str = PLAIN
    gain: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)

    @classmethod
    def of(cls, meta: CubeMeta, radiometry: Mapping[str, Any]) -> Values:
        """The values of a scene whose `radiometry` a report has recorded: a scale that it doubts is left out."""
        gain = tuple(map(float, radiometry["measures"]))
        if set(gain) == {1.0}:
            return cls()
        by_factor = meta.reflectance_scale is not None
        offset = (0.0,) if by_factor or meta.offsets is None else tuple(meta.offsets)
        is_reflectance = by_factor or str(radiometry["reason"]).startswith("gain and offset in the header")
        return cls(REFLECTANCE if is_reflectance else SCALED, gain, offset)

    def shown(self, numbers: Numbers) -> Numbers:
        """File numbers (bands, rows, columns) as they are shown."""
        gain, offset = (np.asarray(values, np.float64)[:, None, None] for values in (self.gain, self.offset))
        return np.asarray(numbers * gain + offset, np.float32)

    def spread(self, numbers: Numbers) -> Numbers:
        """A difference of file numbers as it is shown: it takes the gain, never the offset."""
        return np.asarray(numbers * np.abs(np.asarray(self.gain, np.float64))[:, None, None], np.float32)

    def of_map(self, unit: str) -> tuple[float, str]:
        """The factor from the numbers of a merged map, whose report calls its unit `unit`, to those shown; their
        unit.
        """
        if unit == FILE_UNITS and len(set(self.gain)) == 1:
            return abs(self.gain[0]), self.unit
        if unit == SCALED_UNITS:
            return 1.0, self.unit if self.unit != PLAIN else SCALED
        return 1.0, PLAIN if unit == FILE_UNITS else unit
