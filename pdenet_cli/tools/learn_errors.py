"""`pdenet calibrate --learn-errors`: a model learns how large its errors are, beside the held-out quarters.

Intervals that were fitted with a network that knows the scenes would be too narrow on new ones: it foresees the
errors of a scene better if it has learned from the rest of it. So each scene's intervals are fitted with a network
that has learned from other scenes only (cross-fitting), and the model keeps one that has learned from all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from math import hypot
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import PdenetError, UsageError, as_pdenet_error
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.trial import Coarse, make_coarse, sharpen_coarse
from pdenet_cli.models.error_net import ErrorNet
from pdenet_cli.models.model import Model
from pdenet_cli.models.spec import ERRORS_KEY
from pdenet_cli.report import Say, Watch, WatchTiles
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.tools.truths import TruthSettings, open_truth, truth_view
from pdenet_cli.training.data import sha256_of
from pdenet_cli.training.error_lessons import STEPS, Lessons, learn_errors
from pdenet_cli.training.scene_lessons import lessons_of

NOISES = (0.003, 0.03, 0.01)  # standard deviations, 0..1, added to the input of scene after scene
GROUPS = 5  # of scenes, at most: each group is left out of learning once


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
    scenes: Sequence[Path],
    degradation: Degradation,
    settings: TruthSettings,
    watch: Watch,
    say: Say,
) -> Taught:
    """The model with an error network that has learned from the scenes, but for their held-out quarters.

    Scenes that cannot be used, or not with noise, are left out with a note; PdenetError if no other is there.
    """
    bare = posterior.with_model(replace(posterior.model, errors=None))
    lessons: dict[Path, list[Lessons]] = {}
    first: PdenetError | None = None
    for path, noise in zip(scenes, cycle(NOISES)):
        try:
            # As it is, and with noise: a cube that was degraded has lost most of the noise that sensors have.
            for how in (degradation, replace(degradation, noise=hypot(degradation.noise, noise))):
                own = _lessons(path, bare, how, settings, partial(watch, f"{path.name}: errors"))
                lessons.setdefault(path, []).extend([] if own is None else [own])
        except Exception as error:
            why = as_pdenet_error(error)
            first = first or why
            say(f"{path}: its errors{' with noise' if lessons.get(path) else ''} are not learned: {why}")
    every = [own for some in lessons.values() for own in some]
    if not every:
        raise first or UsageError("`learn_errors`: no scene has pixels beside its held-out quarter.")
    known = [path for path, some in lessons.items() if some]
    learned = learn_errors(every, posterior.seed, STEPS, partial(watch, "learning errors"))
    without: dict[Path, ErrorNet] = {}
    for number, group in enumerate(groups := list(_groups(known)), start=1):
        rest = [own for path, some in lessons.items() if path not in group for own in some]
        text = f"learning errors without group {number} of {len(groups)}"
        without |= dict.fromkeys(group, learn_errors(rest, posterior.seed, STEPS, partial(watch, text)))
    told = {
        "scenes": [_fact(path, settings) for path in known],
        "groups": len(groups),
        "steps": STEPS,
        "seed": posterior.seed,
        "noises": NOISES,
        "samples": len(posterior),
        "ensemble": posterior.ensemble,
        "mixtures": posterior.most_mixtures,
    }
    spec = replace(bare.model.spec, extra={**bare.model.spec.extra, ERRORS_KEY: told})
    model = replace(bare.model, spec=spec, errors=learned.to(posterior.device))
    return Taught(model, {path: network.to(posterior.device) for path, network in without.items()})


def _groups(scenes: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The scenes in groups to be left out together; none if there is only one scene.

    Neighbours in a list of files are often alike, parts of one flight say, so they are of one group.
    """
    if len(scenes) > 1:
        for numbers in np.array_split(range(len(scenes)), min(GROUPS, len(scenes))):
            yield tuple(scenes[i] for i in numbers)


def _lessons(
    path: Path,
    posterior: Posterior,
    degradation: Degradation,
    settings: TruthSettings,
    watch: WatchTiles,
) -> Lessons | None:
    """Patches of a scene outside its held-out quarter; None if it has no room for one."""
    spec = posterior.model.spec
    with open_truth(path, settings) as cube, TemporaryDirectory(prefix="pdenet-") as folder:
        quarter = truth_view(cube, spec.scale, settings, multiple=spec.scale, count=posterior.network.bands)
        low = make_coarse(quarter, degradation, posterior.seed, settings.memory)
        whole = Coarse(low.cube, low.cube.meta.window)
        maps = EstimateMaps.scratch(Path(folder), whole, spec.scale)
        sharpen_coarse(whole, posterior, maps.outputs, settings.memory, watch)
        return lessons_of(quarter, low, maps, posterior.seed)


def _fact(path: Path, settings: TruthSettings) -> dict[str, Any]:
    """How a scene is known again."""
    with open_truth(path, replace(settings, bands=None)) as cube:
        return {"name": path.name, "sha256": sha256_of(cube), "shape": list(cube.meta.shape())}
