"""What all HTML pages have in common: a head with a style, and files that go into the page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files


def html_page(title: str, style: str, body: Iterable[str]) -> str:
    """A page that loads nothing else; `style` is the name of a file in this folder."""
    content = "\n".join(body)
    return f"""<!doctype html>
<html lang="en"><head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{escape(title)}</title>
<style>
{resource(style)}</style>
</head><body>
{content}
</body></html>
"""


def resource(name: str) -> str:
    """The text of a file in this folder."""
    return files("pdenet_cli.pages").joinpath(name).read_text(encoding="utf-8")
