"""A resumed run trusts nothing: what an interrupted one has left is continued as it was, or refused in a line."""

import errno
import os
import shutil
import subprocess
import sys
from unittest.mock import Mock

import pytest

from pdenet_cli import files
from pdenet_cli.errors import OutputError
from pdenet_cli.formats.common import output
from pdenet_cli.models.model import bicubic_model, load_model
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools import finished_tiles, journal
from pdenet_cli.tools.delivery import Delivery
from pdenet_cli.tools.finished_tiles import TileRecorder
from pdenet_cli.tools.job import Job, Settings
from pdenet_cli.tools.journal import Journal
from tests.command import command

SUFFIXES = ("hdr", "tif", "mat", "h5", "nc", "zarr")
TILES = 6


@pytest.fixture
def run(make_cube, tmp_path):
    """Runs a scene of six tiles to an output; `stop`: breaks it off after so many."""
    scene, _ = make_cube("scene.tif", rows=18, columns=12)
    posterior = Posterior(bicubic_model(2), 1)

    def go(output, stop=None, **settings):
        steps = Job(scene, tmp_path / output, posterior, Settings(**{"tile": 6} | settings)).run()
        first = next(steps)[0]
        for _ in range(TILES if stop is None else stop):
            next(steps, None)
        steps.close() if stop is not None else list(steps)
        return first

    return go


def broken_off(run, tmp_path, suffix):
    """The journal and the pixels of a run that stopped after three tiles."""
    run(f"fine.{suffix}", stop=3)
    part = tmp_path / f".fine.{'img' if suffix == 'hdr' else suffix}.partial"
    return Journal(tmp_path / f"fine.{suffix}"), part


def contents(folder, pattern="fine*"):
    """All files with such names, and those in folders with such names."""
    found = [file for path in folder.glob(pattern) for file in (path, *path.rglob("*")) if file.is_file()]
    return {
        str(file.relative_to(folder)): file.read_bytes() for file in found if not file.name.endswith("report.json")
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_is_continued_to_the_same_bytes_in_every_format(run, tmp_path, suffix):
    run(f"fine.{suffix}")
    whole = contents(tmp_path)
    for path in tmp_path.glob("fine*"):
        files.remove(path)
    broken_off(run, tmp_path, suffix)
    assert run(f"fine.{suffix}", resume=True) == 3
    assert contents(tmp_path) == whole
    assert not list(tmp_path.glob(".fine*"))


def chunk_of(part):
    """A file with pixels: the partial file itself, or a chunk of a store."""
    return next(path for path in sorted(part.rglob("*.*.*")) if path.is_file()) if part.is_dir() else part


def change_a_byte(part):
    chunk = chunk_of(part)
    content = bytearray(chunk.read_bytes())
    spread = range(len(content) // 20, len(content), max(1, len(content) // 40))
    for place in spread:
        content[place] ^= 0x55
    chunk.write_bytes(content)


def shorten(part):
    os.truncate(chunk_of(part), chunk_of(part).stat().st_size - 8)


def empty(part):
    os.truncate(chunk_of(part), 0)


def punch(part):
    size = chunk_of(part).stat().st_size
    os.truncate(chunk_of(part), 0)
    os.truncate(chunk_of(part), size)


def lengthen(part):
    target = part / ".zattrs" if part.is_dir() else part
    with target.open("ab") as file:
        file.write(b"\0" * 8)


def swap_for_a_link(part):
    part.rename(part.with_name("elsewhere"))
    part.symlink_to(part.with_name("elsewhere"))


@pytest.mark.parametrize("damage", [change_a_byte, shorten, empty, punch, lengthen, swap_for_a_link])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_partial_files_that_were_changed_are_refused_and_left(run, tmp_path, suffix, damage):
    _, part = broken_off(run, tmp_path, suffix)
    damage(part)
    before = contents(tmp_path, ".fine*")
    with pytest.raises(OutputError, match=r"not as an interrupted run leaves it: .*`overwrite` without `resume`"):
        run(f"fine.{suffix}", resume=True)
    assert not list(tmp_path.glob("fine*"))
    after = contents(tmp_path, ".fine*")
    assert {name: len(content) for name, content in after.items()} == {n: len(c) for n, c in before.items()}
    with pytest.raises(OutputError):
        run(f"fine.{suffix}")
    run(f"fine.{suffix}", overwrite=True)
    run(f"whole.{suffix}")
    for name, content in contents(tmp_path).items():
        assert content == contents(tmp_path, "whole*")[name.replace("fine", "whole")], name


def text_line(book):
    with book.path.open("a") as file:
        file.write("hello\n")


def nul_line(book):
    with book.path.open("a") as file:
        file.write("\0" * 40 + "\n")


def a_tile_twice(book):
    lines = book.path.read_text().splitlines(keepends=True)
    book.path.write_text("".join((*lines, lines[-1])))


def a_tile_beyond_the_last(book):
    book.append({"tile": {"number": TILES, "checksums": {"mean": "00000000"}}})


def a_tile_of_no_number(book):
    book.append({"tile": {"number": "x", "checksums": {}}})


def a_tile_without_its_cube(book):
    book.append({"tile": {"number": 5, "checksums": {}}})


def an_end_too_early(book):
    book.append({"report": "00000000"})


def another_digit(book):
    book.path.write_text(book.path.read_text().replace('"number": 1', '"number": 4'))


def no_plan(book):
    job = book.read().job
    book.begin({key: value for key, value in job.items() if key != "plan"})


def a_foreign_plan(book):
    book.begin(book.read().job | {"plan": {"tile": 0, "depth": -1}})


def a_job_in_the_middle(book):
    book.append({"job": book.read().job})


def brackets(book):
    text = b"[" * 100_000
    with book.path.open("ab") as file:
        file.write(journal._checksum(text) + text + b"\n")


def unknown_words(book):
    book.append({"surprise": 1})


def nothing_but_its_end(book):
    lines = book.path.read_text().splitlines(keepends=True)
    book.path.write_text("".join(lines[1:]))


DAMAGES = (
    text_line, nul_line, a_tile_twice, a_tile_beyond_the_last, a_tile_of_no_number, a_tile_without_its_cube,
    an_end_too_early, another_digit, no_plan, a_foreign_plan, a_job_in_the_middle, brackets, unknown_words,
    nothing_but_its_end,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_journal_that_was_changed_is_refused_in_a_line(run, tmp_path, damage):
    book, _ = broken_off(run, tmp_path, "hdr")
    damage(book)
    before = contents(tmp_path, ".*")
    with pytest.raises(OutputError, match=r"not as an interrupted run leaves it: .*`overwrite` without `resume`"):
        run("fine.hdr", resume=True)
    assert contents(tmp_path, ".*") == before
    assert not list(tmp_path.glob("fine*"))
    run("fine.hdr", overwrite=True)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "name", ["../mine.img.partial", ".mine.img.partial", "scene.tif", "..", "/etc/passwd", "", "\0"]
)
def test_no_file_is_deleted_because_a_journal_names_it(run, tmp_path, name):
    book, _ = broken_off(run, tmp_path, "hdr")
    job = book.read().job
    book.begin(job | {"files": [*job["files"], name]})
    (tmp_path / ".mine.img.partial").write_text("mine")
    (tmp_path.parent / "mine.img.partial").write_text("mine")
    with pytest.raises(OutputError):
        run("fine.hdr", resume=True)
    run("fine.hdr", overwrite=True)
    assert (tmp_path / ".mine.img.partial").read_text() == "mine"
    assert (tmp_path.parent / "mine.img.partial").read_text() == "mine"
    assert (tmp_path / "scene.tif").exists()


@pytest.mark.parametrize("kept", [0, 1, 40, 400, -1, -30])
def test_a_journal_cut_short_costs_no_more_than_its_last_tiles(run, tmp_path, kept):
    book, _ = broken_off(run, tmp_path, "hdr")
    text = book.path.read_bytes()
    book.path.write_bytes(text[:kept])
    assert run("fine.hdr", resume=True) < 3
    run("whole.hdr")
    assert (tmp_path / "fine.img").read_bytes() == (tmp_path / "whole.img").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_tiles_may_be_recorded_in_any_order(run, tmp_path):
    book, _ = broken_off(run, tmp_path, "hdr")
    job, made, *tiles = book.path.read_text().splitlines(keepends=True)
    book.path.write_text("".join((job, made, tiles[2], tiles[0])))
    assert run("fine.hdr", resume=True) == 2
    run("whole.hdr")
    assert (tmp_path / "fine.img").read_bytes() == (tmp_path / "whole.img").read_bytes()


def test_a_partial_file_that_is_no_regular_file_gets_no_final_name(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(output, "rename", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(OutputError, match="No space left"):
            run("fine.hdr")
    part = tmp_path / ".fine.hdr.partial"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(OutputError, match="no regular file"):
        run("fine.hdr", resume=True)
    assert not (tmp_path / "fine.img").exists()


@pytest.mark.parametrize("found", ["link", "folder", "pipe"])
def test_a_journal_that_is_no_file_is_one_line(run, tmp_path, found):
    path, other = tmp_path / ".fine.hdr.journal", tmp_path / "mine"
    other.write_text("mine")
    path.symlink_to(other) if found == "link" else path.mkdir() if found == "folder" else os.mkfifo(path)
    for settings in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputError, match="cannot be written"):
            run("fine.hdr", **settings)
    assert other.read_text() == "mine"


def test_pixels_are_on_disk_before_the_journal_says_so(run, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(finished_tiles, "sync", lambda path: seen.append(path.name))
    append = Journal.append
    monkeypatch.setattr(Journal, "append", lambda *words: (seen.append(words[1:]), append(*words)))
    monkeypatch.setattr(finished_tiles, "LONGEST_WAIT", 0.0)
    run("fine.tif", maps=("consistency",))
    recorded = [place for place, what in enumerate(seen) if "'number'" in str(what)]
    assert len(recorded) == TILES
    parts = {".fine.tif.partial", ".fine_consistency_merged.tif.partial"}
    for place in recorded:
        assert set(seen[place - 2 : place]) == parts


def test_tiles_wait_for_each_other_where_the_disk_is_slow(tmp_path, monkeypatch):
    clock, noted = [100.0], []
    monkeypatch.setattr(finished_tiles.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(finished_tiles, "checksums", lambda cubes, window: {})

    def slow(path):
        clock[0] += 0.1

    monkeypatch.setattr(finished_tiles, "sync", slow)
    book = Mock(append=lambda *lines: noted.append(len(lines)))
    with TileRecorder(book, (tmp_path,)) as recorder:
        for number in range(30):
            recorder.add(number, {})
            clock[0] += 1
    assert noted == [1, 10, 10, 9]  # a hundredth of the time, and the rest at the end


def test_a_line_that_finds_no_room_leaves_the_lines_before_it(run, tmp_path, monkeypatch):
    book, _ = broken_off(run, tmp_path, "tif")
    before = book.path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            book.append({"tile": {"number": 4, "checksums": {}}})
    assert book.path.read_bytes() == before


def completed(run, tmp_path, monkeypatch):
    """A run whose every pixel is written, killed before any file got its name."""
    with monkeypatch.context() as patched:
        patched.setattr(Delivery, "commit", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run("fine.hdr")
    return Journal(tmp_path / "fine.hdr")


def test_a_run_killed_before_its_files_got_their_names_is_finished(run, tmp_path, monkeypatch):
    book = completed(run, tmp_path, monkeypatch)
    assert book.read().report is not None
    assert run_to_end(run)
    run("whole.hdr")
    assert (tmp_path / "fine.img").read_bytes() == (tmp_path / "whole.img").read_bytes()
    assert not list(tmp_path.glob(".*"))


def run_to_end(run):
    """Resume a run that has no tile left to do."""
    with pytest.raises(StopIteration):
        run("fine.hdr", resume=True)
    return True


def lose_the_pixels(folder):
    (folder / ".fine.img.partial").unlink()


def lose_the_report(folder):
    (folder / ".fine.hdr.report.json.partial").unlink()


def spoil_the_report(folder):
    (folder / ".fine.hdr.report.json.partial").write_text("{}")


def change_a_pixel(folder):
    change_a_byte(folder / ".fine.img.partial")


@pytest.mark.parametrize("damage", [lose_the_pixels, lose_the_report, spoil_the_report, change_a_pixel])
def test_no_unfinished_cube_gets_its_name_because_it_is_said_to_be_complete(run, tmp_path, monkeypatch, damage):
    completed(run, tmp_path, monkeypatch)
    damage(tmp_path)
    with pytest.raises(OutputError, match="not as an interrupted run leaves it"):
        run("fine.hdr", resume=True)
    assert not list(tmp_path.glob("fine*"))


def test_another_kernel_does_not_continue_what_one_has_begun(models, make_cube, tmp_path, monkeypatch):
    scene, _ = make_cube(rows=12, columns=12)
    model = load_model(models / "pdenet.safetensors")

    def job(kernel, **settings):
        monkeypatch.setattr("pdenet_cli.tools.job.kernel_of", lambda network: kernel)
        return Job(scene, tmp_path / "fine.hdr", Posterior(model, 1), Settings(tile=6, **settings)).run()

    begun = job("winograd-1 on cpu")
    next(begun), next(begun)
    begun.close()
    with pytest.raises(OutputError, match=r"differs in kernel \(winograd-1 on cpu instead of torch on cpu\)"):
        next(job("torch on cpu", resume=True))
    list(job("winograd-1 on cpu", resume=True))
    assert list(job("torch on cpu", resume=True)) == []  # what is finished stays


def test_a_network_says_what_computes_it(models, monkeypatch):
    from pdenet_cli.models.networks import winograd
    from pdenet_cli.models.networks.pdenet import kernel_of

    monkeypatch.setattr(winograd, "kernel_name", lambda: "winograd-1")
    assert kernel_of(load_model(models / "pdenet.safetensors").network) == "winograd-1 on cpu"
    assert kernel_of(bicubic_model(2).network) == "torch on cpu"


@pytest.mark.parametrize("length", [234, 235, 243, 251, 260])
def test_a_name_too_long_for_the_hidden_files_is_refused_before_the_work(bicubic, tmp_path, length):
    before = sorted(tmp_path.iterdir())
    code, said = bicubic(tmp_path / f"{'n' * (length - 4)}.tif")
    if length == 234:  # and .report.json.partial
        assert code == 0, said
        return
    assert code == 5
    assert f"Use a name that is {length - 234} shorter" in said or "File name too long" in said
    assert sorted(tmp_path.iterdir()) == before
    assert bicubic(tmp_path / f"{'n' * (length - 4)}.tif", "--resume")[0] == 5


def test_outputs_of_two_formats_have_their_reports_and_journals_apart(bicubic, tmp_path):
    assert bicubic(tmp_path / "fine.hdr")[0] == 0
    assert bicubic(tmp_path / "fine.tif")[0] == 0
    assert bicubic(tmp_path / "fine.tif", "--overwrite")[0] == 0
    names = {path.name for path in tmp_path.glob("fine*")}
    assert names == {
        "fine.hdr", "fine.img", "fine.tif", "fine.qml", "fine.hdr.report.json", "fine.tif.report.json",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk, or finds one that it may fill")
def test_a_store_on_a_full_disk_is_one_line(pdenet_process, make_cube, tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    scene, _ = make_cube(bands=20, rows=64, columns=64)
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "-"]
    words = command("upscale", scene, "-o", tmp_path / "fine.zarr", "--model", "bicubic")
    ran = subprocess.run([*limited, *words], capture_output=True, text=True)
    assert ran.returncode == 5, ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr


def test_an_unfinished_chunk_of_a_killed_run_does_not_stay(run, tmp_path):
    pytest.importorskip("zarr")
    _, part = broken_off(run, tmp_path, "zarr")
    chunk = chunk_of(part)
    shutil.copy(chunk, chunk.with_suffix(".0123456789abcdef.partial"))
    run("fine.zarr", resume=True)
    assert not list((tmp_path / "fine.zarr").rglob("*.partial"))
