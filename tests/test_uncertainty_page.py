"""The page of `pdenet uncertainty`: what it holds is what the cubes hold."""

import dataclasses
import json
import re
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.io import imread

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.models.model import Model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.pages import overview as overviews
from pdenet_cli.pages.overview import (
    InputSpectra,
    MapOverview,
    Overview,
    Packed,
    Spectra,
    breaks,
    packed,
    spectra_of,
)
from pdenet_cli.pages.uncertainty import Facts, MapFacts, from_cubes
from pdenet_cli.pages.uncertainty_files import _notes
from pdenet_cli.report import Report
from tests.conftest import calibration
from tests.cubes import in_memory
from tests.uncertainty_pages import (
    BOTH,
    COLUMNS,
    FACTS,
    ROWS,
    WAVES,
    facts_in,
    page_of,
    some_cubes,
    spectra_with,
)


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
    source = InputSpectra(values[0][:, ::2, ::3] * 3, np.arange(rows) // 2, np.arange(columns) // 3)
    parcel = Packed.of(Spectra(*values, merged, source, 1, "band", tuple(range(bands)), "band"))
    back = unpacked(parcel, mean.shape, 2, source.values.shape)
    np.testing.assert_array_equal(back[0], merged)
    half = np.array(parcel.size)[:, None, None] / 2
    for got, wanted in zip(back[1:], (source.values, *values), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        assert (np.abs(got - wanted) <= half * 1.001 + 1e-6 * np.abs(wanted))[np.isfinite(wanted)].all()


def test_spectra_that_do_not_fit_are_thinned_until_they_do():
    cubes = some_cubes()
    spectra = spectra_with(cubes, "std_merged", "share", interval=(cubes["low"], cubes["high"]), level=0.9)
    whole = len(Packed.of(spectra).content)
    fewer, parcel = packed(spectra, most=whole // 3)
    assert spectra.step == 1
    assert fewer.step in (2, 4)
    assert len(parcel.content) <= whole // 3
    np.testing.assert_array_equal(fewer.mean, spectra.mean[:, :: fewer.step, :: fewer.step])
    for kept, name in zip(fewer.maps, ("std_merged", "share"), strict=True):
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
        coarse = InputSpectra.of(in_memory(pixels, nodata=1), fine, step)
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
    text = from_cubes(cubes["input"], cubes["mean"], [cubes["std_merged"]], FACTS, std=cubes["std"])
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
    merged = np.full((1, ROWS, COLUMNS), 2000, "<f4")
    if hot:
        merged[0, 0, 0], merged[0, 1, 1] = 9000, np.nan
    cubes["std_merged"] = in_memory(merged, nodata=float("nan"))
    text = page_of(cubes)
    assert ("2000 and more, the file" in text) == hot
    assert ("no data</span>" in text) == hot


def test_levels_and_shares_are_those_of_all_pixels():
    merged = np.arange(1, ROWS * COLUMNS + 1, dtype="<f4").reshape(1, ROWS, COLUMNS)
    merged[0, 0] = np.nan
    cube = in_memory(merged, nodata=float("nan"))
    whole = Overview.of(some_cubes()["mean"], [some_cubes()["share"], cube], longest=20)
    overview = whole.maps[1]
    assert (whole.step, overview.values.shape) == (3, (14, 20))
    for level, share in overview.levels:
        assert share == (merged[np.isfinite(merged)] > level).mean()
    assert overview.more
    assert overview.top == pytest.approx(np.nanpercentile(merged[0, ::3, ::3], 99.5))


def test_a_map_with_a_single_bright_pixel_has_a_colour_for_it():
    merged = np.zeros((1, ROWS, COLUMNS), "<f4")
    merged[0, 3, 3] = 7
    assert MapOverview.of(in_memory(merged), 1).top == 7


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


def test_a_page_of_one_map_has_nothing_to_switch():
    assert "<select" not in page_of(some_cubes())
    assert page_of(some_cubes(), BOTH).count("<option") == 2


# The command.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small untrained model that is calibrated."""
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    fitted = calibration().to_dict()
    spec = ModelSpec("pdenet", dataclasses.asdict(config), 4, {}, "test", calibration=fitted)
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
    told = json.loads((tmp_path / "out" / "scene.hdr.report.json").read_text())
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
