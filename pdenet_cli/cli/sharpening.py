"""What `pdenet upscale` and `pdenet uncertainty` share: loading the model and running its jobs with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli.console import INTERRUPTED, err, out, print_json, say, shown, size_text, time_text
from pdenet_cli.cli.progress import Pace, is_watched, shown_pace
from pdenet_cli.errors import BatchError, ModelError, PdenetError, UsageError

if TYPE_CHECKING:
    from pdenet_cli.sampling.posterior import Posterior
    from pdenet_cli.tools.job import Forecast, Job, Settings

AUTO = "auto"  # the --psf that means: as measured in each scene


@dataclass(frozen=True)
class PosteriorOptions:
    """The options that choose the model and its samples."""

    scale: int | None
    model: str | None
    samples: int
    seed: int
    ensemble: str | None
    device: str
    threads: int | None = None
    mixtures: int | None = None
    psf: str | None = None
    sensor: str | None = None
    finer_psf: float | None = None

    def posterior(self) -> Posterior:
        """The model, loaded, with its draws made."""
        from pdenet_cli.degradation import point_spread
        from pdenet_cli.models.model import open_model
        from pdenet_cli.sampling.posterior import Posterior
        from pdenet_cli.scene.sensors import sensor_named
        from pdenet_cli.system import choose_device, use_threads

        use_threads(self.threads)
        model = open_model(self.model, self.scale, choose_device(self.device))
        if self.psf is not None and self.sensor is not None:
            raise UsageError("--psf and --sensor both say how sharp the pixels are; give one of them.")
        width = self.psf if self.sensor is None else f"{sensor_named(self.sensor).fwhm:g}"
        psf = None if width in (None, AUTO) else point_spread(width, model.scale)
        if width == AUTO and not model.network.any_psf:
            problem = f"{model.name} undoes one point spread only, whatever that of the scene is"
            raise ModelError(f"--psf auto: {problem}. Omit it, or use a model of the configuration psf=any.")
        posterior = Posterior(model, self.samples, self.seed, self.ensemble, self.mixtures, psf)
        return posterior if self.finer_psf is None else posterior.for_truths_of(self.finer_psf)

    def for_scene(self, posterior: Posterior, scene: Path, settings: Settings) -> Posterior:
        """The posterior told the point spread that is measured in the scene, if that was asked for."""
        if self.psf != AUTO:
            return posterior
        from pdenet_cli.degradation import point_spread
        from pdenet_cli.tools.psf import scene_psf

        names = ("variable", "axes", "nodata", "value_range", "bands", "window")
        width = scene_psf(scene, **{name: getattr(settings, name) for name in names})
        say(f"{scene.name}: its edges are {width} pixels wide; used as `psf`.")
        return posterior.with_psf(point_spread(width, posterior.network.scale))


def sharpen(
    scenes: Sequence[Path],
    output: Path,
    options: PosteriorOptions,
    settings: Settings,
    as_json: bool,
    folder: bool = False,
) -> None:
    """Sharpen each scene; if one of several fails the others go on, and a table at the end says why."""
    from pdenet_cli.tools.naming import distinct_scenes, output_paths

    posterior = options.posterior()
    scenes = distinct_scenes(scenes, settings.variable, settings.axes)
    with _removed_if_empty(output):
        paths = output_paths(scenes, output, posterior.network.scale, folder=folder)
        results, failed = _sharpen_each(scenes, paths, posterior, options, settings, as_json)
        if len(scenes) > 1 and settings.page and not settings.forecast:
            _write_index(paths[0].parent, as_json)
    if as_json:
        print_json(results if len(scenes) > 1 else results[0])
    if failed:
        table = Table("scene", "why it failed", title="Failed", title_justify="left")
        for scene, why in failed.items():
            table.add_row(escape(scene.name), shown(str(why)))
        err.print(table)
        others = "; the others are done" if len(failed) < len(scenes) else ""
        raise BatchError(f"{len(failed)} of {len(scenes)} scenes failed{others}.")


def _write_index(folder: Path, as_json: bool) -> None:
    """The page that leads to those of the scenes; not in the place of somebody else's."""
    from pdenet_cli.tools.index import write_index

    index = write_index(folder)
    if index is None:
        say(f"{folder / 'index.html'} is not an index of pdenet's and stays: no index is written.")
    elif not as_json:
        out.print(f"{escape(str(index))}  [dim]index of the pages[/]")


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove a folder that was made meanwhile and is empty: a refusal or a dry run leaves nothing."""
    from pdenet_cli.files import is_there

    new = not is_there(folder)
    try:
        yield
    finally:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _sharpen_each(
    scenes: Sequence[Path],
    paths: Sequence[Path],
    posterior: Posterior,
    options: PosteriorOptions,
    settings: Settings,
    as_json: bool,
) -> tuple[list[dict[str, Any]], dict[Path, PdenetError]]:
    """The report, forecast or error of each scene, and why scenes failed."""
    from pdenet_cli.tools.batch import each
    from pdenet_cli.tools.job import Job

    def work(pair: tuple[Path, Path]) -> Job | Forecast:
        scene, path = pair
        seeing = options.for_scene(posterior, scene, settings)
        with Job(scene, path, seeing, settings, scenes) as job:
            if settings.forecast:
                return job.forecast()
            _run_job(job, scene, f"{scene.name}: " if len(scenes) > 1 else "")
            return job

    results: list[dict[str, Any]] = []
    failed: dict[Path, PdenetError] = {}
    try:
        for (scene, _), done in each(list(zip(scenes, paths, strict=True)), work):
            if isinstance(done, PdenetError):
                failed[scene] = done
                results.append({"path": str(scene), "error": str(done)})
            else:
                results.append(asdict(done.report if isinstance(done, Job) else done))
                if not as_json:
                    _conclude(done) if isinstance(done, Job) else _show_forecast(scene, done)
    except KeyboardInterrupt:
        advice = "" if settings.forecast else " Continue with the same command and --resume."
        err.print(f"Stopped.{advice}")
        raise typer.Exit(INTERRUPTED) from None
    return results, failed


def _run_job(job: Job, scene: Path, about: str) -> None:
    """Run a job and show its progress: a bar on a terminal, else a line now and then.

    `about` begins every message about the scene.
    """
    works = [tile.padded.pixels for tile in job.scene.plan.tiles]
    pace = Pace(works, job.seconds(quick=True) if is_watched() else None)
    with shown_pace(scene.name, pace):
        for done, _ in job.run(say=lambda text: say(about + text)):
            pace.finished(done)


def _conclude(job: Job) -> None:
    for name, path in job.report.outputs.items():
        what = "sharpened cube" if name == "mean" else name.replace("_", " ")
        out.print(f"{escape(path)}  [dim]{what}[/]")
    spent = time_text(job.report.seconds)
    out.print(f"[dim]{escape(str(job.delivery.report_path))}: {job.scene.reading.radiometry.reason}; {spent}[/]")


def _show_forecast(scene: Path, forecast: Forecast) -> None:
    table = Table(title=escape(str(scene)), show_header=False, box=None, title_justify="left")
    for name, path in forecast.outputs.items():
        table.add_row(name, escape(path), size_text(forecast.sizes[name]))
    table.add_row("on disk", size_text(forecast.bytes_on_disk))
    table.add_row("memory", f"about {size_text(forecast.bytes_of_memory)}")
    runs = f" in each of {forecast.spans} runs" if forecast.spans > 1 else ""
    size = f"{forecast.tile} x {forecast.tile} pixels, {forecast.bands} bands{runs}"
    table.add_row("tiles", f"{forecast.tiles} of {size}")
    table.add_row("time", f"about {time_text(forecast.seconds)} on this machine")
    if existing := forecast.in_the_way:
        others = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        table.add_row("exists", escape(f"{existing[0]}{others}: the run will need --overwrite"))
    out.print(table)
