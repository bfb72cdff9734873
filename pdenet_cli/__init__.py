"""pdenet: sharper hyperspectral images, and how far each pixel can be trusted.

The map of the house, along the road of the data. Imports only go down, inside packages too, and packages of one
storey leave each other alone (a test reads this). README.md beside this file walks through it.

    9 cli/            Typer: parse, call one tool, print; main() turns PdenetError into a line and an exit code
      xarray/         DataArrays in, Datasets out
    8 tools/          the verbs on paths: paths in, a report out
    7 pages/          results as pages and plots for people
      training/       find_cubes, patches, recipes, the training loop and its checkpoints
    6 evaluation/     systems on truths: estimates, metrics and their sums, whether the uncertainty holds
    5 sampling/       a scene seen by a posterior: tiles, mixtures of bands, samples, the one loop over tiles
      point_spread/   how wide a scene's point spread is, by the straight edges in it
    4 models/         a model, how it describes itself, its file; networks/
    3 uncertainty/    evidence, maps, calibration, risk control
      formats/        the FORMATS table, open_cube, create_cube; a package a family
    2 scene/          Cube, CubeMeta, Window, Georeference, survey, radiometry
      degradation.py  how a coarser sensor would have seen a scene
      files.py        files that are never incomplete
      report.py       what a run says
      system.py       memory, devices, threads
      child.py        work in a process of its own, which may crash
    1 errors.py       PdenetError and its children, each with its exit code
      reprs.py        objects as a notebook shows them
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdenet_cli.errors import PdenetError

if TYPE_CHECKING:
    from pdenet_cli.formats import create_cube, open_cube
    from pdenet_cli.models.model import load_model
    from pdenet_cli.sampling.posterior import Posterior
    from pdenet_cli.scene.cube import Cube
    from pdenet_cli.scene.meta import CubeMeta
    from pdenet_cli.scene.radiometry import Radiometry
    from pdenet_cli.scene.survey import Survey
    from pdenet_cli.scene.window import Window
    from pdenet_cli.tools.arrays import sharpen
    from pdenet_cli.tools.job import Job
    from pdenet_cli.tools.settings import Settings
    from pdenet_cli.uncertainty.summaries import Question

__version__ = "0.1.0"

__all__ = [
    "Cube",
    "CubeMeta",
    "Job",
    "PdenetError",
    "Posterior",
    "Question",
    "Radiometry",
    "Settings",
    "Survey",
    "Window",
    "create_cube",
    "load_model",
    "open_cube",
    "sharpen",
]

# These need torch or the libraries of all formats, whose import takes longer than `pdenet --help` may.
_LATER = {
    "Cube": "pdenet_cli.scene.cube",
    "CubeMeta": "pdenet_cli.scene.meta",
    "Job": "pdenet_cli.tools.job",
    "Posterior": "pdenet_cli.sampling.posterior",
    "Question": "pdenet_cli.uncertainty.summaries",
    "Radiometry": "pdenet_cli.scene.radiometry",
    "Settings": "pdenet_cli.tools.settings",
    "Survey": "pdenet_cli.scene.survey",
    "Window": "pdenet_cli.scene.window",
    "create_cube": "pdenet_cli.formats",
    "load_model": "pdenet_cli.models.model",
    "open_cube": "pdenet_cli.formats",
    "sharpen": "pdenet_cli.tools.arrays",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
