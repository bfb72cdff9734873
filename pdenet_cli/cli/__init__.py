"""The command `pdenet`: each command parses, calls one tool and prints; an error is a line and an exit code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from errno import ENOSPC
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from pdenet_cli import __version__
from pdenet_cli.cli.adapt import adapt
from pdenet_cli.cli.calibrate import calibrate
from pdenet_cli.cli.chapters import print_chapter
from pdenet_cli.cli.console import INTERRUPTED, print_error, use_progress
from pdenet_cli.cli.doctor import doctor
from pdenet_cli.cli.evaluate import evaluate
from pdenet_cli.cli.info import info
from pdenet_cli.cli.models import models
from pdenet_cli.cli.psf import psf
from pdenet_cli.cli.train import train
from pdenet_cli.cli.upscale import uncertainty, upscale
from pdenet_cli.cli.words import Command, expanded_lists
from pdenet_cli.errors import OutputError, PdenetError, ResourceError, out_of_memory

app = typer.Typer(
    name="pdenet",
    help="Make hyperspectral images sharper, and say how far each pixel can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pdenet {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for command in (info, upscale, uncertainty, train, evaluate, calibrate, psf, adapt, doctor):
    app.command(cls=Command)(command)
app.command("help", cls=Command)(print_chapter)
app.add_typer(models, name="models")


def _memory_hint() -> str:
    """What to do when memory runs out, with the options that the command has."""
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    params = next((commands[word].params for word in sys.argv[1:] if word in commands), ())
    known = {option for param in params for option in param.opts}
    smaller = " or ".join(option for option in ("--memory", "--tile", "--batch") if option in known)
    fewer = f"Use fewer --bands or a smaller {smaller}, or close" if smaller else "Close"
    return f"{fewer} other programs."


def _at_home(word: str) -> str:
    """A word of the command line with `~` expanded, which shells leave in --output=~/fine.hdr and in quotes."""
    option, tilde, rest = word.partition("~")
    if not re.fullmatch(r"|-\w|--[\w-]+=", option):
        return word
    return option + os.path.expanduser(tilde + rest)  # noqa: PTH111 Path refuses ~a.tif, which is nobody's home


def main() -> None:
    """Run `pdenet`; every failure that a user can act on ends in one line and its exit code."""
    # OpenMP threads spin while they wait; beside other programs that wastes most of their time.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # File names may have characters that the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    if not sys.warnoptions:  # nobody has asked for them with `python -W`
        warnings.simplefilter("ignore", RuntimeWarning)
    use_progress("auto")
    try:
        sys.argv = [sys.argv[0], *map(_at_home, expanded_lists(sys.argv[1:]))]
        app()
    except PdenetError as error:
        print_error(error)
        sys.exit(error.exit_code)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print_error(ResourceError(f"Out of memory ({error}). {_memory_hint()}"))
        sys.exit(ResourceError.exit_code)
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        print_error(OutputError(f"No space left on the disk ({error.filename or 'standard output'})."))
        sys.exit(OutputError.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
