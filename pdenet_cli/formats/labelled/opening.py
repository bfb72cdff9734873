"""The cube among named arrays: which one it is, its pixels, and what attributes and other arrays say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdenet_cli.errors import FormatError
from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.common.base import OpenOptions
from pdenet_cli.formats.common.choosing import (
    OneBand,
    Variable,
    choose_axes,
    choose_variable,
    interleave,
    listed,
    single_axis,
)
from pdenet_cli.formats.common.sigmas import sigma_of
from pdenet_cli.formats.labelled import placing, spectra
from pdenet_cli.formats.labelled.names import GLOBAL, is_internal, kept_dimensions
from pdenet_cli.formats.labelled.spectra import NamedList
from pdenet_cli.formats.labelled.store import Store
from pdenet_cli.formats.labelled.views import Unsigned, WithoutAxis, positive, unsigned, without_sign
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.sliceable import Sliceable

ADVICE = {
    2: "A matrix is read as one band if it is named with `variable`.",
    4: "A cube has three axes: first cut out one time (or whatever the other axis is), such as with "
    "xarray's isel(time=0) or with ncks -d time,0.",
}


@dataclass(frozen=True)
class _Found:
    """The variable that holds the cube, and how it is read as one."""

    name: str
    array: Sliceable
    dtype: np.dtype[Any]
    axes: str
    dimensions: Sequence[str]  # names of the axes
    attributes: dict[str, Any]  # its own, and those of the groups around it
    fill: float | None
    notes: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.axes, self.array.shape, strict=True))

    @property
    def along(self) -> dict[str, str]:
        """The names of the axes by their letters."""
        return dict(zip(self.axes, self.dimensions, strict=False))


def read(store: Store, options: OpenOptions) -> tuple[CubeMeta, Sliceable, str]:
    """The cube in a store: its metadata, its pixels, and the order of their axes."""
    variables = store.variables()
    if options.variable is not None:
        asked = _asked(store, options.variable, variables)
        options = replace(options, variable=asked.name)
        variables = [asked, *(v for v in variables if v.name != asked.name)]
    variables = [_without_single_axis(store, variable) for variable in variables]
    lists = spectra.lists_in(store, variables)
    found = _as_meant(_find(store, variables, lists, options))
    return _described(store, found, lists), found.array, found.axes


def _asked(store: Store, name: str, variables: Sequence[Variable]) -> Variable:
    """The variable of this name; where there is none, an error that lists those that could be meant."""
    try:
        return store.variable(name)
    except FormatError as error:
        large = [variable for variable in variables if len(variable.shape) > 1]
        if name.strip("/") in {variable.name.strip("/") for variable in variables}:
            raise
        raise FormatError(f"{str(error).removesuffix('.')}. It has {listed(large)}.") from error


def _find(store: Store, variables: list[Variable], lists: list[NamedList], options: OpenOptions) -> _Found:
    """The variable asked for, or the cube of the store, with its axes in order."""
    counts = spectra.counts_of(lists)
    chosen, notes = choose_variable(store.path, variables, options.variable, counts, ADVICE)
    attrs = _inherited(store, chosen.name)
    array, dimensions, left_out = _pixels(store, chosen.name)
    doubts: tuple[str, ...]
    if len(chosen.shape) == 2:
        array, axes, doubts = OneBand(array), "rcb", ("a matrix, read as one band",)
        dimensions = [*dimensions, ""]
    else:
        counts |= {
            len(v) for n, v in attrs.items() if spectra.field_of(n) == "wavelengths" and isinstance(v, list)
        }
        names = spectra.named_axes(store, dimensions, lists)
        axes, doubts = choose_axes(store.path, chosen, options.axes, counts, names=names)
    assert chosen.dtype is not None
    return _Found(
        name=chosen.name,
        array=array,
        dtype=chosen.dtype,
        axes=axes,
        dimensions=dimensions,
        attributes=attrs,
        fill=store.fill(chosen.name),
        notes=(*notes, *left_out, *doubts),
    )


def _as_meant(found: _Found) -> _Found:
    """The cube with unsigned numbers, if it says that they are stored as signed ones, as netCDF-3 has to."""
    if str(found.attributes.get("_Unsigned")).lower() != "true" or found.dtype.kind != "i":
        return found
    return replace(
        found,
        array=Unsigned(found.array),
        dtype=unsigned(found.dtype),
        attributes=without_sign(found.attributes, found.dtype),
        fill=positive(found.fill, found.dtype),
    )


def _described(store: Store, found: _Found, lists: list[NamedList]) -> CubeMeta:
    """The metadata of a cube from its attributes and from the arrays beside it."""
    attrs, sizes, along = found.attributes, found.sizes, found.along
    beside = spectra.beside(store, found.name, lists, along.get("b", ""), sizes["b"])
    fields, rest = attributes.parse_fields(attrs | {n: v for n, v in beside.items() if n not in attrs}, sizes["b"])
    notes = found.notes
    if "nodata" not in fields and found.fill:  # not 0, which is the default and may be data
        fields["nodata"] = found.fill
        notes += (f"its fill value {found.fill:.10g} is read as nodata",)
    used = attributes.georeference_fields(attrs)
    extra = {name: value for name, value in rest.items() if name not in used and not is_internal(name)}
    of_array = store.attributes(found.name)
    above = tuple(name for name in store.attributes("") if name in extra and name not in of_array)
    place, doubts = placing.placed(store, found.name, attrs, along)
    cubes = (v.name for v in store.variables() if v.shape == found.array.shape)
    return CubeMeta(
        bands=sizes["b"],
        rows=sizes["r"],
        columns=sizes["c"],
        dtype=found.dtype,
        interleave=interleave(found.axes),
        georeference=place,
        dimensions=kept_dimensions(along, found.name),
        variable=found.name or None,
        sigma=sigma_of(found.name, cubes),
        extra=extra,
        native={GLOBAL: above} if above else {},
        notes=(*notes, *doubts, *attributes.notes_on_other_nodata(attrs, fields.get("nodata"))),
        **spectra.misfits(lists, sizes["b"]) | fields,
    )


def _without_single_axis(store: Store, variable: Variable) -> Variable:
    """The variable; of four axes, one of length 1 is left out."""
    if len(variable.shape) != 4 or (axis := single_axis(variable.shape, store.dimensions(variable.name))) is None:
        return variable
    return replace(variable, shape=variable.shape[:axis] + variable.shape[axis + 1 :])


def _pixels(store: Store, name: str) -> tuple[Sliceable, list[str], tuple[str, ...]]:
    """The array of a variable, the names of its axes, and a note; of four axes, one of length 1 is left out."""
    array, dimensions = store.array(name), list(store.dimensions(name))
    axis = single_axis(array.shape, dimensions)
    if axis is None:
        return array, dimensions, ()
    called = dimensions.pop(axis) if axis < len(dimensions) else ""
    return WithoutAxis(array, axis), dimensions, (f"{called or 'an axis'} has length 1 and is ignored",)


def _inherited(store: Store, name: str) -> dict[str, Any]:
    """A variable's attributes, and those of the groups around it that it does not override."""
    attrs = dict(store.attributes(name))
    while name:
        name = name.rpartition("/")[0]
        attrs = {**store.attributes(name), **attrs}
    return attrs
