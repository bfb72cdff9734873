"""The storeys of the house: imports only go down, and rooms of one storey leave each other alone."""

import ast
import re
from pathlib import Path

import pytest

import pdenet_cli

PACKAGE = Path(pdenet_cli.__file__).parent


def heights():
    """The storey of each room on the map of the house, which is the package's docstring."""
    storey, found = "", {}
    for line in pdenet_cli.__doc__.splitlines():
        if met := re.match(r"    ( \d|\d\d|  ) ((?:\w+(?:\.py|/) *)+)", line):
            storey = met[1].strip() or storey
            found |= {re.sub(r"\.py|/", "", room): int(storey) for room in met[2].split()}
    return found


HEIGHT = heights()
HOMES = {
    "torch": {
        *(
            "memory",
            "devices",
            "degradation",
            "mixtures",
            "error_net",
            "networks",
            "weights_file",
            "models",
            "posterior",
            "gathering",
            "inference",
        ),
        *("training", "evaluation"),
    },
    "h5py": {"formats"},
    "scipy": {"formats"},
    "tifffile": {"formats"},
    "spectral": {"formats"},
    "typer": {"cli"},
    "rich": {"cli"},
}


def imports():
    """(room, imported module) of every import statement in the package."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((parts[0], alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield parts[0], node.module


def test_every_room_is_on_the_map():
    rooms = {path.stem for path in PACKAGE.glob("[!_]*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/*.py")
    }
    assert set(HEIGHT) == rooms


def test_imports_only_go_down():
    for room, module in imports():
        top, _, rest = module.partition(".")
        if top == "pdenet_cli" and rest and (other := rest.split(".")[0]) != room:
            assert HEIGHT[other] < HEIGHT[room], f"{room} imports {other}"


def test_each_library_lives_in_its_own_rooms():
    for room, module in imports():
        homes = HOMES.get(module.split(".")[0])
        assert homes is None or room in homes, f"{room} imports {module}"


def test_ci_runs_the_test_command_of_the_readme():
    root = PACKAGE.parent
    if not (root / ".ci" / "run").is_file():
        pytest.skip("an installed package has no .ci folder")
    commands = re.findall(r"```sh\n(.+)\n```", (root / "README.md").read_text())
    assert commands[1].endswith("pytest -n 2")
    assert commands[1] in (root / ".ci" / "run").read_text()
