"""Make of a folder of public cubes the folders that shipped models are trained, chosen and judged on.

    pip install tensorly && python examples/prepare_training_data.py DATA OUT

DATA holds folders cave, aviris, spectir, casi, enmap, kaist and neon. The scenes of weights/unseen.sha256 go to
OUT/unseen, those of weights/choosing.sha256 to OUT/choosing, all others to OUT/training. Most cubes are linked as
they are. EnMAP comes in tiles of 32 x 32 pixels, which are put together by their georeference into two rectangles
without holes; one CASI file holds three cubes, of which `Y` is the image; Indian Pines comes whole from the PyPI
package `tensorly`.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from tensorly.datasets import load_indian_pines

from pdenet_cli import Cube, CubeMeta, Window, create_cube, open_cube

WEIGHTS = Path(__file__).resolve().parent.parent / "weights"
AS_THEY_ARE = ("cave", "aviris", "spectir", "kaist", "neon")
RECTANGLES = {"enmap_a": Window(32, 0, 64, 64), "enmap_b": Window(0, 64, 128, 64)}  # of the mosaic


def main(data: Path, out: Path) -> None:
    """Fill `out`."""
    folder = {name: use for use in ("unseen", "choosing") for name in listed(use)}
    for use in ("training", "choosing", "unseen"):
        (out / use).mkdir(parents=True, exist_ok=True)
    for path in sorted(path for name in AS_THEY_ARE for path in (data / name).iterdir()):
        name = f"{path.parent.name}/{path.name}"
        link(path, out / folder.get(name, "training") / name.replace("/", "_"))
    training = out / "training"
    link(data / "casi" / "MUUFL_TAEF.mat", training / "MUUFL_TAEF.mat")
    with open_cube(data / "casi" / "muffle_dataset_130_90.mat", variable="Y") as cube:
        write(training / "muffle.hdr", replace(cube.meta, dtype=np.dtype("<f4")), cube.read())
    scene = load_indian_pines().tensor.transpose(2, 0, 1)
    write(training / "indian_pines.hdr", CubeMeta(*scene.shape, np.dtype("<u2")), scene)
    tiles = [open_cube(path) for path in sorted(data.glob("enmap/*.tif"))]
    for name, rectangle in RECTANGLES.items():
        meta, pixels = stitched(tiles, rectangle)
        write(training / f"{name}.tif", meta, pixels)


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
