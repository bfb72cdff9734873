"""The page of a sharpened scene: what it holds is what the cubes hold, in words that can be read alone."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from skimage.io import imread

from pdenet_cli import CubeMeta, create_cube, open_cube
from pdenet_cli.models.model import Model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.tools.index import write_index
from tests.conftest import calibration
from tests.cubes import in_memory
from tests.scene_pages import COLUMNS, ROWS, SCALE, WAVES, WORDS, facts_in, page_of, parts_in, some_cubes, unpacked


def test_the_page_holds_the_values_of_the_files():
    cubes = some_cubes()
    text = page_of(cubes)
    facts, parts = facts_in(text), parts_in(text)
    assert (facts["rows"], facts["columns"], facts["scale"], facts["places"]) == (
        ROWS,
        COLUMNS,
        SCALE,
        list(WAVES),
    )
    told = facts["mean"]
    codes = unpacked(parts[told["part"]], len(told["lowest"]), told["rows"], told["columns"])
    values = np.array(told["lowest"])[:, None, None] + np.array(told["size"])[:, None, None] * (codes - 1)
    mean = cubes["mean"].read()
    np.testing.assert_array_equal(np.where(codes > 0, values, 0), mean)
    assert "exactly those of the file" in text
    assert [shown.get("factor") for shown in facts["maps"]] == [None, None, 1]
    assert all(len(part) > 0 for part in parts.values())


def test_what_to_bear_in_mind_is_on_the_page():
    cubes = some_cubes()
    words = dataclasses.replace(WORDS, notes=("Mind <this>.", "And that."), record={"seed": 17})
    text = page_of(cubes, words)
    for said in ("Mind &lt;this&gt;.", "And that.", "in about 90 of", "8 samples", "&quot;seed&quot;: 17", "grid"):
        assert said in text
    assert text.index("in about 90 of") < text.index("<details>") < text.index("It is proved.")
    assert "in about" not in page_of(cubes, dataclasses.replace(WORDS, level=None, proof=""))


def test_an_empty_map_makes_a_page():
    cubes = some_cubes()
    cubes["std_merged"] = in_memory(np.full((1, ROWS, COLUMNS), np.nan, "<f4"), nodata=float("nan"))
    assert "0 or empty everywhere" in page_of(cubes)


def test_the_page_loads_nothing_and_believes_no_name():
    cubes = some_cubes()
    name = "a</script><script>alert(1)</script>&'\"x"
    words = dataclasses.replace(WORDS, scene=name, model=name, proof=name, notes=(name,), record={name: name})
    text = page_of(cubes, words, unit=name, band=name)
    assert "alert(1)</script>" not in text
    assert text.count("<script") == text.count("</script>") == 2 + len(parts_in(text))
    assert not re.search(r"url\(|@import|https?:", text)
    assert all(address.startswith("data:") for address in re.findall(r'(?:src|href)="([^"]*)"', text))
    assert '<html lang="en">' in text
    assert all("alt=" in tag for tag in re.findall(r"<img[^>]*>", text))


def test_the_page_is_the_same_from_files_of_any_order_of_axes(tmp_path):
    cubes = some_cubes()
    want = page_of(cubes)
    for interleave in ("bil", "bip"):
        stored = {}
        for name, cube in cubes.items():
            meta = CubeMeta(**{**cube.meta.__dict__, "interleave": interleave})
            with create_cube(tmp_path / f"{interleave}_{name}.hdr", meta) as written:
                written.write(meta.window, cube.read())
            stored[name] = open_cube(tmp_path / f"{interleave}_{name}.hdr")
        assert page_of(stored) == want


# The command.

INTERVAL, STD, SHARE = "width of the interval", "std of the samples", "samples that differ"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small untrained model that is calibrated."""
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=2)
    fitted = calibration().to_dict()
    spec = ModelSpec("pdenet", dataclasses.asdict(config), 4, {}, "test", calibration=fitted)
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(path, Model(spec, PDENet(config)))
    return path


@pytest.mark.parametrize(
    ("options", "shown", "band"),
    [
        ((), [INTERVAL, STD, SHARE, INTERVAL], "90 % interval"),
        (("--map", "std"), [STD], ""),
        (("--map", "std", "--per-band"), [STD, STD], "± 2 std of the samples, not calibrated"),
        (
            ("--tolerance", 5, "--level", 0.8),
            ["probability of a larger error", INTERVAL, STD, SHARE, INTERVAL],
            "80 % interval",
        ),
        (
            [word for name in ("consistency", "angle", "cv") for word in ("--map", name)],
            ["std relative to the mean", "angle between samples", "difference from the input"],
            "",
        ),
    ],
)
def test_the_command_writes_a_page_of_its_maps_the_most_telling_first(
    make_cube, pdenet, model, tmp_path, options, shown, band
):
    scene, _ = make_cube()
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "out", "--model", model, "--samples", 4, *options)
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / "out" / "scene_uncertainty.html").read_text(encoding="utf-8")
    facts = facts_in(text)
    assert ([told["name"] for told in facts["maps"]], facts["band"]) == (shown, band)
    assert (facts["rows"], facts["columns"], facts["bands"]) == (36, 28, 5)
    assert len(text) < 1e6
    assert imread(tmp_path / "out" / "scene_uncertainty.png").ndim == 3
    assert open_cube(tmp_path / "out" / "scene_mean.hdr").meta.dtype == np.uint16
    told = json.loads((tmp_path / "out" / "scene.hdr.report.json").read_text())
    assert told["outputs"]["page"].endswith("scene_uncertainty.html")


def test_a_page_that_exists_is_not_replaced_unasked_and_none_is_made_unwanted(make_cube, pdenet, model, tmp_path):
    scene, _ = make_cube()
    command = ("uncertainty", scene, "-o", tmp_path / "out", "--model", model, "--samples", 2, "--map", "std")
    assert pdenet(*command, "--no-page").returncode == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert not names & {"scene_uncertainty.html", "scene_uncertainty.png", "scene_mean.hdr"}
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    page = tmp_path / "out" / "scene_uncertainty.html"
    page.write_text("mine")
    ran = pdenet(*command)
    assert ran.returncode != 0
    assert "--overwrite" in ran.stderr
    assert page.read_text() == "mine"
    assert pdenet(*command, "--overwrite").returncode == 0
    assert page.read_text().startswith("<!doctype html>")


def test_upscale_writes_a_page_without_maps_and_refuses_a_size_that_is_none(make_cube, pdenet, model, tmp_path):
    scene, _ = make_cube()
    words = ("upscale", scene, "-o", tmp_path / "fine.hdr", "--model", model, "--samples", 2, "--page")
    assert pdenet(*words).returncode == 0
    text = (tmp_path / "fine.html").read_text(encoding="utf-8")
    assert facts_in(text)["maps"] == []
    assert (tmp_path / "fine.png").exists()
    ran = pdenet(*words, "--overwrite", "--page-size", "huge")
    assert ran.returncode == 2
    assert "--page-size huge: not a size" in ran.stderr


def test_several_scenes_get_an_index_of_their_pages_that_replaces_nothing_else(make_cube, pdenet, model, tmp_path):
    scene, pixels = make_cube()
    second = tmp_path / "second scene.hdr"
    with open_cube(scene) as cube, create_cube(second, cube.meta) as written:
        written.write(cube.meta.window, pixels)
    out = tmp_path / "out"
    words = ("uncertainty", scene, second, "-o", out, "--model", model, "--samples", 2, "--map", "std")
    assert pdenet(*words).returncode == 0
    text = (out / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<h2><a href="([^"]*)"', text) == [
        "scene_uncertainty.html",
        "second%20scene_uncertainty.html",
    ]
    assert "std: " in text
    assert write_index(out) == out / "index.html"
    (out / "index.html").write_text("mine")
    ran = pdenet(*words, "--overwrite")
    assert ran.returncode == 0
    assert "stays: no index is written" in " ".join(ran.stderr.split())
    assert (out / "index.html").read_text() == "mine"
