"""DataArrays in, Datasets out: dimensions by what they hold, a finer grid, lazy input streamed."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio

xr = pytest.importorskip("xarray")
dask_array = pytest.importorskip("dask.array")
pytest.importorskip("rioxarray")

import pdenet_cli.xarray as pdenet_xarray  # noqa: E402
from pdenet_cli import Posterior, load_model, open_cube, sharpen  # noqa: E402
from pdenet_cli.errors import UsageError  # noqa: E402
from pdenet_cli.models.model import bicubic_model  # noqa: E402
from tests.cubes import picture  # noqa: E402

WAVES = np.linspace(430, 900, 6)
STEP = 30.0


@pytest.fixture(scope="module")
def posterior():
    return Posterior(load_model("general-x2"), 2, mixtures=0)


@pytest.fixture(scope="module")
def scene():
    """Six bands with wavelengths, widths, projected coordinates and a grid mapping, as rioxarray makes them."""
    pixels = picture(6, 18, 22)
    array = xr.DataArray(
        pixels.astype("f4"),
        dims=("wavelength", "y", "x"),
        coords={
            "wavelength": ("wavelength", WAVES, {"units": "nm"}),
            "fwhm": ("wavelength", np.full(6, 9.5), {"units": "nm"}),
            "y": 4_500_000.0 - STEP * (np.arange(18) + 0.5),
            "x": 300_000.0 + STEP * (np.arange(22) + 0.5),
            "cloud": (("y", "x"), np.arange(18 * 22).reshape(18, 22) % 2 == 0),
            "time": np.datetime64("2024-05-01"),
        },
        attrs={"units": "1", "long_name": "reflectance", "add_offset": 0.0, "map info": "{UTM, 1, 1}"},
        name="reflectance",
    )
    return array.rio.write_crs("EPSG:32633").rio.write_transform()


@pytest.fixture(scope="module")
def made(scene, posterior):
    return scene.pdenet.upscale(posterior)


def test_the_dataset_has_what_sharpen_gives(scene, posterior, made):
    assert set(made) == {"mean", "error", "low", "high"}
    plain = sharpen(scene.values, posterior, axes="brc", maps=("error", "interval"))
    for name, other in {"mean": "mean", "error": "error", "low": "interval_low", "high": "interval_high"}.items():
        assert made[name].dims == ("wavelength", "y", "x")
        np.testing.assert_array_equal(made[name], plain[other])
    assert made.attrs["model"] == "general-x2"
    assert made.attrs["samples"] == 2


@pytest.mark.parametrize("order", list(itertools.permutations(("wavelength", "y", "x")))[1:])
def test_the_order_of_dimensions_does_not_matter(scene, posterior, made, order):
    turned = pdenet_xarray.upscale(scene.transpose(*order), posterior, maps=())
    assert turned["mean"].dims == order
    np.testing.assert_array_equal(turned["mean"].transpose(*made["mean"].dims), made["mean"])


def test_coordinates_attributes_and_coordinate_system_are_on_the_finer_grid(scene, made):
    np.testing.assert_allclose(made.x, 300_000 + STEP / 2 * (np.arange(44) + 0.5), rtol=0, atol=1e-6)
    np.testing.assert_allclose(made.y, 4_500_000 - STEP / 2 * (np.arange(36) + 0.5), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(made.wavelength, WAVES)
    np.testing.assert_array_equal(made.fwhm, scene.fwhm)
    np.testing.assert_array_equal(made.cloud[::2, 1::2], scene.cloud)
    assert made.time == scene.time
    assert made.rio.crs == scene.rio.crs
    assert made.rio.transform() == scene.rio.transform() @ scene.rio.transform().scale(0.5)
    assert made["mean"].attrs["long_name"] == "reflectance"
    assert made["mean"].attrs["units"] == made["error"].attrs["units"] == "1"
    assert "error" in made["error"].attrs["long_name"]
    assert "add_offset" in made["low"].attrs
    assert "add_offset" not in made["error"].attrs
    assert "map info" not in made["mean"].attrs


def test_other_readers_find_place_and_wavelengths_in_its_files(made, tmp_path):
    made["mean"].rio.to_raster(tmp_path / "mean.tif")
    with rasterio.open(tmp_path / "mean.tif") as file:
        assert file.crs.to_epsg() == 32633
        assert file.transform.a == STEP / 2
    made.to_netcdf(tmp_path / "made.nc")
    with xr.open_dataset(tmp_path / "made.nc", decode_coords="all") as back:
        assert back.rio.crs.to_epsg() == 32633
        assert back["mean"].rio.transform().a == STEP / 2
        np.testing.assert_array_equal(back.wavelength, WAVES)
    with open_cube(tmp_path / "made.nc", "mean") as cube:
        assert cube.meta.wavelengths_nm.tolist() == pytest.approx(WAVES.tolist())
        assert cube.meta.fwhm == (9.5,) * 6
        assert cube.meta.georeference.transform == pytest.approx((300_000, 15, 0, 4_500_000, 0, -15))


class Counting:
    """An array that counts what is read of it, at once and in all."""

    def __init__(self, pixels):
        self.pixels, self.shape, self.dtype, self.ndim = pixels, pixels.shape, pixels.dtype, pixels.ndim
        self.largest = self.total = 0

    def __getitem__(self, key):
        part = self.pixels[key]
        self.largest, self.total = max(self.largest, part.size), self.total + part.size
        return part


def test_a_lazy_array_is_never_loaded_and_gives_the_same(scene):
    posterior = Posterior(bicubic_model(2), 1)  # whose reach is short
    counting = Counting(np.tile(scene.values, (1, 16, 16)))
    lazy = xr.DataArray(
        dask_array.from_array(counting, chunks=(6, 32, 32)),
        dims=scene.dims,
        coords={"wavelength": scene.wavelength},
    )
    whole = xr.DataArray(counting.pixels, dims=lazy.dims, coords=lazy.coords).pdenet.upscale(posterior, maps=())
    streamed = lazy.pdenet.upscale(posterior, maps=(), memory=2_000_000)
    tiles = streamed["mean"].data.npartitions
    assert counting.total <= 1.1 * counting.pixels.size  # looked over once, nothing sharpened yet
    assert tiles > 4
    part = streamed["mean"].isel(x=slice(0, 20), y=slice(0, 20)).values
    np.testing.assert_allclose(part, whole["mean"][:, :20, :20], rtol=1e-5, atol=0.01)
    assert counting.largest < counting.pixels.size / 10
    assert counting.total < 1.7 * counting.pixels.size  # the other tiles were not computed
    np.testing.assert_allclose(streamed["mean"], whole["mean"], rtol=1e-5, atol=0.01)
    assert counting.largest < counting.pixels.size / 10


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((4, 5, 6)), "Choose a variable"),
        (xr.DataArray(np.zeros((4, 5, 6))), r"dim_0 \(4\), dim_1 \(5\), dim_2 \(6\).*`spectral`"),
        (xr.DataArray(np.zeros((4, 5)), dims=("y", "x")), "A cube has bands"),
        (xr.DataArray(np.zeros((2, 4, 5, 6)), dims=("time", "band", "y", "x")), r"isel\(time=0\)"),
        (xr.DataArray(np.zeros((4, 5, 6), complex), dims=("band", "y", "x")), "complex128"),
    ],
)
def test_what_is_no_cube_is_refused_in_a_line(posterior, array, says):
    with pytest.raises(UsageError, match=says) as met:
        pdenet_xarray.upscale(array, posterior)
    assert "\n" not in str(met.value)


def test_bands_are_found_by_their_wavelengths_not_by_names_or_places(posterior):
    pixels = picture(6, 9, 10)
    as_swath = xr.DataArray(pixels.transpose(1, 2, 0), dims=("downtrack", "crosstrack", "bands"))
    plain = pdenet_xarray.upscale(as_swath, posterior, maps=())
    odd = as_swath.rename(downtrack="u", crosstrack="v", bands="w")
    with pytest.raises(UsageError, match="wavelengths as a coordinate"):
        pdenet_xarray.upscale(odd, posterior)
    by_hand = pdenet_xarray.upscale(odd, posterior, maps=(), spectral="w")
    in_microns = odd.assign_coords(centre=("w", WAVES / 1000, {"units": "um"}))
    found = pdenet_xarray.upscale(in_microns.expand_dims("time"), posterior, maps=())
    for other in (by_hand, found):
        np.testing.assert_array_equal(other["mean"].squeeze(), plain["mean"])
    with pytest.raises(UsageError, match="a posterior has its own"):
        pdenet_xarray.upscale(as_swath, posterior, scale=4)


def test_importing_pdenet_imports_no_xarray():
    code = "import sys, pdenet_cli.tools.arrays; sys.exit('xarray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_example_notebook_runs_as_a_script(tmp_path):
    script = Path(pdenet_xarray.__file__).parents[2] / "examples" / "notebook.py"
    if not script.is_file():
        pytest.skip("an installed package has no examples")
    subprocess.run([sys.executable, script, tmp_path / "picture.png"], check=True, capture_output=True)
    assert (tmp_path / "picture.png").stat().st_size > 20_000
