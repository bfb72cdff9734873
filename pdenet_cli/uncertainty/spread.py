"""The scale of errors before any calibration, and the strata of pixels that are calibrated apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdenet_cli.uncertainty.evidence import Evidence, Map

STRATA = ("flat", "edge")
FLOOR = 1e-4  # 0..1: smallest spread, for where all samples agree the truth still differs from them
ROUGHNESS_WEIGHT = 0.3  # where the input is rough at its finest scale, there is unseen detail below it
FLAT_BELOW = 5e-4  # roughness, 0..1, up to which a pixel counts as flat: not even noise is visible there
STRATA_SAY = (
    f"Flat is where the input hardly varies around a pixel (roughness at most {FLAT_BELOW:g} of the 0..1 range); "
    "edge is everywhere else."
)

Strata = NDArray[np.intp]  # which of STRATA, shaped as a map


def spread(evidence: Evidence) -> Map:
    """The scale of the errors, 0..1 and above 0: half widths are multiples of it.

    It is the error that the model has learned to expect, or a guess where it has not learned to.
    """
    return guess(evidence.std, evidence.roughness) if evidence.expected is None else evidence.expected


def guess(std: Map, roughness: Map) -> Map:
    """The scale of the errors from the samples' std and the input's `roughness`.

    The std of the samples shows what the network is unsure of. The roughness of the input shows how much detail it
    never contained, which no network can know: with it, one factor serves smooth and rough scenes.
    """
    return std + np.float32(ROUGHNESS_WEIGHT) * roughness + np.float32(FLOOR)


def strata(roughness: Map) -> Strata:
    """The index in STRATA of each pixel: where the scene is flat, and where it has edges."""
    return np.asarray(roughness > FLAT_BELOW, np.intp)
