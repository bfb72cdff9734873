"""Consoles: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import rich.console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from pdenet_cli.errors import BatchError, PdenetError
from pdenet_cli.report import Watch

INTERRUPTED = 130  # the exit code after Ctrl-C

FILE_WIDTH = 160  # columns of tables that are not printed on a terminal

# No emoji: ":x:" may be part of a file's name.
out = rich.console.Console(highlight=False, soft_wrap=True, emoji=False)
err = rich.console.Console(highlight=False, soft_wrap=True, emoji=False, stderr=True)


OPTIONS = {"variable": "--var", "value_range": "--range", "maps": "--map", "pixels": "--pixel"}
"""The options whose names differ from those of the library's arguments."""


def as_options(text: str) -> str:
    """A text of the library, which names arguments in backquotes, as the command line says it: with options."""
    return re.sub(r"`([a-z_]+)`", lambda name: OPTIONS.get(name[1], f"--{name[1].replace('_', '-')}"), text)


def shown(text: str) -> str:
    """A text of the library as rich prints it: with options, and with brackets that are no markup."""
    return rich.markup.escape(as_options(text))


def say(text: str) -> None:
    """Print a note for the user."""
    err.print(f"[yellow]{shown(text)}[/]")


@contextmanager
def tile_progress() -> Iterator[Watch]:
    """A progress bar on a terminal: a function that is told what is done, how much of it, and of how much."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda text, done, total: progress.update(
            task, description=rich.markup.escape(text), completed=done, total=total
        )


def print_table(table: Table) -> None:
    """Print a table and an empty line; in a file or a pipe, the table is not squeezed into 80 columns."""
    console = out if out.is_terminal else rich.console.Console(width=FILE_WIDTH, highlight=False, emoji=False)
    console.print(table)
    out.print()


def print_json(value: Any) -> None:
    """Print a result as JSON, at once: null in place of NaN, "inf" or "-inf" of infinity."""
    from pdenet_cli.report import finite

    print(as_options(json.dumps(finite(value), indent=2, allow_nan=False)), flush=True)


def print_error(error: PdenetError) -> None:
    """Print an error as one line."""
    err.print(f"[bold red]pdenet:[/] {shown(' '.join(str(error).split()))}")


def stop_if_failed(failed: Mapping[str, str], scenes: int, others: str = "") -> None:
    """If scenes failed, print why and raise BatchError; `others` says what became of the rest of the `scenes`."""
    for name, why in failed.items():
        err.print(f"[bold red]{rich.markup.escape(name)}:[/] {shown(why)}")
    if failed:
        raise BatchError(f"{len(failed)} of {scenes} scenes failed{others}.")


def size_text(count: float) -> str:
    """Bytes in words: 1.55 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:  # which three digits show as 1000
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def time_text(seconds: float) -> str:
    """Seconds in words: 12 s, 3 min, 2 h 10 min."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
