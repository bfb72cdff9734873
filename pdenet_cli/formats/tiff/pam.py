"""scene.tif.aux.xml, in which GDAL stores metadata of a picture that it may not change."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from defusedxml import ElementTree

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common.regular import small_file
from pdenet_cli.formats.tiff.gdal_metadata import Items
from pdenet_cli.scene.meta import CubeMeta

MAX_BYTES = 8 << 20  # histograms of many bands take a few megabytes
SPECTRAL = ("wavelengths", "wavelength_units", "fwhm", "good_bands")


def with_pam(path: Path, meta: CubeMeta) -> tuple[CubeMeta, tuple[Path, ...]]:
    """The metadata with nodata and spectral lists of the .aux.xml, where the picture itself has none.

    Second, that file, if it was used.
    """
    file = path.with_name(f"{path.name}.aux.xml")
    try:
        if not file.exists():
            return meta, ()
        root = ElementTree.fromstring(small_file(file, MAX_BYTES))
        items = Items.of_pam(root, meta.bands)
        found, doubts = items.meta() | _nodata(root), items.doubts() if meta.wavelengths is None else []
    except FormatError as error:
        return meta.noting(f"{file.name} is ignored: {str(error).removeprefix(f'{file}: ').rstrip('.')}"), ()
    except Exception as error:
        return meta.noting(f"{file.name} is ignored: {type(error).__name__}"), ()
    # Widths of one file may not be in the unit of the wavelengths of another.
    names = ("nodata", *(SPECTRAL if meta.wavelengths is None else ("good_bands",)))
    new = {name: found[name] for name in names if name in found and getattr(meta, name) is None}
    if "nodata" not in found and meta.nodata is None and root.find("PAMRasterBand/NoDataValue") is not None:
        doubts.append("nodata ignored: not the same in every band")
    meta = meta.noting(*(f"{file.name}: {doubt}" for doubt in doubts))
    if not new.keys() - {"wavelength_units"}:
        return meta, ()
    words = ", ".join(name.replace("_", " ") for name in new)
    return replace(meta, **new).noting(f"{words} read from {file.name}"), (file,)


def _nodata(root: Any) -> dict[str, Any]:
    """The nodata value, if it is the same in all bands that have one; else empty."""
    values = [float(item.text) for item in root.iterfind("PAMRasterBand/NoDataValue") if item.text]
    same = all(map(math.isnan, values)) or len(set(values)) == 1
    return {"nodata": values[0]} if values and same else {}
