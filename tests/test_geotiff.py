"""Where a TIFF lies: what GDAL reads in our files, world files, projections, ground points, ENVI and back."""

import dataclasses
import itertools

import numpy as np
import pyproj
import pytest
import rasterio
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

from pdenet_cli import create_cube, open_cube
from pdenet_cli.formats.common import geokeys
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from tests.cubes import written
from tests.tiffs import PIXELS, TRANSFORMS, TURN, full_meta, gdal_file

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def corners(transform, meta):
    x, xc, xr, y, yc, yr = transform
    places = itertools.product((0, meta.columns), (0, meta.rows))
    return np.array([(x + xc * c + xr * r, y + yc * c + yr * r) for c, r in places])


def assert_same_ground(reference, meta, wanted):
    pixel = abs(wanted.transform[1]) + abs(wanted.transform[2])
    moved = corners(reference.transform.to_gdal(), meta) - corners(wanted.transform, meta)
    assert np.abs(moved).max() < 1e-6 * pixel


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<f4", ">f8"])
def test_gdal_finds_all_that_an_upscaled_cube_says(tmp_path, interleave, dtype):
    source = full_meta(interleave=interleave, dtype=np.dtype(dtype))
    meta = source.upscaled(4)
    pixels = np.random.default_rng(1).integers(-9999, 9999, meta.shape()).astype(dtype)
    with create_cube(tmp_path / "a.tif", meta) as cube:
        for window in meta.window.blocks(5, 7):
            cube.write(window, pixels[(slice(None), *window.slices)])
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(file.read(), pixels)
        assert file.profile["interleave"] == ("pixel" if interleave == "bip" else "band")
        assert file.crs.to_epsg() == 32633
        assert_same_ground(file, meta, source.upscaled(4).georeference)
        np.testing.assert_allclose(corners(file.transform.to_gdal(), meta), corners(TRANSFORMS["plain"], source))
        assert file.nodata == -9999
        assert file.descriptions == meta.band_names
        assert (file.scales, file.offsets) == (meta.gains, meta.offsets)
        for band in (1, 2, 3):
            tags = file.tags(band)
            assert float(tags["wavelength"]) == meta.wavelengths[band - 1]
            assert float(tags["fwhm"]) == meta.fwhm[band - 1]
            assert tags["wavelength_units"] == "Nanometers"
            assert tags["bbl"] == str(int(meta.good_bands[band - 1]))
        assert file.tags()["sensor type"] == "Hyperion"
        assert file.tags()["default_bands"] == "{3, 2, 1}"
        assert file.tags()["TIFFTAG_SOFTWARE"] == "pdenet"
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif").reshape(-1).sum(), pixels.sum())
    found = open_cube(tmp_path / "a.tif").meta
    native = dataclasses.replace(found.georeference, native={})
    expected = dataclasses.replace(meta, interleave="bip" if interleave == "bip" else "bsq")
    assert dataclasses.replace(found, georeference=native) == expected


@pytest.mark.parametrize("said", [{"gains": (1e-4, 2e-4, 1e-4, 3e-4, 1e-4)}, {"reflectance_scale": 10000.0}])
def test_gdal_scales_a_cube_alike_in_either_format(tmp_path, said):
    written(tmp_path / "a.hdr", PIXELS.astype("<i2"), **said)
    for source, copy in (("a.hdr", "b.tif"), ("b.tif", "c.hdr")):
        with open_cube(tmp_path / source) as cube, create_cube(tmp_path / copy, cube.meta) as other:
            other.write(cube.meta.window, cube.read())
    for name in ("a.img", "b.tif", "c.img"):
        with rasterio.open(tmp_path / name) as file:
            assert file.scales == said.get("gains", (1,) * 5)
        with open_cube(tmp_path / name) as cube:
            assert (cube.meta.gains, cube.meta.reflectance_scale) == (
                said.get("gains"),
                said.get("reflectance_scale"),
            )


@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("system", ["EPSG:32633", "EPSG:4326", "EPSG:3035", None])
def test_the_ground_stays_under_the_picture(tmp_path, kind, point, system):
    """A file of GDAL, read, made four times finer, written, and looked at by GDAL again."""
    transform = rasterio.Affine.from_gdal(*TRANSFORMS[kind])
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("u1"), transform=transform, crs=system)
    with rasterio.open(path, "r+") as file:
        file.update_tags(AREA_OR_POINT="Point" if point else "Area")
        file.transform = transform
    source = open_cube(path).meta
    assert source.georeference.pixel_is_point == point
    with rasterio.open(path) as reference:
        assert_same_ground(reference, source, source.georeference)
        by_gdal = reference.crs
    meta = source.upscaled(4)
    with create_cube(tmp_path / "b.tif", meta):
        pass
    with rasterio.open(tmp_path / "b.tif") as file:
        assert_same_ground(file, meta, Georeference(transform=TRANSFORMS[kind]).upscaled(4))
        assert file.crs == by_gdal
        assert system is None or file.crs.to_epsg() == int(system[5:])
        assert file.tags().get("AREA_OR_POINT", "Area") == ("Point" if point else "Area")
    assert open_cube(tmp_path / "b.tif").meta.georeference == meta.georeference


@pytest.mark.parametrize("beside", ["a.tfw", "A.TIFW", "a.wld"])
@pytest.mark.parametrize("kind", TRANSFORMS)
def test_a_world_file_places_a_picture_as_gdal_places_it(tmp_path, kind, beside):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"))
    transform = rasterio.Affine.from_gdal(*TRANSFORMS[kind])
    x, y = transform @ (0.5, 0.5)
    numbers = (transform.a, transform.d, transform.b, transform.e, x, y)
    (tmp_path / beside).write_text("\r\n".join(map(repr, numbers)))
    meta = open_cube(path).meta
    assert meta.notes == (f"georeferenced by {beside}",)
    assert meta.georeference.transform == pytest.approx(TRANSFORMS[kind])
    if beside.islower():
        with rasterio.open(path) as reference:
            assert_same_ground(reference, meta, meta.georeference)


@pytest.mark.parametrize("words", ["", "1 2 3", "1 0 0 one 5 5", "0 0 0 0 5 5", "nan 0 0 1 5 5", "1 0 0 1 5 5 5"])
def test_a_world_file_of_other_words_is_ignored_and_noted(tmp_path, words):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"))
    (tmp_path / "a.tfw").write_text(words)
    meta = open_cube(path).meta
    assert meta.georeference.transform is None
    assert meta.notes == ("a.tfw is ignored: not the six numbers of a world file",)


def test_what_lies_beside_a_picture_counts_only_if_it_has_no_place(tmp_path):
    (tmp_path / "a.tfw").write_text("1 0 0 1 5 5")
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset><SRS>EPSG:32633</SRS></PAMDataset>")
    path = gdal_file(tmp_path / "b.tif", PIXELS[:1].astype("u1"), transform=rasterio.Affine(9, 0, 5, 0, -9, 7))
    meta = open_cube(path.rename(tmp_path / "a.tif")).meta
    assert (meta.georeference.transform, meta.notes) == ((5, 9, 0, 7, 0, -9), ())
    path = gdal_file(tmp_path / "b.tif", PIXELS[:1].astype("u1"))
    meta = open_cube(path.rename(tmp_path / "a.tif")).meta
    assert meta.notes == ("the georeference in a.tif.aux.xml is not read", "georeferenced by a.tfw")
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset><Metadata/></PAMDataset>")  # statistics, as GDAL caches
    assert open_cube(tmp_path / "a.tif").meta.notes == ("georeferenced by a.tfw",)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    anchor=st.tuples(st.integers(-50, 50), st.integers(-50, 50)),
    terms=st.tuples(*[st.floats(-1e6, 1e6), st.floats(0.01, 90), st.floats(-9, 9)] * 2),
    point=st.booleans(),
    upright=st.booleans(),
)
def test_any_transform_survives_with_its_anchor(tmp_path, anchor, terms, point, upright):
    x, xc, xr, y, yr, yc = terms
    transform = (x, xc, 0.0, y, 0.0, -yr) if upright else (x, xc, xr, y, yc, -yr)
    where = Georeference(transform, "EPSG:3035", point, tuple(map(float, anchor)))
    meta = full_meta(georeference=where)
    with create_cube(tmp_path / "a.tif", meta, overwrite=True):
        pass
    found = open_cube(tmp_path / "a.tif").meta.georeference
    assert (found.crs, found.pixel_is_point, found.anchor) == (where.crs, point, where.anchor)
    with rasterio.open(tmp_path / "a.tif") as file:
        assert_same_ground(file, meta, found)
        assert_same_ground(file, meta, where)


PROJECTIONS = [
    "+proj=tmerc +lat_0=10 +lon_0=3 +k=0.99 +x_0=500 +y_0=100 +ellps=GRS80",
    "+proj=tmerc +lat_0=10 +lon_0=3 +k=0.99 +x_0=500 +y_0=100 +datum=NAD83",
    "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +x_0=1 +y_0=2 +datum=NAD83",
    "+proj=lcc +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +x_0=1 +datum=WGS84",
    "+proj=lcc +lat_1=30 +lat_0=30 +lon_0=-96 +k_0=0.9 +x_0=1 +y_0=2 +datum=WGS84",
    "+proj=laea +lat_0=52 +lon_0=11 +x_0=1 +y_0=2 +datum=WGS84",
    "+proj=sinu +lon_0=5 +R=6371007.181",
    "+proj=merc +lon_0=5 +k=0.9 +x_0=1 +datum=WGS84",
    "+proj=eqc +lat_ts=30 +lon_0=5 +datum=WGS84",
    "+proj=stere +lat_0=90 +lat_ts=71 +lon_0=-40 +x_0=1 +y_0=2 +datum=WGS84",
    "+proj=stere +lat_0=-90 +lat_ts=-70 +lon_0=5 +R=1737400",
    "+proj=stere +lat_0=-90 +k=0.97 +lon_0=5 +R=3396190",
    "+proj=utm +zone=33 +ellps=intl",
    "+proj=utm +zone=33 +south +ellps=intl",
    "+proj=utm +zone=33 +ellps=intl +units=us-ft",
    "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=39 +lon_0=-96 +x_0=600000 +y_0=1000 +datum=NAD83 +units=us-ft",
    "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=39 +lon_0=-96 +x_0=600000 +datum=NAD83 +units=km",
    "+proj=tmerc +lat_0=10 +lon_0=3 +k=0.99 +x_0=500 +y_0=100 +ellps=GRS80 +units=ft",
]


@pytest.mark.parametrize("words", PROJECTIONS)
def test_a_projection_without_a_number_is_understood_and_written(tmp_path, words):
    path = gdal_file(
        tmp_path / "a.tif", PIXELS[:1].astype("u1"), crs=words, transform=rasterio.Affine(9, 0, 5, 0, -9, 7)
    )
    with rasterio.open(path) as file:
        wanted = pyproj.CRS(file.crs.to_wkt())
    meta = open_cube(path).meta
    for native in (meta.georeference.native, {}):  # the keys verbatim, and keys made anew from the WKT
        where = dataclasses.replace(meta.georeference, native=native)
        with create_cube(tmp_path / "b.tif", dataclasses.replace(meta, georeference=where), overwrite=True):
            pass
        with rasterio.open(tmp_path / "b.tif") as file:
            by_gdal = pyproj.CRS(file.crs.to_wkt())
        for system in (by_gdal, where.crs, open_cube(tmp_path / "b.tif").meta.georeference.crs):
            there = pyproj.Transformer.from_crs(system, wanted, always_xy=True).transform(10000, 20000)
            assert there == pytest.approx((10000, 20000), abs=1e-4)


@pytest.mark.parametrize("unit", [{3076: 0}, {3076: 32767, 3077: 1.0}, {}])
def test_a_projection_whose_unit_is_not_said_or_spelled_out_is_understood(unit):
    keys = {1024: 1, 3072: 32767, 3074: 16033, 2048: 4326, **unit}
    system = pyproj.CRS(geokeys._crs(keys))
    assert system.utm_zone == "33N"
    assert system.axis_info[0].unit_conversion_factor == 1


def test_a_geographic_system_without_a_number_is_written(tmp_path):
    moon = pyproj.CRS.from_proj4("+proj=longlat +a=1737400 +b=1730000 +no_defs")
    meta = full_meta(georeference=Georeference(transform=(10, 0.5, 0, 50, 0, -0.5), crs=moon.to_wkt()))
    with create_cube(tmp_path / "a.tif", meta):
        pass
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.crs.is_geographic
        assert pyproj.CRS(file.crs.to_wkt()).ellipsoid.semi_major_metre == 1737400


@pytest.mark.parametrize("words", ["+R=1737400", "+a=3396190 +b=3376200"])
def test_degrees_on_the_moon_and_on_mars_are_kept_in_other_formats(tmp_path, words):
    grid = rasterio.Affine(0.5, 0, 10, 0, -0.5, 50)
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"), crs=f"+proj=longlat {words}", transform=grid)
    meta = open_cube(path).meta
    assert meta.notes == ()
    with create_cube(tmp_path / "b.hdr", meta):
        pass
    with rasterio.open(path) as wanted, rasterio.open(tmp_path / "b.img") as file:
        assert file.crs.is_geographic
        assert file.transform == grid
        ellipsoids = [pyproj.CRS(f.crs.to_wkt()).ellipsoid for f in (wanted, file)]
        assert ellipsoids[0].semi_major_metre == ellipsoids[1].semi_major_metre
        assert ellipsoids[0].semi_minor_metre == pytest.approx(ellipsoids[1].semi_minor_metre)


def test_degrees_are_not_taken_for_what_they_are_not():
    keys = {1024: 2, 2048: 32767, 2057: 6378000.0, 2058: 6357000.0}
    assert pyproj.CRS(geokeys._crs(keys | {2054: 9102})).is_geographic
    assert geokeys._crs(keys | {2054: 9105}) is None  # gon
    assert geokeys._crs(keys | {2051: 8903}) is None  # east of Paris
    assert geokeys._crs(keys | {2061: 2.337}) is None  # as GDAL says it


def test_a_coordinate_system_that_is_not_understood_is_noted(tmp_path):
    grid = rasterio.Affine(9, 0, 5, 0, -9, 7)
    crs = "+proj=cass +lat_0=49.5 +lon_0=24.8 +ellps=bessel"
    meta = open_cube(gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"), crs=crs, transform=grid)).meta
    assert meta.georeference.crs is None
    assert meta.notes == ("the coordinate system of its geo keys is unknown: kept only in TIFF",)


def test_ground_control_points_and_rpcs_survive(tmp_path):
    places = [(0, 0, 10, 50), (0, 50, 11, 50.2), (37, 0, 10.1, 49), (37, 50, 11.2, 49.3)]
    gcps = [GroundControlPoint(row=r, col=c, x=x, y=y, z=7) for r, c, x, y in places]
    polynomials = [[float(i + 20 * k) / 7 for i in range(20)] for k in range(4)]
    numbers = dict(height_off=3.0, height_scale=500.0, lat_off=50.0, lat_scale=0.5, line_off=18.0, line_scale=19.0)
    numbers |= dict(long_off=10.0, long_scale=0.7, samp_off=25.0, samp_scale=26.0, err_bias=1.0, err_rand=2.0)
    names = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
    rpcs = RPC(**numbers, **dict(zip(names, polynomials, strict=True)))
    for point in ("Area", "Point"):
        path = gdal_file(
            tmp_path / "a.tif", PIXELS[:1].astype("u1"), rpcs=rpcs, tags={0: dict(AREA_OR_POINT=point)}
        )
        with rasterio.open(path, "r+") as file:
            file.gcps = (gcps, rasterio.CRS.from_epsg(4326))
        meta = open_cube(path).meta
        with rasterio.open(path) as file:
            by_gdal = [(g.row, g.col, g.x, g.y, g.z) for g in file.gcps[0]]
        assert [(p.row, p.column, p.x, p.y, p.z) for p in meta.georeference.points] == by_gdal
        assert meta.georeference.rpc["LINE_OFF"] == "18.0"
        finer = meta.upscaled(4)
        with create_cube(tmp_path / "b.tif", finer, overwrite=True):
            pass
        with rasterio.open(tmp_path / "b.tif") as file:
            assert [(g.row, g.col, g.x, g.y, g.z) for g in file.gcps[0]] == [
                (4 * r, 4 * c, *xyz) for r, c, *xyz in by_gdal
            ]
            assert file.gcps[1].to_epsg() == 4326
            assert (file.rpcs.line_off, file.rpcs.samp_scale) == ((18.5 * 4) - 0.5, 104.0)
            assert file.rpcs.samp_den_coeff == pytest.approx(polynomials[3])
            assert file.rpcs.err_rand == 2.0
        assert open_cube(tmp_path / "b.tif").meta.georeference == finer.georeference


def test_ground_points_keep_their_heights():
    point = GroundPoint(1.5, 2.5, 10.0, 20.0, 30.0)
    where = Georeference(points=(point,), pixel_is_point=True)
    assert geokeys.georeference(geokeys.tags(where)).points == (point,)


@pytest.mark.parametrize("turn", ["plain", "rotated"])
@pytest.mark.parametrize("system", ["EPSG:32633", "EPSG:32733", "EPSG:4326", "EPSG:3035", "EPSG:26911"])
def test_from_envi_to_tiff_and_back_nothing_is_lost(tmp_path, system, turn):
    where = Georeference(transform=TRANSFORMS[turn], crs=system, anchor=(2.0, 3.0))
    if turn == "rotated" and system == "EPSG:4326":
        where = dataclasses.replace(
            where, transform=(10, TURN[0] / 1e5, TURN[1] / 1e5, 50, TURN[1] / 1e5, -TURN[0] / 1e5)
        )
    meta = full_meta(
        georeference=where, band_names=("a", "b", "c"), extra={"sensor type": "Hyperion"}, variable=None
    )
    for name, last in (("a.hdr", None), ("b.tif", "a.hdr"), ("c.hdr", "b.tif"), ("d.tif", "c.hdr")):
        with create_cube(tmp_path / name, meta if last is None else open_cube(tmp_path / last).meta):
            pass
        found = open_cube(tmp_path / name).meta
        plain = dataclasses.replace(found, georeference=Georeference())
        assert plain == dataclasses.replace(meta, georeference=Georeference())
        # GDAL does not turn an ENVI tie point that is not the first corner, so there is only that one.
        assert found.georeference.anchor == (where.anchor if turn == "plain" else (0.0, 0.0))
        data = tmp_path / name.replace(".hdr", ".img")
        with rasterio.open(data) as file:
            by_gdal = pyproj.CRS(file.crs.to_wkt())
            assert by_gdal.to_epsg(min_confidence=20) == int(system[5:]), name
            assert file.nodata == meta.nodata
            assert_same_ground(file, meta, where)
            assert [float(file.tags(b)["wavelength"]) for b in (1, 2, 3)] == list(meta.wavelengths)


def test_rotation_turns_the_way_gdal_turns(tmp_path):
    for sign in (1, -1):
        turned = (5e5, TURN[0], sign * TURN[1], 4e6, sign * TURN[1], -TURN[0])
        path = tmp_path / "a.img"
        transform = rasterio.Affine.from_gdal(*turned)
        gdal_file(path, PIXELS[:1].astype("u1"), driver="ENVI", crs="EPSG:32633", transform=transform)
        assert f"rotation={30 * sign}" in path.with_suffix(".hdr").read_text()
        assert open_cube(path).meta.georeference.transform == pytest.approx(turned, abs=1e-6)


@pytest.mark.parametrize("system", ["OGC:CRS84", "EPSG:4326", "esri"])
def test_degrees_keep_their_number_whatever_the_order_of_the_axes(tmp_path, system):
    wgs84 = pyproj.CRS.from_epsg(4326).to_wkt("WKT1_ESRI") if system == "esri" else pyproj.CRS(system).to_wkt()
    where = Georeference((-44.8, 0.003, 0.0, -22.9, 0.0, -0.003), wgs84)
    for name in ("a.tif", "b.hdr"):
        written(tmp_path / name, np.zeros((1, 4, 5), "u1"), georeference=where)
        where = open_cube(tmp_path / name).meta.georeference
    with rasterio.open(tmp_path / "a.tif") as first, rasterio.open(tmp_path / "b.img") as second:
        assert first.crs.to_epsg() == second.crs.to_epsg() == 4326
    assert "WGS-84" in (tmp_path / "b.hdr").read_text()
