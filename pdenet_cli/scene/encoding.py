"""How a file stores numbers: their type, and the number that stands where there is no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.dtypes import as_stored, can_hold, limits
from pdenet_cli.scene.meta import CubeMeta


@dataclass(frozen=True)
class Encoding:
    """The type and the nodata value of one file: each output has its own, whatever its scene has."""

    dtype: np.dtype[Any]
    nodata: float | None = None

    @classmethod
    def of(cls, meta: CubeMeta) -> Self:
        """The encoding of a cube, in the machine's byte order."""
        return cls(meta.dtype.newbyteorder("="), meta.nodata)

    @property
    def hole(self) -> Any:
        """What stands where there is no data: the nodata value if the type can hold it, else NaN, else 0."""
        if self.nodata is not None and can_hold(self.dtype, self.nodata):
            return as_stored(self.nodata, self.dtype)
        return np.nan if self.dtype.kind == "f" else 0

    def encoded(self, numbers: NDArray[np.float64], valid_mask: NDArray[np.bool_]) -> Pixels:
        """Numbers rounded and clipped to the type, none of them equal to nodata, with `hole` where `valid_mask` is
        False; `numbers` is overwritten.
        """
        written = self._rounded(numbers)
        written[~valid_mask] = self.hole
        return written

    def beyond(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which numbers an integer type does not reach, so that `encoded` clips them."""
        if self.dtype.kind not in "ui":
            return np.zeros(numbers.shape, np.bool_)
        least, most = limits(self.dtype)
        whole = np.rint(numbers)
        return np.asarray((whole < least) | (whole > most))

    def _rounded(self, numbers: NDArray[np.float64]) -> Pixels:
        dtype, nodata = self.dtype, self.nodata
        if dtype.kind in "ui":
            np.rint(numbers, out=numbers)
        least, most = map(float, limits(dtype))
        # float64 rounds the largest 64-bit integers up, out of range: clip to the next number below.
        most = float(np.nextafter(most, 0)) if dtype.itemsize == 8 else most
        np.clip(numbers, least, most, out=numbers)
        # An estimate that happens to be the nodata value is still an estimate.
        if nodata is not None and dtype.kind in "ui":
            numbers[numbers == nodata] += -1 if nodata >= most else 1
        written = numbers.astype(dtype)
        if nodata is not None and dtype.kind == "f":
            with np.errstate(over="ignore"):
                stored = np.float64(nodata).astype(dtype)
            # The next number towards 0, as above the largest is infinity; beside 0 none that is flushed to 0.
            written[written == stored] = np.nextafter(stored, dtype.type(0)) if stored else np.finfo(dtype).tiny
        return written
