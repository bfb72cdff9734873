"""Quick looks of cubes: which bands become red, green and blue, and how they are stretched."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.holes import valid
from pdenet_cli.scene.meta import CubeMeta

RGB_NM = (650.0, 550.0, 460.0)  # nanometres
Picture = NDArray[np.uint8]  # (rows, columns, 3)
NODATA_GREY, HATCH_GREY = (205, 205, 205), (150, 150, 150)


def rgb_bands(meta: CubeMeta) -> tuple[int, int, int]:
    """The bands for red, green and blue: by wavelength, else the header's default bands, else spread out."""
    nm = meta.wavelengths_nm
    if nm is not None and nm.min() <= 500 and nm.max() >= 600:
        good = np.array(meta.good_bands or (True,) * meta.bands)
        away = [np.where(good, np.abs(nm - colour), np.inf) for colour in RGB_NM]
        red, green, blue = (int(np.argmin(a)) for a in away)
        return red, green, blue
    if meta.default_bands:
        first, *rest = meta.default_bands
        return (first, rest[0], rest[1]) if len(rest) == 2 else (first, first, first)
    if nm is not None and nm[0] > nm[-1]:
        return meta.bands // 4, meta.bands // 2, meta.bands * 3 // 4
    return meta.bands * 3 // 4, meta.bands // 2, meta.bands // 4


def quicklook(cube: Cube, longest: int = 1024) -> Picture:
    """An RGB picture of a cube, at most `longest` pixels a side, each channel stretched separately."""
    return np.stack([stretched(channel) for channel in _channels(cube, longest)], axis=-1)


def _channels(cube: Cube, longest: int) -> list[NDArray[np.float64]]:
    step = thinning(cube.meta, longest)
    bands = rgb_bands(cube.meta)
    read = {band: thinned(cube, band, step) for band in set(bands)}  # a map has one band for all three
    return [read[band] for band in bands]


def thinning(meta: CubeMeta, longest: int) -> int:
    """The step between pixels of a picture of at most `longest` pixels a side."""
    return max(1, math.ceil(max(meta.rows, meta.columns) / longest))


def stretched(channel: NDArray[np.floating]) -> NDArray[np.uint8]:
    """A channel as 8-bit grey from its 2nd to its 98th percentile; what is not finite becomes black."""
    finite = channel[np.isfinite(channel)]
    low, high = np.percentile(finite, [2, 98]) if finite.size else (0.0, 1.0)
    grey = (np.nan_to_num(channel, nan=low) - low) / ((high - low) or 1.0)
    eight_bit: NDArray[np.uint8] = np.rint(np.clip(grey, 0, 1) * 255).astype(np.uint8)
    return eight_bit


def colour_limits(cube: Cube, bands: Sequence[int], longest: int = 1024) -> NDArray[np.float64]:
    """The 2nd and the 98th percentile of each of these bands: what becomes dark and bright, (bands, 2)."""
    step = thinning(cube.meta, longest)
    limits = []
    for band in bands:
        channel = thinned(cube, band, step)
        known = channel[np.isfinite(channel)]
        low, high = np.percentile(known, [2, 98]) if known.size else (0.0, 1.0)
        limits.append((low, high if high > low else low + 1.0))
    return np.array(limits)


def thinned(cube: Cube, band: int, step: int) -> NDArray[np.float64]:
    """Every `step`-th row and column of one band, NaN for nodata, read in strips to save memory."""
    meta = cube.meta
    strips = []
    for window in meta.window.blocks(max(step, (256 // step) * step), meta.columns):
        strip = cube.thinned(step, window, slice(band, band + 1))[0]
        strips.append(np.where(valid(strip, meta.nodata), strip, np.nan).astype(np.float64))
    return np.concatenate(strips)


def upper_end(values: NDArray[np.floating]) -> float:
    """The upper end of a map's colours: its 99.5th percentile, else its maximum; 1 if it is empty or all 0."""
    known = values[np.isfinite(values)]
    return float(np.percentile(known, 99.5)) or float(known.max()) or 1.0 if known.size else 1.0


def coloured(values: NDArray[np.floating], top: float, colours: str = "cividis") -> Picture:
    """A map from 0 to `top` in a colour map that colour-blind people can read; nodata is hatched grey."""
    from matplotlib import colormaps

    share = np.nan_to_num(values / (top or 1.0)).clip(0, 1)
    picture = np.rint(255 * colormaps[colours](share)[..., :3]).astype(np.uint8)
    return _hatched(picture, ~np.isfinite(values))


def _hatched(picture: Picture, missing: NDArray[np.bool_]) -> Picture:
    striped = np.add.outer(*map(np.arange, missing.shape)) % 8 < 2
    picture[missing] = NODATA_GREY
    picture[missing & striped] = HATCH_GREY
    return np.ascontiguousarray(picture)


def png(picture: Picture) -> bytes:
    """A picture as the bytes of a PNG file."""
    from imagecodecs import png_encode

    return bytes(png_encode(picture))


def refuse_other_than_png(path: Path) -> None:
    """Stop where the name of a picture has another suffix than .png."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"{path}: pictures are written as PNG. Give a name that ends in .png.")


def data_uri(picture: Picture) -> str:
    """A picture as a data URI, to be embedded in a page."""
    return "data:image/png;base64," + b64encode(png(np.array(picture, order="C"))).decode()
