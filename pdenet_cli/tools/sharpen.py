"""`pdenet upscale` and `pdenet uncertainty`: one scene, one pass over its tiles, as many outputs as asked for."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pdenet_cli.cube import CubeMeta, Window
from pdenet_cli.errors import FormatError, OutputError, UsageError
from pdenet_cli.formats import files_of, open_cube, output_format, usual_suffix, writable_suffixes, zarr_store
from pdenet_cli.formats.output import Output, is_file, is_folder, unwritable
from pdenet_cli.inference import halo_for, super_resolve
from pdenet_cli.posterior import Posterior, require_posterior
from pdenet_cli.radiometry import Radiometry
from pdenet_cli.report import Report, finite, hashes, versions
from pdenet_cli.summaries import USUAL, Question
from pdenet_cli.survey import Survey, refuse_narrow
from pdenet_cli.tools.delivery import COMPLETE, Delivery
from pdenet_cli.tools.maps import Maps


@dataclass(frozen=True)
class Settings:
    """How a scene is to be sharpened, apart from the model and its draws."""

    cube: bool = True  # write the sharpened cube
    maps: tuple[str, ...] | None = ()  # and these maps of its uncertainty; None: those that the model allows
    question: Question = USUAL  # what is asked of the maps
    value_range: tuple[float, float] | None = None
    bands: slice | None = None
    dtype: str | None = None
    memory: int | None = None
    tile: int | None = None
    halo: int | None = None
    variable: str | None = None
    axes: str | None = None
    nodata: float | None = None  # the number that stands for nothing, None: what the file says
    overwrite: bool = False
    resume: bool = False
    forecast: bool = False  # nothing will be written
    quicklook: bool = False
    page: bool = False  # show the maps on a page and in a picture; the sharpened cube is written for it


@dataclass(frozen=True)
class Forecast:
    """What a job would take."""

    outputs: dict[str, str]
    bytes_on_disk: int
    bytes_of_memory: int
    tiles: int
    tile: int  # longest side, input pixels
    bands: int  # of a tile
    seconds: float
    in_the_way: tuple[str, ...] = ()  # files for which the run would want --overwrite


class Job:
    """One scene made ready to be sharpened: every check that can come before the work is made here.

    The scene is closed when `run` ends in any way; a job that is not run is closed as a context manager.
    """

    def __init__(
        self,
        scene: Path | str,
        output: Path | str,
        posterior: Posterior,
        settings: Settings,
        others: Sequence[Path] = (),
    ) -> None:
        """`output` is the sharpened cube; maps are named after it. `others`: scenes that must stay as they are."""
        require_posterior(posterior)
        scene, output = Path(scene), Path(output)
        self.posterior, self.settings, self.others = posterior, settings, others
        self.maps = Maps(settings.maps, settings.question, posterior)
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
        network = posterior.network
        if settings.bands is not None:
            self.source = self.source.with_bands(settings.bands)
        shown = settings.page and bool(self.maps.names)
        cubes = dict(self._cubes(output, also_mean=shown))
        self.delivery = Delivery(output, cubes, settings.overwrite, settings.quicklook, shown)
        self.delivery.refuse((scene, *self.source.files))
        if not settings.resume and not settings.forecast:
            self.delivery.refuse_existing()
            self.delivery.refuse_small_disk()
        # What is written rests on it: a hole or a bright pixel that was not looked at would be lost.
        self.survey = Survey.of(self.source) if settings.forecast else Survey.of(self.source, sys.maxsize)
        self.usable = self.survey.bands_for(self.source.meta, network.bands)
        if not self.usable:
            raise FormatError(f"{scene}: every band is marked bad or empty; there is nothing to sharpen.")
        good = self.survey.usable_bands(self.source.meta)
        self.constant = tuple(band for band in good if band not in self.usable)
        if settings.dtype is not None:
            refuse_narrow(np.dtype(settings.dtype), self.source.meta, self.survey)
        self.radiometry = Radiometry.of(self.source.meta, self.survey, settings.value_range)
        posterior.refuse_other_bands(len(self.usable))
        halo = settings.halo
        if halo is not None and network.halo is None:
            whole = f"{posterior.model.name} looks at the whole scene at once"
            raise UsageError(f"--halo {halo}: {whole}; in pieces its results would be wrong. Leave out --halo.")
        if halo is None:
            halo = halo_for(posterior, self.maps.summaries, holes=self.survey.holes)
        self.plan = posterior.plan(self.source.meta.window, self.usable, halo, settings.memory, settings.tile)

    def run(self, say: Callable[[str], None] = lambda text: None) -> Iterator[tuple[int, int]]:
        """Do the work; yields how many tiles of how many are done. `report` is there when it ends."""
        with self:
            yield from self._run(say)

    def _run(self, say: Callable[[str], None]) -> Iterator[tuple[int, int]]:
        started = time.monotonic()
        for note in self._notes():
            say(note)
        job, delivery = self._job(), self.delivery
        try:
            before = delivery.made(job) if self.settings.resume else None
            if before is not None:
                delivery.show(_named(self.source.path).name, before, missing=True)
                self.report = before
                return
            self.delivery.refuse_others(self.others, self.settings.variable, self.settings.axes)
            with delivery.journal.held():
                yield from self._work(job, started, say)
        except OSError as error:
            left = (
                ("The finished tiles are kept: continue with --resume.",) if delivery.journal.path.exists() else ()
            )
            raise unwritable(delivery.report_path.parent, error, *left) from error

    def _work(self, job: dict[str, Any], started: float, say: Callable[[str], None]) -> Iterator[tuple[int, int]]:
        begun = self._begun(job, say) if self.settings.resume else None
        steps: list[str] = []
        if begun is None or COMPLETE not in begun[1]:
            self.delivery.refuse_small_disk()
        if begun is None:
            if self.delivery.journal.steps and not (self.settings.resume or self.settings.overwrite):
                met = f"{self.delivery.path}: an interrupted run is here"
                raise OutputError(f"{met}. --resume continues it, --overwrite starts again.")
            self.delivery.begin(job | {"plan": self._tiling})
        else:
            told, steps = begun
            self.plan = replace(self.plan, **told["plan"])
        with self.delivery.growing():
            if COMPLETE not in steps:
                numbers = yield from self._tiles(len(steps), say)
                self.delivery.complete(self._report(job, numbers, time.monotonic() - started))
        self.report = self.delivery.commit(_named(self.source.path).name)

    @property
    def _tiling(self) -> dict[str, int]:
        return {"tile": self.plan.tile, "depth": self.plan.depth}

    def _begun(self, job: dict[str, Any], say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]] | None:
        """What a broken-off run has done that this one can go on with."""
        begun = self.delivery.begun(job)
        if begun is None or COMPLETE in begun[1]:
            return begun
        asked = self.settings.tile is not None or self.settings.memory is not None
        if asked and begun[0]["plan"] != self._tiling:
            say("The interrupted run used different tiles: starting again.")
            return None
        return begun

    def forecast(self) -> Forecast:
        """What the work would take; the time is that of one sub-network over a part of one tile, multiplied."""
        tile = self.plan.tiles[len(self.plan.tiles) // 2].padded
        part = Window(tile.row, tile.column, min(tile.rows, 64), min(tile.columns, 64))
        seen = [self.usable[i] for i in self.plan.spans[0].padded]
        unit, _ = self.radiometry.prepare(self.source.read(part, seen), seen)
        cubes = self.delivery.cubes
        return Forecast(
            outputs={name: str(output.path) for name, (output, _) in cubes.items()},
            bytes_on_disk=sum(meta.nbytes for _, meta in cubes.values()),
            bytes_of_memory=self.posterior.bytes_for(self.plan),
            tiles=len(self.plan.tiles) * len(self.plan.spans),
            tile=self.plan.tile,
            bands=self.plan.depth,
            seconds=self.posterior.seconds_per_voxel(unit) * self.plan.voxels * len(self.posterior),
            in_the_way=() if self.settings.resume else tuple(map(str, self.delivery.in_the_way)),
        )

    def _tiles(
        self, first: int, say: Callable[[str], None]
    ) -> Generator[tuple[int, int], None, dict[str, dict[str, Any]]]:
        """Write every tile from number `first` on; in the end, what the maps show in numbers."""
        with self.delivery.created() as cubes:
            layers = self.maps.layers(cubes)
            total = len(self.plan.tiles)
            yield first, total
            road = self.source, self.posterior, self.plan, self.radiometry
            work = super_resolve(*road, layers, first, say, self.maps.question, self.constant)
            for count, _ in enumerate(work, start=first + 1):
                self.delivery.journal.note(f"tile {count}")
                yield count, total
            return self.maps.numbers(cubes, self.radiometry)

    def _cubes(self, path: Path, *, also_mean: bool) -> Iterator[tuple[str, tuple[Output, CubeMeta]]]:
        """Each cube to be written by the name of its map, with what it says of itself."""
        chosen = output_format(path)
        fine = replace(self.source.meta.upscaled(self.posterior.network.scale), notes=())
        if self.settings.cube or also_mean:
            dtype = np.dtype(self.settings.dtype) if self.settings.dtype else fine.dtype
            named = path if self.settings.cube else path.with_name(f"{path.stem}_mean{path.suffix}")
            # Whole numbers have no NaN; a scene with such holes is refused.
            nodata = None if dtype.kind in "ui" and np.isnan(fine.nodata or 0) else fine.nodata
            yield "mean", (Output(named, chosen), replace(fine, dtype=dtype, nodata=nodata))
        for name, meta in self.maps.metas(fine):
            yield name, (Output(path.with_name(f"{path.stem}_{name}{path.suffix}"), chosen), meta)

    def _job(self) -> dict[str, Any]:
        """All that decides the result; a resumed run must have the same."""
        model, settings = self.posterior.model, self.settings
        bands = None if settings.bands is None else [settings.bands.start, settings.bands.stop]
        job = {
            "inputs": hashes(self.source.files),
            "model": {"name": model.name, "sha256": model.sha256, "scale": model.scale},
            "seed": self.posterior.seed,
            "samples": len(self.posterior),
            "ensemble": self.posterior.ensemble,
            "halo": self.plan.halo,
            "radiometry": asdict(self.radiometry) | {"floor": str(self.radiometry.floor)},
            "bands": bands,
            "dtype": settings.dtype,
            "outputs": sorted(self.delivery.cubes),
            "uncertainty": self.maps.facts() if self.maps.names else None,
            "versions": versions("torch", "numpy"),
        }
        plain: dict[str, Any] = json.loads(json.dumps(finite(job)))  # as it will be read back: tuples are lists
        return plain

    def _notes(self) -> tuple[str, ...]:
        """What a user should know: what was guessed in the file, and what keeps intervals from holding."""
        count, asked = len(self.posterior), self.posterior.asked
        met = f"{count} samples instead of {asked}: this network cannot give more different ones."
        fewer = (met,) if 1 < count < asked else ()
        return (*self.source.meta.notes, *self.survey.notes, *self._zeros(), *fewer, *self.maps.misfits())

    def _zeros(self) -> Iterator[str]:
        """What to say where bands come out as 0, because the output has no number for missing data."""
        mean = next((meta for name, (_, meta) in self.delivery.cubes.items() if name == "mean"), None)
        unusable = self.source.meta.bands - len(self.usable) - len(self.constant)
        if mean is not None and unusable and mean.nodata is None and mean.dtype.kind in "iu":
            bands = "bad band is" if unusable == 1 else "bad bands are"
            yield f"{unusable} {bands} written as 0: the scene has no nodata value. Give one with --nodata"

    def _report(self, job: dict[str, Any], numbers: dict[str, dict[str, Any]], seconds: float) -> Report:
        meta = self.source.meta
        return Report(
            job=job,
            outputs=self.delivery.names,
            scene={
                "bands": meta.bands,
                "rows": meta.rows,
                "columns": meta.columns,
                "unusable_bands": meta.bands - len(self.usable) - len(self.constant),
                "constant_bands": len(self.constant),
                "nodata_share": self.survey.nodata_share,
                "tile": self.plan.tile,
                "bands_at_once": self.plan.depth,
                "device": str(self.posterior.device),
            },
            seconds=round(seconds, 2),
            notes=self._notes(),
            maps=numbers,
        )


def each_once(scenes: Sequence[Path], settings: Settings) -> list[Path]:
    """The scenes without those that are a scene before by another of its files, as b.img is b.hdr."""
    kept: list[Path] = []
    alike: dict[tuple[Path, str], set[Path]] = {}
    names = [(scene.parent, scene.name.partition(".")[0]) for scene in scenes]
    often = Counter(names)
    for scene, name in zip(scenes, names, strict=True):
        # Opened only where names are alike: there may be thousands.
        files = files_of(scene, settings.variable, settings.axes)[0] if often[name] > 1 else ()
        own = {file.resolve() for file in files}
        if not alike.setdefault(name, set()) & own:
            kept.append(scene)
        alike[name] |= own
    return kept


def output_paths(scenes: Sequence[Path], output: Path, scale: int, *, folder: bool) -> list[Path]:
    """Where each scene's result goes: to `output` itself, or into it if it is a folder or there are several.

    `folder`: it is one in any case, and results are named after their scene alone.
    """
    if not folder and len(scenes) == 1 and output.suffix and (not is_folder(output) or _is_store(output)):
        return [output]
    if is_file(output) or (not is_folder(output) and output.suffix.lower() in writable_suffixes()):
        raise UsageError(f"{output}: use a folder, not a file name.")
    try:
        output.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(output, error) from error
    ending = "" if folder else f"_x{scale}"
    named = [_named(scene) for scene in scenes]
    paths = [output / f"{scene.stem}{ending}{usual_suffix(scene)}" for scene in named]
    stems = [path.stem for path in paths]  # reports and pages have the same suffix whatever the format
    for stem, scene in zip(stems, named, strict=True):
        if stems.count(stem) > 1:
            raise UsageError(f"Several scenes are called {scene.stem}; sharpen them into different folders.")
    return paths


def _named(scene: Path) -> Path:
    """The scene by a name of its own, which `.` and `..` are not."""
    return scene if scene.name not in ("", "..") else scene.resolve()


def _is_store(path: Path) -> bool:
    """Whether a folder is a cube, which --overwrite may replace, and not a place for cubes."""
    form = zarr_store.FORMAT
    return path.suffix.lower() in form.suffixes and form.recognises(path, b"")
