"""TIFFs as GDAL, tifffile and ImageJ write them, what they say of themselves, and ours."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.enums import ColorInterp

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats import tiff
from pdenet_cli.formats.common.base import OpenOptions
from pdenet_cli.formats.tiff import tags as tiff_header
from pdenet_cli.tools.truths import TruthSettings, first_repeated
from tests.cubes import written
from tests.tiffs import PIXELS, full_meta, gdal_file

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
WINDOWS = [
    Window(0, 0, 37, 50),
    Window(0, 0, 1, 1),
    Window(36, 49, 1, 1),
    Window(15, 14, 18, 20),
    Window(20, 33, 9, 17),
]


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
        np.testing.assert_array_equal(cube.read(), PIXELS[:1])


def masked_file(path, pixels, mask, compress=None, **options):
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        gdal_file(path, pixels, compress=compress, **options)
        with rasterio.open(path, "r+") as file:
            file.write_mask(mask)
    return path


MASK = np.random.default_rng(1).random((37, 50)) > 0.3


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize(
    "layout", [dict(ENDIANNESS="BIG"), dict(tiled=True, blockxsize=16, blockysize=32), dict(compress="lzw")]
)
@pytest.mark.parametrize(
    ("dtype", "declared", "asked", "nodata"),
    [
        ("i2", False, None, -(2**15)),
        ("i2", True, None, -9999),
        ("i2", True, 7, 7),
        ("u1", False, None, 255),
        ("u1", False, 999, 255),  # a value that no pixel can hold
        ("u2", True, None, 65535),
        ("f4", False, None, np.nan),
        ("f4", True, np.nan, np.nan),
        ("f8", True, None, -9999),
    ],
)
def test_pixels_that_a_mask_leaves_out_are_nodata(dtype, declared, asked, nodata, interleave, layout, tmp_path):
    pixels = PIXELS.astype(dtype)
    path = masked_file(tmp_path / "a.tif", pixels, MASK, interleave=interleave, **layout)
    if declared:
        (tmp_path / "a.tif.aux.xml").write_text(pam({}, {}, {}, {}, {}))  # -9999
    expected = np.where(MASK, pixels, np.array(nodata, pixels.dtype))
    with open_cube(path, nodata=asked) as cube:
        np.testing.assert_equal(cube.meta.nodata, nodata)
        np.testing.assert_array_equal(cube.read(), expected)
        np.testing.assert_array_equal(cube.read(Window(3, 5, 20, 31), [1, 4]), expected[[1, 4], 3:23, 5:36])
        for step in (2, 20, 40):
            np.testing.assert_array_equal(cube.thinned(step), expected[:, ::step, ::step])
        assert cube.read(Window(3, 5, 0, 0)).shape == (5, 0, 0)
        assert "masked pixels are read as nodata" in " ".join(cube.meta.notes)


@pytest.mark.parametrize(("dtype", "end", "moved"), [("u2", 65535, 65534), ("i2", -32768, -32767)])
def test_data_that_equal_the_nodata_chosen_for_a_mask_stay_data(dtype, end, moved, tmp_path):
    pixels = PIXELS.astype(dtype)
    pixels[:, :, 7] = end
    path = masked_file(tmp_path / "a.tif", pixels, MASK)
    cube = open_cube(path)
    np.testing.assert_array_equal(cube.read(), np.where(MASK, np.where(pixels == end, moved, pixels), end))
    assert cube.meta.notes == (f"masked pixels are read as nodata, {end}, and pixels of that value as {moved}",)


def alpha_file(path, pixels, alpha, **options):
    """A TIFF as gdalwarp -dstalpha writes it: the last band is marked as alpha."""
    both = np.concatenate([pixels, alpha[None].astype(pixels.dtype)])
    kinds = [ColorInterp.gray] + [ColorInterp.undefined] * (len(pixels) - 1) + [ColorInterp.alpha]
    bands, rows, columns = both.shape
    settings = dict(driver="GTiff", count=bands, height=rows, width=columns, dtype=both.dtype) | options
    with rasterio.open(path, "w", **settings) as file:
        file.colorinterp = kinds
        file.write(both)
        for band in range(1, bands):
            file.update_tags(band, wavelength=400 + band, wavelength_units="Nanometers")
    return path


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("layout", [{}, dict(tiled=True, blockxsize=16, blockysize=32), dict(compress="lzw")])
@pytest.mark.parametrize(
    ("dtype", "declared", "nodata"),
    [("u1", None, 255), ("i2", None, -(2**15)), ("u2", 0, 0), ("f4", None, np.nan)],
)
def test_an_alpha_band_is_a_mask_and_not_a_band(dtype, declared, nodata, interleave, layout, tmp_path):
    pixels = PIXELS.astype(dtype)
    path = alpha_file(tmp_path / "a.tif", pixels, 200 * MASK, interleave=interleave, nodata=declared, **layout)
    expected = np.where(MASK, pixels, np.array(nodata, pixels.dtype))
    with open_cube(path) as cube:
        assert cube.meta.shape() == (5, 37, 50)
        assert cube.meta.wavelengths == (401, 402, 403, 404, 405)
        np.testing.assert_equal(cube.meta.nodata, nodata)
        np.testing.assert_array_equal(cube.read(), expected)
        np.testing.assert_array_equal(cube.read(Window(3, 5, 20, 31), [1, 4]), expected[[1, 4], 3:23, 5:36])
        np.testing.assert_array_equal(cube.read(bands=slice(None, None, -1)), expected[::-1])
        for step in (2, 20, 40):
            np.testing.assert_array_equal(cube.thinned(step), expected[:, ::step, ::step])
        np.testing.assert_array_equal(cube.with_bands(slice(2, 5)).read(bands=[2]), expected[4:])
        assert cube.meta.notes[0] == "its last band is alpha: read as a mask, not as a band"
        assert "masked pixels are read as nodata" in cube.meta.notes[1]


def test_a_mask_is_used_before_alpha_and_neither_is_a_band(tmp_path):
    path = alpha_file(tmp_path / "a.tif", PIXELS.astype("f4"), np.full(MASK.shape, 255))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.write_mask(MASK)
    np.testing.assert_array_equal(open_cube(path).read(), np.where(MASK, PIXELS, np.float32(np.nan)))


@pytest.mark.parametrize(
    ("bands", "marks"),
    [
        (5, (0, 0, 0, 0)),
        (5, (2, 0, 0, 0)),  # ALPHA=YES of GDAL, which marks the second band
        (5, (2, 2, 2, 2)),
        (1, ()),
        (4, (2,)),  # GDAL marks the fourth 8-bit band, also where it is infrared
    ],
)
def test_bands_that_are_not_alpha_stay_bands(bands, marks, tmp_path):
    pixels = PIXELS[:bands].astype("u1")
    tifffile.imwrite(
        tmp_path / "a.tif",
        pixels.transpose(1, 2, 0) if bands > 1 else pixels[0],
        photometric="rgb" if len(marks) == 1 else "minisblack",
        planarconfig="contig" if bands > 1 else None,
        extrasamples=marks or None,
        metadata=None,
    )
    with open_cube(tmp_path / "a.tif") as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
        told = "its last band is marked as alpha but its values are not a mask's: read as a band"
        assert cube.meta.notes == ((told,) if len(marks) == 1 else ())


def test_axes_that_a_user_tells_are_those_of_all_that_a_picture_holds(tmp_path):
    path = alpha_file(tmp_path / "a.tif", PIXELS.astype("i2"), MASK, interleave="band")
    assert open_cube(path, axes="rcb").meta.shape() == (50, 6, 37)


def test_a_mask_follows_its_picture_however_axes_are_told(tmp_path):
    path = masked_file(tmp_path / "a.tif", PIXELS.astype("i2"), MASK, interleave="band")
    told = open_cube(path, axes="crb").read()  # its rows as bands, its bands as columns
    np.testing.assert_array_equal(told, open_cube(path).read().transpose(2, 1, 0))


@pytest.mark.parametrize("masks", [[MASK[:9]], [MASK, ~MASK]], ids=["another size", "two"])
def test_a_mask_that_does_not_fit_is_ignored_and_that_is_said(masks, tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(PIXELS[0].astype("u1"), metadata=None)
        for mask in masks:
            file.write(mask, subfiletype=4, metadata=None)
    with open_cube(tmp_path / "a.tif") as cube:
        np.testing.assert_array_equal(cube.read()[0], PIXELS[0])
        assert "the TIFF mask is ignored" in cube.meta.notes[-1]


def test_a_damaged_mask_ends_in_one_line_when_it_is_read(tmp_path):
    path = masked_file(tmp_path / "a.tif", PIXELS.astype("u1"), MASK)
    with tifffile.TiffFile(path) as file:
        (mask,) = (page for page in file.pages if page.is_mask)
    data = bytearray(path.read_bytes())
    data[mask.dataoffsets[0] : mask.dataoffsets[0] + 9] = bytes(9)
    path.write_bytes(data)
    with pytest.raises(FormatError, match="cannot be decoded"):
        open_cube(path).read()


def test_a_mask_beside_the_picture_is_noted(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:1].astype("u1"))
    assert open_cube(path).meta.notes == ()
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(path, "r+") as file:
        file.write_mask(np.zeros((37, 50), bool))
    assert (tmp_path / "a.tif.msk").exists()
    assert "the TIFF mask is ignored" in open_cube(path).meta.notes[0]


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


@pytest.mark.parametrize("codec", [{}, {"compression": "zlib"}], ids=str)
@pytest.mark.parametrize("settled", [None, "axes", "wavelengths", "place"])
def test_that_pages_are_taken_for_bands_is_said_where_nothing_settles_it(tmp_path, codec, settled):
    tags = [(33550, 12, 3, (1.0, 1.0, 0.0), True)] if settled == "place" else []
    pixels = PIXELS.transpose(1, 2, 0).astype("u2")
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack", extratags=tags, **codec)
    if settled == "wavelengths":
        numbers = ", ".join(map(str, range(37)))
        words = f"ENVI\nsamples = 5\nlines = 50\nbands = 37\ndata type = 12\nwavelength = {{{numbers}}}\n"
        (tmp_path / "a.hdr").write_text(words)
    meta = open_cube(tmp_path / "a.tif", axes="brc" if settled == "axes" else None).meta
    assert meta.shape() == (37, 50, 5)
    said = "its 37 pages are read as bands; use `axes` rcb if they are rows" in meta.notes
    assert said == (settled is None)


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
    assert cube.meta.nbytes > 300e6 > 6 * peak  # the tiles that it touches take 21 MB


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


@pytest.mark.parametrize(
    ("unit", "wavelength", "fwhm"),
    [
        ("Nanometers", "550", 5.8),
        (None, "550", 5.8),
        ("Micrometers", "0.55", 0.0058),
        ("Wavenumber", "9000", None),
    ],
)
def test_widths_told_in_micrometres_are_in_the_unit_of_the_wavelengths(tmp_path, unit, wavelength, fwhm):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"))
    with rasterio.open(path, "r+") as file:
        for band in (1, 2):
            file.update_tags(band, wavelength=wavelength, **({"wavelength_units": unit} if unit else {}))
            file.update_tags(band, ns="IMAGERY", CENTRAL_WAVELENGTH_UM="0.55", FWHM_UM="0.0058")
    meta = open_cube(path).meta
    assert meta.wavelengths == (float(wavelength),) * 2
    assert meta.fwhm == (None if fwhm is None else (fwhm, fwhm))
    with rasterio.open(path, "r+") as file:
        file.update_tags(1, fwhm="7")
        file.update_tags(2, fwhm="8")
    assert open_cube(path).meta.fwhm == (7, 8)


def test_gdals_copies_of_band_names_are_not_carried_over(tmp_path):
    items = dict(Band_1="400 nm", Band_2="500 nm", Band_width="5", a="1")
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"), tags={0: items})
    assert open_cube(path).meta.extra == {"Band_width": "5", "a": "1"}


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
    (tmp_path / "DESIS-METADATA.xml").write_text(xml.replace("bandID", "band"))
    (tmp_path / "DESIS-SPECTRAL_IMAGE.hdr").write_text((tmp_path / "DESIS-HSI-L2A.hdr").read_text())
    gdal_file(tmp_path / "DESIS-SPECTRAL_IMAGE.tif", PIXELS[:2].astype("i2"))
    assert open_cube(tmp_path / "DESIS-SPECTRAL_IMAGE.tif").meta.wavelengths == (401.5, 404.0)
    meta = open_cube(tmp_path / "DESIS-HSI-L2A.tif").meta
    assert (meta.wavelengths, meta.fwhm, meta.wavelength_units) == ((401.5, 404.0), (2.5, 2.6), "Nanometers")
    np.testing.assert_array_equal(open_cube(tmp_path / "DESIS-HSI-L2A.tif").read(), PIXELS[:2])
    with pytest.raises(FormatError, match="data file"):  # the TIFF is no ENVI data, whatever the header says
        open_cube(tmp_path / "DESIS-HSI-L2A.hdr")


@pytest.mark.parametrize(
    ("part", "expected"), [("_VNIR", (401, 402)), ("_SWIR", (403, 404)), ("", None), ("_QL", None)]
)
def test_each_detector_of_enmap_has_its_part_of_the_one_list(tmp_path, part, expected):
    path = gdal_file(tmp_path / f"ENMAP01-____L1B-SPECTRAL_IMAGE{part}.TIF", PIXELS[:2].astype("i2"))
    names = ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
    bands = "".join(f"<bandID>{''.join(f'<{n}>{b}</{n}>' for n in names)}</bandID>" for b in range(401, 405))
    xml = f"<level_X><specific><bandCharacterisation>{bands}</bandCharacterisation></specific></level_X>"
    (tmp_path / "ENMAP01-____L1B-METADATA.XML").write_text(xml)
    meta = open_cube(path).meta
    assert meta.wavelengths == meta.gains == expected
    unused = "ENMAP01-____L1B-METADATA.XML describes 4 bands but the image has 2: ignored"
    assert (unused in meta.notes) == (expected is None)


def pam(*bands):
    """An .aux.xml that says these items of its bands."""
    items = ("".join(f'<MDI key="{k}">{v}</MDI>' for k, v in band.items()) for band in bands)
    parts = (
        f'<PAMRasterBand band="{i}"><NoDataValue>-9.99900000000000E+03</NoDataValue>'
        f"<Metadata>{words}</Metadata></PAMRasterBand>"
        for i, words in enumerate(items, start=1)
    )
    return f"<PAMDataset>{''.join(parts)}</PAMDataset>"


def test_what_gdal_keeps_beside_a_picture_counts_where_the_picture_says_nothing(tmp_path):
    usual = dict(wavelength_units="Nanometers", fwhm="5")
    bands = [dict(usual, wavelength="450", bbl=1), dict(usual, wavelength="550", bbl=0)]
    path, beside = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2")), tmp_path / "a.tif.aux.xml"
    beside.write_text(pam(*bands))
    with open_cube(path) as cube, rasterio.open(path) as reference:
        assert cube.meta.nodata == reference.nodata == -9999
        assert (cube.meta.wavelengths, cube.meta.wavelength_units) == ((450, 550), "Nanometers")
        assert (cube.meta.fwhm, cube.meta.good_bands) == ((5, 5), (True, False))
        said = "nodata, wavelengths, wavelength units, fwhm, good bands"
        assert cube.meta.notes == (f"{said} read from a.tif.aux.xml",)
        assert cube.beside == (beside,)
    own = {band: dict(wavelength=str(band)) for band in (1, 2)}
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"), nodata=-1, tags=own)
    beside.write_text(pam(*bands))
    with open_cube(path) as cube:
        assert (cube.meta.nodata, cube.meta.wavelengths, cube.meta.fwhm) == (-1, (1, 2), None)
        assert cube.meta.good_bands == (True, False)


def test_what_gdal_keeps_beside_a_picture_may_be_of_no_use(tmp_path):
    path, beside = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2")), tmp_path / "a.tif.aux.xml"
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><PAMDataset><Metadata><MDI key="d">&b;</MDI></Metadata></PAMDataset>'
    for words, notes in (
        ("<PAMDataset", ("a.tif.aux.xml is ignored: ParseError",)),
        (bomb, ("a.tif.aux.xml is ignored: EntitiesForbidden",)),
        ("<PAMDataset><Metadata><MDI key='STATISTICS_MEAN'>4</MDI></Metadata></PAMDataset>", ()),
        (
            pam(dict(wavelength=1), {}).replace("NoDataValue", "x"),
            ("a.tif.aux.xml: wavelength ignored: not a number for every band",),
        ),
        (pam({}, {}).replace("9.99", "1.99", 1), ("a.tif.aux.xml: nodata ignored: not the same in every band",)),
    ):
        beside.write_text(words)
        with open_cube(path) as cube:
            assert (cube.meta.nodata, cube.meta.wavelengths) == (None, None)
            assert (cube.meta.notes, cube.beside) == (notes, ())


def test_what_was_used_beside_a_picture_is_a_part_of_the_scene(tmp_path):
    path = gdal_file(tmp_path / "a.tif", PIXELS[:2].astype("i2"))
    (tmp_path / "a.hdr").write_text("ENVI\nsamples = 50\nlines = 37\nbands = 2\ndata type = 2\n")
    (tmp_path / "a.tfw").write_text("no numbers")
    assert open_cube(path).files == (path,)
    with (tmp_path / "a.hdr").open("a") as header:
        header.write("wavelength = {401.5, 404.0}\n")
    (tmp_path / "a.tfw").write_text("30 0 0 -30 5 5")
    assert [file.name for file in open_cube(path).files] == ["a.tif", "a.hdr", "a.tfw"]
    bands = "".join(
        "<bandID>"
        + "".join(
            f"<{n}>{b}</{n}>" for n in ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
        )
        + "</bandID>"
        for b in (1, 2)
    )
    xml = f"<level_X><specific><bandCharacterisation>{bands}</bandCharacterisation></specific></level_X>"
    (tmp_path / "E-METADATA.XML").write_text(xml)
    pictures = [tmp_path / f"E-SPECTRAL_IMAGE_{part}.TIF" for part in ("VNIR", "SWIR")]
    for picture in pictures:
        gdal_file(picture, PIXELS[:2].astype("i2"))
        assert [file.name for file in open_cube(picture).files] == [picture.name, "E-METADATA.XML"]
    assert first_repeated(pictures, TruthSettings()) is None
    assert first_repeated([*pictures, tmp_path / "." / pictures[0].name], TruthSettings()) == pictures[0]


# Writing


@pytest.mark.parametrize("interleave", ["bsq", "bip"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u4", "<i8", ">u8", "<f2", "<f4", ">f8", "<c8"])
def test_maps_of_one_band_and_every_number_are_written(tmp_path, dtype, interleave):
    pixels = np.arange(30).reshape(1, 6, 5).astype(dtype)
    written(tmp_path / "a.tif", pixels, interleave=interleave)
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
