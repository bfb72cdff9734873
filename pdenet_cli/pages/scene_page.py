"""A sharpened scene as one HTML page: input, bicubic and result at the same place, maps, and any pixel's spectrum.

The page loads nothing else; its scripts draw what it holds.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from pdenet_cli.pages.contents import RAMPS, Contents, MapShown, SceneShown, axis_of
from pdenet_cli.pages.frame import html_page, resource
from pdenet_cli.pages.levels import MapLevels
from pdenet_cli.report import finite
from pdenet_cli.scene.picture import coloured, data_uri

SCRIPTS = ("data.js", "pictures.js", "view.js", "spectrum.js", "page.js")
EARLY = 3  # parts of the first pictures, which stand before the scripts
GRID_SAYS = (
    "A fine regular grid in maps of errors is real: how well a finer pixel can be known depends on where it lies "
    "within its pixel of the input."
)


@dataclass(frozen=True)
class Words:
    """The texts of a page."""

    scene: str
    model: str
    samples: int
    level: float | None = None  # of the interval
    proof: str = ""  # what is known of that level
    notes: tuple[str, ...] = ()  # sentences
    record: Mapping[str, Any] = field(default_factory=dict)  # how the results were made


def scene_page(scene: SceneShown, words: Words, page_size: int) -> str:
    """The page as HTML, of about `page_size` bytes at most."""
    contents = Contents.of(scene, page_size)
    title = f"{words.scene}: {'how far each pixel can be trusted' if scene.maps else 'sharpened'}"
    parts = [
        f'<script type="text/plain" id="part-{number}">{b64encode(part).decode()}</script>'
        for number, part in enumerate(contents.parts)
    ]
    scripts = "".join(resource(name) for name in SCRIPTS)
    body = [
        f"<h1>{escape(title)}</h1>",
        *_top(scene, words),
        "<noscript><p>The pictures need JavaScript, which this browser does not run.</p></noscript>",
        *_views(scene, contents),
        '<output class="told" id="told" aria-live="polite"></output>',
        f'<p class="soft screen">{_help(contents)}</p>',
        *_chart(scene),
        *_levels(scene, contents),
        *_record(words),
        f'<script type="application/json" id="facts">{_for_script(contents)}</script>',
        *parts[:EARLY],
        f"<script>\n{scripts}</script>",
        *parts[EARLY:],
    ]
    return html_page(title, "scene.css", body)


def _top(scene: SceneShown, words: Words) -> Iterator[str]:
    meta = scene.mean.cube.meta
    samples = "" if words.samples == 1 else f", {words.samples} samples"
    yield (
        f'<p class="soft">{meta.rows} x {meta.columns} pixels, {scene.scale} times finer than the input, '
        f"{meta.bands} bands; model {escape(words.model)}{samples}; values: {escape(scene.unit)}.</p>"
    )
    if words.level is not None:
        yield (
            f"<p>The interval (the band around a spectrum) holds the true value in about {100 * words.level:g} of "
            "100 cases, on average over scenes like those the model was calibrated on; a scene unlike them, or "
            "edges, may have fewer.</p>"
        )
    if any(not shown.counts for shown in scene.maps):
        yield f'<p class="soft">{GRID_SAYS}</p>'
    notes = [note for note in (words.proof, *words.notes) if note]
    if notes:
        listed = "".join(f"<p>{escape(note)}</p>" for note in notes)
        heading = "What is proved, and notes" if words.proof else "Notes"
        yield f"<details><summary>{heading}</summary>{listed}</details>"


def _views(scene: SceneShown, contents: Contents) -> Iterator[str]:
    rows, columns = contents.facts["rows"], contents.facts["columns"]
    alone = "" if scene.maps and columns <= 2.2 * rows else " wide"
    yield f'<div class="views{alone}" id="views" style="--shape:{columns / rows:.4f}">'
    yield f'<div><div class="head">{_pictures_head(contents)}</div><div class="view">'
    yield (
        '<canvas id="colours" tabindex="0" role="application" aria-label="The scene. Arrow keys move the chosen '
        'pixel, + and - zoom, b blinks." aria-describedby="told"></canvas>'
    )
    yield '<span class="tag" id="tag-left"></span><span class="tag" id="tag-right"></span>'
    yield (
        '<div id="divider" role="slider" tabindex="0" aria-label="Where the left picture ends" aria-valuemin="0" '
        'aria-valuemax="100" aria-valuenow="50"></div></div>'
    )
    yield (
        '<p class="tools screen"><button id="farther" disabled aria-label="zoom out">−</button>'
        '<button id="nearer" disabled aria-label="zoom in">+</button>'
        '<button id="whole" disabled>whole scene</button>'
        '<button id="single" disabled>single pixels</button></p></div>'
    )
    if scene.maps:
        yield f'<div><div class="head">{_maps_head(scene)}</div><div class="view">'
        yield '<canvas id="trust" tabindex="0" role="application" aria-label="The map" aria-describedby="told">'
        bar = _bar(any(seen.empty for seen in contents.levels))
        yield f'</canvas></div><p class="soft" id="map-says"></p>{bar}</div>'
    yield "</div>"


def _pictures_head(contents: Contents) -> str:
    def picked(side: str, chosen: str, label: str) -> str:
        options = "".join(
            f"<option{' selected' if name == chosen else ''}>{name}</option>"
            for name in ("input", "bicubic", "result")
        )
        return f'<label>{label} <select id="{side}" autocomplete="off" disabled>{options}</select></label>'

    names = _band_names(contents)
    kinds = (("true", "colours"), ("one", "one band"), ("three", "three bands"))
    kind = "".join(f'<option value="{value}">{name}</option>' for value, name in kinds)
    rgb = contents.facts["rgb"]
    three = "".join(
        f'<label>{colour} <select id="{colour}" autocomplete="off" disabled>'
        + "".join(
            f'<option value="{band}"{" selected" if band == rgb[i] else ""}>{escape(name)}</option>'
            for band, name in enumerate(names)
        )
        + "</select></label>"
        for i, colour in enumerate(("red", "green", "blue"))
    )
    return (
        f"{picked('left', 'bicubic', 'left')} {picked('right', 'result', 'right')} "
        '<button id="blink" aria-pressed="false" disabled>blink</button> '
        f'<label>as <select id="picture" autocomplete="off" disabled>{kind}</select></label>'
        f'<span id="three" hidden>{three}</span>'
        '<label id="band-choice" hidden><input type="range" id="band" autocomplete="off" disabled min="0" '
        f'max="{len(names) - 1}" value="{rgb[0]}"> <span id="band-name"></span></label>'
    )


def _band_names(contents: Contents) -> list[str]:
    places, nm = contents.facts["places"], contents.facts["nm"]
    return [f"{place:.0f} nm" if nm else f"band {place:.0f}" for place in places]


def _maps_head(scene: SceneShown) -> str:
    merged = "".join(f'<option value="{i}">{escape(shown.title)}</option>' for i, shown in enumerate(scene.maps))
    with_bands = [shown for shown in scene.maps if shown.with_bands]
    band_by_band = "".join(
        f'<option value="{i}">{escape(shown.title)}, band by band</option>'
        for i, shown in enumerate(with_bands, start=len(scene.maps))
    )
    options = merged + band_by_band
    # Without autocomplete=off, some browsers bring back the last choice when a page is loaded again.
    return f'<label for="map">Map</label> <select id="map" autocomplete="off" disabled>{options}</select>'


def _bar(with_holes: bool) -> str:
    nothing = ""
    if with_holes:
        hatched = coloured(np.full((12, 24), np.nan, np.float32), 1)
        nothing = f'<span class="none"><img src="{data_uri(hatched)}" alt="hatched grey"> no data</span>'
    return (
        '<div class="bar"><div id="ramp" role="img" aria-label="colour scale"></div>'
        '<span>0</span><span id="half-top"></span><span id="top"></span></div>'
        f'<p class="soft unit"><span id="map-unit"></span>{nothing}</p>'
    )


def _help(contents: Contents) -> str:
    words = [
        "Drag to move, wheel or pinch to zoom; a click or tap keeps a pixel, the arrow keys (with Shift: by 10) "
        "move it. Keys: + and - zoom, 0 the whole scene, b blinks, [ and ] move the divider. Rows and columns are "
        "those of the result, counted from 0.",
        *contents.notes,
    ]
    return escape(" ".join(words))


def _chart(scene: SceneShown) -> Iterator[str]:
    yield "<h2>Spectrum</h2>"
    line = '<svg viewBox="0 0 32 12" aria-hidden="true"><line class="mean" x1="0" x2="32" y1="6" y2="6"/></svg>'
    area = '<svg viewBox="0 0 32 12" aria-hidden="true"><rect class="band" width="32" height="12"/></svg>'
    band = f"<span>{area}{escape(scene.band)}</span>" if scene.band else ""
    coarse = line.replace("mean", "input")
    same = '<label class="screen"><input type="checkbox" id="same"> same axis for all pixels</label>'
    yield (
        f'<div class="key"><span>{line}result</span>{band}<span>{coarse}input, the pixel around this place</span>'
        f"{same}</div>"
    )
    across = axis_of(scene.mean.cube.meta)[1]
    yield (
        '<svg id="chart" viewBox="0 0 960 300" role="img" aria-label="Spectrum"><g id="drawing"></g>'
        f'<g id="hair"></g><text id="across" x="510" y="294" text-anchor="middle">{escape(across)}</text>'
        '<text transform="translate(14 133) rotate(-90)" text-anchor="middle">'
        f"{escape(scene.unit)}</text></svg>"
    )
    yield '<output class="told" id="told-band"></output>'
    ends = "<th>low</th><th>high</th>" if scene.band else ""
    yield (
        f'<details id="numbers" class="screen"><summary>Values of this spectrum</summary>'
        f'<div class="scroll"><table><thead><tr><th>{escape(across)}</th><th>result</th>{ends}'
        "<th>input</th></tr></thead>"
        '<tbody id="listed"></tbody></table></div></details>'
    )


def _levels(scene: SceneShown, contents: Contents) -> Iterator[str]:
    if scene.maps:
        yield "<h2>How much of the scene</h2>"
    for i, (shown, levels) in enumerate(zip(scene.maps, contents.levels, strict=True)):
        yield f'<div data-map="{i}"{" hidden" if i else ""}>{_shares(shown, levels)}</div>'


def _shares(shown: MapShown, levels: MapLevels) -> str:
    if not levels.shares:
        return "<p>The map is 0 or empty everywhere.</p>"
    ramp = RAMPS["counts" if shown.counts else "errors"]
    rows = []
    for level, share in levels.shares:
        patch = coloured(np.full((1, 1), level, np.float32), levels.top, ramp)
        meter = f'<meter value="{share:.6f}" aria-hidden="true"></meter>'
        rows.append(
            f'<tr><th scope="row"><img src="{data_uri(patch)}" alt="">above {level:g}{escape(shown.sign)}</th>'
            f"<td>{share_text(share)}</td><td>{meter}</td></tr>"
        )
    return (
        '<div class="scroll"><table><caption>Fraction of the pixels with data, by '
        f"{escape(f'{shown.title}, {shown.unit}')}</caption><thead><tr>"
        f'<th>{escape(shown.title)}</th><th>of the scene</th><th aria-hidden="true"></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def share_text(share: float) -> str:
    """A share as a percentage, never rounded to 0 or 100."""
    if 0 < share < 0.0001:
        return "under 0.01 %"
    if 0.9999 < share < 1:
        return "over 99.99 %"
    return f"{100 * share:.2f} %"


def _record(words: Words) -> Iterator[str]:
    if words.record:
        text = escape(json.dumps(finite(words.record), indent=2, default=str))
        yield f'<details class="screen"><summary>How it was made</summary><pre>{text}</pre></details>'


def _for_script(contents: Contents) -> str:
    # A name that contains </script> must not end the script.
    return json.dumps(finite(contents.facts), allow_nan=False).replace("<", "\\u003c")
