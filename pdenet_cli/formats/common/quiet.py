"""Silence of C libraries, which write warnings of their own past Python to the user's screen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from threading import Lock

_lock = Lock()


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Nothing is written to the standard error meanwhile; libpng, for one, warns of harmless oddities."""
    with _lock, contextlib.ExitStack() as stack:
        try:
            kept = os.dup(2)
        except OSError:  # a program without standard error
            kept = -1
        if kept >= 0:
            stack.callback(os.close, kept)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, nowhere)
            os.dup2(nowhere, 2)
            stack.callback(os.dup2, kept, 2)
        yield
