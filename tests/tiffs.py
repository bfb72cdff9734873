"""What the tests of TIFF share: a picture, files as GDAL writes them, and all that a cube can say of itself."""

import dataclasses
import math

import numpy as np
import rasterio

from pdenet_cli import CubeMeta
from pdenet_cli.scene.georeference import Georeference

PIXELS = np.random.default_rng(0).integers(0, 250, (5, 37, 50))
TURN = math.cos(math.radians(30)) * 30, math.sin(math.radians(30)) * 30
TRANSFORMS = {
    "plain": (500000.0, 30.0, 0.0, 4649000.0, 0.0, -20.0),
    "rotated": (500000.0, TURN[0], TURN[1], 4649000.0, TURN[1], -TURN[0]),
    "south up": (500000.0, 30.0, 0.0, 4649000.0, 0.0, 20.0),
}


def gdal_file(path, pixels, **options):
    bands, rows, columns = pixels.shape
    tags = options.pop("tags", {})
    settings = dict(driver="GTiff", count=bands, height=rows, width=columns, dtype=pixels.dtype) | options
    with rasterio.open(path, "w", **settings) as file:
        file.write(pixels)
        for band, values in tags.items():
            file.update_tags(band, **values)
    return path


def full_meta(**changes) -> CubeMeta:
    meta = CubeMeta(
        3,
        6,
        5,
        np.dtype("<i2"),
        wavelengths=(450.125, 550.25, 650.5),
        wavelength_units="Nanometers",
        fwhm=(5.5, 6.5, 7.5),
        good_bands=(True, False, True),
        band_names=("blue & cyan", 'a "green" <one>', "rot, grün"),
        default_bands=(2, 1, 0),
        nodata=-9999.0,
        reflectance_scale=10000.0,
        gains=(1e-4, 2e-4, 3e-4),
        offsets=(0.0, 0.5, -0.5),
        georeference=Georeference(transform=TRANSFORMS["plain"], crs="EPSG:32633"),
        variable="hsi",
        extra={"sensor type": "Hyperion", "description": "a\nb", "levels": "{1, 2}"},
    )
    return dataclasses.replace(meta, **changes)
