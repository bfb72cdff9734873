"""`pdenet help`: the chapters of the manual, which an installed package has with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from pdenet_cli.cli.console import out
from pdenet_cli.errors import UsageError

ROOT = Path(__file__).parents[1]
HOMES = (ROOT / "manual", ROOT.parent / "examples")  # of an installed package, and of a checkout


def print_chapter(
    topic: Annotated[
        str | None, typer.Argument(help="A chapter of the manual.", show_default="a list of them")
    ] = None,
) -> None:
    """Show a chapter of the manual: formats, uncertainty, evaluation, training, archives, real_sensors, qgis."""
    found = chapters()
    if topic is None:
        for name, path in found.items():
            out.print(f"pdenet help {name:<12} [dim]{_title(path)}[/]")
        return
    if topic not in found:
        raise UsageError(f"help {topic}: no such chapter. There are {', '.join(found)}.")
    text = found[topic].read_text()
    if out.is_terminal:
        with out.pager(styles=True):
            out.print(Markdown(text), soft_wrap=False)
    else:
        out.print(text, markup=False, end="")


def chapters() -> dict[str, Path]:
    """The file of each chapter by its name."""
    home = next((home for home in HOMES if (home / "formats.md").is_file()), None)
    paths = [] if home is None else sorted(home.glob("*.md"))
    return {path.stem: path for path in paths if path.stem != "README"}


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].lstrip("# ")
