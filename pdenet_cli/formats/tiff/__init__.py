"""TIFF, GeoTIFF and BigTIFF: read as any tool writes them, written as a header and one plain block."""

from __future__ import annotations

import logging
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from defusedxml import ElementTree
from tifffile import TiffFile

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import geokeys
from pdenet_cli.formats.common.base import Format, OpenOptions
from pdenet_cli.formats.common.choosing import interleave, overridden
from pdenet_cli.formats.common.raw import RawArray
from pdenet_cli.formats.common.regular import opened, small_file
from pdenet_cli.formats.envi.header import EnviHeader
from pdenet_cli.formats.tiff import cog, gdal_metadata, products, tags
from pdenet_cli.formats.tiff.mask import AlphaPlane, MaskedArray, alpha_of, nodata_for
from pdenet_cli.formats.tiff.pages import check_structure, is_masked, mask_of, picture
from pdenet_cli.formats.tiff.pam import with_pam
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.georeference import Transform
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Sliceable

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
GDAL_METADATA, GDAL_NODATA = 42112, 42113
DESCRIPTIONS = {269: "TIFFTAG_DOCUMENTNAME", 270: "description", 306: "TIFFTAG_DATETIME"}
DESCRIPTIONS |= {315: "TIFFTAG_ARTIST", 33432: "TIFFTAG_COPYRIGHT"}
MAX_BESIDE_BYTES = 1 << 16  # read of a world file or .aux.xml
MAX_METADATA_BYTES = 16 << 20  # of a METADATA.XML of EnMAP, which has a few megabytes
PLACE_IN_XML = re.compile(rb"<(SRS|GeoTransform|GCPList)\b")
SPECTRAL = ("wavelengths", "wavelength_units", "fwhm", "good_bands", "gains", "offsets", "reflectance_scale")

# tifffile logs warnings, which Python prints unless logging is configured.
logging.getLogger("tifffile").addHandler(logging.NullHandler())


def _recognises(path: Path, head: bytes) -> bool:
    return head[:4] in MAGIC


def _open(path: Path, options: OpenOptions) -> Cube:
    check_structure(path)
    # OME-XML may refer to other files, and the other dialects rearrange pages.
    with TiffFile(path, is_ome=False, is_ndpi=False, is_lsm=False, is_scanimage=False) as file:
        found = picture(path, file)
        wanted = (*geokeys.TAGS, GDAL_METADATA, GDAL_NODATA, *DESCRIPTIONS)
        tags = {code: value for code in wanted if (value := found.page.tags.valueof(code)) is not None}
        real = found.array.dtype.kind in "iuf"
        mask = mask_of(path, file, found.page) if real else None
        alpha = alpha_of(found.array, found.axes, found.page) if real else None
        masked = is_masked(path, file)
        generated = found.page.is_imagej or found.page.is_shaped or found.page.is_ome
    axes = options.axes or found.axes
    sizes = dict(zip(axes, found.array.shape, strict=True))
    alpha, on_alpha = _believed(alpha) if axes == found.axes else (None, ())
    meta = CubeMeta(
        bands=sizes["b"] - (alpha is not None),
        rows=sizes["r"],
        columns=sizes["c"],
        dtype=found.array.dtype,
        interleave=interleave(axes),
        nodata=_nodata(tags.get(GDAL_NODATA)),
        georeference=geokeys.georeference(tags),
        notes=(*found.notes, *on_alpha, *(() if found.stacked else overridden(axes, found.axes))),
    )
    meta = _with_items(meta, tags)
    meta = replace(meta, extra=_texts(tags, generated=generated) | dict(meta.extra))
    if geokeys.is_unknown(meta.georeference):
        meta = meta.noting("the coordinate system of its geo keys is unknown: kept only in TIFF")
    meta, pam = with_pam(path, meta)
    array: Sliceable = found.array
    if (valid := mask or alpha) is not None:
        nodata, moved, note = nodata_for(meta.dtype, options.nodata, meta.nodata)
        bands = array.shape[found.axes.index("b")] - (alpha is not None)
        array = MaskedArray(array, found.axes, bands, valid, nodata, moved)
        meta = replace(meta, nodata=nodata).noting(note)
    elif masked:
        meta = meta.noting("the TIFF mask is ignored: masked pixels count as data unless they are nodata")
    meta, spectral = _with_neighbour(path, meta)
    meta, world = _with_world_file(path, meta)
    # tifffile writes an array of rows, columns and bands as one page per row.
    if found.stacked and options.axes is None and not _describes_bands(meta, tags):
        meta = meta.noting(f"its {meta.bands} pages are read as bands; use `axes` rcb if they are rows")
    return Cube(path, products.named(path, meta), array, axes, beside=(*pam, *spectral, *world))


def _texts(tags: dict[int, Any], *, generated: bool) -> dict[str, Any]:
    """The texts that describe an image, without a description that is `generated` by the program that wrote it."""
    texts = {name: tags[c] for c, name in DESCRIPTIONS.items() if isinstance(tags.get(c), str) and tags[c]}
    return {name: text for name, text in texts.items() if not (generated and name == "description")}


def _believed(alpha: AlphaPlane | None) -> tuple[AlphaPlane | None, tuple[str, ...]]:
    """The alpha band if its values are those of a mask, and a note; GDAL marks any fourth 8-bit band as alpha."""
    if alpha is None:
        return None, ()
    if alpha.looks_like_mask:
        return alpha, ("its last band is alpha: read as a mask, not as a band",)
    return None, ("its last band is marked as alpha but its values are not a mask's: read as a band",)


def _describes_bands(meta: CubeMeta, tags: dict[int, Any]) -> bool:
    """Whether a file has wavelengths or tags that make sense only if its pages are bands."""
    return meta.wavelengths is not None or any(code in tags for code in (*geokeys.TAGS, GDAL_METADATA))


def _nodata(text: Any) -> float | None:
    try:
        return float(str(text).strip().replace(",", "."))
    except ValueError:
        return None


def _with_items(meta: CubeMeta, tags: dict[int, Any]) -> CubeMeta:
    text = tags.get(GDAL_METADATA)
    if not isinstance(text, str) or not text:
        return meta
    try:
        items = gdal_metadata.Items(text, meta.bands)
    except Exception as error:
        return meta.noting(f"GDAL_METADATA is ignored: {type(error).__name__}")
    where = meta.georeference
    if geokeys.MATRIX in tags and (anchor := items.anchor()) is not None:
        where = replace(where, anchor=anchor)
    return replace(meta, georeference=where, **items.meta()).noting(*items.doubts())


def _with_neighbour(path: Path, meta: CubeMeta) -> tuple[CubeMeta, tuple[Path, ...]]:
    """The metadata with spectral lists of a sidecar file: an XML of EnMAP, or an ENVI header of DESIS.

    Second, that file, if it was used.
    """
    if meta.wavelengths is not None:
        return meta, ()
    try:
        found = _enmap_bands(path, meta.bands) or _envi_bands(path, meta)
    except Exception as error:
        why = str(error) if isinstance(error, FormatError) else type(error).__name__
        return meta.noting(f"the metadata beside {path.name} are ignored: {why}"), ()
    if found is None:
        return meta, ()
    file, fields = found
    lists = {name: value for name, value in fields.items() if getattr(meta, name) is None}
    known = {n: v for n, v in lists.items() if isinstance(v, (str, float)) or len(v) == meta.bands}
    if "wavelengths" not in known:
        count = len(fields.get("wavelengths", ()))
        note = f"{file.name} describes {count} bands but the image has {meta.bands}: ignored"
        return (meta.noting(note) if count else meta), ()
    return replace(meta, **known).noting(f"spectral metadata read from the file beside {path.name}"), (file,)


def _enmap_bands(path: Path, count: int) -> tuple[Path, dict[str, Any]] | None:
    stem, mark, part = path.name.upper().partition("-SPECTRAL_IMAGE")
    if not mark:
        return None
    beside = [p for p in path.absolute().parent.iterdir() if p.name.upper() == f"{stem}-METADATA.XML"]
    if not beside:
        return None
    root = ElementTree.fromstring(small_file(beside[0], MAX_METADATA_BYTES))
    bands = root.findall("specific/bandCharacterisation/bandID")
    if not bands:  # a file of DESIS, which has the same name but another structure
        return None
    # L1B products have one picture per detector, but one list for both.
    if len(bands) > count and part.startswith(("_VNIR", "_SWIR")):
        bands = bands[:count] if part.startswith("_VNIR") else bands[-count:]
    names = dict(wavelengths="wavelengthCenterOfBand", fwhm="FWHMOfBand", gains="GainOfBand")
    names |= dict(offsets="OffsetOfBand")
    lists = {name: tuple(float(band.findtext(tag)) for band in bands) for name, tag in names.items()}
    return beside[0], {**lists, "wavelength_units": "Nanometers"}


def _envi_bands(path: Path, meta: CubeMeta) -> tuple[Path, dict[str, Any]] | None:
    header = next((p for p in (path.with_suffix(".hdr"), path.with_suffix(".HDR")) if p.is_file()), None)
    if header is None:
        return None
    beside = EnviHeader.read(header).meta()
    if beside.shape() != meta.shape():
        return None
    return header, {name: value for name in SPECTRAL if (value := getattr(beside, name)) is not None}


def _with_world_file(path: Path, meta: CubeMeta) -> tuple[CubeMeta, tuple[Path, ...]]:
    """The metadata with the georeference of a world file, if the picture has none; second, that file if used."""
    where = meta.georeference
    if where.transform is not None or where.points:
        return meta, ()
    names = [name.lower() for name in (f"{path.stem}.tfw", f"{path.name}w", f"{path.stem}.wld")]
    sidecar = f"{path.name}.aux.xml".lower()
    try:
        # Not a Path for each: there may be thousands of files.
        with os.scandir(path.absolute().parent) as entries:
            found = {e.name.lower(): Path(e.path) for e in entries if e.name.lower() in (*names, sidecar)}
    except OSError:  # a folder that cannot be listed
        return meta, ()
    unread = found.get(sidecar)
    if unread is not None and PLACE_IN_XML.search(_beginning(unread)):
        meta = meta.noting(f"the georeference in {unread.name} is not read")
    world = next((found[name] for name in names if name in found), None)
    if world is None:
        return meta, ()
    transform = _world_transform(world)
    if transform is None:
        return meta.noting(f"{world.name} is ignored: not the six numbers of a world file"), ()
    placed = replace(meta, georeference=replace(where, transform=transform))
    return placed.noting(f"georeferenced by {world.name}"), (world,)


def _beginning(path: Path) -> bytes:
    """The first bytes of a file; empty if it cannot be read."""
    try:
        with opened(path) as file:
            return file.read(MAX_BESIDE_BYTES)
    except (FormatError, OSError):
        return b""


def _world_transform(path: Path) -> Transform | None:
    try:
        xc, yc, xr, yr, x, y = map(float, _beginning(path).split())
    except ValueError:
        return None
    # World files give the centre of the first pixel.
    transform = (x - (xc + xr) / 2, xc, xr, y - (yc + yr) / 2, yc, yr)
    return transform if all(map(math.isfinite, transform)) and xc * yr != xr * yc else None


def _create(parts: tuple[Path, ...], meta: CubeMeta) -> Cube:
    (path,) = parts
    header = tags.header(meta)
    axes = "rcb" if meta.bands > 1 and not tags.is_planar(meta) else "brc"
    array = RawArray(path, meta.dtype, meta.shape(axes), len(header))
    path.touch()
    with path.open("r+b") as file:
        file.write(header)
    array.reserve()
    return Cube(path, meta, array, axes)


FORMAT = Format(
    name="TIFF",
    suffixes=(".tif", ".tiff"),
    recognises=_recognises,
    open=_open,
    fragile=lambda head: True,
    create=_create,
    refuse=tags.refuse,
    compressions=tuple(cog.METHODS),
    pack=cog.pack,
)
