"""Where the pixels of a run's scenes are: in memory, or in files that the processes of a machine share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pdenet_cli.scene.cube import Pixels
from pdenet_cli.system import MEMORY_SHARE, free_memory
from pdenet_cli.training.data import Scene
from pdenet_cli.training.processes import Processes

ROWS = 64  # written at once


class Shelf:
    """Keeps a large set of scenes, or one that several processes of a machine use, in files of the model's folder.

    The system holds in memory what is in use, once for all processes, and drops it where memory is short. A file
    has no name once all processes have opened it, so nothing stays behind, however the run ends.
    """

    def __init__(self, model: Path, processes: Processes, device: torch.device) -> None:
        self.model, self.processes, self.device = model, processes, device
        self.in_memory = 0  # bytes

    def kept(self, scenes: Iterable[Scene]) -> Iterator[Scene]:
        """The scenes, each where it is to stay."""
        for number, scene in enumerate(scenes):
            if self._stays(scene):
                self.in_memory += scene.pixels.nbytes
                yield scene
            else:
                yield self._filed(scene, number)

    def _stays(self, scene: Scene) -> bool:
        if os.name == "nt":  # Windows cannot remove a file that is open
            return True
        kept = self.in_memory + scene.pixels.nbytes
        return not self.processes.shares_machine and kept <= MEMORY_SHARE * (free_memory() + kept)

    def _filed(self, scene: Scene, number: int) -> Scene:
        """The scene with its pixels in a file, pixel by pixel, so that a patch is a few runs of it."""
        path = self.model.with_name(f".{self.model.name}.{socket.gethostname()}.scene{number}")
        bands, rows, columns = scene.pixels.shape
        try:
            if self.processes.first_of_machine:
                with path.open("wb") as file:
                    for row in range(0, rows, ROWS):
                        file.write(np.ascontiguousarray(_by_pixel(scene.pixels[:, row : row + ROWS])).data)
            self.processes.wait(self.device)
            pixels = np.memmap(path, scene.pixels.dtype, "r", shape=(rows, columns, bands))
            self.processes.wait(self.device)
        finally:
            if self.processes.first_of_machine:
                with suppress(OSError):
                    path.unlink()
        return replace(scene, pixels=pixels.transpose(2, 0, 1))


def _by_pixel(pixels: Pixels) -> Pixels:
    """(bands, rows, columns) -> (rows, columns, bands)."""
    return pixels.transpose(1, 2, 0)
