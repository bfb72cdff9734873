"""`pdenet doctor` says what is there, and why something is not."""

import json
from pathlib import Path

import pytest

from pdenet_cli.models.networks import compiled, winograd
from pdenet_cli.tools import doctor


@pytest.fixture
def fresh(monkeypatch):
    """The kernel is looked for anew, now and after the test."""
    winograd.load_kernel.cache_clear()
    yield monkeypatch
    winograd.load_kernel.cache_clear()


def test_it_says_the_same_as_text_and_as_json(pdenet):
    found = json.loads(pdenet("doctor", "--json").stdout)
    assert found["devices"][0]["name"] == "cpu"
    assert found["kernel"]["in_use"] == winograd.kernel_name()
    assert found["memory"] > 0
    assert found["codecs"]["deflate"]
    text = " ".join(pdenet("doctor").stdout.split())
    for word in (found["libraries"]["torch"], found["kernel"]["in_use"], "general-x4", "deflate", "workers"):
        assert word in text


def test_a_missing_kernel_has_a_reason(fresh):
    fresh.setattr(compiled.shutil, "which", lambda name: None)
    assert doctor.examine()["kernel"] == {"in_use": "torch", "why": "there is no C compiler (cc, gcc)"}


def test_a_run_without_the_kernel_says_so_unless_it_was_turned_off(fresh, models, make_cube, pdenet, tmp_path):
    scene, _ = make_cube("scene.tif")
    fresh.setattr(compiled.shutil, "which", lambda name: None)
    words = ("upscale", scene, "-o", tmp_path / "a.tif", "--model", models / "pdenet.safetensors", "--samples", 1)
    said = " ".join(pdenet(*words).stderr.split())
    assert "Without the compiled kernel (there is no C compiler (cc, gcc)) the network takes about twice" in said
    fresh.setenv("PDENET_KERNEL", "off")
    winograd.load_kernel.cache_clear()
    assert "compiled kernel" not in pdenet(*words, "--overwrite").stderr


def test_the_cache_is_where_the_user_wants_it(fresh, tmp_path):
    fresh.setenv("PDENET_CACHE_DIR", str(tmp_path / "mine"))
    if winograd.load_kernel() is None:
        pytest.skip(f"no kernel here: {winograd.why_no_kernel()}")
    assert [path.suffix for path in (tmp_path / "mine").iterdir()] == [".so"]
    found = doctor.examine()["cache"]
    assert (found["folder"], found["kernels"]) == (str(tmp_path / "mine"), 1)


@pytest.mark.parametrize(
    ("versions", "why"),
    [({"zarr": None}, "zarr is not installed"), ({"zarr": "3.1.2"}, "zarr 3.1.2 is too old; 3.1.3 or later")],
)
def test_it_says_why_workers_cannot_be_used(versions, why, monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: _or_missing({"dask": "2025.1"} | versions, name))
    told = doctor._workers()
    assert not told["usable"]
    assert why in told["why"]


def _or_missing(versions, name):
    if versions.get(name) is None:
        raise doctor.PackageNotFoundError(name)
    return versions[name]


def test_a_cache_that_others_may_change_is_not_used(fresh, tmp_path):
    folder = Path(tmp_path / "open")
    folder.mkdir()
    folder.chmod(0o777)
    fresh.setenv("PDENET_CACHE_DIR", str(folder))
    assert "could leave code there" in (winograd.why_no_kernel() or "")
