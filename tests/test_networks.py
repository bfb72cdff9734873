"""Every network keeps the contract; PDE-Net is the paper's, and its fast form is the plain one."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks import NETWORKS, Network, build_network
from pdenet_cli.models.networks.adapting import resized_tail
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, PDENetConfig, TemplateNet
from tests import plain
from tests.trainings import seeded

TINY = CONFIGS["tiny"]
PAPER_TINY = PDENetConfig(stages=2, units=3, width=8, head=4)  # the paper's choices, but small


pytestmark = pytest.mark.usefixtures("same_weights")


def cube(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=seeded(7))


# The contract: every network of the table.


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    kind = NETWORKS[request.param]
    return kind(kind.configs["tiny"])


def test_a_network_is_rebuilt_from_the_json_of_its_config(network: Network) -> None:
    name = next(name for name, kind in NETWORKS.items() if kind is type(network))
    again = build_network(name, json.loads(json.dumps(asdict(network.config))))
    again.load_state_dict(network.state_dict())
    low = cube(1, network.bands or 4, 5, 6)
    assert again.config == network.config
    assert torch.equal(again(low), network(low))


def test_a_cube_grows_by_the_scale(network: Network) -> None:
    low = cube(2, network.bands or 5, 6, 7)
    assert network(low).shape == (2, low.shape[1], 6 * network.scale, 7 * network.scale)


def test_a_network_works_where_it_is_sent(network: Network) -> None:
    elsewhere = torch.device("meta")  # every machine has it, and it does not mix with the CPU
    network = network.to(elsewhere)
    low, draw = cube(1, network.bands or 4, 5, 6).to(elsewhere), network.draw(seeded(1)).to(elsewhere)
    assert network.device == network(low, draw).device == elsewhere


def test_a_seed_fixes_the_draw_and_twenty_samples_begin_with_ten(network: Network) -> None:
    ten, twenty = network.draw(seeded(1), samples=10), network.draw(seeded(1), samples=20)
    generator = seeded(1)
    one_by_one = torch.cat([network.draw(generator).masks for _ in range(10)])
    assert torch.equal(twenty[:10].masks, ten.masks)
    assert torch.equal(one_by_one, ten.masks)


def test_drawing_leaves_the_global_generator_alone(network: Network) -> None:
    before = torch.get_rng_state()
    low = cube(1, network.bands or 4, 5, 5)
    network(low, network.draw(seeded(1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_of_draws_is_a_loop_over_draws(network: Network) -> None:
    low = cube(3, network.bands or 4, 5, 6)
    draw = network.draw(seeded(2), samples=3)
    loop = torch.cat([network(low[i : i + 1], draw[i]) for i in range(3)])
    torch.testing.assert_close(network(low, draw), loop, rtol=0, atol=1e-6)
    same_cube = torch.cat([network(low[:1], draw[i]) for i in range(3)])
    torch.testing.assert_close(network.samples(low[:1], draw), same_cube, rtol=0, atol=1e-6)


def test_draws_differ_only_where_there_is_chance(network: Network) -> None:
    first, second = network.samples(cube(1, network.bands or 4, 5, 6), network.draw(seeded(3), samples=2))
    assert torch.equal(first, second) != network.random


def test_the_declared_reach_is_the_true_one(network: Network) -> None:
    assert_reach(network)


def assert_reach(network: Network) -> None:
    """The gradient of the outputs over one low-resolution pixel ends exactly where the network says."""
    network = network.double()
    scale, halo = network.scale, network.halo
    side = 25 if halo is None else 2 * halo + 3  # one that looks everywhere sees the ends of any cube
    middle = side // 2
    low = cube(1, network.bands or 3, side, side).double().requires_grad_()
    for axis in (2, 3):
        block = network(low).narrow(axis, scale * middle, scale)
        (seen,) = torch.autograd.grad((block * cube(*block.shape)).sum(), low)
        other = [other for other in range(4) if other != axis]
        lines = seen.abs().sum(dim=other).nonzero()
        assert max(middle - int(lines.min()), int(lines.max()) - middle) == (middle if halo is None else halo)
    if network.band_halo is not None:
        middle = network.band_halo + 1
        low = cube(1, 2 * middle + 1, 4, 4).double().requires_grad_()
        band = network(low)[:, middle]
        (seen,) = torch.autograd.grad((band * cube(*band.shape)).sum(), low)
        lines = seen.abs().sum(dim=(0, 2, 3)).nonzero()
        assert (middle - int(lines.min()), int(lines.max()) - middle) == (network.band_halo, network.band_halo)


def test_an_unknown_network_or_field_is_named() -> None:
    with pytest.raises(ModelError, match="choose one of pdenet"):
        build_network("resnet", {})
    with pytest.raises(ModelError, match="depth"):
        build_network("pdenet", {"depth": 3})
    with pytest.raises(ModelError, match="choose one of paper, centred"):
        build_network("pdenet", {"kernel": "round"})


# PDE-Net: the paper's sizes.


@pytest.mark.parametrize(
    ("scale", "stages", "template", "pdenet"),
    [
        (4, 2, 1_147_407, 1_150_735),
        (4, 3, 1_721_098, 1_726_090),
        (4, 4, 2_294_789, 2_301_445),
        (4, 5, 2_868_480, 2_876_800),
        (4, 6, 3_442_171, 3_452_155),
        (4, 7, 4_015_862, 4_027_510),
        (8, 4, 2_319_421, 2_326_077),
    ],
)
def test_the_parameters_count_as_in_the_paper(scale: int, stages: int, template: int, pdenet: int) -> None:
    config = replace(CONFIGS["paper"], scale=scale, stages=stages)
    assert sum(p.numel() for p in TemplateNet(config).parameters()) == template
    assert sum(p.numel() for p in PDENet(config).parameters()) == pdenet


def test_the_paper_network_reaches_14_pixels_and_15_bands_per_stage() -> None:
    network = PDENet(CONFIGS["paper"])
    assert (network.halo, network.band_halo) == (56, 60)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
@pytest.mark.parametrize("choices", [PAPER_TINY, TINY], ids=["paper", "better"])
def test_the_reach_is_exact_at_every_scale(scale: int, choices: PDENetConfig) -> None:
    assert_reach(PDENet(replace(choices, scale=scale, stages=2, units=1, width=6, head=6)))


def test_a_tile_with_its_halo_gives_what_the_whole_scene_gives() -> None:
    network = PDENet(replace(TINY, units=1))
    halo, scale = network.halo, network.scale
    scene = cube(1, 3, 4 * halo, 4 * halo)
    draw = network.draw(seeded(0))
    whole = network(scene, draw)[..., scale * 2 * halo : scale * (2 * halo + 5), : scale * 5]
    padded = scene[
        ..., halo : 3 * halo + 5, : halo + 5
    ]  # inside the scene above and below, at its edge on the left
    tile = network(padded, draw)[..., scale * halo : scale * (halo + 5), : scale * 5]
    torch.testing.assert_close(tile, whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_brightness_is_kept_band_by_band(scale: int) -> None:
    kept = PDENet(replace(TINY, scale=scale))
    for stage in kept.stages:
        stage.smooth.data *= 10  # untrained networks add little light or none
    free = PDENet(replace(TINY, scale=scale, brightness="free"))
    free.load_state_dict(kept.state_dict())
    low = cube(1, 6, 20, 24)
    off, still_off = ((network(low).mean((2, 3)) - low.mean((2, 3))).abs().max() for network in (free, kept))
    assert still_off < 0.3 * off


def test_brightness_is_kept_around_each_pixel() -> None:
    network = PDENet(TINY)
    low = torch.zeros(1, 4, 24, 24)
    low[..., 12:] = 1  # far from the edge, the output is as bright as the input on both of its sides
    high = network(low)
    torch.testing.assert_close(high[..., 40:56, 2:6].mean(), torch.tensor(0.0), rtol=0, atol=1e-4)
    torch.testing.assert_close(high[..., 40:56, -6:-2].mean(), torch.tensor(1.0), rtol=0, atol=0.01)


def test_black_surroundings_neither_blow_up_nor_break_gradients() -> None:
    network = PDENet(TINY)
    low = torch.zeros(1, 4, 24, 24)
    low[..., 12, 12] = 1e-3
    low[..., 3, 3] = -0.5
    high = network(low)
    assert high.abs().max() < 2
    high.square().sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in network.parameters())


# PDE-Net: masks.


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_a_mask_exceeds_one_half_with_its_chance(temperature: float) -> None:
    network = PDENet(replace(TINY, mask_start=None))
    samples = 4000
    chance = torch.cat([p for name, p in network.named_parameters() if name.endswith("chance")])
    chance = chance.detach().clamp(0.02, 0.98)
    share = (network.draw(seeded(0), samples, temperature).masks > 0.5).double().mean(dim=0)
    spread = (chance * (1 - chance) / samples).sqrt()
    assert ((share - chance).abs() < 5 * spread).all()  # 5 sigma: one failure in 10 000 networks of 150 masks


def test_every_mask_starts_where_the_config_says() -> None:
    network = PDENet(replace(TINY, mask_start=0.8))
    chances = [p for name, p in network.named_parameters() if name.endswith("chance")]
    assert all(torch.equal(chance, torch.full_like(chance, 0.8)) for chance in chances)


def test_pde_net_with_every_mask_one_is_template_net() -> None:
    network, template = PDENet(TINY), TemplateNet(TINY)
    missing = network.load_state_dict(template.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(key.endswith("chance") for key in missing.missing_keys)
    low = cube(1, 4, 5, 6)
    ones = replace(network.draw(None), masks=torch.ones_like(network.draw(None).masks))
    assert torch.equal(network(low), template(low))
    torch.testing.assert_close(network(low, ones), template(low), rtol=0, atol=1e-6)


def test_masks_in_the_weights_equal_masks_on_the_features() -> None:
    network = PDENet(TINY)
    low, draw = cube(3, 4, 5, 6), network.draw(seeded(0), samples=3)
    on_features = network._stages(low, draw.masks, network.degrade)  # as on a GPU
    torch.testing.assert_close(on_features, network(low, draw), rtol=0, atol=1e-6)


def test_a_brush_of_another_scale_paints_the_same_slope() -> None:
    # A patch that is linear in the distance from its voxel's centre stays that function on a finer grid.
    def slope(scale: int) -> torch.Tensor:
        taps = (torch.arange(scale + 2) - (scale + 1) / 2) / scale
        return (taps[:, None] + 2 * taps).expand(1, 3, -1, -1)

    inside = slice(1, -1)  # within the old patch: 10 taps of x8 span less than 6 of x4
    assert torch.allclose(resized_tail(slope(4), 4, 8), slope(8), atol=1e-6)
    assert torch.allclose(
        resized_tail(slope(4), 4, 2)[..., inside, inside], slope(2)[..., inside, inside], atol=1e-6
    )


def test_masks_carry_the_gradient_to_their_chances() -> None:
    network = PDENet(replace(TINY, mask_start=0.5))
    network(cube(1, 4, 5, 6), network.draw(seeded(0), temperature=1.0)).square().mean().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if name.endswith("chance")}
    assert all(gradient is not None and gradient.any() for gradient in gradients.values())


# PDE-Net: the fast form against the plain one.

VARIANTS = {
    "paper x4": PAPER_TINY,
    "better x4": TINY,
    "paper x2": replace(PAPER_TINY, scale=2),
    "paper x3": replace(PAPER_TINY, scale=3),
    "better x3": replace(TINY, scale=3),
    "better x8": replace(TINY, scale=8),
    "one stage": replace(PAPER_TINY, stages=1),
    "one unit": replace(TINY, units=1),
    "two units": replace(TINY, units=2, stages=3),
    "only inputs masked": replace(PAPER_TINY, masks="K"),
    "only layers masked": replace(PAPER_TINY, masks="L"),
    "wide": replace(PAPER_TINY, width=20, head=12, units=6, stages=1),
}


@pytest.mark.parametrize("bands", [1, 3, 9])
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_fast_form_equals_the_plain_one(config: PDENetConfig, bands: int) -> None:
    network = PDENet(config)
    state = {name: p.detach().double() for name, p in network.named_parameters()}
    low, draw = cube(2, bands, 6, 5), network.draw(seeded(0), samples=2)
    with torch.no_grad():
        without = plain.forward(config, state, low.double())
        with_masks = plain.forward(config, state, low.double(), draw.masks.double())
        torch.testing.assert_close(network(low).double(), without, rtol=0, atol=1e-5)
        torch.testing.assert_close(network(low, draw).double(), with_masks, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            network.degrade(with_masks.float()).double(),
            plain.degrade(config, state, with_masks),
            rtol=0,
            atol=1e-5,
        )


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_gradients_of_the_fast_form_are_the_plain_ones(config: PDENetConfig) -> None:
    network = PDENet(config)
    low, masks = cube(2, 4, 6, 5), network.draw(seeded(0), samples=2, temperature=1.0)
    target = cube(2, 4, 6 * config.scale, 5 * config.scale)

    high = network(low, masks)
    ((high - target).abs().mean() + (network.degrade(high) - low).square().mean()).backward()

    reference = PDENet(config).double()
    reference.load_state_dict(network.state_dict())
    state = dict(reference.named_parameters())
    masks = reference.draw(seeded(0), samples=2, temperature=1.0)
    high = plain.forward(config, state, low.double(), masks.masks)
    consistency = (plain.degrade(config, state, high) - low).square().mean()
    ((high - target).abs().mean() + consistency).backward()

    for name, parameter in network.named_parameters():
        expected = state[name].grad
        if expected is None:
            expected = torch.zeros_like(state[name])
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            found.double(), expected, rtol=1e-3, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("bands", [1, 3, 400])
def test_any_number_of_bands_and_any_size_runs(bands: int) -> None:
    network = TemplateNet(TINY)
    with torch.no_grad():
        assert network(cube(1, bands, 1, 2)).shape == (1, bands, 4, 8)


# PDE-Net: the learned degradation.


@pytest.mark.parametrize("choices", [PAPER_TINY, TINY], ids=["paper", "better"])
def test_the_learned_kernel_is_non_negative_and_sums_to_one(choices: PDENetConfig) -> None:
    network = TemplateNet(choices)
    torch.nn.init.normal_(network.degradation.logits, std=3)
    kernel = network.degradation.kernel()
    assert (kernel >= 0).all()
    assert kernel.sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("scale", [2, 3, 4, 5, 8])
def test_the_centred_kernel_with_a_symmetric_border_keeps_constants_and_centres(scale: int) -> None:
    network = TemplateNet(replace(TINY, scale=scale))
    flat = torch.full((1, 2, 5 * scale, 4 * scale), 0.3)
    torch.testing.assert_close(network.degrade(flat), torch.full((1, 2, 5, 4), 0.3))
    ramp = torch.arange(9.0 * scale).expand(1, 1, 9 * scale, -1)
    centres = scale * torch.arange(9) + (scale - 1) / 2
    torch.testing.assert_close(network.degrade(ramp)[0, 0, 4, 2:-2], centres[2:-2])


# A network that undoes any point spread


SPREADS = (Degradation(4), Degradation(4, "gaussian", 1.6), Degradation(4, "area"), Degradation(4, "area", 2.5))


@pytest.fixture
def spread_network() -> PDENet:
    """A network for any point spread whose gains have learned something."""
    network = PDENet(replace(TINY, psf="any"))
    with torch.no_grad():
        network.psf_gains.uniform_(-0.3, 0.3, generator=seeded(5))
    return network.requires_grad_(False)


def test_the_point_spread_changes_the_result_and_bicubic_is_the_usual_one(spread_network: PDENet) -> None:
    low, draw = cube(1, 4, 6, 6), spread_network.draw(seeded(0), samples=2)
    usual = spread_network.samples(low, draw)
    bicubic, gaussian, area, soft = (
        spread_network.samples(low, spread_network.draw_for(spread, draw)) for spread in SPREADS
    )
    assert torch.equal(bicubic, usual)
    for other in (gaussian, area, soft):
        assert float((other - usual).abs().mean()) > 1e-3
    certain = spread_network(low, spread_network.draw_for(SPREADS[1], None))
    assert not torch.equal(certain, spread_network(low))  # the gains are there without masks too


def test_the_residual_of_a_stage_is_of_the_point_spread_that_the_draw_names(spread_network: PDENet) -> None:
    high = cube(1, 3, 24, 24)
    for spread in SPREADS:
        torch.testing.assert_close(spread_network.degrade(high, spread), spread(high))
    noisy = spread_network.draw_for(replace(SPREADS[1], noise=0.1), spread_network.draw(seeded(0)))
    assert noisy is not None
    assert noisy.degradation == SPREADS[1]  # noise is no part of what the stages undo


@pytest.mark.parametrize("brightness", ["kept", "free"])
def test_no_point_spread_reaches_beyond_the_declared_halo(brightness: str) -> None:
    network = PDENet(replace(TINY, psf="any", brightness=brightness)).double()
    assert network.halo is not None
    side, scale = 2 * network.halo + 3, network.scale
    middle = side // 2
    reaches = []
    for spread in SPREADS:
        low = cube(1, 2, side, side).double().requires_grad_()
        block = network(low, network.draw_for(spread, None)).narrow(3, scale * middle, scale)
        (seen,) = torch.autograd.grad((block * cube(*block.shape)).sum(), low)
        columns = seen.abs().sum(dim=(0, 1, 2)).nonzero()
        reaches.append(max(middle - int(columns.min()), int(columns.max()) - middle))
    assert max(reaches) == reaches[-1] == network.halo


def test_masks_and_weights_learn_through_the_gains() -> None:
    network = PDENet(replace(TINY, psf="any"))
    draw = network.draw_for(SPREADS[1], network.draw(seeded(0), temperature=1.0))
    network(cube(1, 3, 6, 6), draw).square().sum().backward()
    assert network.psf_gains.grad is not None
    assert float(network.psf_gains.grad.abs().sum()) > 0
    assert all(float(chance.grad.abs().sum()) > 0 for chance in network.chances())


def test_a_network_for_any_point_spread_begins_as_the_one_it_started_from() -> None:
    before, after = PDENet(TINY), PDENet(replace(TINY, psf="any"))
    taken = after.starting_from(before.state_dict(), 4)
    after.load_state_dict(taken)
    assert torch.equal(after.psf_gains, torch.zeros_like(after.psf_gains))
    assert all(
        torch.equal(after.state_dict()[name], w) for name, w in before.state_dict().items() if "stages" in name
    )


def test_only_masks_can_carry_a_point_spread() -> None:
    with pytest.raises(ModelError, match="psf=any needs masks"):
        TemplateNet(replace(TINY, psf="any"))
