"""HDF5 and netCDF-4 against h5py and netCDF4, satellite products, and files that lead elsewhere."""

import dataclasses
import json
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
from pdenet_cli.formats import hdf5
from pdenet_cli.scene.georeference import Georeference
from tests.command import command
from tests.stores import check_interrupted, full, make, netcdf, numbers, shapes, write

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
    pixels, part = numbers((4, 5, 7), "u1"), tmp_path / "part"
    check_interrupted(hdf5.FORMAT, part, pixels, CubeMeta(*pixels.shape, pixels.dtype, **full()))
    assert list(tmp_path.iterdir()) == [part]


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


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr"])
@pytest.mark.parametrize(
    ("gains", "offsets", "spoken"),
    [
        ((0.1, 0.1), (2.0, 2.0), {"scale_factor": 0.1, "add_offset": 2.0}),
        ((0.1, 0.1), None, {"scale_factor": 0.1}),
        ((0.1, 0.2), (2.0, 2.0), {}),  # an offset without its gain would mislead whoever applies it
        ((0.1, 0.1), (2.0, 3.0), {}),
    ],
)
def test_a_scale_is_told_whole_or_not_at_all_to_other_tools(suffix, gains, offsets, spoken, tmp_path):
    scene = tmp_path / f"a{suffix}"
    write(scene, numbers((2, 3, 4), "<i2"), gains=gains, offsets=offsets)
    meta = open_cube(scene).meta
    assert (meta.gains, meta.offsets) == (gains, offsets)
    if suffix == ".zarr":
        found = json.loads((scene / "cube" / ".zattrs").read_text())
    else:
        with h5py.File(scene) as file:
            found = dict(file["cube"].attrs)
    assert {name: found[name] for name in ("scale_factor", "add_offset") if name in found} == spoken


def test_types_that_netcdf_lacks_are_refused(tmp_path):
    with pytest.raises(OutputError, match="float16"):
        write(tmp_path / "a.nc", numbers((2, 3, 4), "f2"))


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
    with pytest.raises(FormatError, match=r"cube \(4, 5, 6\) does not say which axis .* `axes`"):
        open_cube(path)
    np.testing.assert_array_equal(open_cube(path, axes="brc").read(), pixels)
    with pytest.raises(UsageError, match="expected b, r and c"):
        open_cube(path, axes="bbr")
    path = make(tmp_path / "b.h5", cube=numbers((5, 5, 6)), wavelengths=np.arange(5.0))
    with pytest.raises(FormatError, match="`axes`"):
        open_cube(path)
    square = open_cube(make(tmp_path / "c.h5", cube=numbers((5, 5, 6))))
    assert square.meta.shape() == (6, 5, 5)
    assert "the same length" in square.meta.notes[0]


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


@pytest.mark.parametrize("suffix", [".nc", ".h5", ".zarr"])
@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("wavelength", "lat", "lon"), ("wavelength", "lat", "lon")),
        (("wl", "northing", "easting"), ("wl", "northing", "easting")),
        (("bands", "y", "x"), ("bands", "y", "x")),
        (("colour", "lat", "lon"), ("band", "y", "x")),  # not to be understood again
    ],
)
def test_dimensions_keep_the_names_that_a_file_has_for_them(tmp_path, suffix, names, kept):
    band, row, column = names
    values = {band: np.array([500.0, 600.0, 700.0]), row: 60 - 30 * np.arange(4.0), column: 30 * np.arange(5.0)}
    with h5py.File(tmp_path / "a.nc", "w") as file:
        cube = file.create_dataset("reflectance", data=numbers((3, 4, 5)))
        for axis, (name, places) in enumerate(values.items()):
            file[name] = places
            file[name].make_scale(name)
            file[name].attrs["units"] = "nm" if axis == 0 else "m"
            cube.dims[axis].attach_scale(file[name])
    with open_cube(tmp_path / "a.nc", axes="brc") as scene:
        meta, pixels = scene.meta, scene.read()
    with create_cube(tmp_path / f"b{suffix}", meta) as cube:
        cube.write(meta.window, pixels)
    with open_cube(tmp_path / f"b{suffix}") as again:
        assert (again.meta.dimensions or ("band", "y", "x")) == kept
        assert again.meta.wavelengths == meta.wavelengths == (500, 600, 700)
        assert again.meta.georeference == meta.georeference
        np.testing.assert_array_equal(again.read(), pixels)
    with create_cube(
        tmp_path / f"map{suffix}", dataclasses.replace(meta, bands=1, wavelengths=None, variable="std")
    ) as cube:
        cube.write(meta.window, pixels[:1])
    with open_cube(tmp_path / f"map{suffix}") as cube:
        assert "wavelength" not in (cube.meta.dimensions or ())


@pytest.mark.parametrize("suffix", [".nc", ".h5", ".zarr"])
def test_what_is_said_of_a_file_as_a_whole_is_said_there_again(suffix, tmp_path):
    path = make(tmp_path / "a.nc", cube=numbers((3, 5, 5)))
    with h5py.File(path, "r+") as file:
        file.attrs["title"], file.attrs["units"], file.attrs["Conventions"] = "a scene", "none", "CF-1.0"
        file["cube"].attrs["units"], file["cube"].attrs["station"] = "W", "here"
    for source, target in (("a.nc", f"b{suffix}"), (f"b{suffix}", "c.h5")):  # and again from the output
        with open_cube(tmp_path / source) as scene, create_cube(tmp_path / target, scene.meta.upscaled(2)):
            assert dict(scene.meta.extra) == {"title": "a scene", "units": "W", "station": "here"}
    with h5py.File(tmp_path / "c.h5") as file:
        assert dict(file.attrs) == {"Conventions": "CF-1.8", "title": "a scene"}
        assert (file["cube"].attrs["units"], file["cube"].attrs["station"]) == ("W", "here")
        assert "title" not in file["cube"].attrs


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
    words = command("upscale", tmp_path / "scene.h5", "-o", out / "fine.nc", "--model", "bicubic", "--scale", 2)
    limit = f"ulimit -f {kilobytes}; exec "
    ran = subprocess.run(["bash", "-c", limit + shlex.join(words)], capture_output=True, text=True)
    assert ran.returncode == 5, ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".zarr", ".mat"])
def test_points_of_somebody_else_are_no_points_on_the_ground_and_are_kept(suffix, tmp_path):
    path = make(tmp_path / "a.h5", cube=numbers((4, 5, 5)))
    with h5py.File(path, "r+") as file:
        file.attrs["native"] = "yes"
        file["cube"].attrs.update(points=np.arange(10.0), rpc='{"a": 1}')
    with open_cube(path) as scene, create_cube(tmp_path / f"b{suffix}", scene.meta):
        pass
    for name in ("a.h5", f"b{suffix}"):
        meta = open_cube(tmp_path / name).meta
        assert meta.georeference == Georeference()
        assert dict(meta.extra) == {"native": "yes", "points": list(range(10)), "rpc": '{"a": 1}'}


def test_points_beside_a_coordinate_system_are_on_the_ground_and_said_once(tmp_path):
    path = make(tmp_path / "a.h5", cube=numbers((4, 5, 5)))
    with h5py.File(path, "r+") as file:
        file["cube"].attrs.update(points=np.arange(10.0), crs_wkt="EPSG:4326")
    meta = open_cube(path).meta
    assert len(meta.georeference.points) == 2
    assert not meta.extra


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
            assert "time has length 1 and is ignored" in cube.meta.notes


def test_four_axes_one_of_them_single_are_a_cube_among_others(tmp_path):
    axes, sizes = ("time", "wavelength", "y", "x"), dict(time=1, wavelength=4, y=5, x=6)
    pixels, flags = numbers((1, 4, 5, 6)), numbers((1, 5, 6), "i1")
    cubes = {"quality": (("time", "y", "x"), flags), "reflectance": (axes, pixels)}
    path = netcdf(tmp_path / "a.nc", cubes, sizes)
    with pytest.raises(FormatError, match=r"2 three-dimensional .*reflectance \(4, 5, 6\) uint16.* `variable`"):
        open_cube(path)
    assert open_cube(path, variable="quality").meta.shape() == (1, 5, 6)
    with h5py.File(path, "r+") as file:
        file["wavelength"][:] = [500, 600, 700, 800]
    with open_cube(path) as cube:
        assert cube.meta.variable == "reflectance"
        assert cube.meta.wavelengths == (500, 600, 700, 800)
        assert "other variables: quality (1, 5, 6) int8" in cube.meta.notes[0]
        np.testing.assert_array_equal(cube.read(), pixels[0])


def test_a_cube_beside_more_than_three_axes_is_not_taken_unless_wavelengths_say_so(tmp_path):
    parts = dict(flags=numbers((3, 5, 5), "i1"), scene=numbers((3, 4, 5, 5)))
    path = make(tmp_path / "a.h5", **parts)
    says = (
        r"1 three-dimensional variable: flags .*, and with more axes: scene \(3, 4, 5, 5\) uint16\. .*`variable`"
    )
    with pytest.raises(FormatError, match=says):
        open_cube(path)
    assert open_cube(path, variable="flags").meta.shape() == (3, 5, 5)
    path = make(tmp_path / "b.h5", **parts, mean=numbers((4, 5, 5)), wavelength=np.arange(4.0))
    meta = open_cube(path).meta
    assert meta.variable == "mean"
    assert "scene (3, 4, 5, 5)" in meta.notes[0]


@pytest.mark.parametrize("variable", [None, "rad"])
def test_who_has_four_axes_is_told_to_cut_out_one_time(variable, tmp_path):
    path = make(tmp_path / "a.nc", rad=numbers((3, 4, 5, 6)), lat=numbers((5, 6)))
    says = r"rad \(3, 4, 5, 6\) uint16.* cut out one time.* xarray's isel\(time=0\) or with ncks -d time,0\.$"
    with pytest.raises(FormatError, match=says):
        open_cube(path, variable=variable)


def test_of_two_axes_of_length_one_the_bands_are_kept(tmp_path):
    axes = ("band", "time", "y", "x")
    path = netcdf(tmp_path / "b.nc", {"cube": (axes, numbers((1, 1, 5, 6)))}, dict(band=1, time=1, y=5, x=6))
    meta = open_cube(path).meta
    assert meta.shape() == (1, 5, 6)
    assert "time has length 1" in meta.notes[0]


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
    with pytest.raises(FormatError, match=r"no numeric three-dimensional variable\. It has some_var \(2, 2\)"):
        open_cube(folder / "fake_EMIT_L2B_MIN.nc")


def test_an_interrupted_write_leaves_no_file(tmp_path):
    meta = CubeMeta(3, 4, 5, np.dtype("u1"))
    with pytest.raises(ZeroDivisionError), create_cube(tmp_path / "a.h5", meta):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".h5", ".nc", ".mat", ".zarr", ".tif"])
def test_a_field_whose_name_is_a_null_character_is_no_reason_to_fail(tmp_path, suffix):
    pixels = np.arange(24.0, dtype="<f4").reshape(2, 3, 4)
    meta = CubeMeta(2, 3, 4, pixels.dtype, extra={"\0": "nothing", "kept": "yes"})
    with create_cube(tmp_path / f"cube{suffix}", meta) as cube:
        cube.write(meta.window, pixels)
    with open_cube(tmp_path / f"cube{suffix}") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
