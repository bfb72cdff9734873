"""`pdenet upscale` and `pdenet uncertainty`: one pass over the tiles of a scene writes all outputs."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pdenet_cli.files import unwritable
from pdenet_cli.formats import open_cube, output_format
from pdenet_cli.formats.common.output import Output
from pdenet_cli.models.networks.pdenet import kernel_of
from pdenet_cli.pages.contents import PAGE_SIZE
from pdenet_cli.report import Report, Say, finite, hashes, versions
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.run import Unkept, seconds_beside_network, super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.bands import BandChoice, runs
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.radiometry import ValueRange
from pdenet_cli.scene.reading import Reading, refuse_narrow
from pdenet_cli.scene.survey import Survey
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.delivery import KEPT, Delivery
from pdenet_cli.tools.journal import PLAN, Record
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.naming import with_own_name
from pdenet_cli.tools.notes import clipped_notes, scene_notes
from pdenet_cli.tools.progress import Progress
from pdenet_cli.uncertainty.summaries import USUAL, Question


@dataclass(frozen=True)
class Settings:
    """How a scene is to be sharpened, apart from the model and its draws."""

    cube: bool = True  # write the sharpened cube
    maps: tuple[str, ...] | None = ()  # names of uncertainty maps to write; None: the default ones of the model
    question: Question = USUAL  # the parameters of the maps
    value_range: ValueRange | None = None
    bands: BandChoice | None = None
    window: Window | None = None  # the part of the scene that is read
    dtype: str | None = None
    memory: int | None = None
    tile: int | None = None
    halo: int | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # None: as declared in the file
    overwrite: bool = False
    resume: bool = False
    forecast: bool = False  # only a forecast is wanted; nothing will be written
    quicklook: bool = False  # also write a picture, and the sharpened cube for it
    page: bool = False  # also write a page and a picture, and the sharpened cube for them
    page_size: int = PAGE_SIZE  # bytes of the page at most
    per_band: bool = False  # write maps for each band too; intervals always are
    style: bool = True  # also write a style for QGIS beside every raster
    compress: str | None = None  # how cubes are compressed: deflate, zstd or lzw, as their format allows


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
    ) -> None:
        """`output` is the sharpened cube; maps are named after it. `others` are scenes that must stay."""
        require_posterior(posterior)
        self.settings, self.others = settings, others
        self.maps = Maps(settings.maps, settings.question, posterior, per_band=settings.per_band)
        self.late_notes: list[str] = []  # what only the work has shown
        file = open_cube(scene, settings.variable, settings.axes, settings.nodata, settings.window)
        try:
            cube = file if settings.bands is None else file.with_bands(settings.bands)
            self.delivery = self._delivery(cube, Path(output), posterior)
            self.delivery.refuse((Path(scene), *cube.files))
            if not settings.resume and not settings.forecast:
                self.delivery.refuse_existing()
                self.delivery.refuse_small_disk()
            self.scene = self._prepared(cube, posterior)
            self.question = self.maps.question_for(self.scene.reading.radiometry)
        except BaseException:
            file.close()
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
        limits = Limits(settings.memory, settings.tile, settings.halo)
        return ScenePass.prepare(cube, posterior, self.maps.summaries, reading, limits)

    def run(self, say: Say = lambda text: None) -> Iterator[tuple[int, int]]:
        """Write all outputs; yields (tiles done, tiles in all). Afterwards `report` is set."""
        with self:
            yield from self._run(say)

    def _run(self, say: Say) -> Iterator[tuple[int, int]]:
        started = time.monotonic()
        for note in self._notes():
            say(note)
        job, delivery = self._job(), self.delivery
        try:
            finished = delivery.finished_report(job) if self.settings.resume else None
            if finished is not None:
                delivery.draw(self._scene_name, self.scene.cube, finished, missing=True)
                self.report = finished
                return
            delivery.refuse_others(self.others, self.settings.variable, self.settings.axes)
            with delivery.journal.locked():
                yield from self._work(job, started, say)
        except OSError as error:
            left = KEPT if delivery.journal.path.exists() else None
            raise unwritable(delivery.report_path.parent, error, left) from error

    def _work(self, job: dict[str, Any], started: float, say: Say) -> Iterator[tuple[int, int]]:
        progress = Progress(self.delivery)
        record = self._interrupted(job, progress, say) if self.settings.resume else None
        if record is None or record.report is None:
            self.delivery.refuse_small_disk()
        if record is None:
            if not self.settings.resume and not self.settings.overwrite:
                progress.refuse_interrupted()
            record = progress.begin(job | {PLAN: self.scene.plan.tiling})
        self.scene = self.scene.with_tiling(record.job[PLAN])
        with progress.cleanup_on_failure():
            if record.report is None:
                statistics = yield from self._write_tiles(record, progress, say)
                self.scene.cube.stamps.refuse_changed()
                progress.complete(self._report(job, statistics, time.monotonic() - started))
            else:
                progress.verify_complete(record, self.scene.plan.tiles, self._map_metas)
        self.report = self.delivery.commit(self._scene_name, self.scene.cube, self._map_metas)

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
        asked = self.settings.tile is not None or self.settings.memory is not None
        if asked and record.job[PLAN] != self.scene.plan.tiling:
            say("The interrupted run used different tiles: starting again.")
            return None
        return record

    def seconds(self, *, quick: bool = False) -> float:
        """About how long the work takes: network and maps are timed on small parts; `quick`: on smaller ones."""
        side = QUICK_SIDE if quick else SIDE
        layers = self.maps.layers(
            {name: Unkept(meta) for name, (_, meta) in self.delivery.cubes.items()}, self._fine
        )
        return self.scene.seconds(side) + seconds_beside_network(self.scene, layers, self.question, side)

    def forecast(self) -> Forecast:
        """What the work would need, see `seconds`."""
        scene, cubes = self.scene, self.delivery.cubes
        return Forecast(
            outputs={name: str(output.path) for name, (output, _) in cubes.items()},
            sizes={name: meta.nbytes for name, (_, meta) in cubes.items()},
            bytes_on_disk=sum(meta.nbytes for _, meta in cubes.values()),
            bytes_of_memory=scene.sampler.bytes_for(scene.plan),
            tiles=len(scene.plan.tiles),
            spans=len(scene.plan.spans),
            tile=scene.plan.tile,
            bands=scene.plan.depth,
            seconds=self.seconds(),
            in_the_way=() if self.settings.resume else tuple(map(str, self.delivery.in_the_way)),
        )

    def _write_tiles(
        self, record: Record, progress: Progress, say: Say
    ) -> Generator[tuple[int, int], None, dict[str, dict[str, Any]]]:
        """Write every tile that is not recorded yet; returns the statistics of the maps."""
        scene, tiles = self.scene, self.scene.plan.tiles
        with self.delivery.open_outputs(self._map_metas) as cubes:
            layers = self.maps.layers(cubes, self._fine)
            finished = progress.trusted(record, cubes, tiles)
            numbers = [number for number in range(len(tiles)) if number not in finished]
            yield len(finished), len(tiles)
            work = super_resolve(scene, layers, finished, say, self.question)
            with progress.recorder(cubes) as recorder:
                for done, (number, tile) in enumerate(zip(numbers, work, strict=True), start=len(finished) + 1):
                    recorder.add(number, tile.target)
                    yield done, len(tiles)
            for note in clipped_notes(layers, partly=bool(finished)):
                say(note)
                self.late_notes.append(note)
            return self.maps.statistics(cubes, self._fine, scene.reading.radiometry, self.question)

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
            },
            seconds=round(seconds, 2),
            notes=(*self._notes(), *self.late_notes),
            maps=statistics,
        )


def _fine(cube: Cube, posterior: Posterior) -> CubeMeta:
    """The metadata of the scene on the fine grid."""
    return replace(cube.meta.upscaled(posterior.network.scale), notes=())


def _mean_meta(fine: CubeMeta, wanted: str | None) -> CubeMeta:
    """The metadata of the sharpened cube, of the `wanted` type if there is one."""
    dtype = np.dtype(wanted) if wanted else fine.dtype
    # Integers have no NaN; a scene with NaN holes is refused elsewhere.
    nodata = None if dtype.kind in "ui" and np.isnan(fine.nodata or 0) else fine.nodata
    return replace(fine, dtype=dtype, nodata=nodata)
