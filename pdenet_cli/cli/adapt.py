"""`pdenet adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from pdenet_cli.cli import options
from pdenet_cli.cli.console import err, out, print_json, say, time_text
from pdenet_cli.cli.parsing import settings_of
from pdenet_cli.cli.progress import shown_stages
from pdenet_cli.errors import UsageError

if TYPE_CHECKING:
    from pdenet_cli.tools.train import Event


def adapt(
    context: typer.Context,
    scene: Annotated[Path, typer.Argument(readable=False, help="A cube.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The adapted model.", metavar="MODEL")],
    minutes: Annotated[float, typer.Option(help="How long to train; scoring and calibration come after.")] = 10.0,
    model: options.ModelName = None,
    scale: options.Scale = None,
    psf: Annotated[
        str,
        typer.Option(
            help="How sharp the pixels of the scene are: FWHM in pixels (1.4 or 1.4x1.8), square, bicubic, or "
            "auto: as pdenet psf measures it.",
            metavar="FWHM",
        ),
    ] = "auto",
    sensor: options.SensorName = None,
    samples: Annotated[
        int,
        typer.Option(
            help=f"{options.SAMPLES} Use the model with the same number.", min=2, max=options.MOST_SAMPLES
        ),
    ] = 8,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    memory: options.Memory = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    as_json: options.Json = False,
) -> None:
    """Fit a model to one scene, without a truth, and write the fitted model.

    The scene is degraded once more with its own point spread; a short training
    from the model's weights learns to undo that. The lower right quarter is
    held out: the new weights are kept only where they gain there, else the old
    ones are written; intervals are calibrated there. It rests on the
    assumption that the scene looks alike at two neighbouring scales.
    """
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.scene.sensors import sensor_named
    from pdenet_cli.system import use_threads
    from pdenet_cli.tools.adapt import adapt as adapt_model
    from pdenet_cli.tools.adapt import words
    from pdenet_cli.tools.truths import TruthSettings

    use_threads(threads)
    if sensor is not None and psf != "auto":
        raise UsageError("--psf and --sensor both say how sharp the pixels are; give one of them.")
    width = psf if sensor is None else f"{sensor_named(sensor).fwhm:g}"
    settings = settings_of(TruthSettings, context, psf=width)
    with shown_stages(3) as watch:
        done = adapt_model(
            scene,
            output,
            minutes,
            settings,
            model=model,
            scale=scale,
            samples=samples,
            seed=seed,
            device=device,
            threads=threads,
            overwrite=overwrite,
            watch=watch,
            say=say,
            tell=_told,
        )
    if as_json:
        print_json(done.to_dict())
        return
    for sentence in words(done):
        out.print(escape(sentence))
    out.print(f"[dim]{escape(str(done.output))}; {time_text(done.seconds)}[/]")


def _told(event: Event) -> None:
    """A line for each validation."""
    from pdenet_cli.training.loop import ValidationResult

    if isinstance(event, ValidationResult):
        gain = event.scores["psnr"] - event.scores["bicubic_psnr"]
        err.print(f"[dim]{time_text(event.seconds)}, step {event.step:,}: {gain:+.2f} dB over bicubic[/]")
