"""What HDF5, netCDF-4 and Zarr have in common: named arrays with attributes, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pdenet_cli.cube import Sliceable
from pdenet_cli.errors import FormatError
from pdenet_cli.formats.choosing import Variable


class Store(Protocol):
    """A file or folder of named arrays."""

    @property
    def path(self) -> Path: ...
    def variables(self) -> list[Variable]: ...
    def variable(self, name: str) -> Variable: ...
    def array(self, name: str) -> Sliceable: ...
    def attributes(self, name: str) -> dict[str, Any]: ...
    def dimensions(self, name: str) -> Sequence[str]: ...
    def small(self, name: str) -> Any: ...
    def fill(self, name: str) -> float | None: ...


def units_text(store: Store, name: str) -> str:
    """The unit that a variable names; nothing where it names none or is not there."""
    try:
        return str(store.attributes(name).get("units", ""))
    except FormatError:
        return ""  # the name of a dimension need not be that of a coordinate


def distance(a: str, b: str) -> int:
    """How many steps lead from the group of one variable to that of another."""
    here, there = a.split("/")[:-1], b.split("/")[:-1]
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    return len(here) + len(there) - 2 * common
