"""Arrays in memory: what a notebook gets is what the command writes."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

import pdenet_cli
from pdenet_cli import Job, Posterior, Question, Settings, load_model, open_cube, sharpen
from pdenet_cli.errors import FormatError, ModelError, UsageError
from pdenet_cli.models.model import Model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.models.spec import ModelSpec
from tests.cubes import picture, written


@pytest.fixture(scope="module")
def posterior():
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=3, mask_start=0.6)
    spec = ModelSpec("pdenet", dataclasses.asdict(config), 4, {}, "test")
    return Posterior(Model(spec, PDENet(config)), 3)


@pytest.fixture
def pixels():
    """Four bands of 16-bit numbers with a hole, one of them the same number throughout."""
    pixels = np.random.default_rng(0).integers(100, 4000, (4, 18, 15)).astype("<u2")
    pixels[:, 3:6, 2:5] = 65535
    pixels[2, pixels[2] != 65535] = 7
    return pixels


def test_an_array_gives_what_a_file_gives(posterior, pixels, tmp_path):
    maps = ("std", "share", "cv", "angle", "consistency")
    scene = written(tmp_path / "scene.hdr", pixels, nodata=65535.0)
    for _ in Job(
        scene, tmp_path / "fine.hdr", posterior, Settings(maps=maps, per_band=True, dtype="float32")
    ).run():
        pass
    made = sharpen(pixels, posterior, maps=maps, nodata=65535)
    names = {path.stem.removeprefix("fine_") for path in tmp_path.glob("fine_*.hdr")}
    assert set(made) == {"mean", *names}
    for name, array in made.items():
        with open_cube(tmp_path / ("fine.hdr" if name == "mean" else f"fine_{name}.hdr")) as cube:
            expected = cube.read()
        assert array.dtype == np.float32
        assert array.ndim == (2 if name.endswith("_merged") else 3)
        there = expected != 65535
        np.testing.assert_array_equal(array.reshape(expected.shape)[there], expected[there], err_msg=name)
        assert np.isnan(array.reshape(expected.shape)[~there]).all()
    assert (made["mean"][2][np.isfinite(made["mean"][2])] == 7).all()


def test_small_memory_and_the_order_of_axes_in_memory_do_not_matter(posterior, pixels):
    seen = []
    whole = sharpen(pixels, posterior, nodata=65535)
    least = 9 << 20
    tiled = sharpen(
        np.asfortranarray(pixels), posterior, nodata=65535, memory=least, watch=lambda *n: seen.append(n)
    )
    np.testing.assert_allclose(whole["mean"], tiled["mean"], rtol=1e-4)
    assert seen[-1][0] == seen[-1][1]
    assert list(whole) == ["mean"]


def test_a_shipped_model_gives_intervals(pixels):
    posterior = Posterior(load_model("general-x2"), 2)
    made = sharpen(pixels[:2], posterior, maps=("interval",), question=Question(level=0.5), nodata=65535)
    there = np.isfinite(made["mean"])
    assert there.mean() > 0.9
    bright = there & (made["mean"] > 0)  # no number is below 0, where none of the scene's is
    assert (made["interval_low"][bright] < made["mean"][bright]).all()
    assert (made["interval_high"][bright] > made["mean"][bright]).all()
    risky = sharpen(pixels[:2], posterior, question=Question(tolerance=100.0), nodata=65535)
    assert set(risky) == {"mean", "risk", "risk_merged"}
    with pytest.raises(UsageError, match="Add `maps` interval"):
        sharpen(pixels[:2], posterior, question=Question(level=0.8))


@pytest.mark.parametrize(
    ("array", "asked", "error", "says"),
    [
        (np.zeros((4, 4)), {}, UsageError, r"shape \(4, 4\).*bands, rows, columns"),
        (np.zeros((0, 4, 4)), {}, UsageError, "shape"),
        (np.zeros((2, 4, 4), complex), {}, UsageError, "complex128"),
        (np.full((2, 4, 4), np.nan), {}, FormatError, "no valid value"),
        (np.ma.masked_equal(np.ones((2, 4, 4)), 0), {}, UsageError, "Masked arrays are not supported"),
        (np.ones((2, 4, 4)), {"maps": ("mood",)}, UsageError, "no such map"),
        (np.ones((2, 4, 4)), {"maps": ("interval",)}, ModelError, "not calibrated"),
    ],
)
def test_what_cannot_be_sharpened_is_said_in_a_line(posterior, array, asked, error, says):
    with pytest.raises(error, match=says) as met:
        sharpen(array, posterior, **asked)
    assert "\n" not in str(met.value)


def test_who_gives_a_model_is_told_to_draw_from_it(posterior, pixels):
    for other in (posterior.model, "general-x4"):
        with pytest.raises(UsageError, match=r"Pass Posterior\(model, N\)"):
            sharpen(pixels, other)
        with pytest.raises(UsageError, match=r"Pass Posterior\(model, N\)"):
            Job("scene.hdr", "fine.hdr", other, Settings())
    with pytest.raises(UsageError, match=r"Pass load_model\(NAME\)"):
        Posterior("general-x4", 2)


def test_a_job_takes_names_as_text(posterior, pixels, tmp_path):
    scene = written(tmp_path / "scene.hdr", pixels)
    list(Job(str(scene), str(tmp_path / "fine.hdr"), posterior, Settings()).run())
    assert (tmp_path / "fine.hdr").exists()


def test_every_public_name_is_there_and_torch_waits_until_it_is_needed():
    assert all(hasattr(pdenet_cli, name) for name in pdenet_cli.__all__)
    assert set(pdenet_cli.__all__) <= set(dir(pdenet_cli))
    with pytest.raises(AttributeError, match="no attribute"):
        pdenet_cli.no_such_name  # noqa: B018
    asked = "import sys, pdenet_cli; assert 'torch' not in sys.modules; from pdenet_cli import *"
    subprocess.run([sys.executable, "-c", asked], check=True)


@pytest.mark.parametrize("axes", ["rcb", "cbr"])
def test_axes_in_another_order_give_the_same_in_that_order(posterior, pixels, axes):
    order = ["brc".index(axis) for axis in axes]
    plain = sharpen(pixels, posterior, maps=("std",), nodata=65535)
    turned = sharpen(pixels.transpose(order), posterior, axes=axes, maps=("std",), nodata=65535)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(turned[name], plain[name].transpose(order))
    merged = plain["std_merged"]
    np.testing.assert_array_equal(turned["std_merged"], merged if axes == "rcb" else merged.T)
    with pytest.raises(UsageError, match="`axes` rrb"):
        sharpen(pixels, posterior, axes="rrb")


def test_bands_that_do_not_come_first_are_refused_unless_axes_say_so(posterior):
    pixels = picture(40, 24, 28)
    assert sharpen(pixels, posterior)["mean"].shape == (40, 96, 112)
    with pytest.raises(UsageError, match=r"last axis looks spectral.*axes='rcb' for \(rows, columns, bands\)"):
        sharpen(pixels.transpose(1, 2, 0), posterior)
    with pytest.raises(UsageError, match=r"middle axis looks spectral.*axes='rbc'"):
        sharpen(pixels.transpose(1, 0, 2), posterior)
    with pytest.raises(UsageError, match="last axis"):
        sharpen(pixels[:3].transpose(1, 2, 0), posterior)
    made = sharpen(pixels.transpose(1, 2, 0)[:10], posterior, axes="brc")  # as the user insists
    assert made["mean"].shape == (10, 112, 160)


def test_objects_say_what_they_are_in_a_notebook(posterior, pixels, tmp_path):
    made = sharpen(pixels, posterior, maps=("share",), nodata=65535)
    assert "share_merged: 72 x 60, samples whose grey level" in repr(made)
    with open_cube(written(tmp_path / "a<b.hdr", pixels, nodata=65535.0)) as cube:
        assert "4 bands, 18 x 15 pixels, uint16, 65535" in repr(cube)
        shown = [cube, posterior, posterior.model, made]
        for html in (thing._repr_html_() for thing in shown):
            assert html.count("<tr>") == html.count("</tr>") > 2
            assert "a<b" not in html
