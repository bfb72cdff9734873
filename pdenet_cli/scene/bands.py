"""Which bands of a cube are wanted: by number or by wavelength, as ranges and lists of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdenet_cli.errors import UsageError

BandChoice = slice | str
"""A range of band numbers, or any choice as a user writes it after `bands`: 0:20,30 or 450nm:900nm,1.5um."""

UNITS = {"nm": 1.0, "um": 1e3, "µm": 1e3, "μm": 1e3}  # in nanometres; there are two letters µ
END = rf"(?:(\d{{1,9}})|(\d+\.?\d*|\.\d+)\s*({'|'.join(UNITS)}))?"
ROUNDING = 1e-6  # relative: a file may have its wavelengths as float32, or in another unit


@dataclass(frozen=True)
class _Part:
    """What stands between two commas: a range of band numbers, or of wavelengths in nanometres."""

    text: str
    numbers: slice | None
    lengths: tuple[float | None, float | None] = (None, None)  # one wavelength is a range from it to itself

    def of(self, count: int, wavelengths: Sequence[float] | None) -> Iterator[int]:
        if self.numbers is not None:
            yield from _run(self.numbers, count, self.text)
            return
        if wavelengths is None or not (known := {band: nm for band, nm in enumerate(wavelengths) if nm > 0}):
            problem = f"Bands {self.text}: the cube has no wavelengths in a unit of length"
            raise UsageError(f"{problem}. Choose bands by number, for example 10:60.")
        found = list(self._within(known) if ":" in self.text else self._nearest(known))
        if not found:
            ends = f"{min(known.values()):.6g} to {max(known.values()):.6g} nm"
            raise UsageError(f"Bands {self.text}: the cube has no band there; it has {ends}.")
        yield from found

    def _within(self, known: dict[int, float]) -> Iterator[int]:
        first, last = self.lengths
        for band, nm in known.items():
            above = first is None or nm >= first * (1 - ROUNDING)
            if above and (last is None or nm <= last * (1 + ROUNDING)):
                yield band

    def _nearest(self, known: dict[int, float]) -> Iterator[int]:
        """The band nearest to the one wavelength; none where that is more than half a band beyond them all."""
        wanted = self.lengths[0] or 0.0
        low, high = min(known.values()), max(known.values())
        beyond = (high - low) / (len(known) - 1) / 2 if len(known) > 1 else 0.0
        if low * (1 - ROUNDING) - beyond <= wanted <= high * (1 + ROUNDING) + beyond:
            yield min(known, key=lambda band: abs(known[band] - wanted))


def band_choice(text: str) -> BandChoice:
    """What a user wrote after `bands`; UsageError if it means nothing for any cube."""
    parts = _parts(text)
    only = parts[0].numbers if len(parts) == 1 and ":" in text else None
    return text.strip() if only is None else only


def band_numbers(choice: BandChoice, count: int, wavelengths: Sequence[float] | None) -> tuple[int, ...]:
    """The chosen ones of `count` bands, each once and in their order; band centres are in nanometres.

    UsageError where any part of the choice is not in the cube.
    """
    if isinstance(choice, slice):
        return tuple(_run(choice, count))
    return tuple(sorted({band for part in _parts(choice) for band in part.of(count, wavelengths)}))


def runs(numbers: Sequence[int]) -> list[list[int]]:
    """Band numbers as ranges [first, last + 1] of neighbours."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return found


def _run(chosen: slice, count: int, text: str | None = None) -> range:
    start, stop, step = chosen.indices(count)
    text = text or ":".join("" if end is None else str(end) for end in (chosen.start, chosen.stop))
    if max(chosen.stop or 0, (chosen.start or 0) + 1) > count:
        raise UsageError(f"Bands {text}: the cube has only {count} bands, 0 to {count - 1}.")
    if step != 1 or stop <= start:
        raise UsageError(f"Bands {text} select nothing: the cube has {count} bands.")
    return range(start, stop)


def _parts(text: str) -> list[_Part]:
    return [_part(word.strip(), text) for word in text.split(",")]


def _part(word: str, text: str) -> _Part:
    ends = [found for end in word.lower().split(":") if (found := re.fullmatch(END, end.strip()))]
    if not word or not len(ends) == word.count(":") + 1 <= 2:
        example = "Write for example 10:60, or 0:20,30, or 450nm:900nm,1.5um"
        raise UsageError(f"`bands` {text}: not a range of bands, nor a list of them. {example}.")
    numbers, lengths = [_number(end) for end in ends], [_length(end) for end in ends]
    by_number, by_length = (any(end is not None for end in given) for given in (numbers, lengths))
    if by_number and by_length:
        raise UsageError(f"`bands` {word}: a band number and a wavelength. Give both ends a unit, or none.")
    given = [end for end in (*numbers, *lengths) if end is not None]
    if given != sorted(given):
        raise UsageError(f"`bands` {word}: the range is reversed. Put the smaller end first.")
    if by_length:
        return _Part(word, None, (lengths[0], lengths[-1]))
    if len(ends) == 1 and (only := numbers[0]) is not None:
        return _Part(word, slice(only, only + 1))
    return _Part(word, slice(*numbers))


def _number(end: re.Match[str]) -> int | None:
    """The end of a range as a band number; None if it is open or a wavelength."""
    return int(end[1]) if end[1] else None


def _length(end: re.Match[str]) -> float | None:
    """The end of a range as a wavelength in nanometres; None if it is open or a number."""
    return float(end[2]) * UNITS[end[3]] if end[2] else None
