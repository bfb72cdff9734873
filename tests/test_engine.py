"""Work spread over processes: whoever writes the tiles, and however often, the bytes are the same."""

import json
import os
import shutil
import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pdenet_cli.errors import OutputError, ResourceError, UsageError
from pdenet_cli.files import remove
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.recipe import PosteriorRecipe
from pdenet_cli.tools import scene_order
from pdenet_cli.tools.archive import Summary
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.job import Job
from pdenet_cli.tools.orders import Facts
from pdenet_cli.tools.parts import Part
from pdenet_cli.tools.scene_order import sharpen_scene
from pdenet_cli.tools.settings import Settings
from pdenet_cli.tools.truths import TruthSettings
from tests.cubes import picture, written

SUFFIXES = ("hdr", "tif", "mat", "nc", "zarr")


@pytest.fixture(scope="module")
def engine():
    """Two worker processes of this machine."""
    pytest.importorskip("distributed", reason="workers need dask: pip install '.[cluster]'")
    from pdenet_cli.tools.cluster import workers_here

    with workers_here(2, threads=2) as workers:
        yield workers


@pytest.fixture
def scene(tmp_path):
    """A scene whose x2 is some chunks of a Zarr."""
    pixels = np.random.default_rng(0).integers(1, 120, (3, 140, 90)).astype("<u2")
    pixels[:, 30:40, 50:70] = 0
    return written(tmp_path / "scene.tif", pixels, nodata=0.0)


def posterior():
    return Posterior(bicubic_model(2), 1)


def contents(folder, name):
    """The bytes of all outputs called so, but of the report."""
    found = [p for path in folder.glob(f"{name}*") for p in (path, *path.rglob("*")) if p.is_file()]
    return {
        str(p.relative_to(folder)).replace(name, "", 1): p.read_bytes()
        for p in found
        if not p.name.endswith("report.json")
    }


def run(scene, output, who=None, **settings):
    """Runs a job; the steps it took."""
    kept = dict(tile=None if output.suffix == ".zarr" else 40) | settings
    return list(Job(scene, output, posterior(), Settings(**kept), engine=who).run())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_process_two_workers_and_three_parts_write_the_same_bytes(suffix, scene, engine, tmp_path):
    run(scene, tmp_path / f"one.{suffix}")
    assert len(run(scene, tmp_path / f"two.{suffix}", engine)) > 4
    for number in (2, 1, 3):
        run(scene, tmp_path / f"six.{suffix}", part=Part(number, 3))
    run(scene, tmp_path / f"six.{suffix}", finish=True)
    one = contents(tmp_path, "one")
    assert one
    assert one == contents(tmp_path, "two") == contents(tmp_path, "six")
    assert not list(tmp_path.glob(".*"))


def test_maps_of_a_network_are_the_same_from_workers_which_are_recorded(models, scene, engine, tmp_path):
    of_network = Posterior(load_model(models / "calibrated.safetensors"), 3, seed=5)
    settings = Settings(maps=("std", "interval"), tile=50, window=None)
    for name, who in (("one", None), ("two", engine)):
        job = Job(scene, tmp_path / f"{name}.tif", of_network, settings, engine=who)
        list(job.run())
    assert contents(tmp_path, "one") == contents(tmp_path, "two")
    told = job.report.scene["workers"]
    assert {facts["threads"] for facts in told.values()} == {1}
    assert sum(facts["items"] for facts in told.values()) >= 6


def test_tiles_of_killed_workers_are_done_again(scene, engine, tmp_path):
    run(scene, tmp_path / "one.zarr")
    victims = list(engine.client.run(os.getpid).values())
    job = Job(scene, tmp_path / "two.zarr", posterior(), Settings(), engine=engine)
    for done, _ in job.run():
        if done == 1:
            os.kill(victims[0], signal.SIGKILL)
    assert contents(tmp_path, "one") == contents(tmp_path, "two")


@dataclass(frozen=True)
class Deadly:
    """An order with an item that ends its process."""

    facts: Facts
    name: str = "scene.tif"

    def open(self):
        return lambda item: os._exit(1) if item == 3 else item + 100


def test_an_item_that_kills_workers_is_one_error_and_the_others_are_done(engine):
    told = dict(engine.spread(Deadly(Facts.of()), range(6)))
    assert {item: value for item, value in told.items() if item != 3} == {n: n + 100 for n in (0, 1, 2, 4, 5)}
    assert isinstance(told[3], ResourceError)
    assert "workers died at it" in str(told[3])


@dataclass(frozen=True)
class Other:
    """An order of a process with another torch."""

    facts: Facts
    name: str = "scene.tif"

    def open(self):
        self.facts.refuse_others(Facts.of())


def test_a_worker_with_another_version_is_refused_by_name(engine):
    facts = Facts.of()
    odd = replace(facts, versions=facts.versions | {"torch": "1.0"})
    with pytest.raises(UsageError, match=r"Worker tcp://.* it has torch 2.*, and 1\.0 where the run began"):
        list(engine.spread(Other(odd), [1]))


def test_a_run_goes_on_with_workers_and_without(scene, engine, tmp_path):
    run(scene, tmp_path / "one.nc")
    for first, second in ((None, engine), (engine, None)):
        output = tmp_path / "two.nc"
        steps = Job(scene, output, posterior(), Settings(tile=40), engine=first).run()
        while next(steps)[0] < 2:
            pass
        steps.close()
        assert run(scene, output, second, resume=True)[0][0] >= 1
        assert contents(tmp_path, "two") == contents(tmp_path, "one")
        remove(output)
        (tmp_path / "two.nc.report.json").unlink()


def test_tiles_that_share_chunks_are_not_given_to_several_processes(scene, tmp_path):
    steps = Job(scene, tmp_path / "two.zarr", posterior(), Settings(tile=30)).run()
    while next(steps)[0] < 2:
        pass
    steps.close()
    with pytest.raises(OutputError, match="tiles that share chunks"):
        run(scene, tmp_path / "two.zarr", part=Part(1, 2))


def test_parts_that_are_broken_off_go_on_and_what_is_missing_is_told(scene, tmp_path):
    run(scene, tmp_path / "one.tif")
    output = tmp_path / "two.tif"
    with pytest.raises(OutputError, match="no `part` of this job has begun"):
        run(scene, output, finish=True)
    steps = Job(scene, output, posterior(), Settings(tile=40, part=Part(1, 2))).run()
    while next(steps)[0] < 2:
        pass
    with pytest.raises(OutputError, match="another run is writing"):
        run(scene, output, finish=True)
    steps.close()
    assert run(scene, output, part=Part(1, 2))[0][0] == 2
    with pytest.raises(OutputError, match=r"6 of 12 tiles are missing \(1, 3, .*`part` again"):
        run(scene, output, finish=True)
    assert run(scene, output, part=Part(1, 2))[0] == (6, 6)
    run(scene, output, part=Part(2, 2))
    run(scene, output, finish=True)
    assert contents(tmp_path, "one") == contents(tmp_path, "two")


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_part_must_be_one(text):
    with pytest.raises(UsageError, match="not a part"):
        Part.named(text)


def test_several_machines_write_only_zarr(scene, tmp_path):
    class Far:
        shared, crowd, count = False, 1, 2

    with pytest.raises(UsageError, match=r"several machines cannot write one TIFF file.*\.zarr"):
        run(scene, tmp_path / "two.tif", Far())


def test_a_recipe_makes_the_same_posterior(models):
    made = Posterior(load_model(models / "calibrated.safetensors"), 3, 7)
    again = PosteriorRecipe.of(made).make()
    assert repr(again) == repr(made)
    assert again.draw.masks.equal(made.draw.masks)
    shutil.copy(models / "pdenet.safetensors", models / "swapped.safetensors")
    recipe = replace(PosteriorRecipe.of(made), path=models / "swapped.safetensors")
    with pytest.raises(ValueError, match="another model than"):
        recipe.make()


def test_finished_scenes_are_skipped_after_one_look(scene, tmp_path, monkeypatch):
    output, settings = tmp_path / "two.tif", Settings(resume=True)
    assert not sharpen_scene(scene, output, posterior(), settings).skipped
    with monkeypatch.context() as without:
        without.setattr(scene_order, "Job", None)
        assert sharpen_scene(scene, output, posterior(), settings).skipped
    looked = scene_order.finished
    assert looked(scene, output, posterior(), replace(settings, dtype="float32")) is None
    os.utime(scene)
    assert looked(scene, output, posterior(), settings) is None
    assert sharpen_scene(scene, output, posterior(), settings).report is not None
    output.unlink()
    assert looked(scene, output, posterior(), settings) is None


def test_an_archive_is_one_job_with_one_summary(engine, pdenet, tmp_path, monkeypatch):
    from contextlib import contextmanager

    from pdenet_cli.tools import cluster

    monkeypatch.setattr(cluster, "workers_here", contextmanager(lambda count, threads: (yield engine)))
    scenes = [written(tmp_path / f"s{n}.tif", picture(3, 9, 8, seed=n)) for n in range(9)]
    (tmp_path / "bad.tif").write_bytes(b"II*\0junk")
    words = ("upscale", *scenes, tmp_path / "bad.tif", "--model", "bicubic", "--workers", 2)
    ran = pdenet(*words, "-o", tmp_path / "out", "--summary", tmp_path / "sum.csv")
    assert ran.returncode == 7, ran.stderr
    assert "10 scenes: 9 done, 0 done before, 1 failed" in ran.stdout
    assert len((tmp_path / "sum.csv").read_text().splitlines()) == 11
    ran = pdenet(*words, "-o", tmp_path / "out", "--resume", "--json", "--summary", tmp_path / "sum.json")
    assert len(json.loads(ran.stdout)) == 10
    told = json.loads((tmp_path / "sum.json").read_text())
    assert (told["totals"]["skipped"], told["totals"]["failed"]) == (9, 1)
    assert {row["why"] for row in told["rows"] if row["status"] == "failed"} == {
        f"{tmp_path / 'bad.tif'}: ends at byte 8 within its tags. Copy it again."
    }
    pdenet(*words[:-2], "-o", tmp_path / "alone")
    for path in (tmp_path / "alone").glob("*.tif"):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_parts_of_many_scenes_are_whole_scenes(pdenet, tmp_path):
    scenes = [written(tmp_path / f"s{n}.tif", picture(3, 9, 8, seed=n)) for n in range(3)]
    for part in ("1/2", "2/2", "2/2"):
        ran = pdenet("upscale", *scenes, "-o", tmp_path / "out", "--model", "bicubic", "--part", part)
        assert ran.returncode == 0, ran.stderr
    assert len(list((tmp_path / "out").glob("*.tif"))) == 3


def test_a_summary_has_a_kind_and_is_not_replaced(tmp_path):
    with pytest.raises(UsageError, match=r"ends in \.csv, \.json, \.txt"):
        Summary(tmp_path / "a.pdf")
    with Summary(tmp_path / "a.txt") as summary:
        summary.add(tmp_path / "b", "failed", why="no reason")
    assert (tmp_path / "a.txt").read_text().endswith("1 failed; 0.0 s, 0 bytes\n")
    with pytest.raises(OutputError, match="exists"):
        Summary(tmp_path / "a.txt")


def test_a_forecast_is_of_the_workers(pdenet, scene, tmp_path):
    words = ("upscale", scene, "-o", tmp_path / "a.tif", "--model", "bicubic", "--dry-run", "--json")
    told = json.loads(pdenet(*words, "--tile", 20, "--workers", 3).stdout)
    assert told["workers"] == 3
    both = pdenet(*words, "--workers", 2, "--cluster", "tcp://nowhere:1")
    assert both.returncode == 2
    assert "give one of them" in both.stderr


def test_scores_of_scenes_from_workers_are_those_of_one_process(models, engine, tmp_path):
    scenes = [written(tmp_path / f"s{n}.tif", picture(4, 24, 20, seed=n)) for n in range(3)]
    settings = TruthSettings(uncertainty=True)
    name = str(models / "calibrated.safetensors")
    told = []
    for who in (None, engine):
        evaluation = Benchmark([name], [2], 0, "cpu", settings).run(scenes, engine=who).to_dict()
        told.append(json.dumps(evaluation["scenes"], sort_keys=True))
    without = [[{**scene, "systems": None} for scene in json.loads(text)] for text in told]
    assert without[0] == without[1]
    values = [[{n: s["values"] for n, s in scene["systems"].items()} for scene in json.loads(t)] for t in told]
    assert values[0] == values[1]
