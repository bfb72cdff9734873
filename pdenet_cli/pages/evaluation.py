"""An evaluation as one HTML page: tables, pictures, spectra and curves, without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from pdenet_cli.evaluation.look import INPUT, TRUTH, Look
from pdenet_cli.evaluation.metrics import Metric
from pdenet_cli.evaluation.results import Evaluation, MetricValues, SceneResult
from pdenet_cli.evaluation.study import METRICS, Study
from pdenet_cli.evaluation.view import PARTS
from pdenet_cli.pages.chart import Line, Stroke, legend, line_chart, ordinal, strokes
from pdenet_cli.pages.frame import html_page
from pdenet_cli.pages.trust import trust_charts, trust_tables
from pdenet_cli.report import finite
from pdenet_cli.scene.picture import Picture, coloured, data_uri

COLOUR_MAP = "inferno"  # perceptually uniform, with any colour vision and in grey


def evaluation_page(evaluation: Evaluation) -> str:
    """The page as HTML."""
    title = "pdenet evaluate"
    body = [
        f"<h1>{title}</h1>",
        f'<p class="soft">{escape(_summary(evaluation))}</p>',
        "<h2>Scores</h2>",
        *(score_table(caption, table, evaluation) for caption, table in evaluation.tables()),
        *(f"<p>{escape(note)}</p>" for note in evaluation.remarks()),
        f"<p class='soft'>{_key(evaluation)}</p>",
        *(_study(name, study, evaluation.metrics) for name, study in evaluation.studies.items()),
        *(part for name, trusts in evaluation.trusts().items() for part in trust_tables(name, trusts)),
        *(part for scene in evaluation.scenes for part in _scene(scene, evaluation)),
        *_failed(evaluation.failed),
        "<h2>How it was made</h2>",
        f"<pre>{escape(json.dumps(finite(evaluation.job), indent=2))}</pre>",
    ]
    return html_page(title, "evaluation.css", body)


def _summary(evaluation: Evaluation) -> str:
    job, count = evaluation.job, len(evaluation.scenes)
    words = [
        f"{count} scene{'s' if count != 1 else ''}, {evaluation.problem}",
        evaluation.protocol,
        PARTS[job["part"]],
    ]
    if "samples" in job:
        words.append(f"{job['samples'][-1]} draws, seed {job['seed']}")
    return "; ".join(words) + "."


def _key(evaluation: Evaluation) -> str:
    explained = (f"<b>{metric.name}</b> {escape(metric.says)}" for metric in evaluation.metrics)
    gains = "" if evaluation.baseline is None else f" Small figures: the difference from {evaluation.baseline}."
    return "; ".join(explained) + f". The best of each column is bold.{gains}"


# Tables.


def score_table(caption: str, table: Mapping[str, MetricValues], evaluation: Evaluation) -> str:
    """The scores of systems, and how they differ from the baseline, as a table."""
    head = "".join(f"<th>{m.name}<span>{m.direction}</span></th>" for m in evaluation.metrics)
    rows = []
    for system in table:
        cells = (_cell(metric, system, table, evaluation.baseline) for metric in evaluation.metrics)
        rows.append(f'<tr><th scope="row">{escape(system)}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr><th>system</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(metric: Metric, system: str, table: Mapping[str, MetricValues], baseline: str | None) -> str:
    value = table[system][metric.name]
    text = metric.text(value)
    if len(table) > 1 and value == metric.best([values[metric.name] for values in table.values()]):
        text = f"<strong>{text}</strong>"
    if baseline is None or system == baseline:
        return f"<td>{text}</td>"
    start = table[baseline][metric.name]
    if round(value - start, metric.digits) == 0:
        return f"<td>{text}<small>{metric.text(0.0)}</small></td>"
    kind = "better" if metric.is_better(value, start) else "worse" if metric.is_better(start, value) else ""
    return f'<td>{text}<small class="{kind}">{metric.text(value - start, "+")}</small></td>'


# The sampling study.


def _study(name: str, study: Study, metrics: Sequence[Metric]) -> str:
    chosen = [metric for metric in metrics if metric.name in METRICS]
    head = "".join(f"<th>{m.name} {m.unit}<span>mean ± std over the sets</span></th>" for m in chosen)
    rows = [
        f'<tr><th scope="row">{s.samples}</th><td>{len(s.sets)}</td>'
        + "".join(f"<td>{m.text(s.mean(m.name))} ± {m.text(s.std(m.name))}</td>" for m in chosen)
        + "</tr>"
        for s in study.sampled
    ]
    certain = "".join(f"<td>{metric.text(study.certain[metric.name])}</td>" for metric in chosen)
    rows.append(f'<tr><th scope="row">every mask at 1</th><td></td>{certain}</tr>')
    charts = "".join(f"<figure>{_study_chart(study, metric)}</figure>" for metric in chosen)
    return (
        f"<h2>More draws: {escape(name)}</h2>"
        f'<div class="scroll"><table><thead><tr><th>draws</th><th>sets</th>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><div class="charts">{charts}</div>'
        '<p class="soft">Points: the mean over disjoint sets of draws; bars: one standard deviation. '
        "Dashed: the same network with every mask at 1.</p>"
    )


def _study_chart(study: Study, metric: Metric) -> str:
    counts = [float(s.samples) for s in study.sampled]
    drawn, certain = strokes(["draws"], grey="mask"), Stroke("#767676", "5 3")
    lines = [
        Line("every mask at 1", [counts[0], counts[-1]], [study.certain[metric.name]] * 2, certain),
        Line(
            "mean of the draws",
            counts,
            [s.mean(metric.name) for s in study.sampled],
            drawn["draws"],
            [s.std(metric.name) for s in study.sampled],
            marked=True,
        ),
    ]
    return line_chart(lines, "draws", f"{metric.name} {metric.unit}".strip(), f"{metric.name} against draws")


# One scene.


def _scene(scene: SceneResult, evaluation: Evaluation) -> Iterator[str]:
    yield f"<h2>{escape(scene.name)}</h2>"
    where = f"{scene.rows} x {scene.columns} pixels from row {scene.row}, column {scene.column}; "
    yield (
        f'<p class="soft">{where}{len(scene.bands)} bands, {scene.bands_left_out} left out; '
        f"{scene.share_left_out:.2%} of all values left out; 0..1 scaling: {escape(scene.radiometry)}.</p>"
    )
    drawn = strokes(list(scene.systems), evaluation.baseline, TRUTH) | {INPUT: Stroke("#444444", "1 3")}
    if scene.look is not None:
        yield from _maps(scene, scene.look)
        yield from _spectra(scene, scene.look, drawn)
    yield "<h3>PSNR of each band</h3>"
    yield legend({name: stroke for name, stroke in drawn.items() if name in scene.systems})
    lines = [_line(scene, name, s.bands["MPSNR"], drawn[name]) for name, s in scene.systems.items()]
    chart = line_chart(lines, _across(scene), "PSNR dB", f"PSNR of each band of {scene.name}")
    yield f'<div class="charts"><figure>{chart}</figure></div>'
    for name, trust in scene.uncertainty.items():
        yield f"<h3>How well {escape(name)} predicts its errors</h3>"
        yield trust_charts(trust, f"{name} on {scene.name}")


def _across(scene: SceneResult) -> str:
    return "wavelength, nm" if scene.wavelengths is not None else "band, counted from 0"


def _line(
    scene: SceneResult, name: str, values: Sequence[float], stroke: Stroke, half_widths: Sequence[float] = ()
) -> Line:
    """A value for each band as a line, with a band around it; broken where bands were left out."""
    places = scene.wavelengths or scene.bands
    x, y, halves = [float(places[0])], [values[0]], [*half_widths[:1]]
    for i in range(1, len(values)):
        if scene.bands[i] != scene.bands[i - 1] + 1:
            x.append(float(places[i]))
            y.append(float("nan"))
            halves += [float("nan")] if half_widths else []
        x.append(float(places[i]))
        y.append(values[i])
        halves += half_widths[i : i + 1]
    return Line(name, x, y, stroke, half_width=halves)


def _maps(scene: SceneResult, look: Look) -> Iterator[str]:
    thinned = "" if look.step == 1 else f", every {ordinal(look.step)} pixel"
    bands = ", ".join(map(str, look.rgb))
    marks = "".join(
        f'<i style="left:{(spot.column - scene.column + 0.5) / scene.columns:.2%};'
        f'top:{(spot.row - scene.row + 0.5) / scene.rows:.2%}">{number}</i>'
        for number, spot in enumerate(look.spots, start=1)
    )
    yield f"<h3>Colours (bands {bands}, stretched like the truth{thinned})</h3>"
    colours = (
        _picture(image, name, "colours", marks if name == TRUTH else "") for name, image in look.colours.items()
    )
    yield f'<div class="maps">{"".join(colours)}</div>'
    yield "<h3>Errors (root mean square over the bands, one scale for all systems)</h3>"
    maps = (_picture(coloured(error, look.top, COLOUR_MAP), name, "errors") for name, error in look.errors.items())
    yield f'<div class="maps">{"".join(maps)}</div>'
    ramp = coloured(np.linspace(0, look.top, 256, dtype=np.float32)[None], look.top, COLOUR_MAP)
    bar = f'<img src="{data_uri(ramp)}" alt="colour scale">'
    yield f'<p class="bar"><span>0</span>{bar}<span>{look.top:.3g} and more</span></p>'


def _picture(image: Picture, name: str, what: str, marks: str = "") -> str:
    label = escape(f"{what} of {name}", quote=True)
    shown = f'<div class="marked"><img src="{data_uri(image)}" alt="{label}">{marks}</div>'
    return f"<figure>{shown}<figcaption>{escape(name)}</figcaption></figure>"


def _spectra(scene: SceneResult, look: Look, drawn: Mapping[str, Stroke]) -> Iterator[str]:
    yield "<h3>Spectra</h3>"
    yield legend({name: drawn[name] for name in look.spectra})
    if look.half_widths:
        yield '<p class="soft">Shaded: intervals, in the colours of their systems.</p>'
    charts = []
    for i, spot in enumerate(look.spots):
        lines = [
            _line(scene, name, values[i].tolist(), drawn[name], look.half_widths[name][i].tolist())
            if name in look.half_widths
            else _line(scene, name, values[i].tolist(), drawn[name])
            for name, values in look.spectra.items()
        ]
        label = f"{i + 1}: row {spot.row}, column {spot.column}, {spot.why}"
        chart = line_chart(lines, _across(scene), "value, 0..1", f"Spectra at {label}")
        charts.append(f"<figure>{chart}<figcaption>{escape(label)}</figcaption></figure>")
    yield f'<div class="charts">{"".join(charts)}</div>'


def _failed(failed: Mapping[str, str]) -> Iterator[str]:
    if failed:
        yield "<h2>Failed scenes</h2>"
        yield "<ul>" + "".join(f"<li>{escape(n)}: {escape(why)}</li>" for n, why in failed.items()) + "</ul>"
