"""Training: what it sees, what it never sees, and that a broken run ends as an unbroken one."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio

from pdenet_cli import CubeMeta, Window, create_cube, open_cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ModelError, OutputError, TrainingError, UsageError
from pdenet_cli.models import load_model, read_tensors, save_model, training_tensors
from pdenet_cli.networks import Network
from pdenet_cli.tools import train as tool
from pdenet_cli.tools.train import Note, Plan, find_cubes, train
from pdenet_cli.training import loop
from pdenet_cli.training.data import Scene
from pdenet_cli.training.journal import read_journal
from pdenet_cli.training.loop import Validated
from pdenet_cli.training.patches import Patches, blurred, place, shape
from pdenet_cli.training.processes import ALONE, Processes
from pdenet_cli.training.recipe import RECIPES, SHARP, Recipe, recipe_for
from pdenet_cli.training.trainer import Trainer, new_network
from pdenet_cli.training.validation import held_out_parts, validate


def write(path, pixels, **meta):
    with create_cube(path, CubeMeta(*pixels.shape, pixels.dtype, **meta)) as cube:
        cube.write(cube.meta.window, pixels)
    return path


def picture(bands, rows, columns, seed=0):
    """Something a network can learn: overlapping rectangles with smooth spectra."""
    rng = np.random.default_rng(seed)
    image = np.zeros((bands, rows, columns))
    for _ in range(30):
        row, column = rng.integers(rows), rng.integers(columns)
        spectrum = 0.5 + 0.4 * np.sin(np.linspace(0, rng.uniform(1, 6), bands) + rng.uniform(0, 6))
        part = np.s_[:, row : row + rng.integers(4, 20), column : column + rng.integers(4, 20)]
        image[part] = spectrum[:, None, None]
    return (10000 * image).astype("<u2")


@pytest.fixture(scope="module")
def cubes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cubes")
    (folder / "deeper").mkdir()
    write(folder / "a.hdr", picture(12, 64, 72))
    write(folder / "deeper" / "b.hdr", picture(40, 50, 48, seed=1))
    write(folder / "small.hdr", picture(3, 17, 20, seed=2))
    (folder / "notes.txt").write_text("not a cube")
    return folder


@pytest.fixture(scope="module")
def scenes(cubes):
    return [Scene.read(cube) for cube in find_cubes(Plan((cubes,), Degradation(4)), lambda event: None)]


def plan(cubes, **changes):
    small = dict(batch=2, patch=32, bands=6)
    defaults = dict(network="pdenet", config="tiny", changes=small, steps=6, threads=1)
    return Plan((cubes,), Degradation(changes.pop("scale", 4)), **defaults | changes)


def weights(path):
    return {name: tensor.numpy().tobytes() for name, tensor in read_tensors(path).items()}


# What training sees


@given(st.integers(8, 40), st.integers(8, 40), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_patches_stay_inside_the_scene_and_out_of_the_held_out_part(rows, columns, side, whole, seed):
    corner = (rows, columns) if whole else (-(-rows // 2), -(-columns // 2))
    side = min(side, max(min(corner[0], columns), min(rows, corner[1])))
    window = place(np.random.default_rng(seed), (rows, columns), corner, side)
    assert window.row >= 0
    assert window.column >= 0
    assert window.bottom <= rows
    assert window.right <= columns
    assert window.bottom <= corner[0] or window.right <= corner[1]


def test_every_allowed_place_is_found():
    places = {place(np.random.default_rng(seed), (6, 6), (3, 3), 3) for seed in range(500)}
    assert {(w.row, w.column) for w in places} == {(0, c) for c in range(4)} | {(r, 0) for r in range(4)}


def test_a_patch_depends_on_seed_step_and_index_only(scenes):
    recipe = RECIPES["fast"](4)
    here, there = (Patches(scenes, recipe, 4, seed=3) for _ in range(2))
    for index in range(9):
        here(1, index)
    assert torch.equal(here(7, 2).high, there(7, 2).high)
    assert here(7, 2).generator.initial_seed() == there(7, 2).generator.initial_seed()
    others = [there(7, 3), there(8, 2), Patches(scenes, recipe, 4, seed=4)(7, 2)]
    assert all(
        not torch.equal(here(7, 2).high, other.high)
        for other in others
        if other.high.shape == here(7, 2).high.shape
    )


@pytest.mark.parametrize("warp", [0.0, 1.0])
def test_held_out_pixels_never_reach_a_patch(tmp_path, warp):
    pixels = np.zeros((4, 64, 64), "<u2")
    pixels[:, 32:, 32:] = 1000
    scene = Scene.read(open_cube(write(tmp_path / "a.hdr", pixels)), (0, 1000))
    assert scene.held_out(4) == Window(32, 32, 32, 32)
    patches = Patches([scene], replace(RECIPES["fast"](4), warp=warp), 4, seed=0)
    assert max(float(patches(step, 0).high.max()) for step in range(200)) == 0


def test_shapes_are_of_every_size_and_soft_only_on_their_edge():
    shapes = [shape(np.random.default_rng(seed), 48) for seed in range(200)]
    covered = [float(s.mean()) for s in shapes]
    assert min(covered) < 0.02
    assert max(covered) > 0.4
    for s in shapes:
        assert 0 <= s.min() <= s.max() <= 1
        edge = np.abs(np.diff(s, axis=1)) + 1e-6 >= (s[:, 1:] > 0) * (s[:, 1:] < 1) * 0.2
        assert edge.mean() > 0.9  # a value between 0 and 1 has a neighbour that is quite another


@pytest.fixture
def drawn(tmp_path):
    """Patches of one band, plain but for the changes."""
    plain = dict(patch=32, gains=(1.0, 1.0), zoom=1.0, collage=0.0)

    def patches(pixels, **changes):
        path = write(tmp_path / f"{len(list(tmp_path.iterdir()))}.hdr", pixels[None].astype("<u2"))
        scene = Scene.read(open_cube(path), (0, 1000))
        drawn = Patches([scene], replace(RECIPES["fast"](4), **plain | changes), 4, seed=0)
        return [drawn(step, 0).high.numpy() for step in range(40)]

    return patches


CHECKS = np.indices((128, 128)).sum(0) % 2 * 1000


def test_wider_windows_become_coarser_patches_and_pasted_shapes_add_edges(drawn):
    ramp = np.linspace(0, 1000, 128)[:, None].repeat(128, 1)
    assert all(patch.std() == pytest.approx(0.5) for patch in drawn(CHECKS))
    zoomed = drawn(CHECKS, zoom=2.0)
    assert all(patch.shape == (1, 32, 32) for patch in zoomed)
    assert min(patch.std() for patch in zoomed) < 0.1

    def step(patch):
        return max(np.abs(np.diff(patch, axis=axis)).max() for axis in (1, 2))

    assert max(map(step, drawn(ramp))) < 0.01
    assert max(map(step, drawn(ramp, collage=1.0))) > 0.2


def test_warped_pieces_are_turned_by_any_angle_and_stretched(drawn):
    ramp = np.linspace(0, 1000, 256)[:, None].repeat(256, 1)
    slope = 1 / 255  # of a pixel of the scene
    angles = []
    for patch in drawn(ramp, warp=1.0):
        down, right = np.gradient(patch[0, 12:20, 12:20])
        if max(np.ptp(down), np.ptp(right)) < 0.7 * slope:  # not where the border mirrors the scene
            assert 0.5 * slope < np.hypot(down, right).mean() < 1.45 * slope
            angles.append(math.degrees(math.atan2(down.mean(), right.mean())))
    assert len(angles) > 20
    assert len({round(angle / 15) for angle in angles}) > 8


def test_a_softer_lens_keeps_the_light_and_blurs_every_edge(drawn):
    edge = np.zeros((128, 128))
    edge[:, 64:] = 1000
    sharp, soft = drawn(edge), drawn(edge, soft=1.0)
    for before, after in zip(sharp, soft, strict=True):
        assert after.shape == before.shape
        assert after.mean() == pytest.approx(before.mean(), abs=0.02)
        assert np.ptp(after) <= np.ptp(before) + 1e-6
    assert any(((patch > 0.1) & (patch < 0.9)).mean() > 0.05 for patch in soft)
    wave = np.sin(np.arange(64) * 0.4)[None, None].repeat(64, 1).astype("f4")
    shrunk = blurred(wave, 1.5)[0, 32, 16:48].std() / wave[0, 32, 16:48].std()
    assert shrunk == pytest.approx(np.exp(-((1.5 * 0.4) ** 2) / 2), rel=0.01)


def test_another_light_keeps_every_edge(drawn):
    stripes = 200 + 600 * (np.arange(128)[:, None].repeat(128, 1) % 4 == 0)  # a quarter is bright
    plain, negative, hazy = drawn(stripes), drawn(stripes, negative=1.0), drawn(stripes, haze=1.0)
    assert all(np.median(patch) == patch.min() for patch in plain)
    assert all(np.median(patch) == patch.max() for patch in negative)
    assert all(np.median(patch) == patch.min() for patch in hazy)
    for patch in negative + hazy:
        assert patch.dtype == np.float32
        assert patch.min() > -1e-6
        assert np.ptp(patch) == pytest.approx(0.6, abs=1e-5)
    assert np.std([patch.min() for patch in hazy]) > 0.1


def test_grain_is_noise_that_the_truth_has_not(scenes):
    recipe = RECIPES["fast"](4)
    plain, grainy = Patches(scenes, recipe, 4, seed=0), Patches(scenes, replace(recipe, grain=1.0), 4, seed=0)
    levels = []
    for step in range(60):
        clean, patch = plain(step, 0), grainy(step, 0)
        assert torch.equal(patch.high, clean.high)
        low = torch.zeros(len(patch.high), 200, 200)
        assert clean.grainy(low) is low
        found = patch.grainy(low).std((1, 2), keepdim=True)
        torch.testing.assert_close(found, patch.grain, rtol=0.05, atol=0)
        assert len(found) < 5 or found.max() > 1.5 * found.min()  # some bands are noisier than others
        levels.append(float(patch.grain.median() / patch.high.abs().mean()))
    assert 0.0005 < min(levels) < 0.002
    assert 0.02 < max(levels) < 0.1


def test_grain_is_not_to_be_found_again_in_the_result(scenes, monkeypatch):
    recipe = replace(RECIPES["fast"](4), grain=1.0, patch=32)
    trainer = Trainer(
        new_network("pdenet", "tiny", 4, 0), Patches(scenes, recipe, 4, 0), Degradation(4), torch.device("cpu")
    )
    inputs, asked = [], []
    forward, loss = trainer.network.forward, trainer.network.loss
    monkeypatch.setattr(trainer.network, "forward", lambda low, draw: inputs.append(low) or forward(low, draw))
    monkeypatch.setattr(trainer.network, "loss", lambda *given: asked.append(given) or loss(*given))
    trainer.advance(0.5)
    for low, (_, high, wanted, *_) in zip(inputs, asked, strict=True):
        torch.testing.assert_close(wanted, Degradation(4)(high))
        assert (low - wanted).std() > 1e-5


@pytest.mark.parametrize("dtype", ["<i2", "<f4", "<f8"])
def test_bad_bands_are_dropped_and_holes_filled(tmp_path, dtype):
    pixels = picture(6, 40, 40).astype(dtype)
    pixels[:, :4] = -999
    pixels[3] = -999
    good = (True, True, False, True, True, True)
    path = write(tmp_path / "a.hdr", pixels, nodata=-999.0, good_bands=good)
    scene = Scene.read(open_cube(path), (0, 10000))
    assert scene.facts["bands_used"] == len(scene.pixels) == 4
    assert scene.pixels.dtype == ("<i2" if dtype == "<i2" else "<f4")
    unit, there = scene.unit(Window(0, 0, 8, 8), slice(0, 4))
    assert there == 0.5
    np.testing.assert_allclose(unit[:, 4:], pixels[[0, 1, 4, 5], 4:8, :8] / 10000, atol=1e-6)
    np.testing.assert_allclose(unit[2, 0], pixels[4, 4:].mean() / 10000, rtol=1e-5)


def test_folders_are_searched_and_each_cube_found_once(cubes, tmp_path):
    told = []
    paths = (cubes, cubes / "a.hdr", cubes / "a.img")
    found = [cube.path.name for cube in find_cubes(Plan(paths, Degradation(4)), told.append)]
    assert found == ["a.hdr", "b.hdr", "small.hdr"]
    assert [type(event) for event in told] == [Note]
    assert "notes.txt" in told[0].text
    with pytest.raises(FormatError, match="not a cube"):
        list(find_cubes(Plan((cubes / "notes.txt",), Degradation(4)), told.append))
    with pytest.raises(FormatError, match="no cube in this folder"):
        list(find_cubes(Plan((tmp_path,), Degradation(4)), told.append))


# How it goes


def test_the_papers_schedule():
    schedule = RECIPES["paper"](4).schedule
    at = {epoch: schedule((epoch + 0.5) / 150) for epoch in (0, 24, 25, 49, 50, 60, 80, 81, 149)}
    assert [at[e].rate for e in (0, 24, 25, 49, 50, 149)] == [1, 1, 0.5, 0.5, 1, 0.125]
    assert at[49].temperature is None
    assert [at[e].temperature for e in (50, 60, 80, 81)] == [1, 1 - 10 / 35, 1 - 30 / 35, SHARP]


def test_the_fast_schedule_ends_cold_and_sharp():
    schedule = RECIPES["fast"](4).schedule
    moments = [schedule(done / 100) for done in range(101)]
    assert moments[0].temperature is None
    assert moments[-1].rate < 0.01
    assert moments[-1].temperature == pytest.approx(SHARP)
    temperatures = [m.temperature for m in moments if m.temperature is not None]
    assert temperatures == sorted(temperatures, reverse=True)


def test_scores_are_those_of_an_independent_formula(scenes):
    parts = held_out_parts(scenes, Degradation(4), seed=0)
    assert [part.name for part in parts] == ["a", "b"]
    assert parts[1].high.shape == (2, 16, 24, 24)

    class Half(Network):
        def forward(self, low, draw=None):
            return torch.full((len(low), low.shape[1], 4 * low.shape[2], 4 * low.shape[3]), 0.5)

    scores = validate(
        Half(RECIPES and new_network("template", "tiny", 4, 0).config), parts, None, torch.device("cpu")
    )
    truth = parts[0].high[0].numpy().astype(float).clip(0, 1)
    expected = np.mean([peak_signal_noise_ratio(band, np.full_like(band, 0.5), data_range=1) for band in truth])
    assert scores["cubes"]["a"]["psnr"] == pytest.approx(expected, abs=1e-4)
    norms = np.linalg.norm(truth, axis=0)
    seen = norms > 0
    cosine = 0.5 * truth.sum(0)[seen] / norms[seen] / (0.5 * math.sqrt(len(truth)))
    angles = np.where(seen, 0.0, 0.0)
    angles[seen] = np.degrees(np.arccos(np.clip(cosine, -1, 1)))
    assert scores["cubes"]["a"]["sam"] == pytest.approx(angles.mean(), abs=1e-3)


def test_a_run_leaves_a_model_a_checkpoint_a_log_and_curves(cubes, tmp_path):
    trained = train(plan(cubes, steps=10), tmp_path / "m.safetensors")
    assert trained.finished
    for path in (trained.files.model, trained.files.last, trained.files.log, trained.files.curves):
        assert path.stat().st_size > 0
    model, last = load_model(trained.files.model), load_model(trained.files.last)
    assert model.spec == trained.spec
    assert {"psnr", "sam", "bicubic_psnr", "bicubic_sam", "single_psnr"} <= model.spec.scores.keys()
    assert [cube["shape"] for cube in model.spec.data] == [[12, 64, 72], [40, 50, 48], [3, 17, 20]]
    assert last.spec.steps == 10
    steps = [r["step"] for r in read_journal(trained.files.log) if r["kind"] == "step"]
    assert steps == list(range(1, 11))
    with pytest.raises(OutputError, match="exists"):
        train(plan(cubes, steps=10), tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "changes", [{"scale": 2}, {"scale": 3}, {"network": "template"}, {"recipe": "paper"}], ids=str
)
def test_other_scales_networks_and_recipes_run(cubes, tmp_path, changes):
    trained = train(plan(cubes, **changes), tmp_path / "m.safetensors")
    assert trained.spec.scale == changes.get("scale", 4)
    assert math.isfinite(trained.spec.gain)


def test_bands_that_never_vary_teach_nothing_but_are_there_for_a_network_of_fixed_size(tmp_path):
    pixels = np.random.default_rng(0).random((5, 20, 20)).astype("f4")
    pixels[[0, 3]] = 0
    path = write(tmp_path / "a.hdr", pixels)
    assert len(Scene.read(open_cube(path)).pixels) == 3
    assert len(Scene.read(open_cube(path), count=5).pixels) == 5


def test_a_model_knows_what_it_began_with(pdenet, cubes, tmp_path):
    first = train(plan(cubes, network="template", steps=3), tmp_path / "first.safetensors").files.model
    second = train(plan(cubes, init=str(first), steps=2, seed=7), tmp_path / "second.safetensors").files.model
    third = train(plan(cubes, init=str(second), steps=1), tmp_path / "third.safetensors").files.model
    told = load_model(third).spec.began_with
    assert (told["name"], told["sha256"]) == ("second", load_model(second).sha256)
    assert (told["steps"], told["seed"]) == (load_model(second).spec.steps, 7)
    assert told["began_with"]["sha256"] == load_model(first).sha256
    assert told["began_with"]["began_with"] == {}
    with pytest.raises(UsageError, match="began with another model than first"):
        train(plan(cubes, init=str(first), network="pdenet", steps=1), third, resume=True)
    last = load_model(tmp_path / "third.last.safetensors")
    unsaid = replace(last, spec=replace(last.spec, began_with={}))  # as an older version wrote it
    save_model(tmp_path / "third.last.safetensors", unsaid, training_tensors(tmp_path / "third.last.safetensors"))
    train(plan(cubes, init=str(second), steps=1), third, resume=True)
    shown = " ".join(pdenet("models", "show", third).stdout.split())
    assert "began with second, x4" in shown
    assert "began with first, x4" in shown


def test_a_blurred_and_noisy_sensor_is_trained_for(cubes, tmp_path):
    sensor = Degradation(4, "gaussian", 1.2, 0.01)
    trained = train(replace(plan(cubes), degradation=sensor), tmp_path / "m.safetensors")
    assert trained.spec.degradation == sensor.to_dict()


def test_training_learns(cubes, tmp_path):
    told = []
    quick = dict(batch=2, patch=32, bands=6, lr=5e-3)
    trained = train(plan(cubes, steps=60, changes=quick), tmp_path / "m.safetensors", watch=told.append)
    scores = [event.scores["psnr"] for event in told if isinstance(event, Validated)]
    assert scores[-1] > scores[0] + 0.1
    assert 0.05 <= trained.spec.extra["masks"]["chance"] <= 0.95


@pytest.mark.parametrize("slow_after", [0, 40])
def test_a_run_of_minutes_ends_on_time_though_the_machine_slows_down(monkeypatch, slow_after):
    now = 0.0

    def advance(done, seconds):
        nonlocal now
        now += 0.5 if trainer.step < slow_after else 1.5
        trainer.step += 1
        return "stepped"

    def validate(*_):
        nonlocal now
        now += 4
        return {}

    monkeypatch.setattr(loop, "validate", validate)
    trainer = SimpleNamespace(
        step=0,
        masked=True,
        network=SimpleNamespace(random=True),
        processes=ALONE,
        device=torch.device("cpu"),
        product=None,
        draw=int,
        advance=advance,
    )
    told = list(loop.run(trainer, [], loop.Budget(seconds=120), lambda: now))
    assert told[-1].done == 1
    assert 110 < now <= 120


def test_a_run_of_minutes_ends_by_itself(cubes, tmp_path):
    trained = train(plan(cubes, steps=None, minutes=0.12), tmp_path / "m.safetensors")
    done = [r["done"] for r in read_journal(trained.files.log)]
    assert done[-1] == 1
    assert done == sorted(done)


def test_a_run_starts_from_given_weights(cubes, tmp_path):
    template = train(plan(cubes, network="template"), tmp_path / "t.safetensors").files.model
    start = tool._network(plan(cubes, init=str(template)))
    assert start.random
    for name, weight in load_model(template).network.state_dict().items():
        assert torch.equal(start.state_dict()[name], weight)
    with pytest.raises(ModelError, match="other shapes"):
        tool._network(plan(cubes, init=str(template), config="tiny,width=7"))


def test_a_network_grows_by_a_stage_that_changes_nothing_at_first(cubes, tmp_path):
    model = train(plan(cubes), tmp_path / "m.safetensors").files.model
    small, grown = load_model(model).network, tool._network(plan(cubes, init=str(model), config="tiny,stages=3"))
    assert len(grown.stages) == len(small.stages) + 1
    low = torch.rand(1, 5, 6, 6)
    with torch.no_grad():
        assert torch.allclose(grown(low), small(low))
    (grown(low) - 1).abs().sum().backward()
    assert float(grown.stages[-1].tail.grad.abs().sum()) > 0


@pytest.mark.parametrize("more", ["head=6", "width=11", "head=7,width=9,stages=3"])
def test_a_wider_network_starts_as_the_one_it_grew_from(cubes, tmp_path, more):
    file = train(plan(cubes), tmp_path / "small.safetensors").files.model
    small, grown = load_model(file).network, tool._network(plan(cubes, init=str(file), config=f"tiny,{more}"))
    low = torch.rand(1, 5, 6, 6)
    with torch.no_grad():
        assert torch.allclose(grown(low), small(low), atol=1e-6)
    (grown(low) - 1).abs().sum().backward()
    assert all(stage.tail.grad.abs().flatten(1).sum(1).all() for stage in grown.stages)
    narrow = plan(cubes, init=str(file), config="tiny,width=7")
    with pytest.raises(ModelError, match="other shapes"):
        tool._network(narrow)


@pytest.mark.parametrize("scale", [2, 8])
def test_a_run_starts_from_the_weights_of_another_scale(cubes, tmp_path, scale):
    four = train(plan(cubes), tmp_path / "four.safetensors").files.model
    start = tool._network(plan(cubes, init=str(four), scale=scale))
    assert start.scale == scale
    for name, weight in load_model(four).network.state_dict().items():
        if not name.endswith((".tail", ".logits")):  # these two are as large as the scale
            assert torch.equal(start.state_dict()[name], weight)
    there = tool._network(plan(cubes, init=str(four), network="pdenet", config="tiny", scale=scale))
    assert all(torch.equal(weight, start.state_dict()[name]) for name, weight in there.state_dict().items())
    fcnn = train(plan(cubes, network="3dfcnn", config=None), tmp_path / "fcnn.safetensors").files.model
    with pytest.raises(ModelError, match="nothing to start from"):
        tool._network(plan(cubes, init=str(fcnn), network="3dfcnn", config=None, scale=scale))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": "slow"}, "slow is unknown"),
        ({"recipe": "fast,breadth=3"}, "not FIELD=VALUE"),
        ({"recipe": "fast,zoom=wide"}, "zoom=wide is not a number"),
        ({"recipe": "fast,zoom=0.5"}, "zoom must be at least 1"),
        ({"recipe": "fast,batch=1.5"}, "batch=1.5 is not a whole number"),
        ({"recipe": "fast,lr=NaN"}, "lr=nan is not a number"),
        ({"changes": {"patch": 3}}, "--patch 3 is too small"),
        ({"config": "tiny,scale=3"}, "not FIELD=VALUE"),
        ({"steps": None, "minutes": float("nan")}, "positive"),
        ({"config": "huge"}, "huge is unknown"),
        ({"config": "tiny,breadth=3"}, "not FIELD=VALUE"),
        ({"network": "oracle"}, "oracle is unknown"),
        ({"minutes": 3}, "not both"),
        ({"steps": 0}, "positive"),
        ({"scale": 16, "changes": {"patch": 64}}, "large enough"),
        ({"precision": "bf16"}, "bf16 or fp16 on cuda"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said(cubes, tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        train(plan(cubes, device="cpu", **changes), tmp_path / "m.safetensors")


def test_a_batch_steps_as_its_elements_one_by_one(scenes):
    recipe = replace(RECIPES["fast"](4), batch=5, patch=16, bands=3)
    losses = []
    for one_by_one in (True, False):
        patches = Patches(scenes, recipe, 4, seed=0)
        network = new_network("pdenet", "tiny", 4, seed=0)
        trainer = Trainer(network, patches, Degradation(4), torch.device("cpu"))
        trainer.one_by_one = one_by_one
        losses.append([trainer.advance(done).loss for done in (0.1, 0.3, 0.5, 0.9)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_recipe_takes_changes():
    recipe = recipe_for("fast,zoom=3,energy=0.5", "pdenet", 4)
    assert recipe == replace(recipe_for("fast", "pdenet", 4), zoom=3, energy=0.5, schedule=recipe.schedule)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_two_draws_of_a_patch_are_paid_for_being_apart(scenes, one_by_one):
    recipe = replace(RECIPES["fast"](4), batch=3, patch=16, bands=3, energy=0.6, spectral=0.5)
    patches = Patches(scenes[:1], recipe, 4, seed=0)
    network = new_network("pdenet", "tiny", 4, seed=0)
    trainer = Trainer(network, patches, Degradation(4), torch.device("cpu"))
    trainer.one_by_one = one_by_one
    expected = 0.0
    for index in range(3):
        patch, now = patches(0, index), recipe.schedule(0.5)
        high = patch.high[None]
        low = Degradation(4)(high, patch.generator)
        draw = network.draw(patch.generator, 2, now.temperature)
        with torch.no_grad():
            first, second = (network(low, draw[i]) for i in (0, 1))
            for estimate in (first, second):
                error = estimate - high
                expected += error.abs().mean() / 2
                expected += (low - network.degrade(estimate)).square().mean() / 2
                expected += 0.5 * (error[:, 1:] - error[:, :-1]).abs().mean() / 2
            expected -= 0.6 / 2 * (first - second).abs().mean()
    assert trainer.advance(0.5).loss == pytest.approx(float(expected / 3), rel=1e-5)


# Broken runs


def test_a_stopped_and_resumed_run_ends_as_an_unbroken_one(cubes, tmp_path):
    whole = train(plan(cubes, steps=12), tmp_path / "whole.safetensors")
    seen = []
    for _ in range(2):
        until = len(seen) + 8
        part = train(
            plan(cubes, steps=12),
            tmp_path / "part.safetensors",
            resume=True,
            watch=seen.append,
            stop=lambda until=until: len(seen) > until,
        )
    while not part.finished:
        part = train(plan(cubes, steps=12), tmp_path / "part.safetensors", resume=True)
    assert weights(part.files.last) == weights(whole.files.last)
    assert weights(part.files.model) == weights(whole.files.model)

    def log(files):
        return [(r["kind"], r["step"], r.get("loss")) for r in read_journal(files.log)]

    assert log(part.files) == log(whole.files)


def test_only_the_same_run_is_resumed(cubes, tmp_path):
    train(plan(cubes), tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match="seed differs"):
        train(plan(cubes, seed=1), tmp_path / "m.safetensors", resume=True)
    with pytest.raises(UsageError, match="data differs"):
        train(plan(cubes / "a.hdr"), tmp_path / "m.safetensors", resume=True)
    with pytest.raises(UsageError, match=r"recipe zoom differs \(2.0 there, 3 now\)"):
        train(plan(cubes, recipe="fast,zoom=3"), tmp_path / "m.safetensors", resume=True)


def test_a_checkpoint_from_before_a_recipe_had_some_field_is_resumed(cubes, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        whole = Recipe.to_dict
        patched.setattr(Recipe, "to_dict", lambda recipe: {k: v for k, v in whole(recipe).items() if k != "haze"})
        train(plan(cubes), tmp_path / "m.safetensors")
    assert train(plan(cubes), tmp_path / "m.safetensors", resume=True).finished


def test_a_cube_of_bad_bands_is_left_out_and_alone_it_is_refused(cubes, tmp_path):
    meta = CubeMeta(4, 64, 64, np.dtype("<u2"), good_bands=(False,) * 4)
    bad = tmp_path / "bad.hdr"
    with create_cube(bad, meta) as cube:
        cube.write(meta.window, np.ones(meta.shape(), "u2"))
    told = []
    both = replace(plan(cubes), data=(cubes / "a.hdr", bad))
    train(both, tmp_path / "m.safetensors", watch=told.append)
    assert any("every band is marked bad" in event.text for event in told if isinstance(event, tool.Note))
    with pytest.raises(FormatError, match="no cube with a band"):
        train(plan(bad), tmp_path / "n.safetensors")


def test_a_loss_that_is_no_number_stops_and_keeps_the_weights(cubes, tmp_path, monkeypatch):
    good = Patches.__call__

    def poisoned(self, step, index):
        patch = good(self, step, index)
        return replace(patch, high=patch.high * float("nan")) if step == 4 else patch

    monkeypatch.setattr(Patches, "__call__", poisoned)
    with pytest.raises(TrainingError, match=r"step 5.*m\.last\.safetensors"):
        train(plan(cubes), tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.last.safetensors").spec.steps == 4


COMMAND = ("--config", "tiny", "--batch", 2, "--patch", 32, "--bands", 6, "--threads", 1)
OFTEN = "from pdenet_cli.training import sitting; sitting.SAVE_EVERY = 0; from pdenet_cli.cli import main; main()"


def started(*arguments):
    command = [sys.executable, "-c", OFTEN, "train", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_steps(log, count):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if log.exists() and len(read_journal(log)) > count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} steps in {log}")


def test_killed_and_resumed_is_as_unkilled(cubes, tmp_path, pdenet):
    whole = train(plan(cubes, steps=60), tmp_path / "whole.safetensors")
    arguments = (cubes, "-o", tmp_path / "part.safetensors", "--steps", 60, *COMMAND, "--resume")
    running = started(*arguments)
    wait_for_steps(tmp_path / "part.log.jsonl", 15)
    running.kill()
    running.communicate()
    steps = load_model(tmp_path / "part.last.safetensors").spec.steps
    assert 5 < steps < 60
    ran = pdenet("train", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    assert f"resumed after step {steps}" in ran.stderr
    assert json.loads(ran.stdout)["finished"]
    assert weights(tmp_path / "part.last.safetensors") == weights(whole.files.last)
    assert weights(tmp_path / "part.safetensors") == weights(whole.files.model)


def test_control_c_saves_and_exits_with_130(cubes, tmp_path):
    running = started(cubes, "-o", tmp_path / "m.safetensors", "--steps", 100000, *COMMAND)
    wait_for_steps(tmp_path / "m.log.jsonl", 10)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "--resume" in errors
    logged = [r["step"] for r in read_journal(tmp_path / "m.log.jsonl")]
    assert load_model(tmp_path / "m.last.safetensors").spec.steps == max(logged)


def test_an_error_is_one_line_and_an_exit_code(cubes, tmp_path, pdenet):
    ran = pdenet("train", cubes, "-o", tmp_path / "m.safetensors", *COMMAND, "--steps", 9, "--lr", "1e30")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("pdenet: The loss is not finite")
    ran = pdenet("train", cubes / "none", "-o", tmp_path / "n.safetensors")
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)


# Several processes


def test_shares_make_up_the_batch():
    shared = [index for rank in range(3) for index in Processes(rank, 3).share(8)]
    assert sorted(shared) == list(range(8))


def test_two_processes_train_as_one(cubes, tmp_path):
    arguments = ("--steps", "8", *COMMAND[:2], "--batch", "4", *COMMAND[4:])
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
        command += ["-m", "pdenet_cli", "train", cubes, "-o", tmp_path / f"{count}.safetensors", *arguments]
        ran = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, env=os.environ, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
    one, two = (
        [r["loss"] for r in read_journal(tmp_path / f"{count}.log.jsonl") if r["kind"] == "step"]
        for count in (1, 2)
    )
    assert len(one) == 8
    np.testing.assert_allclose(two, one, rtol=1e-4)
    for name, weight in read_tensors(tmp_path / "1.safetensors").items():
        torch.testing.assert_close(read_tensors(tmp_path / "2.safetensors")[name], weight, rtol=0, atol=1e-4)


def test_processes_that_use_other_weights_stay_in_step(cubes, tmp_path):
    words = ("--network", "ensemble", "--config", "tiny", "--steps", "2", "--batch", "3")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command += ["pdenet_cli", "train", str(cubes), "-o", str(tmp_path / "two.safetensors"), *words]
    command += ["--patch", "32", "--bands", "6"]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120)
    assert ran.returncode == 0, ran.stderr
    changes = dict(batch=3, patch=32, bands=6)
    train(plan(cubes, network="ensemble", changes=changes, steps=2), tmp_path / "one.safetensors")
    one, two = (read_tensors(tmp_path / f"{count}.last.safetensors") for count in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["pdenet", "template"])
def test_networks_run_in_half_precision(name):
    network = new_network(name, "tiny", 4, seed=0)
    low = torch.rand(2, 3, 8, 8)
    draw = network.draw(torch.Generator().manual_seed(0), 2)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(low, draw)
    torch.testing.assert_close(rough.float(), network(low, draw), rtol=0.05, atol=0.05)


def test_a_run_too_short_for_a_step_still_makes_one(cubes, tmp_path):
    trained = train(plan(cubes, steps=None, minutes=0.0001), tmp_path / "m.safetensors")
    assert trained.spec.steps == load_model(tmp_path / "m.safetensors").spec.steps == 1


@pytest.mark.parametrize("name", ["m.log.jsonl", "m.curves.png", "m.last.safetensors"])
def test_no_file_beside_the_model_is_replaced_unasked(cubes, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        train(plan(cubes), tmp_path / "m.safetensors")
    assert (tmp_path / name).read_text() == "mine"


def test_validation_is_told_beside_bicubic(cubes, tmp_path):
    told = []
    train(plan(cubes), tmp_path / "m.safetensors", watch=told.append)
    scores = [event.scores for event in told if isinstance(event, Validated)]
    assert len({score["bicubic_psnr"] for score in scores}) == 1
    assert scores[0]["draws"] == 0
    assert scores[-1]["draws"] == 4
