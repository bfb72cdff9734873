"""The rivals of PDE-Net's masks: what a draw of each is, and that training draws as inference does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pdenet_cli import Window
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError
from pdenet_cli.models.model import Model, load_model
from pdenet_cli.models.networks import build_network
from pdenet_cli.models.networks.base import Draw
from pdenet_cli.models.networks.dropout import DropoutNet
from pdenet_cli.models.networks.ensemble import EnsembleNet
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.train import TrainingPlan, train
from pdenet_cli.training.recipe import RECIPES, recipe_for
from tests.cubes import written
from tests.trainings import seeded, tiny, trainer_of

pytestmark = pytest.mark.usefixtures("same_weights")


LOW = torch.rand((1, 4, 5, 6), generator=seeded(7))


# Dropout


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_a_channel_is_left_out_with_the_rate_and_counts_as_much_in_the_mean(rate):
    network, samples = tiny("dropout", rate=rate), 4000
    masks = network.draw(seeded(0), samples).masks
    assert set(masks.unique().tolist()) == {0.0, torch.tensor(1 / (1 - rate)).item()}
    spread = (rate * (1 - rate) / samples) ** 0.5
    out = (masks == 0).double().mean(0)
    assert ((out - rate).abs() < 5 * spread).all()  # 5 sigma: one failure in 10 000 networks of 150 masks
    assert masks.mean().item() == pytest.approx(1, abs=0.01)


def test_the_temperature_softens_no_dropout():
    network = tiny("dropout")
    assert torch.equal(network.draw(seeded(1), 3, 0.05).masks, network.draw(seeded(1), 3, 1.0).masks)


def test_dropout_is_template_net_with_masks_where_pde_net_has_them():
    network, template, pdenet = tiny("dropout"), tiny("template"), PDENet(CONFIGS["tiny"])
    assert network.state_dict().keys() == template.state_dict().keys()
    network.load_state_dict(template.state_dict())
    pdenet.load_state_dict(template.state_dict(), strict=False)
    draw = network.draw(seeded(0), samples=3)
    with torch.no_grad():
        assert torch.equal(network(LOW), template(LOW))
        assert torch.equal(network.samples(LOW, draw), pdenet.samples(LOW, draw))


@pytest.mark.parametrize(
    ("name", "changes"), [("dropout", {"rate": 0}), ("dropout", {"rate": 1}), ("ensemble", {"members": 1})]
)
def test_what_has_no_chance_is_refused(name, changes):
    with pytest.raises(ModelError, match="cannot be built"):
        build_network(name, changes)


# Ensemble


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**63),
    members=st.integers(2, 5),
    calls=st.lists(st.integers(1, 7), min_size=1, max_size=6),
)
def test_members_take_turns_however_the_draws_are_asked_for(seed, members, calls):
    network = tiny("ensemble", members=members, stages=1, units=1, width=1, head=1)
    generator = seeded(seed)
    masks = torch.cat([network.draw(generator, samples).masks for samples in calls])
    assert (masks.sum(1) == 1).all()
    picked = masks.argmax(1)
    assert torch.equal(picked, (picked[0] + torch.arange(len(picked))) % members)


def test_every_sample_is_a_member_and_no_draw_their_mean():
    network = tiny("ensemble", members=3)
    alone = []
    for i in range(3):
        template = tiny("template")
        start = f"members.{i}."
        own = {n.removeprefix(start): w for n, w in network.state_dict().items() if n.startswith(start)}
        template.load_state_dict(own)
        with torch.no_grad():
            alone.append(template(LOW)[0])
    alone = torch.stack(alone)
    assert (alone[1:] - alone[:-1]).abs().flatten(1).amax(1).min() > 1e-3  # they begin differently
    with torch.no_grad():
        assert torch.equal(network.samples(LOW, network.draw(None, 4)), alone[[0, 1, 2, 0]])
        torch.testing.assert_close(network(LOW)[0], alone.mean(0), rtol=0, atol=1e-6)
        torch.testing.assert_close(network(LOW, Draw(torch.ones(1, 3))), network(LOW))
        torch.testing.assert_close(network(LOW, Draw(torch.tensor([[1.0, 0, 1]])))[0], alone[[0, 2]].mean(0))


def test_no_sample_is_made_twice():
    model = Model(ModelSpec("ensemble", {}, 4, {"scale": 4}, "0"), tiny("ensemble", members=3))
    assert [len(Posterior(model, n)) for n in (2, 3, 16)] == [2, 3, 3]
    turned = Posterior(model, 30, ensemble="flips")
    assert len(turned) == 24
    samples = turned.samples(LOW[0].numpy(), slice(None), Window(0, 0, 4 * LOW.shape[2], 4 * LOW.shape[3]))
    assert len(np.unique(samples.reshape(24, -1).round(4), axis=0)) == 24
    four = Model(model.spec, tiny("ensemble", members=4, stages=1, units=1))
    assert (
        len(Posterior(four, 30, ensemble="flips")) == 8
    )  # the ninth is the first member from the first side again


def test_only_the_member_whose_turn_it_is_runs():
    network, ran = tiny("ensemble", members=3), []
    for i, member in enumerate(network.members):
        member.register_forward_hook(lambda *_, i=i: ran.append(i))
    draw = network.draw(None, 2)
    network(LOW.expand(2, -1, -1, -1), draw)
    assert ran == [0, 1]
    with pytest.raises(ValueError, match="2 samples for a batch of 3"):
        network(LOW.expand(3, -1, -1, -1), draw)


@pytest.mark.parametrize("kind", [DropoutNet, EnsembleNet])
def test_a_x8_network_starts_from_a_x4_one(kind):
    four, eight = (kind(replace(kind.configs["tiny"], scale=scale)) for scale in (4, 8))
    fitting = eight.starting_from(four.state_dict(), 4)
    eight.load_state_dict(fitting)
    unchanged = [name for name in four.state_dict() if not name.endswith((".tail", "logits"))]
    assert all(torch.equal(fitting[name], four.state_dict()[name]) for name in unchanged)
    assert unchanged


def test_an_ensemble_takes_nothing_from_a_single_network():
    single = tiny("template").state_dict()
    assert tiny("ensemble", scale=8).starting_from(single, 4).keys() == single.keys()


# Training


@pytest.fixture(scope="module")
def cubes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    pixels = torch.randint(0, 10000, (8, 64, 64), generator=seeded(1)).numpy().astype("<u2")
    written(folder / "a.hdr", pixels)
    return folder


def test_dropout_begins_after_the_warm_up_and_validation_draws_with_it(cubes):
    trainer = trainer_of(cubes, "dropout")
    trainer.advance(0.1)
    assert trainer.draw(4) is None
    trainer.advance(0.3)
    assert len(trainer.draw(4)) == 4
    assert (trainer.draw(4).masks == 0).any()


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_ensemble_has_no_warm_up_that_would_train_the_mean_of_its_members(recipe):
    schedule = recipe_for(recipe, "ensemble", 4).schedule
    assert all(schedule(done / 100).temperature for done in range(100))


def test_a_patch_trains_one_member_and_every_member_has_its_share_of_patches(cubes):
    trainer = trainer_of(cubes, "ensemble", batch=1)
    taught = [0] * 4
    for step in range(80):
        before = [member.stages[0].head.clone() for member in trainer.network.members]
        trainer.advance(0.5)
        after = [member.stages[0].head for member in trainer.network.members]
        moved = [i for i in range(4) if not torch.equal(before[i], after[i])]
        assert len(moved) == 1, step
        taught[moved[0]] += 1
    assert min(taught) >= 8  # of 20: by chance less often than once in a thousand


@pytest.mark.parametrize("name", ["dropout", "ensemble"])
def test_it_trains_and_its_samples_differ(name, cubes, tmp_path):
    small = dict(batch=2, patch=16, bands=4)
    plan = TrainingPlan((cubes,), Degradation(4), network=name, config="tiny", changes=small, threads=1, steps=3)
    trained = train(plan, tmp_path / "m.safetensors")
    model = load_model(trained.files.model)
    assert model.spec.network == name
    posterior = Posterior(model, 4)
    samples = model.network.samples(LOW, posterior.draw)
    assert len(samples) == 4
    assert samples.std(0).max() > 0
