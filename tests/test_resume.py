"""Runs that are broken off go on where they were, to the same bytes, and only as the run that they are."""

import dataclasses
import errno
import json
import os
import random
import signal
import time
from pathlib import Path
from unittest.mock import Mock

import h5py
import imagecodecs
import numpy as np
import pytest

from pdenet_cli import Cube, open_cube
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats.common import raw
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools import delivery
from pdenet_cli.tools.job import Job, Settings
from pdenet_cli.uncertainty.summaries import Question
from tests.command import start, wait_for_tile
from tests.conftest import with_room_for


def test_a_new_run_clears_away_what_a_broken_off_one_left_of_other_maps(pdenet, scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = Settings(tile=8, maps=("std", "share"))
    run = Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(run), next(run)
    run.close()
    (tmp_path / ".fine_other.img.partial").touch()  # somebody else's
    assert len(list(tmp_path.glob(".fine_s*.partial"))) >= 4
    list(Job(scene, tmp_path / "fine.hdr", posterior, Settings(overwrite=True)).run())
    assert [path.name for path in tmp_path.glob(".*")] == [".fine_other.img.partial"]


def test_the_partial_file_of_another_run_is_left_alone(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = Settings(tile=8, maps=("std",), per_band=True)
    run = Job(scene, tmp_path / "fine.tif", posterior, settings).run()
    next(run), next(run)
    run.close()
    other = Job(scene, tmp_path / "fine_std.tif", posterior, Settings(tile=8)).run()
    next(other), next(other)
    list(Job(scene, tmp_path / "fine.tif", posterior, Settings(overwrite=True)).run())
    list(other)
    assert (tmp_path / "fine_std.tif").exists()


@pytest.mark.parametrize("name", ["fine.hdr", "fine.png", "fine.hdr.report.json"])
def test_a_file_that_appeared_since_is_not_replaced_by_resume(scene, models, tmp_path, name):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = Job(scene, tmp_path / "fine.hdr", posterior, Settings(tile=8)).run()
    next(run), next(run)
    run.close()
    (tmp_path / name).write_text("somebody else's")
    again = Settings(tile=8, resume=True, quicklook=True)
    with pytest.raises(OutputError, match=f"{name} exists"):
        list(Job(scene, tmp_path / "fine.hdr", posterior, again).run())
    assert (tmp_path / name).read_text() == "somebody else's"
    list(Job(scene, tmp_path / "fine.hdr", posterior, dataclasses.replace(again, overwrite=True)).run())
    assert (tmp_path / "fine.img").exists()


def test_a_run_begun_to_replace_files_replaces_them_when_it_is_resumed(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    (tmp_path / "fine.hdr").write_text("old")
    run = Job(scene, tmp_path / "fine.hdr", posterior, Settings(tile=8, overwrite=True)).run()
    next(run), next(run)
    run.close()
    list(Job(scene, tmp_path / "fine.hdr", posterior, Settings(tile=8, resume=True)).run())
    assert (tmp_path / "fine.hdr").read_text().startswith("ENVI")


@pytest.mark.parametrize("found", ["[]\n", "5\n", "mine", '{"files": null}\n', "[" * 100_000, "\0" * 40, "\n\n"])
@pytest.mark.parametrize("resume", [True, False])
def test_a_journal_of_somebody_else_is_left_alone_unless_it_may_be_replaced(scene, tmp_path, found, resume):
    (tmp_path / ".fine.hdr.journal").write_text(found)
    posterior = Posterior(bicubic_model(2), 1)
    with pytest.raises(OutputError, match=r"it is no journal of pdenet\. `overwrite` without `resume` starts"):
        list(Job(scene, tmp_path / "fine.hdr", posterior, Settings(resume=resume)).run())
    assert [path.name for path in tmp_path.glob("*fine*")] == [".fine.hdr.journal"]
    assert (tmp_path / ".fine.hdr.journal").read_text() == found
    list(Job(scene, tmp_path / "fine.hdr", posterior, Settings(overwrite=True)).run())
    assert (tmp_path / "fine.hdr").exists()


def test_what_a_format_cannot_hold_is_refused_before_a_broken_off_run_is_touched(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = Job(scene, tmp_path / "fine.bip", posterior, Settings(tile=8)).run()
    next(run), next(run)
    run.close()
    (tmp_path / "fine.img").touch()
    parts = sorted(tmp_path.glob(".fine*"))
    with pytest.raises(OutputError, match=r"fine\.img would be read as a part of fine\.hdr"):
        Job(scene, tmp_path / "fine.bip", posterior, Settings(tile=8, resume=True))
    assert sorted(tmp_path.glob(".fine*")) == parts


def test_a_killed_run_resumes_to_the_same_bytes(pdenet, scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2, "--with-uncertainty")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert pdenet("upscale", scene, "-o", tmp_path / "a" / "fine.hdr", *tiles).returncode == 0
    chance = random.Random(4)
    for moment in (1, 12):
        run = start("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume")
        wait_for_tile(tmp_path / "b", moment)
        time.sleep(chance.random() / 20)
        run.kill()
        run.communicate()
    assert pdenet("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume").returncode == 0
    for file in (tmp_path / "a").glob("*.img"):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    again = pdenet("upscale", scene, "-o", tmp_path / "b" / "fine.hdr", *tiles, "--resume")
    assert again.returncode == 0  # finished already: nothing to do


def test_a_page_that_cannot_be_written_is_written_by_resume(scene, models, tmp_path, monkeypatch):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = Settings(cube=False, maps=("std",), page=True)
    job = Job(scene, tmp_path / "m.hdr", posterior, settings)
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "write_page", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(
            OutputError, match=r"No space left.*The finished tiles are kept: continue with `resume`"
        ):
            list(job.run())
    again = Job(scene, tmp_path / "m.hdr", posterior, dataclasses.replace(settings, resume=True))
    list(again.run())
    assert all(Path(path).exists() for path in again.report.outputs.values())
    assert {"page", "picture", "mean", "std_merged"} == set(again.report.outputs)
    assert not list(tmp_path.glob(".m*"))


def test_pictures_asked_for_later_are_made_by_resume(pdenet, scene, models, tmp_path):
    words = (
        "upscale",
        scene,
        "-o",
        tmp_path / "fine.hdr",
        "--model",
        models / "pdenet.safetensors",
        "--samples",
        2,
    )
    assert pdenet(*words).returncode == 0
    cube = (tmp_path / "fine.img").stat().st_mtime_ns
    assert pdenet(*words, "--resume", "--quicklook").returncode == 0
    assert (tmp_path / "fine.png").exists()
    assert (tmp_path / "fine.img").stat().st_mtime_ns == cube  # only the picture is new


def test_resume_takes_only_what_is_there_for_finished(bicubic, tmp_path):
    assert bicubic(tmp_path / "fine.hdr")[0] == 0
    assert bicubic(tmp_path / "fine.tif", "--resume")[0] == 0  # another output, with a report of its own
    assert (tmp_path / "fine.tif").exists()
    assert {path.name for path in tmp_path.glob("*.json")} == {"fine.hdr.report.json", "fine.tif.report.json"}
    (tmp_path / "fine.img").unlink()
    assert bicubic(tmp_path / "fine.hdr", "--resume", "--overwrite")[0] == 0
    assert (tmp_path / "fine.img").exists()


def test_a_scene_of_pictures_is_the_same_whatever_lies_beside_them(tmp_path):
    folder = tmp_path / "bands"
    folder.mkdir()
    for number, band in enumerate(np.random.default_rng(0).integers(0, 250, (3, 12, 12), np.uint8)):
        (folder / f"s_{number}.png").write_bytes(imagecodecs.png_encode(band))
    posterior = Posterior(bicubic_model(2), 1)
    (folder / "notes").symlink_to("/proc/self/mem")  # which nobody can read
    run = Job(folder, folder / "fine.tif", posterior, Settings(tile=6)).run()
    next(run)
    next(run)
    run.close()
    again = Settings(tile=6, resume=True)
    steps = Job(folder, folder / "fine.tif", posterior, again).run()
    assert next(steps) == (1, 4)
    list(steps)
    assert list(Job(folder, folder / "fine.tif", posterior, again).run()) == []  # finished
    told = json.loads((folder / "fine.tif.report.json").read_text())["job"]
    assert set(told["inputs"]) == {"s_0.png", "s_1.png", "s_2.png"}


@pytest.mark.parametrize("done", [0, 2])
@pytest.mark.parametrize("error", [FormatError("a.tif: can no longer be read."), ZeroDivisionError("a bug.")])
def test_what_is_done_stays_whatever_goes_wrong(make_cube, tmp_path, monkeypatch, done, error):
    scene, _ = make_cube("a.tif", rows=24, columns=12)
    posterior, out = Posterior(bicubic_model(2), 1), tmp_path / "fine.tif"
    job = Job(scene, out, posterior, Settings(tile=6))
    read, count = job.scene.cube.read, []

    def failing(*words):
        count.append(words)
        if len(count) > done:
            raise error
        return read(*words)

    monkeypatch.setattr(job.scene.cube, "read", failing)
    told = done and isinstance(error, FormatError)
    with pytest.raises(type(error), match="continue with `resume`" if told else r"(read|bug)\.$"):
        list(job.run())
    assert bool(list(tmp_path.glob(".*"))) == bool(done)
    again = Job(scene, out, posterior, Settings(tile=6, resume=True))
    assert bool(next(iter(again.run()))[0]) == bool(done)
    list(Job(scene, out, posterior, Settings(tile=6, resume=True)).run())
    list(Job(scene, tmp_path / "whole.tif", posterior, Settings()).run())
    with open_cube(out) as one, open_cube(tmp_path / "whole.tif") as other:
        np.testing.assert_array_equal(one.read(), other.read())


@pytest.mark.parametrize("done", [0, 2])
def test_what_is_done_stays_where_the_disk_fills_up(make_cube, tmp_path, monkeypatch, done):
    scene, _ = make_cube("a.tif", rows=24, columns=12)
    posterior, out = Posterior(bicubic_model(2), 1), tmp_path / "fine.tif"
    write, count = Cube.write, []

    def failing(*words):
        count.append(words)
        if len(count) > done:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*words)

    with monkeypatch.context() as patched:
        patched.setattr(Cube, "write", failing)
        says = "kept: continue with `resume`" if done else "No partial file was left"
        with pytest.raises(OutputError, match=rf"cannot be written \(No space left on device\)\. .*{says}\.$"):
            list(Job(scene, out, posterior, Settings(tile=6)).run())
    assert bool(list(tmp_path.glob(".*"))) == bool(done)
    again = Settings(tile=6, resume=True)
    if done:  # still no room, which is met on opening what there is
        with monkeypatch.context() as patched:
            patched.setattr(raw, "_reserved", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
            with pytest.raises(OutputError, match=r"No space left.* kept: continue with `resume`\.$"):
                list(Job(scene, out, posterior, again).run())
    steps = Job(scene, out, posterior, again).run()
    assert next(steps) == (done, 8)
    list(steps)
    list(Job(scene, tmp_path / "whole.tif", posterior, Settings()).run())
    assert out.read_bytes() == (tmp_path / "whole.tif").read_bytes()


def test_finished_results_among_the_scenes_are_left_by_resume(pdenet, make_cube, tmp_path):
    scene, _ = make_cube("a.tif", rows=12, columns=12)
    words = ("--model", "bicubic", "--scale", 2, "-o", tmp_path)
    assert pdenet("upscale", scene, *words).returncode == 0
    before = (tmp_path / "a_x2.tif").read_bytes()
    assert pdenet("upscale", scene, tmp_path / "a_x2.tif", "--resume", *words).returncode == 0
    assert (tmp_path / "a_x2.tif").read_bytes() == before


def test_a_run_is_resumed_by_another_name_of_its_files_and_not_in_another_format(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)

    def go_on(name):
        return Job(scene, tmp_path / name, posterior, Settings(tile=8, resume=True)).run()

    run = go_on("fine.hdr")
    for _ in range(4):
        next(run)
    run.close()
    other = go_on("fine.tif")
    assert next(other) == (0, 20)
    other.close()
    rest = go_on("fine.img")
    assert next(rest) == (3, 20)
    list(rest)
    assert {path.name for path in tmp_path.glob("fine*")} == {
        "fine.hdr", "fine.img", "fine.qml", "fine.hdr.report.json",
    }  # fmt: skip


def broken_off(scene, models, tmp_path):
    """A run that stopped in its middle, and a function that goes on with it; what was said is returned."""
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = Job(scene, tmp_path / "fine.hdr", posterior, Settings(tile=8)).run()
    for _ in range(4):
        next(run)
    run.close()

    def go_on(**changes):
        said = []
        settings = Settings(**{"tile": 8, "resume": True} | changes)
        job = Job(scene, tmp_path / "fine.hdr", posterior, settings)
        first = next(steps := job.run(said.append))
        list(steps)
        return first, said

    return go_on


def test_a_resumed_run_goes_on_or_says_why_it_starts_again(scene, models, tmp_path):
    assert broken_off(scene, models, tmp_path)() == ((3, 20), [])
    whole = (tmp_path / "fine.img").read_bytes()
    for name in ("fine.hdr", "fine.img", "fine.hdr.report.json"):
        (tmp_path / name).unlink()
    first, said = broken_off(scene, models, tmp_path)(tile=20)
    assert first == (0, 4)
    assert "different tiles" in said[0]
    np.testing.assert_allclose(np.fromfile(tmp_path / "fine.img", "<i2"), np.frombuffer(whole, "<i2"), atol=1)
    for name in ("fine.hdr", "fine.img", "fine.hdr.report.json"):
        (tmp_path / name).unlink()
    go_on = broken_off(scene, models, tmp_path)
    with pytest.raises(OutputError, match=r"interrupted run is here\. `resume` continues it, `overwrite` starts"):
        go_on(resume=False)
    assert go_on(resume=False, overwrite=True) == ((0, 20), [])


@pytest.mark.parametrize(
    ("settings", "draws", "word"),
    [
        ({"dtype": "float32"}, {}, "dtype"),
        ({"bands": slice(0, 3)}, {}, "bands"),
        ({"value_range": (0, 500)}, {}, "radiometry"),
        ({"nodata": 7}, {}, "radiometry"),
        ({"halo": 1}, {}, "halo"),
        ({"maps": ("std", "share")}, {}, "outputs"),
        ({"question": Question(grey_levels=7)}, {}, "uncertainty"),
        ({}, {"samples": 3}, "samples"),
        ({}, {"seed": 1}, "seed"),
        ({}, {"ensemble": "flips"}, "ensemble"),
    ],
)
def test_only_the_run_that_was_broken_off_is_resumed(scene, models, tmp_path, settings, draws, word):
    model, out = load_model(models / "pdenet.safetensors"), tmp_path / "fine.tif"

    def run(settings, draws):
        posterior = Posterior(model, **{"samples": 2} | draws)
        return Job(scene, out, posterior, Settings(**{"maps": ("std",)} | settings)).run()

    begun = run({}, {})
    next(begun)
    begun.close()
    with pytest.raises(OutputError, match=rf"differs in (\w+, )*{word}\b.*`overwrite` instead of `resume`"):
        next(run(settings | {"resume": True}, draws))
    again = run({"resume": True}, {})
    assert next(again) == (0, 1)
    again.close()


@pytest.mark.parametrize(
    ("changed", "word"), [({"variable": "b"}, "variable"), ({"axes": "bcr"}, "axes"), ({"axes": "rcb"}, "shape")]
)
def test_a_scene_that_is_read_in_another_way_is_another_run(tmp_path, changed, word):
    scene, posterior = tmp_path / "two.h5", Posterior(bicubic_model(2), 1)
    with h5py.File(scene, "w") as file:
        for name in "ab":
            file[name] = np.random.default_rng(ord(name)).integers(0, 99, (4, 12, 12), np.int16)
    asked = {"variable": "a", "axes": "brc", "tile": 6}

    def run(name, **changes):
        return Job(scene, tmp_path / name, posterior, Settings(**asked | changes)).run()

    begun = run("fine.tif")
    next(begun), next(begun)
    begun.close()
    with pytest.raises(OutputError, match=rf"differs in (\w+, )*{word}\b"):
        next(run("fine.tif", resume=True, **changed))
    rest = run("fine.tif", resume=True)
    assert next(rest) == (1, 4)
    list(rest)
    with pytest.raises(OutputError, match="exists"):  # the result of another run is not taken for this one's
        list(run("fine.tif", resume=True, **changed))
    assert list(run("fine.tif", resume=True)) == []
    told = json.loads((tmp_path / "fine.tif.report.json").read_text())["job"]
    assert (told["variable"].strip("/"), told["axes"], told["shape"]) == ("a", "brc", [4, 12, 12])


def test_what_is_done_is_not_done_again(make_cube, tmp_path, monkeypatch):
    scene, _ = make_cube("a.tif", rows=24, columns=12)
    posterior, out = Posterior(bicubic_model(2), 1), tmp_path / "fine.tif"
    run = Job(scene, out, posterior, Settings(tile=6)).run()
    for _ in range(6):
        next(run)
    run.close()
    samples = Mock(side_effect=posterior.samples)
    monkeypatch.setattr(posterior, "samples", samples)
    steps = Job(scene, out, posterior, Settings(tile=6, resume=True)).run()
    assert list(steps) == [(5, 8), (6, 8), (7, 8), (8, 8)]
    assert samples.call_count == 3


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_run_goes_on_in_a_format_that_orders_the_axes_of_a_scene_anew(suffix, scene, models, tmp_path):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    list(Job(scene, tmp_path / f"whole.{suffix}", posterior, Settings(tile=8)).run())
    run = Job(scene, tmp_path / f"fine.{suffix}", posterior, Settings(tile=8)).run()
    next(run), next(run), next(run)
    run.close()
    again = Job(scene, tmp_path / f"fine.{suffix}", posterior, Settings(tile=8, resume=True))
    rest = again.run()
    assert next(rest)[0] > 0
    list(rest)
    whole, fine = (open_cube(tmp_path / f"{name}.{suffix}") for name in ("whole", "fine"))
    assert fine.meta.interleave == "bsq"
    np.testing.assert_array_equal(fine.read(), whole.read())


def test_lost_pixels_of_a_broken_off_run_are_made_again(scene, models, tmp_path):
    go_on = broken_off(scene, models, tmp_path)
    (tmp_path / ".fine.img.partial").unlink()
    assert go_on()[0] == (0, 20)


def test_ctrl_c_leaves_a_state_to_resume_and_exits_130(pdenet, scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2)
    run = start("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles)
    wait_for_tile(tmp_path)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in said
    assert "--resume" in said
    assert not (tmp_path / "fine.hdr").exists()
    other = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles, "--resume", "--seed", 5)
    assert other.returncode == 5
    assert "differs in seed" in other.stderr
    assert pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles, "--resume").returncode == 0
    assert not list(tmp_path.glob(".*"))


def test_a_run_that_finds_no_room_to_go_on_may_go_on_later(scene, models, tmp_path, monkeypatch):
    go_on = broken_off(scene, models, tmp_path)
    part = tmp_path / ".fine.img.partial"
    content = part.read_bytes()
    part.write_bytes(b"")
    os.truncate(part, len(content))  # a file system that reserves nothing leaves such gaps
    with monkeypatch.context() as patched:
        with_room_for(1000, patched)
        with pytest.raises(OutputError, match="bytes needed"):
            go_on()
    part.write_bytes(content)
    assert go_on() == ((3, 20), [])
