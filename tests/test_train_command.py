"""`pdenet train`: the files it leaves, what it starts from, and that broken and shared runs end as whole ones."""

import errno
import json
import math
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pdenet_cli import open_cube
from pdenet_cli.errors import FormatError, ModelError, OutputError, ResourceError, UsageError
from pdenet_cli.models.model import load_model, save_model, training_tensors
from pdenet_cli.models.weights_file import read_tensors
from pdenet_cli.tools import train as tool
from pdenet_cli.tools.train import train
from pdenet_cli.training import data, shelf
from pdenet_cli.training.find_cubes import find_cubes
from pdenet_cli.training.log import read_log
from pdenet_cli.training.processes import Processes
from pdenet_cli.training.recipe import Recipe
from pdenet_cli.training.trainer import StepResult
from tests.cubes import written
from tests.trainings import plan

COMMAND = ("--config", "tiny", "--batch", 2, "--patch", 32, "--patch-bands", 6, "--threads", 1)
OFTEN = "from pdenet_cli.training import run; run.SAVE_EVERY = 0; from pdenet_cli.cli import main; main()"


def weights(path):
    return {name: tensor.numpy().tobytes() for name, tensor in read_tensors(path).items()}


def started(*arguments):
    command = [sys.executable, "-c", OFTEN, "train", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_steps(log, count):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if log.exists() and len(read_log(log)) > count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} steps in {log}")


def network_of(plan):
    init = None if plan.init is None else load_model(plan.init)
    return tool._network(plan, init, tool._recipe(plan, init))


def recipe_of(plan):
    return tool._recipe(plan, None if plan.init is None else load_model(plan.init))


@pytest.fixture(scope="module")
def trained(cubes, tmp_path_factory):
    """The weights file of a finished run, to be read only."""
    return train(plan(cubes), tmp_path_factory.mktemp("trained") / "m.safetensors").files.model


# What it takes and what it leaves


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
    steps = [r["step"] for r in read_log(trained.files.log) if r["kind"] == "step"]
    assert steps == list(range(1, 11))
    with pytest.raises(OutputError, match="exists"):
        train(plan(cubes, steps=10), tmp_path / "m.safetensors")


@pytest.mark.parametrize("name", ["m.log.jsonl", "m.curves.png", "m.last.safetensors"])
def test_no_file_beside_the_model_is_replaced_unasked(cubes, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        train(plan(cubes), tmp_path / "m.safetensors")
    assert (tmp_path / name).read_text() == "mine"


def test_a_cube_of_bad_bands_is_left_out_and_alone_it_is_refused(cubes, tmp_path):
    bad = written(tmp_path / "bad.hdr", np.ones((4, 64, 64), "<u2"), good_bands=(False,) * 4)
    told = []
    both = replace(plan(cubes), data=(cubes / "a.hdr", bad))
    train(both, tmp_path / "m.safetensors", watch=told.append)
    assert any("every band is marked bad" in event.text for event in told if isinstance(event, tool.Note))
    with pytest.raises(FormatError, match="no cube has a usable band"):
        train(plan(bad), tmp_path / "n.safetensors")


def test_a_cube_whose_numbers_have_no_range_is_left_out_by_its_name(cubes, tmp_path):
    strange = written(tmp_path / "strange.hdr", np.full((3, 40, 40), -1e17))
    told = []
    both = replace(plan(cubes, steps=1), data=(cubes, strange))
    trained = train(both, tmp_path / "m.safetensors", watch=told.append)
    assert len(trained.spec.data) == 3
    left = [event.text for event in told if isinstance(event, tool.Note) and "left out" in event.text]
    assert any("strange.hdr" in text and "is empty" in text for text in left)
    with pytest.raises(UsageError, match="The range 5 to 5 is empty"):
        train(plan(cubes, value_range=(5, 5), steps=1), tmp_path / "n.safetensors")


def test_a_cube_too_large_for_the_memory_stops_the_run(cubes, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "free_memory", lambda: 20_000)
    both = replace(plan(cubes), data=(cubes / "small.hdr", cubes / "a.hdr"))
    with pytest.raises(ResourceError, match=r"a\.hdr: .* too many to train on"):
        train(both, tmp_path / "m.safetensors")


def test_masks_and_pictures_beside_a_cube_teach_nothing_unless_they_are_named(tmp_path):
    rng = np.random.default_rng(0)
    for name, bands, dtype in (
        ("scene", 24, "<i2"),
        ("scene_cloud", 1, "u1"),
        ("camera", 31, "u1"),  # 8 bits alone do not make a mask
        ("scene_dead", 24, "u1"),
        ("scene_height", 1, "<f4"),
        ("scene_picture", 3, "u1"),
    ):
        written(tmp_path / f"{name}.hdr", rng.integers(0, 120, (bands, 20, 20)).astype(dtype))
    (tmp_path / "bytes").mkdir()
    written(tmp_path / "bytes" / "a.hdr", rng.integers(0, 255, (12, 20, 20), "u1"))
    told = []
    found = [cube.path.stem for cube in find_cubes((tmp_path,), say=told.append)]
    assert found == ["a", "camera", "scene"]
    (note,) = told
    names = "scene_cloud.hdr, scene_dead.hdr, scene_height.hdr, scene_picture.hdr"
    assert note.startswith(f"left out: {names} in {tmp_path}")
    asked = (tmp_path, tmp_path / "scene_dead.hdr")
    assert [cube.path.stem for cube in find_cubes(asked, say=told.append)] == [
        "a",
        "camera",
        "scene",
        "scene_dead",
    ]


def test_only_the_chosen_bands_of_cubes_are_learned_from(cubes, tmp_path, pdenet):
    words = ("train", cubes / "a.hdr", "-o", tmp_path / "m.safetensors", "--steps", 2, *COMMAND)
    assert pdenet(*words, "--bands", "2:9").returncode == 0
    (fact,) = load_model(tmp_path / "m.safetensors").spec.data
    assert (fact["bands"], fact["bands_used"], fact["shape"]) == ([[2, 9]], 7, [12, 64, 72])
    ran = pdenet(*words, "--bands", "2:8", "--resume")
    assert (ran.returncode, "different cubes or bands" in ran.stderr) == (2, True)
    ran = pdenet(*words, "--bands", "six", "--overwrite")
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "not a range of bands" in ran.stderr


def test_a_cube_without_the_chosen_bands_is_left_out_by_its_name(cubes, tmp_path):
    few = written(tmp_path / "few.hdr", np.random.default_rng(0).random((4, 64, 64)).astype("<f4"))
    told = []
    both = replace(plan(cubes), data=(cubes / "a.hdr", few), bands=slice(2, 9))
    train(both, tmp_path / "m.safetensors", watch=told.append)
    notes = [event.text for event in told if isinstance(event, tool.Note)]
    assert any("few.hdr" in note and "has only 4" in note for note in notes)
    with pytest.raises(FormatError, match="no cube has a usable band"):
        train(replace(both, data=(few,)), tmp_path / "n.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": "slow"}, "slow is unknown"),
        ({"recipe": "fast,breadth=3"}, "not FIELD=VALUE"),
        ({"recipe": "fast,zoom=wide"}, "zoom=wide must be a number"),
        ({"recipe": "fast,zoom=0.5"}, "zoom must be at least 1"),
        ({"recipe": "fast,batch=1.5"}, "batch=1.5 must be a whole number"),
        ({"recipe": "fast,lr=NaN"}, "lr=nan must be a number"),
        ({"recipe": "fast,grain=1.e1"}, "grain=10.0 must be between 0 and 1"),
        ({"recipe": "fast,soft=+.5,zoom=.5"}, "zoom must be at least 1"),
        ({"changes": {"patch": 3}}, "`patch` 3 is too small"),
        ({"config": "tiny,scale=3"}, "not FIELD=VALUE"),
        ({"steps": None, "minutes": float("nan")}, "positive"),
        ({"config": "huge"}, "huge is unknown"),
        ({"config": "tiny,width=4.5"}, "must be a whole number"),
        ({"config": "tiny,stages=true"}, "must be a whole number"),
        ({"config": "tiny,width=99999999"}, "must be a whole number from 0 to 4,096"),
        ({"config": "tiny,mask_start=7.5"}, "must be a number from 0 to 1"),
        ({"recipe": "fast,batch=true"}, "must be a whole number"),
        ({"config": "tiny,breadth=3"}, "not FIELD=VALUE"),
        ({"network": "oracle"}, "oracle is unknown"),
        ({"minutes": 3}, "not both"),
        ({"steps": 0}, "positive"),
        ({"scale": 16, "changes": {"patch": 64}}, "enough pixels and valid values"),
        ({"precision": "bf16"}, "bf16 or fp16 on cuda"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said(cubes, tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        train(plan(cubes, device="cpu", **changes), tmp_path / "m.safetensors")


def test_an_error_is_one_line_and_an_exit_code(cubes, tmp_path, pdenet):
    ran = pdenet("train", cubes, "-o", tmp_path / "m.safetensors", *COMMAND, "--steps", 9, "--lr", "1e30")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("pdenet: The loss is not finite")
    ran = pdenet("train", cubes / "none", "-o", tmp_path / "n.safetensors")
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)


# From other weights


def test_a_run_starts_from_given_weights(cubes, tmp_path):
    template = train(plan(cubes, network="template"), tmp_path / "t.safetensors").files.model
    start = network_of(plan(cubes, init=str(template)))
    assert start.random
    for name, weight in load_model(template).network.state_dict().items():
        assert torch.equal(start.state_dict()[name], weight)
    with pytest.raises(ModelError, match="different shapes"):
        network_of(plan(cubes, init=str(template), config="tiny,width=7"))


@pytest.mark.parametrize("scale", [4, 8])
def test_a_model_that_is_trained_on_keeps_its_configuration_where_its_network_is_named(cubes, trained, scale):
    again = plan(cubes, init=str(trained), config=None, scale=scale)
    unnamed, named = (network_of(replace(again, network=name)) for name in (None, "pdenet"))
    assert named.config == unnamed.config
    for name, weight in unnamed.state_dict().items():
        assert torch.equal(named.state_dict()[name], weight)


def test_a_run_from_given_weights_is_gentler_and_says_where_it_is_worse(pdenet, cubes, tmp_path):
    first = train(plan(cubes, steps=3), tmp_path / "first.safetensors")
    assert first.before is None
    own = recipe_of(plan(cubes)).lr
    assert recipe_of(plan(cubes, init=str(first.files.model))).lr == own / 4
    assert recipe_of(plan(cubes, init=str(first.files.model), changes={"lr": 1e-3})).lr == 1e-3
    assert recipe_of(plan(cubes, init=str(first.files.model), recipe="fast,lr=0.001")).lr == 1e-3
    assert recipe_of(plan(cubes, init=str(first.files.model), recipe="fast,zoom=3")).lr == own / 4
    small = ("--steps", 2, "--batch", 1, "--patch", 16, "--patch-bands", 2, "--threads", 1)
    ran = pdenet("train", cubes, "-o", tmp_path / "a.safetensors", "--init", "general-x4", "--lr", 0.5, *small)
    assert ran.returncode == 0, ran.stderr
    assert "The model that it started from had +" in ran.stderr
    assert "lower --lr" in ran.stderr


@pytest.mark.parametrize("network", ["pdenet", "template", "dropout", "ensemble", "nas"])
def test_a_model_that_is_trained_on_is_scored_first_as_at_the_end_of_its_own_training(cubes, tmp_path, network):
    first = train(plan(cubes, network=network), tmp_path / "first.safetensors")
    again = plan(cubes, network=network, init=str(first.files.model), steps=2)
    assert train(again, tmp_path / "again.safetensors").before == pytest.approx(first.spec.gain, abs=1e-6)
    if network == "template":  # it had no masks, and has those of a new PDE-Net only from the first step on
        other = train(replace(again, network="pdenet"), tmp_path / "other.safetensors")
        assert other.before == pytest.approx(first.spec.gain, abs=1e-6)


def test_a_model_knows_what_it_began_with(pdenet, cubes, tmp_path):
    first = train(plan(cubes, network="template", steps=3), tmp_path / "first.safetensors").files.model
    second = train(plan(cubes, init=str(first), steps=2, seed=7), tmp_path / "second.safetensors").files.model
    third = train(plan(cubes, init=str(second), steps=1), tmp_path / "third.safetensors").files.model
    told = load_model(third).spec.began_with
    assert (told["name"], told["sha256"]) == ("second", load_model(second).sha256)
    assert (told["steps"], told["seed"]) == (load_model(second).spec.steps, 7)
    assert told["began_with"]["sha256"] == load_model(first).sha256
    assert told["began_with"]["began_with"] == {}
    with pytest.raises(UsageError, match="was started from a model other than first"):
        train(plan(cubes, init=str(first), network="pdenet", steps=1), third, resume=True)
    last = load_model(tmp_path / "third.last.safetensors")
    unsaid = replace(last, spec=replace(last.spec, began_with={}))  # as an older version wrote it
    save_model(tmp_path / "third.last.safetensors", unsaid, training_tensors(tmp_path / "third.last.safetensors"))
    train(plan(cubes, init=str(second), steps=1), third, resume=True)
    shown = " ".join(pdenet("models", "show", third).stdout.split())
    assert "started from second, x4" in shown
    assert "started from first, x4" in shown


def test_a_network_grows_by_a_stage_that_changes_nothing_at_first(cubes, trained):
    start = plan(cubes, init=str(trained), config="tiny,stages=3")
    small, grown = load_model(trained).network, network_of(start)
    assert len(grown.stages) == len(small.stages) + 1
    low = torch.rand(1, 5, 6, 6)
    with torch.no_grad():
        assert torch.allclose(grown(low), small(low))
    (grown(low) - 1).abs().sum().backward()
    assert float(grown.stages[-1].tail.grad.abs().sum()) > 0


@pytest.mark.parametrize("more", ["head=6", "width=11", "head=7,width=9,stages=3"])
def test_a_wider_network_starts_as_the_one_it_grew_from(cubes, trained, more):
    start = plan(cubes, init=str(trained), config=f"tiny,{more}")
    small, grown = load_model(trained).network, network_of(start)
    low = torch.rand(1, 5, 6, 6)
    with torch.no_grad():
        assert torch.allclose(grown(low), small(low), atol=1e-6)
    (grown(low) - 1).abs().sum().backward()
    assert all(stage.tail.grad.abs().flatten(1).sum(1).all() for stage in grown.stages)
    narrow = plan(cubes, init=str(trained), config="tiny,width=7")
    with pytest.raises(ModelError, match="different shapes"):
        network_of(narrow)


@pytest.mark.parametrize("scale", [2, 8])
def test_a_run_starts_from_the_weights_of_another_scale(cubes, trained, tmp_path, scale):
    start = network_of(plan(cubes, init=str(trained), scale=scale))
    assert start.scale == scale
    for name, weight in load_model(trained).network.state_dict().items():
        if not name.endswith((".tail", ".logits")):  # these two are as large as the scale
            assert torch.equal(start.state_dict()[name], weight)
    there = network_of(plan(cubes, init=str(trained), network="pdenet", config="tiny", scale=scale))
    assert all(torch.equal(weight, start.state_dict()[name]) for name, weight in there.state_dict().items())
    fcnn = train(plan(cubes, network="3dfcnn", config=None, steps=1), tmp_path / "fcnn.safetensors").files.model
    with pytest.raises(ModelError, match="cannot initialise an x"):
        network_of(plan(cubes, init=str(fcnn), network="3dfcnn", config=None, scale=scale))


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
        return [(r["kind"], r["step"], r.get("loss")) for r in read_log(files.log)]

    assert log(part.files) == log(whole.files)


def test_two_runs_do_not_train_the_same_model(cubes, tmp_path):
    path = tmp_path / "m.safetensors"
    refused = []

    def second(event):
        if isinstance(event, StepResult) and not refused:
            for words in ({"resume": True}, {"overwrite": True}):
                with pytest.raises(OutputError, match="another run is writing"):
                    train(plan(cubes), path, **words)
                refused.append(words)

    assert train(plan(cubes), path, watch=second).finished
    assert len(refused) == 2
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(UsageError):
        train(plan(cubes, network="oracle"), tmp_path / "n.safetensors")
    assert not list(tmp_path.glob(".*"))


def test_only_the_same_run_is_resumed(cubes, tmp_path):
    train(plan(cubes), tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match="seed differs"):
        train(plan(cubes, seed=1), tmp_path / "m.safetensors", resume=True)
    with pytest.raises(UsageError, match="data differs"):
        train(plan(cubes / "a.hdr"), tmp_path / "m.safetensors", resume=True)
    with pytest.raises(UsageError, match=r"recipe zoom differs \(2.0 there, 3 now\)"):
        train(plan(cubes, recipe="fast,zoom=3"), tmp_path / "m.safetensors", resume=True)


def test_a_run_whose_nodata_value_is_nan_is_resumed(cubes, tmp_path):
    path = tmp_path / "m.safetensors"
    train(plan(cubes, nodata=math.nan, steps=4), path)
    best = load_model(path).spec
    assert train(plan(cubes, nodata=float("nan"), steps=4), path, resume=True).spec.steps == best.steps
    for other in (-1.0, None):
        with pytest.raises(UsageError, match="data differs"):
            train(plan(cubes, nodata=other), path, resume=True)


def test_a_nodata_value_of_nan_is_null_in_what_is_printed(pdenet, cubes, tmp_path):
    path = tmp_path / "m.safetensors"
    words = ("--steps", 1, *COMMAND, "--nodata", "nan", "--json")
    for ran in (pdenet("train", cubes / "a.hdr", "-o", path, *words), pdenet("models", "show", path, "--json")):
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout, parse_constant=pytest.fail)["data"][0]["nodata"] is None


def test_a_best_model_that_is_gone_or_anothers_is_made_again(cubes, tmp_path):
    path = tmp_path / "m.safetensors"
    train(plan(cubes, steps=4), path)
    for other in (None, plan(cubes, steps=2, seed=1)):
        path.unlink()
        if other is not None:
            train(other, tmp_path / "other.safetensors", overwrite=True)
            path.write_bytes((tmp_path / "other.safetensors").read_bytes())
        trained = train(plan(cubes, steps=6 if other is None else 8), path, resume=True)
        assert load_model(path).spec == trained.spec
        assert trained.spec.seed == 0


def test_a_model_that_is_trained_on_in_its_place_is_resumed(cubes, tmp_path):
    path = tmp_path / "m.safetensors"
    train(plan(cubes, steps=4), path)
    again = dict(steps=6, init=str(path), seed=3)
    train(plan(cubes, **again), path, overwrite=True, stop=iter([False] * 5 + [True] * 9).__next__)
    train(plan(cubes, **again), path, resume=True)
    assert load_model(path).spec.began_with["seed"] == 0


def test_a_checkpoint_from_before_a_recipe_had_some_field_is_resumed(cubes, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        whole = Recipe.to_dict
        patched.setattr(Recipe, "to_dict", lambda recipe: {k: v for k, v in whole(recipe).items() if k != "lens"})
        train(plan(cubes), tmp_path / "m.safetensors")
    assert train(plan(cubes), tmp_path / "m.safetensors", resume=True).finished


@pytest.mark.parametrize("haze", [0.0, 0.25])
def test_a_field_that_recipes_have_no_more_matters_only_where_it_was_used(cubes, tmp_path, monkeypatch, haze):
    with monkeypatch.context() as patched:
        whole = Recipe.to_dict
        patched.setattr(Recipe, "to_dict", lambda recipe: whole(recipe) | {"haze": haze})
        train(plan(cubes), tmp_path / "m.safetensors")
    if haze:
        with pytest.raises(UsageError, match=r"recipe haze differs \(0.25 there, None now\)"):
            train(plan(cubes), tmp_path / "m.safetensors", resume=True)
    else:
        assert train(plan(cubes), tmp_path / "m.safetensors", resume=True).finished


def test_killed_and_resumed_is_as_unkilled(cubes, tmp_path, pdenet):
    whole = train(plan(cubes, steps=40), tmp_path / "whole.safetensors")
    arguments = (cubes, "-o", tmp_path / "part.safetensors", "--steps", 40, *COMMAND, "--resume")
    running = started(*arguments)
    wait_for_steps(tmp_path / "part.log.jsonl", 12)
    running.kill()
    running.communicate()
    steps = load_model(tmp_path / "part.last.safetensors").spec.steps
    assert 5 < steps < 40
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
    logged = [r["step"] for r in read_log(tmp_path / "m.log.jsonl")]
    assert load_model(tmp_path / "m.last.safetensors").spec.steps == max(logged)


# Several processes


def test_shares_make_up_the_batch():
    shared = [index for rank in range(3) for index in Processes(rank, 3).share(8)]
    assert sorted(shared) == list(range(8))


def test_processes_agree_though_their_device_has_no_such_numbers():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert Processes(0, 2).broadcast((1 / 3, 1.0), torch.device("meta")) == (1 / 3, 1.0)
    finally:
        dist.destroy_process_group()


def test_a_process_knows_that_the_first_of_them_was_stopped(cubes, tmp_path, monkeypatch):
    told = iter([(0.0,), (0.0, 1.0), (0.0,)])  # at which step, how much is done and whether to stop, finished
    monkeypatch.setattr(Processes, "broadcast", lambda self, values, device: next(told))
    monkeypatch.setattr(
        tool, "joined_processes", lambda device: nullcontext((Processes(1, 2), torch.device("cpu")))
    )
    ended = train(plan(cubes), tmp_path / "m.safetensors")
    assert (ended.finished, ended.first) == (False, False)


def test_a_run_of_one_process_tells_its_result_whatever_rank_the_environment_names(
    pdenet, cubes, tmp_path, monkeypatch
):
    monkeypatch.setenv("RANK", "1")
    ran = pdenet("train", cubes, "-o", tmp_path / "m.safetensors", "--steps", 1, *COMMAND)
    assert (ran.returncode, "dB over bicubic" in ran.stdout) == (0, True), ran.stderr


def in_two_processes(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "pdenet_cli", "train", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_two_processes_train_as_one(pdenet, cubes, tmp_path):
    arguments = ("--steps", "8", *COMMAND[:2], "--batch", "4", *COMMAND[4:])
    ran = in_two_processes(cubes, "-o", tmp_path / "2.safetensors", *arguments)
    assert ran.returncode == 0, ran.stderr
    assert "MB on disk" in ran.stderr  # once for both
    assert not [*tmp_path.glob("*scene*"), *tmp_path.glob(".*scene*")]
    assert pdenet("train", cubes, "-o", tmp_path / "1.safetensors", *arguments).returncode == 0
    one, two = (
        [r["loss"] for r in read_log(tmp_path / f"{count}.log.jsonl") if r["kind"] == "step"] for count in (1, 2)
    )
    assert len(one) == 8
    np.testing.assert_allclose(two, one, rtol=1e-4)
    for name, weight in read_tensors(tmp_path / "1.safetensors").items():
        torch.testing.assert_close(read_tensors(tmp_path / "2.safetensors")[name], weight, rtol=0, atol=1e-4)


def test_processes_that_use_other_weights_stay_in_step(cubes, tmp_path):
    words = ("--network", "ensemble", "--config", "tiny", "--steps", "2", "--batch", "3")
    words += ("--patch", "32", "--patch-bands", "6")
    ran = in_two_processes(cubes, "-o", tmp_path / "two.safetensors", *words)
    assert ran.returncode == 0, ran.stderr
    changes = dict(batch=3, patch=32, bands=6)
    train(plan(cubes, network="ensemble", changes=changes, steps=2), tmp_path / "one.safetensors")
    one, two = (read_tensors(tmp_path / f"{count}.last.safetensors") for count in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4)


# Large sets


@pytest.mark.parametrize("recipe", ["fast", "paper,stride=8"])
def test_scenes_that_would_not_fit_in_memory_are_read_from_disk_and_train_the_same(
    cubes, tmp_path, monkeypatch, recipe
):
    texts: list[str] = []
    run = replace(plan(cubes, steps=3), recipe=recipe)
    for name, share in (("memory", 0.5), ("disk", 0.0)):
        monkeypatch.setattr(shelf, "MEMORY_SHARE", share)
        events = train(run, tmp_path / f"{name}.safetensors", watch=lambda event: texts.append(str(event)))
        assert events.finished
    assert sum("MB in memory" in text for text in texts) == 1
    assert sum("MB on disk" in text for text in texts) == 1
    assert not [path for path in tmp_path.iterdir() if "scene" in path.name]
    one, two = (read_tensors(tmp_path / f"{name}.last.safetensors") for name in ("memory", "disk"))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def test_no_file_of_a_scene_is_left_where_the_disk_is_full(cubes, tmp_path, monkeypatch):
    def full(pixels):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shelf, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(shelf, "_by_pixel", full)
    with pytest.raises(OSError, match="No space left"):
        train(plan(cubes), tmp_path / "m.safetensors")
    assert not [path for path in tmp_path.iterdir() if "scene" in path.name]


# Whole cubes to validate on


def test_cubes_to_validate_on_are_not_trained_on_and_nothing_of_the_others_is_held_out(cubes, tmp_path):
    told = []
    both = replace(plan(cubes / "a.hdr"), validate=(cubes / "deeper",))
    trained = train(both, tmp_path / "m.safetensors", watch=told.append)
    assert [fact["name"] for fact in trained.spec.data] == ["a.hdr"]
    assert [fact["name"] for fact in trained.spec.validation] == ["b.hdr"]
    assert set(trained.spec.scores["cubes"]) == {"b"}
    assert trained.spec.data[0]["holdout"] == "none"
    scene = data.Scene.read(open_cube(cubes / "a.hdr"), holdout="none")
    assert scene.corner(4) == scene.size
    with pytest.raises(UsageError, match=r"b\.hdr: the same cube is trained on"):
        train(replace(plan(cubes), validate=(cubes / "deeper",)), tmp_path / "n.safetensors")


def test_a_run_without_anything_to_validate_on_is_refused(cubes):
    with pytest.raises(UsageError, match="Give cubes with `validate`"):
        plan(cubes, holdout="none")
    with pytest.raises(UsageError, match="choose quarter or none"):
        plan(cubes, holdout="half")
