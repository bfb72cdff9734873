"""`pdenet info`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import out, print_error, print_json, shown, size_text
from pdenet_cli.cli.parsing import parse_bands, parse_range, parse_window
from pdenet_cli.errors import BatchError, PdenetError, UsageError

if TYPE_CHECKING:
    from pdenet_cli.scene.georeference import Georeference
    from pdenet_cli.scene.meta import CubeMeta
    from pdenet_cli.scene.picture import Picture
    from pdenet_cli.scene.survey import Survey
    from pdenet_cli.tools.describe import Description


def info(
    files: options.Scenes,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    quicklook: Annotated[
        Path | None, typer.Option(help="Write an RGB picture to this file; one cube at a time.", metavar="PNG")
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Describe a cube: size, bands, georeference, values, and the size of an x4 output."""
    from pdenet_cli.tools.batch import each
    from pdenet_cli.tools.describe import describe

    chosen = parse_bands(bands)
    if quicklook is not None and len(files) > 1:
        raise UsageError("--quicklook takes one cube at a time.")
    coloured = not as_json and out.is_terminal and bool(out.color_system)
    work = partial(
        describe,
        variable=var,
        axes=axes,
        nodata=nodata,
        value_range=parse_range(value_range),
        quicklook_path=quicklook,
        overwrite=overwrite,
        thumbnail=coloured,
        bands=chosen,
        window=parse_window(window),
    )
    described: list[dict[str, Any]] = []
    failed = 0
    for path, found in each(files, work):
        if isinstance(found, PdenetError):
            failed += 1
            described.append({"path": str(path), "error": str(found)})
            print_error(found if str(path) in str(found) else PdenetError(f"{path}: {found}"))
        else:
            described.append(found.to_dict())
            if not as_json:
                _show(found)
    if as_json:
        print_json(described if len(files) > 1 else described[0])
    if failed:
        raise BatchError(f"{failed} of {len(files)} files could not be read; see above.")


def _show(description: Description) -> None:
    meta, survey, radiometry = description.meta, description.survey, description.radiometry
    table = Table(title=escape(str(description.path)), show_header=False, box=None, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, text: str | None) -> None:
        if text:
            table.add_row(name, shown(text))

    row("size", f"{meta.bands} bands, {meta.rows} rows, {meta.columns} columns")
    order = {"<": "little-endian", ">": "big-endian"}.get(meta.dtype.byteorder, "")
    row("data type", f"{meta.dtype.name} {meta.interleave.upper()} {order}".strip())
    row("product", meta.product)
    row("variable", meta.variable)
    row("1-sigma", meta.sigma)
    row("wavelengths", _wavelengths(meta))
    for name, text in _odd_bands(meta, survey):
        row(name, text)
    row("georeference", _georeference(meta.georeference))
    row("values", _values(meta, survey))
    nodata = "none declared" if meta.nodata is None else f"{meta.nodata:g}"
    row("nodata", f"{nodata}; {survey.nodata_share:.2%} of the values are nodata or not finite")
    row("0..1 scaling", radiometry.reason)
    finer = meta.upscaled(4)
    size = f"{finer.bands} x {finer.rows} x {finer.columns}"
    row("x4 output", f"{size}, {size_text(finer.nbytes)} on disk")
    for note in (*meta.notes, *survey.notes):
        row("note", note)
    out.print(table)
    if description.thumbnail is not None and out.is_terminal:
        out.print(_thumbnail(description.thumbnail))


def _odd_bands(meta: CubeMeta, survey: Survey) -> Iterator[tuple[str, str]]:
    """What is said of bands that are marked bad, have no value or have one value only."""
    if meta.good_bands:
        yield "bad bands", f"{meta.good_bands.count(False)} of {meta.bands} marked bad"
    if empty := sum(map(math.isnan, survey.means)):
        yield "empty bands", f"{empty} of {meta.bands} have no valid value"
    if same := sum(number is not None for number in survey.constant):
        yield "constant bands", f"{same} of {meta.bands} have the same value everywhere"


def _values(meta: CubeMeta, survey: Survey) -> str:
    """The smallest and the largest value, of which bands and of which part of the scene."""
    part = "" if survey.looked_at == 1 else f" (from {survey.looked_at:.1%} of the scene)"
    usable = survey.usable_bands(meta)
    constant = [band for band in usable if survey.constant and survey.constant[band] is not None]
    words = ["vary"] if 0 < len(constant) < len(usable) else []
    words += ["are not bad"] if meta.good_bands and usable and not all(meta.good_bands) else []
    among = f" in the bands that {' and '.join(words)}" if words else ""
    return f"{survey.minimum:g} to {survey.maximum:g}{among}{part}"


def _wavelengths(meta: CubeMeta) -> str:
    if meta.wavelengths is None:
        return "none in the file"
    first, last = min(meta.wavelengths), max(meta.wavelengths)
    fwhm = f", fwhm {min(meta.fwhm):g} to {max(meta.fwhm):g}" if meta.fwhm else ""
    return f"{first:g} to {last:g} {meta.wavelength_units or '(no unit)'}{fwhm}"


def _georeference(where: Georeference) -> str:
    system = where.crs or "no coordinate system"
    name = system.split('"')[1] if '"' in system else system  # WKT begins with its name, in quotes
    if where.transform is None:
        points = f"{len(where.points)} ground control points" if where.points else ""
        unplaced = f"{name}, but no grid" if where.crs else "none"
        return points or ("rational polynomial coefficients" if where.rpc else unplaced)
    x0, xc, xr, y0, yc, yr = where.transform
    size = f"{math.hypot(xc, yc):.6g} x {math.hypot(xr, yr):.6g}"
    turned = ", rotated" if xr or yc else ""
    return f"{name}, pixels {size}{turned}, upper-left corner {x0:.10g}, {y0:.10g}"


def _thumbnail(picture: Picture, columns: int = 48) -> str:
    """A picture in half-block characters: each character is two pixels, one above the other."""
    step = max(1, -(-picture.shape[1] // columns))
    small = picture[::step, ::step]
    small = small[: len(small) // 2 * 2]
    lines = []
    for top, bottom in zip(small[::2], small[1::2], strict=True):
        cells = [
            f"[rgb({a[0]},{a[1]},{a[2]}) on rgb({b[0]},{b[1]},{b[2]})]▀[/]"
            for a, b in zip(top, bottom, strict=True)
        ]
        lines.append("".join(cells))
    return "\n".join(lines)
