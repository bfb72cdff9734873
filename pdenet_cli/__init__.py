"""pdenet: sharper hyperspectral images, and how far each pixel can be trusted.

The map of the house; imports only go down, and rooms of one storey leave each other alone (a test reads this):

    18 cli/             Typer: parse, call one tool, print; main() turns PdenetError into a line and an exit code
    17 tools/           the verbs on paths: paths in, a report out
    16 pages/           results as pages and plots for people
    15 evaluation/      systems on degraded truths: estimates, scores, uncertainty, pictures
    14 inference.py     the one loop super_resolve: tiles in, maps out
    13 gathering.py     gathers the evidence of a tile: its samples and its input
       training/        patches, recipes, the training loop and its checkpoints
    12 posterior.py     Posterior: a model and its draws
    11 calibration.py   from the spread of samples to intervals that hold
       models.py        Model: found by name or file, loaded, saved
    10 weights_file.py  files of weights that describe themselves
       error_ratios.py  ErrorRatios: errors relative to their spread, counted
     9 networks/        torch; the NETWORKS table
       formats/         the FORMATS table, open_cube, create_cube
       model_spec.py    ModelSpec: how a model describes itself
       mixtures.py      many bands seen as few mixtures
       error_net.py     how large errors will be, learned
       spread.py        the scale of errors before any calibration, and the strata
       tiling.py  summaries.py  metrics.py  picture.py  risk_control.py  report.py
     8 degradation.py   how a coarser sensor would have seen a scene
       evidence.py      Evidence: all that is known about a tile
       score_sums.py    sums of a window that scores are computed from
       reading.py       a scene looked over: survey, the bands for a network, radiometry
     7 radiometry.py    between the file's numbers and the network's 0..1
     6 survey.py        what the numbers of a scene are like
     5 holes.py         pixels without data: where they are, what the network sees there
     4 cube.py          Cube: an array on disk, seen as (bands, rows, columns)
     3 cube_meta.py     CubeMeta: what a file says about its cube
       sliceable.py     Sliceable: an array on disk; SomeBands: a view of some bands of it
     2 window.py        Window: a rectangle of pixels
       georeference.py  where pixels lie on the ground
       wavelengths.py   units of wavelength, in nanometres
       bands.py         which bands are wanted, by number or by wavelength
       dtypes.py        which numbers a NumPy type can hold
       memory.py        how much memory a run may use
       devices.py       which device a run computes on
       progress.py      how a run tells what it does: Say, Watch
     1 errors.py        PdenetError and its children, each with its exit code
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdenet_cli.errors import PdenetError

if TYPE_CHECKING:
    from pdenet_cli.cube import Cube
    from pdenet_cli.cube_meta import CubeMeta
    from pdenet_cli.formats import create_cube, open_cube
    from pdenet_cli.models import load_model
    from pdenet_cli.posterior import Posterior
    from pdenet_cli.radiometry import Radiometry
    from pdenet_cli.summaries import Question
    from pdenet_cli.survey import Survey
    from pdenet_cli.tools.arrays import sharpen
    from pdenet_cli.tools.job import Job, Settings
    from pdenet_cli.window import Window

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
    "Cube": "pdenet_cli.cube",
    "CubeMeta": "pdenet_cli.cube_meta",
    "Job": "pdenet_cli.tools.job",
    "Posterior": "pdenet_cli.posterior",
    "Question": "pdenet_cli.summaries",
    "Radiometry": "pdenet_cli.radiometry",
    "Settings": "pdenet_cli.tools.job",
    "Survey": "pdenet_cli.survey",
    "Window": "pdenet_cli.window",
    "create_cube": "pdenet_cli.formats",
    "load_model": "pdenet_cli.models",
    "open_cube": "pdenet_cli.formats",
    "sharpen": "pdenet_cli.tools.arrays",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
