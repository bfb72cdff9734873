"""HDF5 and netCDF-4 against h5py and netCDF4, satellite products, and files that lead elsewhere."""

import dataclasses
import shlex
import subprocess
import sys
import tracemalloc

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.formats import hdf5, limits
from pdenet_cli.formats.labelled import ground_grid
from pdenet_cli.georeference import Georeference, GroundPoint
from tests.test_mat import full, numbers, shapes, write

SECRET = b"the secret of another file " * 40
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(
    shape=shapes,
    dtype=st.sampled_from(["i1", "u1", ">i2", "<u2", "<i4", "<u8", "<f2", ">f4", "<f8"]),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    seed=st.integers(0, 9),
)
def test_h5py_reads_what_we_write(shape, dtype, interleave, seed, tmp_path):
    pixels = numbers(shape, dtype, seed)
    write(tmp_path / "a.h5", pixels, interleave=interleave, variable="scene/reflectance")
    interleave = {"bil": "bsq"}.get(interleave, interleave)  # bands between rows and columns are not for GDAL
    with h5py.File(tmp_path / "a.h5") as file:
        dataset = file["scene/reflectance"]
        order = {"bsq": (0, 1, 2), "bip": (2, 0, 1)}[interleave]
        np.testing.assert_array_equal(dataset[()].transpose(order), pixels)
        assert dataset.dtype == np.dtype(dtype)
        assert sorted(dim[0].name for dim in dataset.dims) == ["/band", "/x", "/y"]
    with open_cube(tmp_path / "a.h5") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
        assert cube.meta.interleave == interleave


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr"])
def test_every_word_about_a_cube_survives(suffix, tmp_path):
    meta = write(tmp_path / f"a{suffix}", numbers((4, 5, 6), "<i2"), interleave="bip", **full())
    with open_cube(tmp_path / f"a{suffix}") as cube:
        assert dataclasses.replace(cube.meta, notes=()) == meta


@pytest.mark.parametrize("nodata", [-9999.0, float("nan"), 1e300, -3.4e38])
@pytest.mark.parametrize("dtype", ["<f4", "<i2", "<u8"])
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_nodata_survives_even_where_the_type_cannot_hold_it(suffix, dtype, nodata, tmp_path):
    write(tmp_path / f"a{suffix}", numbers((2, 3, 4), dtype), nodata=nodata)
    found = open_cube(tmp_path / f"a{suffix}").meta.nodata
    assert found == nodata or (found != found and nodata != nodata)


def test_more_attributes_than_64_kilobytes_survive(tmp_path):
    bands = 12000
    lists = dict(wavelengths=tuple(range(bands)), band_names=tuple(f"band {b}" for b in range(bands)))
    meta = write(tmp_path / "a.h5", numbers((bands, 2, 2), "u1"), **lists)
    with open_cube(tmp_path / "a.h5") as cube:
        assert cube.meta.wavelengths == meta.wavelengths
        assert cube.meta.band_names == meta.band_names


def test_an_interrupted_output_keeps_its_pixels(tmp_path):
    pixels, parts = numbers((4, 5, 7), "u1"), (tmp_path / "part",)
    meta = CubeMeta(*pixels.shape, pixels.dtype, **full())
    assert hdf5.FORMAT.create is not None
    hdf5.FORMAT.create(parts, meta).write(meta.window, pixels)
    before = parts[0].read_bytes()
    np.testing.assert_array_equal(hdf5.FORMAT.create(parts, meta).read(), pixels)
    assert parts[0].read_bytes() == before
    assert list(tmp_path.iterdir()) == [parts[0]]


def test_netcdf_tools_read_what_we_write(tmp_path):
    netcdf4 = pytest.importorskip("netCDF4")
    pixels = numbers((4, 5, 6), "<i2")
    write(tmp_path / "a.nc", pixels, **full() | dict(gains=(0.5,) * 4, offsets=(1.0,) * 4))
    with netcdf4.Dataset(tmp_path / "a.nc") as file:
        assert {name: len(d) for name, d in file.dimensions.items()} == dict(band=4, y=5, x=6)
        assert file["wavelength"][:].tolist() == [400.5, 401.5, 402.5, 403.5]
        np.testing.assert_array_equal(file["hsi"][:], pixels * 0.5 + 1)
        assert "UTM zone 16N" in file["spatial_ref"].crs_wkt


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_gdal_reads_where_a_netcdf_output_lies(interleave, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    place = dataclasses.replace(full()["georeference"], transform=(5e5, 30.0, 0.0, 4.6e6, 0.0, -30.0))
    pixels = numbers((4, 5, 6), "<i2")
    said = full() | dict(georeference=place, gains=None, offsets=None, interleave=interleave)
    write(tmp_path / "a.nc", pixels, **said)
    try:
        with rasterio.open(f"netcdf:{tmp_path / 'a.nc'}:hsi") as found:
            assert found.crs.to_epsg() == 32616
            assert found.transform.to_gdal() == place.transform
            assert found.nodata == -9999
            np.testing.assert_array_equal(found.read(), pixels)
    except rasterio.errors.RasterioIOError as error:
        pytest.skip(f"this GDAL has no netCDF driver: {error}")


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr"])
def test_bands_never_lie_between_rows_and_columns(suffix, tmp_path):
    pixels, path = numbers((4, 5, 6)), tmp_path / f"a{suffix}"
    write(path, pixels, interleave="bil")
    with open_cube(path) as cube:
        assert cube.meta.interleave == "bsq"
        np.testing.assert_array_equal(cube.read(), pixels)
        np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2)), pixels[:, 1:4, 2:4])


def test_types_that_netcdf_lacks_are_refused(tmp_path):
    with pytest.raises(OutputError, match="float16"):
        write(tmp_path / "a.nc", numbers((2, 3, 4), "f2"))


def make(path, **datasets):
    """An HDF5 file; a dataset may come with attributes and the names of its dimensions."""
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name.replace("__", "/")] = values
    return path


def test_the_axis_as_long_as_the_wavelengths_holds_the_bands(tmp_path):
    pixels = numbers((4, 5, 6))
    for axes, order in dict(brc=(0, 1, 2), rbc=(1, 0, 2), rcb=(1, 2, 0)).items():
        path = make(tmp_path / f"{axes}.h5", a__cube=pixels.transpose(order), meta__Wavelength=np.arange(4.0))
        with open_cube(path) as cube:
            np.testing.assert_array_equal(cube.read(), pixels)
            assert cube.meta.wavelengths == (0, 1, 2, 3)
            assert cube.meta.notes


def test_an_axis_that_nothing_tells_is_asked_for(tmp_path):
    pixels = numbers((4, 5, 6))
    path = make(tmp_path / "a.h5", cube=pixels)
    with pytest.raises(FormatError, match=r"cube \(4, 5, 6\) does not say which axis .* --axes"):
        open_cube(path)
    np.testing.assert_array_equal(open_cube(path, axes="brc").read(), pixels)
    with pytest.raises(UsageError, match="expected b, r and c"):
        open_cube(path, axes="bbr")
    path = make(tmp_path / "b.h5", cube=numbers((5, 5, 6)), wavelengths=np.arange(5.0))
    with pytest.raises(FormatError, match="--axes"):
        open_cube(path)
    square = open_cube(make(tmp_path / "c.h5", cube=numbers((5, 5, 6))))
    assert square.meta.shape() == (6, 5, 5)
    assert "equal" in square.meta.notes[0]


def test_dimension_names_attributes_and_coordinates_are_understood(tmp_path):
    pixels = numbers((5, 6, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["title"] = "a scene"
        cube = file.create_dataset("data", data=pixels.transpose(1, 0, 2), compression="gzip", shuffle=True)
        scales = dict(lon=10 + np.arange(6.0) / 4, lat=50 - np.arange(5.0) / 4, band=np.arange(4.0))
        for axis, (name, values) in enumerate(scales.items()):
            file[name] = values
            file[name].make_scale(name)
            cube.dims[axis].attach_scale(file[name])
        for name, units in dict(lon="degrees_east", lat="degrees_north", band="nm").items():
            file[name].attrs["units"] = units
        for name, value in dict(scale_factor=0.1, add_offset=2.0, missing_value=[-1], FWHM=[1, 2, 3, 4]).items():
            cube.attrs[name] = value
        cube.attrs["bbl"], cube.attrs["station"] = "1, 1, 0, 1", np.bytes_("here")
    with open_cube(tmp_path / "a.h5") as cube:
        np.testing.assert_array_equal(cube.read(), pixels.transpose(2, 0, 1))
        np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2)), pixels.transpose(2, 0, 1)[:, 1:4, 2:4])
        meta = cube.meta
    assert meta.wavelengths == (0, 1, 2, 3)
    assert meta.wavelength_units == "nm"
    assert (meta.gains, meta.offsets, meta.nodata) == ((0.1,) * 4, (2.0,) * 4, -1)
    assert meta.fwhm == (1, 2, 3, 4)
    assert meta.good_bands == (True, True, False, True)
    assert meta.georeference.transform == pytest.approx((9.875, 0.25, 0, 50.125, 0, -0.25))
    assert meta.georeference.crs == "EPSG:4326"
    assert meta.extra["station"] == "here"
    assert meta.extra["title"] == "a scene"


def test_several_cubes_are_listed(tmp_path):
    path = make(tmp_path / "a.h5", a__hsi=numbers((4, 5, 6)), b=numbers((4, 5, 3), "f4"), c=numbers((4, 5)))
    with pytest.raises(
        FormatError, match=r"2 three-dimensional .*b \(4, 5, 3\) float32.*a/hsi \(4, 5, 6\) uint16"
    ):
        open_cube(path)
    for name in ("/a/hsi", "a/hsi"):
        assert open_cube(path, variable=name, axes="rcb").meta.variable == "a/hsi"
    assert open_cube(path, variable="c").read().shape == (1, 4, 5)
    with pytest.raises(FormatError, match="no dataset 'nothing'"):
        open_cube(path, variable="nothing")


def test_a_soft_link_is_followed_inside_the_file_only(tmp_path):
    path = make(tmp_path / "a.h5", a__cube=numbers((4, 5, 5)))
    with h5py.File(path, "r+") as file:
        file["here"] = h5py.SoftLink("/a/cube")
        file["loop"] = h5py.SoftLink("/loop")
        file["a/itself"] = file["a"]
    np.testing.assert_array_equal(open_cube(path, variable="here").read(), numbers((4, 5, 5)))
    assert open_cube(path).meta.variable == "a/cube"
    with pytest.raises(FormatError, match="circles"):
        open_cube(path, variable="loop")


def sparse(path, dtype, fill, **said):
    """A dataset with one chunk that was never written."""
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("cube", (4, 8, 8), dtype, chunks=(4, 8, 4), fillvalue=fill)
        cube[:, :, :4] = 7
        cube.attrs.update(said)
    return open_cube(path).meta


@pytest.mark.parametrize(
    ("dtype", "fill", "nodata"),
    [
        ("i2", -999, -999),
        ("f4", 9.969209968386869e36, 9.969209968386869e36),  # what netCDF chooses
        ("f4", np.nan, np.nan),
        ("i2", None, None),
        ("i2", 0, None),
        ("u1", 200, 200),
        ("u1", 255, None),  # what netCDF chooses for bytes, all of which are data to its tools
        ("i1", -127, None),
        ("?", True, None),
    ],
)
def test_a_chosen_fill_value_is_nodata(dtype, fill, nodata, tmp_path):
    np.testing.assert_equal(sparse(tmp_path / "a.h5", dtype, fill).nodata, nodata)


def test_an_attribute_says_more_than_a_fill_value(tmp_path):
    assert sparse(tmp_path / "a.h5", "i2", -999, missing_value=-5).nodata == -5


def test_one_of_two_missing_values_is_nodata_and_the_other_is_named(tmp_path):
    meta = sparse(tmp_path / "a.h5", "i2", None, missing_value=-2, _FillValue=np.array([-1], "i2"))
    assert meta.nodata == -1
    assert "missing_value -2 counts as data" in meta.notes[-1]
    meta = sparse(tmp_path / "b.h5", "i2", None, missing_value=[-3, -4])
    assert meta.nodata == -3
    assert "missing_value -4 counts as data" in meta.notes[-1]


def test_nan_needs_no_nodata_value_of_its_own(tmp_path):
    meta = sparse(tmp_path / "a.h5", "f4", None, _FillValue=np.float32(np.nan), missing_value=-9999.0)
    assert meta.nodata == -9999
    assert "counts as data" not in " ".join(meta.notes)


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files with ulimit")
@pytest.mark.parametrize("kilobytes", [4, 8])  # less than the words around the pixels, and less than both
def test_a_full_disk_ends_in_one_line_wherever_it_is_met(kilobytes, tmp_path):
    write(tmp_path / "scene.h5", numbers((4, 12, 12)))
    out = tmp_path / "out"
    out.mkdir()
    words = [sys.executable, "-m", "pdenet_cli", "upscale", tmp_path / "scene.h5", "-o", out / "fine.nc"]
    words += ["--model", "bicubic", "--scale", "2"]
    limit = f"ulimit -f {kilobytes}; exec "
    ran = subprocess.run(["bash", "-c", limit + shlex.join(map(str, words))], capture_output=True, text=True)
    assert ran.returncode == 5, ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(out.iterdir()) == []


def emit(path, rows=50, columns=40, bands=3):
    pixels = numbers((rows, columns, bands), "f4")
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("reflectance", data=pixels, chunks=(10, 10, 3), compression="gzip")
        cube.attrs["_FillValue"] = np.array([-9999], "f4")
        for axis, name in enumerate(("downtrack", "crosstrack", "bands")):
            file.create_dataset(name, (pixels.shape[axis],), ">f4").make_scale(name)
            cube.dims[axis].attach_scale(file[name])
        spectrum = file.create_group("sensor_band_parameters")
        spectrum["wavelengths"], spectrum["fwhm"] = np.array([400, 500, 600], "f4"), np.array([8, 8, 9], "f4")
        spectrum["wavelengths"].attrs["units"] = "nm"
        spectrum["good_wavelengths"] = np.array([1, 0, 1], "u1")
        row, column = np.mgrid[:rows, :columns]
        file["location/lat"], file["location/lon"] = 50 - row / 100, 8 + column / 100
        file["location/lat"][0, 0] = -9999
        file.attrs["geotransform"], file.attrs["instrument"] = [1.0, 1, 0, 4, 0, -1], "EMIT"
    return pixels


def test_an_emit_scene_knows_its_bands_and_its_place(tmp_path):
    pixels = emit(tmp_path / "emit.nc")
    with open_cube(tmp_path / "emit.nc") as cube:
        np.testing.assert_array_equal(cube.read(), pixels.transpose(2, 0, 1))
        meta = cube.meta
    assert meta.wavelengths == (400, 500, 600)
    assert meta.wavelength_units == "nm"
    assert meta.fwhm == (8, 8, 9)
    assert meta.good_bands == (True, False, True)
    assert meta.nodata == -9999
    assert len(meta.georeference.points) == 32 * 32 - 1
    assert meta.georeference.transform is None
    for point in meta.georeference.points:
        assert point.x == pytest.approx(8 + (point.column - 0.5) / 100)
        assert point.y == pytest.approx(50 - (point.row - 0.5) / 100)
    assert "1023 points" in " ".join(meta.notes)
    assert "geotransform" not in meta.extra


def test_a_scene_across_180_degrees_lies_on_one_side_of_the_world(tmp_path):
    emit(tmp_path / "emit.nc")
    with h5py.File(tmp_path / "emit.nc", "r+") as file:
        east = 179.9 + np.mgrid[:50, :40][1] / 100
        file["location/lon"][:] = np.where(east > 180, east - 360, east)
    for point in open_cube(tmp_path / "emit.nc").meta.georeference.points:
        assert point.x == pytest.approx(179.9 + (point.column - 0.5) / 100)


def swath(rows=20, columns=30, system="EPSG:4326", left_out=0):
    """A place by points that no straight lines of equal steps join, upscaled by 2."""
    at = [(row, column) for row in (0, 4, 9) for column in (0, 3, 7, 14)][left_out:]
    points = tuple(
        GroundPoint(c + 0.5, r + 0.5, 8 + c / 100 + r * c / 1e4, 50 - r / 100 + r * r / 1e3) for r, c in at
    )
    return dict(georeference=Georeference(crs=system, points=points).upscaled(2)), numbers((3, rows, columns))


def degrees(path):
    """The latitudes and longitudes that others find in a file, and what they are called."""
    if path.suffix == ".zarr":
        group = pytest.importorskip("zarr").open_group(path, mode="r")
        return {name: group[name][:] for name in ("lat", "lon")}, group["cube"].attrs["coordinates"]
    with h5py.File(path) as file:
        assert [dim[0].name for dim in file["lat"].dims] == ["/y", "/x"]
        assert file["lat"].attrs["units"] == "degrees_north"
        return {name: file[name][()] for name in ("lat", "lon")}, file["cube"].attrs["coordinates"]


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr"])
def test_points_become_degrees_of_every_pixel_and_stay_points_to_us(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(ground_grid, "BLOCK_NUMBERS", 70)  # two rows at a time
    said, pixels = swath()
    path = tmp_path / f"a{suffix}"
    write(path, pixels, wavelengths=(1.0, 2.0, 3.0), **said)
    with open_cube(path) as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
        assert cube.meta.georeference == said["georeference"]
        assert not cube.meta.extra
    found, called = degrees(path)
    assert called == "wavelength lat lon"
    interpolate = pytest.importorskip("scipy.interpolate").RegularGridInterpolator
    points = said["georeference"].points
    at = sorted({p.row for p in points}), sorted({p.column for p in points})
    centres = np.moveaxis(np.mgrid[:20, :30] + 0.5, 0, -1)
    for name, known in (("lat", [p.y for p in points]), ("lon", [p.x for p in points])):
        between = interpolate(at, np.reshape(known, (3, 4)), bounds_error=False, fill_value=None)
        np.testing.assert_allclose(found[name], between(centres), rtol=1e-12)


@pytest.mark.parametrize("cut", [np.s_[4:, 6:], np.s_[::-1], np.s_[:-2]])
def test_points_are_not_believed_where_the_degrees_moved_with_the_pixels(cut, tmp_path):
    said, pixels = swath()
    write(tmp_path / "a.nc", pixels, **said)
    found, _ = degrees(tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        for name, values in dict(found, cube=pixels.transpose(1, 2, 0)).items():
            del file[name]
            file[name] = values[cut]
        file["cube"].attrs["grid_mapping"] = "spatial_ref"
    meta = open_cube(tmp_path / "a.nc", axes="rcb").meta
    if cut == np.s_[:-2]:  # the points still hold for what is left
        assert meta.georeference == said["georeference"]
        return
    assert len(meta.georeference.points) > 12
    lat = found["lat"][cut]
    for point in meta.georeference.points:
        assert point.y == lat[int(point.row), int(point.column)]


def test_points_that_are_no_grid_or_not_in_degrees_stay_what_they_are(tmp_path):
    for odd in (dict(left_out=1), dict(system="EPSG:32633"), dict(system=None)):
        said, pixels = swath(**odd)
        write(tmp_path / "a.nc", pixels, **said)
        assert open_cube(tmp_path / "a.nc").meta.georeference == said["georeference"]
        with h5py.File(tmp_path / "a.nc") as file:
            assert "lat" not in file


def test_an_interrupted_output_with_degrees_keeps_its_pixels(tmp_path):
    said, pixels = swath()
    meta, parts = CubeMeta(*pixels.shape, pixels.dtype, **said), (tmp_path / "part",)
    assert hdf5.FORMAT.create is not None
    hdf5.FORMAT.create(parts, meta).write(meta.window, pixels)
    before = parts[0].read_bytes()
    np.testing.assert_array_equal(hdf5.FORMAT.create(parts, meta).read(), pixels)
    assert parts[0].read_bytes() == before


def test_gdal_finds_the_degrees_of_every_pixel(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    said, pixels = swath()
    write(tmp_path / "a.nc", pixels, **said)
    try:
        with rasterio.open(f"netcdf:{tmp_path / 'a.nc'}:cube") as found:
            places, seen = found.tags(ns="GEOLOCATION"), found.read()
        with rasterio.open(places["Y_DATASET"]) as found:
            latitudes = found.read(1)
    except rasterio.errors.RasterioIOError as error:
        pytest.skip(f"this GDAL has no netCDF driver: {error}")
    assert places["X_DATASET"].endswith(":lon")
    # Without a coordinate for each row GDAL begins below, with the latitudes as with the pixels.
    np.testing.assert_array_equal(seen[:, ::-1], pixels)
    np.testing.assert_array_equal(latitudes[::-1], degrees(tmp_path / "a.nc")[0]["lat"])


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


LINES, PIXELS = 9, 7


def pace(path, level):
    """A file as those of PACE's ocean colour instrument, whose bands no usual name tells."""
    row, column = np.mgrid[:LINES, :PIXELS]
    if level == "L2":
        rows, columns, bands = "number_of_lines", "pixels_per_line", "wavelength_3d"
        cubes = {"geophysical_data/Rrs": ((rows, columns, bands), numbers((LINES, PIXELS, 4)))}
        sizes = {rows: LINES, columns: PIXELS, bands: 4, "number_of_bands": 6}
        lists = {"sensor_band_parameters/wavelength": (["number_of_bands"], 400 + 10 * np.arange(6))}
        lists["sensor_band_parameters/wavelength_3d"] = ([bands], 500 + 10 * np.arange(4))
    else:
        rows, columns = "scans", "pixels"
        cubes, lists, sizes = {}, {}, {rows: LINES, columns: PIXELS}
        for name, first, count in (("red", 600, 4), ("blue", 500, 4), ("SWIR", 900, 5)):
            sizes[f"{name}_bands"] = count
            axes = (f"{name}_bands", rows, columns)
            cubes[f"observation_data/rhot_{name}"] = (axes, numbers((count, LINES, PIXELS)))
            lists[f"sensor_band_parameters/{name}_wavelength"] = (axes[:1], first + 10 * np.arange(count))
    lists["navigation_data/latitude"] = ((rows, columns), np.float32(30 - row / 100))
    lists["navigation_data/longitude"] = ((rows, columns), np.float32(8 + column / 100))
    netcdf(path, cubes, sizes, lists)
    with h5py.File(path, "r+") as file:
        for name in lists:
            file[name].attrs["units"] = "nm" if "wavelength" in name else "degrees"
    return path


@pytest.mark.parametrize(
    ("level", "variable", "order"),
    [("L2", "geophysical_data/Rrs", (2, 0, 1)), ("L1B", "observation_data/rhot_blue", (0, 1, 2))],
)
def test_a_pace_scene_knows_its_bands_and_its_place(level, variable, order, tmp_path):
    path = pace(tmp_path / "a.nc", level)
    with open_cube(path, variable=variable) as cube:
        meta = cube.meta
        with h5py.File(path) as file:
            np.testing.assert_array_equal(cube.read(), file[variable][()].transpose(order))
    assert (meta.wavelengths, meta.wavelength_units) == ((500, 510, 520, 530), "nm")
    assert len(meta.georeference.points) == LINES * PIXELS
    for point in meta.georeference.points:
        assert point.x == pytest.approx(8 + (point.column - 0.5) / 100)
        assert point.y == pytest.approx(30 - (point.row - 0.5) / 100)
    assert "out of navigation_data/latitude and navigation_data/longitude" in meta.notes[-1]


def test_wavelengths_along_an_axis_tell_what_it_is(tmp_path):
    cubes = {"cube": (("here", "there", "up"), numbers((5, 5, 5)))}
    lists = {"lists/my_wavelengths_of_light": (["there"], 400.0 + np.arange(5))}
    meta = open_cube(netcdf(tmp_path / "a.nc", cubes, dict(here=5, there=5, up=5), lists)).meta
    assert meta.interleave == "bil"
    assert meta.wavelengths == (400, 401, 402, 403, 404)


def test_degrees_of_pixels_may_be_packed_and_place_only_what_nothing_else_does(tmp_path):
    row, column = np.mgrid[:5, :6]
    path = make(tmp_path / "a.h5", cube=numbers((5, 6, 4)), wavelength=np.arange(4.0), lat=row, lon=column)
    with h5py.File(path, "r+") as file:
        file["lat"].attrs["scale_factor"], file["lat"].attrs["add_offset"] = -0.5, 40.0
    points = open_cube(path).meta.georeference.points
    assert [(p.x, p.y) for p in points] == [(c, 40 - r / 2) for r in range(5) for c in range(6)]
    with h5py.File(path, "r+") as file:
        file["cube"].attrs["GeoTransform"] = "5 1 0 7 0 -1"
    assert not open_cube(path).meta.georeference.points
    for name, latitudes in (("b", row + 1000), ("c", row.astype("S3"))):  # none on Earth, and no numbers
        path = make(tmp_path / f"{name}.h5", cube=numbers((5, 6, 4)), lat=latitudes, lon=column)
        assert not open_cube(path, axes="rcb").meta.georeference.points


def test_points_of_somebody_else_are_no_points_on_the_ground(tmp_path):
    path = make(tmp_path / "a.h5", cube=numbers((4, 5, 5)))
    with h5py.File(path, "r+") as file:
        file["cube"].attrs.update(points=np.arange(10.0), rpc='{"a": 1}')
    assert open_cube(path).meta.georeference == Georeference()


@pytest.mark.parametrize(("dtype", "bits"), [("i1", 8), ("<i2", 16), (">i4", 32)])
@pytest.mark.parametrize("said", ["true", np.bytes_("true")])
def test_numbers_that_netcdf_calls_unsigned_have_no_sign(said, dtype, bits, tmp_path):
    pixels = numbers((4, 6, 6), dtype)
    pixels[:, 2:] *= -1
    with h5py.File(tmp_path / "a.nc", "w") as file:
        cube = file.create_dataset("cube", data=pixels, fillvalue=-1)
        cube.attrs["_Unsigned"], cube.attrs["_FillValue"] = said, np.array([-2], dtype)
        file["other"] = np.zeros(3)
    with open_cube(tmp_path / "a.nc") as cube:
        expected = pixels.astype("i8") % 2**bits
        np.testing.assert_array_equal(cube.read(), expected)
        np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2)), expected[:, 1:4, 2:4])
        assert cube.meta.dtype == np.dtype(dtype.replace("i", "u"))
        assert cube.meta.nodata == 2**bits - 2
        assert not cube.meta.extra
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        del file["cube"].attrs["_FillValue"]
    assert open_cube(tmp_path / "a.nc").meta.nodata == 2**bits - 1


@pytest.mark.parametrize(
    ("axes", "shape"),
    [(("time", "band", "y", "x"), (1, 4, 5, 6)), (("y", "x", "time", "band"), (5, 6, 1, 4))],
)
def test_an_axis_of_length_one_is_left_out_of_four(axes, shape, tmp_path):
    pixels = numbers(shape)
    path = netcdf(tmp_path / "a.nc", {"cube": (axes, pixels)}, dict(zip(axes, shape, strict=True)))
    expected = pixels.squeeze(axes.index("time")).transpose((0, 1, 2) if axes[1] == "band" else (2, 0, 1))
    for variable in (None, "cube"):
        with open_cube(path, variable=variable) as cube:
            np.testing.assert_array_equal(cube.read(), expected)
            np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2)), expected[:, 1:4, 2:4])
            assert "time has the length 1 and is left out" in cube.meta.notes


def test_four_axes_yield_to_a_cube_and_one_band_is_kept(tmp_path):
    path = make(tmp_path / "a.h5", cube=numbers((4, 5, 5)), other=numbers((1, 3, 5, 5)))
    assert open_cube(path).meta.variable == "cube"
    assert open_cube(path, variable="other").meta.shape() == (3, 5, 5)
    axes = ("band", "time", "y", "x")
    path = netcdf(tmp_path / "b.nc", {"cube": (axes, numbers((1, 1, 5, 6)))}, dict(band=1, time=1, y=5, x=6))
    meta = open_cube(path).meta
    assert meta.shape() == (1, 5, 6)
    assert "time has the length 1" in meta.notes[0]


def prisma(path, vnir=(990.0, 700.0, 400.0, 0.0), swir=(2400.0, 0.0, 950.0), centres=True):
    rows, columns = 6, 5
    cubes = {}
    with h5py.File(path, "w") as file:
        for name, centre in (("VNIR", vnir), ("SWIR", swir)):
            values = np.random.default_rng(len(centre)).integers(0, 65535, (rows, len(centre), columns), "u2")
            file[f"HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/{name}_Cube"] = cubes[name] = values
            file[f"HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/{name}_PIXEL_L2_ERR_MATRIX"] = values
            part = name.title()
            file.attrs[f"List_Cw_{part}"] = np.array(centre, "f4")
            file.attrs[f"List_Fwhm_{part}"] = np.array(centre, "f4") / 100
        for name, value in dict(VnirMin=0.0, VnirMax=0.5, SwirMin=0.1, SwirMax=0.7).items():
            file.attrs[f"L2Scale{name}"] = np.float32(value)
        reach = 1 if centres else 0
        file.attrs["Epsg_Code"] = 32632
        corners = dict(UL=(5e5, 4.6e6), LR=(5e5 + 30 * (columns - reach), 4.6e6 - 30 * (rows - reach)))
        for corner, (east, north) in corners.items():
            file.attrs[f"Product_{corner}corner_easting"] = east
            file.attrs[f"Product_{corner}corner_northing"] = north
        file.attrs["Product_StartTime"] = "2020-05-24"
    return cubes


@pytest.mark.parametrize("centres", [True, False])
def test_a_prisma_scene_joins_its_cubes_by_wavelength(centres, tmp_path):
    cubes = prisma(tmp_path / "prisma.he5", centres=centres)
    with open_cube(tmp_path / "prisma.he5") as cube:
        meta = cube.meta
        vnir, swir = cubes["VNIR"], cubes["SWIR"]
        expected = np.stack([vnir[:, 2], vnir[:, 1], swir[:, 2], vnir[:, 0], swir[:, 0]])
        np.testing.assert_array_equal(cube.read(), expected)
        np.testing.assert_array_equal(cube.read(Window(1, 2, 3, 2), slice(1, 4)), expected[1:4, 1:4, 2:4])
        np.testing.assert_array_equal(cube.read(bands=slice(3, None, -2)), expected[3::-2])
    assert meta.nodata == 0
    assert meta.wavelengths == (400, 700, 950, 990, 2400)
    assert meta.fwhm == pytest.approx((4, 7, 9.5, 9.9, 24))
    assert meta.offsets == pytest.approx((0, 0, 0.1, 0, 0.1))
    assert np.array(meta.gains) * 65535 == pytest.approx((0.5, 0.5, 0.6, 0.5, 0.6))
    shift = 15 if centres else 0
    assert meta.georeference.transform == pytest.approx((5e5 - shift, 30, 0, 4.6e6 + shift, 0, -30))
    assert meta.georeference.crs == "EPSG:32632"
    assert meta.extra["Product_StartTime"] == "2020-05-24"


def neon(path, **texts):
    texts = {"Map_Info": "UTM,  1, 1,  725000, 4701000,  1.0, 1.0, 18, North, WGS-84, units=Meters, 0"} | texts
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("HARV/Reflectance/Reflectance_Data", data=numbers((6, 5, 3), "<i2"))
        cube.attrs.update(
            {"Scale_Factor": 10000.0, "Data_Ignore_Value": -9999.0, "Spatial_Resolution_X_Y": [1.0, 1]}
        )
        data = file.create_group("HARV/Reflectance/Metadata")
        data["Spectral_Data/Wavelength"] = [400.0, 500.0, 600.0]
        for name, text in texts.items():
            data[f"Coordinate_System/{name}"] = text


def test_a_neon_scene_lies_where_its_map_info_says(tmp_path):
    neon(tmp_path / "a.h5", **{"EPSG Code": "32618"})
    meta = open_cube(tmp_path / "a.h5").meta
    assert (meta.shape(), meta.nodata, meta.reflectance_scale) == ((3, 6, 5), -9999, 10000)
    assert (meta.wavelengths, meta.wavelength_units) == ((400, 500, 600), "Nanometers")
    assert (meta.georeference.crs, meta.georeference.transform) == ("EPSG:32618", (725000, 1, 0, 4701000, 0, -1))
    assert not {"Scale_Factor", "Spatial_Resolution_X_Y"} & set(meta.extra)
    neon(tmp_path / "b.h5", **{"EPSG Code": "none"})
    assert open_cube(tmp_path / "b.h5").meta.georeference.crs == "EPSG:32618"  # by the zone
    for told in ("UTM, 1, 1, 725000, 4701000, 1, 1, rotation=much", "UTM, 1, 1", "UTM, a, b, c, d, e, f", [1.0]):
        neon(tmp_path / "c.h5", Map_Info=told)
        meta = open_cube(tmp_path / "c.h5").meta
        assert meta.georeference.transform is None
        assert any("not understood" in note for note in meta.notes) or told == [1.0]


def hostile(path, kind):
    """A file of the given kind, and which variable to ask for."""
    secret = path.with_name("secret.bin")
    secret.write_bytes(SECRET)
    other = make(path.with_name("other.h5"), cube=np.frombuffer(SECRET[:1000], "u1").reshape(10, 10, 10))
    huge = (20000, 20000, 20000)
    with h5py.File(path, "w") as file:
        if kind == "external storage":
            file.create_dataset("cube", (10, 10, 10), "u1", external=[(str(secret), 0, 1000)])
        elif kind == "external wavelengths":
            file["cube"] = numbers((4, 10, 10))
            file.create_dataset("wavelength", (4,), "u1", external=[(str(secret), 0, 4)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((10, 10, 10), "u1")
            layout[:] = h5py.VirtualSource(str(other), "cube", (10, 10, 10))
            file.create_virtual_dataset("cube", layout)
        elif kind in ("external link", "external link asked for"):
            file["cube"] = h5py.ExternalLink(str(other), "/cube")
        elif kind == "external group asked for":
            file["group"] = h5py.ExternalLink(str(other), "/")
        elif kind == "soft link that leads out":
            file["out"] = h5py.ExternalLink(str(other), "/")
            file["cube"] = h5py.SoftLink("/out/cube")
        elif kind == "dangling link":
            file["cube"] = h5py.SoftLink("/nowhere")
        elif kind == "eight terabytes never allocated":
            file.create_dataset("cube", huge, "u1")
        elif kind == "eight terabytes of chunks never written":
            file.create_dataset("cube", huge, "u1", chunks=(10, 10, 10), compression="gzip")
        elif kind == "eight terabytes and one chunk":
            file.create_dataset("cube", huge, "u1", chunks=(10, 10, 10))[:10, :10, :10] = 1
        elif kind == "a chunk too large for memory":
            cube = file.create_dataset(
                "cube", (1 << 10, 1 << 10, 600), "u1", chunks=(1 << 10, 1 << 10, 600), compression=9
            )
            cube.id.write_direct_chunk((0, 0, 0), bytes(1_000_000))
        elif kind == "compound":
            file["cube"] = np.zeros((4, 5, 6), [("a", "f4"), ("b", "i2")])
        elif kind == "variable length":
            file.create_dataset("cube", (4, 5, 6), h5py.vlen_dtype("u1"))
        elif kind == "texts":
            file["cube"] = np.full((4, 5, 6), b"text")
        elif kind == "references":
            file.create_dataset("cube", (4, 5, 6), h5py.ref_dtype)
        elif kind == "complex":
            file["cube"] = np.zeros((4, 5, 6), "c8")
        elif kind == "four axes":
            file["cube"] = numbers((2, 3, 4, 5))
        elif kind == "no axis is long":
            file["cube"] = numbers((4, 0, 5))
        elif kind == "null":
            file["cube"] = h5py.Empty("f4")
        elif kind == "a matrix only":
            file["cube"] = numbers((4, 5))
        elif kind == "unknown filter":
            plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plan.set_chunk((4, 5, 5))
            plan.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, ())
            space, number = h5py.h5s.create_simple((4, 5, 5)), h5py.h5t.NATIVE_UINT8
            h5py.h5d.create(file.id, b"cube", number, space, plan).write_direct_chunk((0, 0, 0), bytes(100))
        elif kind == "a damaged chunk":
            cube = file.create_dataset("cube", (4, 10, 10), "u1", chunks=(4, 10, 10), compression="gzip")
            cube.id.write_direct_chunk((0, 0, 0), b"\x78\x9c" + b"\xaa" * 50)
    return {"external link asked for": "cube", "external group asked for": "group/cube"}.get(
        kind, "cube" if "link that" in kind or kind == "dangling link" else None
    )


KINDS = """external storage; external wavelengths; virtual; external link; external link asked for;
external group asked for; soft link that leads out; dangling link; eight terabytes never allocated;
eight terabytes of chunks never written; eight terabytes and one chunk; a chunk too large for memory; compound;
variable length; texts; references; complex; four axes; no axis is long; null; a matrix only; unknown filter;
a damaged chunk; nothing""".replace("\n", " ").split("; ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_file_ends_in_one_line_and_shows_no_other_file(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 2_000_000_000)
    path = tmp_path / "a.h5"
    variable = hostile(path, kind)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as error:
            open_cube(path, variable=variable, axes="brc").read()
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert "a.h5" in str(error.value)
    assert "secret of" not in str(error.value)


def test_a_file_cut_anywhere_never_ends_in_a_traceback(tmp_path):
    write(tmp_path / "a.h5", numbers((4, 5, 6)), **full())
    whole = (tmp_path / "a.h5").read_bytes()
    for length in [*range(1, 64, 3), *range(64, len(whole), 499)]:
        (tmp_path / "b.h5").write_bytes(whole[:length])
        with pytest.raises(FormatError) as error:
            open_cube(tmp_path / "b.h5").read()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0, 1 << 20, (1 << 64) - 16])
def test_a_damaged_heap_is_refused_before_the_library_loops_over_it(length, tmp_path):
    write(tmp_path / "a.h5", numbers((4, 5, 6)), **full())
    content = bytearray((tmp_path / "a.h5").read_bytes())
    heap = content.index(b"GCOL")
    content[heap + 16 : heap + 18] = b"\0\0" if length == 0 else content[heap + 16 : heap + 18]
    content[heap + 24 : heap + 32] = length.to_bytes(8, "little")
    (tmp_path / "a.h5").write_bytes(content)
    with pytest.raises(FormatError, match="heap"):
        open_cube(tmp_path / "a.h5")


def test_a_prisma_product_without_its_lists_is_named(tmp_path):
    prisma(tmp_path / "a.he5")
    with h5py.File(tmp_path / "a.he5", "r+") as file:
        del file.attrs["List_Cw_Swir"]
    with pytest.raises(FormatError, match="List_Cw_Swir is missing"):
        open_cube(tmp_path / "a.he5")


@pytest.mark.parametrize("version", [1, 2, 5])
def test_netcdf_3_is_refused_by_name(version, tmp_path):
    (tmp_path / "a.nc").write_bytes(b"CDF" + bytes([version]) + bytes(100))
    with pytest.raises(FormatError, match="netCDF-3 is not read"):
        open_cube(tmp_path / "a.nc")


def test_a_window_of_a_chunked_file_takes_little_memory(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        cube = file.create_dataset("cube", (100, 1000, 1000), "u2", chunks=(10, 50, 50), compression="gzip")
        cube[:10, :50, :50] = 7
    tracemalloc.start()
    try:
        with open_cube(tmp_path / "a.h5") as cube:
            assert (cube.read(Window(10, 10, 20, 20), slice(0, 10)) == 7).all()
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_real_netcdf_files_open_or_say_why_not(data):
    folder = data / "trial/envi_and_netcdf"
    for name in ("fake_EMIT_L2A.nc", "fake_EMIT_L2A_with_good_wavelengths.nc"):
        with open_cube(folder / name) as cube:
            assert cube.meta.variable == "reflectance"
            assert cube.meta.nodata == -9999
            assert len(cube.meta.georeference.points) == 4
            assert cube.read()[0].ravel().tolist() == [10, 20, 30, 40]
    with pytest.raises(FormatError, match=r"no three-dimensional variable of numbers\. It has some_var \(2, 2\)"):
        open_cube(folder / "fake_EMIT_L2B_MIN.nc")


def test_an_interrupted_write_leaves_no_file(tmp_path):
    meta = CubeMeta(3, 4, 5, np.dtype("u1"))
    with pytest.raises(ZeroDivisionError), create_cube(tmp_path / "a.h5", meta):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
