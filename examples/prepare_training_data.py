"""Make of a folder of public cubes the folders that shipped models are trained, chosen, calibrated and judged on.

    pip install tensorly && python examples/prepare_training_data.py DATA OUT

DATA holds folders cave, aviris, spectir, casi, enmap, kaist and neon. The scenes of weights/unseen.sha256 go to
OUT/unseen, those of weights/choosing.sha256 to OUT/choosing, others to OUT/training. NEON's many small plots would
outweigh all else, so one in four of them is trained on. Most cubes are linked as they are. EnMAP comes in tiles of
32 x 32 pixels, which are put together by their georeference into two rectangles without holes; one CASI file holds
three cubes, of which `Y` is the image; Indian Pines comes whole from the PyPI package `tensorly`.

OUT/calibrating-xSCALE gets what training at that scale never sees: the lower right quarters of training scenes,
cut out, where they are large enough, the scenes of OUT/choosing, and of NEON one plot a site.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from tensorly.datasets import load_indian_pines

from pdenet_cli import Cube, CubeMeta, Window, create_cube, open_cube
from pdenet_cli.training.data import held_out

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
AS_THEY_ARE = ("cave", "aviris", "spectir", "kaist", "neon")
SCALES = (2, 4, 8)
PLOTS_APART = 4  # of NEON, from one that is trained on to the next
SMALLEST_QUARTER = 8  # coarse pixels on a side of a quarter that is worth calibrating on
SUFFIXES = (".mat", ".tif", ".hdr")
RECTANGLES = {"enmap_a": Window(32, 0, 64, 64), "enmap_b": Window(0, 64, 128, 64)}  # of the mosaic


def main(data: Path, out: Path) -> None:
    """Fill `out`."""
    for use in ("training", "choosing", "unseen", *map(calibrating, SCALES)):
        (out / use).mkdir(parents=True, exist_ok=True)
    plots = link_as_they_are(data, out)
    training = out / "training"
    for path in plots[::PLOTS_APART]:
        link(path, training / f"neon_{path.name}")
    make_training_scenes(data, training)
    spare = [path for path in plots if path not in plots[::PLOTS_APART]]
    for scale in SCALES:
        fill_calibrating(out, spare, scale)


def link_as_they_are(data: Path, out: Path) -> list[Path]:
    """Link the cubes that need no change to the folders of their use; gives NEON's plots that are in no list."""
    folder = {name: use for use in ("unseen", "choosing") for name in listed(use)}
    plots = []
    for path in sorted(path for name in AS_THEY_ARE for path in (data / name).iterdir()):
        name = f"{path.parent.name}/{path.name}"
        if path.parent.name == "neon" and name not in folder:
            plots.append(path)
        else:
            link(path, out / folder.get(name, "training") / name.replace("/", "_"))
    return plots


def make_training_scenes(data: Path, training: Path) -> None:
    """The scenes that have to be put together or taken out of a file first."""
    link(data / "casi" / "MUUFL_TAEF.mat", training / "MUUFL_TAEF.mat")
    with open_cube(data / "casi" / "muffle_dataset_130_90.mat", variable="Y") as cube:
        write(training / "muffle.hdr", replace(cube.meta, dtype=np.dtype("<f4")), cube.read())
    scene = load_indian_pines().tensor.transpose(2, 0, 1)
    write(training / "indian_pines.hdr", CubeMeta(*scene.shape, np.dtype("<u2")), scene)
    tiles = [open_cube(path) for path in sorted(data.glob("enmap/*.tif"))]
    for name, rectangle in RECTANGLES.items():
        meta, pixels = stitched(tiles, rectangle)
        write(training / f"{name}.tif", meta, pixels)


def fill_calibrating(out: Path, spare: list[Path], scale: int) -> None:
    """What training at this scale never sees; `spare` are NEON's plots that are not trained on."""
    target = out / calibrating(scale)
    chosen_by = sorted((out / "choosing").iterdir())
    plots = [*spare, *(path for path in chosen_by if path.name.startswith("neon_"))]
    for name, path in {site(path): path for path in reversed(plots)}.items():
        link(path, target / f"neon_{name}.tif")
    for path in chosen_by:
        if path not in plots:
            link(path, target / path.name)
    for path in sorted((out / "training").iterdir()):
        if path.suffix in SUFFIXES and not path.name.startswith("neon_"):
            write_quarter(path, target, scale)


def calibrating(scale: int) -> str:
    """The folder of what training at this scale never sees."""
    return f"calibrating-x{scale}"


def site(plot: Path) -> str:
    """The site of a NEON plot, by its name, in which it is the only word of four capitals."""
    return next(word for word in plot.stem.split("_") if word.isupper())


def write_quarter(path: Path, folder: Path, scale: int) -> None:
    """The part of a training scene that training at this scale holds out, if it does, as a cube of its own."""
    with open_cube(path) as cube:
        quarter = held_out((cube.meta.rows, cube.meta.columns), scale)
        if quarter is not None and min(quarter.rows, quarter.columns) >= SMALLEST_QUARTER * scale:
            whole = cube.meta
            size = (whole.bands, quarter.rows, quarter.columns)
            kept = CubeMeta(*size, whole.dtype, nodata=whole.nodata, good_bands=whole.good_bands)
            write(folder / f"{path.stem}_quarter.hdr", kept, cube.read(quarter))


def listed(use: str) -> list[str]:
    """The scenes of one of the lists of weights/, by folder and name."""
    return [line.split()[1] for line in (WEIGHTS / f"{use}.sha256").read_text().splitlines()]


def stitched(tiles: list[Cube], rectangle: Window) -> tuple[CubeMeta, np.ndarray]:
    """A rectangle of the mosaic that the tiles make, each where its georeference says."""
    places = [tile.meta.georeference for tile in tiles]
    left = min(place.ground(0, 0)[0] for place in places)
    top = max(place.ground(0, 0)[1] for place in places)
    first = tiles[0].meta
    pixels = np.full((first.bands, rectangle.rows, rectangle.columns), np.nan, np.float32)
    for tile, place in zip(tiles, places, strict=True):
        x, y = place.ground(0, 0)
        row, column = round((top - y) / 30) - rectangle.row, round((x - left) / 30) - rectangle.column
        if 0 <= row < rectangle.rows and 0 <= column < rectangle.columns:
            pixels[:, row : row + tile.meta.rows, column : column + tile.meta.columns] = tile.read()
    assert np.isfinite(pixels).all(), "a tile is missing"
    corner = (left + 30 * rectangle.column, 30.0, 0.0, top - 30 * rectangle.row, 0.0, -30.0)
    where = replace(first.georeference, transform=corner)
    meta = replace(first, rows=rectangle.rows, columns=rectangle.columns, georeference=where, interleave="bsq")
    return meta, pixels


def link(path: Path, target: Path) -> None:
    """Let `target` be the cube without a copy."""
    target.unlink(missing_ok=True)
    target.symlink_to(path.resolve())


def write(path: Path, meta: CubeMeta, pixels: np.ndarray) -> None:
    """Write a whole cube."""
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels.astype(meta.dtype))


if __name__ == "__main__":
    if len(sys.argv) != 3 or not Path(sys.argv[1], "cave").is_dir():
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
