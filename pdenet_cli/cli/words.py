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


PANELS = {
    "Input": "scale input reference psf sensor var axes nodata range bands window kernel fwhm noise part",
    "Model": "model samples seed ensemble mixtures network init config recipe",
    "Uncertainty": "with-uncertainty map level tolerance levels finer-psf uncertainty delta certify learn-errors",
    "Output": "output dtype page picture quicklook style overwrite resume "
    "progress summary json dry-run html pixel csv plot",
    "Performance": "device threads memory tile halo precision workers cluster finish",
}
"""The options of each panel of a help; all others are in a panel of their own."""

SHORT = {"--scale": "-s", "--model": "-m", "--samples": "-n", "--bands": "-b", "--overwrite": "-f", "--json": "-j"}
"""Short forms of common options."""

EXAMPLES = {
    "info": ("pdenet info scene.hdr", "pdenet info cube.mat --var hsi --json"),
    "upscale": (
        "pdenet upscale scene.hdr -o fine.hdr",
        "pdenet upscale *.tif -o finer --resume",
        "pdenet upscale scene.nc -o fine.tif -s 2 --bands 450nm:900nm --quicklook",
    ),
    "uncertainty": (
        "pdenet uncertainty scene.hdr -o maps",
        "pdenet uncertainty scene.tif -o maps --map interval --level 0.8",
    ),
    "train": ("pdenet train my_cubes -o my-sensor.safetensors --minutes 60",),
    "evaluate": (
        "pdenet evaluate -m general-x4 truth.hdr",
        "pdenet evaluate estimate.tif truth.tif --json",
        "pdenet evaluate fine.tif --input scene.tif --psf 1.4",
        "pdenet evaluate fine.hdr --input scene.hdr",
    ),
    "calibrate": ("pdenet calibrate my-sensor.safetensors scenes/*.hdr -o calibrated.safetensors",),
    "psf": ("pdenet psf scene.hdr --picture edges.png",),
    "doctor": ("pdenet doctor", "pdenet doctor --json"),
    "adapt": ("pdenet adapt scene.hdr -o scene-x4.safetensors --minutes 10",),
    "list": ("pdenet models list --json",),
    "show": ("pdenet models show general-x4",),
    "import": ("pdenet models import checkpoint.pth -o model.safetensors",),
    "export": ("pdenet models export general-x4 -o checkpoint.pth",),
    "help": ("pdenet help formats",),
}
"""What the help of each command shows at its end."""


class Command(TyperCommand):
    """A command whose options in `PAIRS` take two numbers, and whose help has panels and examples."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = "\n\n".join(("Examples:", *EXAMPLES[str(self.name)]))
        panels = {f"--{name}": panel for panel, names in PANELS.items() for name in names.split()}
        for param in self.params:
            long = next((option for option in param.opts if option.startswith("--")), "")
            if long in panels:
                setattr(param, "rich_help_panel", panels[long])  # noqa: B010 not every kind of parameter has it
            if long in SHORT:
                param.opts.append(SHORT[long])

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
