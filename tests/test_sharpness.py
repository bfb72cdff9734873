"""How sharp a scene is, and errors that are expected of a truth as sharp as that."""

import numpy as np
import pytest

from pdenet_cli.errors import ModelError
from pdenet_cli.evaluation.sharpness import SOFTEST, sharpness_of
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.model import load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import ALREADY_UNIT
from pdenet_cli.scene.window import Window
from tests.error_nets import error_net

SIDE = 160


def natural_scene(fwhm, bands=3, side=SIDE, seed=1):
    """A random scene of power 1/f², behind a Gaussian point spread that is applied to its waves."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    sigma = fwhm / 2.3548
    amplitude = np.exp(-2 * (np.pi * sigma * frequency) ** 2) / frequency
    scene = np.fft.irfft2(np.fft.rfft2(generator.standard_normal((bands, side, side))) * amplitude, (side, side))
    return (0.5 + 0.1 * scene / scene.std()).astype(np.float32)


def view(pixels, **fields):
    cube = Cube("scene", CubeMeta(*pixels.shape, pixels.dtype), pixels)
    return View(cube, ALREADY_UNIT, tuple(range(len(pixels))), cube.meta.window, **fields)


@pytest.mark.parametrize("fwhm", [0.5, 1.0, 1.5, 2.0, 2.5])
def test_a_scene_behind_a_known_point_spread_is_as_sharp_as_that(fwhm):
    assert sharpness_of(view(natural_scene(fwhm))) == pytest.approx(fwhm, abs=0.12)


def test_a_softened_view_is_softer_by_its_blur():
    scene = natural_scene(0.8)
    assert sharpness_of(view(scene, softened=1.5)) == pytest.approx(np.hypot(0.8, 1.5), abs=0.12)


def test_a_softened_view_reads_a_window_as_it_reads_the_whole():
    soft, window = view(natural_scene(0.8, side=40), softened=1.7), Window(11, 5, 20, 13)
    whole, _ = soft.read(soft.scene)
    np.testing.assert_allclose(soft.read(window)[0], whole[:, *window.slices], atol=1e-6)


def test_brightness_and_contrast_do_not_matter():
    scene = natural_scene(1.3)
    assert sharpness_of(view(0.2 + 0.3 * scene)) == pytest.approx(sharpness_of(view(scene)), abs=0.01)


def test_noise_is_as_sharp_as_can_be_and_a_slope_as_soft_as_can_be():
    noise = np.random.default_rng(1).random((2, 64, 64), np.float32)
    waves = np.sin(np.linspace(0, 25, 64, dtype=np.float32))
    assert sharpness_of(view(noise)) == 0
    assert sharpness_of(view(0.5 + 0.1 * waves[None, :, None] * waves)) == SOFTEST


@pytest.mark.parametrize("scene", [np.full((2, 64, 64), 0.5, np.float32), natural_scene(1.0)[:, :12]])
def test_a_constant_and_a_small_scene_tell_nothing(scene):
    assert sharpness_of(view(scene)) is None


def test_squares_without_data_are_left_out():
    scene = natural_scene(1.5, side=192)
    scene[:, 60:130] = np.nan
    cube = Cube("scene", CubeMeta(*scene.shape, scene.dtype, nodata=np.nan), scene)
    holed = View(cube, ALREADY_UNIT, (0, 1, 2), cube.meta.window)
    assert sharpness_of(holed) == pytest.approx(1.5, abs=0.25)


def test_a_model_that_expects_no_errors_cannot_be_told_how_sharp_the_truth_is(models):
    with pytest.raises(ModelError, match=r"`finer_psf` 1\.5: .* has not learned how large its errors are"):
        Posterior(load_model(models / "pdenet.safetensors"), 2).for_truths_of(1.5)


def test_an_error_network_for_other_truths_shares_the_weights_and_leaves_the_first_as_it_is():
    first = error_net()
    other = first.for_truths_of(2.0)
    assert float(first.finer_fwhm) == pytest.approx(1.3)
    assert float(other.finer_fwhm) == 2.0
    assert other.last.weight is first.last.weight
