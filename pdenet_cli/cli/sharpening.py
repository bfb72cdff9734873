"""What `pdenet upscale` and `pdenet uncertainty` share: from words to settings, and how a job looks as it runs."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pdenet_cli.cli.console import INTERRUPTED, err, out, size_text, time_text
from pdenet_cli.errors import BatchError, PdenetError, UsageError, failure

if TYPE_CHECKING:
    from pdenet_cli.posterior import Posterior
    from pdenet_cli.tools.sharpen import Forecast, Job, Settings

LOG_EVERY = 60  # seconds, where no bar moves
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Draws:
    """Which sub-networks a user asks for."""

    scale: int | None
    model: str | None
    samples: int
    seed: int
    ensemble: str | None
    device: str
    threads: int | None = None

    def posterior(self) -> Posterior:
        """The model, loaded, with its draws made."""
        from pdenet_cli.models import choose_device, open_model
        from pdenet_cli.networks.runtime import use_threads
        from pdenet_cli.posterior import Posterior

        use_threads(self.threads)
        model = open_model(self.model, self.scale, choose_device(self.device))
        return Posterior(model, self.samples, self.seed, self.ensemble)


def settings_of(context: typer.Context, **others: Any) -> Settings:
    """The settings that the options of a command make, by their names; `others` are not options."""
    from pdenet_cli.tools.sharpen import Settings

    words = context.params
    asked = ("value_range", "tile", "halo", "axes", "nodata", "overwrite", "resume", "quicklook")
    return Settings(
        forecast=words["dry_run"],
        bands=parse_bands(words["bands"]),
        dtype=parse_dtype(words.get("dtype")),
        memory=parse_size(words["memory"]),
        variable=words["var"],
        **{name: words[name] for name in asked},
        **others,
    )


def sharpen(
    scenes: Sequence[Path],
    output: Path,
    draws: Draws,
    settings: Settings,
    dry_run: bool,
    as_json: bool,
    folder: bool = False,
) -> None:
    """Sharpen each scene; where one of several fails the others go on, and a table at the end says why."""
    from pdenet_cli.tools.sharpen import each_once, output_paths

    posterior = draws.posterior()
    scenes = each_once(scenes, settings)
    with _left_if_used(output):
        paths = output_paths(scenes, output, posterior.network.scale, folder=folder)
        told, failed = _sharpen_each(scenes, paths, posterior, settings, dry_run, as_json)
    if as_json:
        print(json.dumps(told if len(scenes) > 1 else told[0], indent=2))
    if failed:
        table = Table("scene", "why it failed", title="Failed", title_justify="left")
        for scene, why in failed.items():
            table.add_row(escape(scene.name), escape(str(why)))
        err.print(table)
        others = "; the others are done" if len(failed) < len(scenes) else ""
        raise BatchError(f"{len(failed)} of {len(scenes)} scenes failed{others}.")


@contextmanager
def _left_if_used(folder: Path) -> Iterator[None]:
    """A folder that is made in here stays only if something is in it: a refusal or a dry run leaves nothing."""
    new = not folder.exists()
    try:
        yield
    finally:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _sharpen_each(
    scenes: Sequence[Path],
    paths: Sequence[Path],
    posterior: Posterior,
    settings: Settings,
    dry_run: bool,
    as_json: bool,
) -> tuple[list[dict[str, Any]], dict[Path, PdenetError]]:
    """What is to be told of each scene, and which of several failed for what reason."""
    from pdenet_cli.tools.sharpen import Job

    told: list[dict[str, Any]] = []
    failed: dict[Path, PdenetError] = {}
    for scene, path in zip(scenes, paths, strict=True):
        try:
            with Job(scene, path, posterior, settings, scenes) as job:
                if dry_run:
                    forecast = job.forecast()
                    told.append(asdict(forecast))
                else:
                    _work(job, scene, f"{scene.name}: " if len(scenes) > 1 else "")
                    told.append(asdict(job.report))
        except Exception as error:
            if len(scenes) == 1:
                raise
            failed[scene] = failure(error)
            continue
        except KeyboardInterrupt:
            err.print("Stopped." if dry_run else "Stopped. Continue with the same command and --resume.")
            raise typer.Exit(INTERRUPTED) from None
        if not as_json:
            _show_forecast(scene, forecast) if dry_run else _conclude(job)
    return told, failed


def _work(job: Job, scene: Path, about: str) -> None:
    """Run a job where a user sees it go: a bar on a terminal, now and then a line in a log.

    `about` begins what is said of the scene.
    """
    columns = (
        TextColumn(escape(scene.name)),
        BarColumn(),
        TextColumn("tile {task.completed}/{task.total} {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    pixels = job.plan.scene.rows * job.plan.scene.columns * job.posterior.network.scale**2
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None, rate="")
        said = time.monotonic()
        for done, total in job.run(say=lambda text: err.print(f"[yellow]{escape(about + text)}[/]")):
            progress.update(task, completed=done, total=total)
            if not err.is_terminal and time.monotonic() - said > LOG_EVERY:
                said = time.monotonic()
                err.print(f"{escape(scene.name)}: {done} of {total} tiles")
            speed = progress.tasks[0].speed
            if speed:
                progress.update(task, rate=f"{speed * pixels / total:,.0f} pixels/s")


def _conclude(job: Job) -> None:
    for name, path in job.report.outputs.items():
        what = "sharpened cube" if name == "mean" else name.replace("_", " ")
        out.print(f"{escape(path)}  [dim]{what}[/]")
    if pictures := list(job.delivery.pictures):
        others = f", and {len(pictures) - 1} more" if len(pictures) > 1 else ""
        out.print(f"{escape(str(pictures[0]))}  [dim]picture{others}[/]")
    spent = time_text(job.report.seconds)
    out.print(f"[dim]{escape(str(job.delivery.report_path))}: {job.radiometry.reason}; {spent}[/]")


def _show_forecast(scene: Path, forecast: Forecast) -> None:
    table = Table(title=escape(str(scene)), show_header=False, box=None, title_justify="left")
    for name, path in forecast.outputs.items():
        table.add_row(name, escape(path))
    table.add_row("on disk", size_text(forecast.bytes_on_disk))
    table.add_row("memory", f"about {size_text(forecast.bytes_of_memory)}")
    table.add_row("tiles", f"{forecast.tiles} of {forecast.tile} x {forecast.tile} pixels, {forecast.bands} bands")
    table.add_row("time", f"about {time_text(forecast.seconds)} on this machine")
    if there := forecast.in_the_way:
        others = f" and {len(there) - 1} more" if len(there) > 1 else ""
        table.add_row("exists", escape(f"{there[0]}{others}: the run will need --overwrite"))
    out.print(table)


def parse_size(text: str | None) -> int | None:
    """Bytes from what a person writes: 500MB, 2GB, 1.5g."""
    if text is None:
        return None
    met = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    size = float(met[1]) * UNITS[met[2]] if met is not None else 0.0
    if not 1 <= size < math.inf:
        raise UsageError(f"--memory {text}: not a size. Write for example 500MB or 2GB.")
    return int(size)


def parse_bands(text: str | None) -> slice | None:
    """A run of bands from FIRST:LAST, counted from 0, LAST left out."""
    if text is None:
        return None
    met = re.fullmatch(r"\s*(\d*):(\d*)\s*", text)
    if met is None:
        raise UsageError(f"--bands {text}: not a range of bands. Write for example 10:60.")
    return slice(*(int(end) if end else None for end in met.groups()))


def parse_dtype(text: str | None) -> str | None:
    """The name of a type of numbers that an image can have."""
    import numpy as np

    try:
        if text is None or np.dtype(text).kind in "uif":
            return text
    except (TypeError, ValueError, SyntaxError):  # NumPy reads more than names
        pass
    raise UsageError(f"--dtype {text}: not a numeric data type. Use uint8, int16, uint16, float32 or another.")
