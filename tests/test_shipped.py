"""The models that come with the program: found by scale, described, calibrated, and better than bicubic."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from pdenet_cli import Radiometry, Survey, Window, load_model, open_cube, sharpen
from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.models.catalogue import available_models, choose_model
from pdenet_cli.models.model import save_model
from pdenet_cli.models.weights_file import read_header
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.uncertainty.calibration import Calibration
from tests import goldens
from tests.goldens import EXAMPLE

LARGEST_FILE = 6e6  # bytes: the program is installed with a few of them
GOLDENS = json.loads(goldens.FILE.read_text())


def test_each_scale_has_a_model_and_one_for_any_point_spread_is_chosen_where_it_is_asked_for():
    assert [choose_model(None, scale).stem for scale in (2, 4, 8)] == ["general-x2", "general-x4", "general-x8"]
    chosen = choose_model(None, 4, any_psf=True)
    assert (chosen.stem, load_model(chosen).network.any_psf) == ("sensor-x4", True)
    assert choose_model(None, 8, any_psf=True).stem == "general-x8"  # the only one; it says what it is made for


@pytest.mark.parametrize("name", sorted(available_models()))
def test_a_shipped_model_says_what_it_is_and_what_its_intervals_promise(name):
    header = read_header(choose_model(name, None))
    spec = header.spec
    assert (spec.network, spec.licence) == ("pdenet", "MIT")
    assert name.endswith(f"-x{spec.scale}")
    assert header.nbytes < LARGEST_FILE
    assert spec.data
    assert all(fact["name"] and len(fact["sha256"]) == 64 for fact in spec.data)
    calibration = Calibration.of(spec)
    assert calibration is not None
    assert calibration.level == 0.9
    covered = [scene["coverage"] for scene in calibration.scenes]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)
    assert spec.error_lessons()
    assert load_model(header.path).errors is not None


@pytest.mark.parametrize("name", sorted(available_models()))
def test_a_shipped_model_beats_bicubic_and_its_samples_differ(name):
    model = load_model(name)
    scale = model.scale
    with open_cube(EXAMPLE) as cube:
        radiometry = Radiometry.of(cube.meta, Survey.of(cube), None)
        bands = slice(20, 36)
        high, _ = radiometry.prepare(cube.read(cube.meta.window, bands), bands)
    low = Degradation(scale)(torch.from_numpy(high)[None])
    posterior = Posterior(model, 8)
    samples = posterior.samples(low[0].numpy(), slice(None), Window(0, 0, *high.shape[1:]))

    def error(estimate):
        return float(np.mean((np.clip(estimate, 0, 1) - high.clip(0, 1)) ** 2))

    assert error(samples.mean(0)) < error(bicubic_up(low, scale)[0].numpy())
    assert error(samples.mean(0)) < np.mean([error(sample) for sample in samples])
    assert samples.std(0).mean() > 1e-4


@pytest.mark.parametrize("name", GOLDENS)
def test_a_shipped_model_scores_what_it_scored_when_it_was_shipped(name):
    changed = goldens.worse_or_other(goldens.scores(name), GOLDENS[name])
    assert not changed, f"{changed}; if other weights are shipped: python -m tests.goldens"


@pytest.mark.parametrize("worse", [{"MPSNR": -0.1}, {"SAM": 0.05}, {"coverage": -0.02}, {"MPSNR": float("nan")}])
def test_a_tenth_of_a_decibel_is_a_loss(worse):
    for golden in GOLDENS.values():
        assert goldens.worse_or_other(golden | {name: golden[name] + by for name, by in worse.items()}, golden)


def test_weights_that_are_a_little_damaged_do_not_score_the_same(tmp_path):
    model = load_model("general-x4")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.network.parameters():
            weights *= 1 + 0.05 * torch.randn(weights.shape, generator=generator)
    save_model(tmp_path / "damaged.safetensors", model)
    found = goldens.scores(tmp_path / "damaged.safetensors")
    assert found["MPSNR"] < GOLDENS["general-x4"]["MPSNR"]
    assert goldens.worse_or_other(found, GOLDENS["general-x4"])


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_twice_the_input_is_exactly_twice_the_output_and_the_upper_end_of_the_range_changes_nothing(scale):
    with open_cube(EXAMPLE) as cube:
        pixels = cube.read(Window(0, 0, 16, 12), slice(20, 28)).astype(np.float32)
    posterior = Posterior(load_model(choose_model(None, scale)), 2)

    def fine(numbers, high):
        return sharpen(numbers, posterior, value_range=(0, high))["mean"]

    usual = fine(pixels, 8192)
    np.testing.assert_array_equal(fine(2 * pixels, 8192), 2 * usual)
    np.testing.assert_allclose(fine(pixels, 30000), usual, rtol=1e-5)


def test_what_lies_beside_a_hole_is_as_good_as_without_it():
    with open_cube(EXAMPLE) as cube:
        high = cube.read(bands=slice(20, 28)).astype(np.float32)
    low = Degradation(4)(torch.from_numpy(high)).numpy()
    cut = low.copy()
    cut[:, :, :8] = np.nan
    posterior, beside = Posterior(load_model(choose_model(None, 4)), 8), np.s_[:, :, 32:36]

    def error(pixels):
        return np.sqrt(np.mean((sharpen(pixels, posterior)["mean"] - high)[beside] ** 2))

    assert error(cut) < 1.1 * error(low)  # 1.8 if the hole is filled with the mean of the scene


def test_the_examples_wavelengths_rise_as_those_of_its_four_spectrometers():
    with open_cube(EXAMPLE) as cube:
        steps = np.diff(np.asarray(cube.meta.wavelengths))
    back = np.flatnonzero(steps < 0)
    assert len(back) == 2  # where a spectrometer begins below the end of the one before
    gaps = np.flatnonzero(steps > 15)
    assert len(gaps) == 2  # water vapour
    usual = np.delete(steps, [*back, *gaps])
    assert ((usual > 8) & (usual < 11)).all()


def test_the_library_example_runs_as_it_is(tmp_path):
    script = EXAMPLE.with_name("library.py")
    ran = subprocess.run([sys.executable, script, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert "90 % interval" in ran.stdout
    assert "'error_merged': (128, 128)" in ran.stdout
    assert (tmp_path / "out" / "fine_interval_high.hdr").exists()
