"""`pdenet evaluate ESTIMATE TRUTH`: an estimate beside its truth; and how a scene is scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import numpy as np

from pdenet_cli.errors import FormatError, PdenetError, UsageError
from pdenet_cli.evaluation.look import TRUTH, Look
from pdenet_cli.evaluation.metrics import PROTOCOLS
from pdenet_cli.evaluation.results import Evaluation, SceneResult, SystemScores
from pdenet_cli.evaluation.view import View, compare
from pdenet_cli.models.catalogue import DEFAULT_SCALE
from pdenet_cli.report import hashes
from pdenet_cli.scene.bands import runs
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import physical_top, says_scale, without_implausible_scale
from pdenet_cli.scene.survey import Survey
from pdenet_cli.tools.truths import TruthSettings, open_truth, truth_view

SAME_PLACE = 0.1  # largest distance of two grids that count as the same, in pixels
SAME_LEVEL = 3.0  # two cubes of one scene are at most this many times as bright as each other
MEANINGLESS = "The scores may be meaningless."


def evaluate_files(estimate: Path, truth: Path, scale: int | None, settings: TruthSettings) -> Evaluation:
    """Score one cube against another of the same shape; `scale` is the one in ERGAS."""
    started = time.monotonic()
    factor = scale or DEFAULT_SCALE
    notes: list[str] = []
    with open_truth(truth, settings) as target, _open_estimate(estimate, settings) as compared:
        if compared.meta.shape() != target.meta.shape():
            problem = f"{estimate} is {_size(compared)} and {truth} {_size(target)}"
            raise UsageError(f"{problem} (bands x rows x columns); only cubes of the same shape can be compared.")
        notes += [*_wavelength_notes(compared.meta, target.meta), *_ground_notes(compared.meta, target.meta)]
        survey_of = cache(Survey.of)  # it may read all of a cube: once is enough
        count = target.meta.bands  # constant bands too
        survey = survey_of(target)
        view = truth_view(target, factor, settings, multiple=1, count=count, say=notes.append, survey=survey)
        view, left_out = _without_bad_bands(view, compared)
        notes += left_out
        # The truth decides what 0 and 1 are; the estimate may store the same values in another scale.
        (estimated, truths), scaling = headers(compared, target, survey_of)
        notes += scaling
        radiometry = view.radiometry.for_other_file(truths, estimated)
        name = estimate.name if estimate.name != TRUTH else str(estimate)
        scene = scene_result(
            truth.name, view, {name: View(compared, radiometry, view.bands, view.part)}, factor, settings
        )
        if not any(MEANINGLESS in note for note in notes):
            notes += _brightness_notes(name, scene)
    job = settings.job(factor) | {"estimate": {"path": str(estimate), "inputs": hashes(compared.files)}}
    metrics = PROTOCOLS[settings.protocol].metrics(factor)
    return Evaluation(job, metrics, (scene,), seconds=seconds_since(started), notes=tuple(notes))


def _without_bad_bands(truth: View, estimate: Cube) -> tuple[View, list[str]]:
    """The truth without bands that the estimate marks bad, and a note if there are any."""
    good = estimate.meta.good_bands or (True,) * estimate.meta.bands
    bands = tuple(band for band in truth.bands if good[band])
    if not bands:
        raise UsageError(f"{estimate.path}: nothing to compare; every band is marked bad in one of the cubes.")
    bad = len(truth.bands) - len(bands)
    subject = "1 band that it marks bad is" if bad == 1 else f"{bad} bands that it marks bad are"
    return replace(truth, bands=bands), [f"{estimate.path.name}: {subject} left out of the scores."] if bad else []


def headers(estimate: Cube, truth: Cube, survey_of: Callable[[Cube], Survey]) -> tuple[list[CubeMeta], list[str]]:
    """What the two headers say of their numbers. Where only one does, the other's values decide what they are:
    the numbers of that file, or what these measure. A note tells which.
    """
    cubes = estimate, truth
    metas = [_credible_header(cube, survey_of) for cube in cubes]
    says = [says_scale(meta) for meta in metas]
    if says[0] == says[1]:
        return metas, []
    silent, scaled = says.index(False), says.index(True)
    level, survey = survey_of(cubes[silent]).top, survey_of(cubes[scaled])
    stored, physical = survey.top, physical_top(metas[scaled], survey)
    subject = f"{cubes[silent].path.name} has no credible scale factor; its values"
    theirs = f"the other cube's {stored:.4g} as stored, {physical:.4g} as its header scales it"
    percentile = f"their 99.9th percentile is {level:.4g}, {theirs}"
    if _times(level, physical) < min(_times(level, stored), SAME_LEVEL):
        metas[silent] = replace(metas[silent], gains=(1.0,) * metas[silent].bands, offsets=None)
        return metas, [f"{subject} are taken as physical values ({percentile})."]
    read = f"{subject} are read with the other cube's scaling ({percentile})"
    return metas, [f"{read}." if _times(level, stored) < SAME_LEVEL else f"{read}. {MEANINGLESS}"]


def _brightness_notes(name: str, scene: SceneResult) -> list[str]:
    """A note if the values of an estimate and of its truth are too far apart to be in one unit."""
    ratio = scene.systems[name].brightness
    if not ratio > 0 or _times(ratio, 1) < SAME_LEVEL:
        return []
    larger, smaller = (name, scene.name) if ratio > 1 else (scene.name, name)
    times = float(f"{_times(ratio, 1):.2g}")
    problem = f"The values of {larger} are on average {times:,g} times as large as those of {smaller}"
    return [f"{problem}: are both in the same unit? {MEANINGLESS}"]


def _times(level: float, second: float) -> float:
    """How many times as large the larger of two levels is as the other."""
    return max(level / second, second / level) if min(level, second) > 0 else inf


def _credible_header(cube: Cube, survey_of: Callable[[Cube], Survey]) -> CubeMeta:
    """A header without a scale factor that the values contradict."""
    return without_implausible_scale(cube.meta, survey_of(cube)) if cube.meta.reflectance_scale else cube.meta


def _open_estimate(estimate: Path, settings: TruthSettings) -> Cube:
    """The estimate; its variable may have another name than that of the truth, if it has only one."""
    if (window := settings.window) is not None:  # unless it is the estimate of that window alone
        whole = _open_estimate(estimate, replace(settings, window=None))
        alone = (whole.meta.rows, whole.meta.columns) == (window.rows, window.columns)
        return whole if alone else whole.windowed(window)
    try:
        return open_truth(estimate, settings)
    except FormatError:
        if settings.variable is None:
            raise
        with suppress(PdenetError):
            return open_truth(estimate, replace(settings, variable=None))
        raise


def _wavelength_notes(estimate: CubeMeta, truth: CubeMeta) -> list[str]:
    """A note if the wavelengths of two cubes differ."""
    ours, theirs = estimate.wavelengths_nm, truth.wavelengths_nm
    if ours is None or theirs is None or len(theirs) < 2:
        return []
    apart = np.abs(ours - theirs).max()
    if apart <= np.median(np.abs(np.diff(theirs))) / 2:
        return []
    return [f"The wavelengths of the two cubes differ by up to {apart:.4g} nm; bands are compared by number."]


def _ground_notes(estimate: CubeMeta, truth: CubeMeta) -> list[str]:
    """A note if two cubes are georeferenced and not in the same place."""
    ours, theirs = estimate.georeference, truth.georeference
    if ours.transform is None or theirs.transform is None:
        return []
    consequence = "pixels are compared by row and column."
    codes = [(place.crs or "").upper() for place in (ours, theirs)]
    # As text one system has many spellings; as a code only one.
    if codes[0] != codes[1] and all(code.startswith("EPSG:") for code in codes):
        return [f"The two cubes are in different coordinate systems, {codes[0]} and {codes[1]}; {consequence}"]
    apart = theirs.max_corner_offset(ours, truth.columns, truth.rows)
    if apart <= SAME_PLACE:
        return []
    how = f"are up to {apart:.3g} pixels apart on the" if codes[0] == codes[1] else "do not cover the same"
    return [f"The two cubes {how} ground; {consequence}"]


def scene_result(
    name: str,
    truth: View,
    views: Mapping[str, View],
    scale: int,
    settings: TruthSettings,
    seconds: Mapping[str, float] | None = None,
) -> SceneResult:
    """The scores of all estimates of one truth, by system."""
    meta, part = truth.cube.meta, truth.part
    tallies = {system: PROTOCOLS[settings.protocol].tally(scale) for system in views}
    compare(truth, views, tallies)
    counted = min(tally.counted for tally in tallies.values())
    if not counted:
        raise UsageError(f"{truth.cube.path}: nothing to compare; no pixel has a valid value in both cubes.")
    waves, numbers = meta.wavelengths_nm, truth.cube.band_numbers
    return SceneResult(
        name=name,
        inputs=hashes(truth.cube.files),
        rows=part.rows,
        columns=part.columns,
        row=part.row,
        column=part.column,
        chosen_bands=None if settings.bands is None else runs(numbers),
        bands=tuple(numbers[band] for band in truth.bands),
        bands_left_out=meta.bands - len(truth.bands),
        share_left_out=1 - counted / (meta.bands * part.pixels),
        radiometry=truth.radiometry.reason,
        wavelengths=None if waves is None else tuple(float(waves[band]) for band in truth.bands),
        systems={
            system: SystemScores(
                tally.values(),
                {metric: values.tolist() for metric, values in tally.bands().items()},
                (seconds or {}).get(system, 0.0),
                tally.brightness,
            )
            for system, tally in tallies.items()
        },
        look=Look.of(truth, views, settings.pixels) if settings.look else None,
    )


def _size(cube: Cube) -> str:
    return " x ".join(map(str, cube.meta.shape()))


def seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 2)
