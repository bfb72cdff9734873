"""What uncertainty maps say of themselves: units, scales, levels, tolerance, and the notes on them."""

import dataclasses

import numpy as np
import pytest

from pdenet_cli import CubeMeta, open_cube
from pdenet_cli.models.model import load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene.reading import Reading
from pdenet_cli.tools.job import Job, Settings
from pdenet_cli.tools.maps import Maps
from pdenet_cli.uncertainty.summaries import Question
from tests.conftest import calibration
from tests.cubes import picture, written


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
    settings = Settings(False, ("risk",), Question(tolerance=asked), per_band=True)
    job = Job(scene, tmp_path / "out.hdr", posterior, settings)
    list(job.run())
    differ = "0.012" if said else "120"
    met = f"`tolerance` {asked:g} is larger than any difference of this scene's values ({differ})"
    assert (f"{met}: is it in the right unit?" in job.report.notes) == doubted
    assert np.isfinite(open_cube(tmp_path / "out_risk.hdr").read()).all()


def test_maps_are_asked_at_the_level_that_the_model_is_calibrated_for(models):
    model = load_model(models / "calibrated.safetensors")
    few = calibration(level=0.2, certify=True)  # two scenes prove no more than 31.6 %
    low = dataclasses.replace(model, spec=dataclasses.replace(model.spec, calibration=few.to_dict()))
    for made, level in ((model, 0.9), (low, 0.2)):
        maps = Maps(None, Question(), Posterior(made, 2))
        facts = maps.facts(maps.question)
        assert facts["level"] == level
        assert f"The {100 * level:g}% interval" in facts["calibration"]["guarantee"]
    lower = Maps(None, Question(level=0.3), Posterior(model, 2))
    assert "The 30% interval" in lower.facts(lower.question)["calibration"]["guarantee"]


def test_a_tolerance_adds_the_risk_to_any_maps(models):
    posterior = Posterior(load_model(models / "calibrated.safetensors"), 2)
    assert Maps(("std",), Question(tolerance=5), posterior).names == ("std", "risk")
    assert Maps(("risk", "std"), Question(tolerance=5), posterior).names == ("risk", "std")


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
