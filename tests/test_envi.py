"""ENVI headers as real tools write them, and as broken disks and bad intentions do."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyproj
import pytest
import rasterio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.envi.header import DTYPES, EnviHeader
from pdenet_cli.formats.tiff import gdal_metadata
from pdenet_cli.scene.georeference import Georeference, GroundPoint
from tests.cubes import written

PIXELS = np.arange(2 * 3 * 4, dtype="<u2").reshape(2, 3, 4)
FIELDS = {
    "samples": "4",
    "lines": "3",
    "bands": "2",
    "header offset": "0",
    "file type": "ENVI Standard",
    "data type": "12",
    "interleave": "bsq",
    "byte order": "0",
}


def write(
    folder, fields=(), drop=(), data=PIXELS, name="scene.hdr", data_name="scene.img", ends="\n", start="ENVI"
):
    merged = {k: v for k, v in (FIELDS | dict(fields)).items() if k not in drop}
    text = ends.join([start, *(f"{k} = {v}" for k, v in merged.items())]) + ends
    (folder / name).write_bytes(text.encode("utf-8-sig" if start.startswith("BOM") else "utf-8"))
    if data is not None:
        (folder / data_name).write_bytes(data.tobytes() if isinstance(data, np.ndarray) else data)
    return folder / name


@pytest.mark.parametrize("data_name", ["scene", "scene.img", "scene.dat", "scene.raw", "scene.BSQ", "scene.xyz"])
def test_the_data_file_may_have_any_suffix_or_none(tmp_path, data_name):
    header = write(tmp_path, data_name=data_name)
    np.testing.assert_array_equal(open_cube(header).read(), PIXELS)
    np.testing.assert_array_equal(open_cube(tmp_path / data_name).read(), PIXELS)


@pytest.mark.parametrize(
    ("name", "data_name"), [("scene.hdr", "scene.img"), ("scene.img.hdr", "scene.img"), ("SCENE.HDR", "SCENE.DAT")]
)
def test_of_two_files_with_usual_names_one_is_found_without_a_look_at_the_others(
    tmp_path, monkeypatch, name, data_name
):
    header = write(tmp_path, name=name, data_name=data_name)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", Mock(side_effect=AssertionError("there may be thousands")))
        for path in (header, tmp_path / data_name):
            np.testing.assert_array_equal(open_cube(path).read(), PIXELS)
        written(tmp_path / "new.img", PIXELS)


def test_names_as_long_as_a_disk_allows_are_no_matter(tmp_path):
    header = written(tmp_path / f"{'n' * 240}.hdr", PIXELS)
    data = header.with_suffix(".img")
    longer = data.rename(data.with_name("n" * 240 + "." + "m" * 14))
    for path in (header, longer):
        np.testing.assert_array_equal(open_cube(path).read(), PIXELS)


def test_a_header_of_an_odd_case_is_found_by_its_data(tmp_path):
    write(tmp_path, name="Scene.Hdr", data_name="scene.img")
    np.testing.assert_array_equal(open_cube(tmp_path / "scene.img").read(), PIXELS)


def test_a_header_may_carry_the_whole_name_of_its_data(tmp_path):
    write(tmp_path, name="scene.img.hdr")
    write(tmp_path, name="scene.dat.hdr", data_name="scene.dat", data=PIXELS + 1)
    np.testing.assert_array_equal(open_cube(tmp_path / "scene.img").read(), PIXELS)
    np.testing.assert_array_equal(open_cube(tmp_path / "scene.dat.hdr").read(), PIXELS + 1)


@pytest.mark.parametrize(
    "variant",
    [
        dict(ends="\r\n"),
        dict(start="\ufeffENVI"),
        dict(start="envi"),
        dict(name="scene.HDR"),
        dict(drop=("byte order",)),
        dict(drop=("header offset", "file type")),
        dict(fields={"interleave": "BSQ", "Data Type": "12"}, drop=("data type",)),
        dict(start="ENVI\n; made by hand\n\n"),
        dict(fields={"wavelength": "{\n 400.5,\n 500.25\n}"}),
        dict(fields={"description": "{\n one\n ; two }"}),
    ],
    ids=[
        "crlf",
        "bom",
        "lower case",
        "HDR",
        "no byte order",
        "no offset",
        "mixed case",
        "comments",
        "lists",
        "a brace in a comment",
    ],
)
def test_headers_that_real_tools_write_are_read(tmp_path, variant):
    cube = open_cube(write(tmp_path, **variant))
    np.testing.assert_array_equal(cube.read(), PIXELS)
    assert cube.meta.wavelengths in (None, (400.5, 500.25))


def test_comments_inside_a_list_and_an_empty_rotation_are_passed_over(tmp_path):
    fields = {"wavelength": "{\n; blue\n 400.5,\n  ; green, or so\n 500.25\n}"}
    fields |= {"map info": "{UTM, 1, 1, 500000, 4649000, 30, 30, 16, North, WGS-84, units=Meters, rotation=}"}
    meta = open_cube(write(tmp_path, fields)).meta
    assert (meta.wavelengths, meta.notes) == ((400.5, 500.25), ())
    assert meta.georeference.transform == (500000, 30, 0, 4649000, 0, -30)


@pytest.mark.parametrize("word", ["rotation=12.5 deg", "rotation=north"])
def test_a_rotation_that_is_no_number_costs_the_place_and_not_the_cube(tmp_path, word):
    cube = open_cube(write(tmp_path, {"map info": MAP.replace("units=Meters", word)}))
    np.testing.assert_array_equal(cube.read(), PIXELS)
    assert cube.meta.georeference.transform is None
    assert cube.meta.notes == ("map info ignored: its place, pixel size or rotation is not a number",)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    code=st.sampled_from(sorted(DTYPES)),
    big=st.booleans(),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    offset=st.integers(0, 300),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(2, 7)),  # GDAL refuses a 1-byte file
)
def test_every_type_order_interleave_and_offset_is_read_as_gdal_reads_it(
    tmp_path_factory, code, big, interleave, offset, shape
):
    folder = tmp_path_factory.mktemp("envi")
    dtype = DTYPES[code].newbyteorder(">" if big else "<")
    pixels = np.random.default_rng(1).integers(0, 120, shape).astype(dtype)
    stored = pixels.transpose({"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (1, 2, 0)}[interleave])
    fields = dict(zip(("bands", "lines", "samples"), map(str, shape), strict=True))
    fields |= {"data type": str(code), "byte order": str(int(big)), "interleave": interleave}
    fields |= {"header offset": str(offset)}
    header = write(folder, fields, data=b"x" * offset + np.ascontiguousarray(stored).tobytes())
    np.testing.assert_array_equal(open_cube(header).read(), pixels)
    with rasterio.open(folder / "scene.img") as reference:
        np.testing.assert_array_equal(reference.read(), pixels)


MAP = "{UTM, 1, 1, 500000, 4649000, 30, 30, 16, North, WGS-84, units=Meters}"


@pytest.mark.parametrize(
    "map_info",
    [
        MAP,
        MAP.replace("1, 1,", "2.5, 3.5,", 1),
        MAP.replace("units=Meters", "units=Meters, rotation=30"),
        MAP.replace("30, 30, 16", "30, 20, 16").replace("units=Meters", "units=Meters, rotation=-75.5"),
        MAP.replace("units=Meters", "units=Meters, rotation=180"),
        MAP.replace("30, 30, 16", "30, -20, 16"),
        "{Geographic Lat/Lon, 1, 1, -44.84, -22.93, 0.003432, 0.003432, WGS-84, units=Degrees}",
    ],
    ids=["utm", "tie point inside", "rotated", "rotated oblong", "upside down", "negative height", "geographic"],
)
def test_a_georeference_is_gdals_before_and_after_upscaling(tmp_path, map_info):
    header = write(tmp_path, {"map info": map_info})
    with open_cube(header) as cube, create_cube(tmp_path / "fine.hdr", cube.meta.upscaled(4)):
        pass
    with rasterio.open(tmp_path / "scene.img") as coarse, rasterio.open(tmp_path / "fine.img") as fine:
        assert fine.crs == coarse.crs
        assert coarse.transform.to_gdal() == pytest.approx(open_cube(header).meta.georeference.transform, abs=1e-9)
        pixel = abs(coarse.transform.a)
        for corner in ((0, 0), (coarse.width, 0), (0, coarse.height), (coarse.width, coarse.height)):
            there = np.array(coarse.transform @ corner)
            np.testing.assert_allclose(fine.transform @ (4 * corner[0], 4 * corner[1]), there, atol=1e-6 * pixel)


def placed(**where):
    return CubeMeta(1, 3, 4, np.dtype("<u2"), georeference=Georeference(**where))


@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_a_grid_whose_rows_go_north_lies_where_it_lay(tmp_path, noise):
    transform = (11.5, 0.25, noise, 48.0, 0.0, 0.5)
    meta = placed(transform=transform, crs="EPSG:4326", anchor=(2.0, 1.0))
    with create_cube(tmp_path / "fine.hdr", meta.upscaled(2)):
        pass
    expected = pytest.approx((11.5, 0.125, 0.0, 48.0, 0.0, 0.25))
    assert open_cube(tmp_path / "fine.hdr").meta.georeference.transform == expected
    with rasterio.open(tmp_path / "fine.img") as reference:
        assert reference.transform.to_gdal() == expected


UNHOLDABLE = {
    "mirrored": (-30.0, 0.0, 0.0, -30.0),
    "half a turn": (-30.0, 0.0, 0.0, 30.0),
    "columns sheared": (30.0, 0.0, 5.0, -30.0),
    "rows sheared": (30.0, 5.0, 0.0, -30.0),
    "rotated oblong": (30 * 0.8, 20 * 0.6, 30 * 0.6, -20 * 0.8),
    "rotated and mirrored": (30 * 0.8, 30 * 0.6, -30 * 0.6, 30 * 0.8),
}


@pytest.mark.parametrize("case", UNHOLDABLE)
def test_a_grid_that_map_info_cannot_hold_is_refused_before_anything_is_written(tmp_path, case):
    xc, xr, yc, yr = UNHOLDABLE[case]
    meta = placed(transform=(500000.0, xc, xr, 4649000.0, yc, yr), crs="EPSG:32616")
    with (
        pytest.raises(OutputError, match=r"fine\.hdr: ENVI's map info cannot hold .* Write a \.tif instead\.$"),
        create_cube(tmp_path / "fine.hdr", meta),
    ):
        pass
    assert not list(tmp_path.iterdir())


POINTS = tuple(GroundPoint(c, r, 11.5 + c / 7, 48.5 - r / 9) for r in (0.0, 1.5, 3.0) for c in (0.5, 4.0))


def test_ground_control_points_in_degrees_become_geo_points(tmp_path):
    with create_cube(tmp_path / "fine.hdr", placed(points=POINTS, crs="EPSG:4326").upscaled(4)):
        pass
    with rasterio.open(tmp_path / "fine.img") as reference:
        found = [(p.col, p.row, p.x, p.y) for p in reference.gcps[0]]
    assert found == [pytest.approx((4 * p.column, 4 * p.row, p.x, p.y)) for p in POINTS]


def test_a_header_keeps_the_geo_points_it_has(tmp_path):
    meta = placed(points=POINTS, crs="EPSG:4326")
    meta.extra["geo points"] = "{1, 1, 48.5, 11.5}"
    with create_cube(tmp_path / "fine.hdr", meta):
        pass
    assert EnviHeader.read(tmp_path / "fine.hdr").fields["geo points"] == "{1, 1, 48.5, 11.5}"


def test_geo_points_are_ground_control_points_in_any_other_format(tmp_path):
    fields = {"geo points": "{1, 1, 48.5, 11.5,\n 4.5, 1, 48.5, 11.75,\n 1, 3.5, 48.25, 11.5}"}
    with open_cube(write(tmp_path, fields)) as cube, create_cube(tmp_path / "fine.tif", cube.meta.upscaled(4)):
        pass
    with rasterio.open(tmp_path / "fine.tif") as reference:
        points, system = reference.gcps
    assert system.to_epsg() == 4326
    assert [(p.col, p.row, p.x, p.y) for p in points] == [
        (0, 0, 11.5, 48.5), (14, 0, 11.75, 48.5), (0, 10, 11.5, 48.25)
    ]  # fmt: skip


def test_geo_points_are_in_degrees_whatever_the_pixels_are(tmp_path):
    utm = 'PROJCS["UTM 33N",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],'
    utm += 'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    utm += 'PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],UNIT["metre",1]]'
    fields = {"geo points": "{1, 1, 50.0, 15.0}", "coordinate system string": f"{{{utm}}}"}
    with open_cube(write(tmp_path, fields)) as cube:
        assert cube.meta.georeference.crs == "EPSG:4326"


@pytest.mark.parametrize("points", ["{1, 1, 48.5}", "{1, 1, north, 11.5}", "{}"])
def test_geo_points_that_are_not_understood_are_no_points(tmp_path, points):
    with open_cube(write(tmp_path, {"geo points": points})) as cube:
        assert cube.meta.georeference.points == ()


@pytest.mark.parametrize("system", ["EPSG:32632", None])
def test_ground_control_points_that_envi_cannot_hold_are_refused_unless_a_grid_is_written(tmp_path, system):
    meta = placed(points=POINTS, crs=system)
    with (
        pytest.raises(OutputError, match=r"fine\.hdr: .* only in latitude and longitude\. Write a \.tif instead"),
        create_cube(tmp_path / "fine.hdr", meta),
    ):
        pass
    assert not list(tmp_path.iterdir())
    grid = (500000.0, 30.0, 0.0, 4649000.0, 0.0, -30.0)
    with create_cube(tmp_path / "fine.hdr", placed(transform=grid, points=POINTS, crs=system)):
        pass
    assert open_cube(tmp_path / "fine.hdr").meta.georeference.transform == grid


RPC_AXES = ("LINE", "SAMP", "LAT", "LONG", "HEIGHT")
RPC = {
    f"{axis}_{part}": f"{i + k / 7}" for k, axis in enumerate(RPC_AXES) for i, part in enumerate(("OFF", "SCALE"))
}
for k, name in enumerate(("LINE_NUM_COEFF", "LINE_DEN_COEFF", "SAMP_NUM_COEFF", "SAMP_DEN_COEFF")):
    RPC[name] = " ".join(f"{(i + 20 * k) / 7}" for i in range(20))


def test_rational_polynomials_are_gdals_and_hold_on_the_finer_grid(tmp_path):
    with create_cube(tmp_path / "same.hdr", placed(rpc=RPC)):
        pass
    with open_cube(tmp_path / "same.hdr") as cube, create_cube(tmp_path / "fine.hdr", cube.meta.upscaled(4)):
        assert cube.meta.georeference.rpc == RPC
        assert cube.meta.notes == ()
    wanted = Georeference(rpc=RPC).upscaled(4).rpc
    with rasterio.open(tmp_path / "fine.img") as reference:
        found = reference.tags(ns="RPC")
    for name, words in wanted.items():
        assert list(map(float, found[name].split())) == pytest.approx(list(map(float, words.split())), rel=1e-15)


def test_rational_polynomials_of_a_larger_scene_are_left_out_and_noted(tmp_path):
    numbers = ", ".join(["1"] * 90)
    for cut, kept in (("0, 0, 1", True), ("100, 0, 0", False), ("0, 7, 0", False)):
        meta = open_cube(write(tmp_path, {"rpc info": f"{{{numbers}, {cut}}}"})).meta
        assert (meta.georeference.rpc is not None) == kept
        assert any("rpc info left out" in note for note in meta.notes) != kept


CONIC = "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=39 +lon_0=-96 +datum=NAD83 +units="


@pytest.mark.parametrize(
    ("system", "named"),
    [
        ("EPSG:2263", "units=US Survey Feet"),
        ("EPSG:2222", "units=Feet"),
        ("EPSG:32616", "units=Meters"),
        (f"{CONIC}km", "units=Km"),
        (f"{CONIC}yd", None),
    ],
)
def test_gdal_reads_the_unit_that_was_meant(tmp_path, system, named):
    grid = (900000.0, 10.0, 0.0, 200000.0, 0.0, -10.0)
    with create_cube(tmp_path / "fine.hdr", placed(transform=grid, crs=system)):
        pass
    words = EnviHeader.read(tmp_path / "fine.hdr").items("map info")
    assert [word for word in words if word.startswith("units")] == ([named] if named else [])
    with rasterio.open(tmp_path / "fine.img") as reference:
        moved = pyproj.Transformer.from_crs(reference.crs.to_wkt(), system, always_xy=True)
    assert moved.transform(900.0, 200.0) == pytest.approx((900, 200), abs=1e-5)


UTM = "UTM, 2, 3, {}, {}, {}, {}, 11, North, WGS-84, units={}"
DEGREES = "Geographic Lat/Lon, 1, 1, {}, {}, {}, {}, WGS-84, units={}"


@pytest.mark.parametrize(
    ("words", "unit", "size"),
    [
        (UTM, "Meters", 1),
        (UTM, "Km", 1000),
        (UTM, "Feet", 0.3048),
        (UTM, "yards", 0.9144),
        (DEGREES, "Degrees", 1),
        (DEGREES, "Minutes", 1 / 60),
        (DEGREES, "Seconds", 1 / 3600),
        (DEGREES, "Radians", 180 / np.pi),
    ],
)
def test_the_unit_of_map_info_counts_in_every_other_format(tmp_path, words, unit, size):
    ground = (500000.0, 3700000.0, 30.0, 20.0) if words == UTM else (-118.5, 34.25, 0.0003, 0.0002)
    said = words.format(*(float(f"{v / size:.12g}") for v in ground), unit)
    header = write(tmp_path, {"map info": f"{{{said}}}"})
    for name in ("fine.hdr", "fine.tif"):
        with open_cube(header) as cube, create_cube(tmp_path / name, cube.meta.upscaled(2)):
            pass
    with rasterio.open(tmp_path / "fine.tif") as fine:
        assert fine.crs.to_epsg() == (32611 if words == UTM else 4326)
        assert (fine.transform.a, fine.transform.e) == pytest.approx((ground[2] / 2, -ground[3] / 2), rel=1e-9)
        assert fine.transform @ ((2, 4) if words == UTM else (0, 0)) == pytest.approx(ground[:2], rel=1e-9)
    again = [item.strip() for item in said.split(",")]
    kept = EnviHeader.read(tmp_path / "fine.hdr").items("map info")
    assert kept[7:] == tuple(again[7:])
    assert [float(v) for v in kept[3:5]] == [float(v) for v in again[3:5]]
    assert [float(v) for v in kept[5:7]] == [float(f"{float(v) / 2:.15g}") for v in again[5:7]]


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("UTM, {}, 33, North, WGS-72", 32233),
        ("UTM, {}, 33, South, WGS-72", 32333),
        ("UTM, {}, 30, North, European 1950", 23030),
        ("UTM, {}, 55, South, Geocentric Datum of Australia 1994", 28355),
        ("UTM, {}, 11, North, North America 1983", 26911),
        ("Geographic Lat/Lon, {}, North America 1983", 4269),
        ("UTM, {}, 33, North, North America 1983", None),  # EPSG:26933 is a zone of Alaska
        ("UTM, {}, 61, North, WGS-84", None),
        ("UTM, {}, 55, North, Geocentric Datum of Australia 1994", None),
        ("State Plane (NAD 83), {}, 3101", None),
        ("Arbitrary, {}, 0, North", None),
    ],
)
def test_datums_by_their_names_are_known_or_the_loss_is_noted(tmp_path, words, number):
    header = write(tmp_path, {"map info": "{" + words.format("1, 1, 500000, 4649000, 30, 30") + ", units=Meters}"})
    meta = open_cube(header).meta
    assert meta.georeference.crs == (f"EPSG:{number}" if number else None)
    named = words.replace("{}, ", "")
    note = f"coordinate system '{named}' of map info is unknown: kept only in ENVI"
    assert meta.notes == (() if number or "Arbitrary" in words else (note,))


@pytest.mark.parametrize(
    "name", ["fine.bsq", "fine.bil", "fine.bip", "fine.BIP", "fine.img", "fine.dat", "fine.hdr"]
)
@pytest.mark.parametrize("source", ["bsq", "bil"])
def test_the_suffix_says_the_interleave_where_it_names_one(tmp_path, name, source):
    with open_cube(written(tmp_path / name, PIXELS, interleave=source)) as cube:
        named = name[-3:].lower()
        assert cube.meta.interleave == (named if named in ("bsq", "bil", "bip") else source)
        np.testing.assert_array_equal(cube.read(), PIXELS)


@pytest.mark.parametrize(
    ("old_header", "old_data", "new", "told"),
    [
        ("stale.hdr", "stale", "stale.hdr", "stale"),
        ("stale.hdr", "stale", "stale.img", "stale"),
        ("stale.hdr", "stale.img", "stale.dat", "stale.img"),
        ("stale.dat.hdr", "stale.dat", "stale.dat", "stale.dat.hdr"),
    ],
)
def test_a_new_header_never_claims_the_data_of_an_older_cube(tmp_path, old_header, old_data, new, told):
    write(tmp_path, name=old_header, data_name=old_data)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    meta = CubeMeta(2, 3, 4, PIXELS.dtype)
    with (
        pytest.raises(OutputError, match=rf"{told} would be read as a part of stale\.hdr\. Remove it"),
        create_cube(tmp_path / new, meta, overwrite=True),
    ):
        pass
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("old", "new"), [("scene.dat", "scene.img"), ("scene.img", "scene.hdr")])
def test_an_older_cube_that_no_reader_mistakes_may_be_overwritten(tmp_path, old, new):
    write(tmp_path, data_name=old)
    meta = CubeMeta(2, 3, 4, PIXELS.dtype)
    with create_cube(tmp_path / new, meta, overwrite=True) as cube:
        cube.write(meta.window, PIXELS + 1)
    np.testing.assert_array_equal(open_cube(tmp_path / "scene.hdr").read(), PIXELS + 1)


def test_unknown_header_fields_survive_word_for_word(tmp_path):
    fields = {"sun azimuth": "141.5", "smoothing": "{1.0, 2.0, 3.0}", "processing": "{step one,\n step two}"}
    with open_cube(write(tmp_path, fields)) as cube, create_cube(tmp_path / "copy.hdr", cube.meta):
        pass
    again = open_cube(tmp_path / "copy.hdr").meta.extra
    for name, value in fields.items():
        assert " ".join(again[name].split()) == " ".join(value.split())


def test_words_of_another_format_are_not_taken_for_envis_own(tmp_path):
    extra = {
        "map info": MAP,
        "Byte Order": 1,
        "data=ignore value": 7,
        "rpc info": "{1, 2}",
        "sun azimuth": "141.5",
    }
    with open_cube(written(tmp_path / "fine.hdr", PIXELS, extra=extra)) as cube:
        np.testing.assert_array_equal(cube.read(), PIXELS)
        assert (cube.meta.georeference, cube.meta.nodata) == (Georeference(), None)
        assert cube.meta.extra == {"sun azimuth": "141.5"}


def test_no_text_becomes_a_field_of_its_own(tmp_path):
    more = "}\ndata ignore value = 1500\nwavelength = {1, 2}"
    system = pyproj.CRS.from_epsg(3035).to_wkt().replace("ETRS89-extended / LAEA Europe", f"Europe {more}")
    where = Georeference(transform=(9.0, 1.0, 0.0, 7.0, 0.0, -1.0), crs=system)
    extra = {"description": f"Processed {{v1{more}", "sensor type": f"X{more}", "levels": [f"a{more}"]}
    meta = CubeMeta(2, 3, 4, PIXELS.dtype, wavelength_units=f"nm{more}", extra=extra, georeference=where)
    with create_cube(tmp_path / "fine.hdr", meta):
        pass
    found = open_cube(tmp_path / "fine.hdr").meta
    assert (found.nodata, found.wavelengths, found.extra.keys()) == (None, None, extra.keys())
    with rasterio.open(tmp_path / "fine.img") as reference:
        assert reference.nodata is None


def test_an_ordinary_description_stays_as_it_is(tmp_path):
    with create_cube(
        tmp_path / "fine.hdr", CubeMeta(2, 3, 4, PIXELS.dtype, extra={"description": "{two\nlines}"})
    ):
        pass
    assert "description = {\n  two\n  lines}\n" in (tmp_path / "fine.hdr").read_text()


def test_words_about_pixels_hold_on_the_finer_grid(tmp_path):
    fields = {
        "geo points": "{1, 1, 48.5, 11.5,\n 4.5, 1, 48.5, 11.75,\n 1, 3.5, 48.25, 11.5,\n 4.5, 3.5, 48.25, 11.75}",
        "pixel size": "{30.0, 20.0, units=Meters}",
        "x start": "101",
        "y start": "1",
        "sun azimuth": "141.5",
    }
    with open_cube(write(tmp_path, fields)) as cube, create_cube(tmp_path / "fine.hdr", cube.meta.upscaled(4)):
        pass
    extra = open_cube(tmp_path / "fine.hdr").meta.extra
    assert extra["pixel size"] == "{7.5, 5, units=Meters}"
    assert (extra["x start"], extra["y start"], extra["sun azimuth"]) == ("401", "1", "141.5")
    with rasterio.open(tmp_path / "scene.img") as coarse, rasterio.open(tmp_path / "fine.img") as fine:
        pairs = list(zip(coarse.gcps[0], fine.gcps[0], strict=True))
    assert len(pairs) == 4
    for old, new in pairs:
        assert (new.col, new.row, new.x, new.y) == pytest.approx((4 * old.col, 4 * old.row, old.x, old.y))


def test_words_about_pixels_that_are_not_understood_are_left_out(tmp_path):
    with open_cube(write(tmp_path, {"rpc info": "{1, 2, 3}", "x start": "left"})) as cube:
        assert any("rpc info left out" in note for note in cube.meta.notes)
        assert {"rpc info", "x start"}.isdisjoint(cube.meta.upscaled(4).extra)


def test_a_run_of_bands_keeps_its_own_part_of_unknown_lists(tmp_path):
    fields = {
        "bands": "4",
        "solar irradiance": "{1.5,\n 2.5, 3.5, 4.5}",
        "smoothing": "{1, 2, 3}",
        "description": "made here, by us, today, twice",
    }
    data = np.concatenate([PIXELS, PIXELS])
    with open_cube(write(tmp_path, fields, data=data)) as cube:
        extra = cube.with_bands(slice(1, 3)).meta.extra
    assert extra["solar irradiance"] == "{2.5, 3.5}"
    assert {name: extra[name] for name in ("smoothing", "description")} == {
        name: fields[name] for name in ("smoothing", "description")
    }
    whole = {"other": [1, 2], "class lookup": [0, 0, 0, 255], "class_names": ["w", "x", "y", "z"]}
    meta = CubeMeta(4, 2, 2, np.dtype("u1"), extra={"dark": ["a", "b", "c", "d"]} | whole)
    assert meta.with_bands(slice(2, None)).extra == {"dark": ["c", "d"]} | whole


def test_a_type_that_envi_lacks_is_refused_by_name(tmp_path):
    meta = CubeMeta(1, 2, 2, np.dtype("f2"))
    with pytest.raises(OutputError, match="ENVI cannot hold float16"), create_cube(tmp_path / "a.hdr", meta):
        pass


HOSTILE = {
    "data one byte short": dict(data=PIXELS.tobytes()[:-1]),
    "data half gone": dict(data=PIXELS.tobytes()[:20]),
    "data empty": dict(data=b""),
    "no data file": dict(data=None),
    "four hundred million lines": dict(fields={"lines": "400000000"}),
    "more bytes than 64 bits": dict(fields={"lines": "9" * 18, "samples": "9" * 18}),
    "offset beyond the end": dict(fields={"header offset": "1000000"}),
    "negative lines": dict(fields={"lines": "-3"}),
    "negative offset": dict(fields={"header offset": "-8"}),
    "zero bands": dict(fields={"bands": "0"}),
    "lines that are words": dict(fields={"lines": "many"}),
    "lines missing": dict(drop=("lines",)),
    "data type missing": dict(drop=("data type",)),
    "data type unknown": dict(fields={"data type": "7"}),
    "interleave unknown": dict(fields={"interleave": "bup"}),
    "byte order 2": dict(fields={"byte order": "2"}),
    "compressed": dict(fields={"file compression": "1"}),
    "frame offsets": dict(fields={"major frame offsets": "{4, 4}"}),
    "a spectral library": dict(fields={"file type": "ENVI Spectral Library"}),
    "a brace that never closes": dict(fields={"wavelength": "{400, 500"}),
    "only the first word": dict(drop=tuple(FIELDS)),
    "another file's header": dict(start="BYTEORDER I"),
    "not text": dict(start="ENVI\x00\xff\x00", drop=tuple(FIELDS)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_broken_and_hostile_headers_end_in_one_line(tmp_path, case):
    with pytest.raises(FormatError) as met:
        open_cube(write(tmp_path, **HOSTILE[case])).read()
    assert "\n" not in str(met.value)
    assert "scene" in str(met.value)


@pytest.mark.parametrize("data_name", ["scene", "scene.bil", "scene.flt"])
@pytest.mark.parametrize("given", ["header", "data"])
def test_headers_of_esri_are_named_with_the_way_to_envi(tmp_path, data_name, given):
    (tmp_path / "scene.hdr").write_text("BYTEORDER I\nLAYOUT BIL\n\nnrows 3\nncols 4\nNBANDS 2\nNBITS 16\n")
    (tmp_path / data_name).write_bytes(PIXELS.tobytes())
    with pytest.raises(FormatError, match=rf"ESRI.*: gdal_translate -of ENVI {data_name} new\.img$"):
        open_cube(tmp_path / ("scene.hdr" if given == "header" else data_name))


def test_real_headers_of_esri_are_named(data):
    for name in ("darkReference_arcgis", "darkReference_arcgis.hdr"):
        with pytest.raises(FormatError, match="ESRI"):
            open_cube(data / "trial/awkward_envi" / name)


def test_missing_bytes_are_counted(tmp_path):
    with pytest.raises(FormatError, match=r"header says 48 bytes, data file has 38 \(10 missing\)"):
        open_cube(write(tmp_path, data=PIXELS.tobytes()[:38]))


def test_trailing_bytes_are_noted(tmp_path):
    cube = open_cube(write(tmp_path, data=PIXELS.tobytes() + b"12345"))
    assert any("5 bytes after the pixels" in note for note in cube.meta.notes)


def test_a_wavelength_list_of_the_wrong_length_is_dropped_and_noted(tmp_path):
    cube = open_cube(write(tmp_path, {"wavelength": "{400, 500, 600}"}))
    assert cube.meta.wavelengths is None
    assert any("3 entries for 2 bands" in note for note in cube.meta.notes)


def test_a_wavelength_list_with_words_is_dropped_and_noted(tmp_path):
    meta = open_cube(write(tmp_path, {"wavelength": "{400, red}", "fwhm": "{5, 6}"})).meta
    assert (meta.wavelengths, meta.fwhm) == (None, (5, 6))
    assert meta.notes == ("wavelength ignored: not all entries are numbers",)


@pytest.mark.parametrize(
    ("words", "known"),
    [("{2, 1, 2}", (1, 0, 1)), ("{2.0}", (1,)), ("{0, 1}", None), ("{3}", None), ("{1.5}", None)],
)
def test_default_bands_are_those_that_are_there(tmp_path, words, known):
    assert open_cube(write(tmp_path, {"default bands": words})).meta.default_bands == known
    items = gdal_metadata.Items(f'<GDALMetadata><Item name="default_bands">{words}</Item></GDALMetadata>', 2)
    assert items.meta().get("default_bands") == known
    assert attributes.parse_fields({"default_bands": words}, 2)[0].get("default_bands") == known


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("red 650.0 nm", "green (550 Nanometers)", "blue: 450.00nm"), "{ red , green , blue }"),
        (("650 nm", "550 nm", "450 nm"), "{ Band 1 , Band 2 , Band 3 }"),
        (("B650", "B551", "B450"), "{ B650 , B551 , B450 }"),  # the second is not its wavelength
    ],
)
def test_readers_that_show_wavelengths_after_names_show_them_once(names, shown, tmp_path):
    waves = dict(wavelengths=(650.0, 550.0, 450.0), wavelength_units="Nanometers")
    written(tmp_path / "a.hdr", np.ones((3, 2, 2), "u1"), band_names=names, **waves)
    assert EnviHeader.read(tmp_path / "a.hdr").fields["band names"].replace("\n", " ") == shown


def test_a_description_has_braces_in_headers_only(tmp_path):
    written(tmp_path / "a.hdr", PIXELS, extra={"description": "one\ntwo"})
    with open_cube(tmp_path / "a.hdr") as cube:
        assert cube.meta.extra["description"] == "one\ntwo"
