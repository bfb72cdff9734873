"""Wavelengths and other lists per band in arrays beside a cube, and which axis of the cube they belong to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.choosing import Variable, axis_called
from pdenet_cli.formats.labelled.store import Store, distance, units_text

PER_BAND = ("wavelengths", "fwhm", "good_bands")
LENGTH_UNITS = re.compile(r"^\s*(nm|um|µm|μm|nano|micro)", re.IGNORECASE)

NamedList = tuple[str, list[Any]]


def field_of(name: str) -> str | None:
    """The field of CubeMeta that an array of this name usually means, whatever group it is in."""
    return attributes.field_of(name.rpartition("/")[2])


def _field_by_name_part(name: str) -> str | None:
    """The same, also for names that only contain "wavelength", such as `blue_wavelength`."""
    return field_of(name) or ("wavelengths" if "wavelength" in name.rpartition("/")[2].lower() else None)


def named_axes(store: Store, dimensions: Sequence[str], lists: list[NamedList]) -> list[str]:
    """The names of the axes; an unusual name becomes "wavelength" if a list of wavelengths has that dimension."""
    along = {_dimension(store, name) for name, _ in lists if _field_by_name_part(name) == "wavelengths"}
    return ["wavelength" if n in along and axis_called(n) == "?" else n for n in dimensions]


def _dimension(store: Store, name: str) -> str:
    """The dimension of a list; one without may be a dimension itself."""
    return next(iter(store.dimensions(name)), "") or name


def counts_of(lists: Sequence[NamedList]) -> set[int]:
    """The lengths of the lists of wavelengths; if some have a usual name, only of those."""
    usual = {len(values) for name, values in lists if field_of(name) == "wavelengths"}
    return usual or {len(values) for name, values in lists if _field_by_name_part(name) == "wavelengths"}


def lists_in(store: Store, variables: Sequence[Variable]) -> list[NamedList]:
    """The one-dimensional variables that are named like wavelengths, widths or flags of bands."""
    found = []
    for variable in variables:
        if (
            len(variable.shape) == 1
            and variable.dtype is not None
            and _field_by_name_part(variable.name) in PER_BAND
        ):
            values = store.small(variable.name)
            usual = field_of(variable.name) is not None
            if isinstance(values, list) and (usual or attributes.are_wavelengths(values)):
                found.append((variable.name, values))
    return found


def beside(store: Store, home: str, lists: list[NamedList], band_scale: str, bands: int) -> dict[str, Any]:
    """The fields per band in variables near `home`: those with a usual name first, then the nearest."""
    found: dict[str, Any] = {}

    def rank(item: NamedList) -> tuple[bool, bool, int]:
        usual = field_of(item[0]) is not None
        return not usual, not usual and _dimension(store, item[0]) != band_scale, distance(home, item[0])

    for name, values in sorted(lists, key=rank):
        kind = _field_by_name_part(name)
        if len(values) == bands and kind is not None and kind not in found:
            found[kind] = values
            if kind == "wavelengths":
                found |= _units(store, name)
    if "wavelengths" not in found and band_scale and LENGTH_UNITS.match(units_text(store, band_scale)):
        values = store.small(band_scale)
        if isinstance(values, list) and len(values) == bands:
            found |= {"wavelengths": values} | _units(store, band_scale)
    return found


def misfits(lists: list[NamedList], bands: int) -> dict[str, Any]:
    """The fields per band in variables of usual names that have another length."""
    return attributes.misfits({name.rpartition("/")[2]: values for name, values in lists}, bands)


def _units(store: Store, name: str) -> dict[str, str]:
    text = units_text(store, name)
    return {"wavelength_units": text} if text else {}
