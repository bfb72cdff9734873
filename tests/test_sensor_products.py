"""Products of new sensors: opened without options, sharpened, and reopened by GDAL or xarray with all in place."""

import json

import h5py
import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint

from pdenet_cli import CubeMeta, open_cube
from pdenet_cli.formats import open_sigma
from pdenet_cli.formats.common import sigmas
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.sensors import SENSORS, sensor_of
from tests.command import run
from tests.stores import numbers, write
from tests.test_products import emit, prisma
from tests.tiffs import gdal_file

xarray = pytest.importorskip("xarray")

BANDS, ROWS, COLUMNS = 5, 8, 7
WAVELENGTHS, FWHM = (400.0, 500.0, 600.0, 700.0, 800.0), (5.0, 5.5, 6.0, 6.5, 7.0)
STRUCTURE = """GROUP=GridStructure
\tGROUP=GRID_1
\t\tGridName="OTHER"
\t\tUpperLeftPointMtrs=(1.0,2.0)
\t\tLowerRightMtrs=(3.0,1.0)
\tEND_GROUP=GRID_1
\tGROUP=GRID_2
\t\tGridName="HYP"
\t\tXDim=7
\t\tYDim=8
\t\tUpperLeftPointMtrs=(500010.000000,4000020.000000)
\t\tLowerRightMtrs=(500220.000000,3999780.000000)
\t\tProjection=HE5_GCTP_UTM
\t\tZoneCode=-13
\tEND_GROUP=GRID_2
END_GROUP=GridStructure
"""


def tanager(path, kind, *cubes, epsg=32713):
    """A Tanager product with these cubes, its kind SWATHS or GRIDS."""
    values = {}
    with h5py.File(path, "w") as file:
        group = file.create_group(f"HDFEOS/{kind}/HYP")
        for seed, name in enumerate(cubes):
            values[name] = np.random.default_rng(seed).uniform(0.05, 0.6, (BANDS, ROWS, COLUMNS)).astype("f4")
            values[name][:, 0, 0] = -9999
            cube = group.create_dataset(f"Data Fields/{name}", data=values[name])
            cube.attrs.update(wavelengths=WAVELENGTHS, fwhm=FWHM, good_wavelengths=[1, 1, 0, 1, 1])
            cube.attrs["_FillValue"] = np.float32(-9999)
        group["Data Fields/nodata_pixels"] = np.zeros((ROWS, COLUMNS), "u1")
        if kind == "GRIDS":
            file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(STRUCTURE)
            if epsg is not None:
                group.attrs["epsg_code"] = epsg
        else:
            row, column = np.mgrid[:ROWS, :COLUMNS]
            group["Geolocation Fields/Latitude"] = 30 - row / 100 + column / 5000
            group["Geolocation Fields/Longitude"] = 8 + column / 100 + row / 5000
    return values


def sharpened(scene, output, *options):
    """The cube that `pdenet upscale` makes of a scene, without a model that has to be trained."""
    done = run("upscale", scene, "-o", output, "--model", "bicubic", "--scale", "2", *options)
    assert done.returncode == 0, done.stderr
    return open_cube(output).meta


def told(path, *options):
    """What `pdenet info --json` says of a scene."""
    done = run("info", path, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


REFLECTANCES = ("surface_reflectance", "surface_reflectance_uncertainty")


@pytest.mark.parametrize("cubes", [REFLECTANCES, (*REFLECTANCES, "toa_radiance")])
def test_tanager_basic_is_its_reflectance_in_sensor_geometry(cubes, tmp_path):
    values = tanager(tmp_path / "a.h5", "SWATHS", *cubes)
    with open_cube(tmp_path / "a.h5") as cube:
        meta, pixels = cube.meta, cube.read()
        with open_sigma(cube) as sigma:
            np.testing.assert_array_equal(sigma.read(), values["surface_reflectance_uncertainty"])
            assert "1-sigma" in sigma.meta.product
    np.testing.assert_array_equal(pixels, values["surface_reflectance"])
    assert (meta.wavelengths, meta.fwhm, meta.nodata) == (WAVELENGTHS, FWHM, -9999)
    assert meta.good_bands == (True, True, False, True, True)
    assert len(meta.georeference.points) == ROWS * COLUMNS
    assert meta.product == "Tanager basic (swath): surface reflectance"
    assert "Tanager" in run("info", tmp_path / "a.h5").stdout
    sharpened(tmp_path / "a.h5", tmp_path / "b.nc")
    with xarray.open_dataset(tmp_path / "b.nc", group="HDFEOS/SWATHS/HYP/Data Fields") as found:
        sizes = dict(found["surface_reflectance"].sizes)
        assert (sizes["band"], sizes["y"], sizes["x"]) == (BANDS, 2 * ROWS, 2 * COLUMNS)
        assert np.isnan(found["surface_reflectance"].values).any()  # nodata is declared as such
    with xarray.open_dataset(tmp_path / "b.nc") as found:
        np.testing.assert_allclose(found["wavelength"], WAVELENGTHS)
        assert found["lat"].shape == (2 * ROWS, 2 * COLUMNS)
        assert float(found["lon"].mean()) == pytest.approx(8.03, abs=0.02)


def test_tanager_radiance_is_read_where_there_is_no_reflectance(tmp_path):
    values = tanager(tmp_path / "a.h5", "SWATHS", "toa_radiance")
    with open_cube(tmp_path / "a.h5") as cube:
        np.testing.assert_array_equal(cube.read(), values["toa_radiance"])
        assert cube.meta.product == "Tanager basic (swath): radiance"
        assert open_sigma(cube) is None


@pytest.mark.parametrize("epsg", [32713, None])
def test_tanager_ortho_lies_where_its_corners_say(epsg, tmp_path):
    tanager(tmp_path / "a.h5", "GRIDS", *REFLECTANCES, epsg=epsg)
    meta = open_cube(tmp_path / "a.h5").meta
    assert meta.georeference.crs == "EPSG:32713"  # without a code by the zone, which is south
    assert meta.georeference.transform == (500010, 30, 0, 4000020, 0, -30)
    assert meta.product == "Tanager ortho: surface reflectance"
    assert meta.sigma.endswith("surface_reflectance_uncertainty")
    sharpened(tmp_path / "a.h5", tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.crs.to_epsg() == 32713
        assert tuple(found.transform)[:6] == (15, 0, 500010, 0, -15, 4000020)
        assert found.nodata == -9999
        assert float(found.tags(2)["wavelength"]) == 500
        assert float(found.tags(2, ns="IMAGERY")["CENTRAL_WAVELENGTH_UM"]) == 0.5
        assert float(found.tags(2, ns="IMAGERY")["FWHM_UM"]) == 0.0055


@pytest.mark.parametrize("text", ["", "UpperLeftPointMtrs=(a,b)", 'GridName="HYP" UpperLeftPointMtrs=(1,2,3)'])
def test_a_structure_that_is_not_understood_is_named_and_no_place_invented(text, tmp_path):
    tanager(tmp_path / "a.h5", "GRIDS", *REFLECTANCES)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["HDFEOS INFORMATION/StructMetadata.0"]
        file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text or " ")
    meta = open_cube(tmp_path / "a.h5").meta
    assert meta.georeference.transform is None
    assert any("StructMetadata.0 is not understood" in note for note in meta.notes)


def wyvern(path, dtype, crs, transform, **more):
    pixels = numbers((BANDS, ROWS, COLUMNS), dtype)
    tags = {
        band + 1: {"Wavelength": WAVELENGTHS[band], "FWHM": FWHM[band], "Wavelength_Units": "nm"}
        for band in range(BANDS)
    }
    place = rasterio.Affine(*transform)
    gdal_file(path, pixels, crs=crs, transform=place, tags=tags, **more)
    return pixels


def test_wyvern_radiance_keeps_its_wavelengths_and_its_oblong_degrees(tmp_path):
    path = tmp_path / "wyvern_dragonette-001_20240812_L1B.tiff"
    wyvern(path, "f4", "EPSG:4326", (6e-5, 0, 10.5, 0, -5e-5, 52.25))
    meta = open_cube(path).meta
    assert (meta.wavelengths, meta.fwhm, meta.wavelength_units) == (WAVELENGTHS, FWHM, "nm")
    assert meta.georeference.transform == (10.5, 6e-5, 0, 52.25, 0, -5e-5)
    assert (meta.product, meta.reflectance_scale) == ("Wyvern L1B: radiance", None)
    assert not {"Wavelength", "FWHM", "Wavelength_Units"} & set(meta.extra)
    sharpened(path, tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.crs.to_epsg() == 4326
        assert found.transform.a == pytest.approx(3e-5)
        assert found.transform.e == pytest.approx(-2.5e-5)
        assert found.tags(1)["wavelength_units"] == "nm"


def test_wyvern_reflectance_has_its_scale(tmp_path):
    path = tmp_path / "a.tif"
    wyvern(path, "u2", "EPSG:32612", (5.3, 0, 5e5, 0, -5.3, 4e6))
    with rasterio.open(path, "r+") as file:
        file.scales = [1e-4] * BANDS
    meta = open_cube(path).meta
    assert meta.gains == (1e-4,) * BANDS
    assert meta.wavelengths == WAVELENGTHS
    sharpened(path, tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.scales == (1e-4,) * BANDS
    renamed = path.rename(tmp_path / "wyvern_x_L2A.tif")
    with rasterio.open(renamed, "r+") as file:
        file.scales = [1.0] * BANDS
    assert open_cube(renamed).meta.reflectance_scale == 10_000


def test_pixxel_counts_50000_as_reflectance_1_with_or_without_a_word_of_it(tmp_path):
    path = tmp_path / "PIXXEL_FF01_L2A.tif"
    pixels = numbers((BANDS, ROWS, COLUMNS), "u2") * 400
    gdal_file(path, pixels, crs="EPSG:32612", transform=rasterio.Affine(5, 0, 5e5, 0, -5, 4e6))
    header = f"ENVI\nsamples = {COLUMNS}\nlines = {ROWS}\nbands = {BANDS}\ndata type = 12\ninterleave = bsq\n"
    header += (
        f"byte order = 0\nwavelength units = Nanometers\nwavelength = {{{', '.join(map(str, WAVELENGTHS))}}}\n"
    )
    path.with_suffix(".hdr").write_text(header)
    meta = open_cube(path).meta
    assert (meta.product, meta.reflectance_scale, meta.wavelengths) == ("Pixxel", 50_000, WAVELENGTHS)
    path.with_suffix(".hdr").write_text(header + "reflectance scale factor = 40000\n")
    assert open_cube(path).meta.reflectance_scale == 40_000  # the file knows better
    path.with_suffix(".hdr").write_text(header)
    again = sharpened(path, tmp_path / "b.tif")
    assert (again.reflectance_scale, again.wavelengths) == (50_000, WAVELENGTHS)
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.crs.to_epsg() == 32612
        assert float(found.tags()["reflectance_scale_factor"]) == 50_000


def test_gdals_imagery_domain_is_read_and_written(tmp_path):
    gdal_file(tmp_path / "a.tif", numbers((2, 6, 6), "u2"))
    with rasterio.open(tmp_path / "a.tif", "r+") as file:
        for band, (centre, width) in enumerate(((0.45, 0.0125), (2.2, 0.01)), 1):
            file.update_tags(band, ns="IMAGERY", CENTRAL_WAVELENGTH_UM=centre, FWHM_UM=width)
    meta = open_cube(tmp_path / "a.tif").meta
    assert (meta.wavelengths, meta.fwhm, meta.wavelength_units) == ((0.45, 2.2), (0.0125, 0.01), "Micrometers")
    write(tmp_path / "b.tif", numbers((2, 6, 6)), wavelengths=(450.0, 2200.0), wavelength_units="Nanometers")
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.tags(2, ns="IMAGERY") == {"CENTRAL_WAVELENGTH_UM": "2.2"}
        assert found.tags(2)["wavelength"] == "2200"
    assert open_cube(tmp_path / "b.tif").meta.wavelengths == (450, 2200)
    write(tmp_path / "c.tif", numbers((2, 6, 6)), wavelengths=(9000.0, 9500.0), wavelength_units="Wavenumber")
    with rasterio.open(tmp_path / "c.tif") as found:
        assert not found.tags(1, ns="IMAGERY")


def test_emits_1_sigma_is_found_in_the_file_beside_it_and_named_as_such(tmp_path):
    values, beside = (tmp_path / f"EMIT_L2A_{kind}_001_20230101.nc" for kind in ("RFL", "RFLUNCERT"))
    pixels = emit(values)
    assert open_cube(values).meta.sigma is None
    emit(beside)
    with h5py.File(beside, "r+") as file:
        file.move("reflectance", "reflectance_uncertainty")
    with open_cube(values) as cube:
        assert (cube.meta.product, cube.meta.sigma) == ("EMIT L2A", beside.name)
        with open_sigma(cube) as sigma:
            assert sigma.path == beside
            np.testing.assert_array_equal(sigma.read(), pixels.transpose(2, 0, 1))
    meta = open_cube(beside).meta
    assert meta.product == "EMIT L2A: 1-sigma"
    assert any("standard deviations" in note for note in meta.notes)
    assert told(values)["sigma"] == beside.name


@pytest.mark.parametrize("name", ["Reflectance_Uncertainty", "std_Reflectance_Data", "sigma_of_reflectance"])
def test_a_cube_beside_reflectance_that_is_named_its_1_sigma_is_not_taken_for_it(name, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["HARV/Reflectance/Reflectance_Data"] = numbers((6, 5, 3), "<i2")
        file[f"HARV/Reflectance/{name}"] = numbers((6, 5, 3), "<i2", 1)
        file["HARV/Reflectance/Metadata/Spectral_Data/Wavelength"] = [400.0, 500.0, 600.0]
    meta = open_cube(tmp_path / "a.h5").meta
    assert meta.variable == "HARV/Reflectance/Reflectance_Data"
    assert meta.sigma == f"HARV/Reflectance/{name}"
    assert meta.product == "NEON surface reflectance"


def test_names_of_standard_deviations_are_those_of_their_own_cube_only():
    assert sigmas.sigma_of("a/rfl", ["a/rad_uncertainty", "b/rfl_uncertainty", "a/rfl_std"]) == "a/rfl_std"
    assert sigmas.sigma_of("a/standard", ["a/stdx", "a/x_std"]) is None
    assert sigmas.is_sigma("x/reflectance_uncertainty")
    assert not sigmas.is_sigma("x/standardised_reflectance")


@pytest.mark.parametrize("part", ["VNIR", "SWIR"])
@pytest.mark.parametrize("full", [False, True])
def test_half_of_a_prisma_cube_is_chosen_by_its_short_name(part, full, tmp_path):
    cubes = prisma(tmp_path / "a.he5")
    name = f"{'HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/' if full else ''}{part}_Cube"
    with open_cube(tmp_path / "a.he5", variable=name) as cube:
        meta, pixels = cube.meta, cube.read()
    order = {"VNIR": [2, 1, 0], "SWIR": [2, 0]}[part]
    np.testing.assert_array_equal(pixels, cubes[part].transpose(1, 0, 2)[order])
    assert meta.wavelengths == {"VNIR": (400, 700, 990), "SWIR": (950, 2400)}[part]
    assert meta.georeference.crs == "EPSG:32632"
    assert (meta.product, meta.nodata) == ("PRISMA L2D", 0)
    assert meta.gains is not None
    sharpened(tmp_path / "a.he5", tmp_path / "b.tif", "--var", name)
    with rasterio.open(tmp_path / "b.tif") as found:
        assert (found.count, found.crs.to_epsg()) == (len(order), 32632)


def test_any_dataset_is_found_by_the_last_part_of_its_name_unless_two_have_it(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["one/deep/cube"], file["two/other"], file["two/deep/other"] = numbers((6, 5, 3)), [1], [2]
    assert open_cube(tmp_path / "a.h5", variable="cube", axes="rcb").meta.variable == "one/deep/cube"
    done = run("info", tmp_path / "a.h5", "--var", "other")
    assert (done.returncode, "no dataset 'other'" in done.stderr) == (3, True)


def test_geozarrs_attributes_stand_beside_todays_and_are_read_without_them(tmp_path):
    zarr = pytest.importorskip("zarr")
    place = Georeference(transform=(5e5, 30.0, 0.0, 4e6, 0.0, -20.0), crs="EPSG:32612")
    write(tmp_path / "a.zarr", numbers((3, 8, 7)), georeference=place)
    attrs = dict(zarr.open_group(tmp_path / "a.zarr", mode="r")["cube"].attrs)
    assert attrs["proj:code"] == "EPSG:32612"
    assert attrs["spatial:transform"] == [30, 0, 5e5, 0, -20, 4e6]  # Affine's order
    assert attrs["spatial:bbox"] == [5e5, 4e6 - 160, 5e5 + 210, 4e6]
    assert (attrs["spatial:shape"], attrs["spatial:dimensions"]) == ([8, 7], ["y", "x"])
    assert {convention["name"] for convention in attrs["zarr_conventions"]} == {"proj:", "spatial:"}
    meta = open_cube(tmp_path / "a.zarr").meta
    assert meta.georeference == place
    assert not meta.extra  # made anew for every output, not copied
    with xarray.open_zarr(tmp_path / "a.zarr") as found:
        assert "crs_wkt" in found["spatial_ref"].attrs

    group = zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=3)
    group.attrs.update({"proj:code": "EPSG:32612", "spatial:transform": [30, 0, 500015, 0, -20, 3999990]})
    group.attrs["spatial:registration"] = "node"
    group.create_array("cube", data=numbers((3, 8, 7)), dimension_names=("band", "y", "x"))
    assert open_cube(tmp_path / "b.zarr").meta.georeference == place


def test_a_rotated_grid_and_an_unnumbered_system_are_geozarr_too(tmp_path):
    zarr = pytest.importorskip("zarr")
    wkt = "+proj=laea +lat_0=10 +lon_0=20 +datum=WGS84"
    place = Georeference(transform=(5e5, 30.0, 1.0, 4e6, 2.0, -20.0), crs=rasterio.CRS.from_string(wkt).to_wkt())
    write(tmp_path / "a.zarr", numbers((3, 8, 7)), georeference=place)
    attrs = dict(zarr.open_group(tmp_path / "a.zarr", mode="r")["cube"].attrs)
    assert "proj:code" not in attrs
    assert rasterio.CRS.from_wkt(attrs["proj:wkt2"]).to_dict()["proj"] == "laea"
    assert attrs["spatial:transform"] == [30, 1, 5e5, 2, -20, 4e6]
    write(tmp_path / "b.zarr", numbers((3, 8, 7)))
    assert not any("spatial" in name for name in zarr.open_group(tmp_path / "b.zarr", mode="r")["cube"].attrs)


def test_a_scene_placed_by_points_has_no_grid_to_tell(tmp_path):
    points = [GroundControlPoint(row=r, col=c, x=8 + c, y=50 - r) for r in (0, 4) for c in (0, 5)]
    gdal_file(tmp_path / "a.tif", numbers((3, 6, 6)), gcps=points, crs="EPSG:4326")
    sharpened(tmp_path / "a.tif", tmp_path / "b.zarr")
    with xarray.open_zarr(tmp_path / "b.zarr") as found:
        assert not any(name.startswith("spatial:") for name in found["cube"].attrs)


def test_the_table_of_sensors_has_a_source_for_every_width():
    for sensor in SENSORS:
        assert 0.8 <= sensor.narrowest <= sensor.fwhm <= sensor.widest <= 2.5
        assert sensor.source
        assert 0.64 > sensor.mtf_at_nyquist[0] > sensor.mtf_at_nyquist[1] > 0  # a square pixel has 0.64
    assert sensor_of("Tanager ortho: radiance").name == "Tanager"
    assert sensor_of("NEON") is None
    assert sensor_of(None) is None


def test_a_cube_that_is_no_product_has_neither_a_name_nor_a_sigma(tmp_path):
    meta = write(tmp_path / "a.tif", numbers((3, 8, 7)))
    assert isinstance(meta, CubeMeta)
    found = open_cube(tmp_path / "a.tif").meta
    assert (found.product, found.sigma) == (None, None)
    assert told(tmp_path / "a.tif")["product"] is None
