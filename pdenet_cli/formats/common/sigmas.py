"""The 1-sigma that some products ship beside their cube: as a variable of the same file, or as another file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

WORDS = r"(uncertainty|uncertainties|uncert|sigma|std|stdev|stddev|standard_deviation|standard_error)"
SIGMA = re.compile(rf"(.+?)[_ .-]{WORDS}|{WORDS}[_ .-](?:of[_ .-])?(.+)", re.IGNORECASE)
EMIT_FILES = ("_RFL_", "_RFLUNCERT_")  # parts of the names of EMIT's reflectance and of its 1-sigma


def is_sigma(name: str) -> bool:
    """Whether a variable of this name holds standard deviations."""
    leaf = name.rpartition("/")[2]
    return SIGMA.fullmatch(leaf) is not None or re.fullmatch(WORDS, leaf, re.IGNORECASE) is not None


def sigma_of(name: str, others: Iterable[str]) -> str | None:
    """The one among `others` that by its name and group is the 1-sigma of the variable `name`; None if none is."""
    group, _, leaf = name.rpartition("/")
    for candidate in others:
        match = SIGMA.fullmatch(candidate.rpartition("/")[2])
        if match and candidate.rpartition("/")[0] == group and leaf.lower() in _subjects(match):
            return candidate
    return None


def _subjects(match: re.Match[str]) -> set[str]:
    """What standard deviations of this name are of: both `reflectance` and `reflectance_data` have the same."""
    subject = (match[1] or match[4]).lower()
    return {subject, f"{subject}_data"}


def file_beside(path: Path) -> str | None:
    """The name of the file with the 1-sigma of EMIT's reflectance in `path`, where it lies beside it."""
    sigmas = path.name.replace(*EMIT_FILES, 1)
    return sigmas if sigmas != path.name and path.with_name(sigmas).is_file() else None
