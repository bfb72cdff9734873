"""`pdenet upscale` and `pdenet uncertainty`: the same work with different outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdenet_cli.cli import options
from pdenet_cli.cli.parsing import settings_of
from pdenet_cli.cli.sharpening import AUTO, PosteriorOptions, part_of, sharpen
from pdenet_cli.cli.spreading import Spreading


def upscale(
    context: typer.Context,
    scenes: options.Scenes,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Output cube; its suffix sets the format. A name without a suffix is a folder, which receives "
            "SCENE_x4.",
        ),
    ],
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: options.Samples = 8,
    with_uncertainty: Annotated[
        bool,
        typer.Option(
            "--with-uncertainty",
            help="Also write the maps std, share and, if the model can tell them, error and interval; pdenet "
            "uncertainty makes other maps.",
        ),
    ] = False,
    per_band: options.PerBand = False,
    page: Annotated[
        bool,
        typer.Option("--page", help="Also write an HTML page to compare input, bicubic and result, and a PNG."),
    ] = False,
    page_size: options.PageSize = options.PAGE_SIZE,
    seed: options.Seed = 0,
    ensemble: options.Ensemble = None,
    mixtures: options.MixtureCount = None,
    psf: options.PointSpread = None,
    sensor: options.SensorName = None,
    finer_psf: options.FinerSpread = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: options.WorkerCount = None,
    cluster: options.ClusterAddress = None,
    part: options.PartOfAll = None,
    finish: options.Finish = False,
    memory: options.Memory = None,
    tile: options.TileSide = None,
    halo: options.Halo = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    dtype: Annotated[
        str | None, typer.Option(help="Data type of the output, e.g. float32.", show_default="the input's")
    ] = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    quicklook: options.Quicklook = False,
    style: options.Style = True,
    compress: options.Compression = None,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    progress: options.Progress = "auto",
    summary: options.SummaryFile = None,
    as_json: options.Json = False,
) -> None:
    """Make cubes 4 times (or --scale) finer, still georeferenced, in the input's format and units.

    A JSON report beside each output records inputs, settings and versions.
    """
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.tools.settings import Settings

    of_posterior = PosteriorOptions(
        scale, model, samples, seed, ensemble, device, threads, mixtures, psf, sensor, finer_psf
    )
    maps = None if with_uncertainty else ()
    others = dict(maps=maps, forecast=dry_run, part=part_of(part), measure_psf=psf == AUTO)
    settings = settings_of(Settings, context, **others)
    spreading = Spreading(workers, cluster, threads)
    sharpen(scenes, output, of_posterior, settings, as_json, False, spreading, summary)


def uncertainty(
    context: typer.Context,
    scenes: options.Scenes,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the maps.")],
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="error, std, share, interval, cv, angle, consistency, risk (with --tolerance). Repeat for more.",
            show_default="std, share, and error and interval if the model can tell them",
            metavar="MAP",
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="Fraction of true values that the intervals should contain, on average over scenes.",
            show_default="as the model was calibrated",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest acceptable error; adds the map risk. Where the header scales the values (gains, scale "
            "factor), in scaled values such as reflectance, else in the file's numbers.",
            min=0,
        ),
    ] = None,
    levels: Annotated[int, typer.Option(help="Grey levels of the map share.", min=2)] = 256,
    per_band: options.PerBand = False,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Also write an HTML page, a picture and the sharpened cube.")
    ] = True,
    page_size: options.PageSize = options.PAGE_SIZE,
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: Annotated[
        int,
        typer.Option(
            help=f"{options.SAMPLES} At least 2, unless consistency is the only map.",
            min=1,
            max=options.MOST_SAMPLES,
        ),
    ] = 8,
    seed: options.Seed = 0,
    ensemble: options.Ensemble = None,
    mixtures: options.MixtureCount = None,
    psf: options.PointSpread = None,
    sensor: options.SensorName = None,
    finer_psf: options.FinerSpread = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: options.WorkerCount = None,
    cluster: options.ClusterAddress = None,
    part: options.PartOfAll = None,
    finish: options.Finish = False,
    memory: options.Memory = None,
    tile: options.TileSide = None,
    halo: options.Halo = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    quicklook: options.Quicklook = False,
    style: options.Style = True,
    compress: options.Compression = None,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    progress: options.Progress = "auto",
    summary: options.SummaryFile = None,
    as_json: options.Json = False,
) -> None:
    """Map how far each pixel of the finer cube can be trusted, merged over the bands (--per-band: also in each).

    error: error to expect (root mean square), in the file's units
    std: standard deviation of the samples, in the file's units
    share: percentage of samples whose grey level differs from the mean's
    interval: two cubes that enclose --level of the true values, on average
    cv: std as a percentage of the mean
    angle: mean angle between samples and their mean, degrees; only merged
    consistency: difference between the input and the degraded finer cube
    risk: probability of an error beyond --tolerance, percent

    interval and risk need a calibrated model, error one that has learned its
    errors; the shipped models are both (see pdenet calibrate). Files are
    named SCENE_MAP_merged, those with a value for each band (intervals, and
    all with --per-band) SCENE_MAP; a JSON report says what they show.
    """
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.tools.settings import Settings
    from pdenet_cli.uncertainty.summaries import Question

    of_posterior = PosteriorOptions(
        scale, model, samples, seed, ensemble, device, threads, mixtures, psf, sensor, finer_psf
    )
    question = Question(levels, level, tolerance)
    names = tuple(maps) if maps else None
    others = dict(maps=names, forecast=dry_run, part=part_of(part), measure_psf=psf == AUTO)
    settings = settings_of(Settings, context, cube=False, question=question, **others)
    spreading = Spreading(workers, cluster, threads)
    sharpen(scenes, output, of_posterior, settings, as_json, True, spreading, summary)
