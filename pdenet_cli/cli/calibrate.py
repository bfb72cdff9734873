"""`pdenet calibrate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_json, say, stop_if_failed, time_text
from pdenet_cli.cli.parsing import settings_of
from pdenet_cli.cli.progress import shown_stages
from pdenet_cli.cli.spreading import Spreading, spread_memory

if TYPE_CHECKING:
    from pdenet_cli.tools.calibrate import Calibrated


def calibrate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model's name or its file.")],
    scenes: Annotated[list[Path], typer.Argument(readable=False, help="Cubes that the model was not trained on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibrated model.", metavar="MODEL")],
    level: Annotated[float, typer.Option(help="Fraction of true values that the intervals should contain.")] = 0.9,
    delta: Annotated[float, typer.Option(help="Accepted probability that the proved coverage is wrong.")] = 0.1,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Widen until the level is proved for new scenes, not only met here.",
        ),
    ] = False,
    learn_errors: Annotated[
        bool,
        typer.Option(
            "--learn-errors",
            help="First learn how large errors are: from whole scenes that the model was not trained on, "
            "or beside the held-out quarters of its own (--part lower-right).",
        ),
    ] = False,
    part: options.ComparedPart = "whole",
    samples: Annotated[
        int,
        typer.Option(
            help=f"{options.SAMPLES} Use the calibrated model with the same number.",
            min=1,
            max=options.MOST_SAMPLES,
        ),
    ] = 8,
    ensemble: options.Ensemble = None,
    mixtures: options.MixtureCount = None,
    kernel: options.OtherKernel = None,
    fwhm: options.Fwhm = None,
    noise: options.OtherNoise = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: options.WorkerCount = None,
    cluster: options.ClusterAddress = None,
    memory: options.Memory = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    progress: options.Progress = "auto",
    as_json: options.Json = False,
) -> None:
    """Calibrate a model's intervals on scenes whose truth is known, and write the calibrated model.

    Each scene is degraded like the training data, or as --kernel, --fwhm and
    --noise say, and then sharpened. Use scenes, or parts of scenes, that the
    model has not seen and that resemble those it will be used on.
    """
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.system import use_threads
    from pdenet_cli.tools.calibrate import calibrate as calibrate_model
    from pdenet_cli.tools.truths import TruthSettings

    use_threads(threads)
    settings = spread_memory(settings_of(TruthSettings, context), workers)
    spreading = Spreading(workers, cluster, threads)
    with spreading.engine() as engine, shown_stages((2 if learn_errors else 1) * len(scenes)) as watch:
        done = calibrate_model(
            model,
            scenes,
            output,
            settings,
            samples=samples,
            seed=seed,
            device=device,
            delta=delta,
            certify=certify,
            learn=learn_errors,
            overwrite=overwrite,
            watch=watch,
            say=say,
            engine=engine,
        )
    if as_json:
        print_json(done.to_dict())
    else:
        _show(done)
    stop_if_failed(done.failed, len(scenes), "; the model was calibrated on the others")


def _show(done: Calibrated) -> None:
    from pdenet_cli.uncertainty.spread import STRATA

    made = done.calibration
    table = Table(title=f"{100 * made.level:g} % intervals", title_justify="left", box=None, pad_edge=False)
    table.add_column("scene", overflow="fold")
    for head in ("covered\n%", "covered if held out\n%", "mean width\n0..1"):
        table.add_column(head, justify="right")
    for scene in made.scenes:
        table.add_row(escape(scene["name"]), *_scene_texts(scene))
    if len(made.scenes) > 1:
        table.add_row("mean", *_scene_texts(_means(made.scenes)), style="bold")
    out.print(table)
    out.print()
    tables = Table("level", *(f"{name} {what}" for name in STRATA for what in ("factor", "proved")), box=None)
    for i, level in enumerate(made.levels):
        pairs = zip(made.factors, made.certified, strict=True)
        cells = (text for factors, proved in pairs for text in (f"{factors[i]:.3g}", f"{100 * proved[i]:.1f} %"))
        tables.add_row(f"{100 * level:g} %", *cells, style="bold" if level == made.level else "")
    out.print(tables)
    out.print(f"\n{escape(made.guarantee)}")
    out.print(f"[dim]{escape(str(done.output))}; {made.samples} samples, {time_text(done.seconds)}[/]")


def _scene_texts(scene: Mapping[str, Any]) -> Iterator[str]:
    """The cells of a scene: how much was covered, how much if it was held out, and the width."""
    for name in ("coverage", "unseen"):
        yield "–" if scene[name] is None else f"{100 * scene[name]:.1f}"
    yield f"{scene['width']:.4f}"


def _means(scenes: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each number over the scenes; None where one of them lacks it."""
    columns = {name: [scene[name] for scene in scenes] for name in ("coverage", "unseen", "width")}
    return {name: None if None in values else fmean(values) for name, values in columns.items()}
