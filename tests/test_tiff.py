"""TIFFs as GDAL, tifffile and ImageJ write them, what GDAL makes of ours, and files made to do harm."""

import dataclasses
import itertools
import math
import struct
import tracemalloc
import zlib
from contextlib import suppress

import imagecodecs
import numpy as np
import pyproj
import pytest
import rasterio
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats import geokeys, tiff, tiff_header
from pdenet_cli.formats.base import OpenOptions
from pdenet_cli.georeference import Georeference, GroundPoint

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

PIXELS = np.random.default_rng(0).integers(0, 250, (5, 37, 50))
WINDOWS = [
    Window(0, 0, 37, 50),
    Window(0, 0, 1, 1),
    Window(36, 49, 1, 1),
    Window(15, 14, 18, 20),
    Window(20, 33, 9, 17),
]

TURN = math.cos(math.radians(30)) * 30, math.sin(math.radians(30)) * 30
TRANSFORMS = {
    "plain": (500000.0, 30.0, 0.0, 4649000.0, 0.0, -20.0),
    "rotated": (500000.0, TURN[0], TURN[1], 4649000.0, TURN[1], -TURN[0]),
    "south up": (500000.0, 30.0, 0.0, 4649000.0, 0.0, 20.0),
}


def gdal_file(path, pixels, **options):
    bands, rows, columns = pixels.shape
    tags = options.pop("tags", {})
    settings = dict(driver="GTiff", count=bands, height=rows, width=columns, dtype=pixels.dtype) | options
    with rasterio.open(path, "w", **settings) as file:
        file.write(pixels)
        for band, values in tags.items():
            file.update_tags(band, **values)
    return path


def assert_reads(path, pixels):
    with open_cube(path) as cube:
        assert cube.meta.shape() == pixels.shape
        for window in WINDOWS:
            np.testing.assert_array_equal(cube.read(window), pixels[(slice(None), *window.slices)])
        np.testing.assert_array_equal(cube.read(WINDOWS[3], bands=slice(2, 4)), pixels[2:4, 15:33, 14:34])
        np.testing.assert_array_equal(cube.read(WINDOWS[4], bands=slice(1, 5, 2)), pixels[1:5:2, 20:29, 33:50])
        return cube


# Reading what others write


LAYOUTS = [{}, dict(tiled=True, blockxsize=16, blockysize=16), dict(blockysize=7), dict(tiled=True)]
CODECS = [
    {},
    *(
        dict(compress=c)
        for c in ("lzw", "packbits", "deflate", "zstd", "lzma", "lerc", "lerc_deflate", "lerc_zstd")
    ),
]
CODECS += [dict(compress=c, predictor=2) for c in ("lzw", "deflate", "zstd")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("interleave", ["band", "pixel"])
def test_every_compression_of_gdal_is_read_whole_and_by_windows(tmp_path, interleave, layout):
    for number, codec in enumerate(CODECS):
        dtype = ("uint8", "int16", "float32")[number % 3]
        if "lerc" in codec.get("compress", ""):
            codec = dict(codec, max_z_error=0)
        path = gdal_file(tmp_path / "a.tif", PIXELS.astype(dtype), interleave=interleave, **layout, **codec)
        cube = assert_reads(path, PIXELS.astype(dtype))
        assert cube.meta.interleave == ("bip" if interleave == "pixel" else "bsq")


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64", "int64"]
)
@pytest.mark.parametrize("endianness", ["little", "big"])
@pytest.mark.parametrize("bigtiff", ["yes", "no"])
def test_every_number_and_byte_order_is_read(tmp_path, dtype, endianness, bigtiff):
    for number, codec in enumerate(
        ({}, dict(compress="deflate", predictor=2), dict(compress="zstd", predictor=3))
    ):
        if codec.get("predictor") == 3 and "float" not in dtype:
            continue
        shape = LAYOUTS[number]
        path = gdal_file(
            tmp_path / "a.tif", PIXELS.astype(dtype), endianness=endianness, bigtiff=bigtiff, **codec, **shape
        )
        cube = assert_reads(path, PIXELS.astype(dtype))
        assert cube.meta.dtype == np.dtype(dtype).newbyteorder(endianness)


def test_lossy_pictures_are_read_as_gdal_reads_them(tmp_path):
    smooth = np.add.outer(np.arange(3) * 20, np.add.outer(np.arange(48), np.arange(64))).astype("u1")
    for codec in (dict(compress="jpeg", photometric="ycbcr"), dict(compress="jpeg")):
        path = gdal_file(
            tmp_path / "a.tif", smooth, interleave="pixel", tiled=True, blockxsize=32, blockysize=32, **codec
        )
        with rasterio.open(path) as reference, open_cube(path) as cube:
            assert np.abs(cube.read().astype(int) - reference.read()).max() <= 2


def test_strips_that_gdal_left_out_are_nodata(tmp_path):
    path = tmp_path / "a.tif"
    options = dict(driver="GTiff", count=2, height=64, width=64, dtype="int16", nodata=-9, compress="deflate")
    with rasterio.open(path, "w", sparse_ok=True, tiled=True, blockxsize=16, blockysize=16, **options) as file:
        file.write(np.full((2, 16, 16), 5, "i2"), window=((16, 32), (16, 32)))
    with rasterio.open(path) as reference, open_cube(path) as cube:
        np.testing.assert_array_equal(cube.read(), reference.read())
        assert (cube.read(Window(0, 0, 20, 20)) == -9).any()


@pytest.mark.parametrize("codec", [{}, {"compression": "zlib"}], ids=str)
def test_pages_of_one_band_each_are_the_bands(tmp_path, codec):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for band in PIXELS.astype("u2"):
            file.write(band, contiguous=False, metadata=None, **codec)
    assert_reads(path, PIXELS.astype("u2"))


@pytest.mark.parametrize("options", [dict(imagej=True), dict(ome=True), dict(shaped=True)], ids=str)
def test_stacks_of_imagej_ome_and_tifffile_are_read(tmp_path, options):
    options = {name: True for name in options if name != "shaped"}
    for truncate in (False, True):
        if truncate and "ome" in options:
            continue
        tifffile.imwrite(
            tmp_path / "a.tif", PIXELS.astype("u2"), photometric="minisblack", truncate=truncate, **options
        )
        assert "description" not in assert_reads(tmp_path / "a.tif", PIXELS.astype("u2")).meta.extra


def test_overviews_and_masks_are_not_bands(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"), tiled=True, blockxsize=16, blockysize=16)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.write_mask(np.ones((37, 50), bool))
        file.build_overviews([2, 4])
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) > 3
    with open_cube(path) as cube:
        assert cube.meta.shape() == (1, 37, 50)
        assert "its mask is not used" in cube.meta.notes[0]
        np.testing.assert_array_equal(cube.read(), PIXELS[:1])


def test_a_mask_beside_the_picture_is_noted(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"))
    assert open_cube(path).meta.notes == ()
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(path, "r+") as file:
        file.write_mask(np.zeros((37, 50), bool))
    assert (tmp_path / "a.tif.msk").exists()
    assert "its mask is not used" in open_cube(path).meta.notes[0]


def test_pages_that_differ_leave_the_first_and_a_note(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(PIXELS[0].astype("u1"), metadata=None)
        file.write(PIXELS[0, :9].astype("u1"), metadata=None)
    with open_cube(tmp_path / "a.tif") as cube:
        assert cube.meta.bands == 1
        assert "1 further pages" in cube.meta.notes[0]


def test_axes_that_tifffile_took_for_pages_can_be_told(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", PIXELS.transpose(1, 2, 0).astype("u2"), photometric="minisblack")
    np.testing.assert_array_equal(open_cube(tmp_path / "a.tif", axes="rcb").read(), PIXELS)


def test_palette_bilevel_and_colour_pictures_are_cubes(tmp_path):
    gdal_file(tmp_path / "bits.tif", (PIXELS[:1] > 99).astype("u1"), nbits=1)
    gdal_file(tmp_path / "rgb.tif", PIXELS[:3].astype("u1"), photometric="rgb")
    with rasterio.open(gdal_file(tmp_path / "pal.tif", PIXELS[:1].astype("u1")), "r+") as file:
        file.write_colormap(1, {0: (1, 2, 3, 255)})
    np.testing.assert_array_equal(open_cube(tmp_path / "bits.tif").read(), PIXELS[:1] > 99)
    assert open_cube(tmp_path / "bits.tif").meta.dtype == np.uint8
    np.testing.assert_array_equal(open_cube(tmp_path / "rgb.tif").read(), PIXELS[:3])
    np.testing.assert_array_equal(open_cube(tmp_path / "pal.tif").read(), PIXELS[:1])


def test_a_window_of_a_large_compressed_file_takes_little_memory(tmp_path):
    path = tmp_path / "a.tif"
    options = dict(
        driver="GTiff", count=20, height=2048, width=2048, dtype="float32", compress="deflate", tiled=True
    )
    with rasterio.open(path, "w", sparse_ok=True, **options) as file:
        file.write(np.ones((20, 64, 64), "f4"), window=((1000, 1064), (1000, 1064)))
    tracemalloc.start()
    with open_cube(path) as cube:
        assert cube.read(Window(1000, 1000, 64, 64)).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cube.meta.nbytes > 300e6 > 60 * peak / 4


# What a file says of itself


def test_wavelengths_and_the_rest_are_found_where_others_put_them(tmp_path):
    pixels = PIXELS[:2].astype("i2")
    on_bands = {
        b: dict(wavelength=str(w), wavelength_units="Nanometers", fwhm="7.5", bbl=str(b - 1), camera=f"c{b}")
        for b, w in ((1, 418.24), (2, 423.874))
    }
    path = gdal_file(
        tmp_path / "a.tif", pixels, nodata=-32768, tags={**on_bands, 0: dict(start_time="2022-07-24")}
    )
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets, file.descriptions = (1e-4, 2e-4), (0.5, 0.25), ("blue", "still blue")
    meta = open_cube(path).meta
    assert (meta.wavelengths, meta.wavelength_units, meta.fwhm) == ((418.24, 423.874), "Nanometers", (7.5, 7.5))
    assert (meta.good_bands, meta.band_names, meta.nodata) == ((False, True), ("blue", "still blue"), -32768)
    assert (meta.gains, meta.offsets) == ((1e-4, 2e-4), (0.5, 0.25))
    assert meta.extra == {"start_time": "2022-07-24", "camera": ["c1", "c2"]}


def test_a_band_without_scale_and_offset_is_meant_as_it_is(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:3].astype("i2"))
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = (1, 2e-4, 1), (0, 0.25, 0)
    meta = open_cube(path).meta
    assert (meta.gains, meta.offsets) == ((1, 2e-4, 1), (0, 0.25, 0))


@pytest.mark.parametrize("last", [{}, {"wavelength": "nan"}, {"wavelength": "red"}], ids=str)
def test_wavelengths_of_some_bands_are_not_used_and_that_is_noted(tmp_path, last):
    tags = {1: dict(wavelength="450", fwhm="5"), 2: dict(last, fwhm="5")}
    meta = open_cube(gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"), tags=tags)).meta
    assert (meta.wavelengths, meta.fwhm) == (None, (5, 5))
    assert meta.notes == ("wavelength ignored: not a number for every band",)


def test_wavelengths_that_may_be_in_metres_get_no_unit(tmp_path):
    for wavelengths, unit in (((4e-7, 9e-7), None), ((0.4, 0.9), "Micrometers"), ((400, 900), "Nanometers")):
        meta = CubeMeta(2, 3, 4, np.dtype("u1"), wavelengths=wavelengths)
        with create_cube(tmp_path / "a.tif", meta, overwrite=True):
            pass
        found = open_cube(tmp_path / "a.tif").meta
        assert (found.wavelengths, found.wavelength_units) == (wavelengths, unit)


def test_items_of_other_domains_keep_their_domain(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"))
    with rasterio.open(path, "r+") as file:
        file.update_tags(ns="MY & DOMAIN", k="v", wavelength="7")
        file.update_tags(2, ns="MY & DOMAIN", lamp="on")
        file.update_tags(ns="GEOLOCATION", PIXEL_STEP="1")
    with open_cube(path) as cube, create_cube(tmp_path / "b.tif", cube.meta.upscaled(2)):
        assert cube.meta.wavelengths is None
    with rasterio.open(tmp_path / "b.tif") as file:
        assert file.tags(ns="MY & DOMAIN") == {"k": "v", "wavelength": "7"}
        assert file.tags(2, ns="MY & DOMAIN") == {"lamp": "on"}
        assert file.tags(ns="GEOLOCATION") == {}


def test_wavelengths_in_gdals_imagery_and_envi_domains_are_understood(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"))
    with rasterio.open(path, "r+") as file:
        for band in (1, 2):
            file.update_tags(band, ns="IMAGERY", CENTRAL_WAVELENGTH_UM=f"0.{band}5", FWHM_UM="0.01")
    meta = open_cube(path).meta
    assert (meta.wavelengths, meta.wavelength_units, meta.fwhm) == ((0.15, 0.25), "Micrometers", (0.01, 0.01))

    path = gdal_file(tmp_path / "b.tif", PIXELS[:2].astype("i2"))
    with rasterio.open(path, "r+") as file:
        fields = dict(
            wavelength="{450.5, 550}", wavelength_units="Nanometers", bbl="{1,0}", sensor_type="X", lines="7"
        )
        file.update_tags(ns="ENVI", **fields)
    meta = open_cube(path).meta
    assert (meta.wavelengths, meta.wavelength_units, meta.good_bands) == (
        (450.5, 550),
        "Nanometers",
        (True, False),
    )
    assert meta.extra == {"sensor type": "X"}


def test_gdals_escaped_texts_are_read_as_they_were_meant(tmp_path):
    words = "a & b < c > d \"e\" &amp; 'f'"
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("i2"), tags={0: {"k & <l>": words}})
    assert open_cube(path).meta.extra == {"k & <l>": words}


def test_statistics_of_other_pixels_are_not_carried_over(tmp_path):
    path = gdal_file(
        tmp_path / "a.tif", PIXELS[:1].astype("i2"), tags={1: dict(STATISTICS_MEAN="4"), 0: dict(a="1")}
    )
    assert open_cube(path).meta.extra == {"a": "1"}


def test_enmap_and_desis_keep_their_wavelengths_beside_the_picture(tmp_path):
    gdal_file(tmp_path / "ENMAP01-____L2A-DT1-SPECTRAL_IMAGE.TIF", PIXELS[:2].astype("i2"))
    names = ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
    bands = "".join(
        f'<bandID number="{b}">'
        + "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, row, strict=True))
        + "</bandID>"
        for b, row in enumerate(((418.4, 6.9, 0.0001, 0), (424.0, 6.8, 0.0001, 0)))
    )
    xml = f"<level_X><specific><bandCharacterisation>{bands}</bandCharacterisation></specific></level_X>"
    (tmp_path / "ENMAP01-____L2A-DT1-METADATA.XML").write_text(xml)
    meta = open_cube(tmp_path / "ENMAP01-____L2A-DT1-SPECTRAL_IMAGE.TIF").meta
    assert (meta.wavelengths, meta.fwhm, meta.wavelength_units) == ((418.4, 424.0), (6.9, 6.8), "Nanometers")
    assert (meta.gains, meta.offsets) == ((0.0001, 0.0001), (0.0, 0.0))

    gdal_file(tmp_path / "DESIS-HSI-L2A.tif", PIXELS[:2].astype("i2"))
    lines = "ENVI\nsamples = 50\nlines = 37\nbands = 2\ndata type = 2\nwavelength units = Nanometers\n"
    (tmp_path / "DESIS-HSI-L2A.hdr").write_text(lines + "wavelength = {401.5, 404.0}\nfwhm = {2.5, 2.6}\n")
    meta = open_cube(tmp_path / "DESIS-HSI-L2A.tif").meta
    assert (meta.wavelengths, meta.fwhm, meta.wavelength_units) == ((401.5, 404.0), (2.5, 2.6), "Nanometers")
    np.testing.assert_array_equal(open_cube(tmp_path / "DESIS-HSI-L2A.tif").read(), PIXELS[:2])
    with pytest.raises(FormatError, match="data file"):  # the TIFF is no ENVI data, whatever the header says
        open_cube(tmp_path / "DESIS-HSI-L2A.hdr")


# What GDAL reads in our files


def full_meta(**changes) -> CubeMeta:
    meta = CubeMeta(
        3,
        6,
        5,
        np.dtype("<i2"),
        wavelengths=(450.125, 550.25, 650.5),
        wavelength_units="Nanometers",
        fwhm=(5.5, 6.5, 7.5),
        good_bands=(True, False, True),
        band_names=("blue & cyan", 'a "green" <one>', "rot, grün"),
        default_bands=(2, 1, 0),
        nodata=-9999.0,
        reflectance_scale=10000.0,
        gains=(1e-4, 2e-4, 3e-4),
        offsets=(0.0, 0.5, -0.5),
        georeference=Georeference(transform=TRANSFORMS["plain"], crs="EPSG:32633"),
        variable="hsi",
        extra={"sensor type": "Hyperion", "description": "a\nb", "levels": "{1, 2}"},
    )
    return dataclasses.replace(meta, **changes)


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
    assert meta.notes == (f"placed by {beside}",)
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
    assert meta.notes == ("a.tif.aux.xml, which says where it lies, is not read", "placed by a.tfw")
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset><Metadata/></PAMDataset>")  # statistics, as GDAL caches
    assert open_cube(tmp_path / "a.tif").meta.notes == ("placed by a.tfw",)


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


# Writing


@pytest.mark.parametrize("interleave", ["bsq", "bip"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u4", "<i8", ">u8", "<f2", "<f4", ">f8", "<c8"])
def test_maps_of_one_band_and_every_number_are_written(tmp_path, dtype, interleave):
    meta = CubeMeta(1, 6, 5, np.dtype(dtype), interleave=interleave)
    pixels = np.arange(30).reshape(1, 6, 5).astype(dtype)
    with create_cube(tmp_path / "a.tif", meta) as cube:
        cube.write(meta.window, pixels)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif"), pixels[0])
    found = open_cube(tmp_path / "a.tif")
    assert found.meta.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found.read(), pixels)


@pytest.mark.parametrize(
    ("dtype", "nothing"), [("u8", 2**64 - 1), ("i8", 2**63 - 1), ("i8", -(2**63)), ("i8", -9)]
)
def test_gdal_finds_the_holes_of_64_bit_numbers(tmp_path, dtype, nothing):
    meta = CubeMeta(1, 1, 2, np.dtype(dtype), nodata=float(nothing))
    with create_cube(tmp_path / "a.tif", meta) as cube:
        cube.write(meta.window, np.array([[[nothing, 5]]], dtype))
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.read_masks(1).tolist() == [[0, 255]]
    assert open_cube(tmp_path / "a.tif").meta.nodata == float(nothing)
    with create_cube(tmp_path / "a.hdr", meta):
        pass
    assert f"data ignore value = {nothing}\n" in (tmp_path / "a.hdr").read_text()


def test_what_tiff_cannot_hold_is_refused(tmp_path):
    for meta in (CubeMeta(2, 3, 4, np.dtype(bool)), CubeMeta(70000, 1, 1, np.dtype("u1"))):
        with pytest.raises(OutputError, match="cannot hold"), create_cube(tmp_path / "a.tif", meta):
            pass


def test_a_second_create_keeps_the_pixels(tmp_path):
    meta = full_meta()
    for value in (7, 0):
        cube = tiff.FORMAT.create((tmp_path / "a.partial",), meta)
        if value:
            cube.write(meta.window, np.full(meta.shape(), value, "i2"))
    assert (cube.read() == 7).all()
    assert (tiff.FORMAT.open(tmp_path / "a.partial", OpenOptions()).read() == 7).all()


def test_odd_characters_in_names_and_values_do_no_harm(tmp_path):
    extra = {
        "a\x00b<&\"'": "x\x01y]]>&amp;<Item>",
        "ключ": "значение",
        "n": 3,
        "list": [1.5, 2.0],
        "each": ["p", "q", "r"],
        "::a": "b",
        "c::": "d",
        "e::f::g": "h",
    }
    with create_cube(tmp_path / "a.tif", full_meta(extra=extra)):
        pass
    found = open_cube(tmp_path / "a.tif").meta.extra
    assert found == {
        "ab<&\"'": "xy]]>&amp;<Item>",
        "ключ": "значение",
        "n": "3",
        "list": "{1.5, 2}",
        "each": ["p", "q", "r"],
        "::a": "b",
        "c::": "d",
        "e::f::g": "h",
    }


@pytest.mark.parametrize("interleave", ["bsq", "bip"])
def test_past_four_gigabytes_it_is_a_bigtiff(tmp_path, interleave):
    small = CubeMeta(100, 3000, 3000, np.dtype("<f4"), interleave=interleave)
    assert tiff_header.header(small)[:4] == b"II*\0"
    meta = dataclasses.replace(
        full_meta(), bands=130, rows=3000, columns=3000, dtype=np.dtype("<f4"), interleave=interleave
    )
    header = tiff_header.header(meta)
    assert header[:4] == b"II+\0"
    path = tmp_path / "big.tif"
    with path.open("wb") as file:  # sparse: only the header and the last pixel take room
        file.write(header)
        file.truncate(len(header) + meta.nbytes - 4)
        file.seek(0, 2)
        file.write(np.float32(42).tobytes())
    with rasterio.open(path) as file:
        assert file.read(130, window=((2999, 3000), (2999, 3000)))[0, 0] == 42
        assert file.block_shapes[0][0] < 3000 or interleave == "bip"
    with open_cube(path) as cube:
        assert cube.read(Window(2998, 2998, 2, 2))[129, 1, 1] == 42


def test_the_last_classic_byte_decides(monkeypatch):
    meta = full_meta()
    length = len(tiff_header.header(meta)) + meta.nbytes
    for limit, magic in ((length + 1, b"II*\0"), (length, b"II+\0")):
        monkeypatch.setattr(tiff_header, "CLASSIC_BYTES", limit)
        assert tiff_header.header(meta)[:4] == magic


# Hostile and broken files


def tags_of(width=10, height=10, bits=8, **more):
    """The tags of a small grey picture, code: (type, values); type 3 SHORT, 4 LONG, 2 text, 12 double."""
    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits]), 259: (3, [1]), 262: (3, [1])}
    tags |= {273: (4, [512]), 277: (3, [1]), 278: (4, [height]), 279: (4, [width * height * bits // 8])}
    return tags | {int(code[1:]): value for code, value in more.items()}


def tiff_bytes(tags, data=b"\5" * 4096, next_ifd=0, first=8, magic=b"II*\0"):
    """A classic TIFF by hand: header, directory at 8, long values from 256 on, pixels from 512 on."""
    entries, values = b"", b""
    for code, (kind, numbers) in sorted(tags.items()):
        letter = {2: "B", 3: "H", 4: "I", 7: "B", 12: "d"}[kind]
        raw = struct.pack(f"<{len(numbers)}{letter}", *numbers)
        cell = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack("<I", 4096 + len(values))
        values += b"" if len(raw) <= 4 else raw
        entries += struct.pack("<HHI", code, kind, len(numbers)) + cell
    head = magic + struct.pack("<I", first) + struct.pack("<H", len(tags)) + entries + struct.pack("<I", next_ifd)
    return (head.ljust(512, b"\0") + data).ljust(4096, b"\0")[:4096] + values


def raw_tag(code, kind, count, offset):
    """A whole picture whose one more tag is written as told, be it true or not."""
    whole = tiff_bytes(tags_of())
    entries = 10
    place = 10 + 12 * (entries - 1)
    entry = struct.pack("<HHII", code, kind, count, offset)
    patched = whole[:8] + struct.pack("<H", entries) + whole[10:place] + entry + bytes(4)
    return patched + whole[len(patched) :]


def a_whole_tiff(tmp_path, **options):
    return gdal_file(tmp_path / "whole.tif", np.tile(PIXELS, (1, 4, 4)).astype("u2"), **options).read_bytes()


def circle_of(pages):
    """A chain of empty directories whose last points to its first."""
    out = b"II*\0" + struct.pack("<I", 8)
    for page in range(pages):
        following = 8 + 18 * (page + 1) if page < pages - 1 else 8
        out += struct.pack("<HHHII", 1, 256, 4, 1, 10) + struct.pack("<I", following)
    return out


def big_tags(count_of_tags, first=16):
    return b"II+\0" + struct.pack("<HHQ", 8, 0, first) + struct.pack("<Q", count_of_tags) + bytes(64)


HUGE = 2**31 - 1
HOSTILE = {
    "text": b"P5 this is not a TIFF\n" * 9,
    "four bytes": b"II*\0",
    "no picture": b"II*\0" + bytes(4),
    "first page behind the end": b"II*\0" + struct.pack("<I", 10**9),
    "half an entry": tiff_bytes(tags_of())[:37],
    "no next page": tiff_bytes(tags_of())[:118],
    "points at itself": tiff_bytes(tags_of(), next_ifd=8),
    "circle of two": circle_of(2),
    "circle of 300": circle_of(300),
    "20 thousand pages": circle_of(20_000)[:-4] + bytes(4),
    "a stack of terabytes": tiff_bytes(tags_of(_270=(2, list(b'{"shape": [99999999999, 10, 10]}\0')))),
    "next page behind the end": tiff_bytes(tags_of(), next_ifd=10**8),
    "pixels behind the end": tiff_bytes(tags_of(_273=(4, [10**9]))),
    "pixels past the end": tiff_bytes(tags_of(width=500, height=500)),
    "strip smaller than it says": tiff_bytes(tags_of(_279=(4, [10]))),
    "eight terabytes": tiff_bytes(tags_of(2**21, 2**20, 32, _279=(4, [100]))),
    "eight terabytes deflated": tiff_bytes(tags_of(2**21, 2**20, 32, _259=(3, [8]), _279=(4, [100]))),
    "eight terabytes left out": tiff_bytes(tags_of(2**21, 2**20, 32, _273=(4, [0]), _279=(4, [0]))),
    "eight terabytes of strips": tiff_bytes(tags_of(2**21, 2**20, 32, _278=(4, [1]), _279=(4, [100]))),
    "widest and highest": tiff_bytes(tags_of(2**32 - 1, 2**32 - 1, _279=(4, [100]))),
    "a giant tile": tiff_bytes(
        tags_of(_259=(3, [8]), _322=(4, [HUGE]), _323=(4, [HUGE]), _324=(4, [512]), _325=(4, [100]))
    ),
    "tiles of no size": tiff_bytes(tags_of(_322=(4, [16]), _323=(4, [0]), _324=(4, [512]), _325=(4, [100]))),
    "strips of no rows": tiff_bytes(tags_of(_278=(4, [0]))),
    "too few strips": tiff_bytes(tags_of(_278=(4, [1]), _259=(3, [5]))),
    "no offsets": tiff_bytes({code: tag for code, tag in tags_of().items() if code != 273}),
    "no width": tiff_bytes(tags_of(_256=(4, [0]))),
    "no bands": tiff_bytes(tags_of(_277=(3, [0]))),
    "65535 bands in one strip": tiff_bytes(tags_of(_277=(3, [65535]), _258=(3, [8] * 3))),
    "neither planes nor pixels": tiff_bytes(tags_of(_277=(3, [3]), _284=(3, [77]), _279=(4, [300]))),
    "a width in words": tiff_bytes(tags_of(_256=(2, list(b"ten\0")))),
    "many widths": tiff_bytes(tags_of(_256=(4, [10, 10, 10]))),
    "a number of 13 kinds": tiff_bytes(tags_of(_339=(3, [13]))),
    "numbers of 77 bits": tiff_bytes(tags_of(bits=77)),
    "WebP": tiff_bytes(tags_of(_259=(3, [50001]))),
    "an unknown compression": tiff_bytes(tags_of(_259=(3, [31337]))),
    "a volume": tiff_bytes(tags_of(_32997=(4, [9]))),
    "a tag behind the end": raw_tag(42112, 2, 1000, 10**6),
    "a tag of 30 GB": raw_tag(42112, 12, 2**32 - 1, 200),
    "70 thousand tags": b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(900_000),
    "a trillion tags": big_tags(10**12),
    "bigtiff first page at the end of time": big_tags(1, first=2**64 - 1),
}


def read_all(path):
    """Open and read; what a hostile file may cost is measured on the way."""
    tracemalloc.start()
    try:
        with open_cube(path) as cube:
            cube.read(Window(0, 0, min(cube.meta.rows, 8), min(cube.meta.columns, 8)))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50e6


def assert_refused(path):
    with pytest.raises(FormatError) as caught:
        read_all(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_line_and_takes_no_memory(tmp_path, name, capsys):
    path = tmp_path / "bad.tif"
    path.write_bytes(HOSTILE[name])
    assert_refused(path)
    assert capsys.readouterr() == ("", "")


def test_the_hand_made_picture_itself_is_good(tmp_path):
    (tmp_path / "good.tif").write_bytes(tiff_bytes(tags_of()))
    assert (open_cube(tmp_path / "good.tif").read() == 5).all()


@pytest.mark.parametrize("codec", [{}, dict(compress="deflate"), dict(compress="lzw", tiled=True)], ids=str)
def test_a_file_cut_anywhere_is_refused(tmp_path, codec):
    whole = a_whole_tiff(tmp_path, **codec)
    last = gdal_last_byte(tmp_path / "whole.tif")
    for cut in sorted({1, 4, 7, 8, 9, 40, 100, 300, len(whole) // 3, len(whole) // 2, last - 1}):
        path = tmp_path / "cut.tif"
        path.write_bytes(whole[:cut])
        assert_refused(path)


def gdal_last_byte(path):
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        return max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=True)))


@pytest.mark.parametrize("compress", ["deflate", "lzw", "zstd", "lzma", "lerc", "jpeg", "packbits"])
def test_damaged_pixels_are_an_error_and_no_crash(tmp_path, compress):
    options = dict(compress=compress, interleave="pixel", tiled=True, blockxsize=32, blockysize=32)
    path = gdal_file(tmp_path / "a.tif", np.tile(PIXELS[:3], (1, 2, 2)).astype("u1"), **options)
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].dataoffsets[0]
    whole = bytearray(path.read_bytes())
    whole[place : place + 60] = bytes(range(100, 160))
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="strip or tile 0 cannot be decoded"):
        read_all(path)


def test_a_strip_that_unpacks_to_far_more_than_it_should_is_refused(tmp_path):
    bomb = zlib.compress(bytes(300_000_000))
    path = tmp_path / "a.tif"
    tags = tags_of(_259=(3, [8]), _273=(4, [5000]), _279=(4, [len(bomb)]))
    path.write_bytes(tiff_bytes(tags).ljust(5000, b"\0") + bomb)
    assert_refused(path)


def test_a_jpeg_that_says_it_is_giant_is_refused(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1, :32, :32].astype("u1"), compress="jpeg")
    whole = bytearray(path.read_bytes())
    frames = [i for i in range(len(whole) - 9) if whole[i : i + 2] in (b"\xff\xc0", b"\xff\xc1")]
    for frame in frames:
        whole[frame + 5 : frame + 9] = struct.pack(">HH", 65500, 65500)
    path.write_bytes(whole)
    assert_refused(path)


@pytest.mark.parametrize("wrapped", [None, "deflate", "zstd"])
def test_a_lerc_picture_that_says_it_is_giant_is_refused(tmp_path, wrapped):
    blob = imagecodecs.lerc_encode(np.zeros((8000, 8000), "u1"), compression=wrapped)
    path = tmp_path / "a.tif"
    tags = tags_of(_259=(3, [34887]), _273=(4, [5000]), _279=(4, [len(blob)]))
    path.write_bytes(tiff_bytes(tags).ljust(5000, b"\0") + blob)
    assert_refused(path)


def test_xml_bombs_and_broken_xml_leave_a_note(tmp_path):
    entities = '<!DOCTYPE a [<!ENTITY b "xxxx"><!ENTITY c "&b;&b;&b;">]>'
    bomb = f'{entities}<GDALMetadata><Item name="a">&c;</Item></GDALMetadata>'
    for text in (bomb, "<GDALMetadata><Item", "\x00\x01"):
        (tmp_path / "a.tif").write_bytes(tiff_bytes(tags_of(_42112=(2, list(text.encode() + b"\0")))))
        with open_cube(tmp_path / "a.tif") as cube:
            assert (cube.read() == 5).all()
            assert cube.meta.extra == {}
    assert "GDAL_METADATA is ignored" in cube.meta.notes[0]


@pytest.mark.parametrize(
    "tags",
    [
        dict(_33550=(12, [float("nan"), 1, 0]), _33922=(12, [0] * 6)),
        dict(_33550=(12, [0, 0, 0]), _33922=(12, [0] * 6)),
        dict(_33550=(2, list(b"abc\0")), _33922=(12, [0] * 5)),
        dict(_34264=(12, [1] * 7)),
        dict(_34735=(3, [1, 1, 0, 900, 1024, 0, 1, 1, 3072, 34736, 1, 60000, 1026, 34737, 60000, 60000])),
        dict(_34735=(3, [1, 1])),
        dict(_34735=(12, [1.5] * 9)),
        dict(_34735=(12, [1e30] * 9), _34737=(7, [255] * 9), _34736=(2, list(b"text\0"))),
        dict(_34735=(3, [1, 1, 0, 2, 3074, 34737, 4, 0, 3075, 34737, 4, 0]), _34737=(2, list(b"abcd\0"))),
        dict(_34735=(3, [1, 1, 0, 3, 3072, 0, 1, 32767, 3075, 0, 1, 1, 3076, 0, 1, 9001])),
        dict(_50844=(12, [1] * 5)),
        dict(_42113=(2, list(b"nonsense\0"))),
        dict(_42113=(12, [1.0, 2.0])),
    ],
    ids=str,
)
def test_nonsense_in_the_georeference_costs_only_the_georeference(tmp_path, tags):
    (tmp_path / "a.tif").write_bytes(tiff_bytes(tags_of(**tags)))
    with open_cube(tmp_path / "a.tif") as cube:
        assert (cube.read() == 5).all()
        assert cube.meta.georeference.transform is None
        assert cube.meta.nodata is None
        with create_cube(tmp_path / "b.tif", cube.meta.upscaled(2)):
            pass


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1, max_size=6))
def test_any_bytes_changed_end_in_a_cube_or_in_one_line(tmp_path, changes):
    whole = bytearray(tiff_bytes(tags_of(_259=(3, [1]), _339=(3, [1]), _33550=(12, [1, 1, 0]), _284=(3, [1]))))
    for place, value in changes:
        whole[place] = value
    path = tmp_path / "a.tif"
    path.write_bytes(whole)
    with suppress(FormatError):
        read_all(path)


# Real files


def test_the_real_files_give_what_gdal_reads(data):
    paths = [p for p in sorted(data.rglob("*")) if p.suffix.lower() in (".tif", ".tiff")]
    assert paths
    for path in paths:
        with rasterio.open(path) as reference, open_cube(path) as cube:
            np.testing.assert_array_equal(cube.read(), reference.read())
            assert cube.meta.nodata == reference.nodata
    enmap = open_cube(data / "train" / "enmap" / "enmap_potsdam_tile_96_96.tif").meta
    assert (enmap.wavelengths[0], enmap.fwhm[0], enmap.wavelength_units) == (418.24, 6.99561, "Nanometers")
    assert (sum(enmap.good_bands), enmap.gains[0], enmap.georeference.crs) == (218, 0.0001, "EPSG:32633")


def test_ground_points_keep_their_heights():
    point = GroundPoint(1.5, 2.5, 10.0, 20.0, 30.0)
    where = Georeference(points=(point,), pixel_is_point=True)
    assert geokeys.georeference(geokeys.tags(where)).points == (point,)
