"""`pdenet upscale` and `pdenet uncertainty` as a user meets them: files, exit codes, what is refused."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from skimage.io import imread
from typer.testing import CliRunner

from pdenet_cli import CubeMeta, open_cube
from pdenet_cli.cli import app, sharpening
from pdenet_cli.cli.sharpening import PosteriorOptions
from pdenet_cli.degradation import bicubic_up
from pdenet_cli.errors import UsageError
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene.picture import NODATA_GREY
from pdenet_cli.scene.reading import Reading
from pdenet_cli.tools.job import Job, Settings
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.naming import output_paths
from pdenet_cli.uncertainty.summaries import Question
from tests.conftest import PEAK, calibration, on_linux
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


def test_uncertainty_maps_lie_on_the_same_ground(pdenet, scene, models, tmp_path):
    maps = tmp_path / "maps"
    words = ("--model", models / "pdenet.safetensors", "--samples", 4, "--no-page", "--per-band")
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


def test_one_quick_look_shows_result_and_map_with_holes_as_holes(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "--samples", 2, "--with-uncertainty", "--quicklook")
    ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in tmp_path.glob("*.png")] == ["fine.png"]
    look = imread(tmp_path / "fine.png")[..., :3]
    assert (look == NODATA_GREY).all(-1).sum() > 1000  # the scene's empty corner, not black and not dark blue


def test_one_pass_writes_what_two_commands_write(pdenet, scene, models, tmp_path):
    model = ("--model", models / "pdenet.safetensors", "--samples", 3, "--per-band")
    assert pdenet("upscale", scene, "-o", tmp_path / "a.hdr", "--with-uncertainty", *model).returncode == 0
    assert pdenet("uncertainty", scene, "-o", tmp_path / "b", "--map", "std", *model).returncode == 0
    assert (tmp_path / "a_std.img").read_bytes() == (tmp_path / "b" / "scene_std.img").read_bytes()
    assert not (tmp_path / "b" / "scene_share.img").exists()


def test_the_report_tells_what_was_asked_and_what_the_maps_show(pdenet, scene, models, tmp_path):
    wishes = [
        word for name in ("std", "cv", "angle", "consistency", "interval", "risk") for word in ("--map", name)
    ]
    words = ("--model", models / "calibrated.safetensors", "--samples", 3, "--level", 0.8, "--tolerance", 0.025)
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--no-page", "--per-band", *words, *wishes)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "m" / "scene.hdr.report.json").read_text())
    asked = report["job"]["uncertainty"]
    assert (asked["level"], asked["tolerance"]) == (0.8, 0.025)
    unit = "as the header scales values (250 in the file's numbers)"
    assert asked["tolerance_unit"] == unit
    assert f"`tolerance` 0.025 is taken {unit}." in report["notes"]
    assert report["maps"]["risk"]["says"] == f"probability of an error beyond 0.025 {unit}"
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
    levels = {name: [above["level"] for above in told["above"]] for name, told in report["maps"].items()}
    assert levels["std"] == levels["interval"] == [10, 20, 50, 100, 200, 500, 1000, 2000]  # of 10000
    assert levels["risk"] == [1, 2, 5, 10, 20, 50]
    assert maps["interval_low"].meta.reflectance_scale == 10000
    assert "0.8" in maps["interval_low"].meta.extra["description"]
    for name in ("risk", "risk_merged"):
        assert f"0.025 {unit}" in maps[name].meta.extra["description"]
    assert "angle" not in report["outputs"]  # a band alone has none


@pytest.mark.parametrize(
    ("number", "zero", "dtype", "said", "tolerance"),
    [
        (1e-4, 0, "i2", {"gains": (1e-4,) * 5}, 0.02),
        (1e-4, 0, "i2", {"reflectance_scale": 10000.0}, 0.02),
        (1e-4, 0.1, "i2", {"gains": (1e-4,) * 5, "offsets": (-0.1,) * 5}, 0.02),
        (1e-4, 0, "i2", {}, 200),
        (1, 0, "f4", {"reflectance_scale": 10000.0}, 0.02),  # which the values contradict
    ],
)
def test_a_tolerance_is_in_values_as_the_header_scales_them(
    models, tmp_path, number, zero, dtype, said, tolerance
):
    values = np.random.default_rng(0).integers(300, 9000, (5, 12, 12)) / 10000
    numbers = (values + zero) / number
    plain = written(tmp_path / "plain.hdr", values.astype("f4"))
    scaled = written(
        tmp_path / "scaled.hdr", (np.rint(numbers) if dtype == "i2" else numbers).astype(dtype), **said
    )
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)
    risks = []
    for scene, asked, ends in ((plain, 0.02, None), (scaled, tolerance, None if said else (0, 10000))):
        settings = Settings(False, ("risk",), Question(tolerance=asked), ends, per_band=True)
        list(Job(scene, tmp_path / f"out_{scene.name}", posterior, settings).run())
        risks.append(open_cube(tmp_path / f"out_{scene.stem}_risk.hdr").read())
    np.testing.assert_allclose(*risks, rtol=1e-3)
    assert 1 < risks[0].mean() < 99


@pytest.mark.parametrize(
    ("said", "asked", "doubted"),
    [
        (dict(gains=(1e-4,) * 5), 0.02, True),
        (dict(gains=(1e-4,) * 5), 0.002, False),
        ({}, 200, True),
        ({}, 20, False),
    ],
)
def test_a_tolerance_beyond_all_differences_of_a_scene_gets_a_note(models, tmp_path, said, asked, doubted):
    pixels = np.random.default_rng(0).integers(300, 420, (5, 12, 12)).astype("<i2")
    pixels[0, 0, :2] = 300, 420
    scene = written(tmp_path / "even.hdr", pixels, **said)
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)
    job = Job(
        scene,
        tmp_path / "out.hdr",
        posterior,
        Settings(False, ("risk",), Question(tolerance=asked), per_band=True),
    )
    list(job.run())
    differ = "0.012" if said else "120"
    met = f"`tolerance` {asked:g} is larger than any difference of this scene's values ({differ})"
    assert (f"{met}: is it in the right unit?" in job.report.notes) == doubted
    assert np.isfinite(open_cube(tmp_path / "out_risk.hdr").read()).all()


def test_intervals_hold_the_mean_and_are_the_calibrations(pdenet, scene, models, tmp_path):
    words = ("--model", models / "calibrated.safetensors", "--samples", 4, "--per-band")
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
        ("calibrated", ["--tolerance", "nan"], 2, "--tolerance"),
        ("calibrated", ["--tolerance", "-1"], 2, "--tolerance"),
        ("pdenet", ["--level", "0.8"], 2, "--level"),
        ("pdenet", ["--map", "elephant"], 2, "consistency"),
        ("pdenet", ["--samples", "1"], 2, "--samples"),
        ("pdenet", ["--levels", "1"], 2, "--levels"),
        ("pdenet", ["--ensemble", "spin"], 2, "masks or flips"),
        ("pdenet", ["--threads", "0"], 2, "--threads 0"),
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
        maps = Maps(None, Question(), Posterior(made, 2))
        facts = maps.facts(maps.question)
        assert facts["level"] == level
        assert f"The {100 * level:g}% interval" in facts["calibration"]["guarantee"]
    lower = Maps(None, Question(level=0.3), Posterior(model, 2))
    assert "The 30% interval" in lower.facts(lower.question)["calibration"]["guarantee"]


def test_values_beyond_the_type_of_the_output_are_counted_and_told_of(pdenet, tmp_path):
    pixels = np.full((2, 12, 12), 32000, "<i2")
    pixels[:, 4:8, 4:8] = 3000  # bicubic overshoots beside it
    scene = written(tmp_path / "hot.tif", pixels)
    words = ("upscale", scene, "--model", "bicubic", "-o")
    ran = pdenet(*words, tmp_path / "fine.tif", "--json")
    exact = bicubic_up(torch.from_numpy(pixels.astype("f4")), 4).numpy()
    count = int((np.rint(exact) > 32767).sum())
    assert count > 9
    note = f"{count} values were beyond what int16 holds and clipped; pdenet upscale --dtype float32 keeps them."
    assert note in " ".join(ran.stderr.split())
    assert json.loads(ran.stdout)["notes"] == [note]
    assert "clipped" not in pdenet(*words, tmp_path / "wide.tif", "--dtype", "float32").stderr
    run = Job(scene, tmp_path / "part.tif", Posterior(bicubic_model(4), 1), Settings(tile=6)).run()
    next(run), next(run)
    run.close()
    told = pdenet(*words, tmp_path / "part.tif", "--tile", 6, "--resume")
    assert "At least " in told.stderr, told.stderr
    assert (tmp_path / "part.tif").read_bytes() == (tmp_path / "fine.tif").read_bytes()


def test_a_tolerance_adds_the_risk_to_any_maps(models):
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)
    assert Maps(("std",), Question(tolerance=5), posterior).names == ("std", "risk")
    assert Maps(("risk", "std"), Question(tolerance=5), posterior).names == ("risk", "std")


def test_flips_and_consistency_need_no_randomness(pdenet, scene, models, tmp_path):
    model = ("--model", models / "template.safetensors")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "f", *model, "--ensemble", "flips")
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "f" / "scene.hdr.report.json").read_text())
    assert (report["job"]["samples"], report["job"]["ensemble"]) == (8, "flips")
    assert report["maps"]["std"]["median"] > 0
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "c", *model, "--map", "consistency", "--per-band")
    assert ran.returncode == 0, ran.stderr
    assert open_cube(tmp_path / "c" / "scene_consistency.hdr").read()[:, 30:, 30:].max() > 0


def test_a_model_without_randomness_is_refused_for_uncertainty(pdenet, scene, models, tmp_path):
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--model", models / "template.safetensors")
    assert ran.returncode == 4
    assert "template" in ran.stderr
    assert "is deterministic" in ran.stderr
    out = tmp_path / "t.hdr"
    assert pdenet("upscale", scene, "-o", out, "--model", models / "template.safetensors").returncode == 0


@pytest.mark.parametrize("ensemble", ["masks", "flips"])
def test_bicubic_has_no_uncertainty_and_no_way_to_some(pdenet, scene, tmp_path, ensemble):
    """It sees the same in a turned scene: maps of nearly zero would be a lie."""
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m", "--model", "bicubic", "--ensemble", ensemble)
    assert ran.returncode == 4
    assert "is deterministic" in ran.stderr
    assert "flips" not in ran.stderr


def test_that_there_are_no_intervals_is_said_where_nobody_asked_for_other_maps(pdenet, scene, models, tmp_path):
    words = ("--samples", 2, "--model", models / "pdenet.safetensors")
    note = "pdenet is not calibrated, so there are no intervals; see pdenet calibrate."
    for name, more in {"usual": (), "asked": ("--map", "std")}.items():
        ran = pdenet("uncertainty", scene, "-o", tmp_path / name, *words, *more)
        report = json.loads((tmp_path / name / "scene.hdr.report.json").read_text())
        assert ((note in ran.stderr), (note in report["notes"])) == (name == "usual",) * 2
    ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
    assert "calibrated" not in ran.stderr


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


def test_a_dry_run_tells_and_writes_nothing(pdenet, scene, models, tmp_path):
    before = sorted(tmp_path.iterdir())
    ran = pdenet("upscale", scene, "-o", tmp_path / "x.hdr", "--model", models / "pdenet.safetensors", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    for words in ("on disk", "memory", "tiles", "time"):
        assert words in ran.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_forecast_is_of_all_files_and_all_samples(scene, models, tmp_path, monkeypatch):
    monkeypatch.setattr(Posterior, "seconds_per_voxel", lambda self, low: 0.5)
    model = load_model(models / "pdenet.safetensors")
    jobs = (
        Job(scene, tmp_path / "fine.hdr", Posterior(model, samples), Settings(maps=("std",), tile=20))
        for samples in (2, 6)
    )
    few, many = (job.forecast() for job in jobs)
    assert (few.tiles, few.tile) == (4, 20)
    assert few.seconds >= 0.5 * 5 * 40 * 30 * 2  # and more, for tiles have margins
    assert many.seconds == 3 * few.seconds
    assert set(few.outputs) == {"mean", "std", "std_merged"}
    assert few.bytes_on_disk == 160 * 120 * (5 * 2 + 5 * 4 + 4)


def test_a_scene_is_read_and_cut_as_the_user_says(tmp_path):
    pixels = picture(3, 12, 10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mine"], file["other"] = pixels.transpose(1, 2, 0), pixels[:, :5]
    options = dict(variable="mine", axes="rcb", value_range=(0, 500), halo=5, tile=6)
    job = Job(tmp_path / "a.h5", tmp_path / "b.tif", Posterior(bicubic_model(2), 1), Settings(**options))
    list(job.run())
    told = json.loads((tmp_path / "b.tif.report.json").read_text())["job"]
    assert (told["radiometry"]["reason"], told["halo"]) == ("range given: 0 to 500", 5)
    with open_cube(tmp_path / "b.tif") as fine:
        assert fine.meta.shape() == (3, 24, 20)
        np.testing.assert_allclose(
            fine.read(), bicubic_up(torch.from_numpy(pixels * 1.0)[None], 2)[0].clip(0), atol=1
        )


def test_both_files_of_a_scene_are_one_also_by_names_without_a_folder(pdenet, scene, models, tmp_path):
    asked = (
        scene.name,
        scene.with_suffix(".img").name,
        "-o",
        "out",
        "--model",
        models / "pdenet.safetensors",
        "--samples",
        1,
    )
    ran = pdenet("upscale", *asked, cwd=scene.parent)
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("*.hdr")) == ["scene_x4.hdr"]


def test_bad_bands_that_come_out_as_zeros_are_told_of(tmp_path):
    pixels = picture(3, 12, 10)
    job = dict(good_bands=(True, False, True))
    for nodata, told in ((None, True), (0.0, False)):
        path = written(tmp_path / f"{nodata}.hdr", pixels, nodata=nodata, **job)
        said = []
        work = Job(path, tmp_path / f"fine{nodata}.hdr", Posterior(bicubic_model(2), 1), Settings())
        list(work.run(said.append))
        assert any("1 bad band is written as 0" in text for text in said) == told
        assert (open_cube(tmp_path / f"fine{nodata}.hdr").read()[1] == 0).all()


def test_a_log_hears_how_far_a_run_is_and_of_which_scene_notes_are(scene, models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sharpening, "LOG_EVERY", 0.0)
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 1)
    job = Job(scene, tmp_path / "fine.hdr", posterior, Settings(tile=20))
    monkeypatch.setattr(job, "_notes", lambda: ("odd numbers",))
    sharpening._run_job(job, scene, "scene.hdr: ")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scene.hdr: odd numbers"
    assert lines[-1] == "scene.hdr: 4 of 4 tiles"


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


def test_several_scenes_want_a_folder(pdenet, make_cube, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "-o", tmp_path / "one.tif")
    ran = pdenet("upscale", make_cube("a.hdr")[0], make_cube("b.hdr")[0], *words)
    assert ran.returncode == 2
    assert "use a folder" in ran.stderr
    assert not (tmp_path / "one.tif").exists()


def test_the_name_of_a_file_is_one_in_any_case(tmp_path):
    with pytest.raises(UsageError, match="use a folder"):
        output_paths([tmp_path / "a.hdr", tmp_path / "b.hdr"], tmp_path / "ONE.TIF", 4, folder=False)
    assert list(tmp_path.iterdir()) == []
    store = tmp_path / "ONE.ZARR"
    store.mkdir()
    (store / "zarr.json").write_text("{}")
    assert output_paths([tmp_path / "a.hdr"], store, 4, folder=False) == [store]


def test_results_have_the_name_of_the_folder_however_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "outer" / "inner")
    for given, name in ((".", "inner"), ("..", "outer"), ("../inner", "inner")):
        assert output_paths([Path(given)], tmp_path, 4, folder=False) == [tmp_path / f"{name}_x4.tif"]
        assert output_paths([Path(given)], tmp_path, 4, folder=True) == [tmp_path / f"{name}.tif"]
    with pytest.raises(UsageError, match="called inner"):
        output_paths([Path(), Path("../inner")], tmp_path, 4, folder=False)


@pytest.mark.parametrize(
    ("made", "called", "suffix"),
    [
        ("a.nc", "a.nc4", ".nc"),
        ("a.nc", "a.nc", ".nc"),
        ("a.h5", "a.hdf", ".h5"),
        ("a.h5", "a.he5", ".he5"),
        ("a.mat", "a.mat", ".mat"),
        ("a.tif", "a.gtiff", ".tif"),
        ("a.tif", "a.TIFF", ".tiff"),
        ("a.tif", "a.mat", ".tif"),
        ("a.zarr", "plain", ".zarr"),
        ("a.hdr", "a.img", ".hdr"),
        ("a.hdr", "a.hdr", ".hdr"),
    ],
)
def test_where_no_format_is_named_it_is_the_scenes_own(tmp_path, made, called, suffix):
    path = written(tmp_path / made, np.ones((2, 3, 4), "<u2"))
    if made != "a.hdr":
        path.rename(tmp_path / called)
    paths = output_paths([tmp_path / called], tmp_path / "out", 4, folder=False)
    assert paths == [tmp_path / "out" / f"{called.partition('.')[0]}_x4{suffix}"]


def test_a_scene_that_is_no_cube_has_a_name_for_its_result_too(tmp_path):
    (tmp_path / "bad.tif").write_text("bad")
    for called, suffix in (("bad.tif", ".tif"), ("gone.nc", ".nc"), ("gone.xyz", ".hdr")):
        (path,) = output_paths([tmp_path / called], tmp_path / "out", 4, folder=False)
        assert path.suffix == suffix


@pytest.mark.parametrize("gains", [(0.0001,) * 3, (0.0001, 0.0002, 0.0003)])
def test_a_merged_map_keeps_the_scale_that_all_bands_share(models, gains):
    extra = {"solar irradiance": "{1, 2, 3}"}
    fine = CubeMeta(3, 8, 8, np.dtype("<i2"), gains=gains, offsets=(0.0,) * 3, wavelengths=(1, 2, 3), extra=extra)
    maps = Maps(("std",), Question(), Posterior(load_model(models / "pdenet.safetensors"), 2))
    merged = dict(maps.metas(fine, maps.question))["std_merged"]
    assert merged.gains == ((0.0001,) if len(set(gains)) == 1 else None)
    assert (merged.bands, merged.offsets, merged.wavelengths) == (1, None, None)
    assert merged.extra["solar irradiance"] == "{1}"
    intervals = Maps(("interval",), Question(), Posterior(load_model(models / "calibrated.safetensors"), 2))
    low = dict(intervals.metas(fine, intervals.question))
    alone = low["interval_low_merged"]  # an offset without its gain means nothing
    assert (alone.gains, alone.offsets) == (((0.0001,), (0.0,)) if len(set(gains)) == 1 else (None, None))


@pytest.mark.parametrize("alike", [False, True])
def test_bands_of_different_gains_are_merged_as_the_header_scales_them(models, tmp_path, alike):
    values = np.random.default_rng(0).integers(300, 900, (3, 12, 12)) / 1000
    gains = np.full(3, 1e-3) if alike else np.array([1e-3, 5e-4, 1e-4])
    offsets = np.zeros(3) if alike else np.array([0.0, -0.1, 0.1])
    gain, offset = gains[:, None, None], offsets[:, None, None]
    said = dict(gains=tuple(gains), offsets=tuple(offsets))
    scene = written(tmp_path / "packed.hdr", np.rint((values - offset) / gain).astype("<i2"), **said)
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 4)
    settings = Settings(True, ("std", "share", "interval"), tile=7, per_band=True)
    job = Job(scene, tmp_path / "out.hdr", posterior, settings)
    list(job.run())
    fewer = Job(scene, tmp_path / "few.hdr", posterior, dataclasses.replace(settings, per_band=False))
    list(fewer.run())
    assert fewer.report.maps == job.report.maps
    assert set(job.report.outputs) - set(fewer.report.outputs) == {"std", "share"}
    assert (tmp_path / "few_std_merged.img").read_bytes() == (tmp_path / "out_std_merged.img").read_bytes()
    cubes = {name: open_cube(path) for name, path in job.report.outputs.items()}
    made = {name: cube.read().astype(np.float64) for name, cube in cubes.items()}
    unit = (1e-3, 0.0) if alike else (1, 0)  # of merged maps
    spread = np.sqrt(((made["std"] * gain) ** 2).mean(0))
    np.testing.assert_allclose(made["std_merged"][0] * unit[0], spread, rtol=1e-5)
    for name in ("interval_low", "interval_high"):
        ends = (made[name] * gain + offset).mean(0)
        np.testing.assert_allclose(made[f"{name}_merged"][0] * unit[0], ends, rtol=1e-5)
    told, note = "values as the header scales them", "The bands differ in gain or offset"
    assert any(note in text for text in job.report.notes) == (not alike)
    for name in ("std", "interval"):
        assert job.report.maps[name]["unit"] == ("the file's units" if alike else told)
    levels = [above["level"] for above in job.report.maps["std"]["above"]]
    assert levels[0] == (1 if alike else 0.001)
    assert job.report.maps["share"]["unit"] == "percent"
    assert cubes["std_merged"].meta.gains == ((1e-3,) if alike else None)
    assert (told in cubes["std_merged"].meta.extra["description"]) == (not alike)
    assert told not in cubes["share_merged"].meta.extra["description"]


def test_a_map_says_what_its_numbers_are(models):
    scaled = dict(gains=(0.1, 0.1), offsets=(5.0, 5.0), reflectance_scale=100.0, nodata=-1.0)
    shown = dict(wavelengths=(500, 600), wavelength_units="nm", default_bands=(1, 0, 0))
    maps = Maps(
        ("std", "share", "interval"), Question(), Posterior(load_model(models / "calibrated.safetensors"), 2)
    )
    metas = dict(maps.metas(CubeMeta(2, 8, 8, np.dtype("<i2"), **scaled, **shown), maps.question))
    told = {name: (meta.gains, meta.offsets, meta.reflectance_scale) for name, meta in metas.items()}
    assert told["interval_low"] == ((0.1, 0.1), (5.0, 5.0), 100)
    assert told["interval_high_merged"] == ((0.1,), (5.0,), 100)
    assert told["std"] == ((0.1, 0.1), None, 100)  # a spread has no offset
    assert told["share"] == (None, None, None)
    assert all(np.isnan(meta.nodata) and meta.dtype == np.float32 for meta in metas.values())
    assert (metas["std"].wavelengths, metas["std"].default_bands) == ((500, 600), (1, 0, 0))
    assert (metas["std_merged"].wavelength_units, metas["std_merged"].default_bands) == (None, None)


def test_only_maps_that_are_calibrated_speak_of_the_calibration(models):
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)  # not the 4 of its calibration
    plain, interval = (Maps(names, Question(), posterior) for names in (("std",), ("interval",)))
    asked = CubeMeta(2, 8, 8, np.dtype("f4")), Reading.of_unit(2), interval.question
    assert not list(plain.notes(*asked))
    assert plain.facts(plain.question)["calibration"] is None
    assert "4 samples" in next(interval.notes(*asked))
    assert interval.facts(interval.question)["calibration"]["samples"] == 4


def test_whole_numbers_need_no_nan(tmp_path):
    scene = written(tmp_path / "a.hdr", picture(2, 12, 12).astype("<f4"), nodata=float("nan"))
    list(Job(scene, tmp_path / "b.tif", Posterior(bicubic_model(2), 1), Settings(dtype="int16")).run())
    with open_cube(tmp_path / "b.tif") as fine:
        assert (fine.meta.dtype, fine.meta.nodata) == (np.int16, None)


def test_what_is_written_rests_on_all_of_the_scene(tmp_path, monkeypatch):
    monkeypatch.setattr("pdenet_cli.scene.survey.QUICK_VALUES", 500)
    monkeypatch.setattr("pdenet_cli.scene.survey.BLOCK_VALUES", 2 * 50)
    pixels = picture(2, 50, 50).astype("<f4") + 1
    pixels[0, 0, 0] = -70
    scene, posterior = written(tmp_path / "a.hdr", pixels), Posterior(bicubic_model(2), 1)
    shares = [
        Job(scene, tmp_path / "b.tif", posterior, Settings(forecast=forecast)).scene.reading.survey.looked_at < 1
        for forecast in (True, False)
    ]
    assert shares == [True, False]


def test_scenes_of_one_name_and_several_formats_are_not_mixed_up(pdenet, scene, models, tmp_path):
    (tmp_path / "scene.tif").touch()
    words = ("--model", models / "pdenet.safetensors", "--overwrite")
    ran = pdenet("uncertainty", scene, tmp_path / "scene.tif", "-o", tmp_path / "m", *words)
    assert ran.returncode == 2
    assert "Several scenes are called scene" in ran.stderr


@on_linux
def test_a_scene_stays_within_the_memory_it_is_given(models, tmp_path):
    pixels = np.random.default_rng(0).integers(100, 9000, (40, 200, 200), dtype="<u2")
    big = written(tmp_path / "big.hdr", pixels)
    script = PEAK + (
        "from pdenet_cli.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "print(peak() // 1024)\n"
    )
    used = {}
    for memory in ("100MB", "4GB"):
        words = ["upscale", big, "-o", tmp_path / f"{memory}.hdr", "--memory", memory]
        words += ["--model", models / "pdenet.safetensors", "--samples", 1]
        ran = subprocess.run(
            [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=True
        )
        used[memory] = int(ran.stdout.split()[-1])
    # Python, torch and their libraries take about 400 MB before any pixel is read.
    assert used["100MB"] < 700
    assert used["4GB"] > used["100MB"] + 300


def test_fewer_samples_than_asked_for_are_told_of(pdenet, make_cube, models, tmp_path):
    scene, _ = make_cube()
    model = ("--model", models / "template.safetensors")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "maps", *model, "--ensemble", "flips", "--samples", 16)
    assert ran.returncode == 0, ran.stderr
    assert "8 samples instead of 16" in " ".join(ran.stderr.split())
    assert json.loads((tmp_path / "maps" / "scene.hdr.report.json").read_text())["job"]["samples"] == 8


def test_both_files_of_a_scene_are_one_scene(pdenet, make_cube, tmp_path):
    make_cube("b.hdr")
    make_cube("c.tif")
    every = sorted(tmp_path.glob("*.*"))  # as a shell makes it of *
    assert [path.name for path in every] == ["b.hdr", "b.img", "c.tif"]
    every_suffix = {path.suffix for path in every}
    ran = pdenet("upscale", *every, "-o", tmp_path / "fine", "--model", "bicubic", "--scale", 2)
    assert ran.returncode == 0, ran.stderr
    named = {path.name for path in (tmp_path / "fine").iterdir() if path.suffix in every_suffix}
    assert named == {"b_x2.hdr", "b_x2.img", "c_x2.tif"}


def test_maps_go_into_a_folder_and_not_into_one_with_the_name_of_a_file(pdenet, make_cube, tmp_path):
    scene, _ = make_cube()
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m.tif")
    assert ran.returncode == 2
    assert "use a folder" in ran.stderr
    assert not (tmp_path / "m.tif").exists()


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


def test_a_map_says_its_own_unit_and_name(pdenet, models, tmp_path):
    about = dict(variable="radiance", extra={"units": "W/m2", "long_name": "radiance", "title": "mine"})
    scene = written(tmp_path / "a.nc", picture(3, 9, 7).astype("<f4"), **about)
    model = ("--model", models / "pdenet.safetensors", "--samples", 2, "--no-page")
    maps = ("--map", "share", "--map", "angle", "--map", "std")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "maps", *model, *maps)
    assert ran.returncode == 0, ran.stderr
    for name, unit in (("share", "percent"), ("angle_merged", "degrees"), ("std", "W/m2")):
        with open_cube(tmp_path / "maps" / f"a_{name}.nc") as cube:
            assert cube.meta.extra["units"] == unit
            assert cube.meta.variable == name.removesuffix("_merged")
            assert cube.meta.extra["title"] == "mine"
            assert "long_name" not in cube.meta.extra


def test_a_dry_run_tells_what_is_in_the_way(pdenet, make_cube, tmp_path):
    scene, _ = make_cube()
    (tmp_path / "fine.tif").write_text("mine")
    words = ("upscale", scene, "-o", tmp_path / "fine.tif", "--model", "bicubic", "--dry-run")
    ran = pdenet(*words)
    assert ran.returncode == 0, ran.stderr
    assert "need --overwrite" in ran.stdout
    assert "need --overwrite" not in pdenet(*words, "--overwrite").stdout
    assert json.loads(pdenet(*words, "--json").stdout)["in_the_way"] == [str(tmp_path / "fine.tif")]
