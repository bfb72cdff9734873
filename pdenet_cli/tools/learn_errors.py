"""`pdenet calibrate --learn-errors`: a model learns how large its errors are, on scenes it was not trained on.

Where it was trained on all but a quarter of each (`part` lower-right), it learns beside these quarters.

Intervals that were fitted with a network that knows the scenes would be too narrow on new ones: it foresees the
errors of a scene better if it has learned from the rest of it. So each scene's intervals are fitted with a network
that has learned from other scenes only (cross-fitting), and the model keeps one that has learned from all.

Each scene is a lesson several times (`trials`): as it is, with noise, and softened, so that truths of any
sharpness have been seen; for networks that take any point spread, under several of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import hypot
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import PdenetError, UsageError, as_pdenet_error
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.sharpness import sharpness_of
from pdenet_cli.evaluation.trial import Coarse, make_coarse, sharpen_coarse
from pdenet_cli.models.error_net import USUAL_FWHM, ErrorNet
from pdenet_cli.models.model import Model
from pdenet_cli.report import Say, Watch, WatchTiles
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.truths import Truth
from pdenet_cli.training.error_lessons import STEPS, Lessons, learn_errors
from pdenet_cli.training.scene_lessons import lessons_of

NOISES = (0.003, 0.03, 0.01)  # standard deviations, 0..1, added to the input of scene after scene
SOFTENED = (1.2, 2.2, 1.7)  # FWHM in pixels of the blur of a truth, of scene after scene
PSFS = (1.3, None, 1.9, 1.0, 1.6)  # FWHM in input pixels of scene after scene; None: square pixels
GROUPS = 5  # of scenes, at most: each group is left out of learning once


@dataclass(frozen=True)
class Trial:
    """One way to show a scene: how much softer than it is, and how its input is made."""

    softened: float  # FWHM in pixels
    degradation: Degradation


def trials(number: int, usual: Degradation, *, any_psf: bool) -> tuple[Trial, Trial, Trial]:
    """The ways to show scene `number` of a list: as it is, with noise, softened."""
    first, second = (
        _other_psf(usual, PSFS[(number + later) % len(PSFS)]) if any_psf else usual for later in (0, 2)
    )
    # With noise, because a cube that was degraded has lost most of the noise that sensors have.
    noisy = replace(first, noise=hypot(usual.noise, NOISES[number % len(NOISES)]))
    return Trial(0.0, usual), Trial(0.0, noisy), Trial(SOFTENED[number % len(SOFTENED)], second)


def _other_psf(usual: Degradation, fwhm: float | None) -> Degradation:
    return replace(usual, kernel="area" if fwhm is None else "gaussian", fwhm=fwhm)


@dataclass(frozen=True)
class Taught:
    """A model that has learned how large its errors are, and what it would expect of scenes new to it."""

    model: Model
    without: Mapping[Path, ErrorNet]  # for a scene: what was learned from others only

    def as_if_new(self, scene: Path) -> Model:
        """The model without what it has learned of this scene's errors; all it knows if there was no other."""
        return replace(self.model, errors=self.without.get(scene, self.model.errors))


def learn_from(
    posterior: Posterior,
    scenes: Sequence[Truth],
    degradation: Degradation,
    watch: Watch,
    say: Say,
) -> Taught:
    """The model with an error network that has learned from the scenes, but for their held-out quarters.

    Scenes that cannot be used, or not with noise, are left out with a note; PdenetError if no other is there.
    """
    bare = posterior.with_model(replace(posterior.model, errors=None))
    lessons, sharpness = _all_lessons(scenes, bare, degradation, watch, say)
    every = [lesson for of_scene in lessons.values() for lesson in of_scene]
    learned = learn_errors(every, posterior.seed, STEPS, partial(watch, "learning errors"))
    usual = median(sharpness) if sharpness else USUAL_FWHM
    without: dict[Path, ErrorNet] = {}
    for number, group in enumerate(groups := list(_groups(list(lessons))), start=1):
        rest = [lesson for path, of_scene in lessons.items() if path not in group for lesson in of_scene]
        text = f"learning errors without group {number} of {len(groups)}"
        without |= dict.fromkeys(group, learn_errors(rest, posterior.seed, STEPS, partial(watch, text)))
    facts = {
        "scenes": [_fact(scene) for scene in scenes if scene.path in lessons],
        "groups": len(groups),
        "steps": STEPS,
        "seed": posterior.seed,
        "noises": NOISES,
        "softened": SOFTENED,
        "finer_fwhm": usual,
        "samples": len(posterior),
        "ensemble": posterior.ensemble,
        "mixtures": posterior.most_mixtures,
    }
    spec = replace(bare.model.spec, errors=facts)
    model = replace(bare.model, spec=spec, errors=learned.for_truths_of(usual).to(posterior.device))
    return Taught(
        model, {path: network.for_truths_of(usual).to(posterior.device) for path, network in without.items()}
    )


def _all_lessons(
    scenes: Sequence[Truth],
    posterior: Posterior,
    degradation: Degradation,
    watch: Watch,
    say: Say,
) -> tuple[dict[Path, list[Lessons]], list[float]]:
    """The lessons of each scene that gives any, and how sharp the scenes are; PdenetError if none gives any."""
    lessons: dict[Path, list[Lessons]] = {}
    sharpness: list[float] = []  # of the scenes as they are
    first: PdenetError | None = None
    for number, scene in enumerate(scenes):
        path = scene.path
        try:
            for trial in trials(number, degradation, any_psf=posterior.network.any_psf):
                lesson, fwhm = _lessons(scene, posterior, trial, partial(watch, f"{path.name}: errors"))
                if lesson is not None:
                    lessons.setdefault(path, []).append(lesson)
                if fwhm is not None and trial.degradation == degradation:
                    sharpness.append(fwhm)
        except Exception as error:
            why = as_pdenet_error(error)
            first = first or why
            how = " with noise or softened" if path in lessons else ""
            say(f"{path}: its errors{how} are not learned: {why}")
    if not lessons:
        raise first or UsageError("`learn_errors`: no scene has pixels beside its held-out quarter.")
    return lessons, sharpness


def _groups(scenes: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The scenes in groups to be left out together; none if there is only one scene.

    Neighbours in a list of files are often alike, parts of one flight say, so they are of one group.
    """
    if len(scenes) > 1:
        for numbers in np.array_split(range(len(scenes)), min(GROUPS, len(scenes))):
            yield tuple(scenes[i] for i in numbers)


def _lessons(
    scene: Truth,
    posterior: Posterior,
    trial: Trial,
    watch: WatchTiles,
) -> tuple[Lessons | None, float | None]:
    """Patches of a scene outside its held-out quarter if its settings name it, and how sharp the scene is.

    None in place of patches if there is no room for one.
    """
    scale, memory = posterior.model.scale, scene.settings.memory
    quarter = replace(scene.view(scale, posterior.network.bands), softened=trial.softened)
    fwhm = sharpness_of(quarter.with_surroundings(scale))
    with TemporaryDirectory(prefix="pdenet-") as folder:
        low = make_coarse(quarter, trial.degradation, posterior.seed, memory)
        whole = Coarse(low.cube, low.cube.meta.window)
        maps = EstimateMaps.scratch(Path(folder), whole, scale)
        sharpen_coarse(whole, posterior.with_psf(trial.degradation), maps.outputs, memory, watch)
        return lessons_of(quarter, low, maps, posterior.seed, USUAL_FWHM if fwhm is None else fwhm), fwhm


def _fact(scene: Truth) -> dict[str, Any]:
    """How a scene is known again."""
    return {"name": scene.path.name, "sha256": scene.sha256, "shape": list(scene.whole.meta.shape())}
