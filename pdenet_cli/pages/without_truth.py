"""An estimate judged without a truth, as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from pdenet_cli.evaluation.findings import COARSER, COARSER_NOT, Finding, Judged
from pdenet_cli.evaluation.results import Evaluation
from pdenet_cli.pages.chart import Line, line_chart, strokes
from pdenet_cli.pages.evaluation import score_table
from pdenet_cli.pages.frame import html_page
from pdenet_cli.pages.trust import trust_tables
from pdenet_cli.report import finite


def without_truth_page(judged: Judged) -> str:
    """The page as HTML."""
    names = (escape(judged.job[role]["path"]) for role in ("estimate", "input"))
    body = [
        "<h1>pdenet evaluate, without a truth</h1>",
        f'<p class="soft">{", made of ".join(names)}</p>',
        *(f"<p>{escape(note)}</p>" for note in judged.notes),
        *(part for finding in judged.findings for part in _finding(finding)),
        *([] if judged.coarser is None else _coarser(judged.coarser)),
        "<h2>How it was made</h2>",
        f"<pre>{escape(json.dumps(finite(judged.job), indent=2))}</pre>",
    ]
    return html_page("pdenet evaluate, without a truth", "evaluation.css", body)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"<h2>{escape(finding.title)}</h2>"
    yield _words(finding.shows, finding.hides)
    rows = "".join(
        f'<tr><th scope="row">{escape(f.name)}</th><td>{escape(f.text)}</td>'
        f'<td class="says">{escape(f.says)}</td></tr>'
        for f in finding.figures
    )
    yield f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'
    known = {name: values for name, values in finding.bands.items() if name != "reference band"}
    charts = (
        f"<figure>{_chart(name, list(values))}</figure>" for name, values in known.items() if len(values) > 1
    )
    yield f'<div class="charts">{"".join(charts)}</div>'


def _chart(name: str, values: list[float]) -> str:
    places = [float(band) for band in range(len(values))]
    return line_chart([Line(name, places, values, strokes([name], None)[name])], "band", name, f"{name} by band")


def _coarser(evaluation: Evaluation) -> Iterator[str]:
    yield "<h2>One scale down</h2>"
    yield _words(COARSER, COARSER_NOT)
    yield from (score_table(caption, table, evaluation) for caption, table in evaluation.tables())
    for name, trusts in evaluation.trusts().items():
        yield from trust_tables(name, trusts)
    yield from (f"<p>{escape(note)}</p>" for note in evaluation.remarks())


def _words(shows: str, hides: str) -> str:
    return f"<p><b>Shows</b> {escape(shows)}.<br><b>Cannot show</b> {escape(hides)}.</p>"
