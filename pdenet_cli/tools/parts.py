"""One job as several batch jobs, without a scheduler between them: each does its part of the tiles or scenes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pdenet_cli.errors import UsageError

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Part:
    """One of several equal parts, counted from 1."""

    number: int
    of: int

    @classmethod
    def named(cls, text: str) -> Part:
        """The part that I/N means."""
        found = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", text)
        part = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not 1 <= part.number <= part.of:
            raise UsageError(f"`part` {text}: not a part. Write for example 2/8, the second of eight.")
        return part

    @property
    def label(self) -> str:
        """As it stands in the names of files."""
        return f"{self.number}-of-{self.of}"

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def of_all(self, things: Sequence[Thing]) -> Sequence[Thing]:
        """Its share: every so-manieth, so that all parts get easy and hard ones."""
        return things[self.number - 1 :: self.of]
