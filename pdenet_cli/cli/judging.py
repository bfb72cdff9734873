"""What `pdenet evaluate --input` prints: figures with what each can show and what it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli.console import as_options, out, print_table, time_text

if TYPE_CHECKING:
    from pdenet_cli.evaluation.findings import Judged


def show(judged: Judged) -> None:
    """Print the findings, each with its words."""
    for finding in judged.findings:
        table = Table(
            show_header=False, box=None, pad_edge=False, title=escape(finding.title), title_justify="left"
        )
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(style="dim", overflow="fold")
        for figure in finding.figures:
            table.add_row(escape(figure.name), escape(figure.text), escape(figure.says))
        print_table(table)
        out.print(f"[dim]Shows {escape(finding.shows)}. Cannot show {escape(finding.hides)}.[/]\n")
    if judged.coarser is not None:
        from pdenet_cli.evaluation.findings import COARSER, COARSER_NOT

        out.print("[bold]One scale down[/]")
        out.print(f"[dim]Shows {COARSER}. Cannot show {COARSER_NOT}.[/]")
    for note in judged.notes:
        out.print(f"[dim]{escape(as_options(note))}[/]")
    out.print(f"[dim]{time_text(judged.seconds)}[/]")
