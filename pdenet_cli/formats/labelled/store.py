"""The common interface of HDF5, netCDF-4 and Zarr: named arrays with attributes, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.scene.sliceable import Sliceable


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
    """The unit of a variable; empty if it has none or does not exist."""
    try:
        return str(store.attributes(name).get("units", ""))
    except FormatError:
        return ""  # a dimension without a coordinate


def distance(a: str, b: str) -> int:
    """The number of steps between the groups of two variables."""
    first, second = a.split("/")[:-1], b.split("/")[:-1]
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    return len(first) + len(second) - 2 * common
