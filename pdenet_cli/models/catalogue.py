"""Which models there are, and which one a name, a path or a scale means: headers only, so that it is instant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pdenet_cli.errors import ModelError, UsageError
from pdenet_cli.files import is_file, is_folder
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.models.weights_file import SUFFIX, read_header

DEFAULT_SCALE = 4
BICUBIC = "bicubic"  # a model without weights, for any scale

_PACKAGE = Path(__file__).parents[1]
FOLDERS = (_PACKAGE / "weights", _PACKAGE.parent / "weights")
"""Where the shipped models are: in the installed package, or in the repository."""


def available_models() -> dict[str, Path]:
    """The shipped models by name."""
    found = (path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.glob(f"*{SUFFIX}")))
    models: dict[str, Path] = {}
    for path in found:
        models.setdefault(path.stem, path)
    return models


def find_model(name_or_path: str | Path) -> Path:
    """The weights file of a model given by its name or its path."""
    models = available_models()
    if (name := str(name_or_path)) in models:
        return models[name]
    path = Path(name_or_path)
    if is_file(path):
        return path
    if is_folder(path):
        raise ModelError(f"{path} is a folder; use a weights file ({SUFFIX}).")
    if name == BICUBIC:
        raise ModelError("bicubic has no weights file: it can only upscale and be evaluated.")
    known = f"Known models: {', '.join((*models, BICUBIC))}."
    raise ModelError(f"{name}: no model of this name and no such file. {known}")


def choose_model(name_or_path: str | None, scale: int | None, *, any_psf: bool = False) -> Path:
    """The weights file that a user means: the one named, else the shipped one for `scale` (4 if not given).

    `any_psf`: of the shipped ones rather one that takes any point spread, if there is one.
    """
    if name_or_path is None:
        wanted = scale or DEFAULT_SCALE
        specs = dict(_specs())
        made = [path for path, spec in specs.items() if spec.scale == wanted]
        if made:
            return next((path for path in made if any_psf and specs[path].takes_any_psf), made[0])
        shipped = ", ".join(f"x{s}" for s in sorted({spec.scale for spec in specs.values()})) or "none"
        raise ModelError(
            f"No model for x{wanted} is shipped ({shipped}). Train one, or use `model` (bicubic: any scale)."
        )
    path = find_model(name_or_path)
    made_for = read_header(path).spec.scale
    if scale not in (None, made_for):
        raise UsageError(f"{name_or_path}: an x{made_for} model cannot make x{scale}. Omit `scale`.")
    return path


def _specs() -> Iterator[tuple[Path, ModelSpec]]:
    """The shipped models that can be read, and how each describes itself."""
    for path in available_models().values():
        try:
            yield path, read_header(path).spec
        except ModelError:  # `pdenet models` reports it
            continue
