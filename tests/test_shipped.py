"""The models that come with the program: found by scale, described, calibrated, and better than bicubic."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pdenet_cli import Radiometry, Survey, Window, load_model, open_cube, sharpen
from pdenet_cli.degradation import Degradation, bicubic_up
from pdenet_cli.models.catalogue import choose_model
from pdenet_cli.models.weights_file import read_header
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.uncertainty.calibration import Calibration

EXAMPLE = Path(__file__).parent.parent / "examples" / "indian_pines.hdr"


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_a_shipped_model_says_what_it_is_and_what_its_intervals_promise(scale):
    header = read_header(choose_model(None, scale))
    spec = header.spec
    assert (spec.scale, spec.network, spec.licence) == (scale, "pdenet", "MIT")
    assert header.nbytes < 3e6
    assert len(spec.data) == 20
    assert all(len(fact["sha256"]) == 64 for fact in spec.data)
    calibration = Calibration.of(spec)
    assert calibration is not None
    assert calibration.level == 0.9
    covered = [scene["coverage"] for scene in calibration.scenes]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)
    assert len(spec.error_lessons()) == 20
    assert load_model(header.path).errors is not None
    # Chances at 0 or 1 would leave one network and no uncertainty.
    chances = torch.cat(
        [p.flatten() for name, p in load_model(header.path).network.named_parameters() if "chance" in name]
    )
    assert 0.5 < float(chances.mean()) < 0.97


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_a_shipped_model_beats_bicubic_and_its_samples_differ(scale):
    with open_cube(EXAMPLE) as cube:
        radiometry = Radiometry.of(cube.meta, Survey.of(cube), None)
        bands = slice(20, 36)
        high, _ = radiometry.prepare(cube.read(cube.meta.window, bands), bands)
    low = Degradation(scale)(torch.from_numpy(high)[None])
    posterior = Posterior(load_model(choose_model(None, scale)), 8)
    samples = posterior.samples(low[0].numpy(), slice(None), Window(0, 0, *high.shape[1:]))

    def error(estimate):
        return float(np.mean((np.clip(estimate, 0, 1) - high.clip(0, 1)) ** 2))

    assert error(samples.mean(0)) < error(bicubic_up(low, scale)[0].numpy())
    assert error(samples.mean(0)) < np.mean([error(sample) for sample in samples])
    assert samples.std(0).mean() > 1e-4


# MPSNR in dB, SAM in degrees, share of the values that the intervals hold, of 16 bands of the example
GOLDEN = {
    2: (30.516, 1.920, 0.912),
    4: (26.457, 2.436, 0.951),
    8: (23.206, 2.878, 0.965),
}


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_the_shipped_models_score_what_they_scored_when_they_were_shipped(scale):
    command = [sys.executable, "-m", "pdenet_cli", "evaluate", "--model", f"general-x{scale}", "--uncertainty"]
    ran = subprocess.run([*command, "--bands", "20:36", "--json", EXAMPLE], capture_output=True, check=True)
    found = json.loads(ran.stdout)
    (scene,) = found["scenes"]
    values = scene["systems"][f"general-x{scale}"]["values"]
    coverage = scene["uncertainty"][f"general-x{scale}"]["values"]["interval coverage"]
    psnr, angle, share = GOLDEN[scale]
    assert values["MPSNR"] == pytest.approx(psnr, abs=0.02)
    assert values["SAM"] == pytest.approx(angle, rel=0.01)
    assert coverage == pytest.approx(share, abs=0.01)


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
