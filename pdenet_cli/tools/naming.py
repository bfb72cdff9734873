"""Which scenes of a command are different ones, and what their results are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pdenet_cli.errors import UsageError
from pdenet_cli.files import is_file, is_folder, refuse_dash, refuse_existing, unwritable
from pdenet_cli.formats import files_of, usual_suffix, writable_suffixes, zarr


def distinct_scenes(scenes: Sequence[Path], variable: str | None, axes: str | None) -> list[Path]:
    """The scenes without those given before by another of their files: b.img is b.hdr."""
    kept: list[Path] = []
    known: dict[tuple[Path, str], set[Path]] = {}  # the files of the scenes so far, by folder and stem
    names = [(scene.parent, scene.name.partition(".")[0]) for scene in scenes]
    counts = Counter(names)
    for scene, name in zip(scenes, names, strict=True):
        # Opened only where stems are equal: there may be thousands of scenes.
        files = files_of(scene, variable, axes)[0] if counts[name] > 1 else ()
        resolved = {file.resolve() for file in files}
        if not known.setdefault(name, set()) & resolved:
            kept.append(scene)
        known[name] |= resolved
    return kept


def output_paths(scenes: Sequence[Path], output: Path, scale: int, *, folder: bool) -> list[Path]:
    """The path of each scene's result: `output` itself, or in it if it is a folder or there are several scenes.

    `folder`: it is one in any case, and results have just the name of their scene.
    """
    refuse_dash(output)
    if not folder and len(scenes) == 1 and output.suffix and (not is_folder(output) or _is_store(output)):
        return [output]
    if is_file(output) or (not is_folder(output) and output.suffix.lower() in writable_suffixes()):
        raise UsageError(f"{output}: use a folder, not a file name.")
    if not is_folder(output):
        refuse_existing((output,), overwrite=True)  # it cannot be made in a folder that does not exist
    try:
        output.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(output, error) from error
    ending = "" if folder else f"_x{scale}"
    named = [with_own_name(scene) for scene in scenes]
    paths = [output / f"{scene.stem}{ending}{usual_suffix(scene)}" for scene in named]
    stems = [path.stem for path in paths]  # reports and pages of all formats have the same suffix
    counts = Counter(stems)
    for stem, scene in zip(stems, named, strict=True):
        if counts[stem] > 1:
            raise UsageError(f"Several scenes are called {scene.stem}; sharpen them into different folders.")
    return paths


def with_own_name(scene: Path) -> Path:
    """The scene as a path that ends in a name, as `.` and `..` do not."""
    return scene if scene.name not in ("", "..") else scene.resolve()


def _is_store(path: Path) -> bool:
    """Whether a folder is a Zarr cube, which `overwrite` may replace, and not a folder of cubes."""
    form = zarr.FORMAT
    return path.suffix.lower() in form.suffixes and form.recognises(path, b"")
