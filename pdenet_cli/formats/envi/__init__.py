"""ENVI: a block of numbers and a text header beside it. SPy writes the header."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from spectral.io import envi as spy

from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats.common import crs, geokeys
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.common.choosing import interleave, overridden
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.formats.common.regular import opened
from pdenet_cli.formats.envi.data_files import (
    DATA_SUFFIXES,
    HEAD_BYTES,
    data_beside,
    header_beside,
    in_the_way,
    is_esri_header,
    is_header,
)
from pdenet_cli.formats.envi.header import DTYPES, GEO_POINTS, OWN, RPC, UPSIDE_DOWN, EnviHeader
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.dtypes import as_stored
from pdenet_cli.scene.georeference import Georeference
from pdenet_cli.scene.meta import INTERLEAVES, CubeMeta

NAMED_WAVELENGTH = re.compile(r"(?P<name>.*?)\(?(?P<number>\d+(\.\d+)?)\s*([a-zµμ]+)?\)?\s*", re.IGNORECASE)


def _recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    return any(fits(head) or header_beside(path, fits) is not None for fits in (is_header, is_esri_header))


def _open(path: Path, options: OpenOptions) -> Cube:
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    given_header = is_header(head)
    header_path = path if given_header else header_beside(path)
    if header_path is None:
        data = data_beside(path) if is_esri_header(head) else path
        problem = "the header is one of ESRI's BIL, BIP and BSQ files, not of ENVI"
        raise FormatError(f"{path}: {problem}. Convert it: gdal_translate -of ENVI {data.name} new.img")
    header = EnviHeader.read(header_path)
    meta = header.meta()
    data_path = data_beside(header_path) if given_header else path
    offset = header.integer("header offset", 0)
    axes = options.axes or INTERLEAVES[meta.interleave]
    meta = replace(meta, interleave=interleave(axes)).noting(*overridden(axes, INTERLEAVES[meta.interleave]))
    array = RawArray(data_path, meta.dtype, meta.shape(axes), offset)
    held, needed = data_path.stat().st_size, offset + array.nbytes
    if held < needed:
        missing = f"header says {needed:,} bytes, data file has {held:,} ({needed - held:,} missing)"
        raise FormatError(f"{header_path}: {missing}. Copy {data_path.name} again.")
    if held > needed:
        meta = meta.noting(f"{held - needed:,} bytes after the pixels in {data_path.name} are ignored")
    return Cube(header_path, meta, array, axes, files=(header_path, data_path))


def _outputs(path: Path) -> tuple[Path, ...]:
    """Data, then header: `scene.hdr` has its data in `scene.img`, `scene.dat` its header in `scene.hdr`."""
    if path.suffix.lower() == ".hdr":
        return path.with_suffix(".img"), path
    return path, path.with_suffix(".hdr")


def _refuse(finals: tuple[Path, ...], meta: CubeMeta) -> None:
    data, header = finals
    if others := in_the_way(data, header):
        problem = f"{header.with_name(others[0].name)} would be read as a part of {header.name}"
        raise OutputError(f"{problem}. Remove it, or give the output another name.")
    _refuse_misplaced(header, meta)


def _code(meta: CubeMeta) -> int:
    codes = {kind: code for code, kind in DTYPES.items()}
    if meta.dtype.newbyteorder("=") not in codes:
        raise OutputError(f"ENVI cannot hold {meta.dtype.name}. Use `dtype` float32 or another format.")
    return codes[meta.dtype.newbyteorder("=")]


def _named(path: Path, meta: CubeMeta) -> CubeMeta:
    suffix = path.suffix.lower().removeprefix(".")
    return replace(meta, interleave=suffix) if suffix in INTERLEAVES else meta


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    data, header = parts
    fields = header_fields(meta, _code(meta))
    axes = INTERLEAVES[meta.interleave]
    array = RawArray(data, meta.dtype, meta.shape(axes))
    spy.write_envi_header(str(header), fields)
    array.reserve()
    return Cube(header, meta, array, axes)


def header_fields(meta: CubeMeta, code: int) -> dict[str, Any]:
    """The header fields of a cube, in ENVI's order and under its names."""
    big = meta.dtype.newbyteorder("=") != meta.dtype
    fields: dict[str, Any] = {
        "description": _unbraced(str(meta.extra.get("description", "")).strip("{} \n")),
        "samples": meta.columns,
        "lines": meta.rows,
        "bands": meta.bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": code,
        "interleave": meta.interleave,
        "byte order": int(big),
        "data ignore value": None if meta.nodata is None else _number(as_stored(meta.nodata, meta.dtype)),
        "reflectance scale factor": meta.reflectance_scale,
        "wavelength units": meta.wavelength_units and _plain(meta.wavelength_units),
        "wavelength": meta.wavelengths,
        "fwhm": meta.fwhm,
        "bbl": None if meta.good_bands is None else [int(good) for good in meta.good_bands],
        "band names": meta.band_names and [_plain(name).replace(",", " ") for name in _short_names(meta)],
        "default bands": meta.default_bands and [band + 1 for band in meta.default_bands],
        "data gain values": meta.gains,
        "data offset values": meta.offsets,
        **_map_fields(meta),
    }
    for name, value in meta.extra.items():
        field = _plain(name.replace("=", " ")).lower()
        # A "map info" that came with another format would be that of the coarse grid.
        if field not in OWN and field not in fields:
            fields[field] = _extra_text(value)
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _short_names(meta: CubeMeta) -> list[str]:
    """The band names without the wavelengths that some end with: readers of ENVI show these after the name."""
    names = list(meta.band_names or ())
    if meta.wavelengths is None:
        return names
    found = [NAMED_WAVELENGTH.fullmatch(name) for name in names]
    alike = (
        match is not None and math.isclose(float(match["number"]), wave, rel_tol=1e-3)
        for match, wave in zip(found, meta.wavelengths, strict=True)
    )
    if not all(alike):
        return names
    short = [match["name"].rstrip(" ,:(-") or "Band" for match in found if match]
    return short if len({*short}) == len(short) else [f"{name} {i}" for i, name in enumerate(short, start=1)]


def _map_fields(meta: CubeMeta) -> dict[str, Any]:
    where = meta.georeference
    # An ENVI scene keeps its own text; for others, the coordinate system is converted to ENVI's.
    wkt = where.native.get("wkt") if "map info" in where.native else _plain(crs.esri_wkt(where.crs) or "")
    fields = {"coordinate system string": f"{{{wkt}}}" if wkt else None}
    if where.transform is not None:
        fields["map info"] = _map_info(where, wkt)
    system = crs.parsed(where.crs)
    stored = any(name.lower() == GEO_POINTS for name in meta.extra)
    if where.points and not stored and system is not None and system.is_geographic:
        # ENVI counts pixel corners from 1, and names the latitude first.
        points = (", ".join(repr(float(v)) for v in (p.column + 1, p.row + 1, p.y, p.x)) for p in where.points)
        fields[GEO_POINTS] = "{" + ",\n ".join(points) + "}"
    if numbers := geokeys.rpc_numbers(where.rpc):
        # The last three mean: not cut out of a larger scene, and not emulated.
        fields[RPC] = "{" + ",\n ".join(map(repr, (*numbers, 0, 0, 0))) + "}"
    return fields


def _map_info(where: Georeference, wkt: str | None) -> str:
    """The place, pixel size and rotation of a grid as ENVI's map info."""
    assert where.transform is not None
    projection, tail = where.native.get("map info") or crs.to_map_info(where.crs)
    _, xc, xr, _, yc, yr = where.transform
    mirrored = xc * yr > xr * yc
    angle = UPSIDE_DOWN if mirrored else math.degrees(math.atan2(xr, xc))
    turned = (f"rotation={angle!r}",) if angle else ()
    # GDAL rotates only about the first corner, so a rotated scene has its tie point there.
    column, row = (0.0, 0.0) if turned else where.anchor
    unit = 1.0 if wkt else crs.map_unit(projection, tail)
    ground = [*where.ground(column, row), math.hypot(xc, xr), math.hypot(yc, yr)]
    if unit != 1:
        ground = [float(f"{v / unit:.15g}") for v in ground]  # reading may have changed the last bit
    tie = (column + 1, row + 1, *ground)
    return "{" + ", ".join((_plain(projection), *(repr(float(v)) for v in tie), *tail, *turned)) + "}"


def _refuse_misplaced(path: Path, meta: CubeMeta) -> None:
    """Stop before anything is written if the header cannot hold the georeference of the scene."""
    fields = header_fields(meta, _code(meta))
    where = meta.georeference
    if where.transform is not None:
        place = {n: str(v) for n, v in fields.items() if n in ("map info", "coordinate system string")}
        again = EnviHeader(path, place).georeference()
        _, xc, xr, _, yc, yr = where.transform
        allowed = 1e-3 * min(math.hypot(xc, yc), math.hypot(xr, yr))  # a thousandth of a pixel
        for corner in ((0, 0), (meta.columns, 0), (0, meta.rows)):
            if not math.dist(where.ground(*corner), again.ground(*corner)) <= allowed:
                problem = "ENVI's map info cannot hold a grid that is mirrored, sheared or turned like this"
                raise OutputError(f"{path}: {problem}. Write a .tif instead.")
    elif where.points and GEO_POINTS not in fields:
        problem = "ENVI holds ground control points only in latitude and longitude"
        raise OutputError(f"{path}: {problem}. Write a .tif instead.")


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def _plain(text: object) -> str:
    return " ".join(_unbraced(str(text)).split())


def _unbraced(text: str) -> str:
    # A brace would end the field, and the next lines would be read as fields.
    return text.replace("{", "(").replace("}", ")")


def _extra_text(value: Any) -> Any:
    if isinstance(value, str):
        braced = value.startswith("{") and value.endswith("}") and value.count("{") == value.count("}") == 1
        if braced:
            return value
        return f"{{{_plain(value)}}}" if "\n" in value else _plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item).replace(",", " ") for item in value]
    return _plain(value)


FORMAT = Format(
    name="ENVI",
    suffixes=(".hdr", *DATA_SUFFIXES),
    recognises=_recognises,
    open=_open,
    create=_create,
    outputs=_outputs,
    refuse=_refuse,
    named=_named,
)
