"""File numbers to 0..1 and back: by the stated rule, without loss, the same for every tile."""

import math
import re
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pdenet_cli import (
    CubeMeta,
    Posterior,
    Radiometry,
    Survey,
    create_cube,
    load_model,
    open_cube,
    sharpen,
)
from pdenet_cli.errors import FormatError, UsageError
from pdenet_cli.formats.tiff.segments import SegmentArray
from pdenet_cli.scene import radiometry
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.encoding import Encoding
from pdenet_cli.scene.holes import filled_from_edges, valid
from pdenet_cli.scene.reading import Reading, refuse_narrow
from pdenet_cli.scene.survey import _evenly_spread
from tests.cubes import in_memory, written
from tests.tiffs import gdal_file


def stored(radiometry, unit, dtype):
    """The network's 0..1 as a file without holes stores it, with the nodata value of the scene."""
    return radiometry.finish(unit, np.ones(unit.shape, bool), Encoding(dtype, radiometry.nodata))


def read(found):
    """A reading of a scene of which only the survey counts."""
    return Reading(found, (0,), (), radiometry.ALREADY_UNIT)


def survey(low, high, bands=2):
    return Survey(low, high, low, high, (0.5 * (low + high),) * bands, 0.0, 1.0)


def meta(dtype="<u2", **more):
    return CubeMeta(2, 4, 4, np.dtype(dtype), **more)


def test_holes_are_filled_from_their_edges_and_no_deeper_than_told():
    unit = np.zeros((2, 3, 7), np.float32)
    unit[:, :, 0], unit[1, :, 6] = 8, 4
    there = np.zeros(unit.shape, bool)
    there[:, :, 0] = there[1, :, 6] = True
    np.testing.assert_array_equal(filled_from_edges(unit, there, 2)[0, 1], [8, 8, 8, 0, 0, 0, 0])
    np.testing.assert_array_equal(filled_from_edges(unit, there, 3)[1, 1], [8, 8, 8, 6, 4, 4, 4])
    np.testing.assert_array_equal(filled_from_edges(unit, np.ones_like(there), 3), unit)
    corner = np.array([[[1, 2], [3, 9]]], np.float32)
    assert filled_from_edges(corner, corner < 9, 1)[0, 1, 1] == 2.5


def test_bands_are_a_slice_or_any_sequence():
    radiometry = Radiometry((1.0, 2.0, 3.0, 4.0), (0.0,), "test")
    ones = np.ones((2, 1, 1), "f4")
    for bands in (slice(1, 3), [1, 2], (1, 2), range(1, 3)):
        assert radiometry.to_unit(ones, bands).ravel().tolist() == [2, 3]


def limits(radiometry):
    """The file numbers that become 0 and 1."""
    return tuple((unit - radiometry.offset[0]) / radiometry.gain[0] for unit in (0, 1))


@pytest.mark.parametrize(
    ("described", "found", "chosen", "expected", "says"),
    [
        (meta(), survey(0, 4000), (100, 2100), (100, 2100), "range given"),
        (meta(reflectance_scale=10000.0), survey(0, 4000), None, (0, 10000), "scale factor"),
        (meta(reflectance_scale=1.0), survey(0, 4000), None, (0, 4000), "from the data.*contradict"),
        (meta("<f4", reflectance_scale=1e4), survey(0, 0.9), None, (0, 1), "as they are.*contradict"),
        (meta(gains=(1e-4,) * 2), survey(0, 4000), None, (0, 10000), "gain.*: 0.0001 and 0$"),
        (meta(gains=(1e-4, 0.0)), survey(0, 4000), None, (0, 4000), "from the data"),
        (meta(gains=(0.1,) * 2), survey(0, 4000), None, (0, 4000), "from the data"),
        (meta("u1"), survey(3, 90), None, (0, 255), "8-bit"),
        (meta("<f4"), survey(-0.01, 1.1), None, (0, 1), "as they are"),
        (meta("<f4"), survey(0, 70), None, (0, 70), "from the data"),
        (meta("<i2"), survey(-50, 4000), None, (0, 4000), "from the data"),
        (meta("<i2"), survey(-3000, 4000), None, (-3000, 4000), "from the data"),
        # On both sides of each edge that the rule names.
        (meta(reflectance_scale=10000.0), survey(0, 11), None, (0, 10000), "scale factor"),
        (meta(reflectance_scale=10000.0), survey(0, 10), None, (0, 10), "from the data.*contradict"),
        (meta(reflectance_scale=100.0), survey(0, 1000), None, (0, 100), "scale factor"),
        (meta(reflectance_scale=100.0), survey(0, 1001), None, (0, 1001), "from the data.*contradict"),
        (meta(gains=(1e-5,) * 2), survey(0, 5100), None, (0, 100000), "gain"),
        (meta(gains=(1e-5,) * 2), survey(0, 4900), None, (0, 4900), "from the data"),
        (meta("<f4"), survey(-0.5, 1.5), None, (0, 1), "as they are"),
        (meta("<f4"), survey(-0.51, 1.5), None, (-0.51, 1.5), "from the data"),
        (meta("<f4"), survey(0, 1.51), None, (0, 1.51), "from the data"),
        (meta("<f4"), survey(0, 0.051), None, (0, 1), "as they are"),
        (meta("<f4"), survey(0, 0.049), None, (0, 0.049), "from the data"),
        (meta("<i2"), survey(-399, 4000), None, (0, 4000), "from the data"),
        (meta("<i2"), survey(-401, 4000), None, (-401, 4000), "from the data"),
        (meta("<i2"), survey(-100, -20), None, (-100, -20), "from the data"),
        (meta("<i2"), survey(0, 0), None, (0, 1), "from the data"),
        # A few hot pixels say nothing, unless nothing else is bright.
        (meta(reflectance_scale=1e4), replace(survey(0, 1e6), top=4000.0), None, (0, 10000), "scale factor"),
        (meta(), replace(survey(0, 60000), top=4000.0), None, (0, 4000), "from the data"),
        (meta(), replace(survey(0, 700), top=0.0), None, (0, 700), "from the data"),
    ],
)
def test_the_rule_decides_and_says_why(described, found, chosen, expected, says):
    radiometry = Radiometry.of(described, found, chosen)
    assert limits(radiometry) == pytest.approx(expected)
    assert re.search(says, radiometry.reason)


def test_gains_may_differ_from_band_to_band():
    radiometry = Radiometry.of(meta(gains=(1e-4, 2e-4), offsets=(0.0, 0.1)), survey(0, 4000))
    assert radiometry.reason == "gain and offset in the header: 0.0001 to 0.0002 and 0 to 0.1"
    unit = radiometry.to_unit(np.full((2, 1, 1), 1000, "u2"))
    np.testing.assert_allclose(unit.ravel(), [0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(radiometry.to_unit(np.full((1, 1, 1), 1000, "u2"), slice(1, 2)), 0.3, rtol=1e-6)


def test_each_band_is_as_bright_as_its_own_gain_and_offset_make_it(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 40, (3, 20, 20)).astype("<u2")
    pixels[0] *= 100
    described = dict(gains=(1e-4, 1e-2, 1e-4), offsets=(0.0, 0.0, 0.9))
    with open_cube(written(tmp_path / "a.hdr", pixels, **described)) as cube:
        found = Survey.of(cube)
        radiometry = Radiometry.of(cube.meta, found)
    assert found.brightest == pytest.approx(0.9039, abs=1e-4)
    assert (radiometry.gain, radiometry.offset) == tuple(described.values())


@pytest.mark.parametrize("gain", [1e-6, 4e-6, 6e-6, 1e-4, 2e-4, 1.0])
def test_the_same_physical_values_are_as_bright_however_they_are_kept(gain):
    numbers = np.full((2, 1, 1), 9000, "u2")
    packed = Radiometry.of(meta(gains=(gain,) * 2), survey(100, 9000)).to_unit(numbers)
    plain = Radiometry.of(meta("<f4"), survey(100 * gain, 9000 * gain)).to_unit((numbers * gain).astype("f4"))
    # Between 1.5 and 2, only a header that has said what its numbers mean is believed.
    np.testing.assert_allclose(packed, 1.8 if gain == 2e-4 else plain, rtol=1e-5)


def test_numbers_that_fall_as_light_grows_are_understood_by_their_gain():
    falling = Radiometry.of(meta(gains=(-1e-4,) * 2, offsets=(1.0,) * 2), survey(0, 9990))
    assert limits(falling) == pytest.approx((10000, 0))


def test_the_words_of_a_reason_decide_nothing(monkeypatch):
    described, found = meta(gains=(1e-4,) * 2), survey(0, 4000)
    chosen = Radiometry.of(described, found)
    other = replace(radiometry._range(described, found, None), reason="as the header has it")
    monkeypatch.setattr(radiometry, "_range", lambda *words: other)
    assert Radiometry.of(described, found) == replace(chosen, reason=other.reason)


@given(hnp.arrays(st.sampled_from(["u1", "<i2", "<u2", "<i4"]), (2, 3, 3)))
def test_integers_come_back_exactly(pixels):
    found = Survey(float(pixels.min()), float(pixels.max()), float(pixels.min()), 10000.0, (0.0, 0.0), 0, 1)
    radiometry = Radiometry.of(meta(pixels.dtype), found)
    if pixels.dtype.itemsize < 4:  # float32 holds 24 bits
        np.testing.assert_array_equal(stored(radiometry, radiometry.to_unit(pixels), pixels.dtype), pixels)
    wide = stored(radiometry, np.array([[[-1e9, 1e9]]]), pixels.dtype)
    assert wide.dtype == pixels.dtype


@pytest.mark.parametrize(("low", "lowest"), [(0, 0), (5, 0), (-1, -400)])
def test_no_number_is_negative_where_the_scene_has_none(low, lowest):
    radiometry = Radiometry.of(meta("<i2"), survey(low, 4000))
    out = stored(radiometry, np.full((2, 1, 1), -0.1), np.dtype("<i2"))
    assert out.ravel().tolist() == [lowest] * 2


def test_large_whole_numbers_keep_their_differences():
    base = 2_000_000_000
    radiometry = Radiometry.of(meta("<i4"), survey(base, base + 100), (base, base + 100))
    unit = radiometry.to_unit(np.array([[[base + 1, base + 50]]], "<i4"))
    np.testing.assert_allclose(unit.ravel(), [0.01, 0.5], rtol=1e-5)
    assert stored(radiometry, unit, np.dtype("<i4")).ravel().tolist() == [base + 1, base + 50]


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4"])
def test_what_does_not_fit_is_clipped_not_wrapped(dtype):
    radiometry = Radiometry((1.0,), (0.0,), "test")
    out = stored(radiometry, np.array([[[-1e30, 1e30]]]), np.dtype(dtype)).ravel()
    assert out[0] <= 0
    assert out[1] > 100


@pytest.mark.parametrize(
    ("dtype", "floor", "gain", "expected"),
    [
        ("i2", -math.inf, 1.0, 3),
        ("i2", 0.0, 1.0, 2),  # what is below 0 is held at 0, which is no clipping
        ("i2", -math.inf, -1.0, 3),
        ("u1", 0.0, 1.0, 3),
        ("i4", -math.inf, 1.0, 0),
        ("f4", -math.inf, 1.0, 0),
    ],
)
def test_values_that_do_not_fit_are_counted_after_rounding_and_not_in_holes(dtype, floor, gain, expected):
    radiometry = Radiometry((gain,), (0.0,), "test", floor=floor)
    numbers = np.array([[[32767.4, 32767.6, 4e4, 9e4], [-32768.4, -5e4, 3, 0]]])
    there = np.ones(numbers.shape, bool)
    there[0, 0, 3] = False
    assert radiometry.clipped(gain * numbers, there, Encoding(np.dtype(dtype))) == expected


def test_a_spread_takes_the_gain_and_never_the_offset():
    radiometry = Radiometry((0.01,), (-5.0,), "test")
    np.testing.assert_allclose(radiometry.spread_from_unit(np.full((1, 1, 1), 0.2)), 20)


def test_nodata_is_filled_for_the_network_and_comes_back():
    pixels = np.array([[[10, 0], [30, 40]], [[0, 0], [70, 80]]], "u2")
    radiometry = Radiometry.of(meta(nodata=0.0), survey(10, 80), (0, 100))
    unit, there = radiometry.prepare(pixels)
    assert there.sum() == 5
    np.testing.assert_allclose(unit[~there], 0.45)
    np.testing.assert_array_equal(
        radiometry.finish(unit, there, Encoding(pixels.dtype, radiometry.nodata)), pixels
    )


def test_an_estimate_that_rounds_to_nodata_stays_an_estimate():
    radiometry = Radiometry((0.01,), (0.0,), "test", nodata=0.0)
    assert stored(radiometry, np.array([[[0.001]]]), np.dtype("u2")).item() == 1
    top = Radiometry((1 / 65535,), (0.0,), "test", nodata=65535.0)
    assert stored(top, np.array([[[1.0]]]), np.dtype("u2")).item() == 65534


@pytest.mark.parametrize(("dtype", "nothing"), [("u8", 2**64 - 1), ("i8", 2**63 - 1), ("i8", -(2**63))])
def test_the_ends_of_64_bits_stand_in_holes_again(dtype, nothing):
    pixels = np.array([[[10, nothing], [30, 40]]], dtype)
    radiometry = Radiometry.of(meta(dtype, nodata=float(nothing)), survey(10, 80, bands=1), (0, 100))
    unit, there = radiometry.prepare(pixels)
    assert there.sum() == 3
    np.testing.assert_array_equal(
        radiometry.finish(unit, there, Encoding(pixels.dtype, radiometry.nodata)), pixels
    )
    refuse_narrow(np.dtype(dtype), meta(dtype, nodata=float(nothing)), read(survey(10, 80)))


@pytest.mark.parametrize("nodata", [0.0, 3.4028234663852886e38, -3.4028234663852886e38, math.inf, -9999.0])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
def test_no_float_estimate_is_nodata_where_the_smallest_numbers_are_taken_for_0(nodata, dtype):
    radiometry = Radiometry((1.0,), (0.0,), "test", nodata=nodata)
    unit = np.array([[[0.0, nodata, 0.5]]])
    torch.set_flush_denormal(True)  # as a network does for the whole process
    written = stored(radiometry, unit, np.dtype(dtype))
    assert valid(written, nodata).all()
    np.testing.assert_allclose(written, np.nan_to_num(unit, posinf=np.finfo(dtype).max), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("nodata", [-1.7976931348623157e308, math.inf, math.nan, -9999.0])
def test_holes_of_floats_stay_holes_whatever_stands_for_them(nodata):
    # Many a float32 file has the smallest float64 as its nodata value, which it cannot hold.
    pixels = np.array([[[0.5, np.nan]]], "f4")
    radiometry = Radiometry.of(meta("f4", nodata=nodata), survey(0, 1, bands=1))
    written = radiometry.finish(*radiometry.prepare(pixels), Encoding(pixels.dtype, nodata))
    assert valid(written, nodata).ravel().tolist() == [True, False]
    hole = float(written[0, 0, 1])
    assert hole == nodata or math.isnan(hole)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_float_estimate_that_is_nodata_stays_an_estimate(dtype):
    radiometry = Radiometry((1.0,), (0.0,), "test", nodata=0.0, floor=0.0)
    estimate = stored(radiometry, np.array([[[-0.3, 0.5]]]), np.dtype(dtype))
    assert valid(estimate, 0.0).all()
    np.testing.assert_allclose(estimate, [[[0.0, 0.5]]], atol=1e-37)


@pytest.mark.parametrize(
    ("dtype", "described", "found", "says"),
    [
        ("u1", {"dtype": "<u2"}, (0, 3000), "holds 0 to 255.*0 to 3000"),
        ("u2", {"dtype": "<f4"}, (-0.1, 1), "-0.1 to 1"),
        ("u2", {"dtype": "<f4"}, (0, 1), "round away the scene's values, 0 to 1"),
        ("u2", {"dtype": "<f4"}, (5, 14.9), "round away the scene's values, 5 to 14.9"),
        ("u2", {"dtype": "<f4"}, (5, 15), None),
        ("u1", {"dtype": "<u2"}, (0, 3), None),  # which are whole already
        ("i2", {"dtype": "<f4", "nodata": -999.5}, (0, 900), r"cannot hold .* nodata value, -999\.5"),
        ("u2", {"dtype": "<f4", "nodata": -9999.0}, (0, 900), "cannot hold .* nodata value, -9999"),
        ("i2", {"dtype": "<f4", "nodata": -9999.0}, (0, 900), None),
        ("i2", {"dtype": "<f4", "nodata": math.nan}, (0, 900), None),
        ("f4", {"dtype": "<u2", "nodata": -9999.0}, (0, 900), None),
        ("f2", {"dtype": "<f4"}, (0, 1e5), "float16 holds .* 0 to 100000"),
        ("f4", {"dtype": "<f8", "nodata": -1.7e308}, (0, 1), "cannot hold .* nodata value, -1.7e"),
        ("f4", {"dtype": "<f8", "nodata": math.nan}, (0, 1), None),
        ("f4", {"dtype": "<f4", "nodata": -3.40282346639e38}, (0, 1), None),  # as other tools round it
        ("f4", {"dtype": "<f8", "nodata": -math.inf}, (0, 1), None),
    ],
)
def test_a_type_that_cannot_hold_the_scene_is_refused(dtype, described, found, says):
    words = (np.dtype(dtype), meta(**described), read(survey(*found)))
    if says is None:
        refuse_narrow(*words)
    else:
        with pytest.raises(UsageError, match=says):
            refuse_narrow(*words)


@pytest.mark.parametrize("nodata", [None, -9999.0, math.nan, -3.4e38])
def test_validity_is_finite_and_not_the_nodata_value(nodata):
    pixels = np.array([1.0, np.nan, np.inf, -9999.0, -3.4e38], "f4")
    expected = [True, False, False, nodata != -9999.0, nodata != -3.4e38]
    assert valid(pixels, nodata).tolist() == expected


def test_a_survey_counts_only_what_is_valid(tmp_path):
    pixels = np.arange(2 * 5 * 4, dtype="f4").reshape(2, 5, 4)
    pixels[0, 0] = np.nan
    pixels[1, 1] = -1
    found = Survey.of(open_cube(written(tmp_path / "a.hdr", pixels, nodata=-1.0)))
    there = np.where((pixels == -1) | np.isnan(pixels), np.nan, pixels)
    assert (found.minimum, found.maximum) == (np.nanmin(there), np.nanmax(there))
    assert found.means == pytest.approx(np.nanmean(there, (1, 2)))
    assert found.nodata_share == pytest.approx(8 / 40)
    assert found.top == pytest.approx(np.nanpercentile(there, 99.9))
    assert found.looked_at == 1


def test_the_mean_of_small_floats_does_not_overflow():
    pixels = np.full((1, 40, 40), 100, "f2")
    pixels[0, 0] = 300
    found = Survey.of(Cube("half", CubeMeta(*pixels.shape, pixels.dtype), pixels))
    assert found.means == pytest.approx([105])


def test_a_band_without_any_valid_number_is_not_usable(tmp_path):
    pixels = np.array([[[1, 2], [3, 4]], [[np.nan] * 2] * 2, [[1] * 2] * 2], "f4")
    with open_cube(written(tmp_path / "a.hdr", pixels, good_bands=(True, True, False))) as cube:
        assert Survey.of(cube).usable_bands(cube.meta) == (0,)


def test_a_large_scene_is_surveyed_in_parts_that_agree_with_the_whole(tmp_path):
    described = CubeMeta(40, 900, 700, np.dtype("u2"))
    rng = np.random.default_rng(0)
    with create_cube(tmp_path / "a.hdr", described) as cube:
        for window in described.window.blocks(100, 700):
            cube.write(window, rng.integers(100, 5000, (40, window.rows, 700), dtype="u2"))
    with open_cube(tmp_path / "a.hdr") as cube:
        part = Survey.of(cube, at_most=1 << 24)
        assert part.looked_at < 0.9
        assert part.top == pytest.approx(Survey.of(cube).top, rel=0.01)


def test_the_percentile_is_that_of_all_columns_whatever_the_size_of_the_scene():
    pixels = np.random.default_rng(0).integers(100, 4000, (8, 1 << 19, 8), dtype="u2")
    pixels[..., 0] = 5  # dark; every 32nd value, as many as are sampled, would be one of these
    found = Survey.of(Cube("dark", CubeMeta(*pixels.shape, pixels.dtype), pixels))
    assert found.top == pytest.approx(np.percentile(pixels, 99.9), rel=0.01)


def test_what_a_partial_survey_did_not_see_is_not_taken_for_absent(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 3 * 20)  # one row at a time
    pixels = np.random.default_rng(0).uniform(100, 200, (3, 20, 20)).astype("f4")
    pixels[0, 0] = -50
    pixels[1] = np.nan
    pixels[1, 0] = 7
    pixels[2] = np.nan
    with open_cube(written(tmp_path / "a.hdr", pixels)) as cube:
        part = Survey.of(cube, at_most=600)
        assert part.looked_at < 1
        assert part.minimum > 0
        assert part.usable_bands(cube.meta) == (0, 1)
        assert part.means[1] == 7
        assert part.nodata_share == pytest.approx(2 / 3, abs=0.05)  # of what was looked at
        assert Radiometry.of(cube.meta, part).floor == -math.inf


def test_nothing_but_nodata_and_empty_ranges_are_refused(tmp_path):
    described = CubeMeta(1, 2, 2, np.dtype("u2"), nodata=0.0)
    with create_cube(tmp_path / "a.hdr", described):
        pass
    with pytest.raises(FormatError, match="every pixel is nodata"):
        Survey.of(open_cube(tmp_path / "a.hdr"))
    for ends in ((5, 5), (5, 4), (0, math.inf), (0, math.nan)):
        with pytest.raises(UsageError, match="`value_range`"):
            Radiometry.of(meta(), survey(0, 1), ends)


def test_holes_need_a_number_that_stands_for_them():
    holey = replace(survey(0, 900), holes=True)
    with pytest.raises(UsageError, match="cannot hold NaN"):
        refuse_narrow(np.dtype("i2"), meta(dtype="<f4"), read(holey))
    refuse_narrow(np.dtype("i2"), meta(dtype="<f4", nodata=-1.0), read(holey))
    refuse_narrow(np.dtype("f4"), meta(dtype="<f4"), read(holey))


def test_bands_that_show_nothing_do_not_decide_the_range(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.uniform(0.1, 0.9, (6, 30, 30)).astype("f4")
    described = CubeMeta(3, 30, 30, pixels.dtype)
    with create_cube(tmp_path / "good.hdr", described) as cube:
        cube.write(described.window, pixels[:3])
        good = Survey.of(cube)
    pixels[3], pixels[4], pixels[5] = -9999, 1e20, rng.normal(0, 1e6, (30, 30))
    described = CubeMeta(6, 30, 30, pixels.dtype, good_bands=(True,) * 5 + (False,))
    with create_cube(tmp_path / "all.hdr", described) as cube:
        cube.write(described.window, pixels)
        found = Survey.of(cube)
    assert (found.minimum, found.maximum, found.top) == (good.minimum, good.maximum, good.top)
    assert found.constant == (None, None, None, -9999, np.float32(1e20), None)
    with pytest.raises(UsageError, match="-9999"):  # which is written, though no network sees it
        refuse_narrow(np.dtype("u2"), described, read(found))
    assert Radiometry.of(described, found).floor == -math.inf  # a network of fixed size does see it
    bright = replace(found, constant=(None, None, None, 0.0, 10000.0, None))
    with pytest.raises(UsageError, match=r"round away the scene's values, 0\.1"):
        refuse_narrow(np.dtype("u2"), described, read(bright))


def test_holes_of_bad_bands_are_none_of_the_scene(tmp_path):
    pixels = np.random.default_rng(0).random((2, 9, 9)).astype("f4")
    pixels[1, 3] = np.nan
    for good in (True, False):
        described = CubeMeta(2, 9, 9, pixels.dtype, good_bands=(True, good))
        with create_cube(tmp_path / f"{good}.hdr", described) as cube:
            cube.write(described.window, pixels)
            assert Survey.of(cube).holes == good
    pixels[1] = np.nan  # which is an empty band and not a hole in one
    with open_cube(written(tmp_path / "empty.hdr", pixels)) as cube:
        assert not Survey.of(cube).holes


@pytest.mark.parametrize(
    ("fill", "count", "said"),
    [
        (-9999, 30, True),
        (-9999, 1, True),
        (-999, 1, True),
        (-998, 1, False),
        (-9998, 30, False),
        (9.969209968386869e36, 30, True),
        (150, 4000, False),
    ],
)
def test_what_other_products_fill_holes_with_is_told_of(tmp_path, fill, count, said):
    pixels = np.random.default_rng(0).uniform(100, 200, (2, 50, 50)).astype("f4")
    pixels.reshape(-1)[:count] = fill
    with open_cube(written(tmp_path / "a.hdr", pixels)) as cube:
        notes = Survey.of(cube).notes
    assert [float(note.split()[-1]) for note in notes] == ([np.float32(fill)] if said else [])
    assert all(("0.6% of the values" if count > 1 else "is among the values") in note for note in notes)


@pytest.mark.parametrize(
    ("dtype", "top", "fill", "said"),
    [
        ("<u2", 2714, 65535, True),
        ("<u4", 2714, 2**32 - 1, True),
        ("<u2", 16383, 65535, True),
        ("<u2", 16384, 65535, False),  # light may have grown until no number was left
        ("<u2", 2714, 65534, False),
        ("u1", 40, 255, False),
        ("<i2", 2714, 32767, False),
        ("<f4", 1, -1, True),
        ("<f4", 1, -0.99, False),
        ("<f4", 1, 2, False),
        ("<i2", 2714, -1, True),
        ("<i2", 4, -1, False),  # noise about 0
    ],
)
def test_a_number_far_from_all_others_is_told_of(tmp_path, dtype, top, fill, said):
    pixels = np.random.default_rng(0).uniform(0, top, (2, 50, 50)).astype(dtype)
    pixels[0, 40], pixels[:, :3] = top, fill
    with open_cube(written(tmp_path / "a.hdr", pixels)) as cube:
        notes = Survey.of(cube).notes
    assert [note.partition(" values but")[0] for note in notes] == [f"{fill} makes up 6.0% of the"] * said


@pytest.mark.parametrize("fill", [-9999, -1, 9.96921e36, -3.4e38])
def test_one_wrong_number_does_not_change_what_the_others_mean(fill):
    pixels = np.random.default_rng(0).uniform(0.1, 0.9, (3, 40, 40)).astype("f4")
    spoiled = pixels.copy()
    spoiled[1, 7, 8] = fill
    found = Survey.of(in_memory(spoiled))
    assert "near 0 to 1, taken" in Radiometry.of(in_memory(spoiled).meta, replace(found, maximum=1)).reason
    radiometry = Radiometry.of(in_memory(spoiled).meta, found)
    np.testing.assert_allclose(radiometry.offset, 0)
    assert 1 <= radiometry.gain[0] < 1.2
    # Numbers below 0 by nature have a range of their own.
    negative = in_memory(100 * (spoiled.astype("f8") - 0.5))
    low = Radiometry.of(negative.meta, Survey.of(negative))
    assert low.gain[0] == pytest.approx(1 / 80, rel=0.02)


@pytest.mark.parametrize("bands", [2, 50])
def test_impossible_numbers_are_holes(bands):
    rng = np.random.default_rng(0)
    pixels = rng.uniform(0, 0.02, (bands, 40, 40)).astype("f4")
    pixels[1, 20, 20:22] = 9.96921e36  # what netCDF files have where nothing was written
    reading = Reading.of(in_memory(pixels), None)
    assert reading.holes
    unit, there = reading.radiometry.prepare(pixels)
    assert np.argwhere(~there).tolist() == [[1, 20, 20], [1, 20, 21]]
    assert np.abs(unit).max() < 3
    fine = sharpen(pixels, Posterior(load_model("general-x2"), 1, mixtures=16))["mean"]
    assert np.argwhere(~np.isfinite(fine)).min(0).tolist() == [1, 40, 40]
    assert np.count_nonzero(~np.isfinite(fine)) == 8


@pytest.mark.parametrize("others", [(-0.2, 0.5), (0.0, 0.0)])
def test_minus_one_is_a_number_like_others_among_negative_ones_and_in_masks(tmp_path, others):
    pixels = np.random.default_rng(0).uniform(*others, (2, 50, 50)).astype("<f4")
    pixels[:, :3] = -1
    with open_cube(written(tmp_path / "a.hdr", pixels)) as cube:
        assert Survey.of(cube).notes == ()


def test_bad_bands_say_nothing_though_the_good_ones_hold_one_number(tmp_path):
    pixels = np.random.default_rng(0).normal(0, 1e6, (2, 9, 9)).astype("f4")
    pixels[0] = 0.5
    with open_cube(written(tmp_path / "a.hdr", pixels, good_bands=(True, False))) as cube:
        found = Survey.of(cube)
    assert (found.minimum, found.top, found.maximum) == (0.5, 0.5, 0.5)


def test_only_what_is_doubtful_is_looked_at_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 6 * 20)
    pixels = np.random.default_rng(0).random((6, 40, 20)).astype("f4")
    pixels[[0, 2, 5]] = 0
    described = CubeMeta(6, 40, 20, pixels.dtype, good_bands=(True,) * 5 + (False,))
    with create_cube(tmp_path / "a.hdr", described) as cube:
        cube.write(described.window, pixels)
        really, asked = cube.read, []

        def read(window=None, bands=slice(None)):
            asked.append((window.row, *range(*bands.indices(6))))
            return really(window, bands)

        monkeypatch.setattr(cube, "read", read)
        found = Survey.of(cube, at_most=1200)
    assert found.constant == (0, None, 0, None, None, 0)
    whole = {row for row, *bands in asked if len(bands) == 6}
    assert sorted(asked) == sorted(
        [(row, *range(6)) for row in whole] + [(row, b) for row in range(40) if row not in whole for b in (0, 2)]
    )


def test_a_band_with_one_number_throughout_is_usable_but_does_not_vary(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 100)
    pixels = np.random.default_rng(0).integers(1, 900, (5, 40, 20)).astype("i2")
    pixels[1], pixels[2], pixels[3], pixels[4] = 0, 7, 7, -1
    pixels[2, 0, :5] = -1  # nodata does not count
    pixels[3, 39, 19] = 8  # seen only by who looks everywhere
    meta = CubeMeta(5, 40, 20, pixels.dtype, nodata=-1)
    with create_cube(tmp_path / "a.hdr", meta) as cube:
        cube.write(meta.window, pixels)
        for at_most in (1 << 20, 600):
            found = Survey.of(cube, at_most)
            assert found.constant == (None, 0, 7, None, None)
            assert found.usable_bands(meta) == (0, 1, 2, 3)
            assert found.varying_bands(meta) == (0, 3)
        flat = cube.with_bands(slice(1, 3))
        assert Survey.of(flat).varying_bands(flat.meta) == (0, 1)  # better than no image at all


def test_a_scene_whose_numbers_the_first_look_missed_is_not_called_empty(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 100)
    pixels = np.full((2, 80, 20), -1, "i2")
    pixels[:, 0] = np.arange(20)
    meta = CubeMeta(2, 80, 20, pixels.dtype, nodata=-1)
    with create_cube(tmp_path / "a.hdr", meta) as cube:
        cube.write(meta.window, pixels)
        found = Survey.of(cube, at_most=400)
    assert (found.minimum, found.maximum, found.means) == (0, 19, (9.5, 9.5))
    assert found.constant == (None, None)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("interleave", ["band", "pixel"])
@pytest.mark.parametrize("values", [14 * 150 * 100, 14 * 64 * 32, 3 * 32 * 32, 10])
def test_no_tile_is_decoded_twice(tmp_path, monkeypatch, interleave, values):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", values)
    monkeypatch.setattr("pdenet_cli.formats.common.kept.KEPT_BYTES", 0)
    pixels = np.random.default_rng(0).integers(1, 900, (14, 150, 100)).astype("i2")
    tiles = dict(tiled=True, blockxsize=32, blockysize=32, compress="deflate", interleave=interleave)
    path = gdal_file(tmp_path / "a.tif", pixels, **tiles)
    really, decoded = SegmentArray._segment, []

    def segment(self, plane, index):
        decoded.append(index)
        return really(self, plane, index)

    monkeypatch.setattr(SegmentArray, "_segment", segment)
    with open_cube(path) as cube:
        found = Survey.of(cube)
        once = 5 * 4 * (14 if interleave == "band" else 1)
        assert len(decoded) == len(set(decoded)) == once
        assert (found.minimum, found.maximum) == (pixels.min(), pixels.max())
        assert found.means == pytest.approx(pixels.mean((1, 2)))
        assert (found.looked_at, found.nodata_share) == (1, 0)
        decoded.clear()
        monkeypatch.setattr(Cube, "block", (14, 1, 100))  # as if it had no tiles
        assert Survey.of(cube).top == pytest.approx(found.top)
        assert values == 14 * 150 * 100 or len(decoded) >= 2 * once


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_a_survey_reads_whole_chunks(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 500)
    path, pixels = tmp_path / f"a{suffix}", np.random.default_rng(0).random((6, 30, 40)).astype("f4")
    if suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("cube", data=pixels, chunks=(2, 7, 16), compression="gzip")
    else:
        pytest.importorskip("zarr").create_array(path, data=pixels, chunks=(2, 7, 16))
    with open_cube(path, axes="brc") as cube:
        really, asked = cube.read, []

        def read(window, bands):
            asked.append((window, bands))
            return really(window, bands)

        monkeypatch.setattr(cube, "read", read)
        found = Survey.of(cube)
    assert found.means == pytest.approx(pixels.mean((1, 2)))
    assert all(window.row % 7 == window.column % 16 == bands.start % 2 == 0 for window, bands in asked)
    assert len(asked) == 5 * 3 * 2  # of four bands and of two


def test_what_a_file_keeps_in_blocks_too_large_for_memory_is_read_by_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.LARGEST_BLOCK", 6 * 30 * 40 - 1)
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 500)
    pixels = np.random.default_rng(0).random((6, 30, 40)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("cube", data=pixels, chunks=pixels.shape, compression="gzip")
    with open_cube(tmp_path / "a.h5", axes="brc") as cube:
        really, sizes = cube.read, []
        monkeypatch.setattr(cube, "read", lambda *words: sizes.append((part := really(*words)).size) or part)
        found = Survey.of(cube)
    assert max(sizes) <= 500
    assert found.means == pytest.approx(pixels.mean((1, 2)))


@pytest.mark.parametrize(("across", "every"), [(1, 5), (2, 2), (3, 2), (4, 6), (7, 3), (5, 1), (3, 1000)])
def test_a_part_of_the_blocks_comes_from_everywhere(across, every):
    down = 60
    chosen = _evenly_spread(across * down, across, every)
    assert len(chosen) == pytest.approx(across * down / every, abs=1)
    if every < down:
        assert {i % across for i in chosen} == set(range(across))
    if across == 1:
        assert chosen == list(range(every // 2, down, every))
