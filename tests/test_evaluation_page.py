"""The page of `pdenet evaluate`: tables, maps, spectra and curves, as a browser shows them."""

import base64
import html
import io
import json
import math
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from skimage.io import imread

from pdenet_cli.evaluation.look import telling_pixels
from pdenet_cli.pages.chart import Line, Stroke, line_chart, strokes
from pdenet_cli.pages.evaluation import evaluation_page
from pdenet_cli.tools.evaluate import evaluate_files
from pdenet_cli.tools.truths import TruthSettings
from tests import contests
from tests.browser import CHROMIUM, needs_browser
from tests.contests import contest, smooth
from tests.cubes import written
from tests.html import check_page

truth, contestants = contests.truth, contests.contestants


@pytest.fixture(scope="module")
def evaluated(truth, contestants):
    return contest(contestants, ("chance", "plain"), samples=(1, 2), look=True).run([truth[0]])


def test_the_page_shows_tables_maps_spectra_and_curves(evaluated):
    text = evaluation_page(evaluated)
    counted = check_page(text)
    assert counted["images"] == 5 + 3 + 1  # colours with truth and input, errors, the colour scale
    for words in ("where the systems differ most", "a typical error", "PSNR of each band", "wavelength, nm"):
        assert words in text
    best = max(values["MPSNR"] for values in evaluated.means().values())
    assert f"<strong>{best:.3f}</strong>" in text


def test_small_numbers_are_gains_over_bicubic_and_say_which_way_is_better(evaluated):
    text = evaluation_page(evaluated)
    table = evaluated.means()
    for metric in evaluated.metrics:
        assert (
            f"<th>{metric.name}<span>{metric.unit} {'↑' if metric.better == 'higher' else '↓'}".replace(
                "<span> ", "<span>"
            )
            in text
        )
        for system in ("chance", "plain"):
            value, start = table[system][metric.name], table["bicubic"][metric.name]
            kind = "better" if (value > start) == (metric.better == "higher") else "worse"
            assert f'<small class="{kind}">{metric.text(value - start, "+")}</small>' in text
    assert text.count("<small") == 2 * len(evaluated.metrics)  # bicubic gains nothing over itself


def test_the_page_says_what_was_compared_and_what_failed(evaluated, truth, contestants):
    text = evaluation_page(replace(evaluated, failed={"<gone>.hdr": "no <such> file"}))
    assert "whole scenes" in text
    assert "2 draws, seed 3" in text
    assert "<li>&lt;gone&gt;.hdr: no &lt;such&gt; file</li>" in text
    assert "Failed scenes" not in evaluation_page(evaluated)
    part = evaluation_page(contest(contestants, part="lower-right").run([truth[0]]))
    assert "the lower right quarter, held out from training" in part
    assert "24 x 20 pixels from row 25, column 21" in part


def test_how_it_was_made_is_json_also_where_the_nodata_value_is_nan(truth, contestants):
    text = evaluation_page(contest(contestants, nodata=math.nan).run([truth[0]]))
    record = html.unescape(re.search("<pre>(.*?)</pre>", text, re.DOTALL)[1])
    assert json.loads(record, parse_constant=pytest.fail)["nodata"] is None


def test_pixels_are_marked_in_the_truth_where_they_are(truth, contestants):
    asked = contest(contestants, part="lower-right", look=True, pixels=((30, 25), (48, 40))).run([truth[0]])
    marks = re.findall(r'<i style="left:([\d.]+)%;top:([\d.]+)%">(\d)</i>', evaluation_page(asked))
    assert marks == [("22.50", "22.92", "1"), ("97.50", "97.92", "2")]


def test_every_pixel_has_its_own_spectra(truth, tmp_path):
    path, unit = truth
    guess = written(tmp_path / "guess.hdr", unit * 9000)
    asked = evaluate_files(guess, path, None, TruthSettings(look=True, pixels=((3, 4), (30, 20))))
    first, second = re.findall(r'aria-label="Spectra at .*?</svg>', evaluation_page(asked), re.DOTALL)
    drawn = [set(re.findall(r'points="[^"]*"', chart)) for chart in (first, second)]
    assert len(drawn[0]) == len(drawn[1]) == 2  # truth and estimate
    assert not drawn[0] & drawn[1]


def test_a_map_of_errors_has_the_colours_of_its_scale(evaluated):
    look = evaluated.scenes[0].look
    text = evaluation_page(evaluated)
    sources = re.findall(r'src="data:image/png;base64,([^"]*)" alt="(errors of|colour scale)', text)
    *maps, ramp = (imread(io.BytesIO(base64.b64decode(source)))[..., :3] for source, _ in sources)
    assert f"{look.top:.3g} and more" in text
    for shown, error in zip(maps, look.errors.values(), strict=True):
        for row, column in ((0, 0), (20, 20), np.unravel_index(error.argmax(), error.shape)):
            place = min(255, round(255 * float(error[row, column]) / look.top))
            assert np.abs(shown[row, column].astype(int) - ramp[0, place]).max() <= 8


def test_a_line_is_broken_where_bands_are_left_out(truth, contestants, tmp_path):
    path = written(tmp_path / "gap.hdr", truth[1], good_bands=(True, True, False, True, True))
    scene = contest(contestants, look=True).run([path])
    chart = evaluation_page(scene).partition("PSNR of each band</h3>")[2]
    assert chart.count("<polyline") == 2 * 2


def test_the_page_believes_no_name(truth, contestants, tmp_path):
    scene = tmp_path / "a<b>&'\"x.hdr"
    written(scene, truth[1])
    text = evaluation_page(contest(contestants, look=True).run([scene]))
    check_page(text)
    assert "a<b>" not in text


def test_error_maps_and_spectra_are_those_of_the_cubes(truth, tmp_path):
    path, unit = truth
    guess = unit.copy()
    guess[:, 7, 9] = 0
    found = (
        evaluate_files(written(tmp_path / "guess.hdr", guess * 10000), path, None, TruthSettings(look=True))
        .scenes[0]
        .look
    )
    error = found.errors["guess.hdr"]
    assert error[7, 9] == pytest.approx(np.sqrt((unit[:, 7, 9].astype(np.float64) ** 2).mean()), rel=1e-5)
    assert (found.spots[0].row, found.spots[0].column) == (7, 9)
    np.testing.assert_allclose(found.spectra["truth"][0], unit[:, 7, 9], atol=1e-6)
    assert (found.spectra["guess.hdr"][0] == 0).all()


@pytest.mark.parametrize("part", ["whole", "lower-right"])
def test_of_a_large_scene_every_so_many_th_pixel_is_shown_and_counted_in_the_file(tmp_path, monkeypatch, part):
    unit = smooth(2, 130, 70).astype("<f4")
    path = written(tmp_path / "truth.hdr", unit)
    noise = 0.05 * np.random.default_rng(0).standard_normal(unit.shape)
    guess = written(tmp_path / "guess.hdr", (unit + noise).clip(0, 1).astype("<f4"))
    settings = TruthSettings(look=True, part=part)
    whole = evaluate_files(guess, path, None, settings).scenes[0]
    monkeypatch.setattr("pdenet_cli.evaluation.look.LONGEST_SIDE", 50)
    monkeypatch.setattr("pdenet_cli.evaluation.view.BLOCK_VALUES", 1)
    thin = evaluate_files(guess, path, None, settings).scenes[0]
    step, error = thin.look.step, whole.look.errors["guess.hdr"]
    assert (whole.look.step, step) == (1, 3 if part == "whole" else 2)
    np.testing.assert_array_equal(thin.look.errors["guess.hdr"], error[::step, ::step])
    assert thin.look.colours["truth"].shape == (*error[::step, ::step].shape, 3)
    assert thin.look.top == pytest.approx(np.percentile(error[::step, ::step], 99.5))
    spot = thin.look.spots[0]
    assert error[spot.row - whole.row, spot.column - whole.column] == error[::step, ::step].max()
    np.testing.assert_allclose(thin.look.spectra["truth"][0], unit[:, spot.row, spot.column], atol=1e-6)


def test_colours_are_stretched_as_the_truth_and_holes_have_no_spectrum(truth, tmp_path):
    path, unit = truth
    dark = unit * 5000
    dark[:, :5] = np.nan
    settings = TruthSettings(look=True, pixels=((2, 3), (20, 20)))
    look = evaluate_files(written(tmp_path / "dark.hdr", dark), path, None, settings).scenes[0].look
    shown = look.colours["truth"][5:].astype(float)
    assert (shown.min(), shown.max()) == (0, 255)
    assert look.colours["dark.hdr"][5:].mean() < 0.5 * shown.mean()
    assert np.isnan(look.errors["dark.hdr"][:5]).all()
    assert not look.colours["dark.hdr"][:5].any()
    assert np.isnan(look.spectra["dark.hdr"]).all(1).tolist() == [True, False]
    assert np.isfinite(look.spectra["truth"]).all()


def test_telling_pixels_tell():
    first, second = np.random.default_rng(0).random((2, 8, 9)).astype(np.float32) / 10
    first[2, 3] = 1
    first[5, 6] = second[5, 6] = 0.9
    second[0, 0] = np.nan
    (apart, worst, typical) = telling_pixels([first, second])
    assert apart[:2] == (2, 3)
    assert worst[:2] == (5, 6)
    mean = (first + second) / 2
    assert mean[typical[:2]] == pytest.approx(np.nanmedian(mean), abs=0.01)


@pytest.mark.parametrize("values", [[1, 2, 3], [5, 5, 5], [np.nan] * 3, [0.001, np.nan, 0.002], [np.inf, 1, 2]])
def test_a_chart_can_be_drawn_of_any_values(values):
    chart = line_chart([Line("a", [1, 2, 3], values, Stroke("#000"), marked=True)], "x", "y", "title")
    assert "nan" not in chart
    assert "inf" not in chart
    assert chart.count("<circle") == np.isfinite(values).sum()


def test_a_chart_has_its_values_where_its_numbers_are():
    places, values = [400.0, 410.0, 420.0], [200.0, 250.0, 300.0]
    chart = line_chart([Line("a", places, values, Stroke("#000"), marked=True)], "x", "y", "title")
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', chart)
    up = dict(re.findall(r'y="([\d.]+)" text-anchor="end">([\d.]+)<', chart))
    across = dict(re.findall(r'<text x="([\d.]+)" y="252" text-anchor="middle">([\d.]+)<', chart))
    for (x, y), place, value in zip(points, places, values, strict=True):
        beside = min(up, key=lambda place, y=y: abs(float(place) - 4 - float(y)))
        below = min(across, key=lambda place, x=x: abs(float(place) - float(x)))
        assert abs(float(up[beside]) - value) <= 10  # half of the way to the next number
        assert float(across[below]) == pytest.approx(place, abs=2)
    heights = [float(y) for _, y in points]
    assert heights == sorted(heights, reverse=True)  # more is higher
    assert heights[0] - heights[2] > 200  # of 224 that there are
    assert [float(x) for x, _ in points] == pytest.approx([64, 346, 628], abs=0.1)


def test_bars_reach_as_far_as_the_spread_and_stay_inside_the_chart():
    line = Line("a", [1, 2, 3], [5, 5, 6], Stroke("#123456"), [1, 2, np.nan], marked=True)
    chart = line_chart([line], "x", "y", "title")
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', chart)]
    bars = [(float(a), float(b)) for a, b in re.findall(r'y1="([\d.]+)" y2="([\d.]+)" fill', chart)]
    unit = heights[0] - heights[2]  # of one
    assert len(bars) == 2
    for (low, high), height, spread in zip(bars, heights, (1, 2), strict=False):
        assert (low - height, height - high) == pytest.approx((spread * unit,) * 2, abs=0.2)
        assert 0 < high < low < 280


def test_a_value_without_neighbours_is_a_point_and_others_are_not():
    chart = line_chart([Line("a", [1, 2, 3, 4], [1, np.nan, 2, 3], Stroke("#000"))], "x", "y", "title")
    assert (chart.count("<circle"), chart.count("<polyline")) == (1, 1)


def test_lines_are_told_apart_by_colour_or_dashes():
    drawn = strokes([f"model {i}" for i in range(15)] + ["bicubic"], "bicubic", "truth")
    assert len({(stroke.colour, stroke.dashes) for stroke in drawn.values()}) == 17
    assert next(iter(drawn)) == "truth"


@needs_browser
def test_a_browser_shows_the_page_without_complaint(evaluated, tmp_path):
    text = evaluation_page(evaluated)
    # The page itself runs nothing; the copy that is tested tells what the browser made of it.
    probe = """<script>addEventListener("load", () => { const images = [...document.images];
        document.body.dataset.loaded = images.filter(i => i.complete && i.naturalWidth > 1).length;
        document.body.dataset.wide = document.documentElement.scrollWidth <= innerWidth;
        document.body.dataset.charts = [...document.querySelectorAll("figure svg")]
            .filter(s => s.getBoundingClientRect().height > 50).length; })</script></body>"""
    (tmp_path / "page.html").write_text(text.replace("</body>", probe))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/u",
    ]
    command = [CHROMIUM, *flags, "--dump-dom", (tmp_path / "page.html").as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    assert "CONSOLE" not in ran.stderr
    counted = check_page(text)
    assert f'data-loaded="{counted["images"]}"' in ran.stdout
    assert 'data-wide="true"' in ran.stdout
    assert f'data-charts="{2 + 3 + 1}"' in ran.stdout  # two of the study, three spectra, one of bands
