"""The page and picture of `pdenet uncertainty`: what they hold is what the cubes hold, and a browser shows it."""

import dataclasses
import io
import json
import re
import zlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.color import rgb2lab
from skimage.io import imread

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.cube import Cube
from pdenet_cli.models import Model, ModelSpec, save_model
from pdenet_cli.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.pages import overview as overviews
from pdenet_cli.pages.chart import ordinal
from pdenet_cli.pages.overview import (
    Coarse,
    MapOverview,
    Overview,
    Packed,
    Spectra,
    breaks,
    packed,
    round_levels,
    shares_above,
    spectra_of,
)
from pdenet_cli.pages.risk import risk_png
from pdenet_cli.pages.uncertainty import Facts, MapFacts, from_cubes, share_text, uncertainty_page
from pdenet_cli.picture import coloured, map_quicklook, quicklook
from pdenet_cli.report import Report
from pdenet_cli.tools.page import _notes
from tests.browser import Browser, needs_browser
from tests.conftest import calibration

STD = MapFacts("std", "standard deviation of the samples")
SHARE = MapFacts("share", "samples that differ", "percent")
FACTS = Facts("field", "general-x4", 8, (STD,), level=0.9)
BOTH = dataclasses.replace(FACTS, maps=(STD, SHARE))
SCALE = 4
WAVES = (450.0, 500.0, 550.0, 600.0, 650.0, 700.0)
ROWS, COLUMNS = 40, 60


def in_memory(pixels, **meta):
    pixels = np.asarray(pixels)
    return Cube("cube", CubeMeta(*pixels.shape, pixels.dtype, **meta), pixels)


def some_cubes(rows=ROWS, columns=COLUMNS, bands=6, seed=0):
    """An input, a mean of 16-bit numbers, the ends of its interval, its std, and that merged, and another merged
    map; a corner has no data.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    mean = np.stack([2000 + 30 * x + 10 * y + 100 * b for b in range(bands)]).astype("<u2")
    std = (rng.gamma(2.0, 20.0, (bands, rows, columns)) + 3 * x).astype("<f4")
    std[:, :5, :8] = np.nan
    mean[:, :5, :8] = 0
    merged = np.sqrt((std.astype("f8") ** 2).mean(0))[None].astype("<f4")
    coarse = mean[:, ::SCALE, ::SCALE] + rng.integers(1, 900, (bands, 1, 1)).astype("<u2")
    coarse[:, :2, :2] = 0
    told = dict(wavelengths=WAVES[:bands], wavelength_units="nm") if bands <= len(WAVES) else {}
    return dict(
        input=in_memory(coarse, nodata=0, **told),
        mean=in_memory(mean, nodata=0, **told),
        low=in_memory((mean - 3 * std).astype("<f4"), nodata=float("nan")),
        high=in_memory((mean + 2 * std).astype("<f4"), nodata=float("nan")),
        std=in_memory(std, nodata=float("nan")),
        risk=in_memory(merged, nodata=float("nan")),
        share=in_memory((y % 7 + x[None] / columns).astype("<f4"), nodata=float("nan")),
    )


def page_of(cubes, facts=FACTS):
    maps = [cubes["risk"], cubes["share"]][: len(facts.maps)]
    return from_cubes(cubes["input"], cubes["mean"], maps, facts, (cubes["low"], cubes["high"]))


def spectra_with(cubes, *maps, **words):
    return Spectra.of(cubes["mean"], [cubes[name] for name in maps or ("risk",)], cubes["input"], **words)


def facts_in(text):
    """What a page tells its script."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', text)[1])


def unpacked(parcel, shape, maps, coarse):
    """(maps, input, mean, low, high) as the page's script reads them, written a second time."""
    rows, columns = shape[1:]
    content = np.frombuffer(zlib.decompress(parcel.content), np.uint8)
    first, last = 4 * maps * rows * columns, content.size - 2 * np.prod(coarse)
    merged = content[:first].view("<f4").reshape(maps, rows, columns)
    size, lowest = (np.array(values)[:, None, None] for values in (parcel.size, parcel.lowest))

    def codes(part, *shape):
        halves = part.reshape(-1, 2, *shape).astype(int)
        return halves[:, 0] + 256 * halves[:, 1]

    middle, below, above = codes(content[first:last], *shape)
    (own,) = codes(content[last:], *coarse)
    mean, source = (np.where(code > 0, lowest + (code - 1) * size, np.nan) for code in (middle, own))
    return merged, source, mean, mean - below * size, mean + above * size


# What a page holds.


def test_a_map_is_read_once_for_its_three_colours(monkeypatch):
    cube = in_memory(np.random.default_rng(0).random((1, 9, 7), np.float32))
    read, reads = Cube.read, []
    monkeypatch.setattr(Cube, "read", lambda *words: reads.append(1) or read(*words))
    assert map_quicklook(cube).shape == quicklook(cube).shape == (9, 7, 3)
    assert len(reads) == 2


@given(st.integers(1, 23), st.integers(1, 19), st.integers(1, 4), st.integers(1, 9), st.integers(1, 400))
@settings(deadline=None, max_examples=60)
def test_spectra_read_in_strips_are_every_so_many_th_pixel_of_the_cube(rows, columns, bands, step, at_once):
    pixels = np.arange(bands * rows * columns, dtype="<i4").reshape(bands, rows, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overviews, "BLOCK_VALUES", at_once)
        got = spectra_of(in_memory(pixels, nodata=3), step)
    wanted = np.where(pixels == 3, np.nan, pixels)[:, ::step, ::step]
    np.testing.assert_array_equal(got, wanted)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=60)
def test_packed_spectra_come_back_to_a_step_of_their_band(seed, bands, rows, columns, holes):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(bands, rows, columns)) * 10.0 ** rng.integers(-4, 5, (bands, 1, 1))
    low, high = mean - rng.random(mean.shape), mean + rng.random(mean.shape)
    if holes:
        nothing = rng.random(mean.shape) < 0.3
        mean, low, high = (np.where(nothing, np.nan, values) for values in (mean, low, high))
    values = [v.astype(np.float32) for v in (mean, low, high)]
    merged = rng.random((2, rows, columns)).astype(np.float32)
    source = Coarse(values[0][:, ::2, ::3] * 3, np.arange(rows) // 2, np.arange(columns) // 3)
    parcel = Packed.of(Spectra(*values, merged, source, 1, "band", tuple(range(bands)), "band"))
    back = unpacked(parcel, mean.shape, 2, source.values.shape)
    np.testing.assert_array_equal(back[0], merged)
    half = np.array(parcel.size)[:, None, None] / 2
    for got, wanted in zip(back[1:], (source.values, *values), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        assert (np.abs(got - wanted) <= half * 1.001 + 1e-6 * np.abs(wanted))[np.isfinite(wanted)].all()


def test_spectra_that_do_not_fit_are_thinned_until_they_do():
    cubes = some_cubes()
    spectra = spectra_with(cubes, "risk", "share", interval=(cubes["low"], cubes["high"]), level=0.9)
    whole = len(Packed.of(spectra).content)
    fewer, parcel = packed(spectra, most=whole // 3)
    assert spectra.step == 1
    assert fewer.step in (2, 4)
    assert len(parcel.content) <= whole // 3
    np.testing.assert_array_equal(fewer.mean, spectra.mean[:, :: fewer.step, :: fewer.step])
    for kept, name in zip(fewer.maps, ("risk", "share"), strict=True):
        np.testing.assert_array_equal(kept, cubes[name].read()[0, :: fewer.step, :: fewer.step])


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 13),
    st.integers(0, 3),
    st.integers(1, 99),
)
@settings(deadline=None, max_examples=80)
def test_every_pixel_has_the_spectrum_of_the_input_pixel_that_contains_it(rows, columns, scale, step, times, some):
    pixels = np.arange(1, 2 * rows * columns + 1, dtype="<i4").reshape(2, rows, columns)
    fine = CubeMeta(2, rows * scale, columns * scale, np.dtype("u2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overviews, "BLOCK_VALUES", some)
        coarse = Coarse.of(in_memory(pixels, nodata=1), fine, step)
    for _ in range(times):
        coarse, step = coarse.thinner(), 2 * step
    known = np.where(pixels == 1, np.nan, pixels)
    wanted = known.repeat(scale, axis=1).repeat(scale, axis=2)[:, ::step, ::step]
    np.testing.assert_array_equal(coarse.values[:, coarse.rows][:, :, coarse.columns], wanted)
    assert coarse.values.size <= wanted.size  # none is there twice, or unwanted


def test_a_page_of_many_spectra_stays_small_and_says_what_it_left_out():
    cubes = some_cubes(rows=300, columns=320, bands=60)
    text = page_of(cubes)
    assert len(text) < 15e6
    assert "the spectrum of every 2nd pixel" in text


def test_without_an_interval_the_band_is_two_std_and_is_called_so():
    cubes = some_cubes()
    spectra = spectra_with(cubes, std=cubes["std"])
    mean, std = cubes["mean"].read().astype("f8"), cubes["std"].read()
    np.testing.assert_allclose(spectra.high, mean + 2 * std, rtol=1e-6)
    np.testing.assert_allclose(spectra.low, mean - 2 * std, rtol=1e-3, atol=0.01)
    assert np.isnan(spectra.mean[:, :5, :8]).all()
    text = from_cubes(cubes["input"], cubes["mean"], [cubes["risk"]], FACTS, std=cubes["std"])
    assert "± 2 std of the samples, not calibrated" in text
    assert "90 % interval" in page_of(cubes)


def test_bad_bands_leave_a_gap_in_the_spectra():
    cubes = some_cubes()
    good = (True, True, False, True, True, True)
    cubes["mean"] = in_memory(cubes["mean"].array, nodata=0, wavelengths=WAVES, good_bands=good)
    spectra = spectra_with(cubes, std=cubes["std"])
    assert np.isnan(spectra.mean[2]).all()
    assert np.isnan(spectra.input.values[2]).all()
    assert np.isfinite(spectra.mean[3, 10:]).all()


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


def test_the_page_tells_its_script_what_the_cubes_are():
    cubes = some_cubes()
    text = page_of(cubes)
    facts = facts_in(text)
    assert facts["extent"] == [ROWS, COLUMNS]
    top = max(np.nanmax(cubes["high"].array), cubes["input"].array.max())
    assert facts["range"] == pytest.approx([np.nanmin(cubes["low"].array), top])
    assert (facts["places"], facts["nm"], facts["breaks"]) == (list(WAVES), True, [])
    assert facts["maps"] == [{"name": "std", "unit": ""}]
    bare = {name: in_memory(cube.array, nodata=cube.meta.nodata) for name, cube in cubes.items()}
    facts = facts_in(page_of(bare, BOTH))
    assert (facts["places"], facts["nm"], facts["maps"][1]["unit"]) == ([0, 1, 2, 3, 4, 5], False, " %")
    gap = (450.0, 460.0, 470.0, 700.0, 710.0, 720.0)
    bare["mean"] = in_memory(cubes["mean"].array, nodata=0, wavelengths=gap, wavelength_units="nm")
    assert facts_in(page_of(bare))["breaks"] == [3]


def test_what_to_bear_in_mind_is_on_the_page():
    cubes = some_cubes()
    told = dataclasses.replace(FACTS, notes=("Mind <this>.", "And that."), record={"seed": 17})
    text = page_of(cubes, told)
    for words in ("Mind &lt;this&gt;.", "And that.", "intervals at 90 %", "8 samples", "&quot;seed&quot;: 17"):
        assert words in text
    assert "intervals at" not in page_of(cubes, dataclasses.replace(FACTS, level=None))


def test_a_guarantee_is_followed_by_what_flat_and_edge_are():
    promise = {"guarantee": calibration().guarantee}
    calibrated, bare = (Report({"uncertainty": {"calibration": c}}, {}, {}, 0.0) for c in (promise, None))
    (note,) = _notes(calibrated)
    assert re.search(r"\(flat, .*\(edge, .* Flat is where the input .* at most 0\.0005 .*; edge is every", note)
    assert list(_notes(bare)) == []


@pytest.mark.parametrize("hot", [False, True])
def test_the_colour_scale_says_where_it_ends_and_what_has_no_colour(hot):
    cubes = some_cubes()
    risk = np.full((1, ROWS, COLUMNS), 2000, "<f4")
    if hot:
        risk[0, 0, 0], risk[0, 1, 1] = 9000, np.nan
    cubes["risk"] = in_memory(risk, nodata=float("nan"))
    text = page_of(cubes)
    assert ("2000 and more, the file" in text) == hot
    assert ("no data</span>" in text) == hot


def test_levels_and_shares_are_those_of_all_pixels():
    risk = np.arange(1, ROWS * COLUMNS + 1, dtype="<f4").reshape(1, ROWS, COLUMNS)
    risk[0, 0] = np.nan
    cube = in_memory(risk, nodata=float("nan"))
    whole = Overview.of(some_cubes()["mean"], [some_cubes()["share"], cube], longest=20)
    overview = whole.maps[1]
    assert (whole.step, overview.risk.shape) == (3, (14, 20))
    for level, share in overview.levels:
        assert share == (risk[np.isfinite(risk)] > level).mean()
    assert overview.more
    assert overview.top == pytest.approx(np.nanpercentile(risk[0, ::3, ::3], 99.5))


def test_a_map_with_a_single_bright_pixel_has_a_colour_for_it():
    risk = np.zeros((1, ROWS, COLUMNS), "<f4")
    risk[0, 3, 3] = 7
    assert MapOverview.of(in_memory(risk), 1).top == 7


# Levels.


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=40), st.integers(1, 7))
@settings(deadline=None)
def test_levels_are_inside_the_map_and_shares_do_not_depend_on_the_cut(values, parts):
    risk = np.array([[*values, np.nan]], np.float32)
    levels = round_levels(risk)
    assert 1 <= len(levels) <= overviews.MOST_LEVELS
    assert list(levels) == sorted(set(levels))
    whole = shares_above(iter([risk]), levels)
    assert whole == shares_above(iter(np.array_split(risk, parts, axis=1)), levels)
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
    risk = np.linspace(0, 5, shape[0] * shape[1], dtype=np.float32).reshape(shape)
    whole = imread(io.BytesIO(risk_png(risk, "field: std", "std, the file's units")))
    low, high = (coloured(np.array([[v]]), 1.0)[0, 0] for v in (0.0, 1.0))
    for colour in (low, high):  # both ends are there, in the map or in the bar
        assert (np.abs(whole[..., :3].astype(int) - colour).sum(-1) < 12).sum() > 50
    risk[: shape[0] // 2] = np.nan
    holed = imread(io.BytesIO(risk_png(risk, "field: std", "std, the file's units")))
    grey = (np.abs(holed[..., :3].astype(int) - 204).max(-1) < 3).sum()
    assert grey > (np.abs(whole[..., :3].astype(int) - 204).max(-1) < 3).sum() or shape == (1, 1)


def test_the_axes_of_the_picture_count_the_pixels_of_the_scene():
    risk = np.ones((20, 30), np.float32)
    every, third = (imread(io.BytesIO(risk_png(risk, "field", "std", step))) for step in (1, 3))
    assert every.shape == third.shape
    assert (every != third).any(-1).mean() > 1e-4  # other numbers along the axes


def test_a_name_with_dollars_is_no_formula():
    assert risk_png(np.ones((4, 5), np.float32), "field$1_$^.hdr: std", "std")


def test_a_name_in_letters_that_the_font_lacks_is_no_warning(recwarn):
    assert risk_png(np.ones((4, 5), np.float32), "田野.hdr: std", "std")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_an_empty_map_makes_a_picture_and_a_page():
    cubes = some_cubes()
    empty = in_memory(np.full((1, ROWS, COLUMNS), np.nan, "<f4"), nodata=float("nan"))
    assert risk_png(empty.read()[0], "field", "std")
    cubes["risk"] = empty
    text = page_of(cubes)
    assert "0 or empty everywhere" in text


# The page.


def test_the_page_loads_nothing_and_believes_no_name():
    cubes = some_cubes()
    name = "a</script><script>alert(1)</script>&'\"x"
    maps = (MapFacts(name, name, name), MapFacts(name, name))
    text = page_of(cubes, Facts(name, name, 8, maps, record={name: name}))
    assert "alert(1)</script>" not in text
    assert text.count("<script") == text.count("</script>") == 3
    assert not re.search(r"url\(|@import|https?:", text)
    assert all(address.startswith("data:") for address in re.findall(r'(?:src|href)="([^"]*)"', text))
    assert '<html lang="en">' in text
    assert "<img" in text
    assert all("alt=" in tag for tag in re.findall(r"<img[^>]*>", text))


def test_the_page_is_the_same_from_files_of_any_order_of_axes(tmp_path):
    cubes = some_cubes()
    want = page_of(cubes)
    for interleave in ("bil", "bip"):
        stored = {}
        for name, cube in cubes.items():
            meta = CubeMeta(**{**cube.meta.__dict__, "interleave": interleave})
            with create_cube(tmp_path / f"{interleave}_{name}.hdr", meta) as written:
                written.write(meta.window, cube.read())
            stored[name] = open_cube(tmp_path / f"{interleave}_{name}.hdr")
        assert page_of(stored) == want


# The command.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small untrained model that is calibrated."""
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    told = {"calibration": calibration().to_dict()}
    spec = ModelSpec("pdenet", dataclasses.asdict(config), 4, {}, "test", extra=told)
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(path, Model(spec, PDENet(config)))
    return path


@pytest.mark.parametrize(
    ("options", "shown", "band"),
    [
        ((), ["interval", "std", "share"], "90 % interval"),
        (("--map", "std"), ["std"], "± 2 std of the samples, not calibrated"),
        (("--tolerance", 5, "--level", 0.8), ["risk", "interval", "std", "share"], "80 % interval"),
        (
            [word for name in ("consistency", "angle", "cv") for word in ("--map", name)],
            ["cv", "angle", "consistency"],
            "",
        ),
    ],
)
def test_the_command_writes_a_page_of_its_maps_the_most_telling_first(
    make_cube, pdenet, model, tmp_path, options, shown, band
):
    scene, _ = make_cube()
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "out", "--model", model, "--samples", 4, *options)
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / "out" / "scene_uncertainty.html").read_text(encoding="utf-8")
    facts = facts_in(text)
    assert ([told["name"] for told in facts["maps"]], facts["band"]) == (shown, band)
    assert (facts["rows"], facts["columns"], facts["bands"]) == (36, 28, 5)
    assert imread(tmp_path / "out" / "scene_uncertainty.png").ndim == 3
    assert open_cube(tmp_path / "out" / "scene_mean.hdr").meta.dtype == np.uint16
    told = json.loads((tmp_path / "out" / "scene.report.json").read_text())
    assert told["outputs"]["page"].endswith("scene_uncertainty.html")


def test_a_page_that_exists_is_not_replaced_unasked_and_none_is_made_unwanted(make_cube, pdenet, model, tmp_path):
    scene, _ = make_cube()
    command = ("uncertainty", scene, "-o", tmp_path / "out", "--model", model, "--samples", 2, "--map", "std")
    assert pdenet(*command, "--no-page").returncode == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert not names & {"scene_uncertainty.html", "scene_uncertainty.png", "scene_mean.hdr"}
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    page = tmp_path / "out" / "scene_uncertainty.html"
    page.write_text("mine")
    ran = pdenet(*command)
    assert ran.returncode != 0
    assert "--overwrite" in ran.stderr
    assert page.read_text() == "mine"
    assert pdenet(*command, "--overwrite").returncode == 0
    assert page.read_text().startswith("<!doctype html>")


# A browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Writes a page of some cubes and opens it, at an address within it."""

    def open_page(cubes, where="", facts=FACTS, longest=overviews.LONGEST_SIDE, most=overviews.MOST_VALUES):
        names = ("risk", "share")[: len(facts.maps)]
        interval = cubes["low"], cubes["high"]
        spectra = spectra_with(cubes, *names, interval=interval, level=facts.level, most_values=most)
        overview = Overview.of(cubes["mean"], [cubes[name] for name in names], longest)
        text = uncertainty_page(overview, spectra, facts)
        path = tmp_path / "page with a space.html"
        path.write_text(text, encoding="utf-8")
        browser.complaints.clear()
        browser.requests.clear()
        browser.ask("Page.navigate", url="about:blank")
        browser.open(path.as_uri() + where, 'document.body?.dataset.ready === "yes"')
        return browser

    return open_page


VIEW = "#views > :nth-child({}) figure:not([hidden]) .view"


def drawn(browser):
    return browser.value('document.querySelector("#chart .mean").getAttribute("points")')


@needs_browser
def test_a_click_on_a_pixel_shows_its_spectrum(opened):
    cubes = some_cubes()
    page = opened(cubes)
    before = drawn(page)
    row, column = 30, 12
    page.click(VIEW.format(2), (column + 0.5) / COLUMNS, (row + 0.5) / ROWS)
    assert page.text("#told").startswith(
        f"Row {row}, column {column}: std {cubes['risk'].read()[0, row, column]:.3f}"[:-2]
    )
    assert drawn(page) != before
    assert page.value("location.hash") == f"#{row},{column}"
    page.value('document.getElementById("numbers").open = true')
    page.wait('document.querySelectorAll("#listed tr").length === 6')
    cells = page.value(
        '[...document.querySelectorAll("#listed tr")].map(r => [...r.cells].map(c => +c.textContent))'
    )
    for band, (place, *told) in enumerate(cells):
        wanted = [cubes[name].read()[band, row, column] for name in ("mean", "low", "high")]
        wanted.append(cubes["input"].read()[band, row // SCALE, column // SCALE])
        assert place == WAVES[band]
        assert told == pytest.approx(wanted, abs=1.5)  # a step of the band's range, then whole numbers
    assert page.complaints == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in page.requests)


@needs_browser
def test_a_pixel_is_ranked_among_all_others_and_bands_without_wavelengths_have_whole_numbers(opened):
    cubes = some_cubes()
    cubes["mean"].meta = dataclasses.replace(cubes["mean"].meta, wavelengths=None, wavelength_units=None)
    page = opened(cubes, where="#30,12")
    merged = cubes["risk"].read()[0]
    share = np.floor(1000 * (merged[np.isfinite(merged)] < merged[30, 12]).mean()) / 10
    assert page.text("#told").endswith(f"more than in {share:g} % of the pixels")
    labels = page.value(
        '[...document.querySelectorAll("#drawing text[text-anchor=middle]")].map(t => t.textContent)'
    )
    assert labels == ["0", "1", "2", "3", "4", "5"]


@needs_browser
def test_arrow_keys_move_the_pixel_and_stop_at_the_edge(opened):
    page = opened(some_cubes(), "#20,30")
    assert page.text("#told").startswith("Row 20, column 30:")
    page.press("Tab")
    assert page.value("document.activeElement.id") == "views"
    before = drawn(page)
    page.press("ArrowRight")
    assert page.text("#told").startswith("Row 20, column 31:")
    assert drawn(page) != before
    page.press("ArrowDown", shift=True)
    assert page.text("#told").startswith("Row 30, column 31:")
    for _ in range(3):
        page.press("ArrowDown", shift=True)
    assert page.value("location.hash") == "#39,31"
    assert page.complaints == []


@needs_browser
def test_the_pointer_shows_a_pixel_in_both_pictures_and_gives_way_to_the_chosen_one(opened):
    page = opened(some_cubes(), "#20,30")
    chosen = drawn(page)
    page.move(VIEW.format(1), 50.5 / COLUMNS, 8.5 / ROWS)
    page.wait('document.getElementById("told").textContent.startsWith("Row 8, column 50:")')
    assert drawn(page) != chosen
    places = page.value('[...document.querySelectorAll(".view .down")].map(line => line.style.left)')
    assert places[0] == places[1] == f"{100 * 50.5 / COLUMNS:.4f}%"
    page.move("h1", 0.5, 0.5)
    page.wait('document.getElementById("told").textContent.startsWith("Row 20, column 30:")')
    assert drawn(page) == chosen


@needs_browser
def test_the_pointer_over_the_spectrum_tells_a_band(opened):
    cubes = some_cubes()
    page = opened(cubes, "#20,30")
    page.move("#chart", 0.97, 0.5)
    told = page.text("#told-band")
    mean = cubes["mean"].read()[-1, 20, 30]
    assert told.startswith(f"700 nm (band 5): {mean}; 90 % interval: ")
    assert told.endswith(f"; input: {cubes['input'].read()[-1, 20 // SCALE, 30 // SCALE]}")


@needs_browser
def test_a_pixel_without_data_says_so(opened):
    page = opened(some_cubes(), "#2,2")
    assert page.text("#told") == "Row 2, column 2: no data"
    assert page.value('document.querySelectorAll("#chart .mean").length') == 0
    assert page.complaints == []


@needs_browser
@pytest.mark.parametrize("where", ["", "#x", "#9999,9999", "#-1,2"])
def test_any_address_opens(opened, where):
    page = opened(some_cubes(), where)
    assert re.match(r"Row \d+, column \d+:", page.text("#told"))
    assert page.complaints == []


SEEN = '[...document.querySelectorAll("[data-map]")].filter(e => e.checkVisibility()).map(e => e.dataset.map)'


@needs_browser
def test_the_keyboard_switches_between_maps_each_with_its_picture_scale_and_shares(opened):
    cubes = some_cubes()
    page = opened(cubes, "#20,30", BOTH)
    assert page.value(SEEN) == ["0", "0"]
    spectrum = drawn(page)
    page.press("Tab")
    page.press("Tab")
    assert page.value("document.activeElement.id") == "map"
    assert page.value("document.activeElement.labels[0].textContent") == "Map"
    page.press("ArrowDown")
    page.wait(f"{SEEN}.join() === '1,1'")
    merged = cubes["share"].read()[0]
    share = np.floor(1000 * (merged < merged[20, 30]).mean()) / 10
    told = f"Row 20, column 30: share {merged[20, 30]:g} %, more than in {share:g} % of the pixels"
    assert page.text("#told") == told  # the arrow key has not moved the pixel
    assert drawn(page) == spectrum
    assert page.text("figure:not([hidden])[data-map] figcaption") == "share: samples that differ"
    assert page.text("figure:not([hidden])[data-map] .bar > span").endswith(", percent")
    assert "share, percent" in page.text("div:not([hidden])[data-map] caption")
    page.click(VIEW.format(2), 10.5 / COLUMNS, 8.5 / ROWS)
    assert page.text("#told").startswith("Row 8, column 10: share ")
    page.press("Tab", shift=True)
    assert page.complaints == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in page.requests)


@needs_browser
def test_a_page_always_opens_with_its_first_map(opened):
    page = opened(some_cubes(), "#20,30", BOTH)
    choose = (
        'const pick = document.getElementById("map"); pick.value = "1"; pick.dispatchEvent(new Event("change"))'
    )
    page.value(f"{{ {choose} }}")
    assert page.value(SEEN) == ["1", "1"]
    page.value("{ delete document.body.dataset.ready; location.reload() }")
    page.wait('document.body?.dataset.ready === "yes"')
    assert page.value(SEEN) == ["0", "0"]
    assert page.value('document.getElementById("map").value') == "0"
    assert page.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_a_page_of_one_map_has_nothing_to_switch():
    assert "<select" not in page_of(some_cubes())
    assert page_of(some_cubes(), BOTH).count("<option") == 2


@needs_browser
def test_the_input_pixel_around_the_place_is_a_line_of_its_own_with_a_name(opened):
    page = opened(some_cubes(), "#20,30")
    lines = '[...document.querySelectorAll("#drawing polyline")].map(line => line.getAttribute("class"))'
    assert page.value(lines) == ["input", "mean"]
    own = 'document.querySelector("#drawing .input").getAttribute("points")'
    there = page.value(own)
    assert there != drawn(page)
    style = "(kind => getComputedStyle(document.querySelector('#drawing .' + kind)).strokeDasharray)"
    assert page.value(f"{style}('input')") != page.value(f"{style}('mean')")
    assert "input, the pixel around this place" in page.text(".key")
    page.value("choose(23, 31)")  # the same pixel of the input: on the same axis, the same line
    page.value('document.getElementById("same").click()')
    there = page.value(own)
    page.value("choose(20, 28)")
    assert page.value(own) == there
    page.value("choose(24, 28)")
    assert page.value(own) != there
    assert page.complaints == []


@needs_browser
def test_the_labels_of_the_spectrum_can_be_read_in_a_narrow_window(opened):
    page = opened(some_cubes())
    for width in (1280, 400):
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        page.wait("chart.viewBox.baseVal.width === chart.clientWidth")
        labels = page.value(
            '[...document.querySelectorAll("#drawing text[text-anchor=middle]")]'
            ".map(text => text.getBoundingClientRect().toJSON())"
        )
        assert len(labels) >= 3
        assert all(label["height"] >= 12 for label in labels)
        assert all(one["right"] + 4 < other["left"] for one, other in pairwise(labels))
    page.ask("Emulation.clearDeviceMetricsOverride")


@needs_browser
def test_thinned_spectra_are_those_of_the_pixels_that_the_page_names(opened):
    cubes = some_cubes()
    page = opened(cubes, longest=25, most=len(WAVES) * 300)  # pictures of every 3rd pixel, spectra of other ones
    step = page.value("facts.step")
    assert step == 3
    page.click(VIEW.format(1), 0.6, 0.7)
    row, column = map(int, re.match(r"Row (\d+), column (\d+)", page.text("#told")).groups())
    assert row % step == column % step == 0
    assert abs(row - 0.7 * ROWS) <= 2 * step
    assert abs(column - 0.6 * COLUMNS) <= 2 * step
    told = float(re.search(r"std ([\d.]+)", page.text("#told"))[1])
    assert told == pytest.approx(cubes["risk"].read()[0, row, column], rel=1e-3)


@needs_browser
def test_nothing_sticks_out_of_a_narrow_window(opened):
    page = opened(some_cubes())
    for width in (1280, 400):
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
    page.ask("Emulation.clearDeviceMetricsOverride")
    assert page.value("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


@needs_browser
@pytest.mark.parametrize("size", [1e-9, 1.2e-6, 1e-4, 7e-5, 2.4e-4, 1e-2, 1, 123, 5e4])
def test_labels_of_the_colour_scale_never_meet(opened, size):
    cubes = some_cubes()
    cubes["risk"] = in_memory((size * cubes["risk"].array).astype("<f4"), nodata=float("nan"))
    page = opened(cubes)
    for width in (1280, 780, 320):
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        texts = '[...document.querySelectorAll(".bar div span, .bar > span")]'
        *labels, end = page.value(f"{texts}.map(text => text.getBoundingClientRect().toJSON())")
        assert len(labels) >= 3
        assert all(one["right"] + 4 < other["left"] for one, other in pairwise(labels))
        assert all(end["top"] >= label["bottom"] or end["bottom"] <= label["top"] for label in labels)
    page.ask("Emulation.clearDeviceMetricsOverride")
