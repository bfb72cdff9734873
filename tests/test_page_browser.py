"""The page of a sharpened scene in a browser: places, pixels, spectra and maps as a reader chooses them."""

import dataclasses
import re
from base64 import b64decode
from itertools import pairwise

import numpy as np
import pytest
from imagecodecs import png_decode

from pdenet_cli.degradation import bicubic_pixels
from pdenet_cli.pages.shown import Shown
from pdenet_cli.scene.georeference import Georeference
from tests.browser import Browser, needs_browser
from tests.cubes import in_memory
from tests.scene_pages import SCALE, WAVES, facts_in, page_of, some_cubes

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Writes a page of some cubes and opens it, at an address within it."""

    def open_page(cubes, where="", width=1280, **changes):
        path = tmp_path / "page with a space.html"
        path.write_text(page_of(cubes, **changes), encoding="utf-8")
        browser.complaints.clear()
        browser.requests.clear()
        told = dict(width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.ask("Emulation.setDeviceMetricsOverride", **told)
        browser.ask("Page.navigate", url="about:blank")
        browser.open(path.as_uri() + where, 'document.body?.dataset.ready === "yes"')
        settled(browser)
        return browser

    yield open_page
    browser.ask("Emulation.clearDeviceMetricsOverride")


def settled(page):
    page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait('document.body.dataset.drawn === "all"')


def picture(page, canvas="colours"):
    """What a canvas shows, (rows, columns, 3)."""
    settled(page)
    address = page.value(f'document.getElementById("{canvas}").toDataURL("image/png")')
    return png_decode(b64decode(address.partition(",")[2]))[..., :3].astype(int)


def zoomed(page, row, column, zoom):
    page.value(f"{{ Object.assign(place, {{row: {row}, column: {column}}}); moveBy(0, 0, {zoom}); }}")


def colours_at(page, row, column):
    """The colour in the middle of the canvas when that pixel is there, large."""
    page.value("{ page.shown = null; page.held = null }")  # no frame around a pixel
    zoomed(page, row + 0.5, column + 0.5, 40)
    page.value("{ page.shown = null; redraw() }")
    shown = picture(page)
    return shown[shown.shape[0] // 2, shown.shape[1] // 2]


def wanted_colour(values, limits):
    return [np.clip(255 * (v - low) / (high - low), 0, 255) for v, (low, high) in zip(values, limits, strict=True)]


def listed(page):
    page.value('document.getElementById("numbers").open = true')
    page.wait('document.querySelectorAll("#listed tr").length > 0')
    return page.value(
        '[...document.querySelectorAll("#listed tr")].map(r => [...r.cells].map(c => +c.textContent))'
    )


def drawn(page):
    return page.value('document.querySelector("#chart .mean").getAttribute("points")')


def test_zoomed_to_a_pixel_a_click_gives_exactly_its_spectrum(opened):
    cubes = some_cubes()
    page = opened(cubes, "#20,30")
    before = drawn(page)
    row, column = 30, 13
    zoomed(page, row + 0.5, column + 0.5, 32)
    settled(page)
    page.click("#trust")
    assert page.value("location.hash") == f"#{row},{column}"
    std = cubes["std_merged"].read()[0, row, column]
    told = re.match(rf"Row {row}, column {column}: std of the samples ([\d.]+), more than", page.text("#told"))
    assert float(told[1]) == pytest.approx(std, rel=0.01)
    assert drawn(page) != before
    for band, (place, *values) in enumerate(listed(page)):
        mean, half = (cubes[name].read()[band, row, column] for name in ("mean", "half"))
        around = cubes["input"].read()[band, row // SCALE, column // SCALE]
        assert place == WAVES[band]
        assert values == pytest.approx([mean, mean - half, mean + half, around], abs=0.6)  # shown as whole numbers
        assert values[0] == mean
    assert page.complaints == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in page.requests)


def test_input_bicubic_and_result_are_shown_at_the_same_place_in_the_same_colours(opened):
    cubes = some_cubes()
    page = opened(cubes)
    facts = facts_in(page_of(cubes))
    row, column = 21, 34
    coarse = cubes["input"].read().astype(np.float32)
    coarse[coarse == 0] = np.nan
    pictures = {
        "input": coarse.repeat(SCALE, 1).repeat(SCALE, 2),
        "bicubic": bicubic_pixels(coarse, SCALE),
        "result": cubes["mean"].read(),
    }
    for name, pixels in pictures.items():
        page.value(f'{{ page.left = page.right = "{name}"; tag() }}')
        wanted = wanted_colour(pixels[facts["rgb"], row, column].astype(float), facts["limits"])
        assert colours_at(page, row, column) == pytest.approx(wanted, abs=2.5), name


def test_the_divider_swipes_between_two_pictures_and_blinking_shows_one_after_the_other(opened):
    page = opened(some_cubes())
    page.value('{ page.left = "input"; page.right = "result"; tag() }')
    whole = {}
    for name, share in (("result", 0), ("input", 1)):
        page.value(f"divide({share})")
        whole[name] = picture(page)
    page.value("divide(.5)")
    half = picture(page)
    middle = half.shape[1] // 2
    np.testing.assert_array_equal(half[:, : middle - 2], whole["input"][:, : middle - 2])
    np.testing.assert_array_equal(half[:, middle + 2 :], whole["result"][:, middle + 2 :])
    assert (whole["input"] != whole["result"]).any()
    page.value('document.getElementById("divider").focus()')
    for _ in range(3):
        page.press("ArrowLeft")
    assert page.value("views[0].divider") == pytest.approx(0.44)
    assert page.value('document.getElementById("divider").getAttribute("aria-valuenow")') == "44"
    page.press("b")
    assert page.value("page.blinking")
    seen = [page.value(f"page.flipped = {flipped}, tag(), document.getElementById('tag-left').textContent")
            for flipped in ("false", "true")]  # fmt: skip
    assert seen == ["input", "result"]
    page.press("b")
    assert page.complaints == []


def test_dragging_moves_and_the_wheel_zooms_at_the_pointer(opened):
    page = opened(some_cubes())
    zoomed(page, 20, 30, 20)
    before = page.value("[place.row, place.column]")
    where = page._point("#trust", 0.5, 0.5) | dict(button="left", buttons=1, clickCount=1)
    page.ask("Input.dispatchMouseEvent", type="mousePressed", **where)
    moved = where | dict(x=where["x"] + 60, y=where["y"] - 40)
    page.ask("Input.dispatchMouseEvent", type="mouseMoved", **moved)
    page.ask("Input.dispatchMouseEvent", type="mouseReleased", **moved)
    after = page.value("[place.row, place.column]")
    assert after == pytest.approx([before[0] + 2, before[1] - 3])
    assert page.value("location.hash") == page.value("`#${page.chosen.join()}`")  # a drag chooses nothing
    corner = page._point("#trust", 0.25, 0.25)
    under = f"views[1].under({{clientX: {corner['x']}, clientY: {corner['y']}}})"
    held = page.value(under)
    page.ask("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-100, **corner)
    page.wait("place.zoom > 21")
    assert page.value(under) == pytest.approx(held, abs=0.05)


def test_arrow_keys_move_the_pixel_into_sight_and_stop_at_the_edge(opened):
    page = opened(some_cubes(), "#20,30")
    page.value('document.getElementById("colours").focus()')
    before = drawn(page)
    page.press("ArrowRight")
    assert page.text("#told").startswith("Row 20, column 31:")
    assert drawn(page) != before
    zoomed(page, 20, 31, 40)
    for _ in range(3):
        page.press("ArrowDown", shift=True)
    assert page.value("location.hash") == "#39,31"
    assert page.value("Math.abs(place.row - 39.5) * place.zoom <= views[0].size[1] / 2")
    assert page.complaints == []


def test_the_pointer_shows_a_pixel_and_gives_way_to_the_chosen_one(opened):
    page = opened(some_cubes(), "#20,30")
    chosen = drawn(page)
    zoomed(page, 20, 30, 10)
    page.move("#trust", 0.5, 0.4)
    page.wait('!document.getElementById("told").textContent.startsWith("Row 20, column 30:")')
    assert drawn(page) != chosen
    page.move("h1", 0.5, 0.5)
    page.wait('document.getElementById("told").textContent.startsWith("Row 20, column 30:")')
    assert drawn(page) == chosen


def test_the_pointer_over_the_spectrum_tells_a_band_and_a_click_shows_it(opened):
    cubes = some_cubes()
    page = opened(cubes, "#20,30")
    page.move("#chart", 0.97, 0.5)
    told = page.text("#told-band")
    mean = cubes["mean"].read()[-1, 20, 30]
    assert told.startswith(f"700 nm (band 5): {mean}; 90 % interval: ")
    assert told.endswith(f"; input: {cubes['input'].read()[-1, 20 // SCALE, 30 // SCALE]}")
    page.click("#chart", 0.97)
    assert page.value('document.getElementById("band").value') == "5"


def change(page, control, value, event="change"):
    page.value(f'{{ const c = document.getElementById("{control}"); c.value = "{value}"; '
               f'c.dispatchEvent(new Event("{event}")) }}')  # fmt: skip
    settled(page)


def test_any_band_and_any_three_are_a_picture(opened):
    cubes = some_cubes()
    page = opened(cubes)
    mean = cubes["mean"].read().astype(float)
    page.value('{ page.left = page.right = "result"; tag() }')
    row, column = 33, 41
    change(page, "band", 1, "input")
    change(page, "picture", "one", "input")
    red, green, blue = colours_at(page, row, column)
    assert red == green == blue
    assert "500 nm (band 1)" in page.text("#band-name")
    bands = (5, 0, 3)
    for colour, band in zip(("red", "green", "blue"), bands, strict=True):
        change(page, colour, band, "input")
    change(page, "picture", "three", "input")
    coarse = cubes["input"].read().astype(float)
    limits = [np.percentile(coarse[band][coarse[band] > 0], (2, 98)) for band in bands]
    wanted = wanted_colour(mean[list(bands), row, column], limits)
    assert colours_at(page, row, column) == pytest.approx(wanted, abs=12)  # percentiles of so few pixels are rough


def test_maps_switch_each_with_its_scale_and_shares_and_band_by_band(opened):
    cubes = some_cubes()
    page = opened(cubes, "#20,30")
    merged, share = (cubes[name].read()[0] for name in ("std_merged", "share"))
    rank = np.floor(1000 * (merged[np.isfinite(merged)] < merged[20, 30]).mean()) / 10
    assert float(re.search(r"more than in ([\d.]+) %", page.text("#told"))[1]) == pytest.approx(rank, abs=0.3)
    assert page.text("#map-unit") == "K"
    coloured = picture(page, "trust")
    assert (np.ptp(coloured, axis=-1) > 8).any()
    change(page, "map", 1)
    page.wait('document.getElementById("told").textContent.includes("samples that differ")')
    told = re.search(r"samples that differ ([\d.]+) %, more", page.text("#told"))
    assert float(told[1]) == pytest.approx(share[20, 30], rel=0.01)
    page.value("{ page.shown = null; redraw() }")
    grey = picture(page, "trust")
    inside = grey[grey.shape[0] // 2 - 9 : grey.shape[0] // 2 + 9]
    assert (np.ptp(inside, axis=-1) <= 20).all()  # counts are no colours
    shown = "[...document.querySelectorAll('[data-map]')].map(part => !part.hidden)"
    assert page.value(shown) == [False, True]
    change(page, "map", 2)
    page.wait('!document.getElementById("band-choice").hidden')
    change(page, "band", 4, "input")
    page.wait('document.getElementById("map-says").textContent.includes("(band 4)")')
    told = re.search(r"std of the samples ([\d.]+), more", page.text("#told"))
    assert float(told[1]) == pytest.approx(cubes["std"].read()[4, 20, 30], rel=0.01)
    assert page.complaints == []


def test_thinned_spectra_are_those_of_the_pixel_that_the_page_names_and_frames(opened):
    cubes = some_cubes(rows=400, columns=420, bands=40, noise=400)
    page = opened(cubes, "#101,207", size=600_000)
    assert page.value("facts.mean.step") > 1
    row, column = map(int, re.search(r"spectrum is of row (\d+), column (\d+)", page.text("#told")).groups())
    step = page.value("facts.mean.step")
    assert max(abs(row - 101), abs(column - 207)) <= step / 2
    usual = float(re.search(r"differ from the file by ([\d.]+)", page.text("body"))[1])
    means = [values[1] for values in listed(page)]
    assert means == pytest.approx(cubes["mean"].read()[:, row, column], abs=3 * usual + 1)
    assert page.value("page.held") == [row, column]


def test_the_spectrum_is_broken_where_a_second_detector_starts_over(opened):
    waves = (900.0, 910.0, 920.0, 905.0, 915.0, 925.0)
    page = opened(some_cubes(wavelengths=waves), "#20,30")
    assert page.value('document.querySelectorAll("#drawing polyline.mean").length') == 2


@pytest.mark.parametrize(
    ("crs", "transform", "told"),
    [
        ("EPSG:32633", (366015.0, 7.5, 0.0, 5806125.0, 0.0, -7.5), "(x 366243.8, y 5805971.3, EPSG:32633)"),
        ("EPSG:4326", (13.0, 0.001, 0.0, 52.0, 0.0, -0.001), "(51.979500° N, 13.030500° E)"),
    ],
)
def test_a_pixel_has_its_place_on_the_ground(opened, crs, transform, told):
    page = opened(some_cubes(georeference=Georeference(transform, crs)), "#20,30")
    assert told in page.text("#told")


def test_values_are_those_of_the_header_s_scale(opened):
    cubes = some_cubes()
    scaled = {name: Shown(cubes[name], (0.0001,)) for name in ("mean", "half")}
    page = opened(cubes, "#20,30", unit="reflectance", source=Shown(cubes["input"], (0.0001,)), **scaled)
    assert listed(page)[0][1] == pytest.approx(cubes["mean"].read()[0, 20, 30] / 10000)
    assert "reflectance" in page.text("#chart")


def test_a_pixel_without_data_says_so(opened):
    page = opened(some_cubes(), "#2,2")
    assert page.text("#told") == "Row 2, column 2: no data"
    assert page.value('document.querySelectorAll("#chart .mean").length') == 0
    assert page.complaints == []


@pytest.mark.parametrize("where", ["", "#x", "#9999,9999", "#-1,2"])
def test_any_address_opens(opened, where):
    page = opened(some_cubes(), where)
    assert re.match(r"Row \d+, column \d+:", page.text("#told"))
    assert page.complaints == []


def test_a_page_without_maps_compares_pictures_and_shows_spectra(opened):
    page = opened(some_cubes(), "#20,30", maps=(), half=None, band="")
    assert page.text("#told") == "Row 20, column 30"
    assert [len(values) for values in listed(page)] == [3] * 6
    assert page.complaints == []


def test_on_a_phone_nothing_sticks_out_and_labels_can_be_read(opened):
    page = opened(some_cubes(), width=390)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    page.wait("chart.viewBox.baseVal.width === chart.clientWidth")
    labels = page.value(
        '[...document.querySelectorAll("#drawing text[text-anchor=middle]")]'
        ".map(text => text.getBoundingClientRect().toJSON())"
    )
    assert len(labels) >= 3
    assert all(label["height"] >= 12 for label in labels)
    assert all(one["right"] + 4 < other["left"] for one, other in pairwise(labels))
    assert page.value("views.every(view => view.size[0] > 300 && view.size[1] > 150)")


def test_a_page_keeps_nothing_in_the_browser(opened):
    page = opened(some_cubes())
    assert page.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_bands_without_wavelengths_have_whole_numbers(opened):
    cubes = some_cubes()
    cubes["mean"].meta = dataclasses.replace(cubes["mean"].meta, wavelengths=None, wavelength_units=None)
    page = opened(cubes, "#30,12")
    labels = page.value(
        '[...document.querySelectorAll("#drawing text[text-anchor=middle]")].map(t => t.textContent)'
    )
    assert labels == ["0", "1", "2", "3", "4", "5"]


def test_a_large_scene_is_seen_at_once_and_keeps_to_20_megabytes(opened):
    y, x = np.mgrid[:2400, :2400].astype("<f4")
    rng = np.random.default_rng(0)
    surface = 4000 + 1500 * np.sin(x / 37) * np.cos(y / 53) + rng.normal(0, 6, x.shape)
    mean = np.stack([surface + 30 * band for band in range(5)]).astype("<u2")
    merged = (20 + 10 * np.sin(x / 90) + 3 * ((x % 4 > 1) & (y % 4 > 1)) + rng.random(x.shape))[None].astype("<f4")
    cubes = dict(
        input=in_memory(np.ascontiguousarray(mean[:, ::4, ::4])),
        mean=in_memory(mean),
        half=in_memory(merged.repeat(5, 0)),
        std=in_memory(merged.repeat(5, 0)),
        std_merged=in_memory(merged),
        share=in_memory(merged),
    )
    text = page_of(cubes, maps=("std",))
    assert len(text) < 16e6
    facts = facts_in(text)
    assert [facts["colours"]["step"], facts["maps"][0]["plane"]["step"]] == [1, 1]
    page = opened(cubes, "#1201,805", maps=("std",))
    # The time that the page itself takes until something is seen, whatever else the machine does.
    page.ask("Performance.enable", timeDomain="threadTicks")
    page.ask("Page.reload")
    page.wait("document.body?.dataset.first")
    spent = {metric["name"]: metric["value"] for metric in page.ask("Performance.getMetrics")["metrics"]}
    assert spent["TaskDuration"] < 1.0
    page.wait('document.body.dataset.ready === "yes"')
    zoomed(page, 1201.5, 805.5, 32)
    settled(page)
    assert page.text("#told").startswith("Row 1201, column 805: std of the samples ")
    assert page.complaints == []
