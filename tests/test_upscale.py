"""`pdenet upscale` and `pdenet uncertainty` as a user meets them: files, exit codes, broken-off runs."""

import dataclasses
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.calibration import Calibration, Errors
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.errors import OutputError
from pdenet_cli.georeference import Georeference
from pdenet_cli.inference import Posterior
from pdenet_cli.models import Model, ModelSpec, load_model, save_model
from pdenet_cli.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.summaries import Question
from pdenet_cli.tools import delivery, sharpen
from pdenet_cli.tools.maps import Maps
from tests.conftest import PEAK, on_linux


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Weights files of small untrained networks: `pdenet` with chance, `calibrated` too, `template` without."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    for name, kind in (("pdenet", PDENet), ("template", TemplateNet)):
        spec = ModelSpec(name, dataclasses.asdict(config), 4, {}, "test")
        model = Model(spec, kind(config))
        save_model(folder / f"{name}.safetensors", model)
        if name == "pdenet":
            told = dataclasses.replace(spec, extra={"calibration": calibration().to_dict()})
            save_model(folder / "calibrated.safetensors", dataclasses.replace(model, spec=told))
    return folder


def calibration(**settings):
    """The calibration that two scenes of random errors, about twice their spread, give."""
    rng = np.random.default_rng(0)
    spread, stratum = np.ones((1, 60, 60), np.float32), rng.integers(0, 2, (1, 60, 60))
    scenes = [Errors.of(2 * rng.normal(size=spread.shape), spread, stratum, spread > 0) for _ in range(2)]
    return Calibration.fit(scenes, samples=4, scenes=[{"name": "a"}, {"name": "b"}], **settings)


@pytest.fixture
def scene(tmp_path):
    """A small georeferenced ENVI scene."""
    meta = CubeMeta(
        5,
        40,
        30,
        np.dtype("<i2"),
        interleave="bil",
        wavelengths=(450, 550, 650, 750, 850),
        wavelength_units="Nanometers",
        nodata=-999.0,
        reflectance_scale=10000.0,
        georeference=Georeference((500000.0, 30.0, 0.0, 4649000.0, 0.0, -30.0), "EPSG:32616"),
    )
    rng = np.random.default_rng(0)
    with create_cube(tmp_path / "scene.hdr", meta) as cube:
        pixels = rng.integers(100, 9000, meta.shape(), dtype="i2")
        pixels[:, :6, :6] = -999
        cube.write(meta.window, pixels)
    return tmp_path / "scene.hdr"


def test_a_band_set_to_zero_stays_zero_and_is_told_of(pdenet, scene, models, tmp_path):
    with open_cube(scene) as cube:
        cube.write(cube.meta.window, np.zeros((1, 40, 30), "i2"), slice(2, 3))
    out = tmp_path / "fine.tif"
    ran = pdenet("upscale", scene, "-o", out, "--model", models / "pdenet.safetensors", "--with-uncertainty")
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "fine.report.json").read_text())["scene"]
    assert (told["constant_bands"], told["unusable_bands"]) == (1, 0)
    for path in (out, tmp_path / "fine_std.tif"):
        with open_cube(path) as fine:
            assert not fine.read(bands=slice(2, 3)).any()
            assert fine.read(bands=slice(3, 4)).any()
    assert "1 of 5 hold one number throughout" in pdenet("info", scene).stdout


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


def test_the_finer_cube_keeps_format_numbers_and_ground(pdenet, scene, models, tmp_path):
    out = tmp_path / "fine.hdr"
    ran = pdenet("upscale", scene, "-o", out, "--model", models / "pdenet.safetensors", "--quicklook")
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
    report = json.loads((tmp_path / "fine.report.json").read_text())
    assert report["job"]["samples"] == 8
    assert set(report["job"]["inputs"]) == {"scene.hdr", "scene.img"}
    assert len(report["job"]["model"]["sha256"]) == 64
    assert (tmp_path / "fine.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))


def test_nothing_that_exists_is_replaced_unasked(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "--samples", 1, "--quicklook")
    for name in ("fine.img", "fine.png", "fine.report.json"):
        (tmp_path / name).write_text("mine")
        ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
        assert ran.returncode == 5
        assert f"{name} exists" in ran.stderr
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_uncertainty_maps_lie_on_the_same_ground(pdenet, scene, models, tmp_path):
    maps = tmp_path / "maps"
    words = ("--model", models / "pdenet.safetensors", "--samples", 4, "--no-page")
    ran = pdenet("uncertainty", scene, "-o", maps, *words)
    assert ran.returncode == 0, ran.stderr
    for name, bands in (("std", 5), ("share", 5), ("std_merged", 1), ("share_merged", 1)):
        with open_cube(maps / f"scene_{name}.hdr") as cube:
            assert cube.meta.shape() == (bands, 160, 120)
            assert cube.meta.dtype == np.float32
            assert cube.meta.georeference.transform[1] == 7.5
            values = cube.read()
        assert np.isnan(values[:, :24, :24]).all()
        assert (values[:, 30:, 30:] >= 0).all()
        assert values[:, 30:, 30:].max() > 0
    assert not (maps / "scene.hdr").exists()


def test_one_pass_writes_what_two_commands_write(pdenet, scene, models, tmp_path):
    model = ("--model", models / "pdenet.safetensors", "--samples", 3)
    assert pdenet("upscale", scene, "-o", tmp_path / "a.hdr", "--with-uncertainty", *model).returncode == 0
    assert pdenet("uncertainty", scene, "-o", tmp_path / "b", "--map", "std", *model).returncode == 0
    assert (tmp_path / "a_std.img").read_bytes() == (tmp_path / "b" / "scene_std.img").read_bytes()
    assert not (tmp_path / "b" / "scene_share.img").exists()


def test_the_report_tells_what_was_asked_and_what_the_maps_show(pdenet, scene, models, tmp_path):
    wishes = [
        word for name in ("std", "cv", "angle", "consistency", "interval", "risk") for word in ("--map", name)
    ]
    words = ("--model", models / "calibrated.safetensors", "--samples", 3, "--level", 0.8, "--tolerance", 250)
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--no-page", *words, *wishes)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "m" / "scene.report.json").read_text())
    asked = report["job"]["uncertainty"]
    assert (asked["level"], asked["tolerance"]) == (0.8, 250)
    assert asked["calibration"]["scenes"] == 2
    assert "4 samples (masks)" in report["notes"][-1]  # what it was calibrated with
    assert report["notes"][-1] in " ".join(ran.stderr.split())
    maps = {name: open_cube(tmp_path / "m" / f"scene_{name}.hdr") for name in report["outputs"]}
    shown = {name: cube.read() for name, cube in maps.items() if name.endswith("_merged")}
    shown["interval_merged"] = shown["interval_high_merged"] - shown["interval_low_merged"]
    for name, told in report["maps"].items():
        values = shown[f"{name}_merged"]
        values = values[np.isfinite(values)]
        np.testing.assert_allclose(told["mean"], values.mean(dtype=np.float64), rtol=1e-5)
        np.testing.assert_allclose(told["median"], np.median(values), rtol=1e-5)
        for above in told["above"]:
            np.testing.assert_allclose(above["share"], (values > above["level"]).mean())
    assert set(report["maps"]) == {"std", "cv", "angle", "consistency", "interval", "risk"}
    assert maps["interval_low"].meta.reflectance_scale == 10000
    assert "0.8" in maps["interval_low"].meta.extra["description"]
    assert "angle" not in report["outputs"]  # a band alone has none


def test_intervals_hold_the_mean_and_are_the_calibrations(pdenet, scene, models, tmp_path):
    words = ("--model", models / "calibrated.safetensors", "--samples", 4)
    assert pdenet("upscale", scene, "-o", tmp_path / "f.hdr", "--with-uncertainty", *words).returncode == 0
    names = ("", "_std", "_interval_low", "_interval_high")
    middle, std, low, high = (open_cube(tmp_path / f"f{name}.hdr").read()[:, 30:, 30:] for name in names)
    assert (low <= middle + 0.5).all()  # the mean is rounded to whole numbers
    assert (high >= middle - 0.5).all()
    assert low.min() == 0  # as low as the scene's own numbers go
    assert (high - low > 2 * std)[low > 0].all()


@pytest.mark.parametrize(
    ("model", "options", "code", "says"),
    [
        ("pdenet", ["--map", "interval"], 4, "pdenet calibrate"),
        ("pdenet", ["--tolerance", "100"], 4, "pdenet calibrate"),
        ("calibrated", ["--map", "risk"], 2, "--tolerance"),
        ("calibrated", ["--map", "interval", "--level", "1.5"], 2, "--level"),
        ("calibrated", ["--map", "std", "--level", "0.8"], 2, "--map interval"),
        ("calibrated", ["--tolerance", "inf"], 2, "--tolerance"),
        ("pdenet", ["--level", "0.8"], 2, "--level"),
        ("pdenet", ["--map", "elephant"], 2, "consistency"),
        ("pdenet", ["--samples", "1"], 2, "--samples"),
        ("pdenet", ["--levels", "1"], 2, "--levels"),
        ("pdenet", ["--ensemble", "spin"], 2, "masks or flips"),
        ("template", [], 4, "--ensemble flips"),
    ],
)
def test_a_map_that_cannot_be_made_is_refused_in_a_line(
    pdenet, scene, models, tmp_path, model, options, code, says
):
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--model", models / f"{model}.safetensors", *options)
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list((tmp_path / "m").glob("*"))


def test_maps_are_asked_at_the_level_that_the_model_is_calibrated_for(models):
    model = load_model(models / "calibrated.safetensors")
    few = calibration(level=0.2, certify=True)  # two scenes prove no more than 31.6 %
    low = dataclasses.replace(model, spec=dataclasses.replace(model.spec, extra={"calibration": few.to_dict()}))
    for made, level in ((model, 0.9), (low, 0.2)):
        facts = Maps(None, Question(), Posterior(made, 2)).facts()
        assert facts["level"] == level
        assert f"The {100 * level:g}% interval" in facts["calibration"]["guarantee"]
    other = Maps(None, Question(level=0.3), Posterior(model, 2)).facts()
    assert "The 30% interval" in other["calibration"]["guarantee"]


def test_a_tolerance_adds_the_risk_to_any_maps(models):
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)
    assert Maps(("std",), Question(tolerance=5), posterior).names == ("std", "risk")
    assert Maps(("risk", "std"), Question(tolerance=5), posterior).names == ("risk", "std")


def test_flips_and_consistency_need_no_randomness(pdenet, scene, models, tmp_path):
    model = ("--model", models / "template.safetensors")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "f", *model, "--ensemble", "flips")
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "f" / "scene.report.json").read_text())
    assert (report["job"]["samples"], report["job"]["ensemble"]) == (8, "flips")
    assert report["maps"]["std"]["median"] > 0
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "c", *model, "--map", "consistency")
    assert ran.returncode == 0, ran.stderr
    assert open_cube(tmp_path / "c" / "scene_consistency.hdr").read()[:, 30:, 30:].max() > 0


def test_a_model_without_randomness_is_refused_for_uncertainty(pdenet, scene, models, tmp_path):
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--model", models / "template.safetensors")
    assert ran.returncode == 4
    assert "template" in ran.stderr
    assert "no randomness" in ran.stderr
    out = tmp_path / "t.hdr"
    assert pdenet("upscale", scene, "-o", out, "--model", models / "template.safetensors").returncode == 0


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


def test_a_dry_run_tells_and_writes_nothing(pdenet, scene, models, tmp_path):
    before = sorted(tmp_path.iterdir())
    ran = pdenet("upscale", scene, "-o", tmp_path / "x.hdr", "--model", models / "pdenet.safetensors", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    for words in ("on disk", "memory", "tiles", "time"):
        assert words in ran.stdout
    assert sorted(tmp_path.iterdir()) == before


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
        (["--scale", "8"], 4, "x4 model"),
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
        (["--samples", "0"], 2, "samples"),
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


def start(*arguments, **options):
    command = [sys.executable, "-m", "pdenet_cli", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        **options,
    )


def wait_for_tile(folder, count=1, seconds=60):
    """Until a run in `folder` has noted so many tiles."""
    for _ in range(seconds * 100):
        journals = list(folder.glob(".*.journal"))
        if journals and journals[0].read_text().count("tile ") >= count:
            return
        time.sleep(0.01)
    raise TimeoutError


def test_a_new_run_clears_away_what_a_broken_off_one_left_of_other_maps(pdenet, scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8, maps=("std", "share"))
    run = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(run), next(run)
    run.close()
    (tmp_path / ".fine_other.img.partial").touch()  # somebody else's
    assert len(list(tmp_path.glob(".fine_s*.partial"))) >= 4
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings()).run())
    assert [path.name for path in tmp_path.glob(".*")] == [".fine_other.img.partial"]


def test_the_partial_file_of_another_run_is_left_alone(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8, maps=("std",))
    run = sharpen.Job(scene, tmp_path / "fine.tif", posterior, settings).run()
    next(run), next(run)
    run.close()
    other = sharpen.Job(scene, tmp_path / "fine_std.tif", posterior, sharpen.Settings(tile=8)).run()
    next(other), next(other)
    list(sharpen.Job(scene, tmp_path / "fine.tif", posterior, sharpen.Settings()).run())
    list(other)
    assert (tmp_path / "fine_std.tif").exists()


@pytest.mark.parametrize("told", ["[]", "5", '{"parts": null}', '{"parts": [1, "../x.partial"]}', "{"])
def test_a_strange_journal_is_no_more_than_no_journal(scene, models, tmp_path, told):
    (tmp_path / ".fine.hdr.journal").write_text(told + "\n")
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings()).run())
    assert (tmp_path / "fine.hdr").exists()


def test_what_a_format_cannot_hold_is_refused_before_a_broken_off_run_is_touched(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = sharpen.Job(scene, tmp_path / "fine.bip", posterior, sharpen.Settings(tile=8)).run()
    next(run), next(run)
    run.close()
    (tmp_path / "fine.img").touch()
    parts = sorted(tmp_path.glob(".fine*"))
    with pytest.raises(OutputError, match=r"fine\.img would be read as a part of fine\.hdr"):
        sharpen.Job(scene, tmp_path / "fine.bip", posterior, sharpen.Settings(tile=8, resume=True))
    assert sorted(tmp_path.glob(".fine*")) == parts


def test_a_killed_run_resumes_to_the_same_bytes(pdenet, scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2, "--with-uncertainty")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert pdenet("upscale", scene, "-o", tmp_path / "a" / "fine.hdr", *tiles).returncode == 0
    chance = random.Random(4)
    for moment in (1, 5, 12):
        run = start("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume")
        wait_for_tile(tmp_path / "b", moment)
        time.sleep(chance.random() / 20)
        run.kill()
        run.communicate()
    assert pdenet("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume").returncode == 0
    for file in (tmp_path / "a").glob("*.img"):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    again = pdenet("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume")
    assert again.returncode == 0  # finished already: nothing to do


def test_a_page_that_cannot_be_written_is_written_by_resume(scene, models, tmp_path, monkeypatch):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(cube=False, maps=("std",), page=True)
    job = sharpen.Job(scene, tmp_path / "m.hdr", posterior, settings)
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "write_page", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(OutputError, match="No space left"):
            list(job.run())
    again = sharpen.Job(scene, tmp_path / "m.hdr", posterior, dataclasses.replace(settings, resume=True))
    list(again.run())
    assert all(Path(path).exists() for path in again.report.outputs.values())
    assert {"page", "picture", "mean", "std", "std_merged"} == set(again.report.outputs)
    assert not list(tmp_path.glob(".m*"))


def test_pictures_asked_for_later_are_made_by_resume(pdenet, scene, models, tmp_path):
    words = (
        "upscale",
        scene,
        "-o",
        tmp_path / "fine.hdr",
        "--model",
        models / "pdenet.safetensors",
        "--samples",
        2,
    )
    assert pdenet(*words).returncode == 0
    cube = (tmp_path / "fine.img").stat().st_mtime_ns
    assert pdenet(*words, "--resume", "--quicklook").returncode == 0
    assert (tmp_path / "fine.png").exists()
    assert (tmp_path / "fine.img").stat().st_mtime_ns == cube  # only the picture is new


@pytest.fixture
def bicubic(pdenet, scene):
    """Runs `upscale SCENE -o OUTPUT` without a network; the return code, and the line that was said."""

    def run(output, *words, of=scene):
        ran = pdenet("upscale", of, "-o", output, "--model", "bicubic", *words)
        return ran.returncode, " ".join(ran.stderr.split())

    return run


def test_resume_takes_only_what_is_there_for_finished(bicubic, tmp_path):
    assert bicubic(tmp_path / "fine.hdr")[0] == 0
    code, said = bicubic(tmp_path / "fine.tif", "--resume")  # of the same report
    assert code == 5
    assert "fine.report.json exists" in said
    (tmp_path / "fine.img").unlink()
    assert bicubic(tmp_path / "fine.hdr", "--resume", "--overwrite")[0] == 0
    assert (tmp_path / "fine.img").exists()


def test_a_scene_never_replaces_itself(bicubic, scene):
    before = scene.with_suffix(".img").read_bytes()
    code, said = bicubic(scene, "--overwrite")
    assert code == 5
    assert "is the scene itself" in said
    assert scene.with_suffix(".img").read_bytes() == before


def test_a_store_is_replaced_and_a_folder_of_its_name_is_not(bicubic, tmp_path):
    pytest.importorskip("zarr")
    store = tmp_path / "fine.zarr"
    assert bicubic(store)[0] == 0
    assert bicubic(store)[0] == 5
    assert bicubic(store, "--overwrite")[0] == 0
    with open_cube(store) as cube:
        assert cube.meta.rows == 160
    folder = tmp_path / "other.zarr"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert bicubic(folder, "--overwrite")[0] == 0
    assert {path.name for path in folder.iterdir()} >= {"notes.txt", "scene_x4.hdr"}


def test_two_runs_do_not_write_the_same_output(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8)
    first = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(first)
    with pytest.raises(OutputError, match="another run"):
        list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run())
    list(first)
    assert (tmp_path / "fine.hdr").exists()
    assert not list(tmp_path.glob(".fine*"))


def broken_off(scene, models, tmp_path):
    """A run that stopped in its middle, and a function that goes on with it; what was said is returned."""
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings(tile=8)).run()
    for _ in range(4):
        next(run)
    run.close()

    def go_on(**changes):
        said = []
        settings = sharpen.Settings(resume=True, **{"tile": 8} | changes)
        job = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings)
        first = next(steps := job.run(said.append))
        list(steps)
        return first, said

    return go_on


def test_a_resumed_run_goes_on_or_says_why_it_starts_again(scene, models, tmp_path):
    assert broken_off(scene, models, tmp_path)() == ((3, 20), [])
    whole = (tmp_path / "fine.img").read_bytes()
    for name in ("fine.hdr", "fine.img", "fine.report.json"):
        (tmp_path / name).unlink()
    first, said = broken_off(scene, models, tmp_path)(tile=20)
    assert first == (0, 4)
    assert "other tiles" in said[0]
    np.testing.assert_allclose(np.fromfile(tmp_path / "fine.img", "<i2"), np.frombuffer(whole, "<i2"), atol=1)


def test_lost_pixels_of_a_broken_off_run_are_made_again(scene, models, tmp_path):
    go_on = broken_off(scene, models, tmp_path)
    (tmp_path / ".fine.img.partial").unlink()
    assert go_on()[0] == (0, 20)


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


def test_several_scenes_want_a_folder(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "-o", tmp_path / "one.tif")
    ran = pdenet("upscale", scene, scene, *words)
    assert ran.returncode == 2
    assert "give a folder" in ran.stderr
    assert not (tmp_path / "one.tif").exists()


@pytest.mark.parametrize("gains", [(0.0001,) * 3, (0.0001, 0.0002, 0.0003)])
def test_a_merged_map_keeps_the_scale_that_all_bands_share(models, gains):
    extra = {"solar irradiance": "{1, 2, 3}"}
    fine = CubeMeta(3, 8, 8, np.dtype("<i2"), gains=gains, offsets=(0.0,) * 3, wavelengths=(1, 2, 3), extra=extra)
    maps = Maps(("std",), Question(), Posterior(load_model(models / "pdenet.safetensors"), 2))
    merged = dict(maps.metas(fine))["std_merged"]
    assert merged.gains == ((0.0001,) if len(set(gains)) == 1 else None)
    assert (merged.bands, merged.offsets, merged.wavelengths) == (1, None, None)
    assert merged.extra["solar irradiance"] == "{1}"


def test_scenes_of_one_name_and_several_formats_are_not_mixed_up(pdenet, scene, models, tmp_path):
    (tmp_path / "scene.tif").touch()
    words = ("--model", models / "pdenet.safetensors", "--overwrite")
    ran = pdenet("uncertainty", scene, tmp_path / "scene.tif", "-o", tmp_path / "m", *words)
    assert ran.returncode == 2
    assert "Several scenes are called scene" in ran.stderr


def test_ctrl_c_leaves_a_state_to_resume_and_exits_130(pdenet, scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2)
    run = start("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles)
    wait_for_tile(tmp_path)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in said
    assert "--resume" in said
    assert not (tmp_path / "fine.hdr").exists()
    other = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles, "--resume", "--seed", 5)
    assert other.returncode == 5
    assert "another seed" in other.stderr
    assert pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles, "--resume").returncode == 0
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_ends_in_one_line_and_leaves_nothing(scene, models, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    limit = "ulimit -f 100; exec "  # blocks of 512 or 1024 bytes: less than the output
    words = [sys.executable, "-m", "pdenet_cli", "upscale", scene, "-o", out / "fine.hdr"]
    words += ["--model", models / "pdenet.safetensors", "--samples", "1"]
    ran = subprocess.run(["bash", "-c", limit + " ".join(map(str, words))], capture_output=True, text=True)
    assert ran.returncode == 5, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(out.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(pdenet, scene, models, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    ran = pdenet("upscale", scene, "-o", tmp_path / "shut" / "x.hdr", "--model", models / "pdenet.safetensors")
    assert ran.returncode == 5


def test_an_input_that_vanishes_is_named(scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2)
    run = start("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles)
    wait_for_tile(tmp_path)
    scene.with_suffix(".img").unlink()
    _, said = run.communicate(timeout=60)
    assert run.returncode == 3
    assert "scene" in said
    assert not (tmp_path / "fine.hdr").exists()


@on_linux
def test_a_scene_stays_within_the_memory_it_is_given(models, tmp_path):
    meta = CubeMeta(40, 200, 200, np.dtype("<u2"))
    rng = np.random.default_rng(0)
    with create_cube(tmp_path / "big.hdr", meta) as cube:
        cube.write(meta.window, rng.integers(100, 9000, meta.shape(), dtype="u2"))
    script = PEAK + (
        "from pdenet_cli.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "print(peak() // 1024)\n"
    )
    used = {}
    for memory in ("100MB", "4GB"):
        words = ["upscale", tmp_path / "big.hdr", "-o", tmp_path / f"{memory}.hdr", "--memory", memory]
        words += ["--model", models / "pdenet.safetensors", "--samples", 1]
        ran = subprocess.run(
            [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=True
        )
        used[memory] = int(ran.stdout.split()[-1])
    # Python, torch and their libraries take about 400 MB before any pixel is read.
    assert used["100MB"] < 700
    assert used["4GB"] > used["100MB"] + 300
