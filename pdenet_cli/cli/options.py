"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Scenes = Annotated[
    list[Path],
    typer.Argument(help="Cubes: ENVI header or data file, TIFF, MAT, HDF5, netCDF, Zarr, folder of PNGs."),
]
Variable = Annotated[
    str | None, typer.Option("--var", help="The variable or dataset that holds the pixels.", metavar="NAME")
]
Axes = Annotated[
    str | None,
    typer.Option(help="The order of its axes: b bands, r rows, c columns, e.g. rcb.", metavar="ORDER"),
]
Range = Annotated[
    tuple[float, float] | None,
    typer.Option("--range", help="The file's numbers that mean 0 and 1.", metavar="LO HI"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist.")]
