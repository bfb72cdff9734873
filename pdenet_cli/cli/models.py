"""`pdenet models`: list, show, import and export."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_error, print_json, shown
from pdenet_cli.cli.parsing import parse_means
from pdenet_cli.cli.words import Command
from pdenet_cli.errors import ModelError

QUICK = (
    "from training's quick check on some pixels and bands; pdenet evaluate uses all of them and often finds a "
    "higher gain"
)

models = typer.Typer(help="List the installed models, or show one.", invoke_without_command=True)


@models.callback()
def _list(context: typer.Context, as_json: options.Json = False) -> None:
    """List the installed models, or show one."""
    context.obj = as_json  # said before `show` it means the same
    if context.invoked_subcommand is None:
        _print_models(as_json)


@models.command("list", cls=Command)
def list_(context: typer.Context, as_json: options.Json = False) -> None:
    """List the installed models."""
    _print_models(as_json or bool(context.obj))


def _print_models(as_json: bool) -> None:
    from pdenet_cli.models.catalogue import available_models
    from pdenet_cli.models.weights_file import read_header

    headers = []
    for path in available_models().values():
        try:
            headers.append(read_header(path))
        except ModelError as error:
            print_error(error)
    if as_json:
        print_json({header.path.stem: header.spec.to_dict() for header in headers})
        return
    if not headers:
        out.print("No model is installed. Train one: pdenet train CUBES -o model.safetensors")
        return
    table = Table("name", "scale", "network", "size", "over bicubic", box=None)
    for header in headers:
        spec = header.spec
        gain = "" if spec.gain is None else f"{spec.gain:+.2f} dB"
        table.add_row(
            escape(header.path.stem), f"x{spec.scale}", spec.network, f"{header.nbytes / 1e6:.1f} MB", gain
        )
    out.print(table)


@models.command(cls=Command)
def show(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model's name or its file.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw its learned probabilities to this file.", metavar="PNG")
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Show a model's description: network, data, recipe, scores, licence."""
    from pdenet_cli.models.catalogue import find_model
    from pdenet_cli.models.weights_file import read_header

    spec = read_header(find_model(model)).spec
    if plot is not None:
        from pdenet_cli.pages.chances import plot_chances

        plot_chances(model, plot, overwrite)
    if as_json or context.obj:
        from pdenet_cli.models.cost import cost_of

        print_json(spec.to_dict() | {"cost": asdict(cost_of(spec.network, dict(spec.config)))})
        return
    table = Table(title=escape(model), show_header=False, box=None, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(spec):
        table.add_row(name, shown(text))
    out.print(table)
    if cubes := spec.scores.get("cubes"):
        out.print(_cubes(cubes))


@models.command("import", cls=Command)
def import_(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint of the published code of PDE-Net, MCNet, ERCSR or SSPSR.", metavar="PTH"
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model to write (.safetensors).")],
    means: Annotated[
        str | None,
        typer.Option(
            help="What MCNet or ERCSR subtract from each band, which their files do not hold: cave, harvard (the "
            "numbers in their code), or one number for each band with commas between.",
            metavar="NAME",
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            help="Bands that neighbouring groups of SSPSR share, which its files do not hold.",
            show_default="2 for groups of 8 bands, else 1",
            min=0,
        ),
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the model, stored in its header.")] = "not stated",
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Make a model of a published checkpoint; nothing in the file is run."""
    from pdenet_cli.tools.checkpoints import import_checkpoint

    fields = {} if overlap is None else {"overlap": overlap}
    spec = import_checkpoint(
        checkpoint, output, means=parse_means(means), fields=fields, licence=licence, overwrite=overwrite
    )
    if as_json:
        print_json(spec.to_dict())
    else:
        out.print(f"{escape(str(output))}  [dim]{spec.network}, x{spec.scale}[/]")


@models.command("export", cls=Command)
def export(
    model: Annotated[str, typer.Argument(help="A model's name or its file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The checkpoint to write (.pth).")],
    overwrite: options.Overwrite = False,
) -> None:
    """Write a model as a checkpoint that the published code of its system loads."""
    from pdenet_cli.tools.checkpoints import export_checkpoint

    export_checkpoint(model, output, overwrite=overwrite)
    out.print(escape(str(output)))


def _lines(spec: Any) -> list[tuple[str, str]]:
    def listed(values: Any) -> str:
        return ", ".join(f"{name} {value}" for name, value in values.items())

    rows = [
        ("network", f"{spec.network}, x{spec.scale}: {listed(spec.config)}"),
        ("size", _size(spec)),
        ("degradation", listed(spec.degradation)),
        ("recipe", listed(spec.recipe)),
        ("trained", f"{spec.steps:,} steps, {spec.minutes:g} minutes, seed {spec.seed}"),
        *(("started from", text) for text in _ancestors(spec.began_with)),
        ("data", ", ".join(str(cube.get("name", "?")) for cube in spec.data)),
    ]
    if spec.gain is not None:
        draws = spec.scores["draws"]
        how = f"mean of {draws} draws" if draws else "every mask at 1"
        score = f"{spec.scores['psnr']:.2f} dB, {spec.gain:+.2f} over bicubic ({how})"
        rows.append(("score", f"{score}; {QUICK}"))
    rows.append(("errors", _errors(spec)))
    rows.append(("intervals", _intervals(spec)))
    return [*rows, ("licence", spec.licence), ("pdenet", spec.version)]


def _size(spec: Any) -> str:
    from pdenet_cli.models.cost import cost_of

    cost = cost_of(spec.network, spec.config)
    pixels = f"{cost.side} x {cost.side} pixels of {cost.bands} bands"
    counted = f"{cost.multiply_adds / 1e9:,.2f} G multiply-adds for {pixels} and one sample"
    return f"{cost.parameters:,} parameters, {counted} ({cost.as_published / 1e9:,.2f} G as papers count them)"


def _ancestors(model: Any) -> Iterator[str]:
    """The model that a run began with, the one that that began with, and so on."""
    while isinstance(model, dict) and model:
        trained = "{steps} steps, {minutes} minutes, seed {seed}"
        yield ("{name}, x{scale}: " + trained).format_map(defaultdict(lambda: "?", model))
        model = model.get("began_with")


def _intervals(spec: Any) -> str:
    from pdenet_cli.uncertainty.calibration import Calibration

    made = Calibration.of(spec)
    if made is None:
        return "not calibrated"
    coverage = f"{100 * made.level:g}% on {len(made.scenes)} scenes with {made.samples} samples ({made.ensemble})"
    return f"{coverage}; proved for new scenes like these: {made.certified_at(made.level):.1%} (δ {made.delta:g})"


def _errors(spec: Any) -> str:
    scenes = len(spec.error_lessons())
    return f"learned from {scenes} scene{'s' if scenes > 1 else ''}" if scenes else "not learned"


def _cubes(cubes: Any) -> Table:
    table = Table("held-out part of", "dB", "bicubic", "", "SAM", "bicubic", box=None)
    for name, score in cubes.items():
        decibels = score["psnr"], score["bicubic_psnr"], score["psnr"] - score["bicubic_psnr"]
        angles = score["sam"], score["bicubic_sam"]
        table.add_row(
            escape(name),
            *(f"{d:.2f}" for d in decibels[:2]),
            f"{decibels[2]:+.2f}",
            *(f"{a:.2f}°" for a in angles),
        )
    return table
