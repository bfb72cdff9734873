"""`pdenet train`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from pdenet_cli.cli import options
from pdenet_cli.cli.console import INTERRUPTED, err, out, print_json, shown
from pdenet_cli.cli.parsing import settings_of

if TYPE_CHECKING:
    from pdenet_cli.tools.train import Event
    from pdenet_cli.training.loop import ValidationResult
    from pdenet_cli.training.run import Trained
    from pdenet_cli.training.trainer import StepResult


def train(
    context: typer.Context,
    data: Annotated[
        list[Path],
        typer.Argument(readable=False, help="Cubes, or folders with cubes at any depth, in any supported format."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model to write (.safetensors).")],
    validate: Annotated[
        list[Path] | None,
        typer.Option(
            help="A whole cube, or a folder of them, to validate on; it is not trained on. May be repeated.",
            readable=False,
        ),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(
            help="What is kept out of the cubes to train on, for validation: quarter (their lower right) or none.",
            metavar="quarter|none",
            show_default="quarter; none with --validate",
        ),
    ] = None,
    scale: Annotated[int, typer.Option(help="How many times finer the pixels become.", min=2)] = 4,
    network: Annotated[
        str | None,
        typer.Option(
            help="pdenet, template, dropout, ensemble, nas, 3dfcnn, 3dgan, sspsr, mcnet, ercsr.",
            metavar="NAME",
            show_default="pdenet",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="paper, tiny or (some networks) small; change fields like this: small,stages=3,width=24.",
            metavar="NAME",
            show_default="small, else paper; paper with --recipe paper",
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="fast (hours on a CPU), general (as the shipped x4 model) or paper (the published training, step "
            "by step; use --validate, or a quarter is held out). Change fields like this: fast,zoom=3.",
            metavar="NAME",
        ),
    ] = "fast",
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Length of the run in minutes, validation included. Not together with --steps.",
            show_default="60; for paper the published number of epochs",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Length of the run in steps.", show_default="the published number of epochs for paper"),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Patches per step, over all processes.")] = None,
    patch: Annotated[int | None, typer.Option(help="Side of a patch in high-resolution pixels.")] = None,
    patch_bands: Annotated[
        int | None, typer.Option(help="Adjacent bands per patch, for networks that take any number of bands.")
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Peak learning rate.", show_default="the recipe's; a quarter of it with --init"),
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="Start from the weights of this model.", metavar="MODEL")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help=options.KERNEL, show_default="bicubic")] = None,
    fwhm: options.Fwhm = None,
    noise: Annotated[float, typer.Option(help=options.NOISE)] = 0.0,
    licence: Annotated[str, typer.Option(help="Licence of the model, stored in its header.")] = "not stated",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint beside the model, if there is one.")
    ] = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: Annotated[str, typer.Option(help="float32; on a GPU also bf16 or fp16.")] = "float32",
    threads: options.Threads = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    validate_window: Annotated[
        tuple[int, int, int, int] | None,
        typer.Option(help="The same for the cubes of --validate.", metavar="ROW COLUMN ROWS COLUMNS"),
    ] = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on your cubes, in any format; stop with Ctrl-C and continue with --resume.

    A quarter of every cube is held out for validation, or --validate names cubes.
    The best model is written to OUTPUT, its last state, log and curves beside it.
    On several GPUs: torchrun --nproc-per-node N -m pdenet_cli train ...
    """
    started = time.monotonic()
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.degradation import Degradation
    from pdenet_cli.tools.train import TrainingPlan
    from pdenet_cli.tools.train import train as train_model

    plan = settings_of(
        TrainingPlan,
        context,
        data=tuple(data),
        validate=tuple(validate or ()),
        degradation=Degradation(scale).changed(kernel, fwhm, noise),
        changes=dict(batch=batch, patch=patch, bands=patch_bands, lr=lr),
    )
    with _Watch() as watch:
        trained = train_model(
            plan,
            output,
            resume=resume,
            overwrite=overwrite,
            watch=watch,
            stop=_stop_on_signal(),
            started=started,
        )
    if trained.first:
        if as_json:
            print_json(trained.to_dict())
        else:
            _conclude(trained)
    if not trained.finished:
        raise typer.Exit(INTERRUPTED)


def _stop_on_signal() -> Callable[[], bool]:
    """A function that is true after Ctrl-C or SIGTERM; a second signal ends at once, without saving."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: bool(asked)


class _Watch:
    """Shows the progress of a run: a bar on a terminal, and a line for every validation."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
        self.progress = Progress(*columns, console=err, disable=not err.is_terminal, transient=True)
        self.task = self.progress.add_task("reading cubes", total=1.0)
        self.gain, self.rate, self.last = "", 0.0, 0.0

    def __enter__(self) -> _Watch:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        from pdenet_cli.tools.train import Note
        from pdenet_cli.training.loop import ValidationResult

        if isinstance(event, Note):
            err.print(shown(event.text))
        elif isinstance(event, ValidationResult):
            self._validated(event)
        else:
            self._stepped(event)

    def _validated(self, event: ValidationResult) -> None:
        scores = event.scores
        rise = scores["psnr"] - scores["bicubic_psnr"]
        self.gain = f"{rise:+.2f} dB"
        single = f", one draw {scores['single_psnr']:.2f}" if scores["draws"] else ""
        self.last = time.monotonic()
        err.print(
            f"{_clock(event.seconds)}  step {event.step:,}: {scores['psnr']:.2f} dB{single}; "
            f"bicubic {scores['bicubic_psnr']:.2f} ({rise:+.2f}); "
            f"SAM {scores['sam']:.2f}°, bicubic {scores['bicubic_sam']:.2f}°"
        )

    def _stepped(self, event: StepResult) -> None:
        now = time.monotonic()
        if self.last and now > self.last:
            self.rate = 0.9 * (self.rate or 1 / (now - self.last)) + 0.1 / (now - self.last)
        self.last = now
        left = event.seconds * (1 / event.done - 1) if event.done > 0.01 else None
        text = f"step {event.step:,}  loss {event.loss:.4f}  {self.gain}  {self.rate:.1f} it/s"
        self.progress.update(
            self.task,
            completed=event.done,
            description=text + (f"  {_clock(left)} left" if left is not None else ""),
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _conclude(trained: Trained) -> None:
    files, spec = trained.files, trained.spec
    if not trained.finished:
        err.print(
            f"Stopped. The state is in {escape(str(files.last))}; continue with the same command and --resume."
        )
    elif spec.gain is not None:
        steps = f"{spec.steps:,} steps, {spec.minutes:.1f} minutes"
        out.print(f"{escape(str(files.model))}: {spec.gain:+.2f} dB over bicubic after {steps}")
        if trained.before is not None and trained.before > spec.gain:
            before = f"The model that it started from had {trained.before:+.2f} dB here"
            err.print(f"[yellow]{before}: train longer, or with a lower --lr.[/]")
