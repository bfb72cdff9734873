"""What results are called, and which files of a command are one scene."""

from pathlib import Path

import numpy as np
import pytest

from pdenet_cli.errors import UsageError
from pdenet_cli.tools.naming import output_paths
from tests.cubes import written


def test_both_files_of_a_scene_are_one_also_by_names_without_a_folder(pdenet, scene, models, tmp_path):
    asked = (
        scene.name,
        scene.with_suffix(".img").name,
        "-o",
        "out",
        "--model",
        models / "pdenet.safetensors",
        "--samples",
        1,
    )
    ran = pdenet("upscale", *asked, cwd=scene.parent)
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("*.hdr")) == ["scene_x4.hdr"]


def test_several_scenes_want_a_folder(pdenet, make_cube, models, tmp_path):
    words = ("--model", models / "pdenet.safetensors", "-o", tmp_path / "one.tif")
    ran = pdenet("upscale", make_cube("a.hdr")[0], make_cube("b.hdr")[0], *words)
    assert ran.returncode == 2
    assert "use a folder" in ran.stderr
    assert not (tmp_path / "one.tif").exists()


def test_the_name_of_a_file_is_one_in_any_case(tmp_path):
    with pytest.raises(UsageError, match="use a folder"):
        output_paths([tmp_path / "a.hdr", tmp_path / "b.hdr"], tmp_path / "ONE.TIF", 4, folder=False)
    assert list(tmp_path.iterdir()) == []
    store = tmp_path / "ONE.ZARR"
    store.mkdir()
    (store / "zarr.json").write_text("{}")
    assert output_paths([tmp_path / "a.hdr"], store, 4, folder=False) == [store]


def test_results_have_the_name_of_the_folder_however_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "outer" / "inner")
    for given, name in ((".", "inner"), ("..", "outer"), ("../inner", "inner")):
        assert output_paths([Path(given)], tmp_path, 4, folder=False) == [tmp_path / f"{name}_x4.tif"]
        assert output_paths([Path(given)], tmp_path, 4, folder=True) == [tmp_path / f"{name}.tif"]
    with pytest.raises(UsageError, match="called inner"):
        output_paths([Path(), Path("../inner")], tmp_path, 4, folder=False)


@pytest.mark.parametrize(
    ("made", "called", "suffix"),
    [
        ("a.nc", "a.nc4", ".nc"),
        ("a.nc", "a.nc", ".nc"),
        ("a.h5", "a.hdf", ".h5"),
        ("a.h5", "a.he5", ".he5"),
        ("a.mat", "a.mat", ".mat"),
        ("a.tif", "a.gtiff", ".tif"),
        ("a.tif", "a.TIFF", ".tiff"),
        ("a.tif", "a.mat", ".tif"),
        ("a.zarr", "plain", ".zarr"),
        ("a.hdr", "a.img", ".hdr"),
        ("a.hdr", "a.hdr", ".hdr"),
    ],
)
def test_where_no_format_is_named_it_is_the_scenes_own(tmp_path, made, called, suffix):
    path = written(tmp_path / made, np.ones((2, 3, 4), "<u2"))
    if made != "a.hdr":
        path.rename(tmp_path / called)
    paths = output_paths([tmp_path / called], tmp_path / "out", 4, folder=False)
    assert paths == [tmp_path / "out" / f"{called.partition('.')[0]}_x4{suffix}"]


def test_a_scene_that_is_no_cube_has_a_name_for_its_result_too(tmp_path):
    (tmp_path / "bad.tif").write_text("bad")
    for called, suffix in (("bad.tif", ".tif"), ("gone.nc", ".nc"), ("gone.xyz", ".hdr")):
        (path,) = output_paths([tmp_path / called], tmp_path / "out", 4, folder=False)
        assert path.suffix == suffix


def test_scenes_of_one_name_and_several_formats_are_not_mixed_up(pdenet, scene, models, tmp_path):
    (tmp_path / "scene.tif").touch()
    words = ("--model", models / "pdenet.safetensors", "--overwrite")
    ran = pdenet("uncertainty", scene, tmp_path / "scene.tif", "-o", tmp_path / "m", *words)
    assert ran.returncode == 2
    assert "Several scenes are called scene" in ran.stderr


def test_both_files_of_a_scene_are_one_scene(pdenet, make_cube, tmp_path):
    make_cube("b.hdr")
    make_cube("c.tif")
    every = sorted(tmp_path.glob("*.*"))  # as a shell makes it of *
    assert [path.name for path in every] == ["b.hdr", "b.img", "c.tif"]
    every_suffix = {path.suffix for path in every}
    ran = pdenet("upscale", *every, "-o", tmp_path / "fine", "--model", "bicubic", "--scale", 2)
    assert ran.returncode == 0, ran.stderr
    named = {path.name for path in (tmp_path / "fine").iterdir() if path.suffix in every_suffix}
    assert named == {"b_x2.hdr", "b_x2.img", "c_x2.tif"}


def test_maps_go_into_a_folder_and_not_into_one_with_the_name_of_a_file(pdenet, make_cube, tmp_path):
    scene, _ = make_cube()
    ran = pdenet("uncertainty", scene, "-o", tmp_path / "m.tif")
    assert ran.returncode == 2
    assert "use a folder" in ran.stderr
    assert not (tmp_path / "m.tif").exists()
