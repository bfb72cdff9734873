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

from pdenet_cli.errors import OutputError, UsageError
from pdenet_cli.files import unwritable
from pdenet_cli.formats import open_cube, output_format
from pdenet_cli.formats.common.output import Output
from pdenet_cli.report import Report, Say, finite, hashes, versions
from pdenet_cli.sampling.mixtures import enough_bands
from pdenet_cli.sampling.posterior import Posterior, require_posterior
from pdenet_cli.sampling.run import Layer, super_resolve
from pdenet_cli.sampling.tile import halo_for, margin_for
from pdenet_cli.scene.bands import BandChoice, runs
from pdenet_cli.scene.meta import CubeMeta
from pdenet_cli.scene.reading import Reading
from pdenet_cli.scene.survey import Survey, refuse_narrow
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.delivery import COMPLETE, KEPT, Delivery
from pdenet_cli.tools.maps import Maps
from pdenet_cli.tools.naming import with_own_name
from pdenet_cli.uncertainty.summaries import USUAL, Question


@dataclass(frozen=True)
class Settings:
    """How a scene is to be sharpened, apart from the model and its draws."""

    cube: bool = True  # write the sharpened cube
    maps: tuple[str, ...] | None = ()  # names of uncertainty maps to write; None: the default ones of the model
    question: Question = USUAL  # the parameters of the maps
    value_range: tuple[float, float] | None = None
    bands: BandChoice | None = None
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
    page: bool = False  # also write a page and a picture of the maps, and the sharpened cube for them
    style: bool = True  # also write a style for QGIS beside every raster


@dataclass(frozen=True)
class Forecast:
    """What a job would need."""

    outputs: dict[str, str]
    bytes_on_disk: int
    bytes_of_memory: int
    tiles: int
    tile: int  # longest side of a tile in input pixels
    bands: int  # in a tile
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
        scene, output = Path(scene), Path(output)
        self.posterior, self.settings, self.others = posterior, settings, others
        self.maps = Maps(settings.maps, settings.question, posterior)
        self.late_notes: list[str] = []  # what only the work has shown
        self.source = open_cube(scene, settings.variable, settings.axes, settings.nodata)
        try:
            self._prepare(scene, output)
        except BaseException:
            self.source.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    def _prepare(self, scene: Path, output: Path) -> None:
        posterior, settings = self.posterior, self.settings
        self.chosen: tuple[int, ...] | None = None
        if settings.bands is not None:
            self.chosen = self.source.meta.chosen(settings.bands)
            self.source = self.source.with_bands(settings.bands)
        shown = settings.page and bool(self.maps.names)
        also_mean = shown or settings.quicklook
        cubes = dict(self._cubes(output, also_mean=also_mean))
        self.delivery = Delivery(output, cubes, settings.overwrite, settings.quicklook, shown, settings.style)
        self.delivery.refuse((scene, *self.source.files))
        if not settings.resume and not settings.forecast:
            self.delivery.refuse_existing()
            self.delivery.refuse_small_disk()
        # The whole scene: outputs would lose a hole or a bright pixel that the survey missed.
        survey = Survey.of(self.source) if settings.forecast else Survey.whole(self.source)
        self.reading = Reading.of(self.source, posterior.network.bands, settings.value_range, survey)
        self.maps.scale_tolerance(self.reading.radiometry, self.reading.survey)
        # The maps can say only now what their tolerance is in.
        self.delivery = replace(self.delivery, cubes=dict(self._cubes(output, also_mean=also_mean)))
        if settings.dtype is not None:
            refuse_narrow(np.dtype(settings.dtype), self.source.meta, self.reading.survey)
        posterior.refuse_other_bands(len(self.reading.bands))
        self.posterior = posterior = posterior.for_scene(self.source, self.reading.bands, self.reading.radiometry)
        self.plan = posterior.plan(
            self.source.meta.window,
            self.reading.bands,
            self._halo(),
            settings.memory,
            settings.tile,
            margin=margin_for(posterior, self.maps.summaries),
        )

    def _halo(self) -> int | None:
        """The margin of the tiles: as asked for, else what makes them exact."""
        posterior, halo = self.posterior, self.settings.halo
        if halo is None:
            return halo_for(posterior, self.maps.summaries, holes=self.reading.survey.holes)
        if posterior.network.halo is None:
            met = f"{posterior.model.name} looks at the whole scene at once"
            raise UsageError(f"`halo` {halo}: {met}; in pieces its results would be wrong. Leave out `halo`.")
        return halo

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
                delivery.draw(self._scene_name, self.source, finished, missing=True)
                self.report = finished
                return
            delivery.refuse_others(self.others, self.settings.variable, self.settings.axes)
            with delivery.journal.locked():
                yield from self._work(job, started, say)
        except OSError as error:
            left = KEPT if delivery.journal.path.exists() else None
            raise unwritable(delivery.report_path.parent, error, left) from error

    def _work(self, job: dict[str, Any], started: float, say: Say) -> Iterator[tuple[int, int]]:
        interrupted = self._interrupted(job, say) if self.settings.resume else None
        steps: list[str] = []
        if interrupted is None or COMPLETE not in interrupted[1]:
            self.delivery.refuse_small_disk()
        if interrupted is None:
            if self.delivery.journal.steps and not (self.settings.resume or self.settings.overwrite):
                met = f"{self.delivery.path}: an interrupted run is here"
                raise OutputError(f"{met}. `resume` continues it, `overwrite` starts again.")
            self.delivery.begin(job | {"plan": self._tiling})
        else:
            recorded, steps = interrupted
            self.plan = replace(self.plan, **recorded["plan"])
        with self.delivery.cleanup_on_failure():
            if COMPLETE not in steps:
                statistics = yield from self._write_tiles(len(steps), say)
                self.delivery.complete(self._report(job, statistics, time.monotonic() - started))
        self.report = self.delivery.commit(self._scene_name, self.source)

    @property
    def _scene_name(self) -> str:
        return with_own_name(self.source.path).name

    @property
    def _tiling(self) -> dict[str, int]:
        return {"tile": self.plan.tile, "depth": self.plan.depth}

    def _interrupted(self, job: dict[str, Any], say: Say) -> tuple[dict[str, Any], list[str]] | None:
        """The job and the finished steps of an interrupted run that this one can continue; None: there is none."""
        interrupted = self.delivery.interrupted(job)
        if interrupted is None or COMPLETE in interrupted[1]:
            return interrupted
        asked = self.settings.tile is not None or self.settings.memory is not None
        if asked and interrupted[0]["plan"] != self._tiling:
            say("The interrupted run used different tiles: starting again.")
            return None
        return interrupted

    def forecast(self) -> Forecast:
        """What the work would need; the time is extrapolated from one sub-network on a part of one tile."""
        tile = self.plan.tiles[len(self.plan.tiles) // 2].padded
        part = Window(tile.row, tile.column, min(tile.rows, 64), min(tile.columns, 64))
        span = self.plan.spans[0].padded if self.posterior.mixtures is None else range(len(self.reading.bands))
        seen = [self.reading.bands[i] for i in span]
        unit, _ = self.reading.radiometry.prepare(self.source.read(part, seen), seen)
        cubes = self.delivery.cubes
        return Forecast(
            outputs={name: str(output.path) for name, (output, _) in cubes.items()},
            bytes_on_disk=sum(meta.nbytes for _, meta in cubes.values()),
            bytes_of_memory=self.posterior.bytes_for(self.plan),
            tiles=len(self.plan.tiles) * len(self.plan.spans),
            tile=self.plan.tile,
            bands=self.plan.depth,
            seconds=self.posterior.seconds_for(self.plan, unit),
            in_the_way=() if self.settings.resume else tuple(map(str, self.delivery.in_the_way)),
        )

    def _write_tiles(self, first: int, say: Say) -> Generator[tuple[int, int], None, dict[str, dict[str, Any]]]:
        """Write every tile from number `first` on; returns the statistics of the maps."""
        with self.delivery.open_outputs() as cubes:
            layers = self.maps.layers(cubes)
            total = len(self.plan.tiles)
            yield first, total
            work = super_resolve(
                self.source,
                self.posterior,
                self.plan,
                self.reading.radiometry,
                layers,
                first,
                say,
                self.maps.question,
                self.reading.constant,
            )
            for count, _ in enumerate(work, start=first + 1):
                self.delivery.journal.note(f"tile {count}")
                yield count, total
            for note in self._clipped(layers, first):
                say(note)
                self.late_notes.append(note)
            return self.maps.statistics(cubes, self.reading.radiometry)

    def _cubes(self, path: Path, *, also_mean: bool) -> Iterator[tuple[str, tuple[Output, CubeMeta]]]:
        """Each cube to be written, by the name of its map, with its metadata."""
        chosen = output_format(path)
        fine = replace(self.source.meta.upscaled(self.posterior.network.scale), notes=())
        if self.settings.cube or also_mean:
            dtype = np.dtype(self.settings.dtype) if self.settings.dtype else fine.dtype
            named = path if self.settings.cube else path.with_name(f"{path.stem}_mean{path.suffix}")
            # Integers have no NaN; a scene with NaN holes is refused elsewhere.
            nodata = None if dtype.kind in "ui" and np.isnan(fine.nodata or 0) else fine.nodata
            yield "mean", (Output(named, chosen), replace(fine, dtype=dtype, nodata=nodata))
        for name, meta in self.maps.metas(fine):
            yield name, (Output(path.with_name(f"{path.stem}_{name}{path.suffix}"), chosen), meta)

    def _job(self) -> dict[str, Any]:
        """All that decides the result, for the report; a resumed run must have the same."""
        model, settings, radiometry = self.posterior.model, self.settings, self.reading.radiometry
        job = {
            "inputs": hashes(self.source.files),
            "variable": self.source.meta.variable,
            "axes": self.source.axes,
            "shape": self.source.meta.shape(),
            "model": {"name": model.name, "sha256": model.sha256, "scale": model.scale},
            "seed": self.posterior.seed,
            "samples": len(self.posterior),
            "ensemble": self.posterior.ensemble,
            "mixtures": len(self.posterior.mixtures or ()),
            "halo": self.plan.halo,
            "radiometry": asdict(radiometry) | {"floor": str(radiometry.floor)},
            "bands": None if self.chosen is None else runs(self.chosen),
            "dtype": settings.dtype,
            "outputs": sorted(self.delivery.cubes),
            "uncertainty": self.maps.facts() if self.maps.names else None,
            "versions": versions("torch", "numpy"),
        }
        plain: dict[str, Any] = json.loads(json.dumps(finite(job)))  # as it is read back: lists, not tuples
        return plain

    def _notes(self) -> tuple[str, ...]:
        """Notes for the user: on the file, on the samples, and on intervals that may not hold."""
        count, asked = len(self.posterior), self.posterior.asked
        met = f"{count} samples instead of {asked}: this network cannot give more different ones."
        fewer = (met,) if 1 < count < asked else ()
        of_scene = (*self.source.meta.notes, *self.reading.survey.notes)
        of_maps = *self.maps.unit_notes(self.source.meta), *self.maps.notes(len(self.reading.bands))
        return (*of_scene, *self._zero_bands(), *fewer, *self._unmixed(), *of_maps)

    def _unmixed(self) -> Iterator[str]:
        """A note if the network sees every band of a scene that it would see as mixtures were it larger."""
        if self.posterior.mixtures is None and enough_bands(len(self.reading.bands), self.posterior.most_mixtures):
            met = "Too few pixels with data to see the bands as mixtures"
            yield f"{met}: the network sees every band, which takes longer."

    def _zero_bands(self) -> Iterator[str]:
        """A note if bad bands are written as 0 because the output has no nodata value."""
        mean = next((meta for name, (_, meta) in self.delivery.cubes.items() if name == "mean"), None)
        unusable = self._unusable_bands
        if mean is not None and unusable and mean.nodata is None and mean.dtype.kind in "iu":
            bands = "bad band is" if unusable == 1 else "bad bands are"
            yield f"{unusable} {bands} written as 0: the scene has no nodata value. Give one with `nodata`"

    def _clipped(self, layers: Sequence[Layer], first: int) -> Iterator[str]:
        """A note if values were beyond the type of the cube; those of tiles before `first` were not counted."""
        for layer in layers:
            if layer.cube is not None and (count := sum(layer.clipped)):
                least = "At least " if first else ""
                values = f"{count:,} values were" if count > 1 else "1 value was"
                way = "pdenet upscale --dtype float32 keeps them"
                yield f"{least}{values} beyond what {layer.cube.meta.dtype.name} holds and clipped; {way}."

    @property
    def _unusable_bands(self) -> int:
        return self.source.meta.bands - len(self.reading.bands) - len(self.reading.constant)

    def _report(self, job: dict[str, Any], statistics: dict[str, dict[str, Any]], seconds: float) -> Report:
        meta = self.source.meta
        return Report(
            job=job,
            outputs=self.delivery.names,
            scene={
                "bands": meta.bands,
                "rows": meta.rows,
                "columns": meta.columns,
                "unusable_bands": self._unusable_bands,
                "constant_bands": len(self.reading.constant),
                "nodata_share": self.reading.survey.nodata_share,
                "tile": self.plan.tile,
                "bands_at_once": self.plan.depth,
                "device": str(self.posterior.device),
            },
            seconds=round(seconds, 2),
            notes=(*self._notes(), *self.late_notes),
            maps=statistics,
        )
