"""One tile of a job, wherever it is done: in this process, in a worker or in a part of an array of batch jobs."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdenet_cli.errors import FormatError
from pdenet_cli.files import sync
from pdenet_cli.formats import open_cube
from pdenet_cli.report import Say
from pdenet_cli.sampling.recipe import PosteriorRecipe
from pdenet_cli.sampling.run import TileWork
from pdenet_cli.sampling.scene_pass import BarePass, ScenePass
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.stamps import Stamps
from pdenet_cli.tools.finished_tiles import checksums
from pdenet_cli.tools.journal import Checksums
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.orders import Facts
from pdenet_cli.tools.settings import Settings
from pdenet_cli.uncertainty.summaries import Question


@dataclass(frozen=True)
class TileDone:
    """A tile whose pixels are written."""

    number: int
    checksums: Checksums
    clipped: tuple[int, ...]  # values beyond the type, of each layer
    notes: tuple[str, ...] = ()


class TileWriter:
    """Writes any tile of a scene into its outputs: whole blocks of them that belong to this tile alone.

    A tile may be written again, by whichever process: its pixels are the same.
    """

    def __init__(
        self,
        scene: ScenePass,
        cubes: Mapping[str, Cube],
        maps: Maps,
        question: Question,
        say: Say | None = None,
        *,
        far: bool = False,
    ) -> None:
        """`say` gets notes at once; None: they come with the tiles. `far`: another machine records the tiles."""
        self.scene, self.cubes, self.layers, self._far = scene, cubes, maps.layers(cubes, scene.fine), far
        self._notes: list[str] = []
        self._work = TileWork(scene, self.layers, say or self._notes.append, question)

    def __call__(self, number: int) -> TileDone:
        """Write a tile and read it back."""
        self._work.write(number)
        clipped = tuple(sum(layer.clipped) for layer in self.layers)
        notes = tuple(self._notes)
        for layer in self.layers:
            layer.clipped.clear()
        self._notes.clear()
        read = checksums(self.cubes, self.scene.plan.tiles[number].target)
        for cube in self.cubes.values() if self._far else ():
            sync(cube.path)
        return TileDone(number, read, clipped, notes)


@dataclass(frozen=True)
class TileOrder:
    """All that a process needs to write tiles of a job."""

    scene: BarePass
    path: Path
    stamps: Stamps
    posterior: PosteriorRecipe
    settings: Settings
    question: Question
    cubes: Mapping[str, dict[str, Any]]  # the outputs, as they were created
    facts: Facts
    host: str  # where the journal is written

    @classmethod
    def of(cls, scene: ScenePass, cubes: Mapping[str, Cube], settings: Settings, question: Question) -> TileOrder:
        """The order for the tiles of a scene and these outputs."""
        parts = {
            name: dict(path=cube.path, meta=cube.meta, array=cube.array, axes=cube.axes)
            for name, cube in cubes.items()
        }
        recipe, facts = PosteriorRecipe.of(scene.posterior), Facts.of(scene.posterior)
        path, stamps = scene.cube.path.absolute(), scene.cube.stamps
        host = socket.gethostname()
        return cls(scene.bare(), path, stamps, recipe, settings, question, parts, facts, host)

    @property
    def name(self) -> str:
        return self.path.name

    def open(self) -> TileWriter:
        """The writer; refused where this process computes with something else or sees other files."""
        posterior = self.posterior.make()
        self.facts.refuse_others(Facts.of(posterior))
        for parts in self.cubes.values():
            if not parts["path"].exists():
                raise FormatError(f"it does not see {parts['path']}. All workers need the same folders.")
        cube = open_scene(self.path, self.settings)
        if {path.name: s for path, s in cube.stamps.of_files.items()} != {
            path.name: s for path, s in self.stamps.of_files.items()
        }:
            cube.close()
            raise FormatError(f"it sees another {self.path} than where the run began.")
        cubes = {name: Cube(**parts) for name, parts in self.cubes.items()}
        maps = Maps(self.settings.maps, self.settings.question, posterior, per_band=self.settings.per_band)
        scene = self.scene.complete(cube, posterior, maps.summaries)
        return TileWriter(scene, cubes, maps, self.question, far=socket.gethostname() != self.host)


def open_scene(scene: Path, settings: Settings) -> Cube:
    """The cube of a scene as it was asked for."""
    file = open_cube(scene, settings.variable, settings.axes, settings.nodata, settings.window)
    if settings.bands is None:
        return file
    try:
        return file.with_bands(settings.bands)
    except BaseException:
        file.close()
        raise
