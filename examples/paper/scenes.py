"""The data sets of the paper as they are distributed: which cubes train, which test, and how values are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CUBES = (".mat", ".hdr", ".tif", ".tiff")
Words = tuple[str, ...]

# The paper drew 12 of the 32 scenes and does not name them. The first six are those that no training of this
# project may see (weights/unseen.sha256).
CAVE_TEST = (
    "balloons",
    "cloth",
    "fake_and_real_food",
    "hairs",
    "jelly_beans",
    "real_and_fake_apples",
    "beads",
    "chart_and_stuffed_toy",
    "egyptian_statue",
    "face",
    "oil_painting",
    "photo_and_face",
)
HARVARD_TEST = 5  # every fifth of the 50 scenes in the order of their names: the paper draws 10


@dataclass(frozen=True)
class Part:
    """Cubes, and the options of `pdenet` that read the wanted part of them."""

    cubes: tuple[Path, ...]
    words: Words = ()


@dataclass(frozen=True)
class DataSet:
    """A data set: its cubes to train on, and the parts to test on, of each of which the scores are a mean."""

    name: str
    bands: int
    rgb: tuple[int, int, int]  # bands to show as red, green and blue
    words: Words  # how values are read, in every command
    recipe: str
    train: Part
    tests: tuple[Part, ...]
    crop: int  # side of these parts


def cave(folder: Path, crop: int) -> DataSet:
    """31 PNGs of 16 bits in a folder for each scene, or a MAT file for each."""
    pictures = {file.parent for file in folder.rglob("*.png") if not file.name.startswith("._")}
    scenes = sorted({*pictures, *folder.rglob("*.mat")}, key=_cave_name)
    test = [scene for scene in scenes if _cave_name(scene) in CAVE_TEST]
    train = [scene for scene in scenes if scene not in test]
    part = Part(_given(test, folder), _window(0, 0, crop, crop))
    return DataSet(
        "cave", 31, (24, 14, 6), ("--range", "dtype"), "paper", Part(_given(train, folder)), (part,), crop
    )


def _cave_name(scene: Path) -> str:
    return scene.stem.removesuffix("_ms")


def harvard(folder: Path, crop: int) -> DataSet:
    """A MAT file for each scene, the cube is `ref` (`lbl` is a mask); the corner of a scene tests."""
    scenes = sorted(folder.rglob("*.mat"), key=lambda scene: scene.name)
    test = scenes[::HARVARD_TEST]
    train = [scene for scene in scenes if scene not in test]
    part = Part(_given(test, folder), _window(0, 0, crop, crop))
    words = ("--var", "ref", "--range", "max")
    return DataSet(
        "harvard", 31, (22, 13, 4), words, "paper,stride=64,block=256", Part(_given(train, folder)), (part,), crop
    )


def ncalm(folder: Path, crop: int) -> DataSet:
    """One scene, ENVI or TIFF; of its 50 bands the last two are no spectrum. Four squares at its left test."""
    scene = _given(cubes_in(folder), folder)[:1]
    rows, columns = size_of(scene[0])
    squares = [_window(row, column, crop, crop) for row in (0, crop) for column in (0, crop)]
    tests = tuple(Part(scene, window) for window in squares)
    train = Part(scene, _window(0, 2 * crop, rows, columns - 2 * crop))
    words = ("--bands", "0:48", "--range", "dtype")
    return DataSet("ncalm", 48, (19, 12, 5), words, "paper", train, tests, crop)


DATA_SETS: dict[str, Callable[[Path, int], DataSet]] = {"cave": cave, "harvard": harvard, "ncalm": ncalm}
"""Each data set from its folder and the side of the squares that test."""


def cubes_in(folder: Path) -> list[Path]:
    """The cubes in a folder at any depth, by their suffix."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in CUBES)


def size_of(cube: Path) -> tuple[int, int]:
    """Rows and columns of a cube."""
    from pdenet_cli import open_cube

    with open_cube(cube) as opened:
        return opened.meta.rows, opened.meta.columns


def _given(cubes: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    if not cubes:
        raise SystemExit(f"{folder}: no scenes to train on, or none of those that test. See README.md.")
    return tuple(cubes)


def _window(*numbers: int) -> Words:
    return ("--window", *map(str, numbers))


PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text())
"""The figures of the paper: MPSNR, MSSIM, SAM; millions of parameters; seconds; 10^12 multiply-adds."""
