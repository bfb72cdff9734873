"""Cubes in memory and their pages, for the tests of what `pdenet uncertainty` shows."""

import dataclasses
import json
import re

import numpy as np

from pdenet_cli.pages.overview import Spectra
from pdenet_cli.pages.uncertainty import Facts, MapFacts, from_cubes
from tests.cubes import in_memory

STD = MapFacts("std", "standard deviation of the samples")
SHARE = MapFacts("share", "samples that differ", "percent")
FACTS = Facts("field", "general-x4", 8, (STD,), level=0.9)
BOTH = dataclasses.replace(FACTS, maps=(STD, SHARE))
SCALE = 4
WAVES = (450.0, 500.0, 550.0, 600.0, 650.0, 700.0)
ROWS, COLUMNS = 40, 60


def some_cubes(rows=ROWS, columns=COLUMNS, bands=6, seed=0):
    """An input, a mean of 16-bit numbers, the ends of its interval, its std, and that merged, and another merged
    map; a corner has no data.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    mean = np.stack([2000 + 30 * x + 10 * y + 100 * b for b in range(bands)]).astype("<u2")
    std = (rng.gamma(2.0, 20.0, (bands, rows, columns)) + 3 * x).astype("<f4")
    std[:, :5, :8] = np.nan
    mean[:, :5, :8] = 0
    merged = np.sqrt((std.astype("f8") ** 2).mean(0))[None].astype("<f4")
    coarse = mean[:, ::SCALE, ::SCALE] + rng.integers(1, 900, (bands, 1, 1)).astype("<u2")
    coarse[:, :2, :2] = 0
    told = dict(wavelengths=WAVES[:bands], wavelength_units="nm") if bands <= len(WAVES) else {}
    return dict(
        input=in_memory(coarse, nodata=0, **told),
        mean=in_memory(mean, nodata=0, **told),
        low=in_memory((mean - 3 * std).astype("<f4"), nodata=float("nan")),
        high=in_memory((mean + 2 * std).astype("<f4"), nodata=float("nan")),
        std=in_memory(std, nodata=float("nan")),
        std_merged=in_memory(merged, nodata=float("nan")),
        share=in_memory((y % 7 + x[None] / columns).astype("<f4"), nodata=float("nan")),
    )


def page_of(cubes, facts=FACTS):
    maps = [cubes["std_merged"], cubes["share"]][: len(facts.maps)]
    return from_cubes(cubes["input"], cubes["mean"], maps, facts, (cubes["low"], cubes["high"]))


def spectra_with(cubes, *maps, **words):
    return Spectra.of(cubes["mean"], [cubes[name] for name in maps or ("std_merged",)], cubes["input"], **words)


def facts_in(text):
    """What a page tells its script."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', text)[1])
