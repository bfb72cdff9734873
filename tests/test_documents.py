"""Documents are short, their tables are whole, their figures come from a file, and their commands run."""

import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdenet_cli
from pdenet_cli import Cube, CubeMeta, Window, create_cube, formats, open_cube
from pdenet_cli.models.networks import NETWORKS
from pdenet_cli.tools import learn_errors
from pdenet_cli.uncertainty.summaries import MAPS, Summary
from tests import command

ROOT = Path(pdenet_cli.__file__).parents[1]
DOCUMENTS = sorted(path for path in ROOT.rglob("*.md") if ".venv" not in path.parts)
MANUAL = [
    ROOT / "examples" / f"{name}.md"
    for name in ("uncertainty", "formats", "evaluation", "training", "real_sensors")
]
LONGEST = 8000  # characters of a document that is read to the end

pytestmark = pytest.mark.skipif(not (ROOT / "README.md").is_file(), reason="an installed package has no documents")


def cells(line: str) -> int:
    """The number of cells in a row of a Markdown table."""
    return len(re.sub(r"`[^`]*`|\\\|", "", line).strip().strip("|").split("|"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(document: Path) -> None:
    width = 0
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        found = cells(line) if line.startswith("|") else 0
        assert not (found and width) or found == width, f"line {number}"
        width = found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_files_that_the_index_of_examples_names_exist() -> None:
    folder = ROOT / "examples"
    for name in re.findall(r"`([\w./]+\.\w+)`", (folder / "README.md").read_text()):
        assert (folder / name).exists(), name


@pytest.mark.parametrize("name", ["README.md", "weights/README.md", "pdenet_cli/README.md", *map(str, MANUAL)])
def test_documents_are_read_to_the_end(name: str) -> None:
    assert len((ROOT / name).read_text()) <= LONGEST


def test_the_changelog_is_one_page() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 40


def scoring():
    """weights/score.py as a module."""
    spec = importlib.util.spec_from_file_location("score", ROOT / "weights" / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_scores_are_those_of_the_recorded_run() -> None:
    score = scoring()
    scores = json.loads(score.SCORES.read_text())
    for document in score.DOCUMENTS:
        text = document.read_text()
        assert score.filled(text, scores) == text, f"run python weights/score.py: {document}"


def test_the_recorded_scores_are_those_of_the_shipped_models() -> None:
    score = scoring()
    for result in json.loads(score.SCORES.read_text()).values():
        file = ROOT / "weights" / f"{result['model']}.safetensors"
        assert result["tensors"] == score.digest(file)


FASTER = {
    r"(train .*) --minutes 120": r"\1 --steps 1 --batch 1",
    r"train my_cubes -o \S+$": r"\g<0> --config tiny --steps 1 --batch 1",
    r"--certify": "--certify --level 0.4",  # three scenes prove no more
    r"-o out --with-uncertainty": r"\g<0> --bands 20:24 --samples 2",
}
"""What is changed in the commands of documents, so that a test need not wait."""


def commands(document: Path) -> list[str]:
    """The `pdenet` commands of a document, in its order."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    lines = [re.sub(r"^.* \.venv/bin/pdenet ", "pdenet ", line) for block in blocks for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("pdenet ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with everything that commands of the documents name: parts of the example under other names."""
    with open_cube(ROOT / "examples" / "indian_pines.hdr") as cube:
        for number, name in enumerate(("scene.hdr", "truth.hdr", "truth1.mat", "truth2.tif", "fine.hdr")):
            copy(cube, tmp_path / name, number)
        for place in ("truths", "my_cubes"):
            (tmp_path / place).mkdir()
            for number in range(3):
                copy(cube, tmp_path / place / f"{number}.hdr", number)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.py", "*.sh"))
    return tmp_path


def copy(cube: Cube, path: Path, number: int) -> None:
    """A part of a cube, 32 x 32 pixels of 4 bands, as a cube of its own."""
    part = cube.windowed(Window(8 * number, 8 * number, 32, 32))
    bands = slice(20, 24)
    meta = dataclasses.replace(CubeMeta(4, 32, 32, cube.meta.dtype), wavelengths=cube.meta.wavelengths[bands])
    with create_cube(path, meta) as made:
        made.write(made.meta.window, part.read(bands=bands))


@pytest.mark.parametrize("document", [ROOT / "README.md", *MANUAL], ids=lambda path: path.stem)
def test_the_commands_of_a_document_run_one_after_another(
    document: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn_errors, "STEPS", 2)
    made = {word for line in commands(document) for word in re.findall(r"-o (\S+)", line)}
    for name in made:
        for path in folder.glob(f"{Path(name).stem}.*"):
            path.unlink()  # the document makes it
    assert commands(document)
    for line in commands(document):
        for usual, fast in FASTER.items():
            line = re.sub(usual, fast, line)
        ran = command.run(
            *(found for word in shlex.split(line)[1:] for found in expanded(word, folder)), cwd=folder
        )
        assert ran.returncode == 0, f"{line}\n{ran.stderr}"
        assert "Traceback" not in ran.stderr


def expanded(word: str, folder: Path) -> list[str]:
    """A word as a shell gives it to a program: names of files for a pattern."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]


def worked_examples() -> dict[str, str]:
    """The code that the page for contributors shows, by the heading above it."""
    parts = re.split(r"^## ", (ROOT / "pdenet_cli" / "README.md").read_text(), flags=re.MULTILINE)
    found = ((part.splitlines()[0], re.search(r"```python\n(.*?)```", part, re.DOTALL)) for part in parts)
    return {heading: block[1] for heading, block in found if block}


def run_example(heading: str, **names: object) -> dict[str, Any]:
    exec(compile(worked_examples()[heading], heading, "exec"), names)
    return names


def test_a_format_added_as_the_contributors_page_says_keeps_a_cube(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = run_example("Add a format")["FORMAT"]
    monkeypatch.setattr(formats, "FORMATS", (kind, *formats.FORMATS))
    ran = command.run("upscale", "scene.hdr", "-o", "fine.npy", "--samples", 1, "--window", 0, 0, 9, 9, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert np.load(folder / "fine.npy").shape == (4, 36, 36)
    with open_cube(folder / "scene.hdr") as scene, open_cube(folder / "fine.npy") as fine:
        assert fine.meta.wavelengths == scene.meta.wavelengths
        np.testing.assert_array_equal(fine.read(), np.load(folder / "fine.npy"))


def test_a_network_added_as_the_contributors_page_says_is_trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETWORKS, "corrected", run_example("Add a network")["Corrected"])
    words = ("--network", "corrected", "--steps", 1, "--batch", 1, "--config", "tiny")
    ran = command.run("train", "my_cubes", "-o", "own.safetensors", *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    ran = command.run("upscale", "scene.hdr", "-o", "fine.tif", "--model", "own.safetensors", cwd=folder)
    assert ran.returncode == 0, ran.stderr


def test_a_map_added_as_the_contributors_page_says_is_in_files_page_and_picture(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = run_example("Add a map", np=np, Summary=Summary)["SPAN"]
    monkeypatch.setitem(MAPS, "span", (span,))
    words = ("--map", "span", "--samples", 2, "--quicklook", "--window", 0, 0, 9, 9)
    ran = command.run("uncertainty", "scene.hdr", "-o", "maps", *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    with open_cube(folder / "maps" / "scene_span.hdr") as cube:
        assert cube.read().min() > 0
    assert span.says in (folder / "maps" / "scene_uncertainty.html").read_text()
    assert (folder / "maps" / "scene_uncertainty.png").exists()
