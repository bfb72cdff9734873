"""Consoles: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, Self, cast, get_args

import rich.console
from rich.table import Table

from pdenet_cli.errors import BatchError, PdenetError, UsageError

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


ProgressKind = Literal["auto", "json", "none"]
progress_as: ProgressKind = "auto"  # how progress, notes and errors are printed, see `use_progress`


def use_progress(kind: str) -> None:
    """From now on, "auto": bars and texts for people; "json": lines of JSON; "none": no progress."""
    global progress_as
    if kind not in get_args(ProgressKind):
        raise UsageError(f"--progress {kind}: use {', '.join(get_args(ProgressKind))}.")
    progress_as = cast(ProgressKind, kind)


def print_event(event: str, **fields: object) -> None:
    """Print an event as a line of JSON on standard error."""
    print(json.dumps({"event": event, **fields}), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print a note for the user."""
    if progress_as == "json":
        print_event("note", text=as_options(text))
        return
    err.print(f"[yellow]{shown(text)}[/]")


def print_table(table: Table) -> None:
    """Print a table and an empty line; in a file or a pipe, the table is not squeezed into 80 columns."""
    console = out if out.is_terminal else rich.console.Console(width=FILE_WIDTH, highlight=False, emoji=False)
    console.print(table)
    out.print()


def print_json(value: Any) -> None:
    """Print a result as JSON, at once: null in place of NaN, "inf" or "-inf" of infinity."""
    from pdenet_cli.report import finite

    print(as_options(json.dumps(finite(value), indent=2, allow_nan=False)), flush=True)


class JsonItems:
    """Results printed as JSON one by one, as they come: a list if there are several."""

    def __init__(self, wanted: bool, *, several: bool) -> None:
        self.wanted, self.several, self.count = wanted, several, 0

    def add(self, value: Any) -> None:
        """Print one result, if JSON is wanted."""
        if self.wanted:
            self._print("" if not self.several else "[" if not self.count else ",", value)
            self.count += 1

    def _print(self, before: str, value: Any) -> None:
        if before:
            print(before, flush=True)
        print_json(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.wanted and self.several and self.count:
            print("]", flush=True)


def print_error(error: PdenetError) -> None:
    """Print an error as one line."""
    if progress_as == "json":
        print_event("error", text=as_options(" ".join(str(error).split())), exit_code=error.exit_code)
        return
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
