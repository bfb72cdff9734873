"""`pdenet upscale` as a user meets it: files, exit codes, what is refused."""

import json
import os

import numpy as np
import pytest
import torch
from skimage.io import imread
from typer.testing import CliRunner

from pdenet_cli import open_cube
from pdenet_cli.cli import app
from pdenet_cli.cli.sharpening import PosteriorOptions
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.scene.picture import NODATA_GREY
from tests.conftest import on_linux
from tests.cubes import picture, rewritten, written


def test_a_band_set_to_zero_stays_zero_and_is_told_of(pdenet, scene, models, tmp_path):
    with open_cube(scene) as cube:
        pixels = cube.read()
    pixels[2] = 0
    rewritten(scene, pixels)
    out = tmp_path / "fine.tif"
    words = ("--model", models / "pdenet.safetensors", "--with-uncertainty", "--per-band")
    ran = pdenet("upscale", scene, "-o", out, *words)
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "fine.tif.report.json").read_text())["scene"]
    assert (told["constant_bands"], told["unusable_bands"]) == (1, 0)
    for path in (out, tmp_path / "fine_std.tif"):
        with open_cube(path) as fine:
            assert not fine.read(bands=slice(2, 3)).any()
            assert fine.read(bands=slice(3, 4)).any()
    assert "1 of 5 have the same value everywhere" in pdenet("info", scene).stdout


def test_holes_that_nobody_declared_are_holes_where_the_user_says_so(pdenet, tmp_path):
    pixels = picture(3, 20, 20).astype("f4")
    pixels[:, :4] = -9999
    scene, out = written(tmp_path / "a.hdr", pixels), tmp_path / "fine.tif"
    words = ("upscale", scene, "-o", out, "--model", "bicubic", "--scale", 2)
    assert "--nodata -9999" in " ".join(pdenet(*words).stderr.split())
    ran = pdenet(*words, "--nodata", -9999, "--overwrite")
    assert (ran.returncode, ran.stderr) == (0, "")
    with open_cube(out) as fine:
        assert fine.meta.nodata == -9999
        assert (fine.read()[:, :8] == -9999).all()
        assert fine.read()[:, 8:].min() >= 0
    clean = pdenet("evaluate", out, out, "--nodata", -9999, "--json")
    assert clean.returncode == 0, clean.stderr


@pytest.mark.parametrize("scale", [3, 8])
def test_bicubic_is_a_model_of_any_scale(pdenet, make_cube, tmp_path, scale):
    path, pixels = make_cube()
    out = tmp_path / "fine.tif"
    ran = pdenet(
        "upscale", path, "-o", out, "--model", "bicubic", "--scale", scale, "--dtype", "float32", "--tile", 5
    )
    assert ran.returncode == 0, ran.stderr
    expected = bicubic_up(torch.from_numpy(pixels.astype("f8"))[None], scale)[0].numpy().clip(0)
    with open_cube(out) as fine:
        np.testing.assert_allclose(fine.read(), expected, atol=1e-3)


def test_the_finer_cube_keeps_format_numbers_and_ground(pdenet_process, scene, models, tmp_path):
    out = tmp_path / "fine.hdr"
    ran = pdenet_process("upscale", scene, "-o", out, "--model", models / "pdenet.safetensors", "--quicklook")
    assert ran.returncode == 0, ran.stderr
    with open_cube(scene) as coarse, open_cube(out) as fine:
        assert fine.meta.shape() == (5, 160, 120)
        assert fine.meta.dtype == np.dtype("<i2")
        assert fine.meta.interleave == "bil"
        assert fine.meta.wavelengths == coarse.meta.wavelengths
        assert fine.meta.georeference.transform == (500000.0, 7.5, 0.0, 4649000.0, 0.0, -7.5)
        pixels = fine.read()
        assert (pixels[:, :24, :24] == -999).all()
        assert (pixels[:, 24:, 24:] >= 0).all()
    report = json.loads((tmp_path / "fine.hdr.report.json").read_text())
    assert report["job"]["samples"] == 8
    assert set(report["job"]["inputs"]) == {"scene.hdr", "scene.img"}
    assert len(report["job"]["model"]["sha256"]) == 64
    assert (tmp_path / "fine.png").read_bytes().startswith(b"\x89PNG")
    assert "fine.png" in ran.stdout
    assert not list(tmp_path.glob(".*"))


def test_one_quick_look_shows_result_and_map_with_holes_as_holes(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "--samples", 2, "--with-uncertainty", "--quicklook")
    ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in tmp_path.glob("*.png")] == ["fine.png"]
    look = imread(tmp_path / "fine.png")[..., :3]
    assert (look == NODATA_GREY).all(-1).sum() > 1000  # the scene's empty corner, not black and not dark blue


def test_tiles_bands_and_types_are_the_users_choice(pdenet, scene, models, tmp_path):
    model = ("--model", models / "pdenet.safetensors", "--samples", 2)
    assert pdenet("upscale", scene, "-o", tmp_path / "whole.hdr", *model, "--dtype", "float32").returncode == 0
    cut = ("--tile", 11, "--dtype", "float32", "--memory", "50MB")
    assert pdenet("upscale", scene, "-o", tmp_path / "cut.hdr", *model, *cut).returncode == 0
    whole, cut = (open_cube(tmp_path / f"{name}.hdr").read() for name in ("whole", "cut"))
    assert whole.dtype == np.float32
    np.testing.assert_allclose(cut, whole, atol=0.1)  # of 10000: 1e-5
    some = pdenet("upscale", scene, "-o", tmp_path / "some.tif", *model, "--bands", "1:3")
    assert some.returncode == 0, some.stderr
    assert open_cube(tmp_path / "some.tif").meta.wavelengths == (550, 650)


def test_as_many_cores_are_used_as_are_asked_for():
    usual = torch.get_num_threads()
    try:
        for asked, used in ((None, usual), (usual + 2, usual + 2), (None, usual + 2)):
            PosteriorOptions(4, "bicubic", 1, 0, None, "cpu", asked).posterior()
            assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(usual)


def test_one_bad_scene_of_several_does_not_stop_the_others(pdenet, scene, models, tmp_path):
    (tmp_path / "bad.tif").write_text("no picture")
    out = tmp_path / "out"
    ran = pdenet("upscale", tmp_path / "bad.tif", scene, "-o", out, "--model", models / "pdenet.safetensors")
    assert ran.returncode == 7
    assert "bad.tif" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert open_cube(out / "scene_x4.hdr").meta.rows == 160


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--scale", "8"], 2, "x4 model"),
        (["--threads", "0"], 2, "--threads 0"),
        (["--memory", "lots"], 2, "--memory"),
        (["--memory", "."], 2, "--memory"),
        (["--memory", "9" * 400], 2, "--memory"),
        (["--memory", "0.1"], 2, "--memory"),
        (["--memory", "10kB"], 6, "--memory"),
        (["--bands", "9:12"], 2, "Bands"),
        (["--bands", "2:12"], 2, "has only 5"),
        (["--bands", "all"], 2, "--bands"),
        (["--dtype", "elephant"], 2, "--dtype"),
        (["--device", "warp"], 6, "warp"),
        (["--model", "nowhere"], 4, "nowhere"),
        (["-o", "x.xyz"], 5, "suffix"),
        (["-o", "none/x.hdr"], 5, "not a folder"),
        (["-o", "none/x"], 5, "none is not a folder. Create it first."),
        (["--samples", "0"], 2, "samples"),
        (["--samples", "100000000"], 2, "samples"),
        (["--seed", "99999999999999999999"], 2, "--seed"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(pdenet, scene, models, tmp_path, options, code, says):
    defaults = {"-o": str(tmp_path / "x.hdr"), "--model": str(models / "pdenet.safetensors")}
    given = dict(zip(options[::2], options[1::2], strict=True))
    arguments = [word for pair in (defaults | given).items() for word in pair]
    ran = pdenet("upscale", scene, *arguments, cwd=tmp_path)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "x.hdr").exists()


def test_a_scene_of_bad_bands_is_one_line(bicubic, scene, tmp_path):
    header = scene.read_text() + "bbl = {0, 0, 0, 0, 0}\n"
    scene.write_text(header)
    code, said = bicubic(tmp_path / "fine.hdr")
    assert code == 3
    assert "every band is marked bad" in said


def test_a_type_too_narrow_is_refused_and_a_dry_run_leaves_nothing(bicubic, tmp_path):
    code, said = bicubic(tmp_path / "fine.hdr", "--dtype", "uint8")
    assert code == 2
    assert "holds 0 to 255" in said
    assert bicubic(tmp_path / "new", "--dry-run")[0] == 0
    assert bicubic(tmp_path / "new", "--bands", "2:99")[0] == 2
    assert not (tmp_path / "new").exists()


@on_linux
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_stops_no_other(pdenet, make_cube, tmp_path):
    make_cube("a.tif")
    secret, _ = make_cube("b.tif")
    secret.chmod(0)
    many = ("--model", "bicubic", "--scale", 2, "-o", tmp_path / "fine")
    assert pdenet("upscale", secret, *many).returncode == 3
    assert pdenet("upscale", tmp_path / "a.tif", secret, *many).returncode == 7
    assert (tmp_path / "fine" / "a_x2.tif").exists()


@pytest.mark.parametrize("command", ["info", "upscale", "uncertainty", "evaluate", "calibrate", "train"])
def test_whether_a_file_can_be_read_is_seen_when_it_is_opened(command, make_cube, monkeypatch):
    # Not by the parser: then it would be a matter of usage, and stop a whole batch.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.R_OK)
    ran = CliRunner().invoke(app, [command, str(make_cube()[0])])
    assert "cannot be read" not in ran.output
