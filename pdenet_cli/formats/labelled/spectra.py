"""What arrays beside a cube say of its bands, and which of its axes holds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pdenet_cli.formats import attributes as words
from pdenet_cli.formats.choosing import Variable, axis_called
from pdenet_cli.formats.labelled.store import Store, distance, units_text

PER_BAND = ("wavelengths", "fwhm", "good_bands")
LENGTH_UNITS = re.compile(r"^\s*(nm|um|µm|μm|nano|micro)", re.IGNORECASE)

NamedList = tuple[str, list[Any]]


def field_of(name: str) -> str | None:
    """The field of CubeMeta that an array of this name usually is, whatever group it is in."""
    return words.field_of(name.rpartition("/")[2])


def _told(name: str) -> str | None:
    """What a list of this name is, also where the name only has the word in it, as `blue_wavelength`."""
    return field_of(name) or ("wavelengths" if "wavelength" in name.rpartition("/")[2].lower() else None)


def named_axes(store: Store, dimensions: Sequence[str], lists: list[NamedList]) -> list[str]:
    """The names of the axes; one without a usual name that wavelengths run along is called after them."""
    along = {_dimension(store, name) for name, _ in lists if _told(name) == "wavelengths"}
    return ["wavelength" if n in along and axis_called(n) == "?" else n for n in dimensions]


def _dimension(store: Store, name: str) -> str:
    """The dimension of a list; one that names none may be a dimension itself."""
    return next(iter(store.dimensions(name)), "") or name


def counts_of(lists: Sequence[NamedList]) -> set[int]:
    """How many wavelengths there are, by lists of a usual name if there is one."""
    usual = {len(values) for name, values in lists if field_of(name) == "wavelengths"}
    return usual or {len(values) for name, values in lists if _told(name) == "wavelengths"}


def lists_in(store: Store, variables: Sequence[Variable]) -> list[NamedList]:
    """The one-dimensional variables that are wavelengths, widths or flags of bands by their names."""
    found = []
    for variable in variables:
        if len(variable.shape) == 1 and variable.dtype is not None and _told(variable.name) in PER_BAND:
            values = store.small(variable.name)
            usual = field_of(variable.name) is not None
            if isinstance(values, list) and (usual or words.are_wavelengths(values)):
                found.append((variable.name, values))
    return found


def beside(store: Store, home: str, lists: list[NamedList], band_scale: str, bands: int) -> dict[str, Any]:
    """What variables near `home` say of its bands; of two that say the same the usual name, the nearer one."""
    found: dict[str, Any] = {}

    def rank(item: NamedList) -> tuple[bool, bool, int]:
        usual = field_of(item[0]) is not None
        return not usual, not usual and _dimension(store, item[0]) != band_scale, distance(home, item[0])

    for name, values in sorted(lists, key=rank):
        kind = _told(name)
        if len(values) == bands and kind is not None and kind not in found:
            found[kind] = values
            if kind == "wavelengths":
                found |= _units(store, name)
    if "wavelengths" not in found and band_scale and LENGTH_UNITS.match(units_text(store, band_scale)):
        values = store.small(band_scale)
        if isinstance(values, list) and len(values) == bands:
            found |= {"wavelengths": values} | _units(store, band_scale)
    return found


def _units(store: Store, name: str) -> dict[str, str]:
    text = units_text(store, name)
    return {"wavelength_units": text} if text else {}
