"""The sheet of `--quicklook`: input, bicubic, result and a map at the same place, enlarged."""

import dataclasses
import io

import numpy as np
import pytest
import torch
from skimage.io import imread

from pdenet_cli.degradation import bicubic_pixels, bicubic_up
from pdenet_cli.pages.sheet import DETAIL, WHOLE, SheetMap, richest_part, sheet_png
from pdenet_cli.pages.values import PLAIN, REFLECTANCE, SCALED, Values
from pdenet_cli.scene.picture import coloured
from pdenet_cli.uncertainty.summaries import FILE_UNITS, SCALED_UNITS
from tests.cubes import in_memory
from tests.scene_pages import some_cubes


def sheet_of(cubes, title="field", **words):
    seen = SheetMap(cubes["std_merged"], "std", "number in the file", **words) if "std_merged" in cubes else None
    return imread(io.BytesIO(sheet_png(cubes["input"], cubes["mean"], seen, title)))[..., :3]


def count(picture, colour):
    """Pixels of about this colour."""
    return (np.abs(picture.astype(int) - colour).sum(-1) < 12).sum()


def test_bicubic_of_holes_is_bicubic_of_the_rest():
    pixels = np.random.default_rng(0).random((2, 9, 11)).astype("f4")
    whole = bicubic_up(torch.from_numpy(pixels), 4).numpy()
    np.testing.assert_allclose(bicubic_pixels(pixels, 4), whole, atol=1e-5)
    holed = np.where(np.indices(pixels.shape[1:]).sum(0) < 5, np.nan, pixels)
    enlarged = bicubic_pixels(holed, 4)
    np.testing.assert_array_equal(np.isnan(enlarged), np.isnan(holed).repeat(4, 1).repeat(4, 2))
    far = np.s_[:, 28:, 28:]  # beyond the reach of the holes
    np.testing.assert_allclose(enlarged[far], whole[far], atol=1e-5)
    flat = np.where(np.isnan(holed), np.nan, 7)
    np.testing.assert_allclose(bicubic_pixels(flat, 4)[np.isfinite(enlarged)], 7, rtol=1e-5)


def test_small_scenes_are_enlarged_and_panels_show_the_same_ground():
    cubes = some_cubes()
    picture = sheet_of(cubes)
    rows, columns = picture.shape[:2]
    assert columns > 4 * 4 * cubes["mean"].meta.columns  # four panels, each pixel at least four times as large
    # Colours of the result's own pixels are in the picture, in blocks.
    blocks = np.unique(picture.reshape(-1, 3), axis=0, return_counts=True)[1]
    assert (blocks > 9).sum() > 200
    assert rows < columns / 2


def test_a_large_scene_is_shown_whole_and_its_richest_part_enlarged():
    rng = np.random.default_rng(1)
    pixels = np.full((3, WHOLE + 40, WHOLE + 60), 100, "<u2")
    pixels[:, 70:100, 90:125] = rng.integers(50, 900, (3, 30, 35))
    pixels[:, 3, 3] = 60000  # a glint is no detail
    source = in_memory(pixels)
    part = richest_part(source, (0, 1, 2))
    assert (part.rows, part.columns) == (DETAIL, DETAIL)
    assert part.row <= 75
    assert part.column <= 95
    assert part.bottom >= 95
    assert part.right >= 120
    assert part.overlaps(dataclasses.replace(part, row=70, column=90, rows=30, columns=35))
    fine = in_memory(pixels.repeat(2, 1).repeat(2, 2))
    merged = in_memory(np.ones((1, *fine.meta.shape()[1:]), "<f4"))
    whole = sheet_of({"input": source, "mean": fine, "std_merged": merged})
    cut = {
        "input": in_memory(pixels[:, :40, :40]),
        "mean": in_memory(fine.array[:, :80, :80]),
        "std_merged": in_memory(merged.array[:, :80, :80]),
    }
    assert whole.shape[0] > 1.4 * sheet_of(cut).shape[0]  # a second row


@pytest.mark.parametrize("counts", [False, True])
def test_errors_are_in_colours_and_counts_in_greys(counts):
    cubes = some_cubes()
    cubes["mean"] = in_memory(np.zeros_like(cubes["mean"].array))  # so that no other panel has the colours
    cubes["input"] = in_memory(np.zeros_like(cubes["input"].array))
    picture = sheet_of(cubes, counts=counts)
    ends = [coloured(np.array([[value]]), 1.0)[0, 0] for value in (0.02, 1.0)]
    assert all((count(picture, colour) > 50) != counts for colour in ends)


def test_what_has_no_data_is_grey_in_every_panel():
    cubes = some_cubes()
    areas = []
    for nothing in (np.s_[:, :0], np.s_[:, : 5 * 4]):  # none, and half of the rows
        holed = {}
        for name in ("input", "mean", "std_merged"):
            pixels = np.nan_to_num(cubes[name].array.astype("f4"), nan=1.0)
            scale = 4 if name != "input" else 1
            pixels[:, : nothing[1].stop // 4 * scale] = np.nan
            holed[name] = in_memory(pixels)
        areas.append((sheet_of(holed) == (205, 205, 205)).all(-1).sum())
        # The map, last on the right, is hatched there besides, so that nothing is not taken for no uncertainty.
        stripes = (sheet_of(holed)[:, -330:] == 140).all(-1).sum()
        assert (stripes > 300) == (nothing[1].stop > 0), stripes
    panel = 350 * 233
    assert areas[1] - areas[0] > 3 * 0.4 * panel  # of three; the map is hatched besides


def test_a_sheet_without_a_map_has_three_panels():
    cubes = some_cubes()
    four = sheet_of(cubes)
    del cubes["std_merged"]
    assert sheet_of(cubes).shape[1] < 0.8 * four.shape[1]


def test_the_bar_says_the_unit_and_the_factor_changes_its_numbers():
    cubes = some_cubes()
    assert (sheet_of(cubes) != sheet_of(cubes, factor=0.0001)).any()
    seen = SheetMap(cubes["std_merged"], "std", "reflectance", 0.0001)
    merged = cubes["std_merged"].read()
    assert seen.top == pytest.approx(np.nanpercentile(merged, 99.5) * 0.0001)


@pytest.mark.parametrize("name", ["field$1_$^.hdr", "田野.hdr"])
def test_any_name_is_a_title(name, recwarn):
    assert sheet_of(some_cubes(), name).size
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_an_empty_map_makes_a_sheet():
    cubes = some_cubes()
    cubes["std_merged"] = in_memory(np.full_like(cubes["std_merged"].array, np.nan))
    assert sheet_of(cubes).size


# Units.


def radiometry(measures=(1.0,), reason="from the data: 0 to 7000"):
    return {"measures": list(measures), "reason": reason}


def test_values_are_reflectance_where_the_header_has_a_scale_that_the_run_believed():
    meta = in_memory(np.zeros((2, 3, 3), "u2"), reflectance_scale=10000.0).meta
    believed = Values.of(meta, radiometry((1e-4,), "reflectance scale factor in the header: 10000"))
    assert (believed.unit, believed.gain, believed.offset) == (REFLECTANCE, (1e-4,), (0.0,))
    assert Values.of(meta, radiometry()) == Values()  # the run found it implausible
    gained = in_memory(np.zeros((2, 3, 3), "u2"), gains=(0.1, 0.2), offsets=(1.0, 2.0)).meta
    for reason, unit in (("gain and offset in the header: 1", REFLECTANCE), ("from the data", SCALED)):
        assert Values.of(gained, radiometry((0.1, 0.2), reason)) == Values(unit, (0.1, 0.2), (1.0, 2.0))


def test_a_spread_takes_the_gain_and_never_the_offset():
    values = Values(SCALED, (0.1, -0.5), (1.0, 2.0))
    numbers = np.full((2, 1, 1), 10, "f4")
    np.testing.assert_allclose(values.shown(numbers)[:, 0, 0], [2, -3])
    np.testing.assert_allclose(values.spread(numbers)[:, 0, 0], [1, 5])


@pytest.mark.parametrize(
    ("values", "unit", "wanted"),
    [
        (Values(), FILE_UNITS, (1.0, PLAIN)),
        (Values(), "percent", (1.0, "percent")),
        (Values(REFLECTANCE, (1e-4,)), FILE_UNITS, (1e-4, REFLECTANCE)),
        (Values(REFLECTANCE, (1e-4, 2e-4), (0.0, 0.0)), SCALED_UNITS, (1.0, REFLECTANCE)),
        (Values(REFLECTANCE, (1e-4,)), "percent", (1.0, "percent")),
    ],
)
def test_a_merged_map_has_the_unit_of_its_numbers(values, unit, wanted):
    assert values.of_map(unit) == wanted
