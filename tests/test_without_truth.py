"""Judging an estimate without a truth: each fault moves its own figure, and no other beyond noise."""

import json

import numpy as np
import pytest
import torch

from pdenet_cli.degradation import Degradation, bicubic_up, gaussian_down
from pdenet_cli.evaluation.registration import registered, shifted
from pdenet_cli.scene.georeference import Georeference
from tests.cubes import written
from tests.test_sharpness import natural_scene

SCALE, FWHM = 4, 1.3
PSF = Degradation(SCALE, "gaussian", FWHM)
WAVES = dict(wavelengths=(500.0, 600.0, 700.0), wavelength_units="nm")
HOME = Georeference((500000.0, 7.5, 0.0, 4600000.0, 0.0, -7.5), "EPSG:32633")


@pytest.fixture(scope="module")
def fine():
    """A truth, which is also the best estimate of its own degraded self."""
    return natural_scene(1.2, side=192)


@pytest.fixture
def judged(fine, tmp_path, pdenet):
    """Runs `evaluate ESTIMATE --input SCENE` on an estimate, and returns its figures by name."""
    low = PSF(torch.from_numpy(fine)).numpy()
    low = low + 0.002 * np.random.default_rng(0).standard_normal(low.shape).astype(np.float32)
    scene = written(tmp_path / "scene.hdr", low, **WAVES)

    def run(estimate, *words):
        path = written(tmp_path / "estimate.hdr", np.asarray(estimate, np.float32), **WAVES)
        ran = pdenet("evaluate", path, "--input", scene, "--psf", FWHM, "--json", *words)
        for file in tmp_path.glob("estimate.*"):
            file.unlink()
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        return {name: f["value"] for part in told["findings"] for name, f in part["figures"].items()}, told

    return run


NOISE = {"shift down": 0.03, "shift right": 0.03, "gain": 0.005, "blur": 0.35, "remaining difference": 0.0006}
"""How far each figure of a fault that is not its own may be from that of the faultless estimate."""


def moved(found, best):
    """The figures that moved beyond noise."""
    changed = {name for name, most in NOISE.items() if abs(found[name] - best[name]) > most}
    return changed | ({"detail"} if abs(found["detail"] / best["detail"] - 1) > 0.08 else set())


def texture(shape, size):
    """A checkerboard of single pixels, which pixels four times as large average away."""
    rows, columns = np.indices(shape[1:])
    return size * (-1.0) ** (rows + columns)


def test_a_faultless_estimate_agrees_with_its_input(judged, fine):
    found, told = judged(fine)
    assert abs(found["shift down"]) < 0.02
    assert abs(found["shift right"]) < 0.02
    assert found["gain"] == pytest.approx(1, abs=0.01)
    assert abs(found["blur"]) < 0.4
    assert found["remaining difference"] == pytest.approx(0.002, rel=0.15)  # the noise of the input
    assert found["detail"] > 2 * found["of bicubic"]
    assert all(part["shows"] and part["cannot_show"] for part in told["findings"])


def test_each_fault_moves_its_own_figure_only(judged, fine):
    best, _ = judged(fine)
    down, _ = judged(np.stack([np.nan_to_num(shifted(band, 1.2, 0), nan=0.5) for band in fine.astype(float)]))
    assert moved(down, best) == {"shift down"}
    assert down["shift down"] == pytest.approx(0.3, abs=0.03)
    brighter, _ = judged(1.05 * fine)
    assert moved(brighter, best) == {"gain"}
    assert brighter["gain"] == pytest.approx(1.05, abs=0.005)
    invented, _ = judged(fine + texture(fine.shape, 0.04))
    assert moved(invented, best) == {"detail"}
    coarse = bicubic_up(torch.randn(3, 48, 48, generator=torch.Generator().manual_seed(1)), SCALE).numpy()
    wrong, _ = judged(fine + 0.01 * coarse)
    assert "remaining difference" in moved(wrong, best)
    assert moved(wrong, best) <= {"remaining difference", "blur", "detail"}
    blurred, _ = judged(gaussian_down(torch.from_numpy(fine), 1, 3.0).numpy())
    assert moved(blurred, best) == {"blur", "detail"}  # a blur takes detail with it
    assert blurred["blur"] == pytest.approx(3 / SCALE, abs=0.15)
    assert blurred["detail"] < best["detail"]


def test_a_large_shift_is_found_too(fine):
    image = fine.astype(float)
    found = registered(list(image), [shifted(band, 7.3, -4.6) for band in image])
    assert (found.down, found.right) == pytest.approx((7.3, -4.6), abs=0.02)
    assert found.left < 0.01


def test_the_products_own_sigma_measures_the_difference(fine, tmp_path, pdenet):
    h5py = pytest.importorskip("h5py")
    low = PSF(torch.from_numpy(fine)).numpy()
    noisy = low + 0.004 * np.random.default_rng(0).standard_normal(low.shape).astype(np.float32)
    with h5py.File(tmp_path / "scene.h5", "w") as file:
        file["reflectance"] = noisy
        file["reflectance_uncertainty"] = np.full_like(noisy, 0.004)
    path = written(tmp_path / "estimate.hdr", fine)
    ran = pdenet("evaluate", path, "--input", tmp_path / "scene.h5", "--psf", FWHM, "--json", "--axes", "brc")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["findings"][0]["figures"]
    assert found["within 1-sigma"]["value"] == pytest.approx(68, abs=4)
    assert found["remaining difference in 1-sigma"]["value"] == pytest.approx(0.67, abs=0.05)


def test_a_reference_of_another_sensor_is_laid_on_and_matched(judged, fine, tmp_path):
    seen = 0.8 * np.stack([np.nan_to_num(shifted(band, 0.6, -1.4), nan=0.5) for band in fine.astype(float)]) + 0.05
    waves = dict(wavelengths=(700.0, 505.0), wavelength_units="nm")
    other = written(tmp_path / "other.tif", seen[[2, 0]].astype(np.float32), **waves)
    found, told = judged(fine, "--reference", other)
    assert found["matched bands"] == 2
    assert found["result: shift down"] == pytest.approx(0.6, abs=0.03)
    assert found["result: shift right"] == pytest.approx(-1.4, abs=0.03)
    assert found["result: gain"] == pytest.approx(0.8, abs=0.02)
    assert found["result: shift left over"] < 0.02
    assert found["result: remaining difference"] < 0.5 * found["bicubic: remaining difference"]
    assert told["findings"][2]["bands"]["reference band"] == [0, 1]


def test_a_finer_reference_lies_where_its_georeference_says(judged, fine, tmp_path):
    from pdenet_cli.evaluation.reference import onto_grid
    from pdenet_cli.evaluation.view import View
    from tests.cubes import in_memory

    whole = fine[:1].repeat(2, 1).repeat(2, 2)
    place = Georeference((500000.0 + 30, 3.75, 0.0, 4600000.0 - 15, 0.0, -3.75), "EPSG:32633")
    reference = View.whole(in_memory(whole, georeference=place))
    grid = in_memory(fine[:1], georeference=HOME).meta
    laid = onto_grid(reference, 0, grid)
    assert np.isnan(laid[:2]).all()
    assert np.isnan(laid[:, :4]).all()
    np.testing.assert_allclose(laid[10:-4, 10:-4], fine[0, 8:-6, 6:-8], atol=0.03)


def test_one_scale_down_comes_with_a_model_and_a_page(judged, fine, tmp_path):
    page = tmp_path / "page.html"
    _, told = judged(fine, "--model", "bicubic", "--samples", 1, "--scale", 4, "--html", page)
    assert told["one_scale_down"]["scenes"][0]["rows"] == 48
    text = page.read_text()
    assert "One scale down" in text
    assert text.count("Cannot show") == 3


def test_what_does_not_belong_together_is_refused(make_cube, pdenet):
    scene, _ = make_cube("scene.hdr")
    other, _ = make_cube("other.hdr", rows=18, columns=13)
    ran = pdenet("evaluate", other, "--input", scene)
    assert ran.returncode == 2
    assert "times finer" in ran.stderr
    assert pdenet("evaluate", other, "--reference", scene).returncode == 2
