"""Rectangles of pixels: small frozen values that grow, move and scale, so that no loop counts edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Window:
    """A rectangle of pixels: its upper-left pixel and its size."""

    row: int
    column: int
    rows: int
    columns: int

    @property
    def bottom(self) -> int:
        return self.row + self.rows

    @property
    def right(self) -> int:
        return self.column + self.columns

    @property
    def slices(self) -> tuple[slice, slice]:
        return slice(self.row, self.bottom), slice(self.column, self.right)

    @property
    def pixels(self) -> int:
        """How many pixels it has."""
        return self.rows * self.columns

    def grown(self, margin: int, within: Window) -> Window:
        """This rectangle with `margin` more pixels on each side, as far as `within` reaches."""
        row, column = max(self.row - margin, within.row), max(self.column - margin, within.column)
        bottom, right = min(self.bottom + margin, within.bottom), min(self.right + margin, within.right)
        return Window(row, column, bottom - row, right - column)

    def scaled(self, factor: int) -> Window:
        """The same ground on a grid `factor` times finer."""
        return Window(self.row * factor, self.column * factor, self.rows * factor, self.columns * factor)

    def coarsened(self, factor: int) -> Window:
        """The same ground on a grid `factor` times coarser; its sides must lie on that grid."""
        return Window(self.row // factor, self.column // factor, self.rows // factor, self.columns // factor)

    def moved(self, rows: int, columns: int) -> Window:
        """A rectangle of the same size, so many rows further down and columns further right."""
        return replace(self, row=self.row + rows, column=self.column + columns)

    def relative_to(self, other: Window) -> Window:
        """The same pixels counted from the upper-left corner of `other`."""
        return self.moved(-other.row, -other.column)

    def overlaps(self, other: Window) -> bool:
        """Whether the two have a pixel in common."""
        rows = self.row < other.bottom and other.row < self.bottom
        return rows and self.column < other.right and other.column < self.right

    def blocks(self, rows: int, columns: int) -> Iterator[Window]:
        """Rectangles of at most `rows` x `columns` that cover this one once, row by row."""
        for row in range(self.row, self.bottom, rows):
            for column in range(self.column, self.right, columns):
                yield Window(row, column, min(rows, self.bottom - row), min(columns, self.right - column))
