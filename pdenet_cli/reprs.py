"""Objects as a notebook shows them: a title and a table of two columns."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_table(title: str, rows: Mapping[str, str]) -> str:
    """An HTML table of names and texts under a title."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<div><strong>{escape(title)}</strong><table>{lines}</table></div>"
