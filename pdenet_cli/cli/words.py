"""The words of a command line before they are parsed: lists of files, and options of several words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from pdenet_cli.errors import UsageError

PAIRS = {
    "--pixel": "not a row and a column. Write for example --pixel 30 40.",
    "--range": "not two numbers. Write for example --range 0 4095, --range dtype or --range max.",
}
"""Options that may take two numbers, for which Typer has no type, and what is said where there is only one."""

NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"


class Command(TyperCommand):
    """A command whose options in `PAIRS` take two numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(joined_pairs(args)))


def joined_pairs(args: Sequence[str]) -> Iterator[str]:
    """The words with the two numbers after an option of `PAIRS` as one word, a comma between them."""
    words = list(args)
    while words:
        word = words.pop(0)
        yield word
        if word not in PAIRS or not words or not re.fullmatch(NUMBER, words[0], re.IGNORECASE):
            if word == "--pixel" and not (words and "," in words[0]):
                raise UsageError(f"{' '.join((word, *words[:2]))}: {PAIRS[word]}")
            continue
        pair, words = words[:2], words[2:]
        if len(pair) < 2 or not re.fullmatch(NUMBER, pair[1], re.IGNORECASE):
            raise UsageError(f"{' '.join((word, *pair))}: {PAIRS[word]}")
        yield ",".join(pair)


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
