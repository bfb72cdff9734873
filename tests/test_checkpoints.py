"""Checkpoints of the published codes: imported they compute the same, exported they are what they were."""

import json

import numpy as np
import pytest
import torch

from pdenet_cli.errors import ModelError, OutputError, UsageError
from pdenet_cli.models.cost import cost_of
from pdenet_cli.models.model import load_model
from pdenet_cli.models.networks.base import Draw
from pdenet_cli.models.published import BAND_MEANS
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.checkpoints import export_checkpoint, import_checkpoint
from tests import published
from tests.trainings import plan, seeded

BANDS = 31
MEANS = torch.tensor(BAND_MEANS["cave"]).double()[:, None, None]
PARAMETERS = {
    "pdenet": {4: 2_301_445, 8: 2_326_077},
    "template": {4: 2_294_789, 8: 2_319_421},
    "mcnet": {4: 2_174_094, 8: 2_960_526},
    "ercsr": {4: 1_594_502, 8: 2_380_934},
}
CASES = {
    "pdenet": lambda scale: (published.pde_net_shapes(scale, chances=True), {}),
    "template": lambda scale: (published.pde_net_shapes(scale, chances=False), {}),
    "mcnet": lambda scale: (published.mcnet_shapes(scale), {"means": "cave"}),
    "ercsr": lambda scale: (published.ercsr_shapes(scale), {"means": "cave"}),
    "sspsr": lambda scale: (published.sspsr_shapes(scale), {}),
    "sspsr of 8": lambda scale: (published.sspsr_shapes(scale, group=8), {}),
}


def plain(name: str, state, low, scale: int):
    match name:
        case "pdenet" | "template":
            return published.pde_net(state, low, scale)
        case "mcnet":
            return published.mcnet(state, low, scale, MEANS)
        case "ercsr":
            return published.ercsr(state, low, scale, MEANS)
    return published.sspsr(state, low, scale, *((8, 2) if name.endswith("8") else (4, 1)))


def held(state, name):
    """As the authors' codes save it: those of several GPUs under `model`, SSPSR alone."""
    if name.startswith("sspsr"):
        return state
    return {
        "epoch": 100,
        "model": {f"module.{key}": tensor for key, tensor in state.items()},
        "optimizer": {"lr": 1},
    }


@pytest.mark.parametrize("scale", [4, 8])
@pytest.mark.parametrize("name", CASES)
def test_an_imported_checkpoint_computes_what_the_published_network_does(tmp_path, name, scale) -> None:
    shapes, words = CASES[name](scale)
    state = published.random_state(shapes)
    torch.save(held(state, name), tmp_path / "theirs.pth")
    spec = import_checkpoint(tmp_path / "theirs.pth", tmp_path / "ours.safetensors", **words)
    assert (spec.network, spec.scale) == (name.split()[0], scale)
    model = load_model(tmp_path / "ours.safetensors")
    if name in PARAMETERS:
        assert sum(p.numel() for p in model.network.parameters()) == PARAMETERS[name][scale]
    low = torch.rand(1, BANDS, 5, 6, generator=seeded(1))
    double = {key: tensor.double() for key, tensor in state.items()}
    with torch.no_grad():
        expected = plain(name, double, low.double(), scale)
        exact = model.network.double()(low.double())
    assert float((exact - expected).abs().max()) < 1e-6 * max(1.0, float(expected.abs().max()))
    export_checkpoint(tmp_path / "ours.safetensors", tmp_path / "again.pth")
    again = torch.load(tmp_path / "again.pth", weights_only=True)
    if not name.startswith("sspsr"):
        again = {key.removeprefix("module."): tensor for key, tensor in again["model"].items()}
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], tensor) for key, tensor in state.items())


def test_in_single_precision_too_the_outputs_of_pde_net_are_equal(tmp_path) -> None:
    shapes, _ = CASES["pdenet"](4)
    state = {key: 0.3 * t if key.endswith("weight") else t for key, t in published.random_state(shapes).items()}
    torch.save(state, tmp_path / "theirs.pth")
    import_checkpoint(tmp_path / "theirs.pth", tmp_path / "ours.safetensors")
    low = torch.rand(1, BANDS, 6, 5, generator=seeded(1))
    with torch.no_grad():
        ours = load_model(tmp_path / "ours.safetensors").network(low)
        theirs = published.pde_net(state, low, 4)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-6)


def test_the_masks_of_a_draw_fall_on_the_published_places(tmp_path) -> None:
    state = published.random_state(published.pde_net_shapes(4, chances=True, stages=2))
    torch.save(held(state, "pdenet"), tmp_path / "theirs.pth")
    import_checkpoint(tmp_path / "theirs.pth", tmp_path / "ours.safetensors")
    network = load_model(tmp_path / "ours.safetensors").network.double()
    masks, each, start = torch.rand(1, 2 * 1664, generator=seeded(2)).double(), {}, 0
    for s in range(2):
        for j in range(6):
            for part in ("feat_weight", "component_weight1", "component_weight2"):
                key = f"stages.{s}.denselayers.{j}.{part}"
                size = len(state[key])
                each[key], start = masks[:, start : start + size], start + size
    assert start == masks.shape[1]
    low = torch.rand(1, 7, 5, 6, generator=seeded(1)).double()
    expected = published.pde_net({key: t.double() for key, t in state.items()}, low, 4, each)
    assert float((network(low, Draw(masks)) - expected).abs().max()) < 1e-6


def test_an_imported_model_sees_every_band_unless_asked(tmp_path, pdenet) -> None:
    torch.save(
        published.random_state(published.pde_net_shapes(4, chances=True, stages=1)), tmp_path / "theirs.pth"
    )
    ran = pdenet("models", "import", tmp_path / "theirs.pth", "-o", tmp_path / "ours.safetensors")
    assert ran.returncode == 0, ran.stderr
    model = load_model(tmp_path / "ours.safetensors")
    assert Posterior(model, 2).most_mixtures == 0
    assert Posterior(model, 2, mixtures=16).most_mixtures == 16
    shown = pdenet("models", "show", tmp_path / "ours.safetensors").stdout
    assert "575,380 parameters" in " ".join(shown.split())
    cost = json.loads(pdenet("models", "show", tmp_path / "ours.safetensors", "--json").stdout)["cost"]
    assert cost["parameters"] == 575_380


@pytest.mark.parametrize(
    ("name", "scale", "side", "tera", "counted"),
    [("pdenet", 4, 128, 1.166, 1.275), ("pdenet", 8, 64, 0.295, 0.604), ("mcnet", 4, 128, 1.113, 4.489)],
)
def test_multiply_adds_are_those_of_the_paper(name, scale, side, tera, counted) -> None:
    """True ones, and counted the paper's way to within half a percent (it counts additions and masks too)."""
    from dataclasses import asdict, replace

    from pdenet_cli.models.networks import NETWORKS

    cost = cost_of(name, asdict(replace(NETWORKS[name].configs["paper"], scale=scale)), 31, side)
    assert cost.multiply_adds / 1e12 == pytest.approx(tera, abs=6e-4)
    assert cost.as_published / 1e12 == pytest.approx(counted, rel=5e-3)


# What is refused


class Module(torch.nn.Module):
    pass


SMALL = published.pde_net_shapes(4, chances=True, stages=1)


def whole_module(path):
    torch.save({"epoch": 5, "model": Module()}, path)


def no_checkpoint(path):
    path.write_bytes(b"\x00\x01nonsense")


def empty(path):
    path.write_bytes(b"")


def of_nobody(path):
    torch.save({"conv.weight": torch.ones(2)}, path)


def of_no_weights(path):
    torch.save([1, 2], path)


def with_nan(path):
    state = published.random_state(SMALL)
    state["degradation_conv_weight"][3] = float("nan")
    torch.save(state, path)


def lacking_one(path):
    state = published.random_state(SMALL)
    del state["stages.0.denselayers.3.Conv_mixdence.weight"]
    torch.save(state, path)


def of_another_shape(path):
    torch.save(published.random_state(SMALL | {"stages.0.tail.1.weight": (1, 1, 3, 3, 5)}), path)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (whole_module, "holds more than numbers.*could run code.*Save its state_dict"),
        (no_checkpoint, "not a checkpoint of PyTorch"),
        (empty, "not a checkpoint of PyTorch"),
        (of_nobody, "of no known published code"),
        (of_no_weights, "no weights by name"),
        (with_nan, "not all finite"),
        (lacking_one, "denselayers.3.Conv_mixdence.weight is missing, expected"),
        (of_another_shape, r"tail.1.weight is \(1, 1, 3, 3, 5\), expected \(1, 1, 3, 3, 3\)"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path, write, said) -> None:
    write(tmp_path / "theirs.pth")
    with pytest.raises(ModelError, match=said) as error:
        import_checkpoint(tmp_path / "theirs.pth", tmp_path / "ours.safetensors")
    assert str(tmp_path / "theirs.pth") in str(error.value)
    assert not (tmp_path / "ours.safetensors").exists()


def test_what_a_file_does_not_hold_must_be_given(tmp_path, pdenet) -> None:
    torch.save(published.random_state(published.mcnet_shapes(4, width=4)), tmp_path / "mcnet.pth")
    torch.save(published.random_state(SMALL), tmp_path / "pdenet.pth")
    output = tmp_path / "ours.safetensors"
    for words, said in (
        (("mcnet.pth",), "Give them with --means"),
        (("mcnet.pth", "--means", "icvl"), "--means icvl is unknown"),
        (("mcnet.pth", "--means", "0.1,x"), "not numbers"),
        (("pdenet.pth", "--means", "cave"), "pdenet subtracts no means"),
    ):
        refused = pdenet("models", "import", tmp_path / words[0], "-o", output, *words[1:])
        assert refused.returncode == UsageError.exit_code
        assert said in " ".join(refused.stderr.split())
    import_checkpoint(tmp_path / "mcnet.pth", output, means=(0.1, 0.2, 0.3))
    assert load_model(output).network.bands == 3
    with pytest.raises(OutputError):
        import_checkpoint(tmp_path / "mcnet.pth", output, means=(0.1, 0.2, 0.3))


def test_only_networks_as_published_are_exported(cubes, tmp_path) -> None:
    from pdenet_cli.tools.train import train

    for network, said in (("pdenet", "it has kernel=centred"), ("dropout", "no published code")):
        train(plan(cubes / "a.hdr", network=network, steps=1), tmp_path / "m.safetensors", overwrite=True)
        with pytest.raises(UsageError, match=said):
            export_checkpoint(tmp_path / "m.safetensors", tmp_path / "theirs.pth")
    with pytest.raises(ModelError, match="no model of this name"):
        export_checkpoint("nothing", tmp_path / "theirs.pth")
