"""Cubes made on the fly: any pixels as a file or in memory, and a picture that a network can learn."""

from pathlib import Path

import numpy as np

from pdenet_cli import Cube, CubeMeta, create_cube, open_cube


def written(path: Path, pixels: np.ndarray, **meta: object) -> Path:
    """Writes (bands, rows, columns) as a cube that says `meta` of itself, and returns its path."""
    with create_cube(path, CubeMeta(*pixels.shape, pixels.dtype, **meta)) as cube:
        cube.write(cube.meta.window, pixels)
    return path


def in_memory(pixels: np.ndarray, **meta: object) -> Cube:
    """A cube of (bands, rows, columns) that is in no file and says `meta` of itself."""
    pixels = np.asarray(pixels)
    return Cube("cube", CubeMeta(*pixels.shape, pixels.dtype, **meta), pixels)


def picture(bands: int, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Something a network can learn: overlapping rectangles with smooth spectra."""
    rng = np.random.default_rng(seed)
    image = np.zeros((bands, rows, columns))
    for _ in range(30):
        row, column = rng.integers(rows), rng.integers(columns)
        spectrum = 0.5 + 0.4 * np.sin(np.linspace(0, rng.uniform(1, 6), bands) + rng.uniform(0, 6))
        part = np.s_[:, row : row + rng.integers(4, 20), column : column + rng.integers(4, 20)]
        image[part] = spectrum[:, None, None]
    return (10000 * image).astype("<u2")


def rewritten(path, pixels):
    """The cube at `path` again, with other pixels and all else that it said."""
    with open_cube(path) as cube:
        meta = cube.meta
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels)
