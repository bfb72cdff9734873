"""What a page holds: codes without loss, planes and spectra to a stated step, within a bound of bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.color import rgb2lab

from pdenet_cli.pages import levels as levels_of_maps
from pdenet_cli.pages.codes import packed
from pdenet_cli.pages.contents import Contents, breaks
from pdenet_cli.pages.levels import MapLevels, round_levels, shares_above
from pdenet_cli.pages.planes import fitted_map
from pdenet_cli.pages.scene_page import share_text
from pdenet_cli.pages.shown import Grid, Shown
from pdenet_cli.pages.spectra import Spectra
from pdenet_cli.scene.picture import coloured
from pdenet_cli.scene.window import Window
from tests.cubes import in_memory, picture
from tests.scene_pages import COLUMNS, ROWS, scene_of, some_cubes, unpacked

# Codes and grids.


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 65535))
@settings(deadline=None, max_examples=60)
def test_codes_come_back(seed, planes, rows, columns, most):
    codes = np.random.default_rng(seed).integers(0, most, (planes, rows, columns), endpoint=True).astype(np.uint16)
    np.testing.assert_array_equal(unpacked(packed(codes), planes, rows, columns), codes)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9))
@settings(deadline=None)
def test_every_pixel_of_a_scene_has_one_of_the_grid_near(rows, columns, step):
    grid = Grid.of(Window(0, 0, rows, columns), step)
    shown = Shown(in_memory(np.arange(rows * columns, dtype="<i4").reshape(1, rows, columns)))
    values = shown.read(shown.grid(step))[0]
    assert values.shape == (grid.rows, grid.columns)
    if min(rows, columns) > grid.first:
        wanted = np.arange(rows * columns).reshape(rows, columns)[grid.first :: step, grid.first :: step]
        np.testing.assert_array_equal(values, wanted)
        assert rows - 1 - (grid.first + step * (grid.rows - 1)) < step


# Spectra.


def back(spectra, bands):
    """The values that a reader of packed spectra gets."""
    coding, grid = spectra.coding, spectra.grid
    codes = unpacked(spectra.content, len(coding.lowest), grid.rows, grid.columns)
    values = np.full((bands, grid.rows, grid.columns), np.nan)
    values[coding.usable] = coding.values(codes.astype(np.uint16))
    return values


def test_spectra_of_whole_numbers_are_exact_where_they_fit():
    cubes = some_cubes()
    spectra = Spectra.fitted(Shown(cubes["mean"], (0.0001,)), np.ones(6, bool), 100_000)
    mean = cubes["mean"].read()
    np.testing.assert_allclose(back(spectra, 6), np.where(mean == 0, np.nan, mean * 1e-4), atol=1e-7)
    assert spectra.worst < 1e-6
    assert spectra.grid.step == 1


@pytest.mark.parametrize("most", [9000, 4000])
def test_spectra_that_do_not_fit_are_mixed_and_thinned_and_say_how_far_they_are_from_the_file(most):
    pixels = picture(48, 60, 60)
    spectra = Spectra.fitted(Shown(in_memory(pixels)), np.ones(48, bool), most)
    step, first = spectra.grid.step, spectra.grid.first
    away = np.abs(back(spectra, 48) - pixels[:, first::step, first::step])
    assert len(spectra.content) <= most
    assert spectra.coding.basis is not None
    assert away.max() == pytest.approx(spectra.worst, rel=1e-3)
    assert np.quantile(away, 0.999) <= spectra.usual * 1.01
    assert spectra.usual < 0.01 * np.ptp(pixels)


def test_bands_without_data_and_bad_ones_are_left_out():
    cubes = some_cubes()
    pixels = cubes["mean"].read().copy()
    pixels[1] = 0
    good = np.array((True, True, False, True, True, True))
    spectra = Spectra.fitted(Shown(in_memory(pixels, nodata=0)), good, 100_000)
    assert spectra.facts["bands"] == [0, 3, 4, 5]


# The whole.


@pytest.mark.parametrize("size", [2_000_000, 600_000])
def test_a_page_keeps_to_its_size_and_says_what_it_left_out(size):
    cubes = some_cubes(rows=400, columns=420, bands=24)
    contents = Contents.of(scene_of(cubes), size)
    assert sum(map(len, contents.parts)) * 4 / 3 < size
    facts = contents.facts
    assert facts["input"]["step"] == 1
    step = facts["mean"]["step"]
    assert any(f"one pixel of {step} x {step}" in note for note in contents.notes) == (step > 1)
    assert any("differ from the file by" in note for note in contents.notes)


def test_a_map_is_coded_to_a_step_that_is_finer_where_it_is_small():
    merged = np.linspace(0, 5, ROWS * COLUMNS, dtype="<f4").reshape(1, ROWS, COLUMNS)
    planes = fitted_map(Shown(in_memory(merged)), 1 << 20)
    codes = unpacked(planes.content, 1, ROWS, COLUMNS)
    values = (planes.lowest[0] + planes.size[0] * (codes - 1)) ** 2
    np.testing.assert_allclose(values, merged, atol=0.002)
    np.testing.assert_allclose(values[merged < 0.01], merged[merged < 0.01], atol=1e-4)


@pytest.mark.parametrize(
    ("places", "broken"),
    [
        ((400, 410, 420, 600, 610), [3]),  # bands of water vapour were taken out
        ((900, 910, 920, 905, 915, 925), [3]),  # the second detector begins before the first ends
        ((700, 600, 500, 400), []),
        ((0, 1, 2), []),
        ((5,), []),
        ((5, 5), []),
    ],
)
def test_a_line_is_broken_where_wavelengths_are_missing_or_start_over(places, broken):
    assert breaks(places) == broken


# Levels.


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=40), st.integers(1, 7))
@settings(deadline=None)
def test_levels_are_inside_the_map_and_shares_do_not_depend_on_the_cut(values, parts):
    merged = np.array([[*values, np.nan]], np.float32)
    levels = round_levels(merged)
    assert 1 <= len(levels) <= levels_of_maps.MOST_LEVELS
    assert list(levels) == sorted(set(levels))
    whole = shares_above(iter([merged]), levels)
    assert whole == shares_above(iter(np.array_split(merged, parts, axis=1)), levels)
    for level, share in whole:
        assert share == pytest.approx(np.mean(np.array(values, np.float32) > level))


def test_levels_and_shares_are_those_of_all_pixels():
    merged = np.arange(1, ROWS * COLUMNS + 1, dtype="<f4").reshape(1, ROWS, COLUMNS)
    merged[0, 0] = np.nan
    levels = MapLevels.of(Shown(in_memory(merged, nodata=float("nan"))))
    for level, share in levels.shares:
        assert share == (merged[np.isfinite(merged)] > level).mean()
    assert levels.top == pytest.approx(np.nanpercentile(merged, 99.5))
    assert levels.empty


def test_levels_are_round_numbers():
    assert round_levels(np.array([[0.03, 0.7, 4.2]], np.float32)) == (0.1, 0.2, 0.5, 1, 2)
    assert round_levels(np.zeros((2, 2), np.float32)) == ()


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.00 %"), (1e-6, "under 0.01 %"), (0.999999, "over 99.99 %"), (0.125, "12.50 %")]
)
def test_no_share_is_called_none_or_all_that_is_not(share, text):
    assert share_text(share) == text


# Colours.


@pytest.mark.parametrize("ramp", ["cividis", "Greys_r"])
def test_colours_grow_lighter_with_the_value_so_that_all_eyes_and_a_grey_printer_show_it(ramp):
    lightness = rgb2lab(coloured(np.linspace(0, 1, 256, dtype=np.float32)[None], 1.0, ramp))[0, :, 0]
    assert (np.diff(lightness) > -0.5).all()  # 8-bit colours round
    assert lightness[-1] - lightness[0] > 60
