"""`pdenet upscale` and `pdenet uncertainty`: one road, with other outputs at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdenet_cli.cli import options
from pdenet_cli.cli.sharpening import Draws, parse_bands, parse_dtype, parse_size, sharpen


def upscale(
    scenes: options.Scenes,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The cube to write, or a folder for several scenes.")
    ],
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: options.Samples = 8,
    with_uncertainty: Annotated[
        bool, typer.Option("--with-uncertainty", help="Write the uncertainty maps too, from the same pass.")
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
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
    quicklook: options.Quicklook = False,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Make cubes 4 times (or --scale) finer, still georeferenced, in the input's format and numbers.

    A report (JSON) beside each output says what was done with what.
    """
    from pdenet_cli.summaries import MAPS
    from pdenet_cli.tools.sharpen import Settings

    settings = Settings(
        maps=tuple(MAPS) if with_uncertainty else (),
        value_range=value_range,
        bands=parse_bands(bands),
        dtype=parse_dtype(dtype),
        memory=parse_size(memory),
        tile=tile,
        halo=halo,
        variable=var,
        axes=axes,
        overwrite=overwrite,
        resume=resume,
        quicklook=quicklook,
    )
    sharpen(scenes, output, Draws(scale, model, samples, seed, device), settings, dry_run, as_json)


def uncertainty(
    scenes: options.Scenes,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the maps.")],
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", help="std, share; may be given several times.", show_default="all", metavar="MAP"),
    ] = None,
    scale: options.Scale = None,
    model: options.ModelName = None,
    samples: options.Samples = 8,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    memory: options.Memory = None,
    tile: options.TileSide = None,
    halo: options.Halo = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    quicklook: options.Quicklook = False,
    overwrite: options.Overwrite = False,
    resume: options.Resume = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Map how far each pixel of the finer cube can be trusted, per band and merged over the bands.

    std: standard deviation of the samples, in the file's numbers. share: the paper's map, the share of samples
    whose 8-bit value is not the mean's. Files are named SCENE_MAP and SCENE_MAP_merged.
    """
    from pdenet_cli.errors import UsageError
    from pdenet_cli.summaries import MAPS
    from pdenet_cli.tools.sharpen import Settings

    if unknown := [name for name in maps or () if name not in MAPS]:
        raise UsageError(f"--map {unknown[0]}: no such map. Use {' or '.join(MAPS)}.")
    settings = Settings(
        cube=False,
        maps=tuple(dict.fromkeys(maps or MAPS)),
        value_range=value_range,
        bands=parse_bands(bands),
        memory=parse_size(memory),
        tile=tile,
        halo=halo,
        variable=var,
        axes=axes,
        overwrite=overwrite,
        resume=resume,
        quicklook=quicklook,
    )
    draws = Draws(scale, model, samples, seed, device)
    sharpen(scenes, output, draws, settings, dry_run, as_json, folder=True)
