"""The tiles of a job on their way into its outputs: by this process, by an engine's, all of them or a part."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pdenet_cli.errors import OutputError, UsageError
from pdenet_cli.report import Say
from pdenet_cli.sampling.scene_pass import ScenePass
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.tools.delivery import Delivery
from pdenet_cli.tools.journal import PLAN, Record
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.notes import clipped_notes
from pdenet_cli.tools.orders import Engine
from pdenet_cli.tools.parts import Part
from pdenet_cli.tools.progress import Progress
from pdenet_cli.tools.settings import Settings
from pdenet_cli.tools.tile_order import TileDone, TileOrder, TileWriter
from pdenet_cli.uncertainty.summaries import Question

PATIENCE = 600.0  # seconds that a part waits for another one that creates the outputs

Steps = Generator[tuple[int, int], None, None]  # tiles done, tiles in all


@dataclass
class Writing:
    """How the tiles of a job are written."""

    scene: ScenePass
    delivery: Delivery
    maps: Maps
    question: Question
    settings: Settings
    metas: dict[str, CubeMeta]  # of maps, better known than when the delivery was made
    engine: Engine | None
    say: Say
    notes: list[str] = field(default_factory=list)  # what only the work has shown
    statistics: dict[str, Any] = field(default_factory=dict)

    def refuse_machines(self) -> None:
        """Stop where several machines would write a file that only one machine can write."""
        if self.engine is None or self.engine.shared:
            return
        for output, _ in self.delivery.cubes.values():
            if output.format.block == 1:
                met = f"{output.path}: several machines cannot write one {output.format.name} file"
                raise UsageError(f"{met}. Let the output end in .zarr, or use `workers` on one machine.")

    def refuse_shared_blocks(self, record: Record) -> None:
        """Stop where tiles that one process has begun share blocks of an output."""
        if (self.engine or self.settings.part) and record.job[PLAN]["step"] % self.scene.plan.step:
            met = f"{self.delivery.path}: the interrupted run has tiles that share chunks"
            raise OutputError(f"{met}. Continue it with one process, or start again with `overwrite`.")

    def every_tile(self, record: Record, progress: Progress) -> Steps:
        """Write every tile that is not recorded yet, then take the statistics of the maps."""
        tiles = self.scene.plan.tiles
        with self.delivery.open_outputs(self.metas) as cubes:
            record = progress.with_files(record)
            finished = progress.trusted(record, cubes, tiles)
            numbers = [number for number in range(len(tiles)) if number not in finished]
            if self.settings.finish and numbers:
                some = "" if len(numbers) > 20 else f" ({', '.join(map(str, numbers))}, counted from 0)"
                met = f"{self.delivery.path}: {len(numbers)} of {len(tiles)} tiles are missing{some}"
                raise OutputError(f"{met}. Run their `part` again, or `resume` to do them here.")
            yield len(finished), len(tiles)
            yield from self._write(numbers, cubes, progress, len(finished), len(tiles))
            radiometry = self.scene.reading.radiometry
            self.statistics = self.maps.statistics(cubes, self.scene.fine, radiometry, self.question)

    def one_part(self, part: Part, job: dict[str, Any]) -> Steps:
        """Write the tiles of a part, in outputs that the first part to come creates."""
        progress = Progress(self.delivery)
        with ExitStack() as stack:
            with self.delivery.journal.locked(PATIENCE):
                record = progress.interrupted(job)
                if record is None:
                    self.delivery.refuse_small_disk()
                    record = progress.begin(job | {PLAN: self.scene.plan.tiling})
                if record.report is not None:
                    return
                self.refuse_shared_blocks(record)
                self.scene = self.scene.with_tiling(record.job[PLAN])
                cubes = stack.enter_context(self.delivery.open_outputs(self.metas))
                record = progress.with_files(record)
            progress = replace(progress, part=part)
            stack.enter_context(progress.journal.locked())
            tiles = self.scene.plan.tiles
            mine = part.of_all(range(len(tiles)))
            finished = progress.trusted(progress.begin_part(record), cubes, tiles) | set(record.tiles)
            numbers = [number for number in mine if number not in finished]
            yield len(mine) - len(numbers), len(mine)
            yield from self._write(numbers, cubes, progress, len(mine) - len(numbers), len(mine))

    def _write(
        self, numbers: Sequence[int], cubes: dict[str, Cube], progress: Progress, before: int, total: int
    ) -> Steps:
        """Write tiles and record them; `before` of them are done."""
        layers = self.maps.layers(cubes, self.scene.fine)
        with progress.recorder() as recorder:
            for count, done in enumerate(self._done(numbers, cubes), start=before + 1):
                recorder.add(done.number, done.checksums)
                for note in done.notes:
                    self.say(note)
                for layer, clipped in zip(layers, done.clipped, strict=True):
                    layer.clipped.append(clipped)
                yield count, total
        for note in clipped_notes(layers, partly=bool(before) or self.settings.part is not None):
            self.say(note)
            self.notes.append(note)

    def _done(self, numbers: Sequence[int], cubes: dict[str, Cube]) -> Iterator[TileDone]:
        """The tiles of these numbers as they are finished, by this process or by the engine's."""
        if self.engine is None or not numbers:
            yield from map(TileWriter(self.scene, cubes, self.maps, self.question, self.say), numbers)
            return
        order = TileOrder.of(self.scene, cubes, self.settings, self.question)
        for _, done in self.engine.spread(order, numbers):
            if isinstance(done, Exception):
                raise done
            yield done
