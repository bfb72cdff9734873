"""From the words of a command line to values: what a person writes, and whole settings."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import typer

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.bands import BandChoice, band_choice
from pdenet_cli.scene.window import Window

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pdenet_cli.scene.radiometry import ValueRange

    Kind = TypeVar("Kind", bound=DataclassInstance)

BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def settings_of(kind: type[Kind], context: typer.Context, **others: Any) -> Kind:
    """Settings of a `kind`: each field from the option of the same name, unless it is among `others`."""
    options = context.params | {"variable": context.params["var"], "bands": parse_bands(context.params["bands"])}
    options["memory"], options["dtype"] = parse_size(options.get("memory")), parse_dtype(options.get("dtype"))
    if "page_size" in options:
        options["page_size"] = parse_size(options["page_size"], "--page-size")
    options |= {"value_range": parse_range(options.get("value_range"))}
    options |= {name: parse_window(options[name]) for name in ("window", "validate_window") if name in options}
    named = {field.name: options[field.name] for field in fields(kind) if field.name in options}
    return kind(**named | others)


def parse_size(text: str | None, option: str = "--memory") -> int | None:
    """Bytes from what a person writes: 500MB, 2GB, 1.5g."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    size = float(match[1]) * BYTES[match[2]] if match is not None else 0.0
    if not 1 <= size < math.inf:
        raise UsageError(f"{option} {text}: not a size. Write for example 500MB or 2GB.")
    return int(size)


def parse_bands(text: str | None) -> BandChoice | None:
    """Bands by number or by wavelength, as ranges and lists."""
    return None if text is None else band_choice(text)


def parse_dtype(text: str | None) -> str | None:
    """The name of a type of numbers that an image can have."""
    import numpy as np

    try:
        if text is None or np.dtype(text).kind in "uif":
            return text
    except (TypeError, ValueError, SyntaxError):  # NumPy reads more than names
        pass
    raise UsageError(f"--dtype {text}: not a numeric data type. Use uint8, int16, uint16, float32 or another.")


def parse_range(text: str | None) -> ValueRange | None:
    """The numbers to be read as 0 and 1: two with a space or a comma between, or the name of a rule."""
    if text is None:
        return None
    if text == "dtype" or text == "max":
        return cast("Literal['dtype', 'max']", text)
    try:
        low, high = (float(word) for word in text.replace(",", " ").split())
    except ValueError:
        problem = f"--range {text}: neither two numbers nor a known name"
        raise UsageError(f"{problem}. Write for example --range 0 4095, --range dtype or --range max.") from None
    return low, high


def parse_means(text: str | None) -> str | tuple[float, ...] | None:
    """The name of a data set, or one number for each band."""
    if text is None or not re.match(r"\s*[-+.\d]", text):
        return text
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(
            f"--means {text}: not numbers with commas between. Write for example 0.09,0.1,0.08."
        ) from None


def parse_window(numbers: tuple[int, int, int, int] | None) -> Window | None:
    """A part of a scene from its upper-left pixel and its size."""
    return None if numbers is None else Window(*numbers)


def parse_samples(text: str) -> tuple[int, ...]:
    """How many draws: one number, or several with commas between them."""
    if not re.fullmatch(r"\s*[1-9]\d{0,3}\s*(,\s*[1-9]\d{0,3}\s*)*", text):
        raise UsageError(f"--samples {text}: neither a number nor a list. Write for example 8 or 1,2,5,10,20.")
    return tuple(int(number) for number in text.split(","))


def parse_pixels(texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Pixels from ROW,COLUMN, counted from 0."""
    pixels = []
    for text in texts:
        if not re.fullmatch(r"\d+,\d+", text):
            raise UsageError(f"--pixel {text.replace(',', ' ')}: not a row and a column, counted from 0.")
        row, column = text.split(",")
        pixels.append((int(row), int(column)))
    return tuple(pixels)
