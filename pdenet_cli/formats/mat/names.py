"""What the axes and variables of MATLAB files are called, and how texts are stored in them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any

from pdenet_cli.formats.common import attributes
from pdenet_cli.scene.meta import CubeMeta

USUAL_AXES = "rcb"  # MATLAB's own toolboxes and nearly all data sets have the bands last
METADATA = "metadata"  # a matrix of characters: in each row a field of another format and its value
AXES, WAVELENGTH = "MATLAB axes", "MATLAB wavelength"  # in CubeMeta.native: their order, its name


def variable_name(wanted: str | None, taken: Collection[str] = ()) -> str:
    """What a variable, or one inside a struct or group, is called in an output, if that name is free."""
    name = re.split("[./]", wanted or "")[-1]
    return name if _is_name(name) and name not in taken else "cube"


def wavelength_name(meta: CubeMeta) -> str:
    """What the wavelengths are called in an output: as in the scene, if they can be found again by that name."""
    name = meta.native.get(WAVELENGTH, "wavelength")
    several = meta.bands > 1 and attributes.is_spectrum(list(meta.wavelengths or ()))
    known = attributes.field_of(name) == "wavelengths" or several
    return name if known and _is_name(name) else "wavelength"


def line_of(name: str, value: Any) -> str:
    """A field of another format as a line: `sensor type = AVIRIS`; JSON where a plain text would not do."""
    plain = isinstance(value, str) and value == value.strip() and value.isprintable() and _as_json(value) is None
    return f"{name.replace('=', ' ')} = {value if plain else json.dumps(value, default=str)}"


def parse_lines(lines: str | list[str]) -> dict[str, Any]:
    """The fields in such lines; none if one of them is something else."""
    fields = {}
    for line in [lines] if isinstance(lines, str) else lines:
        name, equals, text = line.partition(" = ")
        if not equals:
            return {}
        value = _as_json(text.strip())
        fields[name] = text.strip() if value is None else value
    return fields


def _as_json(text: str) -> Any:
    """The value of a text of JSON, None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z]\w{0,62}", text, re.ASCII) is not None


def text_rows(text: str, shape: tuple[int, ...]) -> str | list[str]:
    """The rows of a matrix of characters, which MATLAB stores column by column."""
    if len(shape) != 2 or shape[0] <= 1 or len(text) != math.prod(shape):
        return text
    return ["".join(text[row :: shape[0]]).rstrip() for row in range(shape[0])]
