"""What `pdenet upscale` and `pdenet uncertainty` share: loading the model and running its jobs with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli.batch import Batch
from pdenet_cli.cli.console import INTERRUPTED, JsonItems, err, out, say, shown, size_text, time_text
from pdenet_cli.cli.spreading import Spreading
from pdenet_cli.errors import BatchError, ModelError, PdenetError, UsageError

if TYPE_CHECKING:
    from pdenet_cli.report import Report
    from pdenet_cli.sampling.posterior import Posterior
    from pdenet_cli.tools.archive import Summary
    from pdenet_cli.tools.job import Forecast
    from pdenet_cli.tools.parts import Part
    from pdenet_cli.tools.scene_order import SceneDone
    from pdenet_cli.tools.settings import Settings

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
        if self.psf is not None and self.sensor is not None:
            raise UsageError("--psf and --sensor both say how sharp the pixels are; give one of them.")
        width = self.psf if self.sensor is None else f"{sensor_named(self.sensor).fwhm:g}"
        model = open_model(self.model, self.scale, choose_device(self.device), any_psf=width is not None)
        psf = None if width in (None, AUTO) else point_spread(width, model.scale)
        if width == AUTO and not model.network.any_psf:
            problem = f"{model.name} undoes one point spread only, whatever that of the scene is"
            raise ModelError(
                f"--psf auto: {problem}. Omit it, or use a model that takes any (psf=any), as sensor-x4 does."
            )
        posterior = Posterior(model, self.samples, self.seed, self.ensemble, self.mixtures, psf)
        return posterior if self.finer_psf is None else posterior.for_truths_of(self.finer_psf)


def part_of(text: str | None) -> Part | None:
    """The part that --part names."""
    from pdenet_cli.tools.parts import Part

    return None if text is None else Part.named(text)


def sharpen(
    scenes: Sequence[Path],
    output: Path,
    options: PosteriorOptions,
    settings: Settings,
    as_json: bool,
    folder: bool,
    spreading: Spreading,
    summary_file: Path | None,
) -> None:
    """Sharpen each scene; if one of several fails the others go on, and a table at the end says why."""
    from pdenet_cli.tools.archive import Summary
    from pdenet_cli.tools.naming import distinct_scenes, output_paths

    posterior = options.posterior()
    scenes = distinct_scenes(scenes, settings.variable, settings.axes)
    overwrite = settings.overwrite or settings.goes_on
    with (
        _removed_if_empty(output),
        Summary(summary_file, overwrite=overwrite) as summary,
        JsonItems(as_json, several=len(scenes) > 1) as items,
        spreading.engine(only_planned=settings.forecast) as engine,
    ):
        paths = output_paths(scenes, output, posterior.network.scale, folder=folder)
        pairs = list(zip(scenes, paths, strict=True))
        if settings.part is not None and len(pairs) >= settings.part.of:  # a part of the scenes, and each whole
            pairs, settings = list(settings.part.of_all(pairs)), replace(settings, part=None, resume=True)
        batch = Batch(posterior, settings, scenes, engine)
        try:
            for scene, path, done in batch.results(pairs):
                _tell(scene, path, done, settings, summary, items)
        except KeyboardInterrupt:
            way = "" if settings.forecast else " Continue with the same command and --resume."
            err.print(f"Stopped.{way}")
            raise typer.Exit(INTERRUPTED) from None
        if len(pairs) > 1 and settings.page and not settings.forecast:
            _write_index(paths[0].parent, as_json)
    totals = summary.totals
    if len(pairs) > 1 and not settings.forecast and not as_json:
        out.print(f"[dim]{totals.text()}[/]")
    if totals.failed:
        table = Table("scene", "why it failed", title="Failed", title_justify="left")
        for name, why in totals.failures.items():
            table.add_row(escape(Path(name).name), shown(why))
        err.print(table)
        others = "; the others are done" if totals.failed < len(pairs) else ""
        raise BatchError(f"{totals.failed} of {len(pairs)} scenes failed{others}.")


def _tell(
    scene: Path,
    path: Path,
    done: SceneDone | Forecast | PdenetError,
    settings: Settings,
    summary: Summary,
    items: JsonItems,
) -> None:
    """Print what became of a scene."""
    from pdenet_cli.tools.scene_order import SceneDone

    if isinstance(done, PdenetError):
        summary.add(scene, "failed", output=path, why=" ".join(str(done).split()))
        items.add({"path": str(scene), "error": str(done)})
        return
    if not isinstance(done, SceneDone):
        items.add(asdict(done))
        if not items.wanted:
            _show_forecast(scene, done)
        return
    status = "skipped" if done.skipped else "done"
    summary.add(scene, status, seconds=done.seconds, nbytes=done.nbytes, output=path)
    if done.report is None:
        items.add({"path": str(scene), "part": str(settings.part)})
        if not items.wanted:
            out.print(f"{escape(scene.name)}: part {settings.part} is done; when all are, run --finish")
        return
    items.add(asdict(done.report))
    if not items.wanted:
        _conclude(path, done.report)


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


def _conclude(output: Path, report: Report) -> None:
    from pdenet_cli.tools.delivery import report_path

    for name, path in report.outputs.items():
        what = "sharpened cube" if name == "mean" else name.replace("_", " ")
        out.print(f"{escape(path)}  [dim]{what}[/]")
    reason, spent = report.job["radiometry"]["reason"], time_text(report.seconds)
    out.print(f"[dim]{escape(str(report_path(output)))}: {escape(reason)}; {spent}[/]")


def _show_forecast(scene: Path, forecast: Forecast) -> None:
    table = Table(title=escape(str(scene)), show_header=False, box=None, title_justify="left")
    for name, path in forecast.outputs.items():
        table.add_row(name, escape(path), size_text(forecast.sizes[name]))
    table.add_row("on disk", size_text(forecast.bytes_on_disk))
    table.add_row("memory", f"about {size_text(forecast.bytes_of_memory)}")
    runs = f" in each of {forecast.spans} runs" if forecast.spans > 1 else ""
    size = f"{forecast.tile} x {forecast.tile} pixels, {forecast.bands} bands{runs}"
    table.add_row("tiles", f"{forecast.tiles} of {size}")
    workers = f" with {forecast.workers} workers" if forecast.workers > 1 else ""
    table.add_row("time", f"about {time_text(forecast.seconds)} on this machine{workers}")
    if existing := forecast.in_the_way:
        others = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        table.add_row("exists", escape(f"{existing[0]}{others}: the run will need --overwrite"))
    out.print(table)
