"""HDF5 files that may be hostile: nothing is followed out of the file, and no impossible size is believed.

A dataset may store its numbers in another file of the machine (external storage, virtual datasets, external
links), and h5py would read them. All reading of HDF5 in pdenet goes through this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.common.limits import refuse_impossible_size, refuse_large_block
from pdenet_cli.formats.hdf5.chunks import Chunks
from pdenet_cli.formats.hdf5.heap import refuse_damaged_heaps
from pdenet_cli.scene.cube import Pixels

SIGNATURE = b"\x89HDF\r\n\x1a\n"
DEEPEST = 12  # levels of groups
MOST_OBJECTS = 20_000
MOST_LINKS = 8  # soft links in a row
SMALL_BYTES = 1 << 20  # attributes and datasets up to this size may be read as metadata
NETCDF_BYTE_FILLS = (-127, 255)  # netCDF's default fill values of single bytes
READABLE = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM)


def is_hdf5(head: bytes) -> bool:
    """Whether there is an HDF5 signature, at the start or after a user block."""
    return any(head[at : at + 8] == SIGNATURE for at in (0, 512, 1024, 2048))


@dataclass(frozen=True)
class GuardedArray:
    """A dataset that raises a FormatError for damaged parts."""

    path: Path
    dataset: h5py.Dataset

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.shape)

    @property
    def block(self) -> tuple[int, ...] | None:
        return None if self.dataset.chunks is None else tuple(self.dataset.chunks)

    @property
    def strided(self) -> bool:
        return self.dataset.chunks is None

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        try:
            if self.dataset.chunks is None:
                return np.asarray(self.dataset[key])
            return Chunks(self.path, self.dataset).read(key or (slice(None),) * self.dataset.ndim)
        except (OSError, RuntimeError, ValueError) as error:
            if not self.dataset:
                raise FormatError(f"{self.path}: read after it was closed.") from error
            reason = " ".join(str(error).split())[:200]
            raise FormatError(f"{self.path}: {self.dataset.name} is damaged there ({reason}).") from error


@dataclass(frozen=True)
class GuardedFile:
    """An open HDF5 file and its path, for the messages."""

    path: Path
    file: h5py.File

    @classmethod
    def open(cls, path: Path) -> GuardedFile:
        refuse_damaged_heaps(path)
        try:
            return cls(path, h5py.File(path, "r", locking="best-effort"))
        except OSError as error:
            reason = " ".join(str(error).split())[:200]
            raise FormatError(f"{path}: a damaged HDF5 file ({reason}). Copy it again.") from error

    def datasets(self) -> Iterator[h5py.Dataset]:
        """Every dataset in this file, once, found by hard links only."""
        seen: set[Any] = set()
        groups: list[tuple[h5py.Group, int]] = [(self.file, 0)]
        while groups:
            group, depth = groups.pop(0)
            for name in group:
                if _link(group, name) != h5py.h5l.TYPE_HARD:
                    continue
                child = self._child(group, name)
                address = None if child is None else h5py.h5o.get_info(child.id).addr
                if address is None or address in seen:
                    continue
                seen.add(address)
                if len(seen) > MOST_OBJECTS:
                    raise FormatError(
                        f"{self.path}: more than {MOST_OBJECTS:,} objects to look through. Use `variable`."
                    )
                if isinstance(child, h5py.Dataset):
                    yield child
                elif isinstance(child, h5py.Group) and depth < DEEPEST:
                    groups.append((child, depth + 1))

    def variables(self) -> list[Variable]:
        """The datasets by name, shape and type, and links of the root group to other files."""
        found = [_variable(dataset) for dataset in self.datasets() if dataset.shape is not None]
        outside = [name for name in self.file if _link(self.file, name) == h5py.h5l.TYPE_EXTERNAL]
        return found + [Variable(f"{name}, a link to another file", (), None) for name in outside]

    def variable(self, name: str) -> Variable:
        return _variable(self.at(name))

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of a dataset or a group."""
        found = self._walk(self.file, name, MOST_LINKS)
        return {} if found is None else attributes(found)

    def dimensions(self, name: str) -> list[str]:
        """The names of the axes: their dimension scales, else their labels, else empty."""
        dataset, names = self.at(name), []
        # The library believes these attributes whatever their type, and crashes.
        scaled = _is_attribute(dataset, b"DIMENSION_LIST", h5py.h5t.VLEN, h5py.h5t.REFERENCE)
        labelled = _is_attribute(dataset, b"DIMENSION_LABELS", h5py.h5t.STRING)
        for axis in range(dataset.ndim):
            try:
                scales = dataset.dims[axis]
                attached = scaled and len(scales)
                names.append(scales[0].name.lstrip("/") if attached else str(scales.label) if labelled else "")
            except (OSError, RuntimeError, ValueError, AttributeError, KeyError):
                names.append("")
        return names

    def at(self, name: str) -> h5py.Dataset:
        """The dataset of this name; soft links are followed inside the file, others never."""
        found = self._walk(self.file, name, MOST_LINKS)
        if not isinstance(found, h5py.Dataset) or found.shape is None:
            raise FormatError(f"{self.path}: {name} is not a dataset.")
        return found

    def fill(self, name: str) -> float | None:
        """The fill value of the dataset, if it was set explicitly."""
        dataset = self.at(name)
        chosen = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        if not chosen or dataset.dtype.kind not in "iuf":
            return None
        value = float(dataset.fillvalue)
        # netCDF sets one for every variable, and that of a single byte may be data.
        return None if dataset.dtype.itemsize == 1 and value in NETCDF_BYTE_FILLS else value

    def has(self, name: str) -> bool:
        """Whether there is a dataset or group of this name, in this file."""
        try:
            return self._walk(self.file, name, MOST_LINKS) is not None
        except FormatError:
            return False

    def _walk(self, start: h5py.Group, name: str, links: int) -> Any:
        place: Any = self.file if name.startswith("/") else start
        for step in filter(None, name.split("/")):
            kind = _link(place, step) if isinstance(place, h5py.Group) else None
            if kind == h5py.h5l.TYPE_EXTERNAL:
                raise FormatError(f"{self.path}: {name} is a link to another file, which is not followed.")
            if kind == h5py.h5l.TYPE_SOFT:
                if not links:
                    raise FormatError(f"{self.path}: {name} is a link that leads in circles.")
                place = self._walk(place, place.id.links.get_val(step.encode()).decode(), links - 1)
            elif kind == h5py.h5l.TYPE_HARD:
                place = self._child(place, step)
            else:
                raise FormatError(f"{self.path}: no dataset '{name}'.")
        return place

    def _child(self, group: h5py.Group, name: str) -> Any:
        try:
            return group[name]
        except (KeyError, OSError, RuntimeError, ValueError, TypeError):
            return None  # a damaged object, which is no reason to lose the others

    def array(self, name: str) -> GuardedArray:
        """The pixels of a dataset, if they are in this file and can be read in parts."""
        dataset = self.at(name)
        self.trust(dataset)
        return GuardedArray(self.path, dataset)

    def trust(self, dataset: h5py.Dataset) -> None:
        """Stop unless the dataset's numbers are in this file, complete, and can be decoded."""
        name = dataset.name
        if dataset.external:
            raise FormatError(f"{self.path}: {name} stores its values in another file, which is not read.")
        if dataset.is_virtual:
            raise FormatError(f"{self.path}: {name} is a virtual dataset over other files, which are not read.")
        kind = number_type(dataset)
        if kind is None:
            raise FormatError(f"{self.path}: {name} does not hold plain numeric values ({dataset.dtype}).")
        plan = dataset.id.get_create_plist()
        for place in range(plan.get_nfilters()):
            code, _, _, filter_name = plan.get_filter(place)
            if not h5py.h5z.filter_avail(code):
                text = (filter_name or b"").decode("latin-1").strip() or "unknown"
                raise FormatError(
                    f"{self.path}: {name} uses the HDF5 filter {code} ({text[:60]}), "
                    "which is not installed. Repack it with h5repack -f GZIP=4."
                )
        size = self.path.stat().st_size
        if dataset.size and not dataset.id.get_storage_size():
            raise FormatError(f"{self.path}: {name} declares the shape {dataset.shape} but holds no values.")
        sparse = dataset.chunks is not None
        refuse_impossible_size(self.path, name, tuple(dataset.shape), kind.itemsize, size, sparse=sparse)
        offset = dataset.id.get_offset()
        if offset is not None and offset + math.prod(dataset.shape) * kind.itemsize > size:
            raise FormatError(f"{self.path}: {name} runs past the end of the file. Copy it again.")
        if dataset.chunks:
            refuse_large_block(self.path, name, math.prod(dataset.chunks) * kind.itemsize, size)

    def small(self, name: str) -> Any:
        """A small dataset as a number, a text or a list; None if it is large, empty or not there."""
        if not self.has(name):
            return None
        dataset = self.at(name)
        shape, kind = dataset.shape, number_type(dataset)
        if shape is None or kind is None or math.prod(shape) * kind.itemsize > SMALL_BYTES:
            return None
        if dataset.id.get_storage_size() == 0 and not dataset.external and not dataset.is_virtual:
            return None  # a netCDF dimension without a coordinate
        self.trust(dataset)
        return plain(GuardedArray(self.path, dataset)[()])

    def text(self, name: str) -> str | None:
        """A dataset that is one short text; None if it is anything else or not there."""
        if not self.has(name):
            return None
        try:
            dataset = self.at(name)
            single = dataset.size == 1 and h5py.check_string_dtype(dataset.dtype) is not None
            packed = dataset.id.get_create_plist().get_nfilters() > 0  # by the library, to whatever size it takes
            refused = packed or dataset.external or dataset.is_virtual
            if not single or refused or dataset.dtype.itemsize > SMALL_BYTES:
                return None
            value = plain(dataset[()])
        except (OSError, RuntimeError, ValueError, TypeError):
            return None
        value = value[0] if isinstance(value, list) else value
        return value if isinstance(value, str) and len(value) <= SMALL_BYTES else None


def _variable(dataset: h5py.Dataset) -> Variable:
    name, shape = dataset.name.lstrip("/"), tuple(dataset.shape)
    return Variable(name, shape, number_type(dataset), is_complex=is_complex(dataset))


def _link(group: h5py.Group, name: str) -> int | None:
    """The type of a link; h5py's `in` and `get` would follow it."""
    try:
        kind: int = group.id.links.get_info(name.encode()).type
    except (KeyError, RuntimeError, ValueError):
        return None
    return kind


def _is_attribute(dataset: h5py.Dataset, name: bytes, kind: int, inner: int | None = None) -> bool:
    """Whether a dataset has an attribute of this type, of one entry per axis."""
    if not h5py.h5a.exists(dataset.id, name):
        return False
    about = h5py.h5a.open(dataset.id, name)
    of = about.get_type()
    fits = of.get_class() == kind and (inner is None or of.get_super().get_class() == inner)
    return bool(fits and about.shape == (dataset.ndim,))


def number_type(dataset: h5py.Dataset) -> np.dtype[Any] | None:
    """The type of a dataset's numbers, None where it holds something else."""
    kind = _stored_type(dataset)
    if kind is None:
        return None
    if kind.kind == "b":
        return np.dtype("u1")
    return np.dtype(kind.str) if kind.kind in "iuf" and kind.itemsize <= 8 else None


def is_complex(dataset: h5py.Dataset) -> bool:
    """Whether a dataset holds complex numbers, as h5py or as MATLAB stores them."""
    kind = _stored_type(dataset)
    return kind is not None and (kind.kind == "c" or kind.names == ("real", "imag"))


def _stored_type(dataset: h5py.Dataset) -> np.dtype[Any] | None:
    """The type of what a dataset holds, None where NumPy has no such type."""
    try:
        kind: np.dtype[Any] = dataset.dtype
    except (TypeError, ValueError, OSError):
        return None
    return kind


def attributes(thing: h5py.Dataset | h5py.Group) -> dict[str, Any]:
    """The attributes as texts, numbers and lists; references and large ones are left out."""
    found: dict[str, Any] = {}
    for name in thing.attrs:
        try:
            about = h5py.h5a.open(thing.id, name.encode())
            kind = about.get_type()
            # References and structures are of no use here, and damaged ones crash the library.
            if kind.get_class() in READABLE and math.prod(about.shape) * kind.get_size() <= SMALL_BYTES:
                found[name] = plain(thing.attrs[name])
        except (OSError, TypeError, ValueError, KeyError, RuntimeError, AttributeError):
            continue
    return {name: value for name, value in found.items() if value is not None}


def plain(value: Any) -> Any:
    """A value of h5py as plain Python: text, number or a list of either; None for anything else."""
    if isinstance(value, bytes):
        return value.rstrip(b"\0").decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "biuf":
        return array.ravel().tolist() if array.ndim else array.item()
    if array.dtype.kind in "SUO":
        texts = [plain(item) for item in array.ravel()]
        return texts if all(isinstance(text, str) for text in texts) else None
    return None
