"""The page of `pdenet evaluate`: tables, maps, spectra and curves, as a browser shows them."""

import subprocess

import numpy as np
import pytest

from pdenet_cli.evaluation.look import telling
from pdenet_cli.pages.chart import Line, Stroke, line_chart
from pdenet_cli.pages.evaluation import evaluation_page
from pdenet_cli.tools.evaluate import Settings, evaluate_files
from tests.browser import CHROMIUM, needs_browser
from tests.contests import contest, make_models, make_truth
from tests.cubes import written
from tests.html import check_page


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return make_truth(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def evaluated(truth, models):
    return contest(models, ("chance", "plain"), samples=(1, 2), look=True).run([truth[0]])


def test_the_page_shows_tables_maps_spectra_and_curves(evaluated):
    text = evaluation_page(evaluated)
    counted = check_page(text)
    assert counted["images"] == 4 + 3 + 1  # colours with the truth, errors, the colour scale
    for words in ("where the systems differ most", "a typical error", "PSNR of each band", "wavelength, nm"):
        assert words in text
    best = max(values["MPSNR"] for values in evaluated.means().values())
    assert f"<strong>{best:.3f}</strong>" in text


def test_a_line_is_broken_where_bands_are_left_out(truth, models, tmp_path):
    path = written(tmp_path / "gap.hdr", truth[1], good_bands=(True, True, False, True, True))
    scene = contest(models, look=True).run([path])
    chart = evaluation_page(scene).partition("PSNR of each band</h3>")[2]
    assert chart.count("<polyline") == 2 * 2


def test_the_page_believes_no_name(truth, models, tmp_path):
    scene = tmp_path / "a<b>&'\"x.hdr"
    written(scene, truth[1])
    text = evaluation_page(contest(models, look=True).run([scene]))
    check_page(text)
    assert "a<b>" not in text


def test_error_maps_and_spectra_are_those_of_the_cubes(truth, tmp_path):
    path, unit = truth
    guess = unit.copy()
    guess[:, 7, 9] = 0
    found = (
        evaluate_files(written(tmp_path / "guess.hdr", guess * 10000), path, None, Settings(look=True))
        .scenes[0]
        .look
    )
    error = found.errors["guess.hdr"]
    assert error[7, 9] == pytest.approx(np.sqrt((unit[:, 7, 9].astype(np.float64) ** 2).mean()), rel=1e-5)
    assert (found.spots[0].row, found.spots[0].column) == (7, 9)
    np.testing.assert_allclose(found.spectra["truth"][0], unit[:, 7, 9], atol=1e-6)
    assert (found.spectra["guess.hdr"][0] == 0).all()


def test_telling_pixels_tell():
    first, second = np.random.default_rng(0).random((2, 8, 9)).astype(np.float32) / 10
    first[2, 3] = 1
    first[5, 6] = second[5, 6] = 0.9
    second[0, 0] = np.nan
    (apart, worst, typical) = telling([first, second])
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
