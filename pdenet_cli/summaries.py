"""How the Monte-Carlo samples of a tile become one map.

A summary of the samples y(1)..y(N) (0..1, mean m) gives one value per pixel and band, and may be merged over the
valid bands of a pixel into one.

| map   | formula                                       | unit               | merged over bands |
|-------|-----------------------------------------------|--------------------|-------------------|
| mean  | m                                             | the file's numbers | not merged        |
| std   | sqrt(sum (y(n) - m)² / (N - 1)), 0 for N = 1   | the file's numbers | root mean square  |
| share | 100 % x share of n with q(y(n)) != q(m)       | percent            | mean              |

q(y) = round(255·y), y clipped to 0..1: the 8-bit value of the paper. `share` depends on how near the mean is to a
rounding edge and saturates: a spread of 2/255 gives 80 % already. `std` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]  # (samples, bands, rows, columns), 0..1
Map = NDArray[np.float32]  # (bands, rows, columns)


@dataclass(frozen=True)
class Summary:
    """A map made of samples: its formula, its unit, and how the bands of a pixel become one value."""

    name: str
    says: str
    compute: Callable[[Samples], Map]
    unit: Literal["value", "spread", "percent"]
    needs_chance: bool = True  # useless for a network without randomness
    power: int = 1  # merged over bands as the power mean: 1 the mean, 2 the root mean square

    def addends(self, values: Map, there: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What a few bands add to the merged map, (bands, rows, columns) -> (rows, columns)."""
        powers: NDArray[np.float64] = np.where(there, values, 0).astype(np.float64) ** self.power
        return np.asarray(powers.sum(0))

    def merged(self, total: NDArray[np.float64], bands: NDArray[np.int64]) -> Map:
        """The merged map from the sum of all addends and how many bands were valid; NaN where none was."""
        average = np.divide(total, bands, out=np.full(total.shape, np.nan), where=bands > 0)
        return np.asarray(average ** (1 / self.power), np.float32)


def mean(samples: Samples) -> Map:
    """The mean of the samples."""
    return np.asarray(samples.mean(0, dtype=np.float32))


def std(samples: Samples) -> Map:
    """The standard deviation of the samples, with n - 1; zero for a single one."""
    if len(samples) == 1:
        return np.zeros_like(samples[0])
    return np.asarray(samples.std(0, ddof=1, dtype=np.float32))


def share(samples: Samples) -> Map:
    """The percentage of samples whose 8-bit value differs from that of the mean."""
    differ = eight_bit(samples) != eight_bit(mean(samples))
    return np.asarray(100 * differ.sum(0) / len(samples), np.float32)


def eight_bit(unit: NDArray[np.float32]) -> NDArray[np.uint8]:
    """0..1 as a number from 0 to 255."""
    return np.asarray(np.rint(255 * unit.clip(0, 1)), np.uint8)


MEAN = Summary("mean", "the sharpened cube", mean, "value", needs_chance=False)
MAPS = {
    summary.name: summary
    for summary in (
        Summary("std", "standard deviation of the samples", std, "spread", power=2),
        Summary("share", "samples whose 8-bit value is not the mean's", share, "percent"),
    )
}
"""The maps of `pdenet uncertainty`, by name; one more is one more entry."""
