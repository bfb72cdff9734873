"""Runs that are broken off, resumed, refused or run out of disk: never a half-written file, never a lost one."""

import dataclasses
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from unittest.mock import Mock

import imagecodecs
import numpy as np
import pytest

from pdenet_cli import __version__, open_cube, report
from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.formats import output
from pdenet_cli.models import bicubic_model, load_model
from pdenet_cli.posterior import Posterior
from pdenet_cli.summaries import Question
from pdenet_cli.tools import delivery, sharpen
from tests.conftest import ROOT


def test_nothing_that_exists_is_replaced_unasked(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "--samples", 1, "--quicklook")
    for name in ("fine.img", "fine.png", "fine.report.json"):
        (tmp_path / name).write_text("mine")
        ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
        assert ran.returncode == 5
        assert f"{name} exists" in ran.stderr
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def start(*arguments, **options):
    command = [sys.executable, "-m", "pdenet_cli", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        **options,
    )


def wait_for_tile(folder, count=1, seconds=60):
    """Until a run in `folder` has noted so many tiles."""
    for _ in range(seconds * 100):
        journals = list(folder.glob(".*.journal"))
        if journals and journals[0].read_text().count("tile ") >= count:
            return
        time.sleep(0.01)
    raise TimeoutError


def test_a_new_run_clears_away_what_a_broken_off_one_left_of_other_maps(pdenet, scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8, maps=("std", "share"))
    run = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(run), next(run)
    run.close()
    (tmp_path / ".fine_other.img.partial").touch()  # somebody else's
    assert len(list(tmp_path.glob(".fine_s*.partial"))) >= 4
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings(overwrite=True)).run())
    assert [path.name for path in tmp_path.glob(".*")] == [".fine_other.img.partial"]


def test_the_partial_file_of_another_run_is_left_alone(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8, maps=("std",))
    run = sharpen.Job(scene, tmp_path / "fine.tif", posterior, settings).run()
    next(run), next(run)
    run.close()
    other = sharpen.Job(scene, tmp_path / "fine_std.tif", posterior, sharpen.Settings(tile=8)).run()
    next(other), next(other)
    list(sharpen.Job(scene, tmp_path / "fine.tif", posterior, sharpen.Settings(overwrite=True)).run())
    list(other)
    assert (tmp_path / "fine_std.tif").exists()


@pytest.mark.parametrize("told", ["[]", "5", '{"files": null}', '{"files": [1, "../x.partial"]}', "{"])
def test_a_strange_journal_is_no_more_than_no_journal(scene, models, tmp_path, told):
    (tmp_path / ".fine.journal").write_text(told + "\n")
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings()).run())
    assert (tmp_path / "fine.hdr").exists()


def test_what_a_format_cannot_hold_is_refused_before_a_broken_off_run_is_touched(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = sharpen.Job(scene, tmp_path / "fine.bip", posterior, sharpen.Settings(tile=8)).run()
    next(run), next(run)
    run.close()
    (tmp_path / "fine.img").touch()
    parts = sorted(tmp_path.glob(".fine*"))
    with pytest.raises(OutputError, match=r"fine\.img would be read as a part of fine\.hdr"):
        sharpen.Job(scene, tmp_path / "fine.bip", posterior, sharpen.Settings(tile=8, resume=True))
    assert sorted(tmp_path.glob(".fine*")) == parts


def test_what_a_format_cannot_hold_is_refused_before_the_scene_is_read(make_cube, tmp_path, monkeypatch):
    scene, _ = make_cube("scene.h5", dtype="<f2")
    monkeypatch.setattr(sharpen.Survey, "of", Mock(side_effect=AssertionError))
    with pytest.raises(OutputError, match="MATLAB cannot hold float16"):
        sharpen.Job(scene, tmp_path / "fine.mat", Posterior(bicubic_model(2), 1), sharpen.Settings())


def test_a_killed_run_resumes_to_the_same_bytes(pdenet, scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2, "--with-uncertainty")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert pdenet("upscale", scene, "-o", tmp_path / "a" / "fine.hdr", *tiles).returncode == 0
    chance = random.Random(4)
    for moment in (1, 5, 12):
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
    settings = sharpen.Settings(cube=False, maps=("std",), page=True)
    job = sharpen.Job(scene, tmp_path / "m.hdr", posterior, settings)
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "write_page", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(
            OutputError, match=r"No space left.*The finished tiles are kept: continue with --resume"
        ):
            list(job.run())
    again = sharpen.Job(scene, tmp_path / "m.hdr", posterior, dataclasses.replace(settings, resume=True))
    list(again.run())
    assert all(Path(path).exists() for path in again.report.outputs.values())
    assert {"page", "picture", "mean", "std", "std_merged"} == set(again.report.outputs)
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
    code, said = bicubic(tmp_path / "fine.tif", "--resume")  # of the same report
    assert code == 5
    assert "fine.report.json exists" in said
    (tmp_path / "fine.img").unlink()
    assert bicubic(tmp_path / "fine.hdr", "--resume", "--overwrite")[0] == 0
    assert (tmp_path / "fine.img").exists()


def test_a_scene_never_replaces_itself(bicubic, scene):
    before = scene.with_suffix(".img").read_bytes()
    code, said = bicubic(scene, "--overwrite")
    assert code == 5
    assert "is the scene itself" in said
    assert scene.with_suffix(".img").read_bytes() == before


@pytest.mark.parametrize("output", ["scene.hdr", "scene.img"])
def test_what_lies_beside_a_scene_is_not_replaced_either(bicubic, make_cube, tmp_path, output):
    path, _ = make_cube("scene.tif", bands=3, rows=12, columns=12)
    sizes = "ENVI\nsamples = 12\nlines = 12\nbands = 3\ndata type = 12\nbyte order = 0\n"
    (tmp_path / "scene.hdr").write_text(before := f"{sizes}wavelength = {{500, 600, 700}}\n")
    code, said = bicubic(tmp_path / output, "--overwrite", of=path)
    assert (code, "is the scene itself" in said) == (5, True), said
    assert (tmp_path / "scene.hdr").read_text() == before
    assert bicubic(tmp_path / "fine.tif", of=path)[0] == 0
    told = json.loads((tmp_path / "fine.report.json").read_text())["job"]
    assert set(told["inputs"]) == {"scene.tif", "scene.hdr"}


@pytest.mark.parametrize("output", ["in.zarr/fine.zarr", "in.zarr/p/fine.tif", "in.zarr"])
def test_nothing_is_written_into_a_scene_that_is_a_folder(bicubic, scene, tmp_path, output):
    store = tmp_path / "in.zarr"
    assert bicubic(store)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    code, said = bicubic(tmp_path / output, "--overwrite", of=store)
    assert (code, "scene" in said) == (5, True), said
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_a_picture_never_replaces_a_band_of_the_scene(bicubic, tmp_path):
    folder = tmp_path / "bands"
    folder.mkdir()
    for number in (1, 2, 3):
        picture = np.random.default_rng(number).integers(0, 60000, (12, 12)).astype(np.uint16)
        (folder / f"s_{number}.png").write_bytes(imagecodecs.png_encode(picture))
    before = [path.read_bytes() for path in sorted(folder.iterdir())]
    code, said = bicubic(folder / "s_1.tif", "--quicklook", "--overwrite", of=folder)
    assert (code, "inside the scene" in said) == (5, True), said
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == before
    assert bicubic(folder / "fine.tif", of=folder)[0] == 0  # which is no picture


def test_a_scene_of_pictures_is_the_same_whatever_lies_beside_them(tmp_path):
    folder = tmp_path / "bands"
    folder.mkdir()
    for number, band in enumerate(np.random.default_rng(0).integers(0, 250, (3, 12, 12), np.uint8)):
        (folder / f"s_{number}.png").write_bytes(imagecodecs.png_encode(band))
    posterior = Posterior(bicubic_model(2), 1)
    (folder / "notes").symlink_to("/proc/self/mem")  # which nobody can read
    run = sharpen.Job(folder, folder / "fine.tif", posterior, sharpen.Settings(tile=6)).run()
    next(run)
    next(run)
    run.close()
    again = sharpen.Settings(tile=6, resume=True)
    steps = sharpen.Job(folder, folder / "fine.tif", posterior, again).run()
    assert next(steps) == (1, 4)
    list(steps)
    assert list(sharpen.Job(folder, folder / "fine.tif", posterior, again).run()) == []  # finished
    told = json.loads((folder / "fine.report.json").read_text())["job"]
    assert set(told["inputs"]) == {"s_0.png", "s_1.png", "s_2.png"}


def test_an_input_that_cannot_be_read_any_more_is_one_line(scene, tmp_path):
    job = sharpen.Job(scene, tmp_path / "fine.tif", Posterior(bicubic_model(2), 1), sharpen.Settings())
    scene.with_suffix(".img").unlink()
    with pytest.raises(FormatError, match=r"scene\.img: cannot be read \(No such file"):
        list(job.run())
    assert not list(tmp_path.glob("*fine*"))


@pytest.mark.parametrize("done", [0, 2])
def test_what_is_done_stays_where_the_scene_cannot_be_read_for_a_while(make_cube, tmp_path, monkeypatch, done):
    scene, _ = make_cube("a.tif", rows=24, columns=12)
    posterior, out = Posterior(bicubic_model(2), 1), tmp_path / "fine.tif"
    job = sharpen.Job(scene, out, posterior, sharpen.Settings(tile=6))
    read, count = job.source.read, []

    def failing(*words):
        count.append(words)
        if len(count) > done:
            raise FormatError("a.tif: can no longer be read (Input/output error).")
        return read(*words)

    monkeypatch.setattr(job.source, "read", failing)
    with pytest.raises(FormatError, match="continue with --resume" if done else r"error\)\.$"):
        list(job.run())
    assert bool(list(tmp_path.glob(".*"))) == bool(done)
    again = sharpen.Job(scene, out, posterior, sharpen.Settings(tile=6, resume=True))
    assert bool(next(iter(again.run()))[0]) == bool(done)
    list(sharpen.Job(scene, out, posterior, sharpen.Settings(tile=6, resume=True)).run())
    list(sharpen.Job(scene, tmp_path / "whole.tif", posterior, sharpen.Settings()).run())
    with open_cube(out) as one, open_cube(tmp_path / "whole.tif") as other:
        np.testing.assert_array_equal(one.read(), other.read())


def test_no_scene_of_several_is_replaced_by_the_result_of_another(pdenet, make_cube, tmp_path):
    first, _ = make_cube("a.tif", rows=12, columns=12)
    second, pixels = make_cube("a_x2.tif", rows=12, columns=12, seed=1)
    words = ("--model", "bicubic", "--scale", 2, "--overwrite", "-o", tmp_path)
    ran = pdenet("upscale", first, second, *words)
    assert ran.returncode == 7
    assert "another" in ran.stderr
    with open_cube(second) as cube:
        np.testing.assert_array_equal(cube.read(), pixels)
    (tmp_path / "out").mkdir()
    link = tmp_path / "out" / "a_x2.tif"  # the same by a link
    link.symlink_to(second)
    ran = pdenet("upscale", first, link, *words[:-1], tmp_path / "out")
    assert (ran.returncode, "another" in ran.stderr, link.is_symlink()) == (7, True, True)


def test_no_file_beside_a_scene_of_several_is_replaced_by_the_result_of_another(pdenet, make_cube, tmp_path):
    first, _ = make_cube("a.hdr", rows=12, columns=12)
    second, pixels = make_cube("a_x2.tif", rows=12, columns=12, seed=1)
    header = tmp_path / "a_x2.hdr"  # which a result of `first` would be called too
    lines = f"ENVI\nsamples = 12\nlines = 12\nbands = {len(pixels)}\ndata type = 4\n"
    header.write_text(lines + f"wavelength = {{{', '.join(str(500 + b) for b in range(len(pixels)))}}}\n")
    before = header.read_bytes()
    words = ("--model", "bicubic", "--scale", 2, "--overwrite", "-o", tmp_path)
    ran = pdenet("upscale", first, second, *words)
    assert ran.returncode == 7
    assert "a file of a_x2.tif" in " ".join(ran.stderr.split())
    assert header.read_bytes() == before


def test_a_folder_of_results_among_the_scenes_stops_no_other(pdenet, make_cube, tmp_path):
    scene, _ = make_cube("a.tif", rows=12, columns=12)
    (tmp_path / "out").mkdir()
    words = ("--model", "bicubic", "--scale", 2, "-o", tmp_path / "out")
    assert pdenet("upscale", scene, tmp_path / "out", *words).returncode == 7
    assert (tmp_path / "out" / "a_x2.tif").exists()


def test_finished_results_among_the_scenes_are_left_by_resume(pdenet, make_cube, tmp_path):
    scene, _ = make_cube("a.tif", rows=12, columns=12)
    words = ("--model", "bicubic", "--scale", 2, "-o", tmp_path)
    assert pdenet("upscale", scene, *words).returncode == 0
    before = (tmp_path / "a_x2.tif").read_bytes()
    assert pdenet("upscale", scene, tmp_path / "a_x2.tif", "--resume", *words).returncode == 0
    assert (tmp_path / "a_x2.tif").read_bytes() == before


def test_a_link_to_nowhere_is_something_that_exists(bicubic, tmp_path):
    (tmp_path / "fine.tif").symlink_to(tmp_path / "nowhere")
    assert "exists" in bicubic(tmp_path / "fine.tif")[1]


def test_a_dry_run_may_be_about_an_output_that_exists(bicubic, tmp_path):
    (tmp_path / "fine.tif").write_text("mine")
    assert bicubic(tmp_path / "fine.tif", "--dry-run")[0] == 0
    assert (tmp_path / "fine.tif").read_text() == "mine"


def test_a_name_that_the_terminal_cannot_show_is_no_failure(pdenet, make_cube, tmp_path):
    path, _ = make_cube("ünï.tif")
    ran = pdenet("info", path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
@pytest.mark.parametrize("suffix", ["hdr", "zarr"])
def test_a_file_name_that_is_no_text_is_no_failure(pdenet, make_cube, models, tmp_path, suffix):
    path, _ = make_cube(os.fsdecode(b"sc\xe9ne.") + suffix, rows=12, columns=12)
    words = ("--model", models / "pdenet.safetensors", "--samples", 2, "--map", "std", "--quicklook")
    ran = pdenet("uncertainty", path, "-o", tmp_path / "maps", *words)
    assert ran.returncode == 0, ran.stderr
    (page,) = (tmp_path / "maps").glob("*.html")
    assert r"sc\udce9ne" in page.read_text("utf-8")
    ran = pdenet("evaluate", path, path, "--html", tmp_path / "e.html", "--csv", tmp_path / "e.csv")
    assert ran.returncode == 0, ran.stderr
    assert r"sc\udce9ne" in (tmp_path / "e.csv").read_text("utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
def test_a_folder_has_a_hash_whatever_its_files_are_called(tmp_path):
    (tmp_path / "scene").mkdir()
    (tmp_path / "scene" / os.fsdecode(b"\xe9")).write_text("a")
    assert len(report.hashes([tmp_path / "scene"])["scene"]) == 64


def test_a_checkout_that_nobody_has_installed_knows_its_version(monkeypatch):
    monkeypatch.setattr(report, "version", {"torch": "2.6"}.__getitem__)
    assert report.versions("torch") | {"python": ""} == {"python": "", "pdenet": __version__, "torch": "2.6"}
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_a_store_is_replaced_and_a_folder_of_its_name_is_not(bicubic, tmp_path):
    pytest.importorskip("zarr")
    store = tmp_path / "fine.zarr"
    assert bicubic(store)[0] == 0
    assert bicubic(store)[0] == 5
    assert bicubic(store, "--overwrite")[0] == 0
    with open_cube(store) as cube:
        assert cube.meta.rows == 160
    folder = tmp_path / "other.zarr"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert bicubic(folder, "--overwrite")[0] == 0
    assert {path.name for path in folder.iterdir()} >= {"notes.txt", "scene_x4.hdr"}


@pytest.mark.parametrize("name", ["fine.img", "fine.report.json", "fine.png"])
def test_a_folder_in_the_way_is_left_and_named_before_the_work(bicubic, tmp_path, name):
    (tmp_path / name).mkdir()
    code, said = bicubic(tmp_path / "fine.hdr", "--overwrite", "--quicklook")
    assert (code, f"{name} is a folder" in said) == (5, True), said
    assert not (tmp_path / "fine.hdr").exists()


@pytest.mark.parametrize("name", ["fine.hdr", "fine.img", "fine.tif"])
def test_two_runs_do_not_write_the_same_output_or_report(scene, models, tmp_path, name):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(tile=8)
    first = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(first)
    with pytest.raises(OutputError, match="another run"):
        list(sharpen.Job(scene, tmp_path / name, posterior, settings).run())
    list(first)
    assert (tmp_path / "fine.hdr").exists()
    assert not list(tmp_path.glob(".fine*"))


def test_a_run_is_resumed_by_another_name_of_its_files_and_not_in_another_format(scene, models, tmp_path):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)

    def go_on(name):
        return sharpen.Job(scene, tmp_path / name, posterior, sharpen.Settings(tile=8, resume=True)).run()

    run = go_on("fine.hdr")
    for _ in range(4):
        next(run)
    run.close()
    with pytest.raises(OutputError, match=r"fine\.tif: the .* run .* files\. Use the same options"):
        next(go_on("fine.tif"))
    rest = go_on("fine.img")
    assert next(rest) == (3, 20)
    list(rest)
    assert {path.name for path in tmp_path.glob("fine*")} == {"fine.hdr", "fine.img", "fine.report.json"}


@pytest.mark.parametrize("end", ["finished", "broken off", "failed", "forecast", "refused"])
def test_no_file_stays_open_however_a_job_ends(make_cube, tmp_path, monkeypatch, end):
    path, _ = make_cube("scene.h5", rows=12, columns=12)
    opened, closed = [], []

    def opening(*words):
        opened.append(open_cube(*words))
        return opened[-1]

    def creating(output, meta, create=delivery.Output.create):
        cube = create(output, meta)
        cube.close = lambda: closed.append(output.path.name)
        return cube

    monkeypatch.setattr(sharpen, "open_cube", opening)
    monkeypatch.setattr(delivery.Output, "create", creating)
    posterior, settings = Posterior(bicubic_model(2), 1), sharpen.Settings(tile=6, dtype="float32")
    if end == "refused":
        with pytest.raises(UsageError, match="select nothing"):
            sharpen.Job(path, tmp_path / "fine.h5", posterior, dataclasses.replace(settings, bands=slice(4, 2)))
    elif end == "forecast":
        with sharpen.Job(path, tmp_path / "fine.h5", posterior, settings) as job:
            assert job.forecast().tiles == 4
    else:
        run = sharpen.Job(path, tmp_path / "fine.h5", posterior, settings).run()
        next(run)
        if end == "broken off":
            run.close()
            assert list(tmp_path.glob(".fine*"))
        elif end == "failed":
            with pytest.raises(ZeroDivisionError):
                run.throw(ZeroDivisionError)
        else:
            list(run)
        assert closed == ["fine.h5"]
    with pytest.raises(FormatError, match="after it was closed"):
        opened[0].read()


def broken_off(scene, models, tmp_path):
    """A run that stopped in its middle, and a function that goes on with it; what was said is returned."""
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    run = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings(tile=8)).run()
    for _ in range(4):
        next(run)
    run.close()

    def go_on(**changes):
        said = []
        settings = sharpen.Settings(**{"tile": 8, "resume": True} | changes)
        job = sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings)
        first = next(steps := job.run(said.append))
        list(steps)
        return first, said

    return go_on


def test_a_resumed_run_goes_on_or_says_why_it_starts_again(scene, models, tmp_path):
    assert broken_off(scene, models, tmp_path)() == ((3, 20), [])
    whole = (tmp_path / "fine.img").read_bytes()
    for name in ("fine.hdr", "fine.img", "fine.report.json"):
        (tmp_path / name).unlink()
    first, said = broken_off(scene, models, tmp_path)(tile=20)
    assert first == (0, 4)
    assert "different tiles" in said[0]
    np.testing.assert_allclose(np.fromfile(tmp_path / "fine.img", "<i2"), np.frombuffer(whole, "<i2"), atol=1)
    for name in ("fine.hdr", "fine.img", "fine.report.json"):
        (tmp_path / name).unlink()
    go_on = broken_off(scene, models, tmp_path)
    with pytest.raises(OutputError, match=r"interrupted run is here\. --resume continues it, --overwrite starts"):
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
        ({"question": Question(levels=7)}, {}, "uncertainty"),
        ({}, {"samples": 3}, "samples"),
        ({}, {"seed": 1}, "seed"),
        ({}, {"ensemble": "flips"}, "ensemble"),
    ],
)
def test_only_the_run_that_was_broken_off_is_resumed(scene, models, tmp_path, settings, draws, word):
    model, out = load_model(models / "pdenet.safetensors"), tmp_path / "fine.tif"

    def run(settings, draws):
        posterior = Posterior(model, **{"samples": 2} | draws)
        return sharpen.Job(scene, out, posterior, sharpen.Settings(**{"maps": ("std",)} | settings)).run()

    begun = run({}, {})
    next(begun)
    begun.close()
    with pytest.raises(OutputError, match=rf"differs in (\w+, )*{word}\b.*--overwrite instead of --resume"):
        next(run(settings | {"resume": True}, draws))
    again = run({"resume": True}, {})
    assert next(again) == (0, 1)
    again.close()


def test_what_is_done_is_not_done_again(make_cube, tmp_path, monkeypatch):
    scene, _ = make_cube("a.tif", rows=24, columns=12)
    posterior, out = Posterior(bicubic_model(2), 1), tmp_path / "fine.tif"
    run = sharpen.Job(scene, out, posterior, sharpen.Settings(tile=6)).run()
    for _ in range(6):
        next(run)
    run.close()
    samples = Mock(side_effect=posterior.samples)
    monkeypatch.setattr(posterior, "samples", samples)
    steps = sharpen.Job(scene, out, posterior, sharpen.Settings(tile=6, resume=True)).run()
    assert list(steps) == [(5, 8), (6, 8), (7, 8), (8, 8)]
    assert samples.call_count == 3


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_run_goes_on_in_a_format_that_orders_the_axes_of_a_scene_anew(suffix, scene, models, tmp_path):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    list(sharpen.Job(scene, tmp_path / f"whole.{suffix}", posterior, sharpen.Settings(tile=8)).run())
    run = sharpen.Job(scene, tmp_path / f"fine.{suffix}", posterior, sharpen.Settings(tile=8)).run()
    next(run), next(run), next(run)
    run.close()
    again = sharpen.Job(scene, tmp_path / f"fine.{suffix}", posterior, sharpen.Settings(tile=8, resume=True))
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


def with_room_for(free, monkeypatch):
    """A disk that has so many bytes free, in a file system that reserves none of them."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(output.shutil, "disk_usage", lambda folder: Mock(free=free))


def test_all_cubes_of_a_run_must_have_room_together(scene, models, tmp_path, monkeypatch):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = sharpen.Settings(maps=("std",), forecast=True)
    with sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings) as job:
        needed = job.forecast().bytes_on_disk
    settings = dataclasses.replace(settings, forecast=False)
    with_room_for(needed - 1, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(sharpen.Survey, "of", Mock(side_effect=AssertionError))
        with pytest.raises(OutputError, match=f"{needed:,} bytes needed"):
            sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings)
    assert not list(tmp_path.glob("*fine*"))
    with_room_for(needed, monkeypatch)
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, settings).run())
    assert (tmp_path / "fine_std.hdr").exists()


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


def test_a_full_disk_ends_in_one_line_and_leaves_nothing(scene, models, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    limit = "ulimit -f 100; exec "  # blocks of 512 or 1024 bytes: less than the output
    words = [sys.executable, "-m", "pdenet_cli", "upscale", scene, "-o", out / "fine.hdr"]
    words += ["--model", models / "pdenet.safetensors", "--samples", "1"]
    ran = subprocess.run(["bash", "-c", limit + " ".join(map(str, words))], capture_output=True, text=True)
    assert ran.returncode == 5, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert "No partial file was left" in ran.stderr
    assert list(out.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(pdenet, scene, models, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    ran = pdenet("upscale", scene, "-o", tmp_path / "shut" / "x.hdr", "--model", models / "pdenet.safetensors")
    assert ran.returncode == 5


def test_an_input_that_vanishes_is_named(scene, models, tmp_path):
    tiles = ("--model", models / "pdenet.safetensors", "--tile", 4, "--samples", 2)
    run = start("upscale", scene, "-o", tmp_path / "fine.hdr", *tiles)
    wait_for_tile(tmp_path)
    scene.with_suffix(".img").unlink()
    _, said = run.communicate(timeout=60)
    assert run.returncode == 3
    assert "scene" in said
    assert not (tmp_path / "fine.hdr").exists()


def test_a_name_too_long_for_the_disk_is_one_line_and_stops_no_other(pdenet, make_cube, tmp_path):
    long, _ = make_cube(f"{'l' * 240}.hdr")
    short, _ = make_cube("short.hdr")
    ran = pdenet("uncertainty", long, short, "-o", tmp_path / "maps", "--samples", 2, "--map", "std")
    assert ran.returncode == 7, ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "maps" / "short_std.hdr").exists()
    page = tmp_path / f"{'p' * 300}.html"
    ran = pdenet("evaluate", short, short, "--html", page)
    assert ran.returncode == 5, ran.stderr
    assert "File name too long" in " ".join(ran.stderr.split())


def test_nothing_is_held_open_where_open_files_cannot_be_removed(scene, models, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "fcntl", None)
    opened = []
    really = Path.open

    def noted(path, *how, **more):
        opened.append(really(path, *how, **more))
        return opened[-1]

    monkeypatch.setattr(Path, "open", noted)
    lock = tmp_path / ".lock"
    with output.locked(lock):
        assert not opened
        lock.write_text("")
    assert not lock.exists()
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: _unlinked(path, opened))
    list(sharpen.Job(scene, tmp_path / "fine.hdr", posterior, sharpen.Settings()).run())
    assert (tmp_path / "fine.hdr").exists()


def _unlinked(path, opened):
    """Remove a file as Windows does: not while it is open."""
    if any(file.name == str(path) and not file.closed for file in opened):
        raise PermissionError(f"{path} is open")
    if path.exists():
        os.unlink(path)  # noqa: PTH108


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of this kind there")
def test_a_lock_that_was_taken_away_after_it_was_opened_is_none(tmp_path, monkeypatch):
    lock = tmp_path / ".lock"
    really, taken = output.fcntl.flock, []

    def late(file, how):
        if not taken:  # the run before ends between the opening and the locking
            taken.append(lock.unlink())
        really(file, how)

    monkeypatch.setattr(output.fcntl, "flock", late)
    with output.locked(lock):
        assert lock.exists()
        with pytest.raises(OutputError, match="another run"), output.locked(lock):
            pass
    assert not lock.exists()
