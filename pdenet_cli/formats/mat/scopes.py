"""The small variables of a MATLAB file: what those around a cube say about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.choosing import Variable
from pdenet_cli.formats.mat.folding import COLUMNS, ROWS
from pdenet_cli.formats.mat.names import METADATA, parse_lines
from pdenet_cli.scene.meta import CubeMeta

LAYOUT = ROWS | COLUMNS | {"nband", "nbands", "bands", "interleave", "axes"}
"""Small variables about the size of this one cube: never copied to another."""

MOST_ITEMS = 4096  # of a list that an output takes over from its scene


@dataclass(frozen=True)
class Scopes:
    """The small values by the struct that holds them ("" for the file itself) and their name there."""

    values: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, variables: Iterable[Variable]) -> Scopes:
        scopes: dict[str, dict[str, Any]] = {"": {}}
        for variable in variables:
            if variable.value is not None and not variable.is_cube:  # a cube of one pixel is short, too
                scope, name = _split(variable.name)
                scopes.setdefault(scope, {})[name] = variable.value
        return cls(scopes)

    @property
    def top(self) -> Mapping[str, Any]:
        """The values in the file itself, outside of structs."""
        return self.values[""]

    def beside(self, cube: str) -> Mapping[str, Any]:
        """The values in the same struct as a variable."""
        return self.values.get(_split(cube)[0], {})

    def wavelength_counts(self) -> set[int]:
        """The lengths of all lists of wavelengths."""
        return {len(found) for scope in self.values.values() for found in _wavelengths(scope).values()}

    def unusual_name(self, cube: str, wavelengths: Sequence[float] | None) -> str | None:
        """A name other than `wavelength` that the file has for these wavelengths, first of all beside the cube."""
        for scope in (self.beside(cube), *self.values.values()):
            for name, values in _wavelengths(scope).items():
                if name != "wavelength" and tuple(values) == wavelengths:
                    return name
        return None

    def metadata(self, cube: str, bands: int, place: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields of CubeMeta in the cube's own struct, and its remaining values except those named in `place`.

        Wavelengths, units and widths may come from another struct, together; so may the flags of good bands.
        """
        home = _split(cube)[0]
        values = {n: v for n, v in self.beside(cube).items() if n not in place}
        fields, rest = _parsed(values, bands)
        for scope in sorted(self.values, key=lambda s: (not s.startswith(home), s)):
            others, _ = _parsed(self.values[scope], bands)
            if "wavelengths" not in fields and "wavelengths" in others:
                fields |= {n: others[n] for n in ("wavelengths", "wavelength_units", "fwhm") if n in others}
            if "good_bands" in others:
                fields.setdefault("good_bands", others["good_bands"])
        return fields, {n: v for n, v in rest.items() if not _is_layout(n, v) and not _is_long(v)}

    def misfits(self, bands: int) -> dict[str, Any]:
        """The fields of CubeMeta whose lists do not have one item per band."""
        found = (attributes.misfits(_renamed(scope), bands) for scope in self.values.values())
        return {field: values for scope in found for field, values in scope.items()}


def is_kept(variable: Variable, cube: str) -> bool:
    """Whether outputs have what a variable says: a small one beside the cube, or about its bands or its size."""
    scope, name = _split(variable.name)
    known = attributes.field_of(name) is not None or name.lower() in LAYOUT
    small = variable.value is not None and not _is_long(variable.value)
    return small and (known or scope == _split(cube)[0])


def spectrum_in(values: Mapping[str, Any]) -> str | None:
    """The variable `bands`, if it holds wavelengths as in ICVL and ARAD, and no other does; else None."""
    if any(attributes.field_of(name) == "wavelengths" for name in values):
        return None
    return next((n for n, v in values.items() if n.lower() == "bands" and attributes.is_spectrum(v)), None)


def unpacked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in a file of pdenet, with those of other formats that are in its variable `metadata`."""
    lines = values.get(METADATA, [])
    texts = isinstance(lines, str) or (isinstance(lines, list) and all(isinstance(line, str) for line in lines))
    others = {name: value for name, value in values.items() if name != METADATA}
    return (parse_lines(lines) if texts else {}) | others


def _split(name: str) -> tuple[str, str]:
    """The struct that holds a variable, and its name there."""
    scope, _, leaf = name.rpartition(".")
    return scope, leaf


def _wavelengths(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The lists of wavelengths by their names."""
    spectrum = spectrum_in(values)
    return {
        n: v
        for n, v in values.items()
        if (attributes.field_of(n) == "wavelengths" or n == spectrum) and isinstance(v, list)
    }


def _parsed(values: Mapping[str, Any], bands: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a cube of so many bands in the values of one struct, and the values that are none."""
    fitting = {name: value for name, value in _renamed(values).items() if _fits(name, value, bands)}
    return attributes.parse_fields(fitting, bands)


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with a variable `bands` that holds wavelengths under their usual name."""
    spectrum = spectrum_in(values)
    return {"wavelength" if name == spectrum else name: value for name, value in values.items()}


def _fits(name: str, value: Any, bands: int) -> bool:
    """Whether a list per band has as many items as bands; a variable `wl` may be something else."""
    per_band = attributes.field_of(name) in CubeMeta.PER_BAND
    return not per_band or bands == (len(value) if isinstance(value, list) else 1)


def _is_layout(name: str, value: Any) -> bool:
    return name.lower() in LAYOUT and not (name.lower() == "bands" and isinstance(value, list))


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > MOST_ITEMS
