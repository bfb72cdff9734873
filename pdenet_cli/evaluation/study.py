"""The sampling study: how the scores of a model with chance grow with the number of its draws.

One long run of draws is cut into sets of N that share none, for every N. All N are thus judged by the same draws,
the first set of N is what `--samples N` alone would give, and no sub-network runs twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import add
from statistics import fmean, stdev
from typing import Any

import numpy as np

from pdenet_cli.cube import CubeMeta, Pixels, Window
from pdenet_cli.evaluation.view import View
from pdenet_cli.metrics import Tally, means_over
from pdenet_cli.summaries import Evidence, Map, Question, Summary, mean

METRICS = ("MPSNR", "SAM")  # neither looks around a pixel
LEAST_SETS = 3  # for the largest N

Take = tuple[int, int]  # how many draws, from which one on
EVERY_MASK_ONE: Take = (0, 0)  # no draw at all
Scores = dict[str, float]  # by metric


@dataclass(frozen=True)
class Sampled:
    """The scores of each set of N draws, the mean over the scenes."""

    samples: int
    sets: tuple[Scores, ...]

    def mean(self, metric: str) -> float:
        return fmean(scores[metric] for scores in self.sets)

    def std(self, metric: str) -> float:
        """The standard deviation over the sets; NaN for a single one."""
        values = [scores[metric] for scores in self.sets]
        return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


@dataclass(frozen=True)
class Study:
    """The scores for every N, and those of the same network with every mask at 1."""

    sampled: tuple[Sampled, ...]
    certain: Scores

    @classmethod
    def of(cls, scenes: Sequence[Mapping[Take, Scores]]) -> Study:
        """The study that the scores of every take on every scene make."""
        means = means_over(scenes)
        certain = means.pop(EVERY_MASK_ONE)
        counts = dict.fromkeys(count for count, _ in means)
        sampled = (Sampled(n, tuple(scores for take, scores in means.items() if take[0] == n)) for n in counts)
        return cls(tuple(sampled), certain)


def draws(samples: Sequence[int]) -> int:
    """How many draws it takes: for a study, enough for several sets of the largest N."""
    return max(samples) * (LEAST_SETS if len(samples) > 1 else 1)


def takes(samples: Sequence[int], total: int) -> dict[Take, Summary]:
    """Every set of `total` draws, and how it becomes one cube; no set is larger than that."""
    return {
        (n, start): Summary(f"{n} draws from {start}", "", partial(_mean, start=start, count=n), "value")
        for n in sorted({min(n, total) for n in samples})
        for start in range(0, total - n + 1, n)
    }


def _mean(evidence: Evidence, question: Question, start: int, count: int) -> Map:
    return mean(evidence.samples[start : start + count])


class ScoreSink:
    """Scores what is written to it and keeps no pixels: the cubes of so many sets would fit nowhere."""

    def __init__(self, truth: View, empty: Tally, read: Callable[[Window], tuple[Any, Any]]) -> None:
        """`read` is the truth's, or one that remembers what was read last."""
        self.truth, self.empty, self.read = truth, empty, read
        self.meta = CubeMeta(len(truth.bands), truth.part.rows, truth.part.columns, np.dtype(np.float32))
        self.tallies: dict[Window, Tally] = {}

    def write(self, window: Window, pixels: Pixels, bands: slice = slice(None)) -> None:
        """Score a window, of all bands at once: a spectrum has one angle."""
        target, there = self.read(window)
        tally = self.empty.empty()
        tally.add(window, self.truth.scene, pixels, target, there)
        # After running out of memory, a window is written again in smaller ones.
        for replaced in [other for other in self.tallies if _overlap(other, window)]:
            del self.tallies[replaced]
        self.tallies[window] = tally

    def scores(self) -> Scores:
        """The scores of all that was written."""
        return reduce(add, self.tallies.values()).values()


def score_sinks(truth: View, empty: Tally, takes: Iterable[Take]) -> dict[Take, ScoreSink]:
    """A sink for each set of draws; they read each window of the truth once for all."""
    read = lru_cache(maxsize=1)(truth.read)
    return {take: ScoreSink(truth, empty, read) for take in takes}


def _overlap(one: Window, other: Window) -> bool:
    rows = one.row < other.bottom and other.row < one.bottom
    return rows and one.column < other.right and other.column < one.right
