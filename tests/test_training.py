"""How training goes: schedules, scores, losses, steps, and when a run ends."""

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

from pdenet_cli import open_cube
from pdenet_cli.degradation import Degradation, bicubic_down, bicubic_up
from pdenet_cli.errors import TrainingError, UsageError
from pdenet_cli.models.model import load_model
from pdenet_cli.models.networks import Network
from pdenet_cli.tools.train import train
from pdenet_cli.training import loop
from pdenet_cli.training.data import Scene
from pdenet_cli.training.log import read_log
from pdenet_cli.training.loop import ValidationResult
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.recipe import RECIPES, recipe_for
from pdenet_cli.training.schedules import SHARP
from pdenet_cli.training.trainer import Trainer, new_network
from pdenet_cli.training.validation import _score, held_out_parts, validate
from tests.cubes import written
from tests.trainings import plan

# Schedules and scores


def test_the_fast_schedule_ends_cold_and_sharp():
    schedule = RECIPES["fast"](4).schedule
    moments = [schedule(done / 100) for done in range(101)]
    assert moments[0].temperature is None
    assert moments[-1].rate < 0.01
    assert moments[-1].temperature == pytest.approx(SHARP)
    temperatures = [m.temperature for m in moments if m.temperature is not None]
    assert temperatures == sorted(temperatures, reverse=True)


def test_a_recipe_takes_changes():
    recipe = recipe_for("fast,zoom=3,energy=0.5", "pdenet", 4)
    assert recipe == replace(recipe_for("fast", "pdenet", 4), zoom=3, energy=0.5, schedule=recipe.schedule)


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


def test_holes_are_no_truth_to_be_scored_against(scenes):
    (whole,) = held_out_parts(scenes[:1], Degradation(4), seed=0)
    pixels = scenes[0].pixels.astype("f4")
    holed = replace(scenes[0], pixels=np.where(np.arange(72) < 44, pixels, np.nan))
    (part,) = held_out_parts([holed], Degradation(4), seed=0)
    assert 0.1 < part.valid_mask.double().mean() < 0.5
    assert torch.equal(part.high[part.valid_mask], whole.high[part.valid_mask])
    estimate = torch.where(part.valid_mask, part.high + 0.1 - 0.2 * (part.high > 0.5), 7.0)
    scores = _score(estimate, part.high, part.valid_mask)
    assert scores["psnr"] == pytest.approx(20, abs=1e-3)
    dead = scenes[1].pixels.astype("f4")
    dead[10, 20:, 20:] = np.nan
    (part,) = held_out_parts([replace(scenes[1], pixels=dead)], Degradation(4), seed=0)
    assert not part.valid_mask.all((2, 3)).all()
    assert math.isfinite(part.bicubic["psnr"])
    lost = replace(scenes[0], pixels=np.where(np.arange(72) < 37, pixels, np.nan))
    with pytest.raises(UsageError, match="enough pixels"):
        held_out_parts([lost], Degradation(4), seed=0)


def test_of_a_large_part_the_middle_is_scored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 1000, (2, 300, 340)).astype("<u2")
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", pixels)), (0, 1000))
    (part,) = held_out_parts([scene], Degradation(4), seed=0)
    # From row 150 and column 170 on, 148 x 168 whole pixels of the coarse grid; of these 128 in the middle.
    np.testing.assert_allclose(part.high[0], pixels[:, 158:286, 190:318] / 1000, atol=1e-6)
    torch.testing.assert_close(part.low, bicubic_down(part.high, 4))


def test_scenes_of_one_name_are_both_scored_and_the_network_learns_on(scenes):
    parts = held_out_parts([scenes[0], replace(scenes[1], name="a")], Degradation(4), seed=0)
    network = new_network("template", "tiny", 4, 0)
    scores = validate(network, parts, None, torch.device("cpu"))
    assert list(scores["cubes"]) == ["a", "a (2)"]
    assert scores["psnr"] == pytest.approx(np.mean([cube["psnr"] for cube in scores["cubes"].values()]))
    assert network.training


def test_the_mean_of_the_samples_is_scored_and_one_of_them_beside_it(scenes):
    parts = held_out_parts(scenes[:1], Degradation(4), seed=0)
    network = new_network("pdenet", "tiny", 4, 0)
    draw = network.draw(torch.Generator().manual_seed(0), 3)
    scores = validate(network, parts, draw, torch.device("cpu"))
    with torch.no_grad():
        each = torch.cat([network(parts[0].low, draw[i]) for i in range(3)])
    for name, estimate in (("psnr", each.mean(0)), ("single_psnr", each[0])):
        wanted = _score(estimate[None], parts[0].high, parts[0].valid_mask)["psnr"]
        assert scores[name] == pytest.approx(wanted, abs=1e-4)
    assert scores["draws"] == 3


def test_validation_is_told_beside_bicubic(cubes, tmp_path):
    told = []
    train(plan(cubes), tmp_path / "m.safetensors", watch=told.append)
    scores = [event.scores for event in told if isinstance(event, ValidationResult)]
    assert len({score["bicubic_psnr"] for score in scores}) == 1
    assert scores[0]["draws"] == 0
    assert scores[-1]["draws"] == 4


# Steps


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


def test_a_run_starts_as_near_to_bicubic_as_its_recipe_says_and_as_its_seed_says():
    low = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    whole, tenth, other = (
        new_network("template", "tiny,stages=1,brightness=free", 4, seed, start)
        for seed, start in ((5, 1.0), (5, 0.1), (6, 1.0))
    )
    with torch.no_grad():
        away, near, elsewhere = (network(low) - bicubic_up(low, 4) for network in (whole, tenth, other))
    torch.testing.assert_close(near, 0.1 * away, rtol=1e-3, atol=1e-6)
    assert away.abs().max() > 1e-3
    assert not torch.allclose(elsewhere, away, atol=1e-3)


@pytest.mark.parametrize(("average", "kept"), [(0.0, 0.0), (0.998, 0.1)])
def test_what_is_kept_is_a_running_mean_that_soon_forgets_its_start(scenes, average, kept):
    recipe = replace(RECIPES["fast"](4), patch=16, bands=3, average=average)
    network = new_network("template", "tiny", 4, seed=0)
    trainer = Trainer(network, Patches(scenes, recipe, 4, seed=0), Degradation(4), torch.device("cpu"))
    before = [weight.detach().clone() for weight in network.parameters()]
    trainer.advance(0.1)
    for mean, old, new in zip(trainer.average.parameters(), before, network.parameters(), strict=True):
        torch.testing.assert_close(mean, kept * old + (1 - kept) * new.detach())
    assert any(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


@pytest.mark.parametrize(("fresh", "steps"), [(True, 1), (False, 3)])
def test_adam_starts_anew_with_the_masks_if_the_recipe_says_so(scenes, fresh, steps):
    recipe = replace(RECIPES["fast"](4), patch=16, bands=3, fresh=fresh)
    network = new_network("pdenet", "tiny", 4, seed=0)
    trainer = Trainer(network, Patches(scenes, recipe, 4, seed=0), Degradation(4), torch.device("cpu"))
    for done in (0.0, 0.1, 0.5):
        trainer.advance(done)
    assert max(int(known["step"]) for known in trainer.learner.adam.state.values()) == steps
    trainer.advance(0.6)
    assert max(int(known["step"]) for known in trainer.learner.adam.state.values()) == steps + 1


@pytest.mark.parametrize("one_by_one", [True, False])
def test_wrong_steps_and_means_cost_and_two_draws_of_a_patch_are_paid_for_being_apart(scenes, one_by_one):
    recipe = replace(
        RECIPES["fast"](4), batch=3, patch=32, bands=3, energy=0.6, spectral=0.5, balance=0.7, mosaic=1
    )
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
                expected += 0.7 * error.view(1, 3, 2, 16, 2, 16).mean((3, 5)).abs().mean() / 2
            expected -= 0.6 / 2 * (first - second).abs().mean()
    assert trainer.advance(0.5).loss == pytest.approx(float(expected / 3), rel=1e-5)


@pytest.mark.parametrize("name", ["pdenet", "template"])
def test_networks_run_in_half_precision(name):
    network = new_network(name, "tiny", 4, seed=0)
    low = torch.rand(2, 3, 8, 8)
    draw = network.draw(torch.Generator().manual_seed(0), 2)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(low, draw)
    torch.testing.assert_close(rough.float(), network(low, draw), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("brightness", ["free", "kept"])
def test_half_precision_is_for_features_and_not_for_the_image(brightness):
    config = f"tiny,brightness={brightness}"
    network = new_network("template", config, 4, seed=0, start=0.0)  # so that stages add nothing
    low, high = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        image, seen = network(low), network.degrade(high)
    torch.testing.assert_close(image, network(low), rtol=0, atol=1e-6)
    if brightness == "free":
        torch.testing.assert_close(image, bicubic_up(low, 4), rtol=0, atol=1e-6)
    torch.testing.assert_close(seen, network.degrade(high), rtol=0, atol=1e-6)


# Runs


@pytest.mark.parametrize(
    "changes", [{"scale": 2}, {"scale": 3}, {"network": "template"}, {"recipe": "paper"}], ids=str
)
def test_other_scales_networks_and_recipes_run(cubes, tmp_path, changes):
    trained = train(plan(cubes, **changes), tmp_path / "m.safetensors")
    assert trained.spec.scale == changes.get("scale", 4)
    assert math.isfinite(trained.spec.gain)


def test_a_blurred_and_noisy_sensor_is_trained_for(cubes, tmp_path):
    sensor = Degradation(4, "gaussian", 1.2, 0.01)
    trained = train(replace(plan(cubes), degradation=sensor), tmp_path / "m.safetensors")
    assert trained.spec.degradation == sensor.to_dict()


def test_training_learns(cubes, tmp_path):
    told = []
    quick = dict(batch=2, patch=32, bands=6, lr=5e-3)
    trained = train(plan(cubes, steps=60, changes=quick), tmp_path / "m.safetensors", watch=told.append)
    scores = [event.scores["psnr"] for event in told if isinstance(event, ValidationResult)]
    assert scores[-1] > scores[0] + 0.1
    assert 0.05 <= trained.spec.masks["chance"] <= 0.95


def test_patches_are_made_coarse_before_they_go_to_a_device_that_may_not_know_how(scenes, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which "meta" has not
    met = []

    def degradation(high, generator):
        met.append(high.device.type)
        return Degradation(4)(high, generator)

    patches = Patches(scenes, replace(RECIPES["fast"](4), patch=16, bands=3), 4, seed=0)
    trainer = Trainer(new_network("pdenet", "tiny", 4, seed=0), patches, degradation, torch.device("meta"))
    assert trainer._gradients(patches.recipe.schedule(0.5)).device.type == "meta"
    assert set(met) == {"cpu"}


@pytest.mark.parametrize("slow_after", [0, 40])
def test_a_run_of_minutes_ends_on_time_though_the_machine_slows_down(scenes, monkeypatch, slow_after):
    now = 0.0
    patches = Patches(scenes, replace(RECIPES["fast"](4), patch=16, bands=3), 4, seed=0)
    trainer = Trainer(new_network("pdenet", "tiny", 4, seed=0), patches, Degradation(4), torch.device("cpu"))

    def advance(done, seconds):
        nonlocal now
        now += 0.5 if trainer.step < slow_after else 1.5
        trainer.step += 1
        return "stepped"

    def validated(*_):
        nonlocal now
        now += 4
        return {}

    monkeypatch.setattr(trainer, "advance", advance)
    monkeypatch.setattr(trainer, "masked", True)
    monkeypatch.setattr(loop, "validate", validated)
    told = list(loop.training_loop(trainer, [], loop.Budget(seconds=120), lambda: now))
    assert told[-1].done == 1
    assert 110 < now <= 120


def test_a_run_of_minutes_ends_by_itself(cubes, tmp_path):
    trained = train(plan(cubes, steps=None, minutes=0.12), tmp_path / "m.safetensors")
    done = [r["done"] for r in read_log(trained.files.log)]
    assert done[-1] == 1
    assert done == sorted(done)


def test_a_run_too_short_for_a_step_still_makes_one(cubes, tmp_path):
    trained = train(plan(cubes, steps=None, minutes=0.0001), tmp_path / "m.safetensors")
    assert trained.spec.steps == load_model(tmp_path / "m.safetensors").spec.steps == 1


def test_a_loss_that_is_no_number_stops_and_keeps_the_weights(cubes, tmp_path, monkeypatch):
    good = Patches.__call__

    def poisoned(self, step, index):
        patch = good(self, step, index)
        return replace(patch, high=patch.high * float("nan")) if step == 4 else patch

    monkeypatch.setattr(Patches, "__call__", poisoned)
    with pytest.raises(TrainingError, match=r"step 5.*m\.last\.safetensors"):
        train(plan(cubes), tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.last.safetensors").spec.steps == 4
