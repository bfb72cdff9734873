"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdenet_cli.errors import UsageError


def _seed(number: int) -> int:
    # A maximum of the option itself would stand in every --help, with its 19 digits.
    if number >= 2**63:
        raise UsageError(f"--seed {number}: too large. Give less than 2^63.")
    return number


Scenes = Annotated[
    list[Path],
    typer.Argument(
        readable=False, help="Cubes: ENVI header or data file, TIFF, MAT, HDF5, netCDF, Zarr, folder of PNGs."
    ),
]
Variable = Annotated[
    str | None, typer.Option("--var", help="The variable or dataset that holds the pixels.", metavar="NAME")
]
Axes = Annotated[
    str | None,
    typer.Option(help="The order of its axes: b bands, r rows, c columns, e.g. rcb.", metavar="ORDER"),
]
Nodata = Annotated[
    float | None, typer.Option(help="The number that stands for nothing.", show_default="what the file says")
]
Range = Annotated[
    tuple[float, float] | None,
    typer.Option("--range", help="The file's numbers that mean 0 and 1.", metavar="LO HI"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace outputs that exist.")]
Seed = Annotated[int, typer.Option(help="Fixes every random draw.", min=0, callback=_seed)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]
Threads = Annotated[int | None, typer.Option(help="CPU cores to use.", show_default="all")]
Scale = Annotated[
    int | None, typer.Option(help="How many times finer the pixels become.", show_default="4", min=2)
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="A model by name or path.", show_default="the shipped one for --scale"),
]
Ensemble = Annotated[
    str | None,
    typer.Option(
        help="What the samples differ in: masks, or flips of the scene too.",
        metavar="masks|flips",
        show_default="as the model was calibrated, else masks",
    ),
]
Part = Annotated[
    str,
    typer.Option(
        help="What is compared: whole scenes; lower-right, the quarter that `pdenet train` never trains on, seen "
        "in its scene; lower-right-alone, the same quarter cut out beforehand."
    ),
]
KERNEL = "How the coarse cubes are made: bicubic, gaussian, or area (means of square pixels)."
Fwhm = Annotated[
    float | None,
    typer.Option(help="FWHM in coarse pixels of the Gaussian, which it implies, or of a lens before an area."),
]
NOISE = "Noise of the coarse cubes, a share of the range."
LEARNED = "as the model has learned"
OtherKernel = Annotated[str | None, typer.Option("--kernel", help=KERNEL, show_default=LEARNED)]
OtherNoise = Annotated[float | None, typer.Option("--noise", help=NOISE, show_default=LEARNED)]
SAMPLES = "Monte-Carlo draws of the network."
Samples = Annotated[int, typer.Option(help=SAMPLES, min=1)]
Memory = Annotated[
    str | None,
    typer.Option(help="Use at most this, e.g. 2GB.", show_default="half the free", metavar="SIZE"),
]
TileSide = Annotated[
    int | None,
    typer.Option("--tile", help="Longest side of a tile in input pixels.", show_default="what fits", min=1),
]
Halo = Annotated[
    int | None,
    typer.Option(
        help="Margin of a tile in input pixels; less than the network's reach is faster and less exact.",
        show_default="the network's reach",
        min=0,
    ),
]
BandRange = Annotated[
    str | None,
    typer.Option(
        "--bands",
        help="Only these bands, counted from 0 and without the last: 10:60 are fifty.",
        metavar="FIRST:LAST",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a broken-off run stopped.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what it would take: output, memory, tiles, time.")
]
Quicklook = Annotated[bool, typer.Option("--quicklook", help="Write a PNG beside every output.")]
