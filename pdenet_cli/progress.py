"""How a run tells its user what it does: functions that it is given and calls."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]  # a note for the user
Watch = Callable[[str, int, int], None]  # what is being done, tiles done, tiles in all
WatchTiles = Callable[[int, int], None]  # tiles done, tiles in all
