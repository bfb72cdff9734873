"""GDAL_METADATA, the XML of GeoTIFFs for what TIFF has no tag for: wavelengths, scales, names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr, unescape

from defusedxml import ElementTree

from pdenet_cli.formats.envi.header import zero_based
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.wavelengths import nanometres

ROLES = {"DESCRIPTION": "description", "SCALE": "scale", "OFFSET": "offset", "UNITTYPE": "unittype"}
"""Band items that GDAL itself uses, and their roles."""

# Items about the layout or the grid of this one file: never copied to another.
STALE = {"samples", "lines", "bands", "data_type", "interleave", "byte_order", "header_offset", "file_type"}
STALE |= {"file_compression", "map_info", "coordinate_system_string", "area_or_point", "rpc_info"}

# Dataset items with a field in CubeMeta, by ENVI's names where ENVI has one.
OWN = {"wavelength", "wavelength_units", "fwhm", "bbl", "band_names", "default_bands", "data_ignore_value"}
OWN |= {"reflectance_scale_factor", "data_gain_values", "data_offset_values", "variable", "anchor"}

BAND_NAME = re.compile(r"Band_\d+")  # dataset items in which GDAL repeats ENVI's band names

STALE_DOMAINS = {"GEOLOCATION", "IMAGE_STRUCTURE", "RPC", "SUBDATASETS", "TILING_SCHEME"}
DOMAIN = "::"  # between the name of another domain and that of its item

NUMBERS = ("wavelength", "fwhm", "bbl", "CENTRAL_WAVELENGTH_UM", "FWHM_UM")  # used only if every band has one
BAND_OWN = {*NUMBERS, "wavelength_units", "description", "scale", "offset", "colorinterp"}
ANY_CASE = {name.lower(): name for name in (*NUMBERS, "wavelength_units")}
"""Items of bands by their names in lower case; Wyvern writes `Wavelength` and `Wavelength_Units`."""
IMAGERY = "IMAGERY"  # the domain in which GDAL has wavelengths since its version 3.10


class Items:
    """GDAL's metadata items of a picture: those of the dataset, and those of each band."""

    def __init__(self, text: str, bands: int) -> None:
        """The items of a GDAL_METADATA text."""
        self.bands = bands
        self.dataset: dict[str, str] = {}
        self.band: dict[str, list[str | None]] = {}
        for item in ElementTree.fromstring(text).iter("Item") if text else ():
            value = unescape(item.text or "", {"&quot;": '"', "&apos;": "'"})  # GDAL escapes values twice
            name, sample = item.get("name", ""), item.get("sample", "")
            self._add(name, item.get("domain", ""), value, sample, item.get("role"))

    @classmethod
    def of_pam(cls, root: Any, bands: int) -> Items:
        """The items of an .aux.xml, whose bands are counted from 1."""
        items = cls("", bands)
        for place, sample in ((root, ""), *((band, band.get("band", "")) for band in root.iter("PAMRasterBand"))):
            before = str(int(sample) - 1) if sample.isdecimal() and len(sample) < 9 else sample
            for group in place.iterfind("Metadata"):
                for item in group.iterfind("MDI"):
                    items._add(item.get("key", ""), group.get("domain", ""), item.text or "", before)
        return items

    def _add(self, name: str, domain: str, value: str, sample: str, role: str | None = None) -> None:
        if not name or name.upper().startswith("STATISTICS_") or domain in STALE_DOMAINS:
            return
        if domain not in ("", "ENVI", IMAGERY):
            name = f"{domain}{DOMAIN}{name}"
        if sample.isdecimal() and len(sample) < 9:
            name = ANY_CASE.get(name.lower(), name)
            if int(sample) < self.bands:
                self.band.setdefault(name if role is None else role, [None] * self.bands)[int(sample)] = value
        elif BAND_NAME.fullmatch(name):
            return
        elif domain == "ENVI":
            self.dataset.setdefault(name.replace("_", " "), value)  # GDAL writes ENVI's names with underscores
        else:
            self.dataset[name] = value

    @property
    def known_items(self) -> dict[str, str]:
        """The dataset's items with a field in CubeMeta, by ENVI's names with underscores."""
        joined = {_joined(name): value for name, value in self.dataset.items()}
        return {name: value for name, value in joined.items() if name in OWN}

    def meta(self) -> dict[str, Any]:
        """The fields of CubeMeta that the items give, by name."""
        wavelengths, units, fwhm = self.numbers("wavelength"), self.word("wavelength_units"), self.numbers("fwhm")
        if wavelengths is None and (micrometres := self.numbers("CENTRAL_WAVELENGTH_UM")) is not None:
            wavelengths, units, fwhm = micrometres, "Micrometers", self.numbers("FWHM_UM") or fwhm
        elif wavelengths is not None and fwhm is None:
            fwhm = self.fwhm(nanometres(wavelengths, units))
        good, defaults = self.numbers("bbl"), _numbers(_listed(self.known_items.get("default_bands", "")))
        names = self.band.get("description") or _listed(self.known_items.get("band_names", ""))
        scale = _numbers([self.known_items.get("reflectance_scale_factor", "")])
        fields = dict(
            wavelengths=wavelengths,
            wavelength_units=units,
            fwhm=fwhm,
            good_bands=None if good is None else tuple(value != 0 for value in good),
            band_names=tuple(name or f"Band {i + 1}" for i, name in enumerate(names)) if names else None,
            default_bands=zero_based(defaults, self.bands),
            reflectance_scale=scale[0] if scale and scale[0] else None,
            # GDAL writes neither for a band whose gain is 1 and offset 0.
            gains=self.numbers("scale", "data_gain_values", blank="1"),
            offsets=self.numbers("offset", "data_offset_values", blank="0"),
            variable=self.known_items.get("variable"),
            extra=self.extra(),
        )
        return {name: value for name, value in fields.items() if value is not None}

    def fwhm(self, unit: float | None) -> tuple[float, ...] | None:
        """GDAL's FWHM_UM in a unit of `unit` nanometres; None if the unit is unknown."""
        micrometres = self.numbers("FWHM_UM")
        if micrometres is None or unit is None:
            return None
        return tuple(float(f"{value * 1000 / unit:.12g}") for value in micrometres)  # 0.0058 um are 5.8 nm

    def doubts(self) -> list[str]:
        """Notes on lists that are ignored because they are incomplete or not numbers."""
        lists = [name for name in NUMBERS if name in self.band or name in self.known_items]
        return [f"{name} ignored: not a number for every band" for name in lists if self.numbers(name) is None]

    def anchor(self) -> tuple[float, float] | None:
        """The corner of the tie point of a rotated picture, for which GeoTIFF has no tag."""
        values = _numbers(_listed(self.known_items.get("anchor", "")))
        return (values[0], values[1]) if values and len(values) == 2 else None

    def numbers(self, *names: str, blank: str = "") -> tuple[float, ...] | None:
        """One number per band by the first of these names, from items of the bands or a list of the dataset.

        `blank` is the value of bands without an item where others have one.
        """
        lists: list[Sequence[str]] = [[word or blank for word in self.band.get(name, [])] for name in names]
        lists += [_listed(self.known_items.get(name, "")) for name in names]
        found = (values for words in lists if (values := _numbers(words)) is not None)
        return next((values for values in found if len(values) == self.bands), None)

    def word(self, name: str) -> str | None:
        """The text of an item of the bands or of the dataset."""
        return next(filter(None, self.band.get(name, [])), None) or self.known_items.get(name)

    def extra(self) -> dict[str, Any]:
        """The items without a field in CubeMeta; one of the bands becomes a list."""
        names = {role: name for name, role in ROLES.items()}
        per_band = {
            names.get(name, name): [value or "" for value in values]
            for name, values in self.band.items()
            if name not in BAND_OWN
        }
        return per_band | {n: v for n, v in self.dataset.items() if _joined(n) not in OWN | STALE}


def text(meta: CubeMeta, anchor: tuple[float, float] | None = None) -> str:
    """The GDAL_METADATA of a cube; empty if it has no items."""
    defaults = meta.default_bands
    dataset: dict[str, Any] = {
        "default_bands": None if defaults is None else [band + 1 for band in defaults],
        "reflectance_scale_factor": meta.reflectance_scale,
        "variable": meta.variable,
        "anchor": anchor,
    }
    per_band: dict[str, Sequence[Any] | None] = {
        "wavelength": meta.wavelengths,
        "wavelength_units": [meta.wavelength_units or _guessed_units(meta)] * meta.bands,
        "fwhm": meta.fwhm,
        "bbl": None if meta.good_bands is None else [int(good) for good in meta.good_bands],
        "OFFSET": meta.offsets,
        "SCALE": meta.gains,
        "DESCRIPTION": meta.band_names,
    }
    for name, value in meta.extra.items():
        if _joined(name) in OWN | STALE:
            continue
        if isinstance(value, (list, tuple)) and len(value) == meta.bands:
            per_band.setdefault(name, value)
        else:
            dataset.setdefault(name, value)
    per_band |= _imagery(meta)
    lines = [_item(name, value) for name, value in dataset.items() if value is not None]
    for band in range(meta.bands):
        for name, values in per_band.items():
            if values is not None and values[band] is not None:
                lines.append(_item(name, values[band], f' sample="{band}"'))
    return "\n".join(("<GDALMetadata>", *lines, "</GDALMetadata>", "")) if lines else ""


def _imagery(meta: CubeMeta) -> dict[str, Sequence[Any] | None]:
    """Wavelengths and widths in micrometres, under the names that GDAL itself uses; none without a known unit."""
    units = meta.wavelength_units or _guessed_units(meta)
    unit = None if meta.wavelengths is None else nanometres(meta.wavelengths, units)
    if unit is None:
        return {}
    lists = {"CENTRAL_WAVELENGTH_UM": meta.wavelengths, "FWHM_UM": meta.fwhm}
    return {
        f"{IMAGERY}{DOMAIN}{name}": [float(f"{value * unit / 1000:.12g}") for value in values]
        for name, values in lists.items()
        if values is not None
    }


def _guessed_units(meta: CubeMeta) -> str | None:
    # EnMAP-Box and QGIS ignore wavelengths without a unit.
    if meta.wavelengths is None or max(meta.wavelengths) < 0.1:  # metres, perhaps
        return None
    return "Micrometers" if max(meta.wavelengths) < 100 else "Nanometers"


def _item(name: str, value: Any, sample: str = "") -> str:
    role = f' role="{ROLES[name]}"' if sample and name in ROLES else ""
    words = escape(escape(_legal(value_text(value)), {'"': "&quot;"}))  # GDAL escapes values twice
    domain, _, leaf = map(_legal, name.partition(DOMAIN))
    named = f"{quoteattr(leaf)} domain={quoteattr(domain)}" if domain and leaf else quoteattr(_legal(name))
    return f"  <Item name={named}{sample}{role}>{words}</Item>"


def value_text(value: Any) -> str:
    """A value as ENVI and GDAL write it."""
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(map(value_text, value)) + "}"
    if isinstance(value, float):
        return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))
    return str(value)


def _legal(words: str) -> str:
    # XML cannot hold most control characters.
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", words)


def _joined(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def _listed(words: str) -> list[str]:
    return [part.strip() for part in words.strip().strip("{}").split(",")] if words.strip() else []


def _numbers(words: Sequence[str]) -> tuple[float, ...] | None:
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        return None
    return numbers if numbers and all(map(math.isfinite, numbers)) else None
