"""A model for any point spread undoes the one it is given; others refuse what they cannot undo."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from pdenet_cli import Posterior, load_model, open_cube, sharpen
from pdenet_cli.cli.sharpening import PosteriorOptions
from pdenet_cli.degradation import Degradation, point_spread
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.models.model import Model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.scene.window import Window
from tests.cubes import picture
from tests.trainings import seeded


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small untrained model for any point spread whose gains have learned something."""
    config = dataclasses.replace(CONFIGS["tiny"], psf="any")
    torch.manual_seed(0)
    network = PDENet(config)
    with torch.no_grad():
        network.psf_gains.uniform_(-2, 2, generator=seeded(5))
    path = tmp_path_factory.mktemp("model") / "any.safetensors"
    save_model(path, Model(ModelSpec("pdenet", dataclasses.asdict(config), 4, {"scale": 4}, "test"), network))
    return path


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1.4", Degradation(4, "gaussian", 1.4)),
        ("1.4x1.8", Degradation(4, "gaussian", 1.4, across=1.8)),
        ("square", Degradation(4, "area")),
        ("bicubic", Degradation(4)),
    ],
)
def test_a_point_spread_is_named_by_its_width_or_its_shape(text, meant):
    assert point_spread(text, 4) == meant


@pytest.mark.parametrize("text", ["0", "-1", "nan", "1000", "wide", "", "1x", "1.2x0", "1x2x3"])
def test_what_is_no_point_spread_is_refused_with_what_would_be_one(text):
    with pytest.raises(UsageError, match="expected a full width at half maximum"):
        point_spread(text, 4)


def test_the_same_scene_is_undone_as_its_point_spread_says(model):
    pixels = picture(4, 12, 10).astype(np.float32)
    usual, bicubic, soft = (
        sharpen(pixels, Posterior(load_model(model), 2, psf=psf))["mean"]
        for psf in (None, Degradation(4), Degradation(4, "gaussian", 1.8))
    )
    np.testing.assert_array_equal(usual, bicubic)
    assert np.abs(soft - usual).mean() > 1e-3 * np.abs(usual).mean()


def test_the_residuals_and_the_consistency_map_are_of_the_point_spread_that_was_given(model):
    spread = Degradation(4, "gaussian", 1.8)
    posterior = Posterior(load_model(model), 2, psf=dataclasses.replace(spread, noise=0.1))
    assert posterior.degradation == spread
    assert posterior.with_every_mask_one().draw.degradation == spread
    assert posterior.with_model(load_model(model)).degradation == spread


def test_tiles_give_what_the_whole_scene_gives_under_the_widest_point_spread(model, make_cube, pdenet, tmp_path):
    scene, _ = make_cube(bands=3, rows=70, columns=24, dtype="<f4")
    options = ("--model", model, "--samples", 2, "--psf", "2.2", "--seed", 3)
    assert pdenet("upscale", scene, "-o", tmp_path / "whole.hdr", *options).returncode == 0
    assert pdenet("upscale", scene, "-o", tmp_path / "tiled.hdr", *options, "--tile", 12).returncode == 0
    whole, tiled = (open_cube(tmp_path / f"{name}.hdr").read() for name in ("whole", "tiled"))
    np.testing.assert_allclose(tiled, whole, rtol=1e-5, atol=1e-3)
    assert json.loads((tmp_path / "whole.hdr.report.json").read_text())["job"]["psf"] == "x4 gaussian of fwhm 2.2"


def test_a_sensor_stands_for_its_measured_width(model, make_cube, pdenet, tmp_path):
    scene, _ = make_cube(bands=3, rows=12, columns=12)
    named = ("upscale", scene, "-o", tmp_path / "fine.hdr", "--model", model, "--sensor")
    assert pdenet(*named, "prisma").returncode == 0
    job = json.loads((tmp_path / "fine.hdr.report.json").read_text())["job"]
    assert job["psf"] == "x4 gaussian of fwhm 1.905"
    for words, why in ((("Landsat",), "only of Tanager"), (("prisma", "--psf", "1.4"), "give one of them")):
        refused = pdenet(*named, *words)
        assert (refused.returncode, why in " ".join(refused.stderr.split())) == (2, True)


def test_widths_along_and_across_track_blur_down_columns_and_along_rows():
    dot = torch.zeros(1, 36, 36)
    dot[:, 17:19, 17:19] = 1
    image = Degradation(4, "gaussian", 1.0, across=2.0)(dot)[0].numpy()
    down, right = image.sum(1), image.sum(0)
    assert right.argmax() == down.argmax() == 4
    assert down[3] / down[4] < right[3] / right[4]
    np.testing.assert_allclose(Degradation(4, "gaussian", 2.0, across=1.0)(dot)[0].numpy(), image.T, atol=1e-7)
    kept = Degradation(2, "gaussian", 1.0, across=2.0)
    assert Degradation.from_dict(kept.to_dict()) == kept


def test_turned_views_of_a_scene_are_undone_under_the_turned_point_spread(model):
    spread = Degradation(4, "gaussian", 1.0, across=2.0)
    pixels = np.ascontiguousarray(picture(4, 12, 12).astype(np.float32) / 1e4)
    whole = slice(None), Window(0, 0, 48, 48)

    def samples(psf, low):
        return Posterior(load_model(model), 8, ensemble="flips", psf=psf).samples(low, *whole)

    upright, lying = samples(spread, pixels), samples(spread.turned(), np.rot90(pixels, axes=(1, 2)).copy())
    single = Posterior(load_model(model), 1, psf=spread).samples(pixels, *whole)
    np.testing.assert_allclose(upright[0], single[0], atol=1e-5)
    # Sample 1 sees the scene turned; sample 0 of the turned scene is that view, had it the same masks.
    alike = np.abs(np.rot90(lying.mean(0), -1, axes=(1, 2)) - upright.mean(0)).mean()
    wrong = samples(spread, np.rot90(pixels, axes=(1, 2)).copy())
    assert alike < np.abs(np.rot90(wrong.mean(0), -1, axes=(1, 2)) - upright.mean(0)).mean() / 2


def test_wider_point_spreads_than_the_network_reaches_are_refused(model):
    with pytest.raises(ModelError, match=r"up to 2\.5 pixels"):
        Posterior(load_model(model), 2, psf=Degradation(4, "gaussian", 1.0, across=2.6))


def test_evaluate_can_tell_a_model_another_point_spread_than_the_truth_was_degraded_with(model, make_cube, pdenet):
    truth, _ = make_cube(bands=3, rows=48, columns=48)

    def found(*options):
        ran = pdenet("evaluate", "--model", model, "--samples", 2, "--json", "--fwhm", "1.8", *options, truth)
        return json.loads(ran.stdout)

    told, blind = found(), found("--psf", "bicubic")
    assert told["mean"]["bicubic"] == blind["mean"]["bicubic"]
    assert told["mean"]["any"]["MPSNR"] != blind["mean"]["any"]["MPSNR"]
    assert not told["notes"]
    assert blind["notes"] == ["any was trained for x4 bicubic, not the degradation of this run."]


def test_a_model_of_one_point_spread_refuses_another(models, make_cube, pdenet, tmp_path):
    with pytest.raises(ModelError, match="no other point spread"):
        Posterior(load_model(models / "pdenet.safetensors"), 2, psf=Degradation(4, "gaussian", 1.5))
    scene, _ = make_cube()
    ran = pdenet(
        "upscale", scene, "-o", tmp_path / "a.hdr", "--model", models / "pdenet.safetensors", "--psf", "1.5"
    )
    assert ran.returncode == 4
    assert "undoes x4 bicubic and no other point spread" in ran.stderr
    assert "--psf" in ran.stderr


def test_evaluate_tells_the_network_how_it_degrades_the_truth(model, make_cube, pdenet):
    truth, _ = make_cube(bands=3, rows=48, columns=48)

    def psnr(*options):
        ran = pdenet("evaluate", "--model", model, "--samples", 2, "--json", *options, truth)
        return json.loads(ran.stdout)["mean"]["any"]["MPSNR"]

    told = psnr("--fwhm", "1.8")
    network = load_model(model)
    with open_cube(truth) as cube:
        high = torch.from_numpy(cube.read() / np.percentile(cube.read(), 99.9)).float()
    low = Degradation(4, "gaussian", 1.8)(high[None])
    blind = Posterior(network, 2).samples(low[0].numpy(), slice(None), cube.meta.window)
    seeing = Posterior(network, 2, psf=Degradation(4, "gaussian", 1.8))
    seen = seeing.samples(low[0].numpy(), slice(None), cube.meta.window)

    def score(samples):
        error = (samples.mean(0).clip(0, 1) - high.numpy().clip(0, 1)) ** 2
        return float(-10 * np.log10(error.mean((1, 2))).mean())

    assert told == pytest.approx(score(seen), abs=1e-3)
    assert abs(score(blind) - score(seen)) > 5e-3


@pytest.mark.parametrize(
    ("words", "name"), [({}, "general-x4"), ({"psf": "1.4"}, "sensor-x4"), ({"sensor": "PRISMA"}, "sensor-x4")]
)
def test_a_point_spread_chooses_the_shipped_model_that_takes_any(words, name):
    options = PosteriorOptions(4, None, samples=2, seed=0, ensemble=None, device="cpu", **words)
    posterior = options.posterior()
    assert posterior.model.name == name
