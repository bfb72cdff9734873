"""Views of stored arrays that are still read by windows, and what a view changes in their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdenet_cli.formats.common import attributes
from pdenet_cli.formats.labelled import spectra
from pdenet_cli.scene.cube import Pixels
from pdenet_cli.scene.sliceable import Sliceable


@dataclass(frozen=True)
class WithoutAxis:
    """A view of an array without one of its axes, which has length 1."""

    array: Sliceable
    axis: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.array.shape[: self.axis], *self.array.shape[self.axis + 1 :])

    @property
    def block(self) -> tuple[int, ...] | None:
        sizes: tuple[int, ...] | None = getattr(self.array, "block", None)
        return None if sizes is None else (*sizes[: self.axis], *sizes[self.axis + 1 :])

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        part = self.array[(*key[: self.axis], slice(None), *key[self.axis :])]
        return np.asarray(part).squeeze(self.axis)


@dataclass(frozen=True)
class Unsigned:
    """A view of signed integers as unsigned ones of the same bytes."""

    array: Sliceable

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def block(self) -> tuple[int, ...] | None:
        return getattr(self.array, "block", None)

    def __getitem__(self, key: tuple[slice, ...]) -> Pixels:
        part = np.asarray(self.array[key])
        return part.view(unsigned(part.dtype))


def unsigned(dtype: np.dtype[np.signedinteger]) -> np.dtype[np.unsignedinteger]:
    """The unsigned type of the same size."""
    return np.dtype(dtype.str.replace("i", "u"))


def without_sign(attrs: Mapping[str, Any], kind: np.dtype[Any]) -> dict[str, Any]:
    """Attributes of unsigned numbers, with nodata values that are written with a sign made positive."""
    return {
        n: [positive(number, kind) for number in attributes.numbers(v) or ()]
        if spectra.field_of(n) == "nodata"
        else v
        for n, v in attrs.items()
    }


def positive(number: float | None, kind: np.dtype[Any]) -> float | None:
    """What a number of a signed type means without its sign; None stays None."""
    return number + 2.0 ** (8 * kind.itemsize) if number is not None and number < 0 else number
