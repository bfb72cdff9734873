"""How a scene is to be sharpened, apart from the model and its draws."""

from __future__ import annotations

from dataclasses import dataclass

from pdenet_cli.pages.contents import PAGE_SIZE
from pdenet_cli.scene.bands import BandChoice
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.parts import Part
from pdenet_cli.uncertainty.summaries import USUAL, Question


@dataclass(frozen=True)
class Settings:
    """How a scene is to be sharpened, apart from the model and its draws."""

    cube: bool = True  # write the sharpened cube
    maps: tuple[str, ...] | None = ()  # names of uncertainty maps to write; None: the default ones of the model
    question: Question = USUAL  # the parameters of the maps
    value_range: ValueRange | None = None
    bands: BandChoice | None = None
    window: Window | None = None  # the part of the scene that is read
    dtype: str | None = None
    memory: int | None = None
    tile: int | None = None
    halo: int | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # None: as declared in the file
    overwrite: bool = False
    resume: bool = False
    part: Part | None = None  # only this part of the tiles is done, and nothing is finished
    finish: bool = False  # finish what all parts have done
    forecast: bool = False  # only a forecast is wanted; nothing will be written
    quicklook: bool = False  # also write a picture, and the sharpened cube for it
    page: bool = False  # also write a page and a picture, and the sharpened cube for them
    page_size: int = PAGE_SIZE  # bytes of the page at most
    per_band: bool = False  # write maps for each band too; intervals always are
    measure_psf: bool = False  # the model is told the point spread that is measured in each scene
    compress: str | None = None  # how cubes are compressed: deflate, zstd or lzw, as their format allows
    style: bool = True  # also write a style for QGIS beside every raster

    @property
    def goes_on(self) -> bool:
        """Whether what was done before is to be continued."""
        return self.resume or self.finish or self.part is not None
