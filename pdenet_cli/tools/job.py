"""`pdenet upscale` and `pdenet uncertainty`: one pass over the tiles of a scene writes all outputs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import lcm
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pdenet_cli.errors import OutputError
from pdenet_cli.files import unwritable
from pdenet_cli.formats import output_format
from pdenet_cli.formats.common.output import Output
from pdenet_cli.models.networks.pdenet import kernel_of
from pdenet_cli.report import Report, Say, finite, hashes, versions
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.run import Unkept, seconds_beside_network
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.bands import runs
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading, refuse_narrow
from pdenet_cli.scene.survey import Survey
from pdenet_cli.system import usable_cores, usable_memory
from pdenet_cli.tools.delivery import KEPT, Delivery
from pdenet_cli.tools.journal import PLAN, Record
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.naming import with_own_name
from pdenet_cli.tools.notes import scene_notes
from pdenet_cli.tools.orders import Engine
from pdenet_cli.tools.progress import Progress
from pdenet_cli.tools.settings import Settings
from pdenet_cli.tools.tile_order import open_scene
from pdenet_cli.tools.writing import Writing

# Settings that do not change the outputs.
UNIMPORTANT = {"memory", "tile", "overwrite", "resume", "part", "finish", "forecast"}


SIDE, QUICK_SIDE = 64, 24  # of the parts that are timed for a forecast, in input pixels


@dataclass(frozen=True)
class Forecast:
    """What a job would need."""

    outputs: dict[str, str]
    sizes: dict[str, int]  # bytes of each output
    bytes_on_disk: int
    bytes_of_memory: int
    tiles: int
    tile: int  # longest side of a tile in input pixels
    bands: int  # that are computed at once in a tile
    spans: int  # such runs of bands in a tile
    seconds: float
    workers: int  # processes that the time is of
    in_the_way: tuple[str, ...] = ()  # existing files, which the run would replace only with `overwrite`


class Job:
    """One scene ready to be sharpened: everything that can be refused before the work is refused here.

    `run` closes the scene; a job that is not run is closed as a context manager.
    """

    def __init__(
        self,
        scene: Path | str,
        output: Path | str,
        posterior: Posterior,
        settings: Settings,
        others: Sequence[Path] = (),
        engine: Engine | None = None,
    ) -> None:
        """`output` is the sharpened cube; maps are named after it. `others` are scenes that must stay.

        `engine` are the processes that write the tiles; None: this one.
        """
        require_posterior(posterior)
        self.settings, self.others, self.engine = settings, others, engine
        self.maps = Maps(settings.maps, settings.question, posterior, per_band=settings.per_band)
        self.late_notes: list[str] = []  # what only the work has shown
        self.report: Report | None = None
        cube = open_scene(Path(scene), settings)
        try:
            self.delivery = self._delivery(cube, Path(output), posterior)
            self.delivery.refuse((Path(scene), *cube.files))
            if not settings.goes_on and not settings.forecast:
                self.delivery.refuse_existing()
                self.delivery.refuse_small_disk()
            self.scene = self._prepared(cube, posterior)
            self.question = self.maps.question_for(self.scene.reading.radiometry)
        except BaseException:
            cube.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scene.cube.close()

    def _delivery(self, cube: Cube, output: Path, posterior: Posterior) -> Delivery:
        """The files to be written, by what is known before the scene is looked at."""
        settings, form = self.settings, output_format(output)
        page = settings.page and (settings.cube or bool(self.maps.names))
        cubes: dict[str, tuple[Output, CubeMeta]] = {}
        fine = _fine(cube, posterior)
        if settings.cube or page or settings.quicklook:
            named = output if settings.cube else output.with_name(f"{output.stem}_mean{output.suffix}")
            cubes["mean"] = Output(named, form, settings.compress), _mean_meta(fine, settings.dtype)
        for name, meta in self.maps.metas(fine, self.maps.question):
            path = output.with_name(f"{output.stem}_{name}{output.suffix}")
            cubes[name] = Output(path, form, settings.compress), meta
        page_size = settings.page_size if page else None
        return Delivery(output, cubes, settings.overwrite, settings.quicklook, page_size, settings.style)

    def _prepared(self, cube: Cube, posterior: Posterior) -> ScenePass:
        """The scene, looked at: all of it, unless only a forecast is wanted."""
        settings = self.settings
        survey = Survey.quick(cube) if settings.forecast else Survey.of(cube)
        reading = Reading.of(cube, posterior.network.bands, settings.value_range, survey)
        if settings.dtype is not None:
            refuse_narrow(np.dtype(settings.dtype), cube.meta, reading)
        crowd = 1 if self.engine is None else self.engine.crowd
        memory = (settings.memory or usable_memory(posterior.device)) // crowd
        parts = 1 if settings.part is None else settings.part.of
        processes = parts * (1 if self.engine is None else self.engine.count)
        step = self._step(posterior.network.scale)
        limits = Limits(memory, settings.tile, settings.halo, step, processes)
        return ScenePass.prepare(cube, posterior, self.maps.summaries, reading, limits)

    def _step(self, scale: int) -> int:
        """At multiples of how many input pixels tiles begin, so that no two write a block of an output."""
        if self.settings.tile is not None and self.engine is None and self.settings.part is None:
            return 1
        block = max((output.format.block for output, _ in self.delivery.cubes.values()), default=1)
        return lcm(scale, block) // scale

    def run(self, say: Say = lambda text: None) -> Iterator[tuple[int, int]]:
        """Write all outputs; yields (tiles done, tiles in all). Afterwards `report` is set, unless for a part."""
        with self:
            yield from self._run(say)

    def _run(self, say: Say) -> Iterator[tuple[int, int]]:
        started = time.monotonic()
        for note in self._notes():
            say(note)
        job, delivery = self._job(), self.delivery
        try:
            finished = delivery.finished_report(job) if self.settings.goes_on else None
            if finished is not None:
                delivery.draw(self._scene_name, self.scene.cube, finished, missing=True)
                self.report = finished
                return
            delivery.refuse_others(self.others, self.settings.variable, self.settings.axes)
            self._writing(say).refuse_machines()
            if self.settings.part is not None:
                yield from self._writing(say).one_part(self.settings.part, job)
                return
            with delivery.journal.locked():
                yield from self._work(job, started, say)
        except OSError as error:
            left = KEPT if delivery.journal.path.exists() else None
            raise unwritable(delivery.report_path.parent, error, left) from error

    def _work(self, job: dict[str, Any], started: float, say: Say) -> Iterator[tuple[int, int]]:
        progress = Progress(self.delivery)
        record = self._interrupted(job, progress, say) if self.settings.goes_on else None
        if record is None or record.report is None:
            self.delivery.refuse_small_disk()
        if record is None:
            if self.settings.finish:
                raise OutputError(
                    f"{self.delivery.path}: no `part` of this job has begun, so there is nothing yet."
                )
            if not self.settings.resume and not self.settings.overwrite:
                progress.refuse_interrupted()
            record = progress.begin(job | {PLAN: self.scene.plan.tiling})
        writing = self._writing(say)
        writing.refuse_shared_blocks(record)
        writing.scene = self.scene = self.scene.with_tiling(record.job[PLAN])
        with progress.cleanup_on_failure():
            if record.report is None:
                yield from writing.every_tile(record, progress)
                self.scene.cube.stamps.refuse_changed()
                self.late_notes += writing.notes
                progress.complete(self._report(job, writing.statistics, time.monotonic() - started))
            else:
                progress.verify_complete(record, self.scene.plan.tiles, self._map_metas)
        self.report = self.delivery.commit(self._scene_name, self.scene.cube, self._map_metas)

    def _writing(self, say: Say) -> Writing:
        metas = self._map_metas
        return Writing(self.scene, self.delivery, self.maps, self.question, self.settings, metas, self.engine, say)

    @property
    def _scene_name(self) -> str:
        return with_own_name(self.scene.cube.path).name

    @property
    def _map_metas(self) -> dict[str, CubeMeta]:
        """What is known of the maps now that the scene has been looked at."""
        return dict(self.maps.metas(self._fine, self.question))

    @property
    def _fine(self) -> CubeMeta:
        return _fine(self.scene.cube, self.scene.posterior)

    def _interrupted(self, job: dict[str, Any], progress: Progress, say: Say) -> Record | None:
        """The record of an interrupted run that this one can continue; None: there is none."""
        record = progress.interrupted(job)
        if record is None or record.report is not None:
            return record
        before, plan = self.scene.with_tiling(record.job[PLAN]), self.scene.plan
        other = self.settings.tile is not None and before.plan.tile != plan.tile
        too_large = self.settings.memory is not None and before.sampler.bytes_for(before.plan) > plan.memory
        if (other or too_large) and not self.settings.finish:
            say("The interrupted run used different tiles: starting again.")
            return None
        return record if record.files is None else progress.absorbed(record)

    def seconds(self, *, quick: bool = False) -> float:
        """About how long the work takes: network and maps are timed on small parts; `quick`: on smaller ones."""
        side = QUICK_SIDE if quick else SIDE
        layers = self.maps.layers(
            {name: Unkept(meta) for name, (_, meta) in self.delivery.cubes.items()}, self._fine
        )
        return self.scene.seconds(side) + seconds_beside_network(self.scene, layers, self.question, side)

    @property
    def at_once(self) -> int:
        """How many tiles are worked on at the same time."""
        engine = self.engine
        if engine is None:
            return 1
        count = min(engine.count, len(self.scene.plan.tiles))
        return min(count, usable_cores()) if engine.shared else count

    def forecast(self) -> Forecast:
        """What the work would need, see `seconds`."""
        scene, cubes, part = self.scene, self.delivery.cubes, self.settings.part
        parts = 1 if part is None else part.of
        count = 1 if self.engine is None else min(self.engine.count, len(scene.plan.tiles))
        return Forecast(
            outputs={name: str(output.path) for name, (output, _) in cubes.items()},
            sizes={name: meta.nbytes for name, (_, meta) in cubes.items()},
            bytes_on_disk=sum(meta.nbytes for _, meta in cubes.values()),
            bytes_of_memory=scene.sampler.bytes_for(scene.plan),
            tiles=len(scene.plan.tiles),
            spans=len(scene.plan.spans),
            tile=scene.plan.tile,
            bands=scene.plan.depth,
            seconds=self.seconds() / self.at_once / parts,
            workers=count,
            in_the_way=() if self.settings.goes_on else tuple(map(str, self.delivery.in_the_way)),
        )

    def _job(self) -> dict[str, Any]:
        """All that decides the result, for the report; a resumed run must have the same."""
        scene, posterior, settings = self.scene, self.scene.posterior, self.settings
        cube, model, radiometry = scene.cube, posterior.model, scene.reading.radiometry
        job = {
            "inputs": hashes(cube.files),
            "variable": cube.meta.variable,
            "axes": cube.axes,
            "shape": cube.meta.shape(),
            "model": {"name": model.name, "sha256": model.sha256, "scale": model.scale},
            "seed": posterior.seed,
            "samples": len(posterior),
            "ensemble": posterior.ensemble,
            "mixtures": scene.sampler.mixtures,
            "psf": str(posterior.degradation),
            "finer_fwhm": posterior.finer_fwhm,
            "halo": scene.plan.halo,
            "radiometry": asdict(radiometry) | {"floor": str(radiometry.floor)},
            "bands": None if settings.bands is None else runs(cube.band_numbers),
            "window": settings.window and asdict(settings.window),
            "dtype": settings.dtype,
            "outputs": sorted(self.delivery.cubes),
            "compress": settings.compress,
            "uncertainty": self.maps.facts(self.question) if self.maps.names else None,
            "versions": versions("torch", "numpy"),
            "kernel": kernel_of(posterior.network),
        }
        plain: dict[str, Any] = json.loads(json.dumps(finite(job)))  # as it is read back: lists, not tuples
        return plain

    def _notes(self) -> tuple[str, ...]:
        """Notes for the user: on the file, on the samples, and on intervals that may not hold."""
        _, mean = self.delivery.cubes.get("mean", (None, None))
        of_maps = self.maps.notes(self.scene.cube.meta, self.scene.reading, self.question)
        return *scene_notes(self.scene, mean), *of_maps

    def _report(self, job: dict[str, Any], statistics: dict[str, dict[str, Any]], seconds: float) -> Report:
        scene, meta = self.scene, self.scene.cube.meta
        return Report(
            job=job,
            outputs=self.delivery.names,
            scene={
                "bands": meta.bands,
                "rows": meta.rows,
                "columns": meta.columns,
                "unusable_bands": scene.reading.unusable(meta),
                "constant_bands": len(scene.reading.constant),
                "nodata_share": scene.reading.survey.nodata_share,
                "tile": scene.plan.tile,
                "bands_at_once": scene.plan.depth,
                "device": str(scene.posterior.device),
                "bytes": sum(meta.nbytes for _, meta in self.delivery.cubes.values()),
                "workers": {} if self.engine is None else self.engine.tally,
            },
            seconds=round(seconds, 2),
            notes=(*self._notes(), *self.late_notes),
            maps=statistics,
            asked=asked(scene.posterior, self.settings),
            stamps=stamps_beside(scene.cube.path, scene.cube.files),
        )


def asked(posterior: Posterior, settings: Settings) -> dict[str, Any]:
    """All that a user can ask for and that decides the outputs, as JSON holds it."""
    facts = {
        "model": [posterior.model.name, posterior.model.sha256, posterior.model.scale],
        "draws": [posterior.asked, posterior.seed, posterior.ensemble, posterior.most_mixtures],
        "psf": [None if settings.measure_psf else str(posterior.degradation), posterior.finer_fwhm],
        "settings": {k: v for k, v in asdict(settings).items() if k not in UNIMPORTANT},
        "versions": versions("torch", "numpy"),
    }
    plain: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return plain


def stamps_beside(path: Path, files: Sequence[Path]) -> dict[str, list[int]]:
    """Size and time of the last change of each file of a scene, if all are plain and in one folder, else none.

    Of a folder, one look could not tell whether a file in it has changed.
    """
    if any(file.parent != path.parent or not file.is_file() for file in files):
        return {}
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def _fine(cube: Cube, posterior: Posterior) -> CubeMeta:
    """The metadata of the scene on the fine grid."""
    return replace(cube.meta.upscaled(posterior.network.scale), notes=())


def _mean_meta(fine: CubeMeta, wanted: str | None) -> CubeMeta:
    """The metadata of the sharpened cube, of the `wanted` type if there is one."""
    dtype = np.dtype(wanted) if wanted else fine.dtype
    # Integers have no NaN; a scene with NaN holes is refused elsewhere.
    nodata = None if dtype.kind in "ui" and np.isnan(fine.nodata or 0) else fine.nodata
    return replace(fine, dtype=dtype, nodata=nodata)
