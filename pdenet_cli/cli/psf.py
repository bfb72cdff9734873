"""`pdenet psf`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_json, print_table
from pdenet_cli.cli.parsing import parse_bands, parse_range, parse_window
from pdenet_cli.errors import UsageError

if TYPE_CHECKING:
    from pdenet_cli.point_spread.widths import Width
    from pdenet_cli.tools.psf import PointSpreadReport


def psf(
    scene: Annotated[Path, typer.Argument(readable=False, help="A cube.")],
    picture: Annotated[
        Path | None,
        typer.Option(help="Write a picture of the edges and the profiles they fold into.", metavar="PNG"),
    ] = None,
    overwrite: options.Overwrite = False,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    as_json: options.Json = False,
) -> None:
    """Measure how sharp the pixels of a cube are, by the straight edges in it.

    Prints the full width at half maximum of the point spread, in pixels of the
    cube, along track (down the columns) and across track (along the rows), with
    a bootstrap interval, for VNIR and SWIR or thirds of the bands. It is that
    of the Gaussian whose edge is most like the scene's: square pixels without a
    lens measure 0.75, bicubic downsampling 0.84. What is soft on the ground
    makes it larger, never smaller. Where straight edges are too few or
    disagree, it ends with exit code 2.
    """
    from pdenet_cli.tools.psf import point_spread_report

    report = point_spread_report(
        scene,
        variable=var,
        axes=axes,
        nodata=nodata,
        value_range=parse_range(value_range),
        bands=parse_bands(bands),
        window=parse_window(window),
        picture=picture,
        overwrite=overwrite,
    )
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    if picture is not None and not as_json:
        out.print(escape(str(picture)))
    if not report.found.spread.sure:
        raise UsageError(f"{scene}: {report.found.refusal}")


def _show(report: PointSpreadReport) -> None:
    found = report.found
    table = Table(title=escape(report.path.name), title_justify="left", box=None, pad_edge=False)
    table.add_column("bands")
    for name in ("along track", "across track"):
        table.add_column(f"{name}\nFWHM, pixels", justify="right")
        table.add_column("interval", justify="right")
        table.add_column("edges", justify="right")
    for name, spread in {"all": found.spread, **found.groups}.items():
        table.add_row(name, *_cells(spread.along), *_cells(spread.across), style="bold" if name == "all" else "")
    print_table(table)
    if found.spread.sure:
        out.print(f"Use it as --psf {found.psf} (or --psf auto).")
    if found.spread.sure and len(found.spread.sure) == 1:
        out.print("[dim]Only one direction is sure; the other is taken to be the same.[/]")
    if report.spectrum is not None:
        out.print(f"[dim]A check, no measurement: its spectrum of power looks like {report.spectrum:.2f}.[/]")
    if report.sensor is not None:
        out.print(f"[dim]Published: {escape(report.sensor)}.[/]")


def _cells(width: Width | None) -> tuple[str, str, str]:
    if width is None:
        return "-", "", ""
    mark = "" if width.sure else " ?"
    return f"{width.fwhm:.2f}{mark}", f"{width.low:.2f} to {width.high:.2f}", f"{width.edges}"
