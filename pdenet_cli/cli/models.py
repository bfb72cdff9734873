"""`pdenet models` and `pdenet models show`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_error, print_json, shown
from pdenet_cli.errors import ModelError

QUICK = (
    "from training's quick check on some pixels and bands; pdenet evaluate uses all of them and often finds a "
    "higher gain"
)

models = typer.Typer(help="List the installed models, or show one.", invoke_without_command=True)


@models.callback()
def _list(context: typer.Context, as_json: options.Json = False) -> None:
    """List the installed models, or show one."""
    if context.invoked_subcommand is not None:
        context.obj = as_json  # said before `show` it means the same
        return
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


@models.command()
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
        print_json(spec.to_dict())
        return
    table = Table(title=escape(model), show_header=False, box=None, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(spec):
        table.add_row(name, shown(text))
    out.print(table)
    if cubes := spec.scores.get("cubes"):
        out.print(_cubes(cubes))


def _lines(spec: Any) -> list[tuple[str, str]]:
    def listed(values: Any) -> str:
        return ", ".join(f"{name} {value}" for name, value in values.items())

    rows = [
        ("network", f"{spec.network}, x{spec.scale}: {listed(spec.config)}"),
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
    met = f"{100 * made.level:g}% on {len(made.scenes)} scenes with {made.samples} samples ({made.ensemble})"
    return f"{met}; proved for new scenes like these: {made.certified_at(made.level):.1%} (δ {made.delta:g})"


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
