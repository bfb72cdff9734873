"""Cubes in memory and their pages, for the tests of what a page of a sharpened scene shows."""

import dataclasses
import json
import re
import zlib
from base64 import b64decode

import numpy as np

from pdenet_cli.pages.contents import PAGE_SIZE, MapShown, SceneShown
from pdenet_cli.pages.scene_page import Words, scene_page
from pdenet_cli.pages.shown import Shown
from tests.cubes import in_memory

WORDS = Words("field", "general-x4", 8, level=0.9, proof="It is proved.")
SCALE = 4
WAVES = (450.0, 500.0, 550.0, 600.0, 650.0, 700.0)
ROWS, COLUMNS = 40, 60


def some_cubes(rows=ROWS, columns=COLUMNS, bands=6, seed=0, noise=9, **meta):
    """An input, a mean of 16-bit numbers, half the width of its interval, its std, and that merged, and another
    merged map; a corner has no data.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    mean = np.stack([2000 + 30 * x + 10 * y + 100 * b for b in range(bands)])
    mean = (mean + rng.integers(0, noise, mean.shape)).astype("<u2")
    std = (rng.gamma(2.0, 20.0, (bands, rows, columns)) + 3 * x).astype("<f4")
    std[:, :5, :8] = np.nan
    mean[:, :5, :8] = 0
    merged = np.sqrt((std.astype("f8") ** 2).mean(0))[None].astype("<f4")
    coarse = mean[:, ::SCALE, ::SCALE] + rng.integers(1, 900, (bands, 1, 1)).astype("<u2")
    coarse[:, :2, :2] = 0
    told = dict(wavelengths=WAVES[:bands], wavelength_units="nm") if bands <= len(WAVES) else {}
    return dict(
        input=in_memory(coarse, nodata=0, **told),
        mean=in_memory(mean, nodata=0, **(told | meta)),
        half=in_memory(std, nodata=float("nan")),
        std=in_memory(std, nodata=float("nan")),
        std_merged=in_memory(merged, nodata=float("nan")),
        share=in_memory((y % 7 + x[None] / columns).astype("<f4"), nodata=float("nan")),
    )


def scene_of(cubes, maps=("std", "share"), **changes):
    """The scene of these cubes, with the interval."""
    known = {
        "std": MapShown(
            "std", "std of the samples", "spread", ", merged", "K", Shown(cubes["std_merged"]), False, True,
            Shown(cubes["std"]),
        ),
        "share": MapShown("share", "samples that differ", "share", "", "percent", Shown(cubes["share"]), True),
    }  # fmt: skip
    scene = SceneShown(
        Shown(cubes["input"]),
        Shown(cubes["mean"]),
        "K",
        tuple(known[name] for name in maps),
        Shown(cubes["half"]),
        "90 % interval",
    )
    return dataclasses.replace(scene, **changes)


def page_of(cubes, words=WORDS, size=PAGE_SIZE, **changes):
    return scene_page(scene_of(cubes, **changes), words, size)


def facts_in(text):
    """What a page tells its script."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', text)[1])


def parts_in(text):
    """The parts of a page by number, still packed."""
    return {int(number): b64decode(part) for number, part in re.findall(r'id="part-(\d+)">([^<]*)<', text)}


def unpacked(content, planes, rows, columns):
    """The codes of a part, another way than the page's own: value by value."""
    low, high = np.frombuffer(zlib.decompress(content), np.uint8).reshape(2, planes, rows, columns).astype(int)
    folded = low + 256 * high
    codes = np.zeros((planes, rows + 1, columns + 1), int)
    for p, row, column in np.ndindex(folded.shape):
        number = folded[p, row, column]
        difference = number // 2 if number % 2 == 0 else -(number + 1) // 2
        left, above, corner = codes[p, row + 1, column], codes[p, row, column + 1], codes[p, row, column]
        guess = sorted((left, above, left + above - corner))[1]
        codes[p, row + 1, column + 1] = (guess + difference) % 65536
    return codes[:, 1:, 1:]
