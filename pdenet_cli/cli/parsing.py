"""From the words of a command line to values: what a person writes, and whole settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from pdenet_cli.errors import UsageError
from pdenet_cli.scene.bands import BandChoice, band_choice
from pdenet_cli.scene.window import Window

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Kind = TypeVar("Kind", bound=DataclassInstance)

BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def settings_of(kind: type[Kind], context: typer.Context, **others: Any) -> Kind:
    """Settings of a `kind`: each field from the option of the same name, unless it is among `others`."""
    options = context.params | {"variable": context.params["var"], "bands": parse_bands(context.params["bands"])}
    options["memory"], options["dtype"] = parse_size(options.get("memory")), parse_dtype(options.get("dtype"))
    options |= {name: parse_window(options[name]) for name in ("window", "validate_window") if name in options}
    named = {field.name: options[field.name] for field in fields(kind) if field.name in options}
    return kind(**named | others)


def parse_size(text: str | None) -> int | None:
    """Bytes from what a person writes: 500MB, 2GB, 1.5g."""
    if text is None:
        return None
    met = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    size = float(met[1]) * BYTES[met[2]] if met is not None else 0.0
    if not 1 <= size < math.inf:
        raise UsageError(f"--memory {text}: not a size. Write for example 500MB or 2GB.")
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


def parse_window(numbers: tuple[int, int, int, int] | None) -> Window | None:
    """A part of a scene from its upper-left pixel and its size."""
    return None if numbers is None else Window(*numbers)


def expanded_lists(words: Sequence[str]) -> Iterator[str]:
    """The words of a command line, each @FILE replaced by the lines of that file.

    Empty lines and lines that begin with # do not count. An option before @FILE is repeated for every line.
    """
    option = ""
    for word in words:
        start, at, name = word.partition("@")
        if not (at and name and re.fullmatch(r"(--[\w-]+=)?", start)):
            option = word if re.fullmatch(r"-\w|--[\w-]+", word) else ""
            yield word
            continue
        lines = _lines_of(Path(name).expanduser())
        for number, line in enumerate(lines):
            if option and number:
                yield option
            yield start + line
        option = ""


def _lines_of(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError(
            f"@{path}: not a list of files ({why}). A file of this name is given as ./@{path}."
        ) from error
    if found := [line for line in lines if line and not line.startswith("#")]:
        return found
    raise UsageError(f"@{path}: an empty list. Write one path on each line.")


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
