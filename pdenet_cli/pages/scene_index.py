"""The index of the pages of several scenes: a picture of each, and how large its maps are in the middle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from pdenet_cli.pages.frame import html_page

MARK = '<meta name="generator" content="pdenet index">'


@dataclass(frozen=True)
class Entry:
    """A scene with a page in the folder of the index."""

    name: str
    page: str  # names of files
    picture: str  # "" if there is none
    shape: str
    model: str
    medians: Mapping[str, tuple[float | None, str]]  # of each map, with its unit


def index_page(entries: Sequence[Entry]) -> str:
    """The page as HTML; it links to the pages and pictures beside it."""
    body = [f"<h1>{len(entries)} scenes</h1>", '<div class="scenes">', *map(_scene, entries), "</div>"]
    return html_page("Scenes", "index.css", body).replace("<head>", f"<head>\n{MARK}", 1)


def _scene(entry: Entry) -> str:
    link = f'<a href="{quote(entry.page)}">'
    picture = ""
    if entry.picture:
        label = escape(f"Input, result and map of {entry.name}", quote=True)
        picture = f'{link}<img src="{quote(entry.picture)}" alt="{label}" loading="lazy"></a>'
    return (
        f"<section><h2>{link}{escape(entry.name)}</a></h2>{picture}"
        f'<p class="soft">{escape(entry.shape)} of input; model {escape(entry.model)}</p>'
        f"<ul>{''.join(_medians(entry))}</ul></section>"
    )


def _medians(entry: Entry) -> Iterator[str]:
    for name, (median, unit) in entry.medians.items():
        value = "no data" if median is None else f"{median:.3g}"
        yield f"<li>{escape(name)}: {value}, {escape(unit)} (median)</li>"
