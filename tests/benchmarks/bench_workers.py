"""What spreading work over processes costs and gains. Each part stands alone:

python tests/benchmarks/bench_workers.py ratio             # one worker against two, in wall time
python tests/benchmarks/bench_workers.py tiles --count 20000   # the coordinator's time for a tile
python tests/benchmarks/bench_workers.py scenes --count 2000   # an archive of tiny scenes, and its resume
python tests/benchmarks/bench_workers.py voxels            # time and memory against the size of the output
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdenet_cli import Job, Posterior, Settings, load_model
from pdenet_cli.formats import open_cube
from pdenet_cli.tools.cluster import workers_here
from pdenet_cli.tools.finished_tiles import TileRecorder
from pdenet_cli.tools.journal import Journal
from pdenet_cli.tools.orders import Facts
from pdenet_cli.tools.tile_order import TileDone
from tests.cubes import written


def resident() -> float:
    """Memory of this process in MB."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def pdenet(*words: object) -> tuple[float, subprocess.CompletedProcess[str]]:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pdenet_cli", *map(str, words)], capture_output=True, text=True, check=False
    )
    return time.monotonic() - started, done


@dataclass(frozen=True)
class Nothing:
    """An order whose tiles take no time, so that what is left is the coordinator's."""

    facts: Facts
    name: str = "nothing"

    def open(self):
        return lambda number: TileDone(number, {"mean": "00000000", "std": "00000000"}, (0, 0))


def tiles(folder: Path, asked: argparse.Namespace) -> None:
    """Tiles that take no time: the processor time of the coordinator, with dask's scheduler in it, for each."""
    book = Journal(folder / "fine.zarr")
    book.begin({"plan": {"tile": 1, "depth": 1, "step": 1}, "files": [], "replaces": False})
    book.append({"files": {}})
    with workers_here(2, 2) as workers, TileRecorder(book, ()) as recorder:
        list(workers.spread(Nothing(Facts.of()), range(200)))
        before, started, memory = time.process_time(), time.monotonic(), []
        for count, (_, done) in enumerate(workers.spread(Nothing(Facts.of()), range(asked.count)), start=1):
            recorder.add(done.number, done.checksums)
            if count % (asked.count // 10) == 0:
                memory.append(resident())
        spent, wall = time.process_time() - before, time.monotonic() - started
    each, steps = 1000 * spent / asked.count, " ".join(f"{size:.0f}" for size in memory)
    print(f"{asked.count} tiles: {each:.3f} ms of the coordinator each, {wall:.1f} s; memory {steps} MB")


def scenes(folder: Path, asked: argparse.Namespace) -> None:
    """Tiny scenes by bicubic, one in a hundred damaged; then again with --resume."""
    (folder / "in").mkdir()
    rng = np.random.default_rng(0)
    for number in range(asked.count):
        path = folder / "in" / f"s{number:06d}.hdr"
        written(path, rng.integers(1, 999, (4, 8, 8)).astype("<u2"))
        if number % 100 == 50:
            path.write_text("ENVI\nnothing else\n")
    (folder / "list.txt").write_text("\n".join(map(str, sorted((folder / "in").glob("*.hdr")))))
    words = ("upscale", f"@{folder / 'list.txt'}", "-o", folder / "out", "--model", "bicubic", "--no-style")
    watched = [sys.executable, __file__, "watched", *map(str, words), "--workers", "2"]
    for more in (["--summary", folder / "first.json"], ["--resume", "--summary", folder / "again.json"]):
        started = time.monotonic()
        done = subprocess.run([*watched, *map(str, more)], capture_output=True, text=True, check=False)
        print(f"exit {done.returncode}, {time.monotonic() - started:.0f} s; {done.stderr.splitlines()[-1]}")
        print(json.loads(Path(more[-1]).read_text())["totals"])


def watched(words: list[str]) -> None:
    """Run `pdenet` and print the memory of this process at each tenth of the scenes."""
    from pdenet_cli.cli import main
    from pdenet_cli.tools.archive import Totals

    memory: list[float] = []
    add = Totals.add
    count = len(Path(words[1][1:]).read_text().splitlines())

    def counted(self: Totals, row: dict[str, object]) -> None:
        add(self, row)
        if self.scenes % max(1, count // 10) == 0:
            memory.append(resident())

    Totals.add = counted  # type: ignore[method-assign]
    sys.argv = ["pdenet", *words]
    try:
        main()
    finally:
        print("memory of the coordinator:", *(f"{size:.0f}" for size in memory), "MB", file=sys.stderr)


def ratio(folder: Path, asked: argparse.Namespace) -> None:
    """One worker against two on the same scene, in wall time, start and end included."""
    pixels = np.random.default_rng(0).integers(1, 900, (31, asked.side, asked.side)).astype("<u2")
    scene = written(folder / "scene.tif", pixels)
    for command in asked.commands.split(","):
        spent = {}
        for count in (1, 2):
            output = folder / f"{command}{count}{'.tif' if command == 'upscale' else ''}"
            output = output if output.suffix else output.with_name(output.name)
            words = (command, scene, "-o", output, "--workers", count, "--threads", count, "--tile", asked.tile)
            page = ("--no-page",) if command == "uncertainty" else ()
            spent[count], done = pdenet(*words, "--samples", asked.samples, "--memory", "4GB", *page)
            print(command, count, f"{spent[count]:.1f} s", done.stderr.strip()[-200:], flush=True)
        print(f"{command}: two workers {spent[1] / spent[2]:.2f} times as fast as one", flush=True)


def voxels(folder: Path, asked: argparse.Namespace) -> None:
    """Wall time and memory of bicubic x4 at outputs of ten times as many voxels each."""
    for side in (200, 632, 2000)[: asked.sizes]:
        pixels = np.random.default_rng(0).integers(1, 900, (16, side, side)).astype("<u2")
        scene = written(folder / f"{side}.hdr", pixels)
        del pixels
        output = folder / f"{side}.zarr"
        spent, done = pdenet(
            "upscale", scene, "-o", output, "--model", "bicubic", "--workers", 2, "--memory", "1GB"
        )
        report = json.loads(output.with_name(output.name + ".report.json").read_text())
        print(
            f"{16 * 16 * side * side:.2g} voxels: {spent:.1f} s, {report['seconds']:.1f} s of work {done.stderr}"
        )


def plan(folder: Path, asked: argparse.Namespace) -> None:
    """What 100,000 scenes of 1000 x 1000 x 224 take: a part of one is measured, the rest follows from its work."""
    with open_cube(Path(__file__).parents[2] / "examples" / "indian_pines.hdr") as cube:
        real = np.pad(cube.read(), ((0, 24), (0, 0), (0, 0)), mode="reflect")
    posterior, work, nbytes = Posterior(load_model("general-x4"), 8), {}, {}
    for side in (asked.side, 1000):
        times = -(-side // real.shape[1])
        scene = written(folder / f"{side}.hdr", np.tile(real, (1, times, times))[:, :side, :side].copy())
        with Job(scene, folder / "a.zarr", posterior, Settings(memory=2 * 10**9, forecast=True)) as job:
            work[side], nbytes[side] = job.scene.plan.voxels, job.forecast().bytes_on_disk
    before = sum(os.times()[2:4])
    output = folder / "fine.zarr"
    pdenet("upscale", folder / f"{asked.side}.hdr", "-o", output, "--threads", 1, "--memory", "2GB", "--no-style")
    seconds = sum(os.times()[2:4]) - before
    kept = sum(path.stat().st_size for path in output.rglob("*") if path.is_file()) / nbytes[asked.side]
    hours = seconds * work[1000] / work[asked.side] / 3600
    print(f"measured: {asked.side}x{asked.side}x224: {seconds:.0f} s of one core; Zarr: {kept:.2f} of raw")
    print(
        f"planned: {work[1000] / work[asked.side]:.1f} times as much work for 1000 x 1000 x 224, margins included"
    )
    print(f"forecast: {hours:.2f} core-hours a scene, {nbytes[1000] / 1e9:.2f} GB raw")
    disk = nbytes[1000] * kept * 1e5 / 1e12
    print(f"forecast: 100,000 scenes: {hours * 1e5:,.0f} core-hours and {disk:,.0f} TB as Zarr", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["watched"]:
        watched(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = {"ratio": ratio, "tiles": tiles, "scenes": scenes, "voxels": voxels, "plan": plan}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--tile", type=int, default=32)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--sizes", type=int, default=2)
    parser.add_argument("--commands", default="upscale,uncertainty")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        parts[asked.part](Path(name), asked)


if __name__ == "__main__":
    main()
