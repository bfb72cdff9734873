"""The cubes of a folder that are worth training on: no masks, no pictures, no results of pdenet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pdenet_cli.errors import FormatError, ModelError, PdenetError
from pdenet_cli.files import is_folder
from pdenet_cli.formats import is_one_scene, open_cube, output_format, writable_suffixes
from pdenet_cli.models.weights_file import SUFFIX, read_header
from pdenet_cli.report import REPORT, Report, Say
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.training.run import Files

# A file of at most FEW_BANDS beside one of at least MANY_BANDS is a mask, a map or a picture.
FEW_BANDS, MANY_BANDS = 4, 20


def find_cubes(
    paths: Sequence[Path],
    open_path: Callable[[Path], Cube] = open_cube,
    say: Say = lambda text: None,
) -> Iterator[Cube]:
    """The cubes in `paths`, each once; those in folders at any depth.

    Files in folders that are no cubes, results of pdenet, or masks and pictures beside cubes are left out.
    """
    seen: set[Path] = set()
    for path in paths:
        empty = is_folder(path)
        for cube in _cubes_in(path, open_path, say, set()):
            empty = False
            with cube:
                # An ENVI header and its data file are one cube.
                if cube.path.resolve() not in seen:
                    seen.add(cube.path.resolve())
                    yield cube
        if empty:
            raise FormatError(f"{path}: no cube in this folder.")


def _cubes_in(path: Path, open_path: Callable[[Path], Cube], say: Say, folders: set[Path]) -> Iterator[Cube]:
    """The cube in `path`, or the cubes in this folder; `folders` were visited, links may lead back to them."""
    try:
        if not path.is_dir() or is_one_scene(path):
            yield open_path(path)
            return
        children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    except (PdenetError, OSError) as error:
        if not folders and isinstance(error, PdenetError):
            raise
        say(f"left out: {error}")
        return
    if path.resolve() not in folders:
        folders.add(path.resolve())
        made = _own_results_in(path)
        results = [child for child in children if child.name in made]
        if results:
            say(f"left out: {len(results)} files in {path} that pdenet made")
        others = [child for child in children if child.name not in made]
        aside = _masks_and_pictures(others, open_path)
        if aside:
            names = ", ".join(sorted({cube.name for cube in aside.values()}))
            reason = "they look like masks or pictures beside cubes; give their names to train on them"
            say(f"left out: {names} in {path}: {reason}")
        for child in others:
            if child not in aside:
                yield from _cubes_in(child, open_path, say, folders)


def _masks_and_pictures(paths: Sequence[Path], open_path: Callable[[Path], Cube]) -> dict[Path, Path]:
    """The masks, quick looks and geometry maps that lie beside the cubes of a folder, with their path as a cube.

    They have few bands, or they are 8-bit and have the shape of a cube with a larger data type.
    """
    found: dict[Path, tuple[Path, CubeMeta]] = {}
    for path in paths:
        with suppress(PdenetError, OSError):  # `_cubes_in` says why
            if path.is_file():  # a folder that is a cube is never a mask
                with open_path(path) as cube:
                    found[path] = cube.path, cube.meta
    metas = [meta for _, meta in found.values()]
    few = FEW_BANDS if any(meta.bands >= MANY_BANDS for meta in metas) else 0
    wide = {meta.shape() for meta in metas if meta.dtype.itemsize > 1}
    return {
        path: cube
        for path, (cube, meta) in found.items()
        if meta.bands <= few or (meta.dtype.itemsize == 1 and meta.shape() in wide)
    }


def _own_results_in(folder: Path) -> set[str]:
    """The names of files in a folder that pdenet made: reports and their outputs, models and their logs."""
    reports = {path: report for path in folder.glob(f"*{REPORT}") if (report := Report.read(path)) is not None}
    paths = [folder / Path(name).name for report in reports.values() for name in report.outputs.values()]
    written = [path for path in paths if path.suffix.lower() in writable_suffixes()]
    finals = [final for path in written for final in output_format(path).outputs(path)]
    looks = [path.with_suffix(suffix) for path in written for suffix in (".png", ".qml")]
    left = [path for model in folder.glob(f"*{SUFFIX}") if _is_model(model) for path in Files.around(model).every]
    return {path.name for path in (*reports, *paths, *finals, *looks, *left)}


def _is_model(path: Path) -> bool:
    with suppress(ModelError, OSError):
        return bool(read_header(path))
    return False
