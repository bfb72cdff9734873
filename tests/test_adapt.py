"""Fitting a model to one scene: what is kept, what is recorded, what is refused."""

import json

import numpy as np
import pytest
import torch

from pdenet_cli.models.model import load_model
from pdenet_cli.tools import adapt as adapting
from pdenet_cli.uncertainty.calibration import Calibration
from tests.cubes import picture, written


@pytest.fixture(scope="module")
def large_scene(tmp_path_factory):
    """A scene whose held-out quarter can tell."""
    return written(tmp_path_factory.mktemp("scene") / "scene.hdr", picture(6, 72, 80))


@pytest.fixture(scope="module")
def any_psf(tmp_path_factory):
    """An untrained model that takes any point spread."""
    from dataclasses import asdict, replace

    from pdenet_cli.models.model import Model, save_model
    from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
    from pdenet_cli.models.spec import ModelSpec

    torch.manual_seed(0)
    config = replace(CONFIGS["tiny"], stages=1, units=2, psf="any")
    path = tmp_path_factory.mktemp("model") / "any.safetensors"
    save_model(path, Model(ModelSpec("pdenet", asdict(config), 4, {}, "test"), PDENet(config)))
    return path


def run(pdenet, scene, model, output, *words):
    ran = pdenet(
        "adapt", scene, "--model", model, "-o", output, "--minutes", 0.03, "--samples", 2, "--json", *words
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_kept_model_is_calibrated_and_says_how_it_came_about(
    pdenet, large_scene, any_psf, tmp_path, monkeypatch
):
    monkeypatch.setattr(adapting, "LEAST_GAIN", -np.inf)  # in seconds nothing may gain
    output = tmp_path / "own.safetensors"
    told = run(pdenet, large_scene, any_psf, output, "--psf", "1.4x1.8")
    assert told["kept"]
    model = load_model(output)
    facts = model.spec.adapted
    assert facts["psf"] == {"scale": 4, "kernel": "gaussian", "fwhm": 1.4, "across": 1.8, "noise": 0.0}
    assert facts["assumes"] == adapting.ASSUMES
    assert facts["began_with"]["name"] == "any"
    assert model.spec.training_degradation().across == 1.8
    assert model.spec.began_with["sha256"] == facts["began_with"]["sha256"]
    calibration = Calibration.of(model.spec)
    assert calibration is not None
    assert calibration.scenes[0]["part"] == "lower-right"
    fine = tmp_path / "fine.hdr"
    assert pdenet("upscale", large_scene, "-o", fine, "--model", output, "--samples", 2).returncode == 0
    job = json.loads((tmp_path / "fine.hdr.report.json").read_text())["job"]
    assert job["psf"] == "x4 gaussian of fwhm 1.4 x 1.8"


def test_a_model_that_does_not_gain_is_not_kept(pdenet, large_scene, any_psf, tmp_path, monkeypatch):
    monkeypatch.setattr(adapting, "LEAST_GAIN", np.inf)
    output = tmp_path / "own.safetensors"
    told = run(pdenet, large_scene, any_psf, output, "--sensor", "PRISMA")
    assert not told["kept"]
    before, after = load_model(any_psf), load_model(output)
    for name, weight in before.network.state_dict().items():
        torch.testing.assert_close(after.network.state_dict()[name], weight, rtol=0, atol=0)
    assert after.spec.training_degradation().fwhm == pytest.approx(1.905)


def test_a_model_of_one_point_spread_learns_the_scenes(pdenet, large_scene, models, tmp_path, monkeypatch):
    monkeypatch.setattr(adapting, "LEAST_GAIN", -np.inf)
    output = tmp_path / "own.safetensors"
    told = run(pdenet, large_scene, models / "pdenet.safetensors", output, "--psf", "square")
    assert told["kept"]
    assert load_model(output).spec.training_degradation().kernel == "area"


def test_what_cannot_be_told_is_refused(pdenet, large_scene, any_psf, make_cube, tmp_path):
    small, _ = make_cube(rows=40, columns=60)
    words = ("--model", any_psf, "-o", tmp_path / "own.safetensors", "--minutes", 0.05)
    ran = pdenet("adapt", small, *words, "--psf", 1.4)
    assert ran.returncode == 2
    assert "64 x 64 are needed" in ran.stderr
    ran = pdenet("adapt", large_scene, *words, "--window", 0, 0, 64, 64)
    assert ran.returncode == 2
    assert "too few straight edges" in ran.stderr
    assert pdenet("adapt", large_scene, "--model", "bicubic", "-o", tmp_path / "b.safetensors").returncode == 2
    assert pdenet("adapt", large_scene, *words, "--psf", 1.4, "--sensor", "PRISMA").returncode == 2
    assert not list(tmp_path.glob("*.safetensors"))
