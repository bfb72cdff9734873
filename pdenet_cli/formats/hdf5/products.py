"""Products in HDF5 that are recognised by their groups: EMIT L2A, PRISMA L2D and NEON's reflectance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import sigmas
from pdenet_cli.formats.common.attributes import numbers
from pdenet_cli.formats.envi.header import EnviHeader
from pdenet_cli.formats.hdf5 import eos
from pdenet_cli.formats.hdf5.guard import GuardedArray, GuardedFile
from pdenet_cli.formats.labelled import swaths
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Sliceable


def is_emit(guarded: GuardedFile) -> bool:
    """Whether the file has EMIT's groups, with latitude and longitude of every pixel."""
    known = guarded.has("sensor_band_parameters") or guarded.attributes("").get("instrument") == "EMIT"
    return known and guarded.has("location/lat") and guarded.has("location/lon")


def place_emit(guarded: GuardedFile, meta: CubeMeta) -> CubeMeta:
    """The same cube, georeferenced by control points from EMIT's latitudes and longitudes."""
    lat, lon = "location/lat", "location/lon"
    if any(guarded.array(name).shape != (meta.rows, meta.columns) for name in (lat, lon)):
        return meta
    ortho = ("geotransform", "spatial_ref")  # those of the orthorectified grid, not of these pixels
    kept = {name: value for name, value in meta.extra.items() if name not in ortho}
    return swaths.placed(guarded, replace(meta, extra=kept), lat, lon)


def variable(guarded: GuardedFile, asked: str | None) -> str | None:
    """The full name of the dataset asked for, of which the last part is enough where only one has it.

    Where none is asked for, that of a product whose cube its own names tell; else None.
    """
    if asked is None:
        return eos.tanager_variable(guarded)
    if "/" in asked or guarded.has(asked):
        return asked
    full = [dataset.name for dataset in guarded.datasets() if dataset.name.rpartition("/")[2] == asked]
    return full[0] if len(full) == 1 else asked


def named(guarded: GuardedFile, meta: CubeMeta) -> CubeMeta:
    """The metadata with the name of the product, and with EMIT's 1-sigma where its file lies beside this one."""
    product = eos.tanager_product(meta.variable) or next(
        (name for name, recognises in PRODUCTS.items() if recognises(guarded, meta)), None
    )
    sigma = meta.sigma or (sigmas.file_beside(guarded.path) if is_emit(guarded) else None)
    if meta.variable is not None and sigmas.is_sigma(meta.variable):
        product = f"{product}: 1-sigma" if product else None
        meta = meta.noting(f"{meta.variable} holds the product's standard deviations (1-sigma), not its values")
    return replace(meta, product=product, sigma=sigma)


NEON_CUBE, NEON_SYSTEM = "Reflectance_Data", "Metadata/Coordinate_System"


def place_neon(guarded: GuardedFile, meta: CubeMeta) -> CubeMeta:
    """A NEON cube georeferenced by the map info in a dataset near it; any other cube unchanged."""
    group, _, name = (meta.variable or "").rpartition("/")
    map_info = guarded.text(f"{group}/{NEON_SYSTEM}/Map_Info") if name == NEON_CUBE else None
    if map_info is None:
        return meta
    code = guarded.text(f"{group}/{NEON_SYSTEM}/EPSG Code") or ""
    try:
        place = EnviHeader(guarded.path, {"map info": map_info}).georeference()
    except ValueError:
        place = Georeference()
    if place.transform is None:
        meta = meta.noting(f"{NEON_SYSTEM}/Map_Info is not understood: {map_info[:60]}")
    else:
        place = replace(place, crs=f"EPSG:{int(code)}") if code.isdecimal() else place
        meta = replace(meta, georeference=place).noting(f"georeferenced by {NEON_SYSTEM}/Map_Info")
    scale = numbers(meta.extra.get("Scale_Factor"))
    return replace(
        meta,
        wavelength_units=meta.wavelength_units or "Nanometers",
        reflectance_scale=meta.reflectance_scale or (scale[0] if scale and scale[0] > 1 else None),
        extra={n: v for n, v in meta.extra.items() if n not in ("Scale_Factor", "Spatial_Resolution_X_Y")},
    )


PRISMA_FIELDS = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"
PRISMA_PARTS = ("Vnir", "Swir")
PRISMA_METRES = 30.0  # pixel size
LARGEST_NUMBER = 65535  # means L2Scale...Max, as 0 means L2Scale...Min


@dataclass(frozen=True)
class SortedBands:
    """A view of bands of several (rows, bands, columns) arrays in one order."""

    sources: Sequence[GuardedArray]
    order: Sequence[tuple[int, int]]  # for each band: index of its array, band there

    @property
    def shape(self) -> tuple[int, ...]:
        rows, _, columns = self.sources[0].shape
        return rows, len(self.order), columns

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        rows, bands, columns = key
        chosen = self.order[bands]
        height, width = len(range(self.shape[0])[rows]), len(range(self.shape[2])[columns])
        part = np.empty((height, len(chosen), width), self.sources[0].dataset.dtype)
        for number, source in enumerate(self.sources):
            places = [(at, band) for at, (of_source, band) in enumerate(chosen) if of_source == number]
            if places:
                first, last = min(b for _, b in places), max(b for _, b in places)
                block = source[rows, slice(first, last + 1), columns]
                part[:, [at for at, _ in places]] = block[:, [band - first for _, band in places]]
        return part


def prisma_parts(guarded: GuardedFile, asked: str | None) -> tuple[str, ...] | None:
    """The parts of a PRISMA L2D cube that are wanted: both, or the one asked for; None for anything else."""
    cubes = {f"{PRISMA_FIELDS}/{part.upper()}_Cube": part for part in PRISMA_PARTS}
    if not all(map(guarded.has, cubes)):
        return None
    if asked is None:
        return PRISMA_PARTS
    part = cubes.get(asked.strip("/"))
    return None if part is None else (part,)


def read_prisma(guarded: GuardedFile, parts: Sequence[str]) -> tuple[CubeMeta, Sliceable, str]:
    """VNIR, SWIR or both as one cube by ascending wavelength; bands without a centre are left out."""
    attrs = guarded.attributes("")
    sources, table = [], []
    for number, part in enumerate(parts):
        source = guarded.array(f"{PRISMA_FIELDS}/{part.upper()}_Cube")
        if len(source.shape) != 3:
            raise FormatError(f"{guarded.path}: {part.upper()}_Cube has the shape {source.shape}.")
        sources.append(source)
        centres, widths = (
            _list(guarded, attrs, f"List_{name}_{part}", source.shape[1]) for name in ("Cw", "Fwhm")
        )
        low, high = (_number(guarded, attrs, f"L2Scale{part}{end}") for end in ("Min", "Max"))
        gain = (high - low) / LARGEST_NUMBER
        bands = enumerate(zip(centres, widths, strict=True))
        table += [(centre, width, gain, low, (number, band)) for band, (centre, width) in bands if centre > 0]
    if sources[0].shape[::2] != sources[-1].shape[::2]:
        raise FormatError(f"{guarded.path}: VNIR {sources[0].shape} and SWIR {sources[-1].shape} differ in size.")
    if not table:
        raise FormatError(f"{guarded.path}: no band has a centre wavelength.")
    wavelengths, fwhm, gains, offsets, order = zip(*sorted(table), strict=True)
    rows, _, columns = sources[0].shape
    used = ("List_", "L2Scale", "Epsg_Code")
    meta = CubeMeta(
        bands=len(order),
        rows=rows,
        columns=columns,
        dtype=np.dtype(sources[0].dataset.dtype.str),
        interleave="bil",
        wavelengths=wavelengths,
        wavelength_units="Nanometers",
        fwhm=fwhm,
        gains=gains,
        offsets=offsets,
        nodata=0.0,
        georeference=_prisma_place(attrs, rows, columns),
        extra={n: v for n, v in attrs.items() if not n.startswith(used) and not _is_long(v)},
        notes=(
            *(("VNIR and SWIR joined by ascending wavelength, overlapping bands kept",) if len(parts) > 1 else ()),
            "0 read as nodata, which PRISMA uses for unseen pixels",
        ),
    )
    return meta, SortedBands(sources, order), "rbc"


def _prisma_place(attrs: dict[str, Any], rows: int, columns: int) -> Georeference:
    names = [f"Product_{corner}corner_{axis}" for corner in ("UL", "LR") for axis in ("easting", "northing")]
    corners = [numbers(attrs.get(name)) for name in names]
    code = numbers(attrs.get("Epsg_Code"))
    system = f"EPSG:{int(code[0])}" if code else None
    if any(corner is None for corner in corners):
        return Georeference(crs=system)
    left, top, right, bottom = (corner[0] for corner in corners if corner)
    # Corners are those of the picture, or the centres of the corner pixels: its size shows which.
    centres = abs(right - left - PRISMA_METRES * (columns - 1)) < PRISMA_METRES / 2
    half = PRISMA_METRES / 2 if centres else 0.0
    width = (right - left + 2 * half) / columns
    height = (top - bottom + 2 * half) / rows
    return Georeference(transform=(left - half, width, 0.0, top + half, 0.0, -height), crs=system)


def _list(guarded: GuardedFile, attrs: dict[str, Any], name: str, length: int) -> tuple[float, ...]:
    found = numbers(attrs.get(name))
    if found is None or len(found) != length:
        problem = "is missing" if found is None else f"has {len(found)} entries for {length} bands"
        raise FormatError(f"{guarded.path}: a PRISMA product whose attribute {name} {problem}.")
    return found


def _number(guarded: GuardedFile, attrs: dict[str, Any], name: str) -> float:
    return _list(guarded, attrs, name, 1)[0]


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1000


PRODUCTS: dict[str, Callable[[GuardedFile, CubeMeta], bool]] = {
    "EMIT L2A": lambda guarded, meta: is_emit(guarded),
    "PRISMA L2D": lambda guarded, meta: guarded.has(PRISMA_FIELDS),
    "NEON surface reflectance": lambda guarded, meta: (meta.variable or "").endswith(f"/{NEON_CUBE}"),
    "PACE OCI": lambda guarded, meta: guarded.attributes("").get("instrument") == "OCI",
}
"""Products of HDF5 files by the name that `pdenet info` prints, and how each is recognised."""
