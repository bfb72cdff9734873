"""`pdenet upscale` and `pdenet uncertainty`: one road, with other outputs at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdenet_cli.cli import options
from pdenet_cli.cli.sharpening import Draws, settings_of, sharpen


def upscale(
    context: typer.Context,
    scenes: options.Scenes,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The cube to write, in the format of its suffix; a name without one is a folder for SCENE_x4.",
        ),
    ],
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: options.Samples = 8,
    with_uncertainty: Annotated[
        bool,
        typer.Option(
            "--with-uncertainty",
            help="Write the maps std, share and, if the model is calibrated, interval too; pdenet uncertainty "
            "makes other maps and a page.",
        ),
    ] = False,
    seed: options.Seed = 0,
    ensemble: options.Ensemble = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    memory: options.Memory = None,
    tile: options.TileSide = None,
    halo: options.Halo = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    dtype: Annotated[
        str | None, typer.Option(help="Type of the output numbers, e.g. float32.", show_default="the input's")
    ] = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    quicklook: options.Quicklook = False,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Make cubes 4 times (or --scale) finer, still georeferenced, in the input's format and numbers.

    A report (JSON) beside each output says what was done with what.
    """
    draws = Draws(scale, model, samples, seed, ensemble, device, threads)
    settings = settings_of(context, maps=None if with_uncertainty else ())
    sharpen(scenes, output, draws, settings, dry_run, as_json)


def uncertainty(
    context: typer.Context,
    scenes: options.Scenes,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the maps.")],
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="std, share, interval, cv, angle, consistency, risk (with --tolerance); may be given several "
            "times.",
            show_default="std, share, and interval if the model is calibrated",
            metavar="MAP",
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="Share of true values that intervals are to hold, in the mean over scenes.",
            show_default="what the model is calibrated for",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Error that is still fine, in the file's numbers; adds the map risk.", min=0),
    ] = None,
    levels: Annotated[int, typer.Option(help="Grey steps of the map share.", min=2)] = 256,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Write a page (HTML), a picture and the sharpened cube too.")
    ] = True,
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: Annotated[
        int,
        typer.Option(help=f"{options.SAMPLES} 2 or more, but for the map consistency.", min=1),
    ] = 8,
    seed: options.Seed = 0,
    ensemble: options.Ensemble = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    memory: options.Memory = None,
    tile: options.TileSide = None,
    halo: options.Halo = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    quicklook: options.Quicklook = False,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Map how far each pixel of the finer cube can be trusted, per band and merged over the bands.

    std: standard deviation of the samples, in the file's numbers
    share: samples whose grey level is not the mean's, percent; the paper's map
    interval: two cubes; the share --level of true values lies between them
    cv: std in percent of the mean
    angle: between the samples' spectra and their mean's, degrees; only merged
    consistency: how far the finer cube, made coarse again, is from the input
    risk: probability of an error beyond --tolerance, percent

    interval and risk need a model that pdenet calibrate has seen. Files are
    named SCENE_MAP and SCENE_MAP_merged; a report (JSON) says what they show.
    """
    from pdenet_cli.summaries import Question

    draws = Draws(scale, model, samples, seed, ensemble, device, threads)
    question = Question(levels, level, tolerance)
    wishes = tuple(maps) if maps else None
    settings = settings_of(context, cube=False, maps=wishes, question=question, page=page)
    sharpen(scenes, output, draws, settings, dry_run, as_json, folder=True)
