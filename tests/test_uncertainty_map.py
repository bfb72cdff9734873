"""Maps of `pdenet uncertainty` as pictures: levels, colours, a colour bar and a legend."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.color import rgb2lab
from skimage.io import imread

from pdenet_cli.pages import overview as overviews
from pdenet_cli.pages.chart import ordinal
from pdenet_cli.pages.map_picture import map_png
from pdenet_cli.pages.overview import round_levels, shares_above
from pdenet_cli.pages.uncertainty import share_text
from pdenet_cli.scene.picture import coloured
from tests.cubes import in_memory
from tests.uncertainty_pages import COLUMNS, ROWS, page_of, some_cubes

# Levels.


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=40), st.integers(1, 7))
@settings(deadline=None)
def test_levels_are_inside_the_map_and_shares_do_not_depend_on_the_cut(values, parts):
    merged = np.array([[*values, np.nan]], np.float32)
    levels = round_levels(merged)
    assert 1 <= len(levels) <= overviews.MOST_LEVELS
    assert list(levels) == sorted(set(levels))
    whole = shares_above(iter([merged]), levels)
    assert whole == shares_above(iter(np.array_split(merged, parts, axis=1)), levels)
    for level, share in whole:
        assert share == pytest.approx(np.mean(np.array(values, np.float32) > level))


def test_levels_are_round_numbers():
    assert round_levels(np.array([[0.03, 0.7, 4.2]], np.float32)) == (0.1, 0.2, 0.5, 1, 2)
    assert round_levels(np.zeros((2, 2), np.float32)) == ()


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.00 %"), (1e-6, "under 0.01 %"), (0.999999, "over 99.99 %"), (0.125, "12.50 %")]
)
def test_no_share_is_called_none_or_all_that_is_not(share, text):
    assert share_text(share) == text


def test_ordinals():
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 22, 103, 113)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "22nd", "103rd", "113th")
    ]


# Colours.


def test_colours_grow_lighter_with_the_value_so_that_all_eyes_and_a_grey_printer_show_it():
    lightness = rgb2lab(coloured(np.linspace(0, 1, 256, dtype=np.float32)[None], 1.0))[0, :, 0]
    assert (np.diff(lightness) > -0.5).all()  # 8-bit colours round
    assert lightness[-1] - lightness[0] > 60


def test_nothing_is_hatched_grey_that_is_no_colour_of_the_scale():
    picture = coloured(np.full((8, 8), np.nan), 1.0)
    assert len(np.unique(picture)) == 2
    assert (np.ptp(picture.astype(int), axis=-1) == 0).all()


@pytest.mark.parametrize("shape", [(60, 80), (400, 20), (20, 400), (1, 1)])
def test_the_picture_has_the_map_a_colour_bar_and_a_legend_for_nothing(shape):
    merged = np.linspace(0, 5, shape[0] * shape[1], dtype=np.float32).reshape(shape)
    whole = imread(io.BytesIO(map_png(merged, "field: std", "std, the file's units")))
    low, high = (coloured(np.array([[v]]), 1.0)[0, 0] for v in (0.0, 1.0))
    for colour in (low, high):  # both ends are there, in the map or in the bar
        assert (np.abs(whole[..., :3].astype(int) - colour).sum(-1) < 12).sum() > 50
    merged[: shape[0] // 2] = np.nan
    holed = imread(io.BytesIO(map_png(merged, "field: std", "std, the file's units")))
    grey = (np.abs(holed[..., :3].astype(int) - 204).max(-1) < 3).sum()
    assert grey > (np.abs(whole[..., :3].astype(int) - 204).max(-1) < 3).sum() or shape == (1, 1)


def test_the_axes_of_the_picture_count_the_pixels_of_the_scene():
    merged = np.ones((20, 30), np.float32)
    every, third = (imread(io.BytesIO(map_png(merged, "field", "std", step))) for step in (1, 3))
    assert every.shape == third.shape
    assert (every != third).any(-1).mean() > 1e-4  # other numbers along the axes


def test_a_name_with_dollars_is_no_formula():
    assert map_png(np.ones((4, 5), np.float32), "field$1_$^.hdr: std", "std")


def test_a_name_in_letters_that_the_font_lacks_is_no_warning(recwarn):
    assert map_png(np.ones((4, 5), np.float32), "田野.hdr: std", "std")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_an_empty_map_makes_a_picture_and_a_page():
    cubes = some_cubes()
    empty = in_memory(np.full((1, ROWS, COLUMNS), np.nan, "<f4"), nodata=float("nan"))
    assert map_png(empty.read()[0], "field", "std")
    cubes["std_merged"] = empty
    text = page_of(cubes)
    assert "0 or empty everywhere" in text
