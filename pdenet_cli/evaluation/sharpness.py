"""How sharp a scene is down to its pixels: the point spread that its spectrum of power looks like.

Natural scenes have a power of about 1/f² at a frequency f. A Gaussian point spread takes power from the fine
frequencies, so the ratio of fine to coarse power tells its width. It is a way to order scenes, not a measurement
of an instrument: noise and texture make a scene look sharper than its lens, smooth things softer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.evaluation.view import View
from pdenet_cli.scene.window import Window

COARSE, FINE = (0.06, 0.125), (0.25, 0.5)  # cycles per pixel, whose powers are compared
SIDE, SMALLEST_SIDE = 64, 16  # of the squares whose spectra are averaged; smaller ones have no coarse waves
MOST_BANDS, MOST_SQUARES = 12, 64  # that are looked at
LEAST_KNOWN = 0.9  # share of a square that must have data
SOFTEST = 3.0  # FWHM in pixels; softer scenes have nothing left at fine frequencies

Spectrum = NDArray[np.float64]  # (rows, columns) of a Fourier transform of real numbers, or of several


def sharpness_of(scene: View) -> float | None:
    """The FWHM in pixels of the Gaussian point spread that a scene looks like, 0 to SOFTEST.

    None where it is too small, or where nothing varies.
    """
    side = min(SIDE, scene.part.rows, scene.part.columns)
    if side < SMALLEST_SIDE:
        return None
    ratios = _ratios(sum(_spectra(scene, side), np.zeros(())), side)
    if not len(ratios):
        return None
    widths, expected = _ratio_by_width(side)
    return float(np.interp(-np.median(ratios), -expected, widths))  # the ratio falls with the width


def _spectra(scene: View, side: int) -> Iterator[Spectrum]:
    """The power of every band that is looked at, in one square of the scene after another."""
    count = len(scene.bands)
    bands = np.unique(np.linspace(0, count - 1, min(count, MOST_BANDS)).round().astype(int)).tolist()
    rows, columns = (
        range(0, length - side + 1, max(1, side // 2)) for length in (scene.part.rows, scene.part.columns)
    )
    corners = [(row, column) for row in rows for column in columns]
    taper = np.outer(*2 * (np.hanning(side + 2)[1:-1],))
    for row, column in corners[:: max(1, len(corners) // MOST_SQUARES)]:
        unit, known = scene.read(Window(row, column, side, side), bands)
        if known.mean() >= LEAST_KNOWN:
            waves = np.fft.rfft2((unit - unit.mean((1, 2), keepdims=True)) * taper)
            yield waves.real**2 + waves.imag**2


def _ratios(power: Spectrum, side: int) -> NDArray[np.float64]:
    """The logarithm of fine to coarse power of every band that varies."""
    if power.ndim < 2:
        return np.empty(0)
    frequency = _frequency(side)
    fine, coarse = (power[..., (low <= frequency) & (frequency <= high)].mean(-1) for low, high in (FINE, COARSE))
    varies = (fine > 0) & (coarse > 0)
    return np.asarray(np.log(fine[varies] / coarse[varies]))


@cache
def _ratio_by_width(side: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Widths from 0 to SOFTEST, and the ratio of a scene of power 1/f² behind a point spread of each width."""
    frequency, widths = _frequency(side), np.linspace(0, SOFTEST, 61)
    natural = 1 / np.maximum(frequency, 1 / side) ** 2
    seen = [natural * np.exp(-((pi * width * frequency) ** 2) / (2 * log(2))) for width in widths]
    return widths, _ratios(np.stack(seen), side)


def _frequency(side: int) -> Spectrum:
    """The cycles per pixel of every wave of a square, whatever their direction."""
    return np.asarray(np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)))
