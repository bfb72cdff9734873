"""The published recipe: its steps, rates and temperatures, its patches, and the losses that follow from both."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from pdenet_cli import open_cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import UsageError
from pdenet_cli.models.model import load_model
from pdenet_cli.models.networks.pdenet import PDENetConfig
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.train import train
from pdenet_cli.training.data import Scene, band_means
from pdenet_cli.training.loop import Budget
from pdenet_cli.training.patches import Patches
from pdenet_cli.training.recipe import recipe_for
from pdenet_cli.training.schedules import SHARP
from pdenet_cli.training.trainer import Trainer, new_network
from tests import plain
from tests.cubes import picture, written
from tests.trainings import plan

# Length and schedule


def scene_of(bands: int, rows: int, columns: int) -> Scene:
    """A scene of zeros that takes no memory, nothing of it held out."""
    pixels = np.broadcast_to(np.zeros((), np.uint8), (bands, rows, columns))
    return Scene("zeros", pixels, Radiometry((1 / 255,), (0.0,), ""), {}, holdout="none")


@pytest.mark.parametrize(
    ("data", "recipe", "scenes", "patches", "steps"),
    [
        ("CAVE x4", "paper", [scene_of(31, 512, 512)] * 20, 2880, 720),
        ("Harvard x4", "paper,stride=64,block=256", [scene_of(31, 1024, 1280)] * 30, 5400, 1350),
    ],
)
def test_an_epoch_has_as_many_steps_as_published(data, recipe, scenes, patches, steps) -> None:
    order = Patches(scenes, recipe_for(recipe, "pdenet", 4), 4, seed=0).order
    assert order is not None
    assert (len(order.places), order.steps_an_epoch) == (patches, steps)
    for epoch in (0, 1):
        seen = Counter(
            order.at(step, index) for step in range(epoch * steps, (epoch + 1) * steps) for index in range(4)
        )
        assert set(seen.values()) == {1}
        assert len(seen) == patches
    assert order.at(0, 0) != order.at(steps, 0)  # another order in the next epoch


def published(phase_epochs: int, milestones: list[int]) -> list[float]:
    """The rate of each epoch under a scheduler that steps before the epoch, as the published code calls it."""
    adam = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(adam, milestones, 0.5)
    rates = []
    for _ in range(phase_epochs):
        adam.step()
        scheduler.step()
        rates.append(adam.param_groups[0]["lr"])
    return rates


SCHEDULES = {
    "pdenet": published(50, [25, 50]) + published(100, [25, 50, 75, 100]),
    "mcnet": published(200, [35, 70, 105, 140, 175]),
    "ercsr": published(85, [35, 70]),
    "sspsr": [1.0] * 29 + [0.1] * 11,
    "3dfcnn": [1.0] * 200,
}


@pytest.mark.parametrize(("network", "rates"), SCHEDULES.items(), ids=SCHEDULES)
def test_every_step_has_the_published_rate_and_temperature(network: str, rates: list[float]) -> None:
    recipe = recipe_for("paper", network, 4)
    assert recipe.epochs == len(rates)
    an_epoch = 720 * 4 // recipe.batch
    budget = Budget(steps=recipe.epochs * an_epoch)
    assert network != "pdenet" or budget.steps == 108_000
    for epoch, rate in enumerate(rates):
        for step in {0, 1, an_epoch // 2, an_epoch - 1}:
            now = recipe.schedule(budget.done(epoch * an_epoch + step, 0.0, 0.0))
            assert now.rate == pytest.approx(rate), (epoch, step)
            if network == "pdenet":
                number = epoch + 1 - 50
                soft = 1 - number / 35 if number <= 30 else SHARP
                assert now.temperature == (None if epoch < 50 else pytest.approx(soft)), (epoch, step)


@pytest.mark.parametrize(
    ("network", "lr", "batch"),
    [("pdenet", 5e-4, 4), ("template", 5e-4, 4), ("mcnet", 1e-4, 16), ("ercsr", 1e-4, 12), ("sspsr", 1e-4, 32)],
)
def test_the_recipe_is_each_systems_own(network, lr, batch) -> None:
    recipe = recipe_for("paper", network, 8)
    assert (recipe.lr, recipe.batch, recipe.betas, recipe.clip, recipe.patch) == (
        lr,
        batch,
        (0.9, 0.999),
        0.0,
        128,
    )
    assert recipe.keep_last
    assert recipe.bands == 0  # all


# Patches


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    path = written(tmp_path_factory.mktemp("scene") / "scene.hdr", picture(5, 80, 96))
    return Scene.read(open_cube(path), holdout="none")


SYMMETRIES = [(turns, mirrored) for turns in range(4) for mirrored in (False, True)]


def turned(cube: torch.Tensor, turns: int, mirrored: bool) -> torch.Tensor:
    cube = cube.rot90(turns, (-2, -1))
    return cube.flip(-1) if mirrored else cube


@pytest.mark.parametrize("block", [0, 40])
@pytest.mark.parametrize("usual", [Degradation(4), Degradation(4, "gaussian", 1.5)], ids=str)
def test_inputs_are_cut_from_the_degraded_scene_or_block(scene, block, usual) -> None:
    recipe = replace(recipe_for("paper", "pdenet", 4), patch=24, stride=8, block=block)
    patches = Patches([scene], recipe, 4, seed=0, reach=usual.reach)
    order = patches.order
    assert order is not None
    seen, differs = set(), False
    for step in range(order.steps_an_epoch):
        for index in range(recipe.batch):
            patch, place = patches(step, index), order.at(step, index)
            whole = torch.from_numpy(scene.unit(place.region, slice(None))[0])
            window = place.window.relative_to(place.region)
            low = usual(whole[None])[0][:, *window.coarsened(4).slices]
            high = whole[:, *window.slices]
            fitting = [s for s in SYMMETRIES if torch.equal(turned(high, *s), patch.high)]
            assert fitting
            found = patch.low(usual)
            torch.testing.assert_close(found, turned(low, *fitting[0]), rtol=0, atol=1e-6)
            seen |= {*fitting} if len(fitting) == 1 else set()
            differs |= not torch.allclose(usual(patch.high[None])[0], found, rtol=0, atol=1e-3)
    assert seen == {*SYMMETRIES}
    assert differs  # from inputs made of the patch alone


def test_no_patch_touches_what_is_held_out(cubes) -> None:
    held = Scene.read(open_cube(cubes / "a.hdr"))
    order = Patches([held], replace(recipe_for("paper", "pdenet", 4), patch=16, stride=4), 4, seed=0).order
    assert order is not None
    part = held.held_out(4)
    assert part is not None
    assert len(order.places) > 10
    assert not any(place.window.overlaps(part) for place in order.places)


def test_epochs_need_places_and_these_whole_coarse_pixels() -> None:
    with pytest.raises(UsageError, match="need a stride"):
        recipe_for("fast,epochs=3", "pdenet", 4)
    with pytest.raises(UsageError, match="must be multiples of the scale, 4"):
        Patches([scene_of(3, 64, 64)], recipe_for("paper,stride=30", "pdenet", 4), 4, seed=0)


# Losses


def test_the_first_losses_are_those_of_a_plain_formulation(scene) -> None:
    """Twenty steps of the published loop, written out: half of them without masks, half with."""
    config = PDENetConfig(stages=2, units=3, width=8, head=4)
    network = new_network("pdenet", "paper,stages=2,units=3,width=8,head=4", 4, seed=0)
    assert network.config == config
    recipe = replace(recipe_for("paper", "pdenet", 4), patch=24, stride=8, batch=2)
    patches = Patches([scene], recipe, 4, seed=0)
    state = {name: p.detach().double().clone().requires_grad_() for name, p in network.named_parameters()}
    trainer = Trainer(network, patches, Degradation(4), torch.device("cpu"))
    usual, losses, expected = Degradation(4), [], []
    for step in range(20):
        done = (49 + step / 10) / 150  # the last epoch without masks, then the first with
        losses.append(trainer.advance(done).loss)
        if step in (0, 10):  # each phase has an Adam of its own
            adam = torch.optim.Adam(state.values(), lr=5e-4 * (0.25 if step < 10 else 1.0))
        batch = [patches(step, index) for index in range(2)]
        high = torch.stack([patch.high for patch in batch]).double()
        low = torch.stack([patch.low(usual) for patch in batch]).double()
        masks = None if step < 10 else torch.cat([plain_masks(state, p.generator, 34 / 35) for p in batch])
        estimate = plain.forward(config, state, low, masks)
        loss = (estimate - high).abs().mean() + (low - plain.degrade(config, state, estimate)).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        expected.append(float(loss.detach()))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert len({*losses}) == 20


def plain_masks(state, generator: torch.Generator, temperature: float) -> torch.Tensor:
    """sigmoid((ln(p / (1 - p)) + ln(u / (1 - u))) / τ), where ln(u / (1 - u)) is a logistic variable."""
    chance = torch.cat([p for name, p in state.items() if name.endswith(".chance")]).clamp(0.02, 0.98)
    u = torch.rand(len(chance), generator=generator, dtype=torch.float64)
    return torch.sigmoid((torch.log(chance / (1 - chance)) + torch.log(u / (1 - u))) / temperature)[None]


# A run


def test_a_run_of_the_recipe_trains_the_papers_network_and_keeps_its_last_state(cubes, tmp_path) -> None:
    small = dict(batch=1, patch=16)
    run = plan(
        cubes / "a.hdr", recipe="paper", config=None, changes=small, steps=2, validate=(cubes / "small.hdr",)
    )
    trained = train(run, tmp_path / "model.safetensors")
    assert trained.spec.config["stages"] == 4
    assert trained.spec.config["width"] == 64
    assert trained.spec.config["upsampling"] == "torch"
    assert trained.spec.steps == 2
    model, last = (load_model(path).network.state_dict() for path in (trained.files.model, trained.files.last))
    assert all(torch.equal(weight, last[name]) for name, weight in model.items())


def test_the_last_state_is_kept_whatever_validation_says(cubes, tmp_path, monkeypatch) -> None:
    from pdenet_cli.training import loop

    scores = iter(range(100, 0, -1))  # worse and worse

    def falling(network, parts, draw, device):
        names = ("sam", "single_psnr", "bicubic_psnr", "bicubic_sam")
        return {"psnr": float(next(scores)), "draws": 0, "cubes": {}} | dict.fromkeys(names, 1.0)

    monkeypatch.setattr(loop, "validate", falling)
    changes = dict(batch=1, patch=16, bands=6)
    for recipe, kept in (("paper", 6), ("fast", 1)):
        run = plan(cubes / "a.hdr", recipe=recipe, changes=changes, network="template")
        spec = train(run, tmp_path / f"{recipe}.safetensors").spec
        assert spec.steps == kept, recipe


@pytest.mark.parametrize("network", ["mcnet", "ercsr"])
def test_the_mean_of_every_band_is_subtracted_and_stored(cubes, tmp_path, network) -> None:
    run = plan(cubes / "a.hdr", network=network, recipe="paper", changes=dict(batch=1, patch=16), steps=1)
    spec = train(run, tmp_path / "model.safetensors").spec
    scene = Scene.read(open_cube(cubes / "a.hdr"))
    means = scene.unit(Window(0, 0, 64, 72), slice(None))[0].mean((1, 2))
    np.testing.assert_allclose(spec.config["mean"], means, rtol=1e-5)
    network_ = load_model(tmp_path / "model.safetensors").network
    assert network_.bands == 12
    np.testing.assert_allclose(network_.mean.flatten(), means, rtol=1e-5)
    assert math.isclose(float(network_.mean[3]), band_means([scene])[3], rel_tol=1e-6)


def test_cubes_of_different_bands_have_no_common_means(cubes, tmp_path) -> None:
    run = plan(cubes, network="mcnet", recipe="paper", changes=dict(batch=1, patch=16), steps=1)
    with pytest.raises(UsageError, match=r"mean of each band, but the cubes have 3 and 12 and 40 usable bands"):
        train(run, tmp_path / "model.safetensors")
