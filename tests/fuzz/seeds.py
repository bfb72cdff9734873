"""What is damaged: a crop of the example scene as pdenet and other tools write it, weights, broken-off runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import imagecodecs
import numpy as np
import scipy.io
import tifffile

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.models.model import Model, bicubic_model, save_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.job import Job, Settings
from tests.cubes import written
from tests.stores import full

EXAMPLE = Path(__file__).parents[2] / "examples" / "indian_pines.hdr"
BANDS, ROWS, COLUMNS = 8, 12, 10
JOURNALED = ("hdr", "tif", "mat", "h5", "nc", "zarr")


def crop() -> tuple[np.ndarray, tuple[float, ...]]:
    """A corner of the example scene, and its wavelengths."""
    with open_cube(EXAMPLE) as cube:
        pixels = cube.read(Window(20, 30, ROWS, COLUMNS), slice(20, 20 + BANDS))
        return pixels, cube.meta.wavelengths[20 : 20 + BANDS]


def _own(suffix: str) -> Callable[[Path], Path]:
    """Writes the crop by pdenet itself, with all that a cube can say."""

    def make(folder: Path) -> Path:
        pixels, wavelengths = crop()
        fields = full(BANDS) | {"wavelengths": wavelengths}
        if suffix == "hdr":  # whose map info knows only upright grids
            fields["georeference"] = Georeference((5e5, 30.0, 0.0, 4.6e6, 0.0, -30.0), "EPSG:32616")
        meta = CubeMeta(*pixels.shape, np.dtype("<i2"), **fields)
        with create_cube(folder / f"scene.{suffix}", meta) as cube:
            cube.write(meta.window, pixels.astype("<i2"))
        return folder / f"scene.{suffix}"

    return make


def _envi(folder: Path) -> Path:
    pixels, wavelengths = crop()
    path = written(folder / "scene.bip", pixels, wavelengths=wavelengths, wavelength_units="Nanometers")
    with (folder / "scene.hdr").open("a") as file:
        file.write("map info = {UTM, 1, 1, 500000, 4600000, 30, 30, 16, North, WGS-84}\n")
        file.write('coordinate system string = {PROJCS["x",GEOGCS["GCS_WGS_1984"]]}\nbbl = {1,1,1,1,1,1,0,1}\n')
    return path


def _tiff(**options: object) -> Callable[[Path], Path]:
    """Writes the crop by tifffile, with these options."""

    def make(folder: Path) -> Path:
        pixels = crop()[0]
        if options.get("predictor") == 3:
            pixels = pixels.astype("f4")
        if options.get("planarconfig") == "contig":
            pixels = pixels.transpose(1, 2, 0)
        tifffile.imwrite(folder / "scene.tif", pixels, metadata=None, photometric="minisblack", **options)
        return folder / "scene.tif"

    return make


def _tiff_beside(folder: Path) -> Path:
    """A picture with what other tools leave beside it: an .aux.xml, a world file, EnMAP's metadata."""
    name = "ENMAP01-SPECTRAL_IMAGE.TIF"
    tifffile.imwrite(folder / name, crop()[0], metadata=None, photometric="minisblack")
    bands = "".join(
        f"<bandID><wavelengthCenterOfBand>{400 + b}</wavelengthCenterOfBand><FWHMOfBand>7</FWHMOfBand>"
        "<GainOfBand>0.0001</GainOfBand><OffsetOfBand>0</OffsetOfBand></bandID>"
        for b in range(BANDS)
    )
    text = f"<level_X><specific><bandCharacterisation>{bands}</bandCharacterisation></specific></level_X>"
    (folder / "ENMAP01-METADATA.XML").write_text(text)
    (folder / f"{name}.aux.xml").write_text(
        "<PAMDataset>" + "<PAMRasterBand band='1'><NoDataValue>-9</NoDataValue></PAMRasterBand>" + "</PAMDataset>"
    )
    (folder / "ENMAP01-SPECTRAL_IMAGE.tfw").write_text("30\n0\n0\n-30\n500000\n4600000\n")
    return folder / name


def _mat(folder: Path) -> Path:
    pixels, wavelengths = crop()
    inside = {"hsi": pixels.transpose(1, 2, 0), "wavelength": np.array(wavelengths), "name": "a crop"}
    scipy.io.savemat(
        folder / "scene.mat", {"scene": inside, "label": np.ones((ROWS, COLUMNS))}, do_compression=True
    )
    return folder / "scene.mat"


def _mat73(folder: Path) -> Path:
    pixels, wavelengths = crop()
    with h5py.File(folder / "scene.mat", "w", userblock_size=512) as file:
        cube = file.create_dataset("hsi", data=pixels.transpose(0, 2, 1), chunks=(4, 5, 6), compression="gzip")
        cube.attrs["MATLAB_class"] = np.bytes_("uint16")
        file["wavelength"] = np.array(wavelengths)[None]
        file["struct/fwhm"] = np.full((1, BANDS), 9.5)
    head = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM"
    with (folder / "scene.mat").open("r+b") as file:
        file.write(head)
    return folder / "scene.mat"


def _hdf5(folder: Path, *, suffix: str = "h5", **options: object) -> Path:
    """As netCDF writes it: chunks, dimension scales, texts, groups; in the library's newest layout on request."""
    pixels, wavelengths = crop()
    chunk = dict(chunks=(4, 5, 10), compression="gzip", shuffle=True)
    with h5py.File(folder / f"scene.{suffix}", "w", **options) as file:
        cube = file.create_dataset("reflectance", data=pixels.astype("f4"), **chunk)
        for axis, (name, size) in enumerate((("band", BANDS), ("y", ROWS), ("x", COLUMNS))):
            file[name] = np.arange(size, dtype="f8")
            file[name].make_scale(name)
            cube.dims[axis].attach_scale(file[name])
        cube.attrs.update(
            {"_FillValue": np.float32(-9999), "units": "1", "scale_factor": 1e-4, "grid_mapping": "crs"}
        )
        file.create_dataset("crs", data=0).attrs["spatial_ref"] = "EPSG:32616"
        file["sensor_band_parameters/wavelengths"] = np.array(wavelengths)
        file["sensor_band_parameters/names"] = np.array([f"b{b}" for b in range(BANDS)], dtype=h5py.string_dtype())
        file.create_dataset("labels", data=np.zeros((300, 4), "i4"), chunks=(7, 4), maxshape=(None, 4))
    return folder / f"scene.{suffix}"


def _zarr(folder: Path, **options: object) -> Path:
    import zarr

    pixels, wavelengths = crop()
    version = options["zarr_format"]
    group = zarr.open_group(str(folder / "scene.zarr"), mode="w", zarr_format=version)
    names = {} if version == 2 else {"dimension_names": ("band", "y", "x")}
    array = group.create_array("cube", shape=pixels.shape, dtype=pixels.dtype, **names, **options_but(options))
    array[:] = pixels
    array.attrs["_ARRAY_DIMENSIONS"] = ["band", "y", "x"]
    group.create_array("wavelength", data=np.array(wavelengths)).attrs["units"] = "nm"
    return folder / "scene.zarr"


def options_but(options: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name != "zarr_format"}


def _png(folder: Path) -> Path:
    for number, band in enumerate(crop()[0][:4]):
        (folder / f"scene_{400 + 10 * number}nm.png").write_bytes(imagecodecs.png_encode(band))
    return folder


def model_file(path: Path) -> Path:
    """An untrained network of the smallest kind."""
    import torch

    from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
    from pdenet_cli.models.spec import ModelSpec

    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    save_model(path, Model(ModelSpec("pdenet", dataclasses.asdict(config), 4, {}, "test"), PDENet(config)))
    return path


def _weights(folder: Path) -> Path:
    return model_file(folder / "model.safetensors")


def broken_off(suffix: str) -> Callable[[Path], Path]:
    """A run of six tiles that stopped after three; what it would have given is in `whole` beside the folder."""

    def make(folder: Path) -> Path:
        pixels = crop()[0]
        scene = written(folder / "scene.tif", pixels)
        (folder / "out").mkdir()
        for stop in (3, None):
            out = folder / "out" if stop else folder.parent / f"{folder.name}.whole"
            out.mkdir(exist_ok=True)
            job = Job(scene, out / f"fine.{suffix}", Posterior(bicubic_model(2), 1), Settings(tile=4))
            steps = job.run()
            for place, _ in enumerate(steps):
                if place == stop:
                    break
            steps.close()
        return scene

    return make


LATEST = dict(libver="latest")
SHARDED = dict(zarr_format=3, chunks=(4, 6, 5), shards=(8, 12, 10))
SEEDS: dict[str, tuple[Callable[[Path], Path], ...]] = {
    "envi": (_own("hdr"), _envi),
    "tiff": (
        _own("tif"), _tiff_beside, _tiff(compression="zstd", predictor=2, planarconfig="contig"),
        _tiff(compression="deflate", predictor=3, planarconfig="separate", tile=(16, 16)),
        _tiff(compression="lzw", rowsperstrip=3, planarconfig="contig", byteorder=">"),
        _tiff(extratags=[(317, 3, 1, 2, True)], planarconfig="contig"),
        _tiff(bigtiff=True, compression="lzma", planarconfig="contig"),
    ),
    "mat": (_own("mat"), _mat),
    "mat73": (_mat73,),
    "hdf5": (_own("h5"), _hdf5, lambda folder: _hdf5(folder, **LATEST)),
    "netcdf": (_own("nc"), lambda folder: _hdf5(folder, suffix="nc")),
    "zarr2": (_own("zarr"), lambda folder: _zarr(folder, zarr_format=2, chunks=(4, 6, 5))),
    "zarr3": (
        lambda folder: _zarr(folder, zarr_format=3, chunks=(4, 6, 5)), lambda folder: _zarr(folder, **SHARDED),
    ),
    "png": (_png,),
    "weights": (_weights,),
    "journal": tuple(map(broken_off, JOURNALED)),
}  # fmt: skip


def make_all(folder: Path, kinds: list[str]) -> dict[str, list[tuple[Path, Path]]]:
    """Every seed of these kinds in a folder of its own, with the path of its scene."""
    made: dict[str, list[tuple[Path, Path]]] = {}
    for kind in kinds:
        for place, make in enumerate(SEEDS[kind]):
            own = folder / f"{kind}{place}"
            own.mkdir()
            made.setdefault(kind, []).append((own, make(own)))
    return made


def header_of(content: bytes) -> tuple[dict[str, object], bytes]:
    """The header of a safetensors file and the numbers behind it."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]
