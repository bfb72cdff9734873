"""How well a system knew its errors on a scene whose truth is known: order, size and coverage.

Of a pixel, error and uncertainty are merged over its valid bands as root mean squares; the measures of a scene are
those of its pixels, the measures of a band those of its values. Coverage and width are means over all values, and
AUSE/random is also given for all values of a scene in one order: which bands of a pixel to trust counts there too.

The order and the size are those of the standard deviation of the samples. A calibrated interval, where there is
one, has AUSE/random and ENCE of its own: its half width at 68.3 % stands in the place of the standard deviation.
"""

from __future__ import annotations

import math

import numpy as np

from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation.error_values import ErrorValues, Factors, MergedPixels
from pdenet_cli.evaluation.estimate_maps import EstimateMaps, band_maps
from pdenet_cli.evaluation.measures import (
    AVERAGED,
    INTERVAL_PREFIX,
    NAMES,
    OF_VALUES,
    SHARP_COVERAGE,
    SHARP_WIDTH,
    SHARPNESS,
    Trust,
    mean_of_known,
)
from pdenet_cli.evaluation.sharpness import sharpness_of
from pdenet_cli.evaluation.sparsification import STEPS, Pool, Sparsification, bins_of, ence, spearman
from pdenet_cli.evaluation.trial import Coarse
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.error_net import ErrorNet
from pdenet_cli.uncertainty.calibration import Calibration
from pdenet_cli.uncertainty.error_ratios import ErrorRatios

ONE_SIGMA = 0.6827  # share of normal errors within one standard deviation


def assess(truth: View, maps: EstimateMaps, calibration: Calibration | None, level: float) -> Trust:
    """How well a system knew its errors on a scene; without a calibration, only the measures of the samples."""
    factors = None if calibration is None else _factors(calibration, level)
    merged = MergedPixels(truth.part.pixels)
    ratios: ErrorRatios | None = None
    bands: dict[str, list[float]] = {}
    sizes = []
    pools: dict[str, Pool] = {}
    for band, part in band_maps(truth, maps):
        errors = ErrorValues.of(part, factors)
        values, binned = _band_measures(errors)
        merged.add(part.valid_mask, errors)
        sizes.append(len(errors.squares))
        width = truth.radiometry.spread_from_unit(np.full((1, 1, 1), errors.width), (band,)).item()
        for name, value in (values | {"interval width": width}).items():
            bands.setdefault(name, []).append(value)
        pools = {name: pools[name] + own_pool if pools else own_pool for name, own_pool in binned.items()}
        ratios = part.ratios if ratios is None else ratios + part.ratios
    ratios = _refuse_empty(ratios, truth)
    whole = merged.finished()
    means = {name: mean_of_known(bands[name], sizes) for name in AVERAGED}
    means |= {name: pool.sparsification().ause_to_random for name, pool in pools.items()}
    curves, bins = _curves_and_bins(whole)
    reliability: dict[str, list[float]] = {}
    if calibration is not None:
        covered = [ratios.coverage(calibration.at(nominal)) for nominal in calibration.levels]
        reliability = {"nominal": list(calibration.levels), "met": covered}
    return Trust(_measures(whole) | means, bands, curves, bins, reliability, level if factors else None)


def at_known_sharpness(
    truth: View, low: Coarse, maps: EstimateMaps, errors: ErrorNet, calibration: Calibration, level: float
) -> dict[str, float]:
    """How sharp the truth is, and what the intervals hold if they are of a truth as sharp as that.

    The spread of `maps` is replaced. Nothing where the truth is too small, or only a part of what was sharpened.
    """
    fwhm = sharpness_of(truth)
    if fwhm is None or low.part != low.cube.meta.window:
        return {}
    maps.expect(low, errors.for_truths_of(fwhm))
    ratios, factors = error_ratios_of(truth, maps), calibration.at(level)
    return {SHARPNESS: fwhm, SHARP_COVERAGE: ratios.coverage(factors), SHARP_WIDTH: ratios.width(factors)}


def error_ratios_of(truth: View, maps: EstimateMaps) -> ErrorRatios:
    """The errors of an estimate relative to their spread, for a calibration."""
    total: ErrorRatios | None = None
    for _, part in band_maps(truth, maps):
        total = part.ratios if total is None else total + part.ratios
    return _refuse_empty(total, truth)


def _refuse_empty(ratios: ErrorRatios | None, truth: View) -> ErrorRatios:
    if ratios is None or not ratios.pixels.sum():
        raise UsageError(f"{truth.cube.path}: nothing to compare; no pixel has a value.")
    return ratios


def _factors(calibration: Calibration, level: float) -> Factors:
    """The factors at a level, and at one sigma unless a certified calibration ends below it."""
    reaches = calibration.levels[0] <= ONE_SIGMA <= calibration.levels[-1]
    return calibration.at(level), calibration.at(ONE_SIGMA) if reaches else None


def _measures(whole: ErrorValues) -> dict[str, float]:
    """Every measure of merged pixels; NaN where it does not apply."""
    std, order = whole.uncertainties["std"], whole.sparsification("std")
    values = _in_order(order) | {"Spearman": spearman(std, whole.errors), "ENCE": ence(std, whole.squares)}
    if "interval" in whole.uncertainties:
        values["interval AUSE/random"] = whole.sparsification("interval").ause_to_random
        values["interval ENCE"] = ence(whole.uncertainties["interval"], whole.squares)
    return dict.fromkeys(NAMES, math.nan) | values


def _band_measures(band: ErrorValues) -> tuple[dict[str, float], dict[str, Pool]]:
    """Every measure of a band, and its values in bins, by the measure OF_VALUES that they are for.

    Bands are many, and ordering their values takes long.
    """
    said, observed = (Pool.bins_by_root(values) for values in (band.variances, band.squares))
    pool = Pool.of(said, band.variances, observed, band.squares)
    pools = {OF_VALUES: pool}
    values = dict.fromkeys(NAMES, math.nan)
    values |= {"interval coverage": band.coverage, "interval unit width": band.width}
    if band.half_widths is not None:
        places = Pool.bins_by_root(band.half_widths)
        pools[INTERVAL_PREFIX + OF_VALUES] = Pool.of(places, band.half_widths, observed, band.squares)
    if not len(band.squares):
        return values, pools
    order = pool.sparsification()
    values |= _in_order(order) | {OF_VALUES: order.ause_to_random}
    values |= {"Spearman": pool.spearman(said, observed), "ENCE": pool.ence()}
    if of_interval := pools.get(INTERVAL_PREFIX + OF_VALUES):
        ratio = of_interval.sparsification().ause_to_random
        values |= {"interval AUSE/random": ratio, INTERVAL_PREFIX + OF_VALUES: ratio}
        values["interval ENCE"] = of_interval.ence()
    return values, pools


def _in_order(order: Sparsification) -> dict[str, float]:
    """The measures of an order by std."""
    return {"AUSE/random": order.ause_to_random, "AUSE": order.ause, "AURG": order.aurg}


def _curves_and_bins(whole: ErrorValues) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The sparsification curves and the bins of a scene, for charts."""
    curves: dict[str, list[float]] = {}
    bins: dict[str, list[float]] = {}
    for name, uncertainty in whole.uncertainties.items():
        order = whole.sparsification(name)
        curves[name] = order.curve.tolist()
        curves |= {"best": order.oracle.tolist(), "random": [order.random] * STEPS}
        said, observed = bins_of(uncertainty, whole.squares)
        bins |= {name: said.tolist(), f"error by {name}": observed.tolist()}
    return curves, bins
