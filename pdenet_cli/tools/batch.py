"""Several scenes in one command: one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pdenet_cli.errors import PdenetError, as_pdenet_error

Scene = TypeVar("Scene")
Result = TypeVar("Result")


def each(scenes: Sequence[Scene], work: Callable[[Scene], Result]) -> Iterator[tuple[Scene, Result | PdenetError]]:
    """Every scene with the result of `work` on it, or the error that it failed with.

    The error of a single scene is raised.
    """
    for scene in scenes:
        try:
            result: Result | PdenetError = work(scene)
        except Exception as error:
            if len(scenes) == 1:
                raise
            result = as_pdenet_error(error)
        yield scene, result
