"""pdenet for xarray: a DataArray in, a Dataset on the finer grid out; needs `pip install 'pdenet[xarray]'`.

Importing this module gives every DataArray the accessor `pdenet`: `array.pdenet.upscale()`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from threading import Lock
from typing import Any

try:
    import xarray as xr
except ImportError as error:
    raise ImportError("xarray is not installed. Use pip install 'pdenet[xarray]'.") from error
import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.models.catalogue import DEFAULT_SCALE
from pdenet_cli.models.model import open_model
from pdenet_cli.report import WatchTiles
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.tools.arrays import ArrayPass
from pdenet_cli.tools.maps import UNIT_TEXTS
from pdenet_cli.uncertainty.calibration import Calibration
from pdenet_cli.uncertainty.summaries import USUAL, Question, Summary
from pdenet_cli.xarray.fine_grid import fine_attributes, fine_coordinates
from pdenet_cli.xarray.labels import LabelledCube

USUAL_SAMPLES = 8
NAMES = {"interval_low": "low", "interval_high": "high"}  # of maps; others keep theirs
OF_VALUES = ("add_offset", "standard_name", "long_name", "valid_min", "valid_max", "valid_range", "actual_range")
"""Attributes that hold of a scene's values but not of how far to trust them."""

_one_tile_at_a_time = Lock()  # each may take all of the memory and the threads that there are


def upscale(
    array: xr.DataArray,
    posterior: Posterior | None = None,
    *,
    scale: int | None = None,
    samples: int | None = None,
    maps: Sequence[str] | None = None,
    question: Question = USUAL,
    value_range: ValueRange | None = None,
    spectral: Hashable | None = None,
    memory: int | None = None,
    watch: WatchTiles = lambda done, total: None,
) -> xr.Dataset:
    """The finer cube of a DataArray as `mean`, the error to expect as `error`, and an interval, `low` and `high`.

    The bands lie along the dimension that has the wavelengths as a coordinate, or along `spectral`; the order of
    dimensions does not matter and is kept. Coordinates, attributes and the coordinate system are carried to the
    finer grid; numbers are float32 in the units of the input, NaN where there is no data.

    Without a `posterior` the shipped model for `scale` (4) makes `samples` (8) samples. `maps` are names of
    `pdenet uncertainty`; None: error and interval as far as the model can tell them.

    A DataArray of dask is looked over once, chunk by chunk, and its Dataset is lazy too: each tile is read,
    sharpened and dropped when it is computed or stored, as with `to_zarr`. `memory` is for one tile.
    """
    posterior = _posterior(posterior, scale, samples)
    cube = LabelledCube.of(array, spectral)
    names = _usual_maps(posterior) if maps is None else maps
    work = ArrayPass.of(cube.cube, posterior, names, question, value_range, memory)
    made: Mapping[str, Any] = work.arrays(watch) if cube.array.chunks is None else _lazy(work)
    factor = posterior.network.scale
    found = xr.Dataset(coords=fine_coordinates(cube, factor))
    for name, summary in work.summaries.items():
        merged = summary.compute is None
        pixels = made[f"{name}_merged"][0] if merged else made[name]
        dims = [cube.dims[letter] for letter in ("rc" if merged else "brc")]
        order = [dim for dim in cube.array.dims if dim in dims]
        found[NAMES.get(name, name)] = xr.Variable(dims, pixels).transpose(*order)
        variable = found[NAMES.get(name, name)]
        variable.attrs = _attributes(cube.array.attrs, summary, work.question)
        if mapping := cube.array.encoding.get("grid_mapping"):
            variable.encoding["grid_mapping"] = mapping
    found.attrs = {
        "model": posterior.model.name,
        "model_sha256": posterior.model.sha256,
        "samples": len(posterior),
        "seed": posterior.seed,
        "scale": factor,
    }
    return found


@xr.register_dataarray_accessor("pdenet")
class Accessor:
    """`array.pdenet`: pdenet's functions for a DataArray."""

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    def upscale(self, posterior: Posterior | None = None, **options: Any) -> xr.Dataset:
        """The finer cube with its error and interval, see `pdenet_cli.xarray.upscale`."""
        return upscale(self._array, posterior, **options)


def _posterior(posterior: Posterior | None, scale: int | None, samples: int | None) -> Posterior:
    """The posterior that is given, or that of the shipped model."""
    if posterior is None:
        return Posterior(open_model(None, scale or DEFAULT_SCALE, "cpu"), samples or USUAL_SAMPLES)
    require_posterior(posterior)
    for name, asked in (("scale", scale), ("samples", samples)):
        if asked is not None:
            raise UsageError(f"`{name}` {asked}: a posterior has its own. Omit `{name}`, or the posterior.")
    return posterior


def _usual_maps(posterior: Posterior) -> tuple[str, ...]:
    """The maps that the model can tell, of the error to expect and the interval."""
    if len(posterior) < 2:
        return ()
    errors = ("error",) if posterior.model.errors is not None else ()
    return errors + (("interval",) if Calibration.of(posterior.model.spec) is not None else ())


def _lazy(work: ArrayPass) -> dict[str, Any]:
    """Every array as one of dask whose chunks are tiles; a tile is computed once for all of them."""
    import dask.array as da
    from dask.delayed import delayed

    plan, metas = work.scene.plan, work.metas
    across = sum(tile.core.row == plan.scene.row for tile in plan.tiles)
    tiles = [(part, delayed(_arrays_of, pure=False)(part)) for part in work.tiles]

    def chunk(name: str, part: ArrayPass, arrays: Any) -> Any:
        return da.from_delayed(arrays[name], part.metas[name].shape(), np.float32)

    return {
        name: da.block(
            [
                [chunk(name, *tile) for tile in tiles[first : first + across]]
                for first in range(0, len(tiles), across)
            ]
        )
        for name in metas
    }


def _arrays_of(work: ArrayPass) -> dict[str, NDArray[np.float32]]:
    with _one_tile_at_a_time:
        return work.arrays()


def _attributes(attrs: Mapping[str, Any], summary: Summary, question: Question) -> dict[str, Any]:
    """The attributes of the scene that hold of a map of it too, and what the map shows."""
    kept = fine_attributes(attrs)
    if summary.name == "mean":
        return kept
    numbers = summary.unit in ("value", "spread")
    # An interval's ends are values: they take the offset; a spread takes only the gain.
    foreign = {name for name in OF_VALUES if name != "add_offset" or summary.unit != "value"}
    foreign |= set() if numbers else {"units", "scale_factor", "add_offset"}
    kept = {name: value for name, value in kept.items() if name not in foreign}
    units = {} if numbers else {"units": UNIT_TEXTS[summary.unit]}
    return kept | {"long_name": summary.describe(question)} | units
