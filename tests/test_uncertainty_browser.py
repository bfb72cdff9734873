"""The page of `pdenet uncertainty` in a browser: pixels, spectra and maps as a reader chooses them."""

import dataclasses
import re
from itertools import pairwise

import numpy as np
import pytest

from pdenet_cli.pages import overview as overviews
from pdenet_cli.pages.overview import Overview
from pdenet_cli.pages.uncertainty import uncertainty_page
from tests.browser import Browser, needs_browser
from tests.cubes import in_memory
from tests.uncertainty_pages import BOTH, COLUMNS, FACTS, ROWS, SCALE, WAVES, some_cubes, spectra_with


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Writes a page of some cubes and opens it, at an address within it."""

    def open_page(cubes, where="", facts=FACTS, longest=overviews.LONGEST_SIDE, most=overviews.MOST_VALUES):
        names = ("std_merged", "share")[: len(facts.maps)]
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
        f"Row {row}, column {column}: std {cubes['std_merged'].read()[0, row, column]:.3f}"[:-2]
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
    merged = cubes["std_merged"].read()[0]
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
    assert told == pytest.approx(cubes["std_merged"].read()[0, row, column], rel=1e-3)


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
    cubes["std_merged"] = in_memory((size * cubes["std_merged"].array).astype("<f4"), nodata=float("nan"))
    page = opened(cubes)
    for width in (1280, 780, 320):
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        texts = '[...document.querySelectorAll(".bar div span, .bar > span")]'
        *labels, end = page.value(f"{texts}.map(text => text.getBoundingClientRect().toJSON())")
        assert len(labels) >= 3
        assert all(one["right"] + 4 < other["left"] for one, other in pairwise(labels))
        assert all(end["top"] >= label["bottom"] or end["bottom"] <= label["top"] for label in labels)
    page.ask("Emulation.clearDeviceMetricsOverride")
