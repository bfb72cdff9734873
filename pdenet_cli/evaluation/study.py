"""The sampling study: how the scores of a random network grow with the number of its draws.

One long series of draws is cut into disjoint sets of N, for every N. So all N are compared on the same draws, the
first set of N is what `--samples N` alone would give, and no sub-network runs twice.
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

from pdenet_cli.evaluation.metrics import Tally, means_over
from pdenet_cli.evaluation.view import View
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.window import Window
from pdenet_cli.uncertainty.evidence import Evidence, Map, mean
from pdenet_cli.uncertainty.summaries import Question, Summary

METRICS = ("MPSNR", "SAM")  # those without a window around a pixel, so tiles need no margin
LEAST_SETS = 3  # disjoint sets of the largest N

DrawSet = tuple[int, int]  # number of draws, index of the first
EVERY_MASK_ONE: DrawSet = (0, 0)  # not drawn
Scores = dict[str, float]  # by metric


@dataclass(frozen=True)
class Sampled:
    """The scores of each set of N draws, as means over the scenes."""

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
    """The scores for every N, and those of the network with every mask at 1."""

    sampled: tuple[Sampled, ...]
    certain: Scores

    @classmethod
    def of(cls, scenes: Sequence[Mapping[DrawSet, Scores]]) -> Study:
        """The study of the scores of every set of draws on every scene."""
        means = means_over(scenes)
        certain = means.pop(EVERY_MASK_ONE)
        counts = dict.fromkeys(count for count, _ in means)
        sampled = (Sampled(n, tuple(scores for draws, scores in means.items() if draws[0] == n)) for n in counts)
        return cls(tuple(sampled), certain)


def draws_needed(samples: Sequence[int]) -> int:
    """The number of draws: for a study, enough for several sets of the largest N."""
    return max(samples) * (LEAST_SETS if len(samples) > 1 else 1)


def draw_sets(samples: Sequence[int], total: int) -> dict[DrawSet, Summary]:
    """Every set of `total` draws with the summary that is its mean; N is at most `total`."""
    return {
        (n, start): Summary(f"{n} draws from {start}", "", partial(_mean, start=start, count=n), "value")
        for n in sorted({min(n, total) for n in samples})
        for start in range(0, total - n + 1, n)
    }


def _mean(evidence: Evidence, question: Question, start: int, count: int) -> Map:
    return mean(evidence.samples[start : start + count])


class ScoreSink:
    """Scores what is written to it and keeps no pixels: there are too many sets to store a cube for each."""

    def __init__(self, truth: View, empty: Tally, read: Callable[[Window], tuple[Any, Any]]) -> None:
        """`read` is the truth's, or one that remembers what was read last."""
        self.truth, self.empty, self.read = truth, empty, read
        self.meta = CubeMeta(len(truth.bands), truth.part.rows, truth.part.columns, np.dtype(np.float32))
        self.tallies: dict[Window, Tally] = {}

    def write(self, window: Window, pixels: Pixels, bands: slice = slice(None)) -> None:
        """Score a window, of all bands at once: a spectrum has one angle."""
        target, valid_mask = self.read(window)
        tally = self.empty.empty()
        tally.add(window, self.truth.scene, pixels, target, valid_mask)
        # After running out of memory, a window is written again in smaller ones.
        for replaced in [scored for scored in self.tallies if scored.overlaps(window)]:
            del self.tallies[replaced]
        self.tallies[window] = tally

    def scores(self) -> Scores:
        """The scores of all that was written."""
        return reduce(add, self.tallies.values()).values()


def score_sinks(truth: View, empty: Tally, draw_sets: Iterable[DrawSet]) -> dict[DrawSet, ScoreSink]:
    """A sink for each set of draws; they read each window of the truth once for all."""
    read = lru_cache(maxsize=1)(truth.read)
    return {draws: ScoreSink(truth, empty, read) for draws in draw_sets}
