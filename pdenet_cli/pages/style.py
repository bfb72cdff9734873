"""QGIS styles: a .qml file beside a raster, so that it opens in true colour or in a ramp with its range.

QGIS takes bands 1 to 3 whatever a file says of its default bands; a style of the raster's name it obeys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.picture import colour_limits, rgb_bands, thinned, thinning, upper_end

STYLED = ("ENVI", "TIFF")  # formats that QGIS opens by the name of the file that a style is named after
RAMP, COUNT_RAMP = "cividis", "Greys_r"  # as in the pictures
RAMP_STEPS = 17  # colours of a ramp; QGIS blends between them
LONGEST = 1024  # pixels a side that the range of colours is taken of


def style_path(raster: Path) -> Path:
    """The style of a raster: QGIS looks for its name with this suffix."""
    return raster.with_suffix(".qml")


def colour_style(cube: Cube) -> str:
    """The style of a cube of bands: red, green and blue by wavelength, from the 2nd to the 98th percentile."""
    bands = rgb_bands(cube.meta)
    if len(set(bands)) == 1:
        return _style(_grey(bands[0], *colour_limits(cube, bands[:1], LONGEST)[0]))
    limits = colour_limits(cube, bands, LONGEST)
    return _style(_colours(bands, limits))


def map_style(cube: Cube, *, counts: bool = False) -> str:
    """The style of a map, from 0 to its 99.5th percentile; of a map with a value for each band, of one of them.

    `counts`: it is a percentage, in greys; errors are in colours.
    """
    band = rgb_bands(cube.meta)[1]
    values = thinned(cube, band, thinning(cube.meta, LONGEST))
    return _style(_ramp(band, upper_end(values), COUNT_RAMP if counts else RAMP))


def _style(renderer: Iterator[str]) -> str:
    return "\n".join(
        (
            "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>",
            '<qgis version="3.22" styleCategories="Symbology">',
            "<pipe>",
            *renderer,
            '<brightnesscontrast brightness="0" contrast="0" gamma="1"/>',
            '<huesaturation saturation="0" grayscaleMode="0" colorizeOn="0"/>',
            # Pixels stay pixels however near one looks; from afar they are averaged.
            '<rasterresampler maxOversampling="2" zoomedOutResampler="bilinear"/>',
            "</pipe>",
            "<blendMode>0</blendMode>",
            "</qgis>",
            "",
        )
    )


def _stretch(name: str, low: float, high: float) -> Iterator[str]:
    yield f"<{name}>"
    yield f"<minValue>{low:.9g}</minValue><maxValue>{high:.9g}</maxValue>"
    yield f"<algorithm>StretchToMinimumMaximum</algorithm></{name}>"


def _colours(bands: Sequence[int], limits: NDArray[np.float64]) -> Iterator[str]:
    names = ("red", "green", "blue")
    numbers = " ".join(f'{name}Band="{band + 1}"' for name, band in zip(names, bands, strict=True))
    yield f'<rasterrenderer type="multibandcolor" opacity="1" alphaBand="-1" nodataColor="" {numbers}>'
    yield "<rasterTransparency/>"
    for name, (low, high) in zip(names, limits, strict=True):
        yield from _stretch(f"{name}ContrastEnhancement", low, high)
    yield "</rasterrenderer>"


def _grey(band: int, low: float, high: float) -> Iterator[str]:
    of = f'grayBand="{band + 1}" gradient="BlackToWhite"'
    yield f'<rasterrenderer type="singlebandgray" opacity="1" alphaBand="-1" nodataColor="" {of}>'
    yield "<rasterTransparency/>"
    yield from _stretch("contrastEnhancement", low, high)
    yield "</rasterrenderer>"


def _ramp(band: int, top: float, colours: str) -> Iterator[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    of = f'band="{band + 1}" classificationMin="0" classificationMax="{top:.9g}"'
    yield f'<rasterrenderer type="singlebandpseudocolor" opacity="1" alphaBand="-1" nodataColor="" {of}>'
    yield "<rasterTransparency/>"
    yield "<rastershader>"
    yield (
        '<colorrampshader colorRampType="INTERPOLATED" classificationMode="2" clip="0" '
        f'minimumValue="0" maximumValue="{top:.9g}" labelPrecision="4">'
    )
    for share in np.linspace(0, 1, RAMP_STEPS):
        value, colour = share * top, to_hex(colormaps[colours](share))
        label = quoteattr(f"{value:.4g}")
        yield f'<item value="{value:.9g}" color="{colour}" alpha="255" label={label}/>'
    yield "</colorrampshader></rastershader></rasterrenderer>"
