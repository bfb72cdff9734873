"""`pdenet uncertainty` as one HTML page: colours beside maps of trust, and any pixel's spectrum with its band.

The page loads nothing else; its script draws the pixel that the pointer or the arrow keys choose.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from pdenet_cli.pages.chart import Axis, ordinal
from pdenet_cli.pages.frame import html_page, resource
from pdenet_cli.pages.overview import MapOverview, Overview, Packed, Spectra, breaks, packed
from pdenet_cli.report import finite
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.picture import Picture, coloured, data_uri
from pdenet_cli.uncertainty.summaries import FILE_UNITS, SCALED_UNITS


@dataclass(frozen=True)
class MapFacts:
    """What a page says of a map in words."""

    name: str
    says: str  # what it tells
    unit: str = FILE_UNITS

    @property
    def sign(self) -> str:
        """What follows a number of the map."""
        return {FILE_UNITS: "", SCALED_UNITS: "", "percent": " %"}.get(self.unit, f" {self.unit}")

    @property
    def scale_label(self) -> str:
        return f"{self.name}, {self.unit}"


@dataclass(frozen=True)
class Facts:
    """The texts of a page."""

    scene: str
    model: str
    samples: int
    maps: tuple[MapFacts, ...]  # the one that is shown first, and those to switch to
    level: float | None = None  # of the interval
    notes: tuple[str, ...] = ()  # sentences
    record: Mapping[str, Any] = field(default_factory=dict)  # how the results were made


def from_cubes(
    source: Cube,
    mean: Cube,
    maps: Sequence[Cube],
    facts: Facts,
    interval: tuple[Cube, Cube] | None = None,
    std: Cube | None = None,
) -> str:
    """The page of a scene, its sharpened cube and the merged maps that `facts` tell of, read in parts.

    The band around a spectrum is the `interval`, else two `std` on each side, else none.
    """
    spectra = Spectra.of(mean, maps, source, interval, std, facts.level)
    return uncertainty_page(Overview.of(mean, maps), spectra, facts)


def uncertainty_page(overview: Overview, spectra: Spectra, facts: Facts) -> str:
    """The page as HTML."""
    spectra, parcel = packed(spectra)
    title = f"{facts.scene}: how far each pixel can be trusted"
    interval = "" if facts.level is None else f"; intervals at {100 * facts.level:g} %"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">Model {escape(facts.model)}, {facts.samples} samples{interval}.</p>',
        *(f'<p class="soft">{escape(note)}</p>' for note in facts.notes),
        *_views(overview, facts),
        '<output class="told" id="told" aria-live="polite"></output>',
        f'<p class="soft screen">{_help(overview, spectra)}</p>',
        "<noscript><p>The spectra need JavaScript, which this browser does not run.</p></noscript>",
        *_chart(spectra),
        *_levels(overview, facts),
        *_record(facts),
        f'<script type="application/json" id="facts">{_for_script(overview, spectra, parcel, facts)}</script>',
        f'<script type="text/plain" id="spectra">{b64encode(parcel.content).decode()}</script>',
        f"<script>\n{resource('uncertainty.js')}</script>",
    ]
    return html_page(title, "uncertainty.css", body)


def _views(overview: Overview, facts: Facts) -> Iterator[str]:
    rows, columns = overview.colours.shape[:2]
    wide = " wide" if columns > 2.2 * rows else ""
    yield (
        f'<div class="views{wide}" id="views" tabindex="0" role="application" '
        'aria-label="Scene and map. The arrow keys move the chosen pixel." aria-describedby="told">'
    )
    colours = _view(overview.colours, f"Colours of the sharpened {facts.scene}")
    yield f'<div><p class="head">Sharpened cube</p><figure>{colours}</figure></div>'
    yield f'<div><p class="head">{_switch(facts)}</p>'
    for i, (seen, told) in enumerate(zip(overview.maps, facts.maps, strict=True)):
        view = _view(coloured(seen.values, seen.top), f"Map of {told.name} of {facts.scene}")
        caption = f"<figcaption>{escape(f'{told.name}: {told.says}')}</figcaption>"
        yield f"<figure{_of_map(i)}>{view}{caption}{_bar(seen, told)}</figure>"
    yield "</div></div>"


def _view(picture: Picture, label: str) -> str:
    rows, columns = picture.shape[:2]
    # A tall scene must not push its spectrum off the screen.
    widest = f"max-width:calc(75vh * {columns / rows:.4f})"
    image = f'<img src="{data_uri(picture)}" alt="{escape(label, quote=True)}" draggable="false">'
    cross = '<i class="across"></i><i class="down"></i><b></b>'
    return f'<div class="view" style="{widest}">{image}{cross}</div>'


def _switch(facts: Facts) -> str:
    """By which a reader chooses the map; without a script only the first is shown."""
    if len(facts.maps) == 1:
        return escape(f"Map: {facts.maps[0].name}")
    options = "".join(
        f'<option value="{i}">{escape(told.scale_label)}</option>' for i, told in enumerate(facts.maps)
    )
    # Without autocomplete=off, some browsers bring back the last choice when a page is loaded again.
    return f'<label for="map">Map</label> <select id="map" autocomplete="off" disabled>{options}</select>'


def _of_map(i: int) -> str:
    """Marks what belongs to the i-th map; the script shows one of them."""
    return f' data-map="{i}"' + (" hidden" if i else "")


def _bar(overview: MapOverview, facts: MapFacts) -> str:
    ramp = coloured(np.linspace(0, overview.top, 256, dtype=np.float32)[None], overview.top)
    more = " and more" if overview.more else ""
    nothing = ""
    if not np.isfinite(overview.values).all():
        hatched = coloured(np.full((12, 24), np.nan, np.float32), 1)
        nothing = f'<span class="none"><img src="{data_uri(hatched)}" alt="hatched grey"> no data</span>'
    ticks = "".join(
        f'<span style="left:{place:.2f}%">{float(value):g}</span>'
        for value, place in Axis(0, overview.top, 0, 100, 4).ticks()  # few enough not to overlap
        if place < 95  # the upper end has its own label
    )
    return (
        f'<div class="bar"><div><img src="{data_uri(ramp)}" alt="colour scale, dark is low">{ticks}</div>'
        f"<span>{_short(overview.top)}{more}, {escape(facts.unit)}{nothing}</span></div>"
    )


def _short(value: float) -> str:
    """Three significant digits, or a whole number from 1000 to a million."""
    return f"{value:.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def _help(overview: Overview, spectra: Spectra) -> str:
    words = [
        "Point at a pixel to see its spectrum; a click keeps it, and the arrow keys (with Shift: by 10) move it."
    ]
    words.append("Rows and columns are those of the sharpened cube, counted from 0.")
    if spectra.step > 1:
        words.append(f"To keep this page small it holds the spectrum of every {ordinal(spectra.step)} pixel.")
    if overview.step > 1:
        words.append(f"The pictures show every {ordinal(overview.step)} pixel.")
    return " ".join(words)


def _chart(spectra: Spectra) -> Iterator[str]:
    yield "<h2>Spectrum</h2>"
    line = '<svg viewBox="0 0 32 12" aria-hidden="true"><line class="mean" x1="0" x2="32" y1="6" y2="6"/></svg>'
    area = '<svg viewBox="0 0 32 12" aria-hidden="true"><rect class="band" width="32" height="12"/></svg>'
    band = f"<span>{area}{escape(spectra.band)}</span>" if spectra.band else ""
    coarse = line.replace("mean", "input")
    same = '<label class="screen"><input type="checkbox" id="same"> same axis for all pixels</label>'
    lines = f"<span>{line}sharpened cube</span>{band}<span>{coarse}input, the pixel around this place</span>"
    yield f'<div class="key">{lines}{same}</div>'
    yield (
        '<svg id="chart" viewBox="0 0 960 300" role="img" aria-label="Spectrum"><g id="drawing"></g>'
        f'<g id="hair"></g><text id="across" x="510" y="294" text-anchor="middle">{escape(spectra.across)}</text>'
        '<text transform="translate(14 133) rotate(-90)" text-anchor="middle">'
        f"{escape(FILE_UNITS)}</text></svg>"
    )
    yield '<output class="told" id="told-band"></output>'
    ends = "<th>low</th><th>high</th>" if spectra.band else ""
    yield (
        '<details id="numbers" class="screen"><summary>Values of this spectrum</summary>'
        f'<div class="scroll"><table><thead><tr><th>{escape(spectra.across)}</th><th>mean</th>{ends}'
        "<th>input</th></tr></thead>"
        '<tbody id="listed"></tbody></table></div></details>'
    )


def _levels(overview: Overview, facts: Facts) -> Iterator[str]:
    yield "<h2>How much of the scene</h2>"
    for i, (seen, told) in enumerate(zip(overview.maps, facts.maps, strict=True)):
        yield f"<div{_of_map(i)}>{_shares(seen, told)}</div>"


def _shares(overview: MapOverview, facts: MapFacts) -> str:
    if not overview.levels:
        return "<p>The map is 0 or empty everywhere.</p>"
    rows = []
    for level, share in overview.levels:
        patch = coloured(np.full((1, 1), level, np.float32), overview.top)
        meter = f'<meter value="{share:.6f}" aria-hidden="true"></meter>'
        rows.append(
            f'<tr><th scope="row"><img src="{data_uri(patch)}" alt="">above {level:g}{escape(facts.sign)}</th>'
            f"<td>{share_text(share)}</td><td>{meter}</td></tr>"
        )
    return (
        f"<table><caption>Fraction of the pixels with data, by {escape(facts.scale_label)}</caption><thead><tr>"
        f'<th>{escape(facts.name)}</th><th>of the scene</th><th aria-hidden="true"></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def share_text(share: float) -> str:
    """A share as a percentage, never rounded to 0 or 100."""
    if 0 < share < 0.0001:
        return "under 0.01 %"
    if 0.9999 < share < 1:
        return "over 99.99 %"
    return f"{100 * share:.2f} %"


def _record(facts: Facts) -> Iterator[str]:
    if facts.record:
        text = escape(json.dumps(finite(facts.record), indent=2, default=str))
        yield f'<details class="screen"><summary>How it was made</summary><pre>{text}</pre></details>'


def _for_script(overview: Overview, spectra: Spectra, parcel: Packed, facts: Facts) -> str:
    rows, columns = spectra.mean.shape[1:]
    lowest, highest = (ends[np.isfinite(spectra.mean).any((1, 2))] for ends in spectra.ends())
    told = dict(
        rows=rows,
        columns=columns,
        bands=len(spectra.mean),
        step=spectra.step,
        extent=[length * overview.step for length in overview.colours.shape[:2]],
        places=spectra.places,
        breaks=breaks(spectra.places),
        nm=spectra.across.endswith("nm"),
        band=spectra.band,
        maps=[{"name": told.name, "unit": told.sign} for told in facts.maps],
        input={"rows": spectra.input.rows.tolist(), "columns": spectra.input.columns.tolist()},
        range=[float(lowest.min()), float(highest.max())] if lowest.size else [0.0, 1.0],
        lowest=parcel.lowest,
        size=parcel.size,
    )
    # A name that contains </script> must not end the script.
    return json.dumps(told, allow_nan=False).replace("<", "\\u003c")
