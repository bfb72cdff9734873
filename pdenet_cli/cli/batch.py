"""The scenes of one command: one after the other, or several at once, with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pdenet_cli.cli.console import say
from pdenet_cli.cli.progress import Pace, is_watched, shown_pace, shown_stages
from pdenet_cli.errors import PdenetError, as_pdenet_error

if TYPE_CHECKING:
    from pdenet_cli.report import WatchTiles
    from pdenet_cli.sampling.posterior import Posterior
    from pdenet_cli.tools.job import Forecast, Job
    from pdenet_cli.tools.orders import Engine
    from pdenet_cli.tools.scene_order import SceneDone
    from pdenet_cli.tools.settings import Settings

    Pairs: TypeAlias = Sequence[tuple[Path, Path]]  # scenes and their outputs
    Results: TypeAlias = Iterator[tuple[Path, Path, SceneDone | Forecast | PdenetError]]

SCENES_EACH = 4  # with so many scenes a worker, a task is a scene; with fewer, it is a tile


@dataclass(frozen=True)
class Batch:
    """How the scenes of a command are sharpened."""

    posterior: Posterior
    settings: Settings
    scenes: Sequence[Path]  # all, which must stay
    engine: Engine | None

    def results(self, pairs: Pairs) -> Results:
        """What became of each scene; the error of a single one is raised."""
        engine = self.engine
        if self.settings.forecast:
            return self._forecasts(pairs)
        if engine is not None and self.settings.part is None and len(pairs) >= SCENES_EACH * engine.count:
            return self._by_scene(engine, pairs)
        return self._by_tile(pairs)

    def _forecasts(self, pairs: Pairs) -> Results:
        from pdenet_cli.tools.job import Job
        from pdenet_cli.tools.scene_order import seeing_psf

        for scene, path in pairs:
            try:
                seeing = seeing_psf(self.posterior, scene, self.settings, say)
                with Job(scene, path, seeing, self.settings, self.scenes, self.engine) as job:
                    forecast = job.forecast()
            except Exception as error:
                yield scene, path, self._failed(error)
            else:
                yield scene, path, forecast

    def _by_tile(self, pairs: Pairs) -> Results:
        from pdenet_cli.tools.scene_order import sharpen_scene

        for scene, path in pairs:
            about = f"{scene.name}: " if len(self.scenes) > 1 else ""
            try:
                done = sharpen_scene(
                    scene,
                    path,
                    self.posterior,
                    self.settings,
                    self.scenes,
                    self.engine,
                    partial(shown_tiles, scene),
                    say=lambda text, about=about: say(about + text),  # type: ignore[misc]
                )
            except Exception as error:
                yield scene, path, self._failed(error)
            else:
                yield scene, path, done

    def _by_scene(self, engine: Engine, pairs: Pairs) -> Results:
        from pdenet_cli.system import usable_memory
        from pdenet_cli.tools.scene_order import SceneOrder

        memory = (self.settings.memory or usable_memory(self.posterior.device)) // engine.crowd
        order = SceneOrder.of(self.posterior, replace(self.settings, memory=memory), self.scenes)
        items = ((s, p) if engine.here else (s.absolute(), p.absolute()) for s, p in pairs)
        with shown_stages(1) as watch:
            for count, ((scene, path), done) in enumerate(engine.spread(order, items), start=1):
                watch("scenes", count, len(pairs))
                if isinstance(done, Exception):
                    yield scene, path, as_pdenet_error(done)
                    continue
                for note in done.notes:
                    say(f"{scene.name}: {note}")
                yield scene, path, done

    def _failed(self, error: Exception) -> PdenetError:
        if len(self.scenes) == 1:
            raise error
        return as_pdenet_error(error)


@contextmanager
def shown_tiles(scene: Path, job: Job) -> Iterator[WatchTiles]:
    """Show how far a job is, until the block ends; gives what is told how many tiles are done."""
    works = [tile.padded.pixels for tile in job.scene.plan.tiles]
    part = job.settings.part
    forecast = job.seconds(quick=True) / job.at_once if is_watched() else None
    pace = Pace(works if part is None else part.of_all(works), forecast)
    with shown_pace(scene.name, pace):
        yield lambda done, total: pace.finished(done)
