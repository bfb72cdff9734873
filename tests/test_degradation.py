"""Degradation is MATLAB's bicubic to the last digit, a centred Gaussian, or the mean of a pixel's area."""

import json
from math import pi

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from pdenet_cli.degradation import FREQUENCIES, Degradation, bicubic_down, bicubic_up, smooth_up
from pdenet_cli.errors import UsageError


def imresize_matrix(size: int, new_size: int) -> NDArray[np.float64]:
    """MATLAB's imresize along one axis as a matrix, (new_size, size)."""
    scale = new_size / size
    stretch = max(1.0, 1 / scale)
    matrix = np.zeros((new_size, size))
    for row in range(new_size):
        centre = (row + 1) / scale + 0.5 * (1 - 1 / scale)  # MATLAB counts pixels from 1
        first = int(np.floor(centre - 2 * stretch)) - 1
        taps = np.arange(first, first + int(np.ceil(4 * stretch)) + 4)
        x = np.abs(centre - taps) / stretch
        inner, outer = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        weights = np.where(x <= 1, inner, np.where(x <= 2, outer, 0))
        mirror = np.concatenate([np.arange(size), np.arange(size)[::-1]])  # the edge pixel repeated
        np.add.at(matrix[row], mirror[(taps - 1) % (2 * size)], weights / weights.sum())
    return matrix


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 5), (2, 3), (7, 4), (13, 9), (40, 31)])
def test_bicubic_is_imresize_both_ways(scale: int, rows: int, cols: int) -> None:
    generator = torch.Generator().manual_seed(0)
    high = torch.rand(2, 3, scale * rows, scale * cols, generator=generator, dtype=torch.float64)
    low = torch.rand(2, 3, rows, cols, generator=generator, dtype=torch.float64)
    down_rows, down_cols = imresize_matrix(scale * rows, rows), imresize_matrix(scale * cols, cols)
    up_rows, up_cols = imresize_matrix(rows, scale * rows), imresize_matrix(cols, scale * cols)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        down = bicubic_down(high.to(dtype), scale).double().numpy()
        up = bicubic_up(low.to(dtype), scale).double().numpy()
        np.testing.assert_allclose(down, down_rows @ high.numpy() @ down_cols.T, rtol=0, atol=tolerance)
        np.testing.assert_allclose(up, up_rows @ low.numpy() @ up_cols.T, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 3), (13, 9)])
def test_a_smooth_enlargement_is_a_moving_mean_with_straight_lines_between(
    scale: int, rows: int, cols: int
) -> None:
    low = torch.rand(2, 3, rows, cols, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = smoothing_matrix(rows, scale) @ low.numpy() @ smoothing_matrix(cols, scale).T
    np.testing.assert_allclose(smooth_up(low, scale, 2).numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(expected.mean(), low.mean())


def smoothing_matrix(size: int, scale: int) -> np.ndarray:
    """From `size` pixels to means of five, mirrored at the ends, on straight lines at the finer pixels."""
    weights = np.zeros((size * scale, size))
    for i in range(size * scale):
        place = (i + 0.5) / scale - 0.5
        for pixel in range(-5, size + 5):
            share = max(0, 1 - abs(place - pixel))
            for near in range(pixel - 2, pixel + 3):
                at = near % (2 * size)
                weights[i, min(at, 2 * size - 1 - at)] += share / 5
    return weights


def test_a_cube_that_does_not_divide_is_refused() -> None:
    for degradation in (Degradation(4), Degradation(4, "gaussian", fwhm=1.0)):
        with pytest.raises(UsageError, match="are not a multiple of 4"):
            degradation(torch.rand(3, 10, 8))


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize("fwhm", [0.5, 1.0, 2.0])
def test_the_gaussian_keeps_constants_and_the_centres_of_pixels(scale: int, fwhm: float) -> None:
    degradation = Degradation(scale, "gaussian", fwhm=fwhm)
    flat = torch.full((2, 3 * scale, 5 * scale), 0.7)
    torch.testing.assert_close(degradation(flat), torch.full((2, 3, 5), 0.7))
    pixels = 40
    ramp = torch.arange(float(pixels * scale)).expand(scale, -1)
    centres = scale * torch.arange(pixels) + (scale - 1) / 2
    torch.testing.assert_close(degradation(ramp)[0, 10:30], centres[10:30])


@pytest.mark.parametrize(("scale", "fwhm"), [(4, 1.0), (8, 1.5), (3, 2.0)])
def test_the_gaussian_is_as_wide_as_it_says(scale: int, fwhm: float) -> None:
    rows, cols = 21 * scale, 21 * scale
    seen = torch.zeros(rows, cols, dtype=torch.float64, requires_grad=True)
    low = Degradation(scale, "gaussian", fwhm=fwhm)(seen)
    (psf,) = torch.autograd.grad(low[10, 10], seen)  # the weights of one low-resolution pixel
    assert (psf >= 0).all()
    profile = psf.sum(dim=0)
    position = torch.arange(cols, dtype=torch.float64) - (10 * scale + (scale - 1) / 2)
    sigma = (profile * position**2).sum().sqrt()
    assert (sigma * 2.3548 / scale).item() == pytest.approx(fwhm, rel=0.01)
    torch.testing.assert_close(psf, psf.flip(0, 1))  # pixel 10 of 21 lies in the middle of the scene


@pytest.mark.parametrize("size", [4, 8, 12])
def test_the_gaussian_mirrors_scenes_smaller_than_itself(size: int) -> None:
    scene = torch.rand(1, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mirrored = torch.cat([scene.flip(2), scene, scene.flip(2)], dim=2)
    degradation = Degradation(4, "gaussian", fwhm=1.5)
    inside = degradation(mirrored)[..., size // 4 : size // 2]
    torch.testing.assert_close(degradation(scene), inside, rtol=0, atol=1e-3 if size == 4 else 1e-4)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_an_area_is_the_mean_of_its_pixels(scale: int) -> None:
    high = torch.rand(2, 3, 5 * scale, 4 * scale, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = high.numpy().reshape(2, 3, 5, scale, 4, scale).mean((3, 5))
    np.testing.assert_allclose(Degradation(scale, "area")(high).numpy(), means, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("scale", "fwhm"), [(2, 1.0), (3, 0.6), (4, 0.5), (8, 1.5)])
def test_an_area_behind_a_lens_is_the_mean_of_what_the_lens_shows(scale: int, fwhm: float) -> None:
    scene = np.random.default_rng(0).random((30 * scale, 20 * scale))
    sigma = fwhm * scale / np.sqrt(8 * np.log(2))
    shown = gaussian_filter(scene, sigma, mode="reflect", radius=int(np.ceil(4 * sigma)))
    means = shown.reshape(30, scale, 20, scale).mean((1, 3))
    seen = Degradation(scale, "area", fwhm)(torch.from_numpy(scene)).numpy()
    np.testing.assert_allclose(seen, means, rtol=0, atol=1e-12)


def test_noise_has_the_std_it_says_and_follows_the_seed() -> None:
    high = torch.full((4, 400, 400), 0.5)
    noisy = Degradation(4, noise=0.02)
    low = noisy(high, torch.Generator().manual_seed(1))
    assert torch.equal(low, noisy(high, torch.Generator().manual_seed(1)))
    assert (low - 0.5).std().item() == pytest.approx(0.02, rel=0.03)


@pytest.mark.parametrize(
    "degradation", [Degradation(4), Degradation(8, "gaussian", 1.2, 0.01), Degradation(2, "area")]
)
def test_a_degradation_survives_json(degradation: Degradation) -> None:
    assert Degradation.from_dict(json.loads(json.dumps(degradation.to_dict()))) == degradation


def test_contradictory_degradations_are_refused() -> None:
    for fields in ({"kernel": "gaussian"}, {"fwhm": 1.0}, {"kernel": "box"}, {"noise": -1.0}):
        with pytest.raises(UsageError):
            Degradation.from_dict({"scale": 4, **fields})


def test_changes_keep_the_rest_and_a_width_means_a_gaussian_or_a_lens() -> None:
    soft = Degradation(4, "gaussian", fwhm=1.5, noise=0.01)
    assert soft.changed() == soft.changed("gaussian") == soft
    assert soft.changed("bicubic") == Degradation(4, noise=0.01)
    assert Degradation(4).changed(fwhm=2.0, noise=0.1) == Degradation(4, "gaussian", 2.0, 0.1)
    assert Degradation(4).changed("area") == Degradation(4, "area")
    assert Degradation(4, "area").changed(fwhm=0.5) == Degradation(4, "area", 0.5)
    assert Degradation(4, "area", 0.5).changed("area") == Degradation(4, "area")
    assert Degradation(4, "area", 0.5).changed(noise=0.1) == Degradation(4, "area", 0.5, 0.1)
    for changes in ({"kernel": "gaussian"}, {"kernel": "bicubic", "fwhm": 1.0}, {"kernel": "box"}):
        with pytest.raises(UsageError):
            Degradation(4).changed(**changes)


def test_a_degradation_says_what_it_is() -> None:
    assert str(Degradation(4)) == "x4 bicubic"
    assert str(Degradation(4, "area", noise=0.01)) == "x4 area, noise 0.01"
    assert str(Degradation(8, "area", 0.5)) == "x8 area behind a lens of fwhm 0.5"


@pytest.mark.parametrize(
    "degradation", [Degradation(4), Degradation(4, "gaussian", 1.5), Degradation(3, "area", 0.7)]
)
def test_the_transfer_function_is_the_contrast_that_is_left_of_a_wave(degradation):
    scale, count = degradation.scale, 64
    places = (torch.arange(scale * count, dtype=torch.float64) + 0.5) / scale
    for frequency, share in zip(FREQUENCIES[:3], degradation.transfer().tolist(), strict=False):
        wave = torch.cos(2 * pi * frequency * places)
        low = degradation(wave.expand(1, 8 * scale, -1).contiguous())[0, 4]
        expected = torch.cos(2 * pi * frequency * (torch.arange(count) + 0.5))
        inner = slice(8, -8)
        assert float((low[inner] * expected[inner]).sum() / expected[inner].square().sum()) == pytest.approx(
            share, abs=1e-3
        )
