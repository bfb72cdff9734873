"""`pdenet evaluate ESTIMATE --input SCENE`: what can be said of an estimate where there is no truth."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.degradation import Degradation, bicubic_pixels, point_spread
from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.findings import Figure, Finding, Judged
from pdenet_cli.evaluation.reference import Beside, Match, beside, matches, onto_grid
from pdenet_cli.evaluation.registration import Plane
from pdenet_cli.evaluation.view import View
from pdenet_cli.evaluation.without_truth import Consistency, Sigmas, consistency, plane_of
from pdenet_cli.formats import open_cube
from pdenet_cli.report import REPORT, Report, Say, Watch, hashes, versions
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import says_scale
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.survey import Survey
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.evaluate import headers, seconds_since
from pdenet_cli.tools.psf import measured_in
from pdenet_cli.tools.truths import TruthSettings, open_truth

AUTO = "auto"  # the `psf` that means: as measured in the scene
AGREES = "whether the result, seen again through the declared point spread, is what the instrument saw"
AGREES_NOT = (
    "whether detail finer than the input's pixels is right: invented texture that its pixels average away agrees, "
    "and a wrong point spread shows as blur"
)
ADDED = "how much contrast the result has that its degraded self does not tell, beside plain enlarging"
ADDED_NOT = "whether that contrast is there on the ground: it is a fact, not a score"
OTHER = "how the result, and plain enlarging, agree with what another sensor saw, moved and matched band by band"
OTHER_NOT = (
    "differences of date, light, view, bands and point spread: they count as errors of both; compare the columns"
)


def judge(
    estimate: Path,
    scene: Path,
    settings: TruthSettings,
    *,
    model: str | None = None,
    reference: Path | None = None,
    samples: int = 8,
    seed: int = 0,
    device: str = "auto",
    watch: Watch = lambda text, done, total: None,
    say: Say = lambda text: None,
) -> Judged:
    """Judge an estimate by the scene that it was made of, and by a `reference` of another sensor, if any."""
    started = time.monotonic()
    notes: list[str] = []
    with ExitStack() as stack:
        source = stack.enter_context(open_truth(scene, settings))
        other = stack.enter_context(open_cube(estimate, settings.variable if settings.bands else None))
        scale = _scale(source, other)
        psf, why = _declared(source, estimate, scale, settings)
        notes.append(f"Point spread: {psf} ({why}).")
        views = _views(source, other, settings, notes)
        found = consistency(*views, psf, _sigmas(source, views[0], stack, notes))
        findings = [_agreement(found, views[0]), _added(found)]
        if reference is not None:
            third = stack.enter_context(open_cube(reference))
            findings.append(_compared(views, third, scale))
        job = {
            "estimate": {"path": str(estimate), "inputs": hashes(other.files)},
            "input": {"path": str(scene), "inputs": hashes(source.files)},
            "reference": None if reference is None else str(reference),
            "scale": scale,
            "psf": psf.to_dict(),
            "versions": versions("torch", "numpy"),
        }
    coarser = None
    if model is not None:
        down = replace(settings, spread=psf, uncertainty=samples > 1, psf=None, kernel=None, fwhm=None)
        coarser = Benchmark([model], [samples], seed, device, down).run([scene], watch, say)
    return Judged(job, tuple(findings), coarser, tuple(notes), seconds_since(started))


def _scale(source: Cube, estimate: Cube) -> int:
    """How many times finer the estimate is; UsageError where it is not of this scene."""
    ours, theirs = source.meta, estimate.meta
    scale = theirs.rows // ours.rows
    if scale < 2 or theirs.shape() != (ours.bands, ours.rows * scale, ours.columns * scale):
        found = " and ".join(" x ".join(map(str, meta.shape())) for meta in (theirs, ours))
        way = "Expected the same bands on a grid 2, 3, 4 ... times finer; `bands` and `window` choose those used"
        raise UsageError(f"{estimate.path} and its input are {found} (bands x rows x columns). {way}.")
    return scale


def _declared(source: Cube, estimate: Path, scale: int, settings: TruthSettings) -> tuple[Degradation, str]:
    """The point spread that was given, else that of the estimate's report, else bicubic; and where it is from."""
    if settings.psf == AUTO:
        return point_spread(measured_in(source, settings.value_range)[0].psf, scale), "measured in the scene"
    if settings.psf is not None:
        return point_spread(settings.psf, scale), "as given"
    report = Report.read(estimate.with_name(estimate.name + REPORT)) or Report.read(estimate.with_suffix(REPORT))
    told = "" if report is None else str(report.job.get("psf", ""))
    if match := re.fullmatch(rf"x{scale} gaussian of fwhm ([\d.]+)(?: x ([\d.]+))?", told):
        return point_spread("x".join(part for part in match.groups() if part), scale), "of the estimate's report"
    if told in (f"x{scale} area", f"x{scale} bicubic"):
        return point_spread("square" if told.endswith("area") else "bicubic", scale), "of the estimate's report"
    return Degradation(scale), "none was given; see `psf`"


def _views(source: Cube, estimate: Cube, settings: TruthSettings, notes: list[str]) -> tuple[View, View]:
    """The input and the estimate as the same 0..1."""
    surveys: dict[Path, Survey] = {}

    def survey_of(cube: Cube) -> Survey:
        return surveys.setdefault(cube.path, Survey.of(cube))

    reading = Reading.of(source, None, settings.value_range, survey_of(source))
    (own, theirs), scaling = headers(estimate, source, survey_of)
    notes += scaling
    radiometry = reading.radiometry.for_other_file(theirs, own)
    return (
        View(source, reading.radiometry, reading.bands, source.meta.window),
        View(estimate, radiometry, reading.bands, estimate.meta.window),
    )


def _sigmas(source: Cube, view: View, stack: ExitStack, notes: list[str]) -> Sigmas | None:
    """The product's 1-sigma of each band as 0..1, where the product ships one."""
    named = source.meta.sigma
    if named is None or source.whole is not None:
        return None
    beside_it = source.path.with_name(named)
    cube = open_cube(beside_it) if beside_it.is_file() else open_cube(source.path, named)
    stack.enter_context(cube)
    if cube.meta.shape()[1:] != source.meta.shape()[1:]:
        return None
    notes.append(f"1-sigma: the product's own, {named}.")
    numbers = source.band_numbers

    def sigma(band: int) -> Plane:
        number = numbers[view.bands[band]]
        width = cube.read(bands=slice(number, number + 1))[0].astype(np.float64)
        return np.asarray(width * np.abs(view.radiometry.units([view.bands[band]]))[0, 0, 0])

    return sigma


def _in_units(view: View, values: Sequence[float]) -> NDArray[np.float64]:
    """Differences of 0..1 by band in what the product's numbers measure."""
    bands = view.bands
    factor = np.abs(view.radiometry.measured(bands) / view.radiometry.units(bands))[:, 0, 0]
    return np.asarray(np.array(values) * factor)


def _unit(view: View) -> str:
    return "(as the header scales)" if says_scale(view.cube.meta) else "(file's numbers)"


def _mean_square(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt((known**2).mean())) if known.size else float("nan")


def _agreement(found: Consistency, view: View) -> Finding:
    """Consistency as figures."""
    lies, unit = found.registration, _unit(view)
    nan = float("nan")
    remaining, difference = (_in_units(view, values) for values in (found.remaining, found.difference))
    gains = np.array(found.gains)
    figures = [
        Figure("shift down", nan if lies is None else round(lies.down, 4), "pixels", "of the input's"),
        Figure("shift right", nan if lies is None else round(lies.right, 4), "pixels", "of the input's"),
        Figure("gain", float(np.nanmedian(gains)), "", "median over the bands; 1: as bright as the input", 4),
        Figure(
            "blur",
            nan if lies is None else round(lies.blur, 3),
            "pixels",
            "FWHM that the degraded result has more than the input (negative: less), in quadrature",
        ),
        Figure("remaining difference", _mean_square(remaining), unit, "root mean square, the above taken out"),
        Figure("remaining angle", found.angle, "°", "between spectra, the above taken out"),
        Figure("plain difference", _mean_square(difference), unit, "root mean square, nothing taken out"),
        Figure("plain angle", found.plain_angle, "°", "between spectra, nothing taken out"),
    ]
    if found.in_sigmas is not None and found.within_sigma is not None:
        figures += [
            Figure(
                "remaining difference in 1-sigma", found.in_sigmas, "σ", "median, in the product's own 1-sigma"
            ),
            Figure("within 1-sigma", 100 * found.within_sigma, "%", "68 % where only the noise differs"),
        ]
    bands = {"gain": found.gains, "offset (0..1)": found.offsets, f"remaining {unit}": tuple(remaining.tolist())}
    return Finding("Consistency with the input", AGREES, AGREES_NOT, tuple(figures), bands)


def _added(found: Consistency) -> Finding:
    """The detail that was added, as figures."""
    own, plain = (_mean_square(np.array(values)) for values in (found.detail, found.bicubic_detail))
    gain = float(np.nanmedian(found.gains))
    figures = (
        Figure("detail", own / gain if gain > 0 else own, "(0..1)", "root mean square beyond the input's pixels"),
        Figure("of bicubic", plain, "(0..1)", "the same of the input enlarged by bicubic interpolation"),
    )
    return Finding("Detail added", ADDED, ADDED_NOT, figures, {"detail (0..1)": found.detail})


def _compared(views: tuple[View, View], third: Cube, scale: int) -> Finding:
    """The estimate, and the enlarged input, beside a cube of another sensor."""
    source, estimate = views
    reading = Reading.of(third, None)
    reference = View(third, reading.radiometry, reading.bands, third.meta.window)
    pairs = matches(source.cube.meta, third.meta, source.bands, reading.bands)
    where = {band: place for place, band in enumerate(reading.bands)}
    targets = [onto_grid(reference, where[pair.band], estimate.cube.meta) for pair in pairs]
    sharpened = beside(list(_matched(estimate, pairs)), targets)
    plain = [bicubic_pixels(plane, scale).astype(np.float64) for plane in _matched(source, pairs)]
    enlarged = beside(plain, targets)
    figures: list[Figure] = [Figure("matched bands", len(pairs), "", "bands that both see", 6)]
    for name, own in (("result", sharpened), ("bicubic", enlarged)):
        figures += _beside_figures(name, own)
    bands = {
        "reference band": [float(pair.band) for pair in pairs],
        "gain": sharpened.gains,
        "offset (0..1)": sharpened.offsets,
        "remaining (0..1)": sharpened.remaining,
        "remaining of bicubic (0..1)": enlarged.remaining,
    }
    return Finding(f"Beside {third.path.name}", OTHER, OTHER_NOT, tuple(figures), bands)


def _matched(view: View, pairs: Sequence[Match]) -> Iterator[Plane]:
    """For each match, the mean of the bands of a view that see its light."""
    where = {band: place for place, band in enumerate(view.bands)}
    for pair in pairs:
        yield np.mean([plane_of(view, where[band]) for band in pair.bands], axis=0)


def _beside_figures(name: str, own: Beside) -> list[Figure]:
    lies = own.registration
    return [
        Figure(f"{name}: shift down", round(lies.down, 3), "pixels", "of the result's, taken out"),
        Figure(f"{name}: shift right", round(lies.right, 3), "pixels", "of the result's, taken out"),
        Figure(f"{name}: shift left over", round(lies.left, 4), "pixels", "measured again after that"),
        Figure(
            f"{name}: gain", float(np.nanmedian(own.gains)), "", "of the reference over it, median of the bands", 4
        ),
        Figure(f"{name}: offset", float(np.nanmedian(own.offsets)), "(0..1)", "median of the bands"),
        Figure(
            f"{name}: remaining difference",
            _mean_square(np.array(own.remaining)),
            "(0..1)",
            "root mean square, shift, gain and offset taken out",
        ),
        Figure(f"{name}: correlation", float(np.nanmean(own.correlations)), "", "mean of the bands", 4),
        Figure(f"{name}: angle", own.angle, "°", "between matched spectra, gain and offset taken out"),
    ]
