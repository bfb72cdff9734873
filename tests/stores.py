"""MAT, HDF5, netCDF and Zarr: cubes that say all that a cube can, and files as other programs write them."""

import h5py
import numpy as np
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, create_cube
from pdenet_cli.scene.georeference import Georeference, GroundPoint

shapes = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


def numbers(shape, dtype="<u2", seed=0):
    return np.random.default_rng(seed).integers(0, 120, shape).astype(dtype)


def write(path, pixels, **fields):
    meta = CubeMeta(*pixels.shape, pixels.dtype, **fields)
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels)
    return meta


def full(bands=4):
    place = Georeference(
        transform=(5e5, 30.0, 1.0, 4.6e6, 2.0, -30.0),
        crs="EPSG:32616",
        pixel_is_point=True,
        anchor=(1.0, 2.0),
        points=(GroundPoint(0.5, 1.5, 10.0, 20.0, 3.0), GroundPoint(2, 3, 4, 5)),
        rpc={"LINE_OFF": "1", "SAMP_OFF": "2"},
        native={"map info": ("UTM", ("16", "North")), "geo keys": {34735: (1, 2, 3)}},
    )
    return dict(
        wavelengths=tuple(400.5 + b for b in range(bands)),
        wavelength_units="Nanometers",
        fwhm=(9.5,) * bands,
        good_bands=(True, False) * (bands // 2),
        band_names=tuple(f"bänd {b}, „{'x' * b}“" for b in range(bands)),
        default_bands=(2, 1, 0),
        nodata=-9999.0,
        reflectance_scale=1e4,
        gains=tuple(1.0 + b for b in range(bands)),
        offsets=(0.5,) * bands,
        variable="hsi",
        extra={"sensor type": "Made up", "a": 1, "b": [1, 2.5], "c": ["x", "y"], "naïve": "ü"},
        georeference=place,
    )


def check_interrupted(form, part, pixels, meta):
    """That a partial file that is opened again has its pixels, and not one other byte."""
    form.create((part,), meta).write(meta.window, pixels)
    before = part.read_bytes()
    np.testing.assert_array_equal(form.create((part,), meta).read(), pixels)
    assert part.read_bytes() == before


def make(path, **datasets):
    """An HDF5 file of these datasets; two underscores in a name lead into a group."""
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name.replace("__", "/")] = values
    return path


def netcdf(path, cubes, sizes, lists=None):
    """A netCDF-4 file of cubes and lists as {path: (names of the axes, numbers)}, its dimensions at the top."""
    with h5py.File(path, "w") as file:
        for name, size in sizes.items():
            file.create_dataset(name, (size,), ">f4").make_scale(name)
        for name, (axes, values) in {**cubes, **(lists or {})}.items():
            file[name] = values
            for place, axis in enumerate(axes):
                file[name].dims[place].attach_scale(file[axis])
    return path
