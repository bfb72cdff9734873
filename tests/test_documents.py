"""Documents are short, their tables are whole, their figures come from a file, and their commands run."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pdenet_cli

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


def commands(document: Path) -> list[str]:
    """The commands of a document that use nothing but the shipped example."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("pdenet ") and "examples/" in line]


@pytest.mark.parametrize("command", [command for document in MANUAL for command in commands(document)])
def test_commands_of_the_manual_run(command: str, tmp_path: Path) -> None:
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    program = [sys.executable, "-m", "pdenet_cli"]
    done = subprocess.run([*program, *words[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
