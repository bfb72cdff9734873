"""How large errors will be: what the network sees, how it learns, and what users get of it."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pdenet_cli import Job, Posterior, Settings, sharpen
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, UsageError
from pdenet_cli.evaluation.trial import Coarse
from pdenet_cli.formats import open_cube
from pdenet_cli.models import error_net as room
from pdenet_cli.models.error_net import MARGIN, Clues, ErrorNet
from pdenet_cli.models.model import load_model, save_model
from pdenet_cli.models.weights_file import read_header
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.window import Window
from pdenet_cli.tools import calibrate as calibration_tool
from pdenet_cli.tools import learn_errors as tool
from pdenet_cli.tools.calibrate import calibrate
from pdenet_cli.tools.truths import Truth, TruthSettings
from pdenet_cli.training.data import sha256_of
from pdenet_cli.training.error_lessons import Lessons, learn_errors
from pdenet_cli.training.scene_lessons import places
from pdenet_cli.uncertainty.calibration import Calibration
from pdenet_cli.uncertainty.evidence import Evidence
from pdenet_cli.uncertainty.spread import guess, spread
from pdenet_cli.uncertainty.summaries import ERROR, Question
from tests.cubes import written
from tests.error_nets import error_net

SCALES = st.sampled_from([2, 3, 4, 8])


def known(rows, columns, scale, bands=2, seed=0):
    """What is known of a scene, as `ErrorNet.expected` takes it."""
    rng = np.random.default_rng(seed)
    low = rng.random((bands, rows, columns), np.float32)
    mean, std, first = rng.random((3, bands, scale * rows, scale * columns), np.float32)
    return low, mean, 0.05 * std, 0.05 * first + 0.06


@settings(max_examples=15, deadline=None)
@given(scale=SCALES, row=st.integers(0, 25), column=st.integers(0, 25), rows=st.integers(1, 5))
def test_a_window_with_its_margin_gives_what_the_whole_scene_gives(scale, row, column, rows):
    network, scene = error_net(), Window(0, 0, 30, 30)
    maps = known(30, 30, scale)
    core = Window(row, column, rows, 5)
    around = core.grown(MARGIN, within=scene)
    low, *fine = maps
    part = (low[:, *around.slices], *(array[:, *around.scaled(scale).slices] for array in fine))
    cut = network.expected(scale, *part)[:, *core.relative_to(around).scaled(scale).slices]
    whole = network.expected(scale, *maps)[:, *core.scaled(scale).slices]
    np.testing.assert_allclose(cut, whole, rtol=1e-4)


def test_it_sees_how_near_the_edge_of_the_scene_is():
    low, mean, std, first = (torch.from_numpy(part) for part in known(7, 5, 2))
    seen = Clues.of(2, 1.0, low, mean, std, first).coarse[:, -2]
    expected = np.zeros((7, 5))
    expected[1:-1, 1:-1] = 0.5
    expected[[0, -1]] = expected[:, [0, -1]] = 1
    expected[2:-2, 2:-2] = 0
    np.testing.assert_array_equal(seen, np.stack([expected] * 2))
    eight = Clues.of(8, 1.0, *(torch.from_numpy(part) for part in known(7, 5, 8)))
    assert not eight.coarse[:, -2].any()


def test_a_margin_one_pixel_smaller_is_not_enough():
    network, maps = error_net(), known(30, 30, 4)
    changed = [array.copy() for array in maps]
    changed[0][:, 15 - MARGIN, 15] += 0.5
    before, after = (network.expected(4, *some)[:, 60:64, 60:64] for some in (maps, changed))
    assert np.abs(after / before - 1).max() > 1e-7


def test_blocks_and_bands_one_by_one_give_what_all_at_once_give(monkeypatch):
    network, maps = error_net(), known(40, 37, 2, bands=5)
    whole = network.expected(2, *maps)
    monkeypatch.setattr(room, "BLOCK_SIDE", 8)
    np.testing.assert_allclose(network.expected(2, *maps), whole, rtol=1e-4)


@given(scale=SCALES, turns=st.integers(0, 3), mirrored=st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_turned_scene_has_turned_clues(scale, turns, mirrored):
    def turned(image):
        image = image.flip(-1) if mirrored else image
        return image.rot90(turns, (-2, -1)).contiguous()

    tensors = [torch.from_numpy(array) for array in known(9, 9, scale)]
    plain, other = Clues.of(scale, 1.0, *tensors), Clues.of(scale, 1.0, *map(turned, tensors))
    torch.testing.assert_close(other.coarse, turned(plain.coarse), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other.fine, turned(plain.fine), atol=1e-4, rtol=1e-4)


def test_twice_the_light_is_twice_the_error():
    network, maps = error_net(), known(12, 12, 4)
    once, twice = network.expected(4, *maps), network.expected(4, *(2 * array for array in maps))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-4)


def test_an_untaught_network_leaves_the_guess():
    *others, first = known(6, 6, 4)
    np.testing.assert_array_equal(ErrorNet().expected(4, *others, first), first)


def test_it_learns_how_large_errors_are_from_what_it_sees():
    rng = np.random.default_rng(0)
    low, mean, std, first = (torch.from_numpy(array) for array in known(8, 8, 2, bands=400))
    low[::2] = low[::2].mean((1, 2), keepdim=True)  # every second patch is smooth: its errors are a fifth as large
    clues = Clues.of(2, 1.0, low, mean, std, first)
    true = np.where(np.arange(400) % 2, 1.5, 0.3)[:, None, None]
    ratios = torch.from_numpy(np.abs(true * rng.standard_normal(first.shape)).astype(np.float32))
    ratios[:, :3, :2] = float("nan")  # not known: must not spoil the rest
    network = learn_errors([Lessons(clues, ratios)], seed=0, steps=150)
    with torch.no_grad():
        factors = network(clues).exp().mean((1, 2))
    assert float(factors[::2].mean()) == pytest.approx(0.3, rel=0.2)
    assert float(factors[1::2].mean()) == pytest.approx(1.5, rel=0.2)


def test_the_same_seed_teaches_the_same():
    clues = Clues.of(2, 1.0, *(torch.from_numpy(array) for array in known(6, 6, 2, bands=20)))
    lessons = [Lessons(clues, torch.full_like(clues.fine[:, 0], 2))]
    one, other, third = (learn_errors(lessons, seed, steps=3) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.last.weight, third.last.weight)


def test_the_expected_error_takes_the_place_of_the_guess():
    low, mean, std, first = known(4, 4, 2)
    samples = np.stack((mean - std, mean + std))
    evidence = Evidence(samples, low, np.full_like(low, 0.02), 2)
    np.testing.assert_array_equal(spread(evidence), guess(evidence.std, evidence.roughness))
    np.testing.assert_array_equal(spread(dataclasses.replace(evidence, expected=first)), first)


@given(rows=st.integers(2, 40), columns=st.integers(2, 40), top=st.integers(0, 39), left=st.integers(0, 39))
def test_lessons_never_touch_what_is_held_out_unless_that_is_all(rows, columns, top, left):
    low = np.zeros((1, rows, columns), np.float32)
    quarter = Window(min(top, rows - 1), min(left, columns - 1), max(1, rows - top), max(1, columns - left))
    coarse = Coarse(Cube(None, CubeMeta(*low.shape, low.dtype), low), quarter)
    for place in places(coarse, 0):
        assert quarter == coarse.cube.meta.window or not place.overlaps(quarter)
        assert place.grown(0, within=coarse.cube.meta.window) == place


# What users get of it.


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    """Scenes whose every second 12 rows are rough."""
    folder = tmp_path_factory.mktemp("truths")
    paths = []
    for i in range(3):
        rng = np.random.default_rng(i)
        y, x = np.mgrid[:64, :64] / 9
        waves = np.stack([0.5 + 0.2 * np.sin(x + b) * np.cos(y - i) for b in range(4)])
        rough = np.arange(64) // 12 % 2
        texture = rng.standard_normal((4, 13, 13)).repeat(5, 1).repeat(5, 2)[:, :64, :64]
        waves += 0.15 * rough[:, None] * texture
        waves[:, :3, :3] = np.nan
        paths.append(written(folder / f"truth{i}.hdr", waves.clip(0.01, 1).astype("<f4")))
    return paths


@pytest.fixture(scope="module")
def sane(models, tmp_path_factory):
    """A small model that adds little to an enlarged scene: its errors are not absurd."""
    model = load_model(models / "pdenet.safetensors")
    for tail in model.network.tails():
        tail *= 0.05
    output = tmp_path_factory.mktemp("sane") / "sane.safetensors"
    save_model(output, model)
    return output


@pytest.fixture(scope="module")
def wise(sane, truths, tmp_path_factory):
    """The same after it has learned its errors in a few steps."""
    output = tmp_path_factory.mktemp("wise") / "wise.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool, "STEPS", 120)
        asked = TruthSettings(part="lower-right")
        calibrate(str(sane), truths, output, asked, samples=4, learn=True)
    return output


def test_the_command_teaches_a_model_its_errors(pdenet, models, truths, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "STEPS", 2)
    output = tmp_path / "taught.safetensors"
    words = ("--part", "lower-right", "--samples", 2, "--learn-errors", "-o", output)
    ran = pdenet("calibrate", models / "pdenet.safetensors", *truths[:2], *words)
    assert ran.returncode == 0, ran.stderr
    assert load_model(output).errors is not None
    assert "learned from 2 scenes" in pdenet("models", "show", output).stdout


def test_what_was_learned_is_in_the_file(wise, truths):
    spec = read_header(wise).spec
    told = spec.errors
    assert told["steps"] == 120
    assert [fact["name"] for fact in told["scenes"]] == [path.name for path in truths]
    assert json.dumps(told)
    # Their quarters are as good as new to it, the whole scenes are not.
    assert Truth(truths[0], TruthSettings()).trained_on([spec]) == [True]
    assert Truth(truths[0], TruthSettings(part="lower-right")).trained_on([spec]) == [False]


def test_learned_errors_are_kept_when_a_model_is_calibrated_again(wise, truths, tmp_path):
    output = tmp_path / "again.safetensors"
    calibrate(str(wise), truths[:1], output, TruthSettings(part="lower-right"), samples=3)
    before, after = load_model(wise).errors.state_dict(), load_model(output).errors.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_learned_errors_rank_better_and_still_hold_the_level(pdenet, sane, wise, truths, tmp_path):
    plain = tmp_path / "plain.safetensors"
    calibrate(str(sane), truths, plain, TruthSettings(part="lower-right"), samples=4)
    words = ("--uncertainty", "--part", "lower-right", "--samples", 4, "--json")
    ran = pdenet("evaluate", "--model", plain, "--model", wise, *words, *truths)
    assert ran.returncode == 0, ran.stderr
    ranked, held = {}, {}
    for scene in json.loads(ran.stdout)["scenes"]:
        for name, told in scene["uncertainty"].items():
            ranked.setdefault(name, []).append(told["values"]["interval AUSE/random"])
            held.setdefault(name, []).append(told["values"]["interval coverage"])
    assert np.mean(ranked["wise"]) < np.mean(ranked["plain"])
    assert np.mean(held["wise"]) == pytest.approx(0.9, abs=0.03)


def test_evaluate_tells_how_sharp_a_truth_is_and_what_intervals_hold_where_that_is_known(pdenet, wise, truths):
    ran = pdenet("evaluate", "--model", wise, "--uncertainty", "--samples", 4, "--json", *truths)
    assert ran.returncode == 0, ran.stderr
    for scene in json.loads(ran.stdout)["scenes"]:
        values = scene["uncertainty"]["wise"]["values"]
        assert 0 <= values["interval sharpness"] <= 3
        assert 0.5 < values["interval coverage at that sharpness"] <= 1
        assert values["interval unit width at that sharpness"] > 0


def test_a_model_knows_how_sharp_its_scenes_were_and_expects_other_errors_of_other_truths(
    pdenet, wise, scene, tmp_path
):
    usual = Posterior(load_model(wise), 4).finer_fwhm
    known = json.loads(pdenet("models", "show", wise, "--json").stdout)["errors"]["finer_fwhm"]
    assert usual == pytest.approx(known)
    found = {}
    for fwhm in (usual, 2.9):
        words = ("--model", wise, "--samples", 4, "--map", "error", "--finer-psf", fwhm, "--no-page", "--per-band")
        ran = pdenet("uncertainty", scene, "-o", tmp_path / str(fwhm), *words)
        assert ran.returncode == 0, ran.stderr
        with open_cube(tmp_path / str(fwhm) / "scene_error.hdr") as cube:
            found[fwhm] = cube.read()
        report = json.loads(next((tmp_path / str(fwhm)).glob("*.report.json")).read_text())
        assert report["job"]["finer_fwhm"] == pytest.approx(fwhm)
    assert not np.allclose(found[usual], found[2.9], rtol=1e-3, equal_nan=True)


def test_the_map_of_errors_is_in_the_units_of_the_file(pdenet, wise, scene, tmp_path):
    words = ("--model", wise, "--samples", 4, "--map", "error", "--per-band")
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "maps", *words)
    assert ran.returncode == 0, ran.stderr
    with open_cube(tmp_path / "maps" / "scene_error.hdr") as bands:
        errors = bands.read()
        assert bands.meta.reflectance_scale == 10000
    with open_cube(tmp_path / "maps" / "scene_error_merged.hdr") as cube:
        merged = cube.read()
    inside = np.isfinite(merged[0])
    assert not inside[:24, :24].any()  # nodata
    assert errors[:, inside].min() > 0
    with open_cube(scene) as cube:
        reflectance = np.where(cube.read() == -999, np.float32(np.nan), cube.read() / np.float32(10000))
    unscaled = sharpen(reflectance, Posterior(load_model(wise), 4), maps=("error",))
    np.testing.assert_allclose(errors, 10000 * unscaled["error"], rtol=1e-3)
    np.testing.assert_allclose(merged[0][inside], np.sqrt((errors[:, inside] ** 2).mean(0)), rtol=1e-4)


def test_errors_are_a_default_map_of_a_model_that_knows_them(pdenet, wise, models, scene, tmp_path):
    for model, expected in ((wise, True), (models / "calibrated.safetensors", False)):
        folder = tmp_path / model.stem
        ran = pdenet("uncertainty", scene, "-o", folder, "--model", model, "--samples", 4, "--no-page")
        assert ran.returncode == 0, ran.stderr
        assert (folder / "scene_error_merged.hdr").exists() is expected


def test_only_maps_of_errors_take_the_memory_for_them(wise, scene, tmp_path):
    def needed(model, *maps):
        with Job(scene, tmp_path / "fine.hdr", Posterior(model, 4), Settings(maps=maps, tile=10)) as job:
            return job.forecast().bytes_of_memory

    taught = load_model(wise)
    untaught = dataclasses.replace(taught, errors=None)
    for maps in ((), ("std",)):
        assert needed(taught, *maps) == needed(untaught, *maps) < needed(taught, "error")


def test_tiles_for_less_memory_give_the_same_with_and_without_errors(wise):
    pixels = np.random.default_rng(0).random((4, 30, 30), np.float32)
    posterior = Posterior(load_model(wise), 4)
    whole, *cut = (
        sharpen(pixels, posterior, maps=maps, memory=memory)
        for maps, memory in ((("error",), None), (("error",), 5_000_000), ((), 4_000_000))
    )
    for maps in cut:
        for name, found in maps.items():
            np.testing.assert_allclose(found, whole[name], rtol=1e-4, atol=1e-5)


def test_a_model_that_does_not_know_its_errors_says_what_to_do(pdenet, models, scene, tmp_path):
    model = models / "calibrated.safetensors"
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "maps", "--model", model, "--map", ERROR.name)
    assert ran.returncode == ModelError.exit_code
    assert "pdenet calibrate --learn-errors" in ran.stderr


def test_whole_scenes_are_learned_from_each_judged_by_what_others_taught(sane, truths, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "STEPS", 2)
    output, notes = tmp_path / "whole.safetensors", []
    done = calibrate(str(sane), truths[:2], output, TruthSettings(), samples=2, learn=True, say=notes.append)
    assert notes == []
    assert [scene["learned"] for scene in done.calibration.scenes] == [False, False]
    assert load_model(output).errors is not None
    again = tmp_path / "again.safetensors"  # what was learned first is learned anew, not held against the scenes
    calibrate(str(output), truths[:2], again, TruthSettings(), samples=2, learn=True)


def test_one_whole_scene_has_no_other_to_be_judged_by(models, truths, tmp_path):
    with pytest.raises(UsageError, match="`learn_errors` needs two scenes or more, or `part` lower-right"):
        calibrate(
            str(models / "pdenet.safetensors"),
            truths[:1],
            tmp_path / "no.safetensors",
            TruthSettings(),
            learn=True,
        )
    assert not (tmp_path / "no.safetensors").exists()


def test_whole_scenes_that_a_model_was_trained_on_teach_it_nothing_of_errors(sane, truths, tmp_path):
    model = load_model(sane)
    with open_cube(truths[0]) as cube:
        fact = {"name": truths[0].name, "sha256": sha256_of(cube), "shape": list(cube.meta.shape())}
    known = tmp_path / "known.safetensors"
    save_model(known, dataclasses.replace(model, spec=dataclasses.replace(model.spec, data=(fact,))))
    with pytest.raises(UsageError, match=f"{truths[0].name}: the model was trained on this scene"):
        calibrate(str(known), truths[:2], tmp_path / "no.safetensors", TruthSettings(), samples=2, learn=True)


def test_what_was_learned_from_scenes_certifies_nothing_on_them(models, truths, tmp_path):
    asked, output = TruthSettings(part="lower-right", level=0.3), tmp_path / "no.safetensors"
    model = str(models / "pdenet.safetensors")
    with pytest.raises(UsageError, match="certify on other scenes"):
        calibrate(model, truths, output, asked, delta=0.5, certify=True, learn=True)


def test_a_scene_without_data_beside_its_quarter_teaches_nothing(models, tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).random((3, 64, 64)).astype("<f4")
    pixels[:, :40] = np.nan
    pixels[:, :, :32] = np.nan
    empty, asked = written(tmp_path / "empty.hdr", pixels), TruthSettings(part="lower-right")
    with pytest.raises(UsageError, match="no scene has pixels beside"):
        calibrate(str(models / "pdenet.safetensors"), [empty], tmp_path / "m.safetensors", asked, learn=True)


def test_a_tile_without_data_has_no_error_and_no_risk(wise):
    pixels = np.random.default_rng(0).random((3, 30, 30)).astype("<f4")
    pixels[:, :, :20] = np.nan
    question = Question(tolerance=0.1)
    posterior = Posterior(load_model(wise), 4)
    maps = sharpen(pixels, posterior, maps=("error", "risk", "consistency"), question=question, memory=4_000_000)
    for name in ("error", "risk", "consistency"):
        assert np.isnan(maps[name][:, :, :80]).all()
        assert np.isfinite(maps[name][:, :, 80:]).all()


def test_a_scene_that_cannot_be_read_is_left_out_of_the_lessons(models, truths, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "STEPS", 2)
    broken = tmp_path / "broken.hdr"
    broken.write_text("ENVI\n")
    asked = TruthSettings(part="lower-right")
    model, output = str(models / "pdenet.safetensors"), tmp_path / "out.safetensors"
    told = []
    done = calibrate(model, [broken, truths[0]], output, asked, samples=2, learn=True, say=told.append)
    assert list(done.failed) == [str(broken)]
    assert told == [f"{broken}: its errors are not learned: {done.failed[str(broken)]}"]
    assert len(read_header(output).spec.errors["scenes"]) == 1
    with pytest.raises(FormatError, match=r"broken\.hdr"):
        calibrate(model, [broken], tmp_path / "none.safetensors", asked, samples=2, learn=True)


def test_a_scene_that_is_learned_from_without_noise_only_is_told_of(models, truths, tmp_path, monkeypatch):
    real = tool.make_coarse

    def failing(truth, degradation, *words, **more):
        if degradation.noise == tool.NOISES[1]:
            raise MemoryError("too large")
        return real(truth, degradation, *words, **more)

    monkeypatch.setattr(tool, "make_coarse", failing)
    monkeypatch.setattr(tool, "STEPS", 2)
    model, output, told = str(models / "pdenet.safetensors"), tmp_path / "out.safetensors", []
    asked = TruthSettings(part="lower-right")
    done = calibrate(model, truths[:2], output, asked, samples=2, learn=True, say=told.append)
    assert done.failed == {}
    assert told == [f"{truths[1]}: its errors with noise or softened are not learned: MemoryError: too large"]
    assert len(read_header(output).spec.errors["scenes"]) == 2


def test_damaged_weights_of_the_error_network_are_refused_in_a_line(wise, tmp_path):
    model = load_model(wise)
    model.errors.last = torch.nn.Conv2d(3, 2, 1)
    save_model(tmp_path / "damaged.safetensors", model)
    with pytest.raises(ModelError, match=r"errors\.last"):
        load_model(tmp_path / "damaged.safetensors")


@pytest.mark.parametrize("told", [{}, {"scenes": 3}, {"scenes": ["a"]}])
def test_an_odd_record_of_the_lessons_does_no_harm(wise, told):
    spec = read_header(wise).spec
    odd = dataclasses.replace(spec, errors=told)
    assert list(odd.training_cubes()) == []
    assert Calibration.of(odd) is not None


def test_noise_is_learned_where_it_is_asked_for(models, truths, tmp_path, monkeypatch):
    seen, real = [], tool.make_coarse
    monkeypatch.setattr(tool, "make_coarse", lambda *words, **more: seen.append(words[1]) or real(*words, **more))
    monkeypatch.setattr(tool, "STEPS", 2)
    model, output = str(models / "pdenet.safetensors"), tmp_path / "n.safetensors"
    asked = TruthSettings(part="lower-right", noise=0.01)
    calibrate(model, truths[:1], output, asked, samples=2, learn=True)
    usual, noisier = Degradation(4, noise=0.01), Degradation(4, noise=np.hypot(0.01, tool.NOISES[0]))
    assert seen == [usual, noisier, usual]  # the last is softened


def test_the_intervals_of_a_scene_are_fitted_as_if_it_were_new(models, truths, tmp_path, monkeypatch):
    taught, used = {}, {}

    def learning(lessons, *words):
        network = error_net()
        taught[network.last.weight] = set(lessons)
        return network

    def measuring(truth, posterior, *words):
        used[truth.path] = {known.path for known in taught[posterior.model.errors.last.weight]}
        return real(truth, posterior, *words)

    real = calibration_tool._scene_ratios
    monkeypatch.setattr(tool, "_lessons", lambda truth, *words: (truth, None))
    monkeypatch.setattr(tool, "learn_errors", learning)
    monkeypatch.setattr(calibration_tool, "_scene_ratios", measuring)
    model, output = str(models / "pdenet.safetensors"), tmp_path / "new.safetensors"
    asked = TruthSettings(part="lower-right")
    calibrate(model, truths[:3], output, asked, samples=2, learn=True)
    assert used == {path: {*truths[:3]} - {path} for path in truths[:3]}
    assert {truth.path for truth in next(iter(taught.values()))} == {*truths[:3]}  # what the model keeps
    kept = load_model(output).errors
    assert torch.equal(kept.last.weight, next(iter(taught)))


def test_scenes_are_left_out_in_groups_of_neighbours():
    groups = list(tool._groups(range(12)))
    assert groups == [(0, 1, 2), (3, 4, 5), (6, 7), (8, 9), (10, 11)]
    assert list(tool._groups(range(2))) == [(0,), (1,)]
    assert list(tool._groups(range(1))) == []
