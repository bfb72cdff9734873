"""What a file says about its cube besides the pixels, in the same words whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.bands import BandChoice, band_numbers
from pdenet_cli.scene.georeference import PIXEL_WORDS, Georeference, cut_words, upscaled_words
from pdenet_cli.scene.wavelengths import nanometres
from pdenet_cli.scene.window import Window

INTERLEAVES = {"bsq": "brc", "bil": "rbc", "bip": "rcb"}
"""Each interleave as the order of its axes: b bands, r rows, c columns, slowest first."""


@dataclass(frozen=True)
class CubeMeta:
    """All that a file says about its cube besides the pixels.

    Per-band lists are as long as there are bands, or None. Physical value = gain · number + offset.
    """

    bands: int
    rows: int
    columns: int
    dtype: np.dtype[Any]
    interleave: str = "bsq"
    wavelengths: tuple[float, ...] | None = None
    wavelength_units: str | None = None
    fwhm: tuple[float, ...] | None = None
    good_bands: tuple[bool, ...] | None = None
    band_names: tuple[str, ...] | None = None
    default_bands: tuple[int, ...] | None = None  # counted from 0
    nodata: float | None = None
    reflectance_scale: float | None = None
    gains: tuple[float, ...] | None = None
    offsets: tuple[float, ...] | None = None
    georeference: Georeference = Georeference()
    dimensions: tuple[str, str, str] | None = None  # names of bands, rows and columns, if unusual
    variable: str | None = None  # the dataset or variable that holds the pixels, where a file has several
    product: str | None = None  # what the agency calls it, where the file is a known product
    sigma: str | None = None  # where the product's 1-sigma is: a variable of the file, or a file beside it
    extra: Mapping[str, Any] = field(default_factory=dict)  # the rest of the header, by the file's own names
    native: Mapping[str, Any] = field(default_factory=dict)  # how the file is laid out, for outputs of its format
    notes: tuple[str, ...] = ()  # for the user: what was guessed or ignored on reading

    PER_BAND = ("wavelengths", "fwhm", "good_bands", "band_names", "gains", "offsets")
    # ENVI's lists whose length may equal the number of bands by chance.
    NOT_PER_BAND = ("description", "z plot", "class ", "projection info", *PIXEL_WORDS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        for name in self.PER_BAND:
            values = getattr(self, name)
            if values is not None and len(values) != self.bands:
                note = f"{name} ignored: {len(values)} entries for {self.bands} bands"
                object.__setattr__(self, name, None)
                object.__setattr__(self, "notes", (*self.notes, note))

    @property
    def window(self) -> Window:
        """The whole scene."""
        return Window(0, 0, self.rows, self.columns)

    def shape(self, axes: str = "brc") -> tuple[int, ...]:
        """The sizes of the axes in the order given: b bands, r rows, c columns."""
        sizes = dict(b=self.bands, r=self.rows, c=self.columns)
        return tuple(sizes[axis] for axis in axes)

    @property
    def nbytes(self) -> int:
        return self.bands * self.rows * self.columns * self.dtype.itemsize

    @property
    def wavelengths_nm(self) -> NDArray[np.float64] | None:
        """Band centres in nanometres; None where the unit is not a length."""
        if self.wavelengths is None:
            return None
        size = nanometres(self.wavelengths, self.wavelength_units)
        return None if size is None else np.asarray(self.wavelengths, np.float64) * size

    def noting(self, *notes: str) -> CubeMeta:
        """The same with more notes on how the file was read."""
        return replace(self, notes=(*self.notes, *notes))

    def upscaled(self, factor: int) -> CubeMeta:
        """The metadata of the same scene on a grid `factor` times finer."""
        return replace(
            self,
            rows=self.rows * factor,
            columns=self.columns * factor,
            georeference=self.georeference.upscaled(factor),
            extra=upscaled_words(self.extra, factor),
        )

    def windowed(self, window: Window) -> CubeMeta:
        """The metadata of the part of the scene in `window`; UsageError if that is not within the scene."""
        if min(window.rows, window.columns) < 1 or window != window.grown(0, within=self.window):
            place = f"{window.row} {window.column} {window.rows} {window.columns}"
            size = f"the scene has {self.rows} rows and {self.columns} columns"
            raise UsageError(f"`window` {place}: {size}. Give ROW COLUMN ROWS COLUMNS, counted from 0.")
        return replace(
            self,
            rows=window.rows,
            columns=window.columns,
            georeference=self.georeference.cut(window.row, window.column),
            extra=cut_words(self.extra, window.row, window.column),
        )

    def chosen(self, bands: BandChoice) -> tuple[int, ...]:
        """The numbers of the bands that are meant; UsageError where some of them are not in the cube."""
        waves = self.wavelengths_nm
        return band_numbers(bands, self.bands, None if waves is None else waves.tolist())

    def with_bands(self, chosen: BandChoice) -> CubeMeta:
        """The metadata of the `chosen` bands."""
        kept = self.chosen(chosen)
        lists: dict[str, Any] = {
            name: tuple(values[i] for i in kept)
            for name in self.PER_BAND
            if (values := getattr(self, name)) is not None
        }
        defaults = tuple(kept.index(b) for b in self.default_bands or () if b in kept)
        complete = self.default_bands is not None and len(defaults) == len(self.default_bands)
        extra = {name: self._of_bands(name, value, kept) for name, value in self.extra.items()}
        return replace(self, bands=len(kept), default_bands=defaults if complete else None, extra=extra, **lists)

    def _of_bands(self, name: str, value: Any, kept: Sequence[int]) -> Any:
        """A field of `extra` for the `kept` bands: cut if it is a list with an item for each band."""
        if name.lower().replace("_", " ").startswith(self.NOT_PER_BAND):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(value[i] for i in kept) if len(value) == self.bands else value
        if not isinstance(value, str) or not value.startswith("{"):
            return value
        items = [item.strip() for item in value.strip("{}").split(",")]
        return "{" + ", ".join(items[i] for i in kept) + "}" if len(items) == self.bands else value
