"""`pdenet evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pdenet_cli.cli import options
from pdenet_cli.cli.console import (
    as_options,
    out,
    print_json,
    print_table,
    say,
    stop_if_failed,
    time_text,
)
from pdenet_cli.cli.parsing import parse_pixels, parse_samples, settings_of
from pdenet_cli.cli.progress import shown_stages
from pdenet_cli.cli.spreading import Spreading, spread_memory
from pdenet_cli.errors import UsageError

if TYPE_CHECKING:
    from pdenet_cli.evaluation.measures import Trust
    from pdenet_cli.evaluation.metrics import Metric
    from pdenet_cli.evaluation.results import Evaluation, MetricValues
    from pdenet_cli.evaluation.study import Study
    from pdenet_cli.tools.truths import TruthSettings


DEFAULT_SAMPLES = "8"
OF_MODELS = (
    "uncertainty",
    "samples",
    "ensemble",
    "mixtures",
    "kernel",
    "fwhm",
    "noise",
    "psf",
    "workers",
    "cluster",
)
WIDE_TERMINAL = 90  # columns that a table of every metric needs; a narrower one leaves UIQI out
WORSE_MARK = "!"  # before a difference that is worse than the baseline


def evaluate(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            help="ESTIMATE and TRUTH; with --input ESTIMATE alone; or with --model any number of TRUTHs.",
            metavar="CUBES",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Degrade each TRUTH, sharpen it with this model and score the result. Repeat for more models of "
            "the same scale."
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(
            help=f"{options.SAMPLES} A list (1,2,5,10,20) shows how scores change with N. With --uncertainty: one "
            "number.",
            metavar="N",
            show_default=DEFAULT_SAMPLES,
        ),
    ] = None,
    scene: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Without a truth: the cube that ESTIMATE was made of. --model adds the scores one scale down.",
            metavar="SCENE",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="With --input: a cube of another sensor to compare ESTIMATE with, laid on it and matched band by "
            "band first.",
            metavar="CUBE",
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="Metric definitions to use: pdenet, paper (angles as the paper's code has them), mcnet, sspsr."
        ),
    ] = "pdenet",
    part: options.ComparedPart = "whole",
    scale: Annotated[
        int | None,
        typer.Option(
            help="Scale for bicubic, if it is the only --model. Without --model: the scale used in ERGAS.",
            show_default="4",
            min=1,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write an HTML page with maps, spectra and curves.", metavar="FILE")
    ] = None,
    pixel: Annotated[
        list[str] | None,
        typer.Option(
            help="Show the spectra of this pixel on the page. Repeat for more pixels.", metavar="ROW COLUMN"
        ),
    ] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also assess the models' uncertainty (needs --model).")
    ] = False,
    level: Annotated[
        float | None,
        typer.Option(
            help="Nominal level of the intervals (needs --uncertainty).", show_default="the model's own, else 0.9"
        ),
    ] = None,
    ensemble: options.Ensemble = None,
    mixtures: options.MixtureCount = None,
    kernel: options.OtherKernel = None,
    fwhm: options.Fwhm = None,
    noise: options.OtherNoise = None,
    psf: Annotated[
        str | None,
        typer.Option(
            help="The point spread that models for any point spread are told: FWHM in pixels (1.4 or 1.4x1.8), "
            "square or bicubic. With --input: that of SCENE, also auto.",
            metavar="FWHM",
            show_default="as cubes are degraded; with --input that of ESTIMATE's report",
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all scores, also per band.", metavar="FILE")] = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: options.WorkerCount = None,
    cluster: options.ClusterAddress = None,
    memory: options.Memory = None,
    value_range: options.Range = None,
    bands: options.BandRange = None,
    window: options.ScenePart = None,
    var: options.Variable = None,
    axes: options.Axes = None,
    nodata: options.Nodata = None,
    progress: options.Progress = "auto",
    as_json: options.Json = False,
) -> None:
    """Score an estimate against the truth, or models against bicubic on degraded truths.

    MPSNR, PSNR, MSSIM, SAM, RMSE, ERGAS, CC, UIQI and bias under a named
    protocol, all of values scaled to 0..1; all but sspsr clip both cubes to
    that. Nodata and bad bands are left out. For models, constant bands are left
    out too. --uncertainty adds coverage and width of the intervals, AUSE, AURG,
    Spearman and ENCE.

    Without a truth, --input SCENE tells whether ESTIMATE agrees with SCENE
    under its point spread (shift, gain, blur, what remains) and what it added.
    """
    from pdenet_cli.formats import prepare

    prepare()
    from pdenet_cli.files import refuse_existing, refuse_folders, write_whole
    from pdenet_cli.system import use_threads
    from pdenet_cli.tools.truths import TruthSettings, refuse_to_replace

    use_threads(threads)
    if scene is not None:
        _judge(context, files, scene, model or [], samples, (html, csv), overwrite, as_json)
        return
    if reference is not None:
        raise UsageError("--reference compares an estimate that has no truth; add --input SCENE.")
    _refuse_idle(context.params)
    files_to_write = tuple(path for path in (html, csv) if path is not None)
    refuse_folders(files_to_write)
    refuse_existing(files_to_write, overwrite)
    look, pixels = html is not None, parse_pixels(pixel or ())
    settings = spread_memory(settings_of(TruthSettings, context, look=look, pixels=pixels), workers)
    spreading = Spreading(workers, cluster, threads)
    refuse_to_replace(files_to_write, files, settings)
    evaluation = _evaluate(
        files, model or [], parse_samples(samples or DEFAULT_SAMPLES), scale, seed, device, settings, spreading
    )
    # Printed before files are written: a full disk must not lose the work of hours.
    if as_json:
        print_json(evaluation.to_dict())
    else:
        _show(evaluation)
    if html is not None:
        from pdenet_cli.pages.evaluation import evaluation_page

        write_whole(html, evaluation_page(evaluation), overwrite=overwrite)
    if csv is not None:
        write_whole(csv, evaluation.to_csv(), overwrite=overwrite)
    for path in files_to_write if not as_json else ():
        out.print(escape(str(path)))
    stop_if_failed(evaluation.failed, len(files), "; the others were scored" if evaluation.scenes else "")


def _refuse_idle(given: Mapping[str, Any]) -> None:
    """UsageError for an option that does nothing without another one."""
    if given["pixel"] and given["html"] is None:
        raise UsageError("--pixel applies only to the page; add --html FILE.")
    idle = [option for option in OF_MODELS if given[option] not in (None, False)]
    if idle and not given["model"]:
        raise UsageError(f"--{idle[0]} applies only to models; add --model.")
    if given["level"] is not None and not given["uncertainty"]:
        raise UsageError("--level sets the level of the intervals; add --uncertainty.")


def _judge(
    context: typer.Context,
    files: Sequence[Path],
    scene: Path,
    models: Sequence[str],
    samples: str | None,
    pages: tuple[Path | None, Path | None],
    overwrite: bool,
    as_json: bool,
) -> None:
    """`pdenet evaluate ESTIMATE --input SCENE`."""
    from pdenet_cli.cli.judging import show
    from pdenet_cli.files import refuse_existing, refuse_folders, write_whole
    from pdenet_cli.pages.without_truth import without_truth_page
    from pdenet_cli.tools.truths import TruthSettings, refuse_to_replace
    from pdenet_cli.tools.without_truth import judge

    html, csv = pages
    options = context.params
    if len(files) != 1 or len(models) > 1 or csv is not None:
        raise UsageError("--input takes one ESTIMATE, at most one --model and no --csv.")
    if given := [name for name in ("kernel", "fwhm") if options[name] is not None]:
        raise UsageError(f"--{given[0]} does not apply with --input; use --psf.")
    written = () if html is None else (html,)
    refuse_folders(written)
    refuse_existing(written, overwrite)
    settings = settings_of(TruthSettings, context, look=False, pixels=())
    refuse_to_replace(written, (*files, scene), settings)
    with shown_stages(1) as watch:
        judged = judge(
            files[0],
            scene,
            settings,
            model=models[0] if models else None,
            reference=options["reference"],
            samples=parse_samples(samples or DEFAULT_SAMPLES)[-1],
            seed=options["seed"],
            device=options["device"],
            watch=watch,
            say=say,
        )
    if as_json:
        print_json(judged.to_dict())
    else:
        show(judged)
        if judged.coarser is not None:
            _show(judged.coarser)
    if html is not None:
        write_whole(html, without_truth_page(judged), overwrite=overwrite)
        if not as_json:
            out.print(escape(str(html)))


def _evaluate(
    files: Sequence[Path],
    models: Sequence[str],
    samples: Sequence[int],
    scale: int | None,
    seed: int,
    device: str,
    settings: TruthSettings,
    spreading: Spreading,
) -> Evaluation:
    from pdenet_cli.tools.benchmark import Benchmark
    from pdenet_cli.tools.evaluate import evaluate_files

    if not models:
        if len(files) != 2:
            raise UsageError(
                f"Expected two cubes, ESTIMATE and TRUTH, got {len(files)}. With --model: any number of TRUTHs."
            )
        return evaluate_files(files[0], files[1], scale, settings)
    benchmark = Benchmark(models, samples, seed, device, settings, scale)
    with spreading.engine() as engine, shown_stages(len(files) * len(models)) as watch:
        return benchmark.run(files, watch, say, engine)


# Tables.


def _show(evaluation: Evaluation) -> None:
    for title, table in evaluation.tables():
        print_table(_table(title, table, evaluation))
    for name, study in evaluation.studies.items():
        print_table(_study_table(name, study, evaluation.metrics))
    for name, trusts in evaluation.trusts().items():
        for judged in _trust_tables(name, trusts):
            print_table(judged)
    for scene in evaluation.scenes:
        left = f"{scene.share_left_out:.2%} of the values left out ({scene.bands_left_out} bands, nodata)"
        size = f"{len(scene.bands)} bands, {scene.rows} x {scene.columns} pixels"
        out.print(f"[dim]{escape(scene.name)}: {size}; {left}; 0..1 scaling: {escape(scene.radiometry)}[/]")
    for remark in evaluation.remarks():
        out.print(f"[dim]{escape(as_options(remark))}[/]")
    job = evaluation.job
    gain = f"; gain: over {evaluation.baseline}, {WORSE_MARK} where worse" if evaluation.baseline else ""
    how = f"{evaluation.protocol}, {evaluation.problem}, {job['part']}"
    out.print(f"[dim]{how}{gain}; {time_text(evaluation.seconds)}[/]")


def _table(title: str, table: Mapping[str, MetricValues], evaluation: Evaluation) -> Table:
    shown = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    shown.add_column(overflow="fold")  # on a narrow terminal names are folded, not numbers
    narrow = out.is_terminal and out.width < WIDE_TERMINAL
    metrics = [metric for metric in evaluation.metrics if not narrow or metric.name != "UIQI"]
    for metric in metrics:
        shown.add_column(f"{metric.name}\n{metric.direction}", justify="right", no_wrap=True)
    for system, values in table.items():
        cells = [_cell(metric, values, table) for metric in metrics]
        shown.add_row(escape(system), *cells)
        if evaluation.baseline not in (None, system):
            start = table[evaluation.baseline]
            gains = (_gain(metric, values[metric.name], start[metric.name]) for metric in metrics)
            shown.add_row("  gain", *gains, style="dim")
    return shown


def _cell(metric: Metric, values: MetricValues, table: Mapping[str, MetricValues]) -> str:
    text = metric.text(values[metric.name])
    best = metric.best([row[metric.name] for row in table.values()])
    return f"[bold]{text}[/]" if len(table) > 1 and values[metric.name] == best else text


def _gain(metric: Metric, value: float, start: float) -> str:
    return f"{WORSE_MARK if metric.is_better(start, value) else ''}{metric.text(value - start, '+')}"


def _study_table(name: str, study: Study, metrics: Sequence[Metric]) -> Table:
    from pdenet_cli.evaluation.study import METRICS

    chosen = [metric for metric in metrics if metric.name in METRICS]
    shown = Table(title=f"{escape(name)}: more draws", title_justify="left", box=None, pad_edge=False)
    for head in ("draws", "sets", *(f"{m.name} {m.unit}{end}" for m in chosen for end in ("", " std"))):
        shown.add_column(head, justify="right")
    for sampled in study.sampled:
        pairs = (m.text(value) for m in chosen for value in (sampled.mean(m.name), sampled.std(m.name)))
        shown.add_row(str(sampled.samples), str(len(sampled.sets)), *pairs)
    certain = (text for m in chosen for text in (m.text(study.certain[m.name]), ""))
    shown.add_row("every mask at 1", "", *certain)
    return shown


def _trust_tables(name: str, trusts: Mapping[str, Trust]) -> Iterator[Table]:
    from pdenet_cli.evaluation.measures import INTERVAL_PREFIX, mean_trust, measures_by_kind

    rows = {scene: trust.values for scene, trust in trusts.items()}
    if len(trusts) > 1:
        rows["mean"] = mean_trust(list(trusts.values()))
    for kind, measures in measures_by_kind(next(iter(trusts.values()))).items():
        shown = Table(title=f"{escape(name)}: {kind}", title_justify="left", box=None, pad_edge=False)
        shown.add_column("scene", overflow="fold")
        for measure in measures:
            head = f"{measure.name.removeprefix(INTERVAL_PREFIX)}\n{measure.text_unit}"
            shown.add_column(head, justify="right", no_wrap=True)
        for scene, values in rows.items():
            style = "bold" if scene == "mean" else ""
            shown.add_row(escape(scene), *(m.text(values[m.name]) for m in measures), style=style)
        yield shown
