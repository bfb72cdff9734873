"""Weights files: what they say of themselves, and what is refused."""

import json
import math
import struct
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

from pdenet_cli.errors import ModelError, ResourceError
from pdenet_cli.models import catalogue
from pdenet_cli.models import model as models
from pdenet_cli.models.catalogue import available_models
from pdenet_cli.models.model import Model, load_model, save_model
from pdenet_cli.models.networks import build_network
from pdenet_cli.models.networks.pdenet import PDENet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import read_header
from pdenet_cli.system import choose_device

TINY = PDENet.configs["tiny"]
SPEC = ModelSpec(
    network="pdenet",
    config=asdict(TINY),
    scale=4,
    degradation={"scale": 4, "kernel": "bicubic", "fwhm": None, "noise": 0.0},
    version="0.1.0",
    data=({"name": "a.mat", "sha256": "00", "shape": [3, 4, 5]},),
    scores={"psnr": 31.5, "bicubic_psnr": 30.0, "sam": 1.0, "bicubic_sam": 1.2, "draws": 4, "cubes": {}},
    licence="MIT",
    masks={"chance": 0.5},
)


@pytest.fixture
def saved(tmp_path):
    model = Model(SPEC, PDENet(TINY))
    save_model(tmp_path / "tiny-x4.safetensors", model)
    return tmp_path / "tiny-x4.safetensors", model


def test_a_model_comes_back_as_it_was_saved(saved):
    path, model = saved
    loaded = load_model(path)
    assert loaded.spec == SPEC
    assert (loaded.name, loaded.scale, len(loaded.sha256)) == ("tiny-x4", 4, 64)
    assert loaded.spec.gain == 1.5
    for name, weight in model.network.state_dict().items():
        assert torch.equal(loaded.network.state_dict()[name], weight)
    assert not any(p.requires_grad for p in loaded.network.parameters())


def test_a_notebook_shows_a_model_in_a_line(saved):
    path, model = saved
    assert repr(load_model(path)) == "Model(tiny-x4: pdenet x4)"
    # The last of several runs may have been a short one, so its steps say little of the model.
    assert repr(replace(model, spec=replace(SPEC, steps=6))) == "Model(unnamed: pdenet x4)"


def test_training_tensors_do_not_disturb_a_reader(saved):
    path, model = saved
    save_model(path, model, {"adam.step": torch.ones(3)})
    assert load_model(path).spec == SPEC
    assert list(models.training_tensors(path)) == ["adam.step"]


def test_a_model_is_found_by_its_name(saved, monkeypatch):
    path, _ = saved
    monkeypatch.setattr(catalogue, "FOLDERS", (path.parent / "nowhere", path.parent))
    assert available_models() == {"tiny-x4": path}
    assert load_model("tiny-x4").spec == SPEC
    with pytest.raises(ModelError, match=r"no model of this name.*tiny-x4"):
        load_model("tiny-x8")


def foreign(path):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, path)


def pickled(path):
    torch.save({"weight": torch.ones(2)}, path)


def cut_in_the_weights(path):
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_the_header(path):
    path.write_bytes(path.read_bytes()[:50])


def with_a_giant_header(path):
    path.write_bytes(struct.pack("<Q", 1 << 62) + b"{}" * 100)


def not_json(path):
    path.write_bytes(struct.pack("<Q", 8) + b"\xff" * 64)


def of_no_bytes(path):
    path.write_bytes(b"")


def wider_than_it_says(path):
    save_model(path, Model(SPEC, PDENet(replace(TINY, width=9))))


def of_an_unknown_network(path):
    save_model(path, Model(replace(SPEC, network="oracle"), PDENet(TINY)))


def of_an_unknown_field(path):
    save_model(path, Model(replace(SPEC, config={"depth": 3}), PDENet(TINY)))


def of_giant_claims(path):
    save_model(path, Model(replace(SPEC, config=asdict(TINY) | {"width": 10**9}), PDENet(TINY)))


def with_nan(path):
    network = PDENet(TINY)
    torch.nn.init.constant_(network.stages[0].head, float("nan"))
    save_model(path, Model(SPEC, network))


def with_half_a_description(path):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, path, {"pdenet": json.dumps({"network": "pdenet"})})


def respecified(**changes):
    def spoil(path):
        save_model(path, Model(replace(SPEC, **changes), PDENet(TINY)))

    spoil.__name__ = "with_" + "_".join(f"{name}_{value}" for name, value in changes.items())
    return spoil


def with_offsets_in_words(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    entries = json.loads(raw[8 : 8 + length])
    next(e for name, e in entries.items() if name != "__metadata__")["data_offsets"] = ["here", "there"]
    head = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + raw[8 + length :])


SPOILS = [
    *(foreign, pickled, cut_in_the_weights, cut_in_the_header, with_a_giant_header, not_json, of_no_bytes),
    *(wider_than_it_says, of_an_unknown_network, of_an_unknown_field, of_giant_claims, with_nan),
    *(with_half_a_description, with_offsets_in_words),
    *(respecified(network=["pdenet"]), respecified(minutes="an hour"), respecified(data=("a.mat",))),
    *(respecified(scale=2), respecified(scores={"psnr": 30.0}), respecified(degradation={"scale": 8})),
    respecified(degradation={"scale": 4, "kernel": "square"}),
    respecified(config=asdict(TINY) | {"mask_start": "x"}),
    respecified(config=asdict(TINY) | {"stages": 4000, "units": 4000}),
    respecified(scores={"psnr": 30.0, "bicubic_psnr": 29.0, "draws": 4, "cubes": {"a": {"psnr": 30.0}}}),
    respecified(scores={"psnr": 30.0, "bicubic_psnr": 29.0, "draws": 4, "cubes": [1]}),
]


@pytest.mark.parametrize(
    "spoil",
    SPOILS,
    ids=lambda spoil: spoil.__name__,
)
def test_what_is_not_a_model_is_refused_in_one_line(saved, spoil):
    path, _ = saved
    spoil(path)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_later_version_knows_of_a_degradation_is_left_out(saved):
    path, _ = saved
    respecified(degradation={"scale": 4, "mist": 0.3})(path)
    assert load_model(path).scale == 4


def test_bicubic_is_no_file():
    with pytest.raises(ModelError, match="no weights file"):
        load_model("bicubic")


def test_a_broken_file_does_not_hide_the_model_that_is_wanted(saved, monkeypatch):
    path, _ = saved
    monkeypatch.setattr(catalogue, "FOLDERS", (path.parent,))
    (path.parent / "broken.safetensors").write_bytes(b"nothing")
    assert catalogue.choose_model(None, 4) == path


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        load_model(tmp_path / "missing.safetensors")


def test_the_header_is_read_without_torch(saved):
    path, _ = saved
    script = (
        "import sys\nfrom pathlib import Path\nfrom pdenet_cli.models.weights_file import read_header\n"
        f"assert read_header(Path({str(path)!r})).spec.network == 'pdenet'\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert read_header(path).nbytes == path.stat().st_size


def test_a_model_is_shown(pdenet, saved):
    path, _ = saved
    shown = pdenet("models", "show", path)
    assert shown.returncode == 0, shown.stderr
    assert "+1.50 over bicubic" in shown.stdout
    assert "training's quick check on some pixels and bands" in " ".join(shown.stdout.split())
    assert ModelSpec.from_dict(json.loads(pdenet("models", "show", path, "--json").stdout)) == SPEC
    assert pdenet("models").returncode == 0
    assert pdenet("models", "show", "nothing-x3").returncode == 4


def test_models_are_listed_as_json_that_any_program_reads(pdenet, saved, monkeypatch):
    path, model = saved
    facts = ({"name": "a.mat", "nodata": math.nan, "fill": math.inf},)
    save_model(path, replace(model, spec=replace(SPEC, data=facts)))
    monkeypatch.setattr(catalogue, "FOLDERS", (path.parent,))
    listed = json.loads(pdenet("models", "--json").stdout, parse_constant=pytest.fail)
    assert listed["tiny-x4"]["data"] == [{"name": "a.mat", "nodata": None, "fill": "inf"}]


@pytest.mark.parametrize("name", ["pdenet", "template"])
def test_every_named_configuration_is_saved_and_loaded(name, tmp_path):
    network = build_network(name, asdict(TINY))
    path = tmp_path / "m.safetensors"
    save_model(path, Model(replace(SPEC, network=name), network))
    assert type(load_model(path).network) is type(network)


def test_json_may_be_asked_for_before_show(pdenet):
    before, after = (
        pdenet("models", *words) for words in (("--json", "show", "general-x4"), ("show", "general-x4", "--json"))
    )
    assert json.loads(before.stdout) == json.loads(after.stdout)


def test_a_gpu_that_is_there_but_cannot_be_used_is_passed_over_unless_it_is_named(monkeypatch):
    usual = torch.ones

    def ones(*size, device):
        if torch.device(device).type == "cuda":
            raise RuntimeError("CUDA error: no kernel image is available\nmore")
        return usual(*size, device="cpu")

    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device().type == "cpu"
    with pytest.raises(ResourceError, match="no kernel image"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device().type == "mps"
