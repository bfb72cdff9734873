"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdenet_cli.cli.console import use_progress
from pdenet_cli.errors import UsageError


def _check_seed(number: int) -> int:
    # As a `max` of the option, its 19 digits would be in every --help.
    if number >= 2**63:
        raise UsageError(f"--seed {number}: too large. Use a number below 2^63.")
    return number


def _use_progress(kind: str) -> str:
    use_progress(kind)
    return kind


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
    typer.Option(help="Order of the axes: b bands, r rows, c columns, e.g. rcb.", metavar="ORDER"),
]
Nodata = Annotated[float | None, typer.Option(help="The nodata value.", show_default="as declared in the file")]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        help="The file values to be read as 0 and 1: two numbers; dtype, from 0 to the largest integer of the "
        "file's type; or max, from 0 to the largest value of each scene.",
        metavar="LO HI|dtype|max",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Progress = Annotated[
    str,
    typer.Option(
        help="auto: a bar on a terminal, a line now and then in a log; json: lines of JSON on standard error, for "
        "programs; none.",
        metavar="auto|json|none",
        callback=_use_progress,
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing outputs.")]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.", min=0, callback=_check_seed)]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Spread the work over so many processes of this machine, each with its share of --threads and "
        "--memory. Needs pip install '.[cluster]'.",
        min=1,
        max=999,
        show_default="this process alone",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        help="Spread the work over the workers of a dask scheduler, on any machines that see the same folders. "
        "Several machines write one scene only as Zarr.",
        metavar="tcp://HOST:PORT",
    ),
]
PartOfAll = Annotated[
    str | None,
    typer.Option(
        "--part",
        help="Do only the I-th of N parts, for arrays of batch jobs: of the scenes if there are N or more, else "
        "of the tiles of each, which --finish then completes. A part that is run again goes on.",
        metavar="I/N",
    ),
]
Finish = Annotated[bool, typer.Option("--finish", help="Complete the outputs of which every --part is done.")]
SummaryFile = Annotated[
    Path | None,
    typer.Option(
        "--summary",
        help="Write what became of each scene: done, skipped or failed and why (.csv, .json, .txt).",
        metavar="FILE",
    ),
]
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
        help="How the samples differ: masks only, or also flips and rotations of the scene.",
        metavar="masks|flips",
        show_default="as the model was calibrated, else masks",
    ),
]
MixtureCount = Annotated[
    int | None,
    typer.Option(
        "--mixtures",
        help="How many mixtures of bands the network sees of a cube with at least three times as many bands; the "
        "detail of all bands follows from theirs. 0: it sees every band, which takes many times as long.",
        min=0,
        max=999,
        show_default="as the model was calibrated, else 16",
    ),
]
ComparedPart = Annotated[
    str,
    typer.Option(
        help="What to compare: whole (the whole scene), lower-right (the quarter that pdenet train never trains "
        "on, sharpened within its scene) or lower-right-alone (that quarter, cut out first)."
    ),
]
PointSpread = Annotated[
    str | None,
    typer.Option(
        "--psf",
        help="How sharp the pixels of the scene are, for models that undo any point spread: full width at half "
        "maximum in pixels (1.4), the same along and across track (1.4x1.8: down columns, along rows), square, "
        "bicubic, or auto: as pdenet psf measures it in each scene.",
        metavar="FWHM",
        show_default="bicubic",
    ),
]
SensorName = Annotated[
    str | None,
    typer.Option("--sensor", help="Instead of --psf: a sensor whose measured width is known (PRISMA, Tanager)."),
]
FinerSpread = Annotated[
    float | None,
    typer.Option(
        "--finer-psf",
        help="How sharp the finer pixels are that errors, intervals and risk are of: full width at half maximum "
        "of their point spread, in finer pixels. Errors against a sharper truth are larger.",
        metavar="FWHM",
        min=0,
        max=3,
        show_default="the middle of the scenes that the model learned its errors from",
    ),
]
KERNEL = "How cubes are degraded: bicubic, gaussian or area (means of square pixels)."
Fwhm = Annotated[
    float | None,
    typer.Option(
        help="FWHM of the Gaussian, in coarse pixels (implies --kernel gaussian). With an area kernel: FWHM of "
        "the lens in front of the pixels."
    ),
]
NOISE = "Standard deviation of the noise added to the coarse cubes, as a fraction of the 0..1 range."
LEARNED = "as in the model's training"
OtherKernel = Annotated[str | None, typer.Option("--kernel", help=KERNEL, show_default=LEARNED)]
OtherNoise = Annotated[float | None, typer.Option("--noise", help=NOISE, show_default=LEARNED)]
SAMPLES = "Monte-Carlo draws of the network."
MOST_SAMPLES = 9999
Samples = Annotated[int, typer.Option(help=SAMPLES, min=1, max=MOST_SAMPLES)]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory to use at most, e.g. 2GB.", show_default="half of what is free", metavar="SIZE"),
]
TileSide = Annotated[
    int | None,
    typer.Option("--tile", help="Longest side of a tile in input pixels.", show_default="what fits", min=1),
]
Halo = Annotated[
    int | None,
    typer.Option(
        help="Margin of a tile in input pixels; less than the network's receptive field is faster but less exact.",
        show_default="as the network needs",
        min=0,
    ),
]
BandRange = Annotated[
    str | None,
    typer.Option(
        "--bands",
        help="Use only these bands: numbers from 0, LAST excluded (10:60 is fifty bands), wavelengths "
        "(450nm:900nm; 650nm is the nearest band), or a list (0:20,30,1.5um:2um). Each is used once, in the "
        "file's order. The network takes bands on both sides of a gap for neighbours.",
        metavar="FIRST:LAST,...",
    ),
]
WINDOW = "of each scene, the rest of which is not read: its upper-left pixel, counted from 0, and its size."
ScenePart = Annotated[
    tuple[int, int, int, int] | None,
    typer.Option("--window", help=f"Use only this part {WINDOW}", metavar="ROW COLUMN ROWS COLUMNS"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only estimate outputs, disk space, memory, tiles and time; write nothing."),
]
Quicklook = Annotated[
    bool,
    typer.Option("--quicklook", help="Also write a PNG: input, bicubic, result and a map of how far to trust it."),
]
PageSize = Annotated[
    str,
    typer.Option(
        "--page-size",
        help="About how large the page may be. A larger one shows more pixels and bands of a large scene.",
        metavar="SIZE",
    ),
]
PAGE_SIZE = "15MB"
PerBand = Annotated[
    bool, typer.Option("--per-band", help="Write maps for each band too, each as large as the result in float32.")
]
Compression = Annotated[
    str | None,
    typer.Option(
        "--compress",
        help="Compress the cubes when they are complete: deflate, zstd or lzw in .tif (tiles and overviews, a "
        "Cloud-Optimised GeoTIFF), deflate in .h5, .nc and .mat, zstd in .zarr.",
        metavar="METHOD",
    ),
]
Style = Annotated[
    bool,
    typer.Option(
        "--style/--no-style", help="Write a .qml beside every ENVI and TIFF output, so that QGIS opens it right."
    ),
]
