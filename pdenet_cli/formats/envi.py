"""ENVI: a block of numbers and a text header beside it.

The header is read by our own few lines, because SPy stops at a byte-order mark, at an unknown data type and
at what other tools leave out; it is written by SPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spectral.io import envi as spy

from pdenet_cli.cube import INTERLEAVES, Cube, CubeMeta
from pdenet_cli.errors import FormatError, OutputError
from pdenet_cli.formats import crs
from pdenet_cli.formats.base import Format, OpenOptions
from pdenet_cli.formats.raw import RawArray
from pdenet_cli.georeference import Georeference

DTYPES = {int(code): np.dtype(kind) for code, kind in spy.dtype_map}
DATA_SUFFIXES = (".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", ".cube")
NOT_DATA = {".hdr", ".xml", ".txt", ".json", ".png", ".jpg", ".csv", ".sta", ".enp", ".partial", ".ovr"}
NOT_DATA |= {".tif", ".tiff"}  # DESIS keeps an ENVI header beside its TIFF
MAX_HEADER_BYTES = 64 << 20

# What the header says about the layout of this one file: never carried over to another.
LAYOUT = {"samples", "lines", "bands", "data type", "interleave", "byte order", "header offset", "file type"}
LAYOUT |= {"file compression", "major frame offsets", "minor frame offsets"}


def _recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return False
    return _is_header(head) or _header_beside(path) is not None


def _is_header(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4].upper() == b"ENVI"


def _open(path: Path, options: OpenOptions) -> Cube:
    with path.open("rb") as file:
        is_header = _is_header(file.read(64))
    header_path = path if is_header else _header_beside(path)
    assert header_path is not None
    header = Header.read(header_path)
    meta = header.meta()
    data_path = _data_beside(header_path) if is_header else path
    offset = header.integer("header offset", 0)
    axes = options.axes or INTERLEAVES[meta.interleave]
    array = RawArray(data_path, meta.dtype, meta.shape(axes), offset)
    there, needed = data_path.stat().st_size, offset + array.nbytes
    if there < needed:
        missing = f"header says {needed:,} bytes, data file has {there:,} ({needed - there:,} missing)"
        raise FormatError(f"{header_path}: {missing}. Copy {data_path.name} again.")
    if there > needed:
        meta = meta.noting(f"{there - needed:,} bytes behind the pixels in {data_path.name} are ignored")
    return Cube(header_path, meta, array, axes, files=(header_path, data_path))


def _header_beside(data: Path) -> Path | None:
    """The header of a data file: `scene.hdr` or `scene.img.hdr`, in any case."""
    wanted = {f"{data.stem}.hdr".lower(), f"{data.name}.hdr".lower()}
    for other in _neighbours(data):
        if other.name.lower() in wanted and other != data:
            with other.open("rb") as file:
                if _is_header(file.read(64)):
                    return other
    return None


def _data_beside(header: Path) -> Path:
    """The data file of a header: its name without `.hdr`, or the same stem with another suffix."""
    stem = header.stem
    same = [p for p in _neighbours(header) if p != header and stem in (p.name, p.stem)]
    found = [p for p in same if p.suffix.lower() not in NOT_DATA]
    order = {suffix: place for place, suffix in enumerate(("", *DATA_SUFFIXES))}
    found.sort(key=lambda p: (p.name != stem, order.get(p.suffix.lower(), len(order)), p.name))
    if not found:
        raise FormatError(f"{header}: its data file ({stem}, {stem}.img, ...) is not beside it.")
    return found[0]


def _neighbours(path: Path) -> list[Path]:
    return sorted(p for p in path.absolute().parent.iterdir() if p.is_file())


@dataclass(frozen=True)
class Header:
    """The fields of an ENVI header: lower-case names, values as text, lists still in their braces."""

    path: Path
    fields: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Header:
        """The header in `path` as real tools write it: any line ends, any case, comments, a BOM."""
        if path.stat().st_size > MAX_HEADER_BYTES:
            raise FormatError(f"{path}: {path.stat().st_size:,} bytes are too many for an ENVI header.")
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode("latin-1")
        fields: dict[str, str] = {}
        lines = iter(text.splitlines()[1:])
        for line in lines:
            name, equals, value = line.partition("=")
            if not equals or line.lstrip().startswith(";"):
                continue
            value = value.strip()
            if value.startswith("{"):
                rest = [value]
                while "}" not in rest[-1]:
                    try:
                        rest.append(next(lines))
                    except StopIteration:
                        raise FormatError(
                            f"{path}: '{name.strip()}' opens a brace and never closes it."
                        ) from None
                value = "\n".join(rest).strip()
            fields[name.strip().lower()] = value
        return cls(path, fields)

    def meta(self) -> CubeMeta:
        """All that the header says of its cube; what cannot be trusted is refused or noted."""
        kind = self.fields.get("file type", "").lower()
        if "spectral library" in kind:
            raise FormatError(f"{self.path}: a spectral library, not a cube.")
        if self.fields.get("file compression", "0").strip() not in ("0", ""):
            raise FormatError(f"{self.path}: compressed ENVI data are not read. Save it uncompressed.")
        if any(float(x) for name in ("major", "minor") for x in self.numbers(f"{name} frame offsets") or ()):
            raise FormatError(f"{self.path}: frame offsets are not read. Save it as plain ENVI.")
        interleave = self.fields.get("interleave", "bsq").strip().lower()
        if interleave not in INTERLEAVES:
            raise FormatError(f"{self.path}: interleave '{interleave}' is not bsq, bil or bip.")
        defaults = self.numbers("default bands")
        good = self.numbers("bbl")
        bands = self.size("bands")
        known = LAYOUT | KNOWN
        notes = () if "byte order" in self.fields else ("no byte order in the header: little-endian assumed",)
        scale = self.number("reflectance scale factor")
        return CubeMeta(
            bands=bands,
            rows=self.size("lines"),
            columns=self.size("samples"),
            dtype=self.dtype(),
            interleave=interleave,
            wavelengths=self.numbers("wavelength"),
            wavelength_units=self.fields.get("wavelength units"),
            fwhm=self.numbers("fwhm"),
            good_bands=None if good is None else tuple(g != 0 for g in good),
            band_names=self.items("band names"),
            default_bands=_zero_based(defaults, bands),
            nodata=self.number("data ignore value"),
            reflectance_scale=scale if scale else None,
            gains=self.numbers("data gain values"),
            offsets=self.numbers("data offset values"),
            georeference=self.georeference(),
            extra={name: value for name, value in self.fields.items() if name not in known},
            notes=notes,
        )

    def dtype(self) -> np.dtype[Any]:
        code = self.integer("data type", None)
        if code not in DTYPES:
            raise FormatError(
                f"{self.path}: data type {code} is none of ENVI's ({', '.join(map(str, DTYPES))})."
            )
        order = self.integer("byte order", 0)
        if order not in (0, 1):
            raise FormatError(f"{self.path}: byte order {order} is neither 0 (little) nor 1 (big).")
        kind: np.dtype[Any] = DTYPES[code]
        return kind.newbyteorder(">" if order else "<")

    def georeference(self) -> Georeference:
        items = self.items("map info")
        system = self.fields.get("coordinate system string", "").strip("{} \t\r\n") or None
        if items is None or len(items) < 7:
            return Georeference(crs=system)
        try:
            column, row, x, y, width, height = (float(item) for item in items[1:7])
        except ValueError:
            return Georeference(crs=system, native={"map info": (items[0], items[7:])})
        rotation = next((t.partition("=")[2] for t in items[7:] if t.lower().startswith("rotation")), "0")
        angle = math.radians(float(rotation))
        cos, sin = math.cos(angle), math.sin(angle)
        xc, xr, yc, yr = width * cos, width * sin, height * sin, -height * cos
        column, row = column - 1, row - 1  # the header counts pixel corners from 1
        tail = tuple(t for t in items[7:] if not t.lower().startswith("rotation"))
        return Georeference(
            transform=(x - xc * column - xr * row, xc, xr, y - yc * column - yr * row, yc, yr),
            crs=system or crs.from_map_info(items[0], tail),
            anchor=(column, row),
            native={"map info": (items[0], tail)} | ({"wkt": system} if system else {}),
        )

    def size(self, name: str) -> int:
        value = self.integer(name, None)
        if value < 1:
            raise FormatError(f"{self.path}: '{name} = {value}' is not a size.")
        return value

    def integer(self, name: str, default: int | None) -> int:
        text = self.fields.get(name, "").strip()
        if not text and default is not None:
            return default
        try:
            value = int(text)
        except ValueError:
            met = f"'{name} = {text}' is not a whole number" if text else f"the header has no '{name}'"
            raise FormatError(f"{self.path}: {met}.") from None
        if value < 0:
            raise FormatError(f"{self.path}: '{name} = {text}' is negative.")
        return value

    def number(self, name: str) -> float | None:
        try:
            return float(self.fields[name].strip("{} \t"))
        except (KeyError, ValueError):
            return None

    def items(self, name: str) -> tuple[str, ...] | None:
        text = self.fields.get(name, "").strip()
        if not text:
            return None
        return tuple(" ".join(item.split()) for item in text.strip("{}").split(",") if item.strip())

    def numbers(self, name: str) -> tuple[float, ...] | None:
        items = self.items(name)
        try:
            return None if items is None else tuple(float(item) for item in items)
        except ValueError:
            return None


KNOWN = {"wavelength", "wavelength units", "fwhm", "bbl", "band names", "default bands", "data ignore value"}
KNOWN |= {"reflectance scale factor", "data gain values", "data offset values"}
KNOWN |= {"map info", "coordinate system string"}


def _zero_based(bands: tuple[float, ...] | None, count: int) -> tuple[int, ...] | None:
    if bands is None or not all(1 <= b <= count for b in bands):
        return None
    return tuple(int(b) - 1 for b in bands)


def _outputs(path: Path) -> tuple[Path, ...]:
    """Data, then header: `scene.hdr` has its data in `scene.img`, `scene.dat` its header in `scene.hdr`."""
    if path.suffix.lower() == ".hdr":
        return path.with_suffix(".img"), path
    return path, path.with_suffix(".hdr")


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    data, header = parts
    codes = {kind: code for code, kind in DTYPES.items()}
    if meta.dtype.newbyteorder("=") not in codes:
        raise OutputError(f"ENVI cannot hold {meta.dtype.name}. Use --dtype float32 or another format.")
    code = codes[meta.dtype.newbyteorder("=")]
    axes = INTERLEAVES[meta.interleave]
    array = RawArray(data, meta.dtype, meta.shape(axes))
    spy.write_envi_header(str(header), header_fields(meta, code))
    array.reserve()
    return Cube(header, meta, array, axes)


def header_fields(meta: CubeMeta, code: int) -> dict[str, Any]:
    """The header of a cube, in the order and the words of ENVI."""
    big = meta.dtype.newbyteorder("=") != meta.dtype
    fields: dict[str, Any] = {
        "description": str(meta.extra.get("description", "")).strip("{} \n"),
        "samples": meta.columns,
        "lines": meta.rows,
        "bands": meta.bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": code,
        "interleave": meta.interleave,
        "byte order": int(big),
        "data ignore value": None if meta.nodata is None else _number(meta.nodata),
        "reflectance scale factor": meta.reflectance_scale,
        "wavelength units": meta.wavelength_units,
        "wavelength": meta.wavelengths,
        "fwhm": meta.fwhm,
        "bbl": None if meta.good_bands is None else [int(good) for good in meta.good_bands],
        "band names": meta.band_names and [_plain(name).replace(",", " ") for name in meta.band_names],
        "default bands": meta.default_bands and [band + 1 for band in meta.default_bands],
        "data gain values": meta.gains,
        "data offset values": meta.offsets,
        **_map_fields(meta.georeference),
    }
    for name, value in meta.extra.items():
        if name.lower() not in fields:
            fields[_plain(name).replace("=", " ").lower()] = _extra_text(value)
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _map_fields(where: Georeference) -> dict[str, Any]:
    # An ENVI scene keeps its own words; any other gets ENVI's words for its coordinate system.
    wkt = where.native.get("wkt") if "map info" in where.native else crs.esri_wkt(where.crs)
    fields = {"coordinate system string": f"{{{wkt}}}" if wkt else None}
    if where.transform is not None:
        projection, tail = where.native.get("map info") or crs.to_map_info(where.crs)
        _, xc, xr, _, yc, yr = where.transform
        angle = math.degrees(math.atan2(xr, xc))
        turned = (f"rotation={angle!r}",) if xr or yc else ()
        # GDAL does not turn a tie point that is not the first corner, so a turned scene is tied to that one.
        column, row = (0.0, 0.0) if turned else where.anchor
        tie = (column + 1, row + 1, *where.ground(column, row), math.hypot(xc, xr), math.hypot(yc, yr))
        fields["map info"] = "{" + ", ".join((projection, *(repr(v) for v in tie), *tail, *turned)) + "}"
    return fields


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def _plain(text: object) -> str:
    return " ".join(str(text).replace("{", "(").replace("}", ")").split())


def _extra_text(value: Any) -> Any:
    if isinstance(value, str):
        braced = value.startswith("{") and value.endswith("}") and value.count("{") == value.count("}") == 1
        if braced:
            return value
        return f"{{{_plain(value)}}}" if "\n" in value else _plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item).replace(",", " ") for item in value]
    return _plain(value)


FORMAT = Format("ENVI", (".hdr", *DATA_SUFFIXES), _recognises, _open, _create, _outputs)
