"""Products that are delivered as GeoTIFFs: what each is recognised by, and the scale that some leave out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pdenet_cli.scene.meta import CubeMeta


@dataclass(frozen=True)
class Product:
    """A product by the name that `pdenet info` prints, the words that it is known by, and its usual scale."""

    name: str
    words: re.Pattern[str]  # in the file's name, or in the texts of its header
    reflectance_scale: float | None = None  # of integers whose header gives no scale


PRODUCTS = (
    Product("Wyvern L1B: radiance", re.compile(r"wyvern.*l1b", re.IGNORECASE)),
    Product("Wyvern L2A: surface reflectance", re.compile(r"wyvern.*l2a", re.IGNORECASE), 10_000.0),
    Product("Wyvern", re.compile(r"wyvern", re.IGNORECASE)),
    Product("Pixxel", re.compile(r"pixxel", re.IGNORECASE), 50_000.0),
    Product("EnMAP", re.compile(r"\benmap\d\d-", re.IGNORECASE)),
    Product("DESIS", re.compile(r"\bdesis-hsi-", re.IGNORECASE)),
)
"""In the order in which they are tried."""


def named(path: Path, meta: CubeMeta) -> CubeMeta:
    """The metadata with the name of the product, and with its scale where the file has none."""
    texts = " ".join(value for value in meta.extra.values() if isinstance(value, str))
    found = next((product for product in PRODUCTS if product.words.search(f"{path.name} {texts}")), None)
    if found is None:
        return meta
    meta = replace(meta, product=found.name)
    scale = found.reflectance_scale
    if scale is None or meta.dtype.kind not in "iu" or meta.reflectance_scale or meta.gains:
        return meta
    note = f"{found.name}: its values are read as reflectance x {scale:g}, as this product's are"
    return replace(meta, reflectance_scale=scale).noting(note)
