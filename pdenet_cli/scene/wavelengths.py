"""Units of wavelength by the many names that files have for them, as lengths in nanometres."""

from __future__ import annotations

import re
from collections.abc import Sequence

UNIT_PATTERNS = {
    1.0: "nanomet(er|re)s?|nm",
    1e3: "micromet(er|re)s?|microns?|[uµμ]m",
    0.1: "[aå]ngstr[oö]ms?|å",
    1e6: "millimet(er|re)s?|mm",
    1e7: "centimet(er|re)s?|cm",
    1e9: "met(er|re)s?|m",
}
"""Units of wavelength: the length of each in nanometres, and a pattern of the names that files use for it."""

# 1/cm and cm-1 are wavenumbers, not lengths.
WAVELENGTH_UNIT = rf"(?<![\w/])({'|'.join(UNIT_PATTERNS.values())})(?!\w)(?!\W*[-−⁻]\s*[1¹])"


def nanometres(wavelengths: Sequence[float], units: str | None) -> float | None:
    """The length of a wavelength unit in nanometres; None if it is not a length.

    Without a unit, numbers below 0.001 are taken for metres and below 100 for micrometres.
    """
    unit = (units or "unknown").strip().lower()
    if unit in ("", "unknown"):
        largest = max(wavelengths)
        return 1e9 if largest < 0.001 else 1e3 if largest < 100 else 1.0
    found = re.search(WAVELENGTH_UNIT, unit)
    return next((nm for nm, words in UNIT_PATTERNS.items() if found and re.fullmatch(words, found[0])), None)
