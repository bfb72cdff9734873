"""Scenes as agencies deliver them in HDF5 and netCDF, and swaths that know every pixel's place."""

import h5py
import numpy as np
import pytest

from pdenet_cli import CubeMeta, Window, open_cube
from pdenet_cli.errors import FormatError
from pdenet_cli.formats import hdf5
from pdenet_cli.formats.labelled import ground_grid
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from tests.stores import check_interrupted, make, netcdf, numbers, write


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
    assert "1023 ground control points" in " ".join(meta.notes)
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
    check_interrupted(hdf5.FORMAT, tmp_path / "part", pixels, CubeMeta(*pixels.shape, pixels.dtype, **said))


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
    assert "from navigation_data/latitude and navigation_data/longitude" in meta.notes[-1]


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


def test_a_prisma_product_without_its_lists_is_named(tmp_path):
    prisma(tmp_path / "a.he5")
    with h5py.File(tmp_path / "a.he5", "r+") as file:
        del file.attrs["List_Cw_Swir"]
    with pytest.raises(FormatError, match="List_Cw_Swir is missing"):
        open_cube(tmp_path / "a.he5")
