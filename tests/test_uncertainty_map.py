"""Maps of `pdenet uncertainty` as pictures: levels, colours, a colour bar and a legend."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.color import rgb2lab

from pdenet_cli.pages import overview as overviews
from pdenet_cli.pages.chart import ordinal
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


def test_an_empty_map_makes_a_page():
    cubes = some_cubes()
    empty = in_memory(np.full((1, ROWS, COLUMNS), np.nan, "<f4"), nodata=float("nan"))
    cubes["std_merged"] = empty
    text = page_of(cubes)
    assert "0 or empty everywhere" in text
