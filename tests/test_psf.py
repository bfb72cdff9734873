"""The point spread of a scene by its straight edges: known widths, refusals, the command and its picture."""

import json

import numpy as np
import pytest
import torch

from pdenet_cli.degradation import Degradation, gaussian_down
from pdenet_cli.point_spread.edges import FWHM, fitted, steepest
from pdenet_cli.point_spread.measure import measure
from pdenet_cli.point_spread.widths import equivalent_fwhm
from pdenet_cli.scene.reading import Reading
from tests.cubes import in_memory, written

WAVES = dict(wavelengths=(500.0, 600.0, 700.0, 1500.0, 1600.0), wavelength_units="nm")
SCALE = 4


def fields(side=512, count=24, seed=1):
    """Slanted rectangles of different brightness: (rows, columns)."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    image = np.full((side, side), 0.3)
    for _ in range(count):
        row, column = rng.uniform(0, side, 2)
        turn = rng.uniform(0.05, 0.4) * rng.choice((-1, 1))
        along = (rows - row) * np.cos(turn) + (columns - column) * np.sin(turn)
        across = (columns - column) * np.cos(turn) - (rows - row) * np.sin(turn)
        inside = (np.abs(along) < rng.uniform(30, 90)) & (np.abs(across) < rng.uniform(30, 90))
        image[inside] = rng.uniform(0.1, 0.9)
    return image


def scene(blur, noise=0.003, bands=5):
    """Fields seen through a point spread by pixels four times as large, in bands of different contrast."""
    low = blur(torch.from_numpy(fields())[None])[0].numpy()
    contrast = np.linspace(0.6, 1.2, bands)[:, None, None]
    grain = noise * np.random.default_rng(0).standard_normal((bands, *low.shape))
    return (0.5 + contrast * (low - 0.5) + grain).astype(np.float32)


def measured(pixels, **meta):
    cube = in_memory(pixels, **meta)
    return measure(cube, Reading.of(cube, None))


@pytest.mark.parametrize("fwhm", [0.9, 1.4, 2.0])
def test_a_known_width_is_found_and_lies_in_the_interval(fwhm):
    found = measured(scene(Degradation(SCALE, "gaussian", fwhm)), **WAVES)
    assert set(found.spread.sure) == {"along", "across"}
    for width in found.spread.sure.values():
        assert width.fwhm == pytest.approx(fwhm, rel=0.04)
        assert width.low <= width.fwhm <= width.high
    assert set(found.groups) == {"VNIR", "SWIR"}


def test_the_two_directions_are_told_apart():
    found = measured(scene(Degradation(SCALE, "gaussian", 1.2, across=1.9)), **WAVES)
    assert found.spread.along.fwhm == pytest.approx(1.2, rel=0.05)
    assert found.spread.across.fwhm == pytest.approx(1.9, rel=0.05)
    along, across = map(float, found.psf.split("x"))
    assert (along, across) == pytest.approx((1.2, 1.9), rel=0.05)


def test_groups_of_bands_have_their_own_width():
    sharp, soft = scene(Degradation(SCALE, "gaussian", 1.0)), scene(Degradation(SCALE, "gaussian", 1.8))
    found = measured(np.concatenate([sharp[:3], soft[3:]]), **WAVES)
    assert found.groups["VNIR"].across.fwhm == pytest.approx(1.0, rel=0.06)
    assert found.groups["SWIR"].across.fwhm == pytest.approx(1.8, rel=0.06)
    thirds = measured(np.concatenate([sharp[:3], soft[3:]]))
    assert list(thirds.groups) == ["bands 0-1", "bands 2-3", "bands 4-4"]


def test_square_pixels_count_as_the_gaussian_with_the_nearest_edge():
    square = Degradation(SCALE, "area")
    assert equivalent_fwhm(square) == pytest.approx(0.75, abs=0.02)
    assert equivalent_fwhm(Degradation(SCALE, "gaussian", 1.3)) == pytest.approx(1.3, abs=0.02)
    assert measured(scene(square), **WAVES).spread.across.fwhm == pytest.approx(0.75, rel=0.1)


def test_every_edge_of_a_blurred_step_has_its_width_and_noise_has_none():
    rows, columns = np.mgrid[:40, :40]
    step = (columns - 18.3 - 0.2 * rows > 0).astype(float)
    blurred = gaussian_down(torch.from_numpy(step.repeat(8, 0).repeat(8, 1))[None], 8, 1.5)[0].numpy()
    edges = fitted(blurred, *steepest(blurred, 100))
    # a staircase of whole pixels is a little softer than the line it follows
    assert np.median(FWHM * edges.sigma) == pytest.approx(1.6, abs=0.12)
    noise = np.random.default_rng(0).random((3, 80, 80)).astype(np.float32)
    found = measured(noise)
    assert not found.spread.sure


def test_holes_are_no_edges():
    pixels = scene(Degradation(SCALE, "gaussian", 1.4))
    pixels[:, 20:60, 20:60] = -9999
    found = measured(pixels, nodata=-9999.0, **WAVES)
    assert found.spread.across.fwhm == pytest.approx(1.4, rel=0.06)
    inside = [(e.rows > 18) & (e.rows < 61) & (e.columns > 18) & (e.columns < 61) for e in found.edges.values()]
    assert not any(mask.any() for mask in inside)


def test_the_command_prints_json_and_draws_a_picture(tmp_path, pdenet):
    cube = written(tmp_path / "scene.hdr", scene(Degradation(SCALE, "gaussian", 1.4)), **WAVES)
    ran = pdenet("psf", cube, "--picture", tmp_path / "edges.png", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert all(float(part) == pytest.approx(1.4, rel=0.05) for part in told["psf"].split("x"))
    assert told["bands"]["all bands"]["along"]["sure"]
    assert (tmp_path / "edges.png").read_bytes().startswith(b"\x89PNG")
    assert "--psf" in pdenet("psf", cube).stdout
    assert pdenet("psf", cube, "--picture", tmp_path / "edges.png").returncode == 5


def test_a_scene_without_edges_is_refused_in_one_line(make_cube, tmp_path, pdenet):
    cube, _ = make_cube(rows=40, columns=40)
    ran = pdenet("psf", cube, "--picture", tmp_path / "none.png")
    assert ran.returncode == 2
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "too few straight edges" in ran.stderr
    assert (tmp_path / "none.png").exists()
    small, _ = make_cube("small.hdr")
    assert pdenet("psf", small).returncode == 2


def test_auto_needs_a_model_for_any_point_spread(make_cube, tmp_path, pdenet, models):
    cube, _ = make_cube()
    ran = pdenet(
        "upscale", cube, "-o", tmp_path / "fine.hdr", "--psf", "auto", "--model", models / "pdenet.safetensors"
    )
    assert ran.returncode == 4
    assert "psf=any" in ran.stderr
