"""How well a system knows its errors, as tables and charts of an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from pdenet_cli.evaluation.measures import INTERVAL_PREFIX, Measure, Trust, mean_trust, measures_by_kind
from pdenet_cli.pages.chart import Line, Stroke, legend, line_chart

STD_LINE, INTERVAL_LINE = "standard deviation", "interval"
BEST_LINE, RANDOM_LINE = "best ranking", "random ranking"
STROKES = {
    STD_LINE: Stroke("#0072b2"),
    INTERVAL_LINE: Stroke("#d55e00", "7 3"),
    BEST_LINE: Stroke("#111111", width=2.4),
    RANDOM_LINE: Stroke("#767676", "5 3"),
}


def trust_tables(name: str, trusts: Mapping[str, Trust]) -> Iterator[str]:
    """Every measure of a system on every scene."""
    yield f"<h2>Uncertainty: {escape(name)}</h2>"
    rows = {scene: trust.values for scene, trust in trusts.items()}
    if len(rows) > 1:
        rows = {f"mean of {len(rows)} scenes": mean_trust(list(trusts.values()))} | rows
    shown = measures_by_kind(next(iter(trusts.values())))
    for kind, measures in shown.items():
        yield _table(kind, measures, rows)
    words = (f"<b>{m.name}</b> {escape(m.says)}" for measures in shown.values() for m in measures)
    yield (
        f'<p class="soft">{"; ".join(words)}. Errors and uncertainties of a pixel are merged over its bands as '
        "root mean squares; coverage and width count every band of every pixel.</p>"
    )


def _table(caption: str, measures: tuple[Measure, ...], rows: Mapping[str, Mapping[str, float]]) -> str:
    head = "".join(
        f"<th>{m.name.removeprefix(INTERVAL_PREFIX)}<span>{escape(m.text_unit)}</span></th>" for m in measures
    )
    body = "".join(
        f'<tr><th scope="row">{escape(scene)}</th>'
        + "".join(f"<td>{measure.text(values[measure.name])}</td>" for measure in measures)
        + "</tr>"
        for scene, values in rows.items()
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr><th>scene</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def trust_charts(trust: Trust, where: str) -> str:
    """Charts of sparsification, of errors by bins of uncertainty, and of coverage by level."""
    charts = [_sparsification(trust, where), *_bins(trust, where)]
    if trust.reliability:
        charts.append(_reliability(trust, where))
    return f'<div class="charts">{"".join(charts)}</div>'


def _figure(lines: list[Line], across: str, up: str, title: str, says: str) -> str:
    chart = line_chart(lines, across, up, title)
    key = legend({line.name: line.stroke for line in lines})
    return f"<figure>{key}{chart}<figcaption>{escape(says)}</figcaption></figure>"


def _sparsification(trust: Trust, where: str) -> str:
    names = {"std": STD_LINE, "interval": INTERVAL_LINE, "best": BEST_LINE, "random": RANDOM_LINE}
    lines = [
        Line(name, [float(k) for k in range(len(trust.curves[key]))], trust.curves[key], STROKES[name])
        for key, name in names.items()
        if key in trust.curves
    ]
    says = "Sparsification: the error of the remaining pixels when the most uncertain ones are discarded."
    return _figure(lines, "pixels discarded, %", "RMSE, 0..1", f"Sparsification, {where}", says)


def _bins(trust: Trust, where: str) -> Iterator[str]:
    for key, name, what in (
        ("std", STD_LINE, "standard deviation"),
        ("interval", INTERVAL_LINE, "half width at 68.3 %"),
    ):
        if key in trust.bins:
            numbers = [float(i + 1) for i in range(len(trust.bins[key]))]
            lines = [
                Line("error", numbers, trust.bins[f"error by {key}"], STROKES[BEST_LINE], marked=True),
                Line(name, numbers, trust.bins[key], STROKES[name], marked=True),
            ]
            says = f"Pixels in tenths by their {what}: root mean square error and {what} of each tenth."
            yield _figure(lines, "tenth, most certain first", "0..1", f"Error by {what}, {where}", says)


def _reliability(trust: Trust, where: str) -> str:
    nominal, covered = ([100 * share for share in trust.reliability[name]] for name in ("nominal", "met"))
    lines = [
        Line("nominal", [nominal[0], nominal[-1]], [nominal[0], nominal[-1]], STROKES[RANDOM_LINE]),
        Line("measured", nominal, covered, STROKES[INTERVAL_LINE], marked=True),
    ]
    says = "Reliability: the fraction of true values inside the intervals of each level."
    return _figure(lines, "nominal level, %", "inside, %", f"Reliability, {where}", says)
