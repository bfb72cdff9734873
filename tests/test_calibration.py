"""Calibration: intervals that hold what they promise on made-up posteriors, and the command that finds them."""

import collections
import dataclasses
import hashlib
import inspect
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pdenet_cli import open_cube
from pdenet_cli.cli.calibrate import calibrate as calibrate_command
from pdenet_cli.cli.evaluate import DEFAULT_SAMPLES, evaluate
from pdenet_cli.cli.upscale import uncertainty, upscale
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, OutputError, UsageError
from pdenet_cli.evaluation.measures import mean_trust
from pdenet_cli.models.model import Model, load_model, save_model, training_tensors
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import read_header
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools import truths
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.calibrate import calibrate
from pdenet_cli.tools.truths import TruthSettings
from pdenet_cli.uncertainty.calibration import LEVELS, Calibration, leave_one_out_coverage
from pdenet_cli.uncertainty.error_ratios import RATIOS, ErrorRatios
from pdenet_cli.uncertainty.evidence import Evidence
from pdenet_cli.uncertainty.risk_control import upper_bound
from pdenet_cli.uncertainty.spread import FLAT_BELOW, guess, spread, strata
from tests.cubes import written

SIDE = 40
SAMPLING = (calibrate_command, evaluate, uncertainty, upscale)


def seen(rng, too_small=1.0, samples=12, edges=0.5):
    """Evidence whose samples are too sure of themselves by a factor, and a truth from the true posterior."""
    shape = (2, SIDE, SIDE)
    width = rng.uniform(0.01, 0.05, shape)
    mean = rng.uniform(0.2, 0.8, shape)
    drawn = mean + width / too_small * rng.standard_normal((samples, *shape))
    roughness = np.where(rng.random(shape) < edges, 2 * FLAT_BELOW, 0)
    low = mean[:, ::4, ::4]
    evidence = Evidence(*(a.astype(np.float32) for a in (drawn, low, roughness)), 1)
    return evidence, (mean + width * rng.standard_normal(shape)).astype(np.float32)


def error_ratios(evidence, truth):
    there = np.ones(truth.shape, bool)
    return ErrorRatios.of(evidence.mean - truth, spread(evidence), strata(evidence.roughness), there)


def pool(count, sureness, seed=0):
    """Scenes of one kind, each with a sureness of its own: all that there are of this kind."""
    rng = np.random.default_rng(seed)
    return [error_ratios(*seen(rng, too_small=sureness(rng))) for _ in range(count)]


def lost(risk, calibration, level):
    """What scenes miss of each stratum, where `risk` is that at each ratio."""
    return [np.interp(factor, RATIOS, own) for factor, own in zip(calibration.at(level), risk, strict=True)]


# What is promised.


def test_intervals_cover_within_the_bound_in_so_many_repetitions():
    # The pool is the whole kind, so what a new scene loses in the mean is known without error.
    kind = pool(150, lambda rng: rng.lognormal(0.5, 0.6))
    risk = np.mean([scene.missed() for scene in kind], 0)
    rng = np.random.default_rng(1)
    level, delta, count = 0.8, 0.2, 20
    broken, covered = [], []
    for _ in range(200):
        some = [kind[i] for i in rng.integers(len(kind), size=count)]
        met = Calibration.fit(some, level=level, delta=delta)
        proved = Calibration.fit(some, level=level, delta=delta, certify=True)
        covered.append(1 - np.mean(lost(risk, met, level)))
        loss = zip(lost(risk, met, level), lost(risk, proved, level), met.certified, strict=True)
        place = met.levels.index(level)
        broken.append([(a > 1 - table[place], b > 1 - level) for a, b, table in loss])
    assert (np.mean(broken, 0) <= delta).all()
    assert np.mean(covered) == pytest.approx(level, abs=0.02)  # without --certify: no wider than needed
    assert np.std(covered) > 0.01  # the repetitions did differ


@pytest.mark.parametrize("too_small", [1.0, 10.0])
def test_an_overconfident_model_is_widened_to_coverage(too_small):
    rng = np.random.default_rng(2)
    made = Calibration.fit([error_ratios(*seen(rng, too_small)) for _ in range(10)])
    evidence, truth = seen(rng, too_small)
    for level in (0.5, 0.9, 0.93, 0.99):
        inside = np.abs(evidence.mean - truth) <= made.half_width(evidence, level)
        assert inside.mean() == pytest.approx(level, abs=0.025), level
    naive = np.abs(evidence.mean - truth) <= 1.645 * evidence.std
    assert (naive.mean() < 0.2) == (too_small > 1)  # what it said of itself


def test_each_stratum_has_the_factor_that_it_needs():
    rng = np.random.default_rng(3)
    scenes = []
    for _ in range(5):
        evidence, truth = seen(rng)
        error = (evidence.mean - truth) * np.where(evidence.roughness > FLAT_BELOW, 3, 1)
        scenes.append(
            ErrorRatios.of(
                error,
                spread(evidence),
                strata(evidence.roughness),
                np.ones(truth.shape, bool),
            )
        )
    flat, edge = Calibration.fit(scenes).at(0.9)
    assert edge == pytest.approx(3 * flat, rel=0.1)


def test_the_factor_of_one_scene_is_the_quantile_of_its_errors():
    evidence, truth = seen(np.random.default_rng(4), edges=0)
    ratio = np.abs(evidence.mean - truth) / spread(evidence)
    made = Calibration.fit([error_ratios(evidence, truth)])
    for level, factor in zip(made.levels, made.factors[0], strict=True):
        exact = np.quantile(ratio, level, method="inverted_cdf")
        assert exact <= factor * (1 + 1e-6) <= exact * 1.01, level


def test_a_stratum_that_no_scene_has_takes_the_factors_of_all_pixels_and_proves_nothing():
    rng = np.random.default_rng(5)
    made = Calibration.fit([error_ratios(*seen(rng, edges=0)) for _ in range(8)])
    assert made.factors[1] == made.factors[0]
    assert made.counted == (8, 0)
    assert set(made.certified[1]) == {0.0}
    assert made.certified[0][made.levels.index(0.9)] > 0.5
    assert made.certified_at(0.9) == 0  # a new scene may have such places


def test_what_is_proved_is_the_bound_on_the_share_that_was_missed():
    made = Calibration.fit(pool(12, lambda rng: 2.0), level=0.88, delta=0.05)
    place = made.levels.index(0.88)
    assert made.certified[0][place] == pytest.approx(1 - upper_bound(0.12, 12, 0.05))
    assert "12 scenes" in made.guarantee
    assert f"{made.certified[0][place]:.1%}" in made.guarantee


def test_errors_beyond_any_interval_are_not_counted_as_held():
    rng = np.random.default_rng(0)
    spread, stratum = np.full((1, 50, 50), 1e-4), np.zeros((1, 50, 50), np.intp)
    far = np.where(np.arange(50) < 5, 100.0, 1e-5) + np.zeros((1, 50, 50))
    scenes = [ErrorRatios.of(far * rng.uniform(0.9, 1.1), spread, stratum, spread > 0) for _ in range(30)]
    made = Calibration.fit(scenes, level=0.95)
    assert made.certified[0][made.levels.index(0.95)] == pytest.approx(1 - upper_bound(0.1, 30, 0.1))
    with pytest.raises(UsageError, match=r"10\.0% of the errors are larger than any interval can be"):
        Calibration.fit(scenes, level=0.92, delta=0.5, certify=True)


def test_parts_of_scenes_that_were_trained_on_are_an_indication_only():
    scenes = [{"name": "a", "part": "lower-right"}, {"name": "b", "part": "whole"}]
    made = Calibration.fit(pool(2, lambda rng: 2.0), scenes=scenes)
    assert "For 1 of these scenes only the quarter held out from training was used" in made.guarantee
    assert "indication" not in dataclasses.replace(made, scenes=scenes[1:] * 2).guarantee


def test_too_few_scenes_say_which_level_can_be_proved():
    few = pool(12, lambda rng: 2.0)
    # 1 - 0.1 ** (1 / 12) = 0.1746: at best 82.5 % with 12 scenes, and 22 are needed for 90 %.
    with pytest.raises(UsageError, match=r"12 scenes can certify at most 82\.5%.*`level` 0\.825.*22 scenes"):
        Calibration.fit(few, level=0.9, certify=True)
    flat = error_ratios(*seen(np.random.default_rng(0), edges=0))
    with pytest.raises(UsageError, match=r"12 scenes with edge pixels can certify at most 82\.5%"):
        Calibration.fit([*few, *[flat] * 12], level=0.9, certify=True)
    made = Calibration.fit(few, level=0.8, certify=True)
    assert made.levels[-1] == 0.8
    assert made.certified[0][-1] == pytest.approx(0.8, abs=1e-6)
    assert made.at(0.8)[0] > Calibration.fit(few, level=0.8).at(0.8)[0]


@pytest.mark.parametrize(("count", "delta"), [(1, 0.05), (1, 0.1), (2, 0.01), (3, 0.1)])
def test_the_best_level_that_is_offered_can_be_had(count, delta):
    some = pool(count, lambda rng: 1.0)
    with pytest.raises(UsageError) as met:
        Calibration.fit(some, level=0.95, delta=delta, certify=True)
    offered = float(re.search(r"Use `level` ([\d.]+) or lower", str(met.value))[1])
    assert offered == pytest.approx(delta ** (1 / count), abs=1e-3)
    assert Calibration.fit(some, level=offered, delta=delta, certify=True).level == offered


def test_each_level_has_its_own_promise(made):
    assert made.promise(0.9) == made.guarantee
    assert made.promise(0.975).startswith("The 97.5% interval")
    assert f"{made.certified[0][0]:.1%} (flat" in made.promise(0.1)
    assert made.promise(0.98).replace("98%", "97.5%") == made.promise(0.975)


@pytest.mark.parametrize("wrong", [dict(level=1.0), dict(level=0), dict(delta=0), dict(delta=1.5)])
def test_senseless_levels_are_refused(wrong):
    with pytest.raises(UsageError, match="between 0 and 1"):
        Calibration.fit(pool(2, lambda rng: 1.0), **wrong)


def test_the_coverage_by_the_other_scenes_is_that_of_a_calibration_without_this_one():
    scenes = pool(4, lambda rng: rng.lognormal(0, 0.5))
    expected = [s.coverage(Calibration.fit(scenes[:i] + scenes[i + 1 :]).at(0.9)) for i, s in enumerate(scenes)]
    assert leave_one_out_coverage(scenes, 0.9) == expected
    assert leave_one_out_coverage(scenes[:1], 0.9) == [None]


def test_the_coverage_by_the_other_scenes_is_certified_where_that_of_all_is():
    scenes, asked = pool(12, lambda rng: rng.lognormal(0, 0.5)), {"delta": 0.2, "certify": True}
    others = [scenes[:i] + scenes[i + 1 :] for i in range(12)]
    expected = [
        s.coverage(Calibration.fit(rest, level=0.8, **asked).at(0.8))
        for s, rest in zip(scenes, others, strict=True)
    ]
    assert leave_one_out_coverage(scenes, 0.8, **asked) == expected
    assert np.mean(expected) > np.mean(leave_one_out_coverage(scenes, 0.8))
    # 12 scenes prove at most 0.2 ** (1 / 12) = 87.4 %, and 11 only 86.4 %.
    Calibration.fit(scenes, level=0.87, **asked)
    assert leave_one_out_coverage(scenes, 0.87, **asked) == [None] * 12


# Widths and risks.


@pytest.fixture(scope="module")
def made():
    return Calibration.fit(pool(6, lambda rng: 3.0), samples=12)


@given(st.floats(LEVELS[0], LEVELS[-1]))
@settings(max_examples=30, deadline=None)
def test_the_risk_of_leaving_the_interval_is_what_its_level_leaves(made, level):
    evidence, _ = seen(np.random.default_rng(6))
    risk = made.beyond(evidence, made.half_width(evidence, level))
    np.testing.assert_allclose(risk, 1 - level, atol=1e-4)


def test_risk_falls_with_the_tolerance_from_one_to_what_the_table_knows(made):
    evidence, _ = seen(np.random.default_rng(7))
    risks = [made.beyond(evidence, tolerance) for tolerance in (0, 0.001, 0.01, 0.1, 1e6)]
    assert (risks[0] == 1).all()
    assert all((b <= a).all() for a, b in pairwise(risks))
    np.testing.assert_allclose(risks[-1], 1 - LEVELS[-1], atol=1e-6)
    per_band = made.beyond(evidence, np.array([0.01, 0.1])[:, None, None])
    np.testing.assert_array_equal(per_band[0], risks[2][0])
    np.testing.assert_array_equal(per_band[1], risks[3][1])


def test_factors_keep_their_meaning():
    # A model's file holds factors only: what they are multiples of, and where they hold, is fixed for good.
    shape = (1, 1, 2)
    samples = np.array([[0.1, 0.2], [0.3, 0.2]], np.float32).reshape(2, *shape)
    roughness = np.array([5e-4, 6e-4], np.float32).reshape(shape)
    known = Evidence(samples, np.zeros(shape, np.float32), roughness, 1)
    std = np.array([np.sqrt(0.02), 0])
    np.testing.assert_allclose(
        guess(known.std, roughness).ravel(), std + 0.3 * roughness.ravel() + 1e-4, rtol=1e-5
    )
    assert strata(roughness).ravel().tolist() == [0, 1]


def test_a_level_outside_the_table_is_refused(made):
    evidence, _ = seen(np.random.default_rng(8))
    with pytest.raises(UsageError, match=r"0\.999: this model is calibrated for levels from 0\.1 to 0\.995"):
        made.half_width(evidence, 0.999)


@given(st.integers(0, SIDE), st.integers(0, SIDE))
@settings(max_examples=30, deadline=None)
def test_the_errors_of_parts_add_up_to_those_of_the_scene(row, column):
    evidence, truth = seen(np.random.default_rng(9))
    there = np.random.default_rng(10).random(truth.shape) < 0.9
    maps = evidence.mean - truth, spread(evidence), strata(evidence.roughness), there
    whole = ErrorRatios.of(*maps)
    rows, columns = [(slice(0, n), slice(n, None)) for n in (row, column)]
    first, *others = [ErrorRatios.of(*(m[:, r, c] for m in maps)) for r in rows for c in columns]
    total = sum(others, first)
    np.testing.assert_array_equal(total.counts, whole.counts)
    np.testing.assert_allclose(total.spreads, whole.spreads)
    assert whole.pixels.sum() == there.sum()


# In a model's header.


def test_a_calibration_survives_the_header(made):
    spec = ModelSpec("pdenet", {}, 4, {}, "test", calibration=json.loads(json.dumps(made.to_dict())))
    assert Calibration.of(spec) == made
    assert Calibration.of(ModelSpec("pdenet", {}, 4, {}, "test")) is None
    first = {name: value for name, value in made.to_dict().items() if name != "degradation"}
    assert Calibration.from_dict(first) == made  # as the first ones were


@pytest.mark.parametrize(
    "damage",
    [
        {"factors": [[1.0], [2.0]]},
        {"factors": [["a"] * len(LEVELS)] * 2},
        {"factors": [[*range(len(LEVELS), 0, -1)]] * 2},
        {"factors": [[float("nan")] * len(LEVELS)] * 2},
        {"factors": [[*range(len(LEVELS))]] * 2},  # none is 0
        {"certified": [[float("inf")] * len(LEVELS)] * 2},
        {"levels": [*LEVELS[:-1], LEVELS[0]]},
        {"levels": None},
        {"strata": ["all"]},
        {"level": 0.123},
        {"delta": "small"},
        {"counted": [3]},
        {"degradation": 4},
        {"mixtures": "16"},
        {"mixtures": -3},
        {"samples": None},
        {"ensemble": "turns"},
        {"degradation": {"scale": 4, "kernel": "box"}},
        None,
    ],
)
def test_a_damaged_calibration_is_refused_in_a_line(made, damage):
    told = [] if damage is None else made.to_dict() | damage
    with pytest.raises(ModelError, match="calibrate it again"):
        Calibration.from_dict(told)


def test_other_samples_than_those_of_the_calibration_are_named(made):
    assert not list(made.misfits(12, "masks", Degradation(4), mixtures=0, seen=lambda count: count))
    (misfit,) = made.misfits(4, "flips", mixtures=0, seen=lambda count: count)
    assert "12 samples (masks). With 4 (flips)" in misfit


# The command.


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    paths = []
    for i in range(3):
        rng = np.random.default_rng(i)
        y, x = np.mgrid[:48, :40] / (4 + i)
        waves = np.stack([0.5 + 0.3 * np.sin(x + b) * np.cos(y - b / 2) for b in range(3)])
        pixels = (waves + 0.02 * rng.standard_normal(waves.shape)).clip(0, 1).astype("<f4")
        pixels[:, :3, :5] = np.nan
        paths.append(written(folder / f"scene{i}.hdr", pixels))
    return paths


@pytest.fixture(scope="module")
def uncalibrated(tmp_path_factory):
    """Weights files of small untrained networks, with chance and without."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=3, mask_start=0.6)
    for name, network in {"pdenet": PDENet(config), "template": TemplateNet(config)}.items():
        spec = ModelSpec(name, dataclasses.asdict(config), 4, {}, "test", extra={"kept": 1})
        save_model(folder / f"{name}.safetensors", Model(spec, network), {"step": torch.tensor(7)})
    return {name: folder / f"{name}.safetensors" for name in ("pdenet", "template")}


def test_the_command_writes_a_calibrated_model_that_evaluate_and_models_understand(
    pdenet, scenes, uncalibrated, tmp_path
):
    output = tmp_path / "calibrated.safetensors"
    arguments = (uncalibrated["pdenet"], *scenes, "-o", output, "--samples", 4)
    ran = pdenet("calibrate", *arguments)
    assert ran.returncode == 0, ran.stderr
    assert "scene2.hdr" in ran.stdout
    made = Calibration.of(read_header(output).spec)
    assert made.samples == 4
    assert [scene["name"] for scene in made.scenes] == [path.name for path in scenes]
    assert all(len(digest) == 64 for scene in made.scenes for digest in scene["inputs"].values())
    assert np.mean([scene["coverage"] for scene in made.scenes]) == pytest.approx(0.9, abs=0.02)
    assert read_header(output).spec.extra["kept"] == 1
    assert training_tensors(output)["step"] == 7
    before, after = load_model(uncalibrated["pdenet"]).network, load_model(output).network
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    shown = pdenet("models", "show", output)
    assert "90% on 3 scenes with 4 samples" in " ".join(shown.stdout.split())
    again = pdenet("calibrate", *arguments)
    assert again.returncode == OutputError.exit_code
    assert "--overwrite" in again.stderr
    judged = pdenet("evaluate", "--model", output, "--uncertainty", "--samples", 4, "--json", *scenes)
    assert judged.returncode == 0, judged.stderr
    values = [s["uncertainty"]["calibrated"]["values"] for s in json.loads(judged.stdout)["scenes"]]
    # The two commands meet the same intervals, and in float32 nearly the same numbers.
    for value, scene in zip(values, made.scenes, strict=True):
        assert value["interval coverage"] == pytest.approx(scene["coverage"], abs=1e-3)
        assert value["interval unit width"] == pytest.approx(scene["width"], rel=1e-4)


def test_a_scene_in_tiles_calibrates_as_the_whole(scenes, uncalibrated, tmp_path):
    def made(name, memory):
        output = tmp_path / name
        settings = TruthSettings(memory=memory)
        return calibrate(str(uncalibrated["pdenet"]), scenes[:2], output, settings, samples=3).calibration

    whole, tiled = made("whole.safetensors", None), made("tiled.safetensors", 1_000_000)
    np.testing.assert_allclose(tiled.factors, whole.factors, rtol=0.02)  # two bins


def test_bands_of_zeros_do_not_narrow_the_intervals_of_flat_places(scenes, uncalibrated, tmp_path):
    dead = []
    for path in scenes:
        with open_cube(path) as cube:
            pixels = cube.read()
        pixels = np.concatenate((pixels, np.zeros_like(pixels)))
        dead.append(written(tmp_path / path.name, pixels))
    alive, with_dead = (
        calibrate(str(uncalibrated["pdenet"]), paths, tmp_path / name, TruthSettings(), samples=3).calibration
        for paths, name in ((scenes, "alive.safetensors"), (dead, "dead.safetensors"))
    )
    assert with_dead.factors == alive.factors


def test_a_scene_that_the_model_was_trained_on_is_named(scenes, uncalibrated, tmp_path):
    model = load_model(uncalibrated["pdenet"])
    with open_cube(scenes[0]) as cube:
        fact = {"shape": list(cube.meta.shape()), "sha256": hashlib.sha256(cube.read().data).hexdigest()}
    taught = dataclasses.replace(model.spec, data=(fact,))
    heir = dataclasses.replace(model.spec, data=(), began_with=taught.history())
    for generation, spec in enumerate((taught, heir)):
        path = tmp_path / f"{generation}.safetensors"
        save_model(path, dataclasses.replace(model, spec=spec))
        for bands in (None, slice(0, 2)):
            said, output = [], tmp_path / f"{generation}{bands}.safetensors"
            calibrate(str(path), scenes[:2], output, TruthSettings(bands=bands), samples=2, say=said.append)
            assert [scenes[0].name in text and "trained on" in text for text in said] == [True]
            made = Calibration.of(read_header(output).spec)
            assert [scene["learned"] for scene in made.scenes] == [True, False]
            assert "trained on 1 of these scenes, so nothing is proved" in made.guarantee
        asked = dict(samples=2, certify=True, delta=0.5)
        with pytest.raises(UsageError, match="certifies nothing"):
            calibrate(str(path), scenes[:1], tmp_path / "no.safetensors", TruthSettings(level=0.4), **asked)
        notes = Benchmark([str(path)], [2], 0, "cpu", TruthSettings()).run(scenes[:2]).notes
        assert [scenes[0].name in text for text in notes if "trained on" in text] == [True]


def test_a_scene_that_fails_leaves_the_others_to_calibrate(scenes, uncalibrated, tmp_path):
    (tmp_path / "broken.hdr").write_text("ENVI\n")
    output = tmp_path / "out.safetensors"
    paths = [tmp_path / "broken.hdr", scenes[0]]
    done = calibrate(str(uncalibrated["pdenet"]), paths, output, TruthSettings(), samples=2)
    assert list(done.failed) == [str(paths[0])]
    assert len(Calibration.of(read_header(output).spec).scenes) == 1
    with pytest.raises(FormatError):
        calibrate(
            str(uncalibrated["pdenet"]), paths[:1], tmp_path / "none.safetensors", TruthSettings(), samples=2
        )


@pytest.mark.parametrize(
    ("settings", "arguments", "says"),
    [
        ({}, {"certify": True}, "certify at most .* or omit `certify`"),
        ({}, {"samples": 1}, "a single sample has no spread"),
        ({"level": 1.5}, {}, "between 0 and 1"),
        ({}, {"delta": 0.0}, "between 0 and 1"),
        ({"ensemble": "dice"}, {}, "`ensemble` dice"),
        ({"part": "middle"}, {}, "`part` middle"),
        ({"kernel": "gaussian"}, {}, "gaussian needs an FWHM"),
    ],
)
def test_what_cannot_be_calibrated_is_said_in_a_line(scenes, uncalibrated, tmp_path, settings, arguments, says):
    output = tmp_path / "out.safetensors"
    with pytest.raises(UsageError, match=says) as met:
        calibrate(
            str(uncalibrated["pdenet"]), scenes, output, TruthSettings(**settings), **{"samples": 2} | arguments
        )
    assert "\n" not in str(met.value)
    assert not output.exists()


def test_cores_that_cannot_be_are_refused_in_a_line(pdenet, scenes, uncalibrated, tmp_path):
    ran = pdenet("calibrate", uncalibrated["pdenet"], scenes[0], "-o", tmp_path / "m.safetensors", "--threads", 0)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "--threads 0" in ran.stderr


def test_what_no_scene_can_mend_is_refused_before_any_is_read(uncalibrated, tmp_path):
    nowhere, output = [tmp_path / "a.hdr", tmp_path / "b.hdr"], tmp_path / "out.safetensors"
    for level, certify in ((1.5, False), (0.9, True)):
        with pytest.raises(UsageError, match=r"between|2 scenes can certify at most 31\.6%"):
            calibrate(str(uncalibrated["pdenet"]), nowhere, output, TruthSettings(level=level), certify=certify)
    with pytest.raises(UsageError, match="twice"):
        calibrate(str(uncalibrated["pdenet"]), [nowhere[0], tmp_path / "." / "a.hdr"], output, TruthSettings())
    with pytest.raises(UsageError, match="must end in"):
        calibrate(str(uncalibrated["pdenet"]), nowhere, tmp_path / "out.st", TruthSettings())


def test_a_scene_by_another_name_is_still_one_scene(scenes, uncalibrated, tmp_path):
    output = tmp_path / "out.safetensors"
    with pytest.raises(UsageError, match="twice"):
        calibrate(
            str(uncalibrated["pdenet"]),
            [scenes[0], scenes[0].with_suffix(".img")],
            output,
            TruthSettings(),
            samples=2,
        )
    for suffix in (".hdr", ".img"):
        (tmp_path / f"copy{suffix}").write_bytes(scenes[0].with_suffix(suffix).read_bytes())
    with pytest.raises(UsageError, match="is a copy of"):
        calibrate(
            str(uncalibrated["pdenet"]), [scenes[0], tmp_path / "copy.hdr"], output, TruthSettings(), samples=2
        )
    picture = written(tmp_path / "a.tif", np.random.default_rng(0).random((2, 32, 32)).astype("<f4"))
    (tmp_path / "b.tif").write_bytes(picture.read_bytes())
    for name, east in (("a", 100), ("b", 200)):
        (tmp_path / f"{name}.tfw").write_text(f"1 0 0 -1 {east} 5")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link.tif").symlink_to(picture)
    for other, says in (("b.tif", "is a copy of"), ("folder/link.tif", "twice")):
        with pytest.raises(UsageError, match=says):
            calibrate(str(uncalibrated["pdenet"]), [picture, tmp_path / other], output, TruthSettings(), samples=2)
    assert not output.exists()


def test_a_copy_without_what_lay_beside_it_is_still_the_same_scene(uncalibrated, tmp_path):
    pixels = np.random.default_rng(0).integers(100, 9000, (2, 16, 16), dtype="<u2")
    first, second = (written(tmp_path / f"{name}.tif", pixels) for name in "ab")
    lines = "ENVI\nsamples = 16\nlines = 16\nbands = 2\ndata type = 12\nbyte order = 0\n"
    first.with_suffix(".hdr").write_text(lines + "wavelength = {500, 600}\n")
    for scenes in ([first, second], [second, first]):
        with pytest.raises(UsageError, match="is a copy of"):
            calibrate(
                str(uncalibrated["pdenet"]), scenes, tmp_path / "out.safetensors", TruthSettings(), samples=2
            )


def test_one_scene_says_nothing_of_the_others_factors(pdenet, scenes, uncalibrated, tmp_path):
    arguments = (uncalibrated["pdenet"], scenes[0], "--level", 0.975, "-o", tmp_path / "out.safetensors")
    ran = pdenet("calibrate", *arguments)
    assert ran.returncode == 0, ran.stderr
    assert "97.5 % intervals" in ran.stdout
    assert "nan" not in ran.stdout
    told = pdenet("calibrate", *arguments, "--overwrite", "--json").stdout
    assert json.loads(told, parse_constant=pytest.fail)["scenes"][0]["unseen"] is None


def test_what_the_other_scenes_cannot_certify_is_left_out_of_the_table(pdenet, scenes, uncalibrated, tmp_path):
    # Three scenes prove 0.1 ** (1 / 3) = 46.4 %, two only 31.6 %.
    words = (uncalibrated["pdenet"], *scenes, "--certify", "--samples", 2, "-o", tmp_path / "out.safetensors")
    for level, told in ((0.45, False), (0.3, True)):
        ran = pdenet("calibrate", *words, "--level", level, "--overwrite")
        assert ran.returncode == 0, ran.stderr
        rows = [line.split() for line in ran.stdout.splitlines() if re.match(r"scene\d|mean ", line)]
        assert [row[2] != "–" for row in rows] == [told] * 4


def test_a_model_that_is_calibrated_again_keeps_its_ensemble(scenes, uncalibrated, tmp_path):
    first, again, other = (tmp_path / f"{name}.safetensors" for name in ("first", "again", "other"))
    calibrate(str(uncalibrated["pdenet"]), scenes, first, TruthSettings(ensemble="flips"), samples=2)
    calibrate(str(first), scenes, again, TruthSettings(noise=0.01), samples=2)
    calibrate(str(first), scenes, other, TruthSettings(ensemble="masks"), samples=2)
    kept = [Calibration.of(read_header(path).spec).ensemble for path in (first, again, other)]
    assert kept == ["flips", "flips", "masks"]


def test_intervals_are_calibrated_for_another_lens_and_noise_than_the_models_own(scenes, uncalibrated, tmp_path):
    output = tmp_path / "noisy.safetensors"
    usual = calibrate(
        str(uncalibrated["pdenet"]), scenes, tmp_path / "usual.safetensors", TruthSettings(), samples=2
    )
    noisy = calibrate(str(uncalibrated["pdenet"]), scenes, output, TruthSettings(noise=0.2), samples=2)
    assert usual.calibration.degradation is None
    assert "degraded like the model's training data" in usual.calibration.guarantee
    assert "degraded by x4 bicubic, noise 0.2," in noisy.calibration.guarantee
    assert noisy.calibration.at(0.9) != usual.calibration.at(0.9)
    held = []
    for noise in (None, 0.2):
        judged = Benchmark([str(output)], [2], 0, "cpu", TruthSettings(uncertainty=True, noise=noise)).run(scenes)
        held.append(mean_trust([*judged.trusts()["noisy"].values()])["interval coverage"])
        told = any(
            "calibrated on scenes degraded by x4 bicubic, noise 0.2, which" in note for note in judged.notes
        )
        assert told == (noise is None)
    assert held[1] == pytest.approx(0.9, abs=0.02)
    assert abs(held[0] - 0.9) > 0.02  # so the noise was there


def test_a_model_calibrated_as_usual_is_used_as_usual():
    defaults = [inspect.signature(command).parameters["samples"].default for command in SAMPLING]
    assert {int(default or DEFAULT_SAMPLES) for default in defaults} == {8}


def test_a_folder_is_never_replaced_by_a_model(scenes, uncalibrated, tmp_path):
    (tmp_path / "models.safetensors").mkdir()
    (tmp_path / "models.safetensors" / "precious").touch()
    for write in (
        lambda path: calibrate(
            str(uncalibrated["pdenet"]), scenes, path, TruthSettings(), samples=2, overwrite=True
        ),
        lambda path: save_model(path, load_model(uncalibrated["pdenet"])),
    ):
        with pytest.raises(OutputError, match="is a folder"):
            write(tmp_path / "models.safetensors")
    assert (tmp_path / "models.safetensors" / "precious").exists()


def test_flips_calibrate_a_network_without_chance(scenes, uncalibrated, tmp_path):
    with pytest.raises(UsageError, match="`ensemble` flips"):
        calibrate(str(uncalibrated["template"]), scenes, tmp_path / "no.safetensors", TruthSettings())
    settings = TruthSettings(ensemble="flips")
    made = calibrate(str(uncalibrated["template"]), scenes, tmp_path / "yes.safetensors", settings, samples=8)
    assert (made.calibration.samples, made.calibration.ensemble) == (8, "flips")
    assert Posterior(load_model(made.output), 8).ensemble == "flips"  # used as it was calibrated
    assert len(Posterior(load_model(made.output), 8, ensemble="masks")) == 1


def test_a_scene_is_opened_looked_over_and_hashed_once(scenes, uncalibrated, tmp_path, monkeypatch):
    counts = collections.Counter()

    def counted(owner, name, path_of):
        real = getattr(owner, name)

        def counting(*arguments, **options):
            counts[name, path_of(arguments[0])] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    counted(truths, "open_cube", Path)
    counted(truths.Survey, "of", lambda cube: cube.path)
    counted(truths, "sha256_of", lambda cube: cube.path)
    calibrate(str(uncalibrated["pdenet"]), scenes, tmp_path / "made.safetensors", TruthSettings(), samples=2)
    assert counts
    assert set(counts.values()) == {1}
    assert {path for name, path in counts if name == "open_cube"} == set(map(Path, scenes))
