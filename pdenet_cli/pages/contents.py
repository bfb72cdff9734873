"""What a page holds of a sharpened scene within a bound of bytes, and what its script is told of that.

The pictures come first, so that they are seen while the rest is still being read; then the maps; then the spectra,
which are of every so many-th pixel where those of all do not fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.pages.levels import MapLevels
from pdenet_cli.pages.planes import Planes, colour_planes, fitted_colours, fitted_map
from pdenet_cli.pages.shown import Shown
from pdenet_cli.pages.spectra import COARSE_STEP, Spectra
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.picture import NODATA_GREY, colour_limits, rgb_bands

PAGE_SIZE = 15_000_000  # bytes, unless asked otherwise
SMALLEST_PAGE = 500_000
TEXT_BYTES = 150_000  # for scripts, styles, words and numbers
BASE64 = 4 / 3  # bytes of text for a byte of content
OVERVIEW = 512  # pixels a side of the first picture of a large scene
LARGE = 900  # pixels a side of a scene that has such a picture
BAND_GAP = 5  # a line is broken between bands this many times further apart than the median distance
RAMPS = {"errors": "cividis", "counts": "Greys_r"}  # for any colour vision; counts in neutral colours


@dataclass(frozen=True)
class MapShown:
    """A map with its words."""

    name: str
    title: str
    says: str  # what it tells
    merging: str  # how bands were merged, to be said after that
    unit: str  # of its numbers as shown
    merged: Shown
    counts: bool = False  # percentages
    with_bands: bool = False  # whether it is there for each band too
    bands: Shown | None = None  # that; None: it is twice the half width of the band around a spectrum

    @property
    def sign(self) -> str:
        """What follows a number of the map."""
        return {"percent": " %", "degrees": "°"}.get(self.unit, "")


@dataclass(frozen=True)
class SceneShown:
    """A scene, what was made of it, and the unit of both."""

    source: Shown
    mean: Shown
    unit: str
    maps: tuple[MapShown, ...] = ()
    half: Shown | None = None  # half the width of the band around a spectrum
    band: str = ""  # what that band is

    @property
    def scale(self) -> int:
        return self.mean.cube.meta.rows // self.source.cube.meta.rows


@dataclass(frozen=True)
class Contents:
    """The parts of a page in the order of reading, and what the script is told."""

    facts: dict[str, Any]
    parts: tuple[bytes, ...]
    levels: tuple[MapLevels, ...]
    notes: tuple[str, ...]  # how near to the files it all is

    @classmethod
    def of(cls, scene: SceneShown, page_size: int = PAGE_SIZE) -> Contents:
        """The contents of a page of about `page_size` bytes at most."""
        return _Packing(scene, max(page_size, SMALLEST_PAGE)).contents()


class _Packing:
    """Fills a page: each part gets a share of what is left, and leaves what it does not need to the next."""

    def __init__(self, scene: SceneShown, page_size: int) -> None:
        self.scene, self.parts = scene, list[bytes]()
        self.left = int((page_size - TEXT_BYTES) / BASE64)

    def contents(self) -> Contents:
        scene, meta = self.scene, self.scene.mean.cube.meta
        rgb = rgb_bands(meta)
        limits = self._limits(rgb)
        facts: dict[str, Any] = self._grid_facts(meta) | dict(rgb=rgb, limits=limits.tolist(), overview=None)
        if max(meta.rows, meta.columns) > LARGE:
            step = math.ceil(max(meta.rows, meta.columns) / OVERVIEW)
            facts["overview"] = self._add(colour_planes(scene.mean, rgb, limits, step))
        source = fitted_colours(scene.source, rgb, limits, int(0.1 * self.left))
        facts["input"] = self._add(source)
        colours = fitted_colours(scene.mean, rgb, limits, int(0.5 * self.left))
        facts["colours"] = self._add(colours)
        levels = tuple(MapLevels.of(shown.merged) for shown in scene.maps)
        facts["maps"] = self._maps(levels)
        spectra = self._spectra(facts, meta)
        steps = [shown["plane"]["step"] for shown in facts["maps"] if "plane" in shown]
        notes = (*self._held(colours, steps, spectra["mean"]), *self._near(spectra))
        return Contents(facts, tuple(self.parts), levels, notes)

    def _add(self, part: Planes | Spectra) -> dict[str, Any]:
        """Take a part in; what the script is told of it."""
        self.left -= len(part.content) + int(len(json.dumps(part.facts)) / BASE64)
        self.parts.append(part.content)
        return part.facts | {"part": len(self.parts) - 1}

    def _limits(self, rgb: tuple[int, int, int]) -> NDArray[np.float64]:
        """What is dark and bright in the input, of which all pictures are stretched alike."""
        source = self.scene.source
        gain, offset = (
            np.array([values[band if len(values) > 1 else 0] for band in rgb])[:, None]
            for values in (source.gain, source.offset)
        )
        return np.asarray(np.sort(colour_limits(source.cube, rgb) * gain + offset, axis=1))

    def _grid_facts(self, meta: CubeMeta) -> dict[str, Any]:
        places, across = axis_of(meta)
        place = meta.georeference
        return dict(
            rows=meta.rows,
            columns=meta.columns,
            scale=self.scene.scale,
            bands=meta.bands,
            places=places,
            breaks=breaks(places),
            nm=across.endswith("nm"),
            band=self.scene.band,
            transform=place.transform,
            crs=_crs_name(place.crs),
            geographic=_is_geographic(place.crs),
            ramps={name: _ramp(colours) for name, colours in RAMPS.items()},
            nodata=NODATA_GREY,
        )

    def _maps(self, levels: Sequence[MapLevels]) -> list[dict[str, Any]]:
        facts = []
        for number, (shown, level) in enumerate(zip(self.scene.maps, levels, strict=True)):
            # The first is looked at most.
            share = 0.45 if number == 0 else 0.3 / max(1, len(levels) - 1)
            plane = self._add(fitted_map(shown.merged, int(share * self.left)))
            facts_of_map = self._map_facts(shown, number)
            facts.append(facts_of_map | dict(plane=plane, top=level.top, says=shown.says + shown.merging))
        return facts

    @staticmethod
    def _map_facts(shown: MapShown, number: int) -> dict[str, Any]:
        words = dict(name=shown.title, says=shown.says, unit=shown.unit, sign=shown.sign)
        return words | dict(of=number, counts=shown.counts)

    def _spectra(self, facts: dict[str, Any], meta: CubeMeta) -> dict[str, Spectra]:
        scene = self.scene
        good = np.array(meta.good_bands or (True,) * meta.bands)
        per_band = [(number, shown) for number, shown in enumerate(scene.maps) if shown.with_bands]
        others = (scene.half is not None) + sum(shown.bands is not None for _, shown in per_band)
        around = Spectra.fitted(scene.source, good, int(self.left * (0.35 if others else 0.4)))
        facts["around"] = self._add(around)
        mean = Spectra.fitted(scene.mean, good, int(self.left / (1 + 0.25 * others)))
        facts["mean"], facts["half"] = self._add(mean), None
        found = {"mean": mean, "around": around}
        if scene.half is not None:
            found["half"] = Spectra.fitted(
                scene.half, good, int(self.left / others), mean.grid.step, step_size=COARSE_STEP
            )
            facts["half"] = self._add(found["half"])
        for count, (number, shown) in enumerate(per_band):
            facts["maps"].append(self._map_facts(shown, number) | dict(factor=1))
            if shown.bands is None:  # the interval, of which the page has half the width
                facts["maps"][-1] |= dict(spectra="half", factor=2)
                continue
            share = self.left // (len(per_band) - count)
            bands = Spectra.fitted(shown.bands, good, share, mean.grid.step, step_size=COARSE_STEP)
            facts["maps"][-1]["spectra"] = self._add(bands)
        facts["range"] = self._range(mean, around, found.get("half"))
        return found

    @staticmethod
    def _range(mean: Spectra, around: Spectra, half: Spectra | None) -> list[float]:
        """The least and the greatest value of all spectra, for an axis that is the same for all pixels."""
        reach = 0.0 if half is None else half.ends[1]
        ends = (mean.ends[0] - reach, mean.ends[1] + reach, *around.ends)
        known = [value for value in ends if math.isfinite(value)]
        return [min(known), max(known)] if known else [0.0, 1.0]

    def _held(self, colours: Planes, map_steps: Sequence[int], mean: Spectra) -> tuple[str, ...]:
        """What is not of every pixel."""
        notes = []
        if colours.grid.step > 1:
            notes.append(f"The picture shows one pixel of {colours.grid.step} x {colours.grid.step}.")
        if max(map_steps, default=1) > 1:
            shown = ", ".join(f"{step} x {step}" if step > 1 else "1" for step in map_steps)
            notes.append(f"The maps show one pixel of {shown}, in their order.")
        if mean.grid.step > 1:
            square = f"{mean.grid.step} x {mean.grid.step}"
            notes.append(
                f"Of all bands the page holds one pixel of {square}; a blue frame shows which. Write a larger "
                "page (page-size) or a page of a part (window) for more."
            )
        return tuple(notes)

    def _near(self, spectra: dict[str, Spectra]) -> tuple[str, ...]:
        mean = spectra["mean"]
        if mean.worst <= 1e-6 * max(abs(end) for end in mean.ends):
            return ("The spectra are exactly those of the file.",)
        usual = f"{_rough(mean.usual)} for 99.9 % of the values, at most {_rough(mean.worst)}"
        note = f"The spectra of the result are rounded; they differ from the file by {usual} ({self.scene.unit})"
        half = spectra.get("half")
        ends = "" if half is None else f", the band around them by {_rough(half.usual)} and {_rough(half.worst)}"
        return (f"{note}{ends}.",)


def _rough(value: float) -> str:
    """Two significant digits, or a whole number."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _ramp(colours: str) -> str:
    """256 colours as hexadecimal digits."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return "".join(to_hex(colormaps[colours](share))[1:] for share in np.linspace(0, 1, 256))


def _crs_name(crs: str | None) -> str:
    """A short name of a coordinate system: its code, or the name in its WKT."""
    if not crs:
        return ""
    return crs.split('"')[1][:40] if '"' in crs else crs[:40]


def _is_geographic(crs: str | None) -> bool:
    return bool(crs) and (str(crs).startswith(("GEOG", "EPSG:4326")))


def axis_of(meta: CubeMeta) -> tuple[tuple[float, ...], str]:
    """The places of the bands along the axis of a spectrum, and the name of the axis."""
    nm = meta.wavelengths_nm
    if nm is None or not np.isfinite(nm).all():
        return tuple(map(float, range(meta.bands))), "band, counted from 0"
    return tuple(nm.tolist()), "wavelength, nm"


def breaks(places: Sequence[float]) -> list[int]:
    """The bands before which a line is broken: after a gap, or where a second detector's wavelengths begin."""
    steps = np.diff(places)
    if not steps.size:
        return []
    forward = 1 if places[-1] >= places[0] else -1
    apart = np.abs(steps) > BAND_GAP * np.median(np.abs(steps))
    found = np.flatnonzero(apart | (np.sign(steps) == -forward)) + 1
    return [int(band) for band in found]
