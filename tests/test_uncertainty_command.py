"""`pdenet uncertainty` as a user meets it: maps, report, and what is refused."""

import json

import numpy as np
import pytest

from pdenet_cli import open_cube


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


def test_fewer_samples_than_asked_for_are_told_of(pdenet, make_cube, models, tmp_path):
    scene, _ = make_cube()
    model = ("--model", models / "template.safetensors")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "maps", *model, "--ensemble", "flips", "--samples", 16)
    assert ran.returncode == 0, ran.stderr
    assert "8 samples instead of 16" in " ".join(ran.stderr.split())
    assert json.loads((tmp_path / "maps" / "scene.hdr.report.json").read_text())["job"]["samples"] == 8
