"""One scene of an archive, wherever it is sharpened: skipped where it is done, else a job of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from pdenet_cli.degradation import point_spread
from pdenet_cli.formats import output_format, writable_suffixes
from pdenet_cli.report import Report, Say, WatchTiles
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.recipe import PosteriorRecipe
from pdenet_cli.tools.delivery import named_after, report_path
from pdenet_cli.tools.job import Job, asked
from pdenet_cli.tools.journal import Journal
from pdenet_cli.tools.orders import Engine, Facts
from pdenet_cli.tools.psf import scene_psf
from pdenet_cli.tools.settings import Settings

ScenePaths = tuple[Path, Path]  # a scene, and its output


@dataclass(frozen=True)
class SceneDone:
    """What became of a scene."""

    report: Report | None  # None: only a part of its tiles was done
    seconds: float
    skipped: bool = False  # it was done before
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels of all its outputs."""
        return 0 if self.report is None else int(self.report.scene.get("bytes", 0))


def sharpen_scene(
    scene: Path,
    output: Path,
    posterior: Posterior,
    settings: Settings,
    others: Sequence[Path] = (),
    engine: Engine | None = None,
    watch: Callable[[Job], AbstractContextManager[WatchTiles]] = lambda job: nullcontext(lambda done, total: None),
    say: Say = lambda text: None,
) -> SceneDone:
    """Sharpen a scene, unless `settings` goes on and one look at its report says that this is done."""
    started = time.monotonic()
    if settings.goes_on and (report := finished(scene, output, posterior, settings)) is not None:
        return SceneDone(report, time.monotonic() - started, skipped=True)
    seeing = seeing_psf(posterior, scene, settings, say)
    with Job(scene, output, seeing, settings, others, engine) as job, watch(job) as show:
        for done, total in job.run(say):
            show(done, total)
    return SceneDone(job.report, time.monotonic() - started)


def seeing_psf(posterior: Posterior, scene: Path, settings: Settings, say: Say) -> Posterior:
    """The posterior told the point spread that is measured in the scene, if that was asked for."""
    if not settings.measure_psf:
        return posterior
    names = ("variable", "axes", "nodata", "value_range", "bands", "window")
    width = scene_psf(scene, **{name: getattr(settings, name) for name in names})
    say(f"{scene.name}: its edges are {width} pixels wide; used as `psf`.")
    return posterior.with_psf(point_spread(width, posterior.network.scale))


def finished(scene: Path, output: Path, posterior: Posterior, settings: Settings) -> Report | None:
    """The report of an earlier run that was asked for the same and had the same input; None without one.

    The input is the same if no file of it has another size or another time of its last change. A report that is
    older, or an input that was copied again, takes a longer look: `Job` compares contents.
    """
    path, journal = report_path(output), Journal(named_after(output))
    report = Report.read(path)
    if report is None or not report.stamps or journal.path.exists():
        return None
    if report.asked != asked(posterior, settings):
        return None
    for name, (size, changed) in report.stamps.items():
        try:
            found = scene.with_name(name).stat()
        except OSError:
            return None
        if (found.st_size, found.st_mtime_ns) != (size, changed):
            return None
    complete = all(
        part.exists() for name in report.outputs.values() for part in _written(path.with_name(Path(name).name))
    )
    return report if complete else None


def _written(output: Path) -> tuple[Path, ...]:
    """The files of an output: a cube's in its format, or a page or picture itself."""
    return output_format(output).outputs(output) if output.suffix.lower() in writable_suffixes() else (output,)


@dataclass(frozen=True)
class SceneOrder:
    """All that a process needs to sharpen scenes."""

    posterior: PosteriorRecipe
    settings: Settings
    others: tuple[Path, ...]
    facts: Facts
    name: str = "scene"

    @classmethod
    def of(cls, posterior: Posterior, settings: Settings, others: Sequence[Path]) -> SceneOrder:
        """The order for scenes of an archive; `others` are all of them, which must stay."""
        return cls(PosteriorRecipe.of(posterior), settings, tuple(others), Facts.of(posterior))

    def open(self) -> Callable[[ScenePaths], SceneDone]:
        """What sharpens a scene; refused where this process computes with something else."""
        posterior = self.posterior.make()
        self.facts.refuse_others(Facts.of(posterior))

        def work(paths: ScenePaths) -> SceneDone:
            notes: list[str] = []
            done = sharpen_scene(*paths, posterior, self.settings, self.others, say=notes.append)
            return replace(done, notes=tuple(notes))

        return work
