"""A scene whose files change while it is read is refused in the end, in every format."""

import os
import shutil

import pytest

from pdenet_cli import open_cube
from pdenet_cli.errors import FormatError
from tests.stores import numbers, write

NAMES = ("a.hdr", "a.tif", "a.mat", "a.h5", "a.nc", "a.zarr")


def file_with_pixels(cube):
    """The largest file of a cube, inside a folder too."""
    files = [file for path in cube.own_files for file in (path.rglob("*") if path.is_dir() else [path])]
    return max((file for file in files if file.is_file()), key=lambda file: file.stat().st_size)


def change(file, how):
    if how == "shorter":
        os.truncate(file, file.stat().st_size - 4)
    elif how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes())
        os.utime(file, ns=(1, 1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["shorter", "written again", "gone"])
def test_a_scene_that_changes_while_it_is_read_is_refused(name, how, tmp_path):
    write(tmp_path / name, numbers((4, 30, 20)))
    with pytest.raises(FormatError, match="changed while it was read"), open_cube(tmp_path / name) as cube:
        change(file_with_pixels(cube), how)


def test_a_file_that_comes_into_a_zarr_folder_is_noticed(tmp_path):
    write(tmp_path / "a.zarr", numbers((4, 30, 20)))
    with pytest.raises(FormatError, match="came while"), open_cube(tmp_path / "a.zarr"):
        (tmp_path / "a.zarr" / "cube" / "0.0.9").write_bytes(b"late")


@pytest.mark.parametrize("name", NAMES)
def test_reading_and_copying_a_scene_change_nothing(name, tmp_path):
    write(tmp_path / name, numbers((4, 30, 20)))
    with open_cube(tmp_path / name) as cube:
        cube.read()
        for path in cube.own_files:
            (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / f"copy of {path.name}")


@pytest.mark.parametrize("name", NAMES)
def test_upscale_refuses_a_scene_that_changed_and_commits_nothing(name, tmp_path, pdenet, monkeypatch):
    from pdenet_cli.tools.writing import Writing

    path = tmp_path / name
    write(path, numbers((4, 30, 20)))
    really = Writing.every_tile

    def cut_afterwards(writing, *words):
        yield from really(writing, *words)
        file = file_with_pixels(writing.scene.cube)
        os.truncate(file, file.stat().st_size - 4)

    monkeypatch.setattr(Writing, "every_tile", cut_afterwards)
    ran = pdenet("upscale", path, "-o", tmp_path / f"out{path.suffix}", "--model", "bicubic")
    assert ran.returncode == 3
    assert "changed while it was read" in ran.stderr
    assert not list(tmp_path.glob("out*"))
