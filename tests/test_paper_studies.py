"""The studies of examples/paper, each run to its end on tiny scenes in folders laid out as the data sets are."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from imagecodecs import png_encode

from tests import command
from tests.cubes import picture, written

FOLDER = Path(__file__).parent.parent / "examples" / "paper"
TINY = ["--budget", "1steps", "--size", "tiny", "--crop", "32", "--samples", "2", "--draws", "1,2"]
SMALL = "--batch 1 --patch 32 --validate-window 0 0 32 32 --threads 1"


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("study")
    sys.path.remove(str(FOLDER))
    for file in FOLDER.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("balloons", "cd", "hairs")):  # CAVE: folder in folder, a picture beside the bands
        scene = folder / "cave" / f"{name}_ms" / f"{name}_ms"
        scene.mkdir(parents=True)
        for number, band in enumerate(6 * picture(31, 48, 48, seed), start=1):
            (scene / f"{name}_ms_{number:02d}.png").write_bytes(png_encode(np.ascontiguousarray(band)))
        (scene / f"{name}_RGB.bmp").write_bytes(b"BM")
    (folder / "harvard" / "CZ_hsdb").mkdir(parents=True)
    for seed, name in enumerate(("img1", "imgb2")):  # doubles of any range, and a mask
        cube = picture(31, 48, 56, seed).transpose(1, 2, 0) / 7e5
        content = {"ref": cube, "lbl": np.zeros((48, 56), np.uint8)}
        scipy.io.savemat(folder / "harvard" / "CZ_hsdb" / f"{name}.mat", content, do_compression=True)
    whole = folder / "ncalm" / "Phase2" / "FullHSIDataset"
    whole.mkdir(parents=True)
    header = written(whole / "20170218_UH_CASI_S4_NAD83.hdr", picture(50, 64, 100, 3))
    header.with_suffix(".img").rename(header.with_suffix(".pix"))
    (folder / "urban").mkdir()
    matrix = picture(60, 40, 44, 4).transpose(0, 2, 1).reshape(60, -1)  # bands x pixels, column by column
    scipy.io.savemat(folder / "urban" / "Urban_F210.mat", {"Y": matrix, "nRow": 40, "nCol": 44})
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("out")


def run_here(ran: list):
    """Runs commands in this process and notes them."""

    def run(words) -> str:
        ran.append(list(words))
        done = command.run(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    return run


def results(study, data: Path, out: Path, *words: str) -> list:
    """The commands that a study runs."""
    ran: list = []
    arguments = [*words, "--data", str(data), "--out", str(out), *TINY, "--train", SMALL]
    assert study.main(arguments, run_here(ran)) == 0
    return ran


def test_all_systems_are_trained_scored_and_counted_beside_the_papers_figures(study, data, out, capsys) -> None:
    ran = results(study, data, out, "systems", "--sets", "cave", "--scales", "4")
    assert sum(words[0] == "train" for words in ran) == 7
    table = (out / "1steps" / "cave-x4" / "systems.md").read_text()
    assert table in capsys.readouterr().out
    lines = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    assert [*lines][2:] == [
        "BI",
        *("3DFCNN", "3DGAN", "SSPSR", "MCNet", "ERCSR", "Template-Net", "PDE-Net, N=1", "PDE-Net, N=2"),
    ]
    assert "41.236" in lines["PDE-Net, N=2"]
    assert "36.533" in lines["BI"]
    assert "A trial, not the paper's setting" in table
    assert not results(study, data, out, "systems", "--sets", "cave", "--scales", "4")  # all of it is there


@pytest.mark.parametrize(("name", "scale", "tests"), [("harvard", 4, 1), ("ncalm", 8, 4)])
def test_the_other_data_sets_are_read_as_they_are_distributed(study, data, out, name, scale, tests) -> None:
    systems = "PDE-Net,MCNet" if name == "harvard" else "PDE-Net,SSPSR"
    ran = results(study, data, out, "systems", "--sets", name, "--scales", str(scale), "--systems", systems)
    folder = out / "1steps" / f"{name}-x{scale}"
    assert len([*folder.glob("pdenet.2samples*.json")]) == tests
    trained = json.loads((folder / "pdenet.trained.json").read_text())["printed"]
    assert {cube["bands_used"] for cube in trained["data"]} == {48 if name == "ncalm" else 31}
    train = next(words for words in ran if words[0] == "train")
    assert train[train.index("--range") + 1] == ("dtype" if name == "ncalm" else "max")
    if name == "ncalm":  # what trains lies right of what tests
        assert trained["data"][0]["window"] == {"row": 0, "column": 64, "rows": 64, "columns": 36}


@pytest.mark.parametrize("name", ["l2", "masks", "nas", "samples", "probabilities", "share", "uncertainty"])
def test_a_study_of_pde_net_runs_to_its_end(study, data, out, name) -> None:
    results(study, data, out, name, "--sets", "cave")
    folder = out / "1steps" / "cave-x4"
    made = [path for path in (folder / f"{name}.md", folder / f"{name}.png") if path.exists()]
    assert made
    assert all(path.stat().st_size > 200 for path in made)


def test_stages_from_two_to_seven(study, data, out) -> None:
    results(study, data, out, "stages", "--systems", "PDE-Net")
    table = (out / "1steps" / "cave-x4" / "stages.md").read_text()
    assert all(f"PDE-Net, T={count}" in table for count in range(2, 8))
    shown = json.loads((out / "1steps" / "cave-x4" / "pdenet-T7.trained.json").read_text())
    assert shown["printed"]["config"]["stages"] == 7


def test_pictures_of_every_system(study, data, out) -> None:
    for name, ends in (("errors", ("", "-spectra")), ("parameters", ("",))):
        results(study, data, out, name, "--sets", "cave")
        assert all((out / "1steps" / "cave-x4" / f"{name}{end}.png").exists() for end in ends)
    results(study, data, out, "real", "--scales", "8", "--systems", "PDE-Net,SSPSR")
    assert (out / "1steps" / "ncalm-x8" / "real.png").exists()


def test_a_record_of_another_command_is_not_taken(study, data, out) -> None:
    results(study, data, out, "nas", "--sets", "cave")
    with pytest.raises(SystemExit, match="made by another command"):
        study.main(["nas", "--data", str(data), "--out", str(out), *TINY], run_here([]))
    with pytest.raises(SystemExit, match="write for example 200steps"):
        study.main(["l2", "--data", str(data), "--out", str(out), "--budget", "soon"])


def test_a_data_set_that_is_absent_is_left_out(study, data, tmp_path, capsys) -> None:
    shutil.copytree(data / "harvard", tmp_path / "harvard")
    assert study.main(["nas", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *TINY], run_here([])) == 0
    assert "left out cave" in capsys.readouterr().err
    (tmp_path / "ncalm").mkdir()
    assert study.main(["real", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *TINY], run_here([])) == 0
    assert f"{tmp_path / 'urban'} is not a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        study.main(["nas", "--data", str(tmp_path), "--out", "out", *TINY, "--samples", "1"])
    assert "2 or more" in capsys.readouterr().err
