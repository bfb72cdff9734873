"""The storeys of the house: imports only go down, and rooms of one storey leave each other alone."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pdenet_cli

PACKAGE = Path(pdenet_cli.__file__).parent


def heights():
    """The storey of each room on the map of the house, which is the package's docstring."""
    storey, found = "", {}
    for line in pdenet_cli.__doc__.splitlines():
        if met := re.match(r"    (\d| ) (\w+)(\.py|/)  ", line):
            storey = met[1].strip() or storey
            found[met[2]] = int(storey)
    return found


HEIGHT = heights()
HOMES = {
    "torch": {"system", "degradation", "models", "sampling", "training", "evaluation", "tools"},
    "h5py": {"formats"},
    "scipy": {"formats"},
    "tifffile": {"formats"},
    "spectral": {"formats"},
    "distributed": {"tools"},
    "typer": {"cli"},
    "rich": {"cli"},
    "xarray": {"xarray"},
    "dask": {"xarray", "tools"},
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


def test_every_room_has_tests_of_its_name():
    names = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    for room in HEIGHT:
        modules = {path.stem for path in (PACKAGE / room).rglob("*")}
        assert names & {room, *modules}, f"no test_{room}.py, nor one named after a module of it"


def test_imports_only_go_down():
    for room, module in imports():
        top, _, rest = module.partition(".")
        if top == "pdenet_cli" and rest and (other := rest.split(".")[0]) != room:
            assert HEIGHT[other] < HEIGHT[room], f"{room} imports {other}"


def module_graph():
    """For every module of the package, the modules that it imports, wherever in its text it does."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph = {}
    for name, path in modules.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                found |= inner or {node.module} & modules.keys()
        graph[name] = found - {
            name,
            "pdenet_cli",
        }  # the version, which is the only thing that rooms take from there
    del graph["pdenet_cli"]
    return graph


def test_imports_go_down_inside_packages_too():
    TopologicalSorter(module_graph()).prepare()  # raises CycleError, with the cycle


def test_the_map_fits_in_a_glance():
    assert len(pdenet_cli.__doc__.splitlines()) <= 25
    assert max(HEIGHT.values()) <= 10


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
