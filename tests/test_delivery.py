"""What a run may replace, what it refuses, and how it ends: never a half-written file, never a lost one."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import imagecodecs
import numpy as np
import pytest

from pdenet_cli import files, open_cube
from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.scene import reading
from pdenet_cli.tools import delivery
from pdenet_cli.tools.job import Job, Settings
from tests.command import command, start, wait_for_tile
from tests.conftest import with_room_for


def test_nothing_that_exists_is_replaced_unasked(pdenet, scene, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "--samples", 1, "--quicklook")
    for name in ("fine.img", "fine.png", "fine.hdr.report.json"):
        (tmp_path / name).write_text("mine")
        ran = pdenet("upscale", scene, "-o", tmp_path / "fine.hdr", *words)
        assert ran.returncode == 5
        assert f"{name} exists" in ran.stderr
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_what_a_format_cannot_hold_is_refused_before_the_scene_is_read(make_cube, tmp_path, monkeypatch):
    scene, _ = make_cube("scene.h5", dtype="<f2")
    monkeypatch.setattr(reading.Survey, "of", Mock(side_effect=AssertionError))
    with pytest.raises(OutputError, match="MATLAB cannot hold float16"):
        Job(scene, tmp_path / "fine.mat", Posterior(bicubic_model(2), 1), Settings())


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
    told = json.loads((tmp_path / "fine.tif.report.json").read_text())["job"]
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


@pytest.mark.parametrize("command", ["upscale", "uncertainty", "evaluate"])
def test_standard_output_is_no_name_for_a_result(pdenet, make_cube, tmp_path, command):
    scene, _ = make_cube()
    words = (scene, "--csv", "-") if command == "evaluate" else ("-o", "-", "--model", "bicubic")
    ran = pdenet(command, scene, *words, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith("pdenet: -: results cannot go to standard output.")
    assert not (tmp_path / "-").exists()


def test_a_tilde_that_the_shell_left_is_the_home_folder(pdenet, make_cube, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    make_cube("~a~.tif")
    words = ("--model", "bicubic", "--scale", 2)
    for name, given in (("b", ("-o", "~/b.tif")), ("c", ("--output=~/c.tif",)), ("d", ("-o~/d.tif",))):
        ran = pdenet("upscale", "~/~a~.tif", *words, *given)
        assert ran.returncode == 0, ran.stderr
        assert (tmp_path / f"{name}.tif").exists()
    assert pdenet("info", "~a~.tif", cwd=tmp_path).returncode == 0  # nobody's home


def test_an_input_that_cannot_be_read_any_more_is_one_line(scene, tmp_path):
    job = Job(scene, tmp_path / "fine.tif", Posterior(bicubic_model(2), 1), Settings())
    scene.with_suffix(".img").unlink()
    with pytest.raises(FormatError, match=r"scene\.img: cannot be read \(No such file"):
        list(job.run())
    assert not list(tmp_path.glob("*fine*"))


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


def test_other_scenes_are_not_looked_at_where_nothing_is_replaced(scene, tmp_path):
    posterior, others = Posterior(bicubic_model(2), 1), MagicMock()
    list(Job(scene, tmp_path / "fine.tif", posterior, Settings(), others).run())
    assert not others.__iter__.called
    list(Job(scene, tmp_path / "fine.tif", posterior, Settings(overwrite=True), others).run())
    assert others.__iter__.called


def test_a_folder_of_results_among_the_scenes_stops_no_other(pdenet, make_cube, tmp_path):
    scene, _ = make_cube("a.tif", rows=12, columns=12)
    (tmp_path / "out").mkdir()
    words = ("--model", "bicubic", "--scale", 2, "-o", tmp_path / "out")
    assert pdenet("upscale", scene, tmp_path / "out", *words).returncode == 7
    assert (tmp_path / "out" / "a_x2.tif").exists()


def test_a_link_to_nowhere_is_something_that_exists(bicubic, tmp_path):
    (tmp_path / "fine.tif").symlink_to(tmp_path / "nowhere")
    assert "exists" in bicubic(tmp_path / "fine.tif")[1]


def test_a_dry_run_may_be_about_an_output_that_exists(bicubic, tmp_path):
    (tmp_path / "fine.tif").write_text("mine")
    assert bicubic(tmp_path / "fine.tif", "--dry-run")[0] == 0
    assert (tmp_path / "fine.tif").read_text() == "mine"


def test_a_name_that_the_terminal_cannot_show_is_no_failure(pdenet_process, make_cube, tmp_path):
    path, _ = make_cube("ünï.tif")
    ran = pdenet_process("info", path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
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


@pytest.mark.parametrize("name", ["fine.img", "fine.hdr.report.json", "fine.png"])
def test_a_folder_in_the_way_is_left_and_named_before_the_work(bicubic, tmp_path, name):
    (tmp_path / name).mkdir()
    code, said = bicubic(tmp_path / "fine.hdr", "--overwrite", "--quicklook")
    assert (code, f"{name} is a folder" in said) == (5, True), said
    assert not (tmp_path / "fine.hdr").exists()


@pytest.mark.parametrize("name", ["fine.hdr", "fine.img", "fine.bip"])
def test_two_runs_do_not_write_the_same_output_or_report(scene, models, tmp_path, name):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = Settings(tile=8)
    first = Job(scene, tmp_path / "fine.hdr", posterior, settings).run()
    next(first)
    with pytest.raises(OutputError, match="another run"):
        list(Job(scene, tmp_path / name, posterior, settings).run())
    list(first)
    assert (tmp_path / "fine.hdr").exists()
    assert not list(tmp_path.glob(".fine*"))


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

    monkeypatch.setattr("pdenet_cli.tools.tile_order.open_cube", opening)
    monkeypatch.setattr(delivery.Output, "create", creating)
    posterior, settings = Posterior(bicubic_model(2), 1), Settings(tile=6, dtype="float32")
    if end == "refused":
        with pytest.raises(UsageError, match="select nothing"):
            Job(path, tmp_path / "fine.h5", posterior, dataclasses.replace(settings, bands=slice(4, 2)))
    elif end == "forecast":
        with Job(path, tmp_path / "fine.h5", posterior, settings) as job:
            assert job.forecast().tiles == 4
    else:
        run = Job(path, tmp_path / "fine.h5", posterior, settings).run()
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


def test_all_cubes_of_a_run_must_have_room_together(scene, models, tmp_path, monkeypatch):
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    settings = Settings(maps=("std",), forecast=True)
    with Job(scene, tmp_path / "fine.hdr", posterior, settings) as job:
        needed = job.forecast().bytes_on_disk
    settings = dataclasses.replace(settings, forecast=False)
    with_room_for(needed - 1, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(reading.Survey, "of", Mock(side_effect=AssertionError))
        with pytest.raises(OutputError, match=f"{needed:,} bytes needed"):
            Job(scene, tmp_path / "fine.hdr", posterior, settings)
    assert not list(tmp_path.glob("*fine*"))
    with_room_for(needed, monkeypatch)
    list(Job(scene, tmp_path / "fine.hdr", posterior, settings).run())
    assert (tmp_path / "fine_std_merged.hdr").exists()


def test_a_full_disk_ends_in_one_line_and_leaves_nothing(scene, models, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    limit = "ulimit -f 100; exec "  # blocks of 512 or 1024 bytes: less than the output
    words = command(
        "upscale", scene, "-o", out / "fine.hdr", "--model", models / "pdenet.safetensors", "--samples", 1
    )
    ran = subprocess.run(["bash", "-c", limit + shlex.join(words)], capture_output=True, text=True)
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


def test_nothing_is_held_open_where_open_files_cannot_be_removed(scene, models, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    opened = []
    really = Path.open

    def noted(path, *how, **more):
        opened.append(really(path, *how, **more))
        return opened[-1]

    monkeypatch.setattr(Path, "open", noted)
    lock = tmp_path / ".lock"
    with files.locked(lock):
        assert not opened
        lock.write_text("")
    assert not lock.exists()
    posterior = Posterior(load_model(models / "pdenet.safetensors"), 2)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: _unlinked(path, opened))
    list(Job(scene, tmp_path / "fine.hdr", posterior, Settings()).run())
    assert (tmp_path / "fine.hdr").exists()


def _unlinked(path, opened):
    """Remove a file as Windows does: not while it is open."""
    if any(file.name == str(path) and not file.closed for file in opened):
        raise PermissionError(f"{path} is open")
    if path.exists():
        os.unlink(path)  # noqa: PTH108
