"""Where a scene lies by the coordinates of its pixels: their units, their rounding, their coordinate system."""

import h5py
import numpy as np
import pyproj
import pytest

from pdenet_cli import open_cube
from pdenet_cli.formats.labelled.coordinates import Coordinate, placed
from pdenet_cli.scene.georeference import Georeference
from tests.cubes import written
from tests.stores import numbers, write

UTM = dict(
    grid_mapping_name="transverse_mercator",
    longitude_of_central_meridian=15.0,
    latitude_of_projection_origin=0.0,
    scale_factor_at_central_meridian=0.9996,
    false_easting=500000.0,
    false_northing=0.0,
    semi_major_axis=6378137.0,
    inverse_flattening=298.257223563,
)


def gridded(path, y, x, units, mapping=None, names="yx", **said):
    """A netCDF file of one cube with coordinates of its pixels, maybe with units, and maybe a grid mapping."""
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("cube", data=numbers((3, len(y), len(x))))
        for axis, (name, values) in enumerate({"band": np.arange(3), names[0]: y, names[1]: x}.items()):
            file[name] = values
            file[name].make_scale(name)
            cube.dims[axis].attach_scale(file[name])
        for name, unit in zip(names, [units] * 2 if isinstance(units, str) else units or (), strict=bool(units)):
            file[name].attrs["units"] = unit
        if mapping is not None:
            file["mapping"] = 0
            file["mapping"].attrs.update(mapping)
            cube.attrs["grid_mapping"] = "mapping"
        cube.attrs.update(said)
    return open_cube(path).meta


def wkt(code):
    return dict(crs_wkt=pyproj.CRS.from_epsg(code).to_wkt())


FOOT = 12 / 39.37


@pytest.mark.parametrize(
    ("units", "code", "factor"),
    [
        ("m", 32633, 1),
        ("km", 32633, 1000),
        ("Kilometers", 32633, 1000),
        ("US_survey_foot", 32633, FOOT),
        ("0.3048 metre", 32633, 0.3048),
        ("m", 2263, 1 / FOOT),
        ("US_survey_foot", 2263, 1),
        ("0.304800609601219 metre", 2263, 1),
        ("feet", 2263, 1),
        ("km", None, 1000),
    ],
)
def test_coordinates_are_turned_into_the_unit_of_the_coordinate_system(units, code, factor, tmp_path):
    y, x = 4500 - 0.03 * np.arange(5), 500 + 0.03 * np.arange(6)
    meta = gridded(tmp_path / "a.nc", y, x, units, wkt(code) if code else None)
    expected = np.array([499.985, 0.03, 0, 4500.015, 0, -0.03]) * factor
    assert meta.georeference.transform == pytest.approx(tuple(expected), rel=1e-9)
    assert not meta.notes


@pytest.mark.parametrize(
    ("units", "code", "factor"),
    [
        ("deg", 4326, 1),
        ("°", 4326, 1),
        ("decimal degrees", 4326, 1),
        ("meters east", 32633, 1),
        ("mm", None, 0.001),
    ],
)
def test_units_are_understood_as_people_write_them(units, code, factor, tmp_path):
    meta = gridded(tmp_path / "a.nc", np.arange(5.0), np.arange(6.0), units, wkt(code) if code else None)
    assert meta.georeference.transform == pytest.approx(np.array([-0.5, 1, 0, -0.5, 0, 1]) * factor)
    assert not meta.notes


def test_words_that_name_no_unit_leave_the_numbers_to_the_coordinate_system(tmp_path):
    meta = gridded(tmp_path / "a.nc", np.arange(5.0), np.arange(6.0), "easting", wkt(32633))
    assert meta.georeference.transform == (-0.5, 1, 0, -0.5, 0, 1)
    assert "y is in 'easting', assumed to be the unit of its coordinate system" in meta.notes


@pytest.mark.parametrize("ellipsoid", [{}, dict(semi_major_axis=6378137.0, inverse_flattening=298.257223563)])
def test_the_usual_latitudes_and_longitudes_have_their_number(ellipsoid, tmp_path):
    mapping = dict(grid_mapping_name="latitude_longitude") | ellipsoid
    place = gridded(tmp_path / "a.nc", np.arange(5.0), np.arange(6.0), "degrees", mapping).georeference
    assert place.crs == "EPSG:4326"


def test_places_on_a_map_without_unit_and_system_are_kept_as_metres(tmp_path):
    meta = gridded(tmp_path / "a.nc", 60 - 30 * np.arange(5.0), 500015 + 30 * np.arange(6.0), None)
    assert meta.georeference.transform == (500000, 30, 0, 75, 0, -30)
    assert meta.georeference.crs is None
    assert [note for note in meta.notes if note == "x has no unit, assumed to be in m"]
    assert gridded(tmp_path / "b.nc", np.arange(5.0), np.arange(6.0), None).georeference.transform is None


@pytest.mark.parametrize(("units", "code"), [("rad", 32633), ("m", 4326), ("degrees", 32633), ("pixels", None)])
def test_a_unit_that_does_not_fit_is_noted(units, code, tmp_path):
    meta = gridded(tmp_path / "a.nc", np.arange(5.0), np.arange(6.0), units, wkt(code) if code else None)
    assert meta.georeference.transform is None
    assert f"y is in '{units}'" in meta.notes[0]


def test_coordinates_in_single_precision_place_a_scene(tmp_path):
    y, x = np.float32(45 - 0.0003 * np.arange(16)), np.float32(110 + 0.0003 * np.arange(200))
    meta = gridded(tmp_path / "a.nc", y, x, ("degrees_north", "degrees_east"))
    expected = (110 - 0.00015, 0.0003, 0, 45 + 0.00015, 0, -0.0003)
    assert meta.georeference.transform == pytest.approx(expected, abs=1e-5)
    assert meta.georeference.crs == "EPSG:4326"
    assert not meta.notes


@pytest.mark.parametrize("y", [[0.0, 1, 2, 3, 8], [1.0, 1, 1, 1, 1], [0, 1, np.nan, 3, 4]])
def test_coordinates_that_are_not_even_are_noted(y, tmp_path):
    meta = gridded(tmp_path / "a.nc", np.array(y), np.arange(6.0), "m", wkt(32633))
    assert meta.georeference.transform is None
    assert meta.georeference.crs is not None
    assert "y is not evenly spaced" in meta.notes[0]


def test_uneven_degrees_claim_no_coordinate_system(tmp_path):
    meta = gridded(tmp_path / "a.nc", np.array([0.0, 1, 4]), np.arange(6.0), "degrees")
    assert meta.georeference == Georeference()
    assert "y is not evenly spaced" in meta.notes[0]


def test_a_tenth_of_a_pixel_is_even_enough():
    assert Coordinate("y", (0.0, 1.05, 2.0, 3.0), "m").line() == (-0.5, 1.0)
    assert Coordinate("y", (0.0, 1.2, 2.0, 3.0), "m").line() is None


@pytest.mark.parametrize("units", ["micrometers", "nm", "1"])
def test_a_unit_that_tells_no_place_is_said_to_be_that(units):
    rows, columns = (Coordinate(name, (0.4, 0.5, 0.6), units) for name in ("band", "x"))
    where, (note,) = placed(Georeference(), rows, columns)
    assert where.transform is None
    assert (
        note == f"not georeferenced by its coordinates: band is in '{units}', which tells no place on the ground"
    )


@pytest.mark.parametrize("unit", ["m", "km"])
def test_a_grid_mapping_of_parameters_gives_a_coordinate_system(unit, tmp_path):
    metres = dict(m=1, km=1000)[unit]
    # netCDF libraries write single numbers as lists of one.
    mapping = UTM | dict(false_easting=np.array([500000.0 / metres]))
    y, x = (4.5e6 - 30 * np.arange(5.0)) / metres, (5e5 + 30 * np.arange(6.0)) / metres
    place = gridded(tmp_path / "a.nc", y, x, unit, mapping).georeference
    assert place.transform == pytest.approx((499985, 30, 0, 4500015, 0, -30))
    to_utm = pyproj.Transformer.from_crs(place.crs, "EPSG:32633", always_xy=True)
    assert to_utm.transform(510000, 4.5e6) == pytest.approx((510000, 4.5e6), abs=1e-3)


def test_a_grid_mapping_that_says_nothing_useful_is_passed_over(tmp_path):
    mapping = dict(grid_mapping_name="of my own", false_easting="far")
    place = gridded(tmp_path / "a.nc", np.arange(5.0), np.arange(6.0), "m", mapping).georeference
    assert place == Georeference(transform=(-0.5, 1, 0, -0.5, 0, 1))


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize(
    ("code", "units"),
    [(32633, "m"), (2263, "US_survey_foot"), (2222, "foot"), (None, "m"), (4326, "degrees_north")],
)
def test_outputs_name_the_unit_of_their_coordinates(suffix, code, units, tmp_path):
    place = Georeference((10.0, 2.0, 0.0, 20.0, 0.0, -2.0), f"EPSG:{code}" if code else None)
    write(tmp_path / f"a{suffix}", numbers((2, 3, 4)), georeference=place)
    if suffix == ".nc":
        with h5py.File(tmp_path / "a.nc") as file:
            found = file["y"].attrs["units"]
    else:
        found = pytest.importorskip("zarr").open_group(tmp_path / "a.zarr", mode="r")["y"].attrs["units"]
    assert found == units


def test_a_unit_without_a_name_is_written_as_a_number_of_metres(tmp_path):
    yards = pyproj.CRS.from_user_input("+proj=tmerc +lat_0=0 +lon_0=15 +units=yd +type=crs").to_wkt()
    place = Georeference((10.0, 2.0, 0.0, 20.0, 0.0, -2.0), yards)
    write(tmp_path / "a.nc", numbers((2, 3, 4)), georeference=place)
    with h5py.File(tmp_path / "a.nc") as file:
        assert file["x"].attrs["units"] == "0.9144 m"


UTM_33 = wkt(32633) | dict(GeoTransform="500000 30 0 4500000 0 -30")


@pytest.mark.parametrize("units", ["m", None])
@pytest.mark.parametrize(
    ("y", "x", "transform"),
    [
        (np.s_[10:20], np.s_[4:12], (500120, 30, 0, 4499700, 0, -30)),  # cut
        (np.s_[::-1], np.s_[:], (500000, 30, 0, 4499400, 0, 30)),  # turned upside down
        (np.s_[::2], np.s_[::2], (499985, 60, 0, 4500015, 0, -60)),  # every other pixel
    ],
)
def test_coordinates_that_moved_with_the_pixels_are_believed_over_a_transform(y, x, transform, units, tmp_path):
    north, east = 4499985 - 30.0 * np.arange(20), 500015 + 30.0 * np.arange(16)
    mapping = UTM_33 | dict(anchor=[3.0, 4.0])
    meta = gridded(tmp_path / "a.nc", north[y], east[x], units, mapping)
    assert meta.georeference.transform == pytest.approx(transform)
    assert meta.georeference.anchor == (0, 0)
    assert meta.notes[-1] == "GeoTransform disagrees with the coordinates x and y; the coordinates are used"


@pytest.mark.parametrize("north", [4499985 - 30.0 * np.arange(20), np.float32(4499987 - 30.0 * np.arange(20))])
def test_a_transform_that_agrees_with_the_coordinates_is_kept_to_the_last_digit(north, tmp_path):
    meta = gridded(tmp_path / "a.nc", north, 500015 + 30.0 * np.arange(16), "m", UTM_33)
    assert meta.georeference.transform == (500000, 30, 0, 4500000, 0, -30)
    assert not meta.notes


def test_a_rotated_transform_and_counts_of_pixels_leave_the_place_as_it_is(tmp_path):
    turned = UTM_33 | dict(GeoTransform="500000 30 5 4500000 5 -30")
    metres = gridded(tmp_path / "a.nc", 30.0 * np.arange(5), 30.0 * np.arange(6), "m", turned)
    assert metres.georeference.transform == (500000, 30, 5, 4500000, 5, -30)
    for first in (0, 0.5, 1, 7):
        counts = gridded(tmp_path / "b.nc", first + np.arange(5.0), first + np.arange(6.0), None, UTM_33)
        assert counts.georeference.transform == (500000, 30, 0, 4500000, 0, -30)
        assert not counts.notes
    assert not metres.notes


@pytest.mark.parametrize(("names", "code"), [("yx", 32633), (("northing", "easting"), 32633), ("yx", 2263)])
def test_coordinates_without_a_unit_are_in_that_of_their_coordinate_system(names, code, tmp_path):
    y, x = 4499985 - 30.0 * np.arange(5), 500015 + 30.0 * np.arange(6)
    meta = gridded(tmp_path / "a.nc", y, x, None, wkt(code), names)
    assert meta.georeference.transform == (500000, 30, 0, 4500000, 0, -30)
    unit = {32633: "m", 2263: "US_survey_foot"}[code]
    assert meta.notes == tuple(f"{name} has no unit, assumed to be in {unit}" for name in names)


@pytest.mark.parametrize(
    ("names", "mapping"), [(("lat", "lon"), None), (("latitude", "longitude"), None), ("yx", wkt(4326))]
)
def test_degrees_without_a_unit_are_known_by_name_or_coordinate_system(names, mapping, tmp_path):
    meta = gridded(tmp_path / "a.nc", 50 - 0.5 * np.arange(5), 10 + 0.5 * np.arange(6), None, mapping, names)
    assert meta.georeference.transform == (9.75, 0.5, 0, 50.25, 0, -0.5)
    assert pyproj.CRS(meta.georeference.crs) == pyproj.CRS(4326)
    assert meta.notes == tuple(f"{name} has no unit, assumed to be in degrees" for name in names)


@pytest.mark.parametrize(
    ("names", "mapping", "first"),
    [
        ("yx", None, 500),
        ("yx", wkt(32633), 0),
        ("yx", wkt(32633), 1),
        (("lat", "lon"), None, 400),
        (("lat", "lon"), None, 0),
    ],
)
def test_numbers_that_nothing_explains_place_no_scene(names, mapping, first, tmp_path):
    meta = gridded(tmp_path / "a.nc", first + np.arange(5.0), first + np.arange(6.0), None, mapping, names)
    assert meta.georeference.transform is None
    assert (meta.georeference.crs is None) == (mapping is None)


MAP_INFO = "{UTM, 1, 1, 500000, 4500000, 30, 30, 33, North, WGS-84}"


@pytest.mark.parametrize("name", ["map info", "Map_Info"])
def test_a_map_info_of_envi_places_a_scene_that_nothing_else_does(name, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["cube"] = numbers((3, 5, 5))
        file["cube"].attrs[name] = MAP_INFO
    meta = open_cube(tmp_path / "a.h5").meta
    assert meta.georeference.transform == (5e5, 30, 0, 4.5e6, 0, -30)
    assert meta.georeference.crs == "EPSG:32633"
    assert not meta.extra
    placed = gridded(tmp_path / "b.nc", np.arange(5.0), np.arange(6.0), "m", **{name: MAP_INFO})
    assert placed.georeference.transform == (-0.5, 1, 0, -0.5, 0, 1)
    assert not placed.extra


@pytest.mark.parametrize("text", ["nonsense", MAP_INFO[:-1] + ", rotation=left}"])
def test_a_map_info_that_makes_no_sense_is_left_out(text, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["cube"] = numbers((3, 5, 5))
        file["cube"].attrs["map info"] = text
    meta = open_cube(tmp_path / "a.h5").meta
    assert meta.georeference.transform is None
    assert not meta.extra


def test_what_is_an_array_of_its_own_is_no_attribute_and_arrays_say_what_they_are(tmp_path):
    waves = dict(wavelengths=(450.0, 550.0), wavelength_units="nm", fwhm=(9.0, 9.5))
    place = Georeference(transform=(500_000, 30, 0, 4_500_000, 0, -30), crs="EPSG:32633")
    path = written(tmp_path / "a.nc", np.ones((2, 3, 4), "f4"), georeference=place, variable="hsi", **waves)
    with h5py.File(path) as file:
        assert not {"wavelength", "wavelength_units", "fwhm"} & set(file["hsi"].attrs)
        for name in ("wavelength", "fwhm", "x", "y"):
            assert {"long_name", "units"} <= set(file[name].attrs)
        assert file["wavelength"].attrs["standard_name"] == "radiation_wavelength"
    with open_cube(path) as cube:
        meta = cube.meta
    assert (meta.wavelengths, meta.wavelength_units, meta.fwhm) == tuple(waves.values())
    assert not meta.extra
