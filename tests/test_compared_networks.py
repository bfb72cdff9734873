"""The systems the paper compares with: their sizes, what they refuse, their losses, and that each learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pdenet_cli import Job, Posterior, Settings, open_cube
from pdenet_cli.degradation import Degradation, bicubic_down, bicubic_up
from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.models.model import Model, load_model, save_model, training_tensors
from pdenet_cli.models.networks import NETWORKS, build_network
from pdenet_cli.models.networks.gan3d import Discriminator, spectral_angle
from pdenet_cli.models.networks.nas import NASNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import read_tensors
from pdenet_cli.tools.train import TrainingPlan, train
from tests.cubes import written
from tests.trainings import seeded, tiny, trainer_of

TRAINABLE = [name for name in NETWORKS if name != "bicubic"]
BAND_BOUND = [name for name, kind in NETWORKS.items() if "bands" in kind.Config.__dataclass_fields__]
DOUBLING = ["3dgan", "sspsr"]


pytestmark = pytest.mark.usefixtures("same_weights")


def scene(bands=6, side=24):
    """Smooth in space and spectrum, so that there is something to learn."""
    rough = torch.rand((1, bands // 2, side // 4, side // 4), generator=seeded(1))
    smooth = F.interpolate(rough[:, None], (bands, side, side), mode="trilinear")[:, 0]
    return smooth / smooth.max()


# Sizes


@pytest.mark.parametrize(
    ("name", "x4", "x8"),
    [
        ("3dfcnn", 39_405, 39_405),
        ("sspsr", 26_077_475, 28_437_795),
        ("mcnet", 2_174_094, 2_960_526),
        ("ercsr", 1_594_502, 2_380_934),
        ("nas", 2_301_445, 2_326_077),
        ("bicubic", 0, 0),
    ],
)
def test_the_parameters_count_as_published(name, x4, x8):
    assert [parameters(name, scale) for scale in (4, 8)] == [x4, x8]


def test_the_generator_of_3dgan_is_about_as_large_as_published():
    assert parameters("3dgan", 4) == pytest.approx(0.59e6, rel=0.02)
    assert parameters("3dgan", 8) == pytest.approx(0.66e6, rel=0.02)


def parameters(name, scale):
    with torch.device("meta"):
        network = NETWORKS[name](replace(NETWORKS[name].configs["paper"], scale=scale))
    return sum(p.numel() for p in network.parameters())


# Scales, bands and reach


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_scale_is_made_or_refused_in_one_line(name, scale):
    if name in DOUBLING and scale == 3:
        with pytest.raises(ModelError, match="x3 cannot be built; choose x2, x4 or x8"):
            tiny(name, scale=scale)
        return
    network = tiny(name, scale=scale)
    bands = network.bands or 3
    with torch.no_grad():
        assert network(torch.rand(1, bands, 4, 5)).shape == (1, bands, 4 * scale, 5 * scale)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize("name", [name for name in TRAINABLE if name not in (*DOUBLING, "pdenet", "template")])
def test_a_tile_with_its_halo_gives_what_the_whole_scene_gives(name, scale):
    network = tiny(name, scale=scale)
    halo, top = network.halo, network.halo + 3
    whole_scene = torch.rand(1, 5, 2 * halo + 9, halo + 6)
    draw = network.draw(seeded(0))
    with torch.no_grad():
        whole = network(whole_scene, draw)[..., scale * top : scale * (top + 2), : scale * 2]
        piece = whole_scene[..., top - halo : top + 2 + halo, : 2 + halo]
        tile = network(piece, draw)[..., scale * halo : scale * (halo + 2), : scale * 2]
    torch.testing.assert_close(tile, whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", DOUBLING)
def test_a_network_that_looks_everywhere_takes_no_margin_of_ours(name, tmp_path):
    network = tiny(name)
    scene = written(tmp_path / "scene.hdr", np.random.default_rng(0).random((network.bands, 8, 8), np.float32))
    model = Model(ModelSpec(name, {}, 4, {}, name), network)
    with pytest.raises(UsageError, match="looks at the whole scene at once"):
        Job(scene, tmp_path / "fine.hdr", Posterior(model, 1), Settings(halo=2))


def test_bicubic_is_the_fields_bicubic():
    low = torch.rand(2, 3, 6, 5)
    assert torch.equal(build_network("bicubic", {"scale": 3})(low), bicubic_up(low, 3))


@pytest.mark.parametrize("name", BAND_BOUND)
def test_a_network_made_for_one_band_count_says_so(name):
    assert tiny(name).bands == 6
    assert tiny(name, bands=9).bands == 9


def test_only_the_networks_that_need_it_are_made_for_one_band_count():
    assert {name for name in NETWORKS if tiny(name).bands is not None} == set(BAND_BOUND) == set(DOUBLING)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sspsr", {"overlap": 4}),
        ("sspsr", {"bands": 3}),
        ("sspsr", {"blocks": 0}),
        ("3dgan", {"bands": 0}),
        ("mcnet", {"modules": 0}),
        ("ercsr", {"scale": 1}),
        ("3dfcnn", {"narrow": 0}),
        ("bicubic", {"scale": 0}),
    ],
)
def test_a_size_that_cannot_be_is_refused(name, changes):
    with pytest.raises(ModelError, match="cannot be built"):
        build_network(name, changes)


def test_sspsr_covers_every_band_and_ends_with_the_last():
    network = tiny("sspsr", bands=9, group=4, overlap=1)
    assert network.starts == [0, 3, 5]
    torch.nn.init.zeros_(network.branch[-1].weight)
    torch.nn.init.ones_(network.branch[-1].bias)
    with torch.no_grad():
        torch.testing.assert_close(network._by_groups(torch.rand(1, 9, 3, 3)), torch.ones(1, 9, 6, 6))


# Saved, loaded, and refused for other cubes


def model_file(folder, name, **changes):
    network = tiny(name, **changes)
    config = {f: getattr(network.config, f) for f in network.config.__dataclass_fields__}
    spec = ModelSpec(name, config, network.scale, Degradation(network.scale).to_dict(), "test")
    path = folder / f"{name}.safetensors"
    save_model(path, Model(spec, network))
    return path, network


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_is_saved_loaded_and_gives_the_same(name, tmp_path):
    path, network = model_file(tmp_path, name)
    loaded = load_model(path).network
    low = torch.rand(1, network.bands or 4, 5, 6)
    with torch.no_grad():
        draw = network.draw(seeded(0))
        assert torch.equal(loaded(low, draw), network(low, draw))


def test_a_cube_with_other_bands_is_refused_and_the_right_one_run_whole(tmp_path, make_cube, pdenet):
    path, _ = model_file(tmp_path, "sspsr")
    make_cube("right.hdr", bands=6, rows=20, columns=17)
    make_cube("wrong.hdr", bands=5)
    ran = pdenet("upscale", tmp_path / "wrong.hdr", "-o", tmp_path / "no.hdr", "--model", path)
    assert (ran.returncode, ran.stderr.count("\n")) == (4, 1)
    assert "made for 6 bands" in ran.stderr
    outputs = []
    for name, options in (("whole", ()), ("tiles", ("--tile", 8))):
        out = tmp_path / f"{name}.hdr"
        common = ("--model", path, "--range", 0, 200, "--dtype", "float32")
        ran = pdenet("upscale", tmp_path / "right.hdr", "-o", out, *common, *options)
        assert ran.returncode == 0, ran.stderr
        outputs.append(open_cube(out).read())
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-5)


def test_bicubic_upscales_like_any_other_model(tmp_path, make_cube, pdenet):
    path, _ = model_file(tmp_path, "bicubic", scale=2)
    scene_path, pixels = make_cube()
    ran = pdenet("upscale", scene_path, "-o", tmp_path / "out.hdr", "--model", path, "--dtype", "float32")
    assert ran.returncode == 0, ran.stderr
    expected = bicubic_up(torch.from_numpy(pixels.astype("f8")), 2).numpy().clip(0)
    np.testing.assert_allclose(open_cube(tmp_path / "out.hdr").read(), expected, atol=1e-3)


# Losses


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_few_steps_lower_the_loss_on_a_fixed_patch(name):
    network = tiny(name)
    rival = network.new_rival()
    high = scene()
    low = bicubic_down(high, 4)
    adam = torch.optim.Adam(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(12):
        adam.zero_grad()
        loss = network.loss(network(low), high, low, rival=rival)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert losses[-1] < 0.98 * losses[0]


def test_the_losses_are_those_of_the_papers():
    estimate, high, low = torch.rand(2, 6, 8, 8), torch.rand(2, 6, 8, 8), torch.rand(2, 6, 2, 2)
    e, h = estimate.double().numpy(), high.double().numpy()
    l1 = np.abs(e - h).mean()
    tv = np.square(np.diff(e, axis=2)).mean() + np.square(np.diff(e, axis=3)).mean()
    smooth = l1 + 1e-3 * tv + 2e-3 * np.square(np.diff(e, axis=1)).mean()
    angle = np.arccos((e * h).sum(1) / np.linalg.norm(e, axis=1) / np.linalg.norm(h, axis=1)).mean()
    expected = {"3dfcnn": np.square(e - h).mean(), "mcnet": l1, "ercsr": l1, "sspsr": smooth, "3dgan": l1}
    for name, value in expected.items():
        assert tiny(name).loss(estimate, high, low).item() == pytest.approx(value, rel=1e-5)
    rival = Discriminator(4)
    assert spectral_angle(estimate, high).item() == pytest.approx(angle, rel=1e-5)
    margin = rival(estimate) - rival(high)
    against = -F.logsigmoid(margin).mean().item()
    met = tiny("3dgan").loss(estimate, high, low, rival=rival).item()
    assert met == pytest.approx(l1 + 1e-3 * against + 1e-2 * angle, rel=1e-5)
    assert rival.loss(estimate, high).item() == pytest.approx(-F.logsigmoid(-margin).mean().item(), rel=1e-5)


def test_the_angle_of_equal_spectra_has_a_finite_slope():
    cube = torch.rand(1, 5, 4, 4, requires_grad=True)
    spectral_angle(cube, cube.detach().clone()).backward()
    assert cube.grad.isfinite().all()


# Training


@pytest.fixture(scope="module")
def cubes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    pixels = (10000 * scene(8, 64)[0].numpy()).astype("<u2")
    written(folder / "a.hdr", pixels)
    return folder


def plan(cubes, network, **changes):
    small = dict(batch=2, patch=16, bands=4)
    return TrainingPlan(
        (cubes,), Degradation(4), network=network, config="tiny", changes=small, threads=1, **changes
    )


@pytest.mark.parametrize("name", ["3dgan", "nas", "mcnet"])
def test_a_stopped_and_resumed_run_ends_as_an_unbroken_one(name, cubes, tmp_path):
    whole = train(plan(cubes, name, steps=10), tmp_path / "whole.safetensors")
    seen = []
    part = train(
        plan(cubes, name, steps=10), tmp_path / "part.safetensors", watch=seen.append, stop=lambda: len(seen) > 8
    )
    assert not part.finished
    part = train(plan(cubes, name, steps=10), tmp_path / "part.safetensors", resume=True)
    assert part.finished
    for ours, theirs in ((part.files.last, whole.files.last), (part.files.model, whole.files.model)):
        one, other = read_tensors(ours), read_tensors(theirs)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    rivals = [key for key in training_tensors(part.files.last) if key.startswith("rival")]
    assert bool(rivals) == (name == "3dgan")


def test_every_other_system_trains(cubes, tmp_path):
    for name in ("3dfcnn", "sspsr", "ercsr"):
        trained = train(plan(cubes, name, steps=2), tmp_path / f"{name}.safetensors")
        assert trained.spec.network == name


def test_what_has_no_weights_is_not_trained(cubes, tmp_path):
    with pytest.raises(UsageError, match="bicubic has no weights"):
        train(plan(cubes, "bicubic", steps=2), tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match="31 bands"):
        train(replace(plan(cubes, "sspsr", steps=2), config="tiny,bands=31"), tmp_path / "m.safetensors")


def test_the_rival_waits_for_the_end_of_the_warm_up_and_is_not_moved_by_the_network(cubes):
    trainer = trainer_of(cubes, "3dgan")
    before = [p.clone() for p in trainer.rival.module.parameters()]
    trainer.advance(0.1)
    assert all(torch.equal(p, q) for p, q in zip(before, trainer.rival.module.parameters(), strict=True))
    trainer.advance(0.3)
    assert not any(torch.equal(p, q) for p, q in zip(before, trainer.rival.module.parameters(), strict=True))

    again = trainer_of(cubes, "3dgan")
    again.advance(0.1)
    again.network.loss = lambda *_: sum(p.sum() for p in again.network.parameters())  # never asks the rival
    again.advance(0.3)
    for p, q in zip(again.rival.module.parameters(), trainer.rival.module.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_rival_learns_to_tell_the_truth_from_a_blur():
    rival = Discriminator(4)
    adam = torch.optim.Adam(rival.parameters(), lr=5e-3)
    high = torch.rand(2, 6, 16, 16)
    blurred = bicubic_up(bicubic_down(high, 4), 4)
    losses = []
    for _ in range(20):
        adam.zero_grad()
        loss = rival.loss(blurred, high)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_a_search_draws_then_keeps_the_mode_of_every_mask(cubes):
    trainer = trainer_of(cubes, "nas", gains=(1.0, 1.0))
    network, product = trainer.network, trainer.average
    assert isinstance(network, NASNet)
    with torch.no_grad():
        for chance in trainer.chances:
            chance.uniform_(0.2, 0.8)
    for done in (0.1, 0.3, 0.7):
        trainer.advance(done)
    assert not torch.equal(network.draw(seeded(0), 1, 0.05).masks, network.draw(seeded(1), 1, 0.05).masks)
    chosen = network.draw(None).masks
    assert set(chosen.unique().tolist()) == {0.0, 1.0}
    before = {name: p.clone() for name, p in network.named_parameters()}
    for done in (0.9, 0.95):
        assert trainer.advance(done).temperature == 0
    moved = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert not any(name.endswith(".chance") for name in moved)
    for kept in (network, product):
        assert torch.equal(kept.draw(seeded(0), 3).masks, chosen.expand(3, -1))


def test_a_mode_is_the_sub_network_of_its_masks():
    network = tiny("nas", mask_start=None)
    low = torch.rand(1, 4, 5, 6)
    chance = torch.cat([p for name, p in network.named_parameters() if name.endswith(".chance")])
    masks = replace(network.draw(None), masks=(chance > 0.5).float()[None])
    with torch.no_grad():
        assert torch.equal(network(low, network.draw(None)), network.space(low, masks))
        assert not torch.equal(network(low, masks), network(low))
