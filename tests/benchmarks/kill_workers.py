"""Kills workers and coordinators of `pdenet upscale --workers` at random moments; the bytes must stay the same.

    python tests/benchmarks/kill_workers.py --kills 100

Every run is resumed until it is complete, in each of several formats in turn, and then compared with that of one
process. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.cubes import written

SUFFIXES = ("zarr", "tif", "hdr", "nc")


def workers_of(process: int) -> list[int]:
    """The worker processes of a coordinator."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text()
            words = status.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if f"PPid:\t{process}\n" in lines and b"spawn_main" in words:
            found.append(int(status.parent.name))
    return found


def contents(folder: Path, name: str) -> dict[str, bytes]:
    found = [p for path in folder.glob(f"{name}*") for p in (path, *path.rglob("*")) if p.is_file()]
    return {
        str(p.relative_to(folder)).replace(name, "", 1): p.read_bytes() for p in found if "report" not in p.name
    }


def begun(folder: Path) -> bool:
    """Whether a run has recorded a tile."""
    return any(b'"tile": {"checksums' in path.read_bytes() for path in folder.glob(".two.*.journal"))


def command(scene: Path, output: Path, *words: str) -> list[str]:
    options = ["--model", "bicubic", "--scale", "2", "--no-style"]
    tile = [] if output.suffix == ".zarr" else ["--tile", "25"]
    return [sys.executable, "-m", "pdenet_cli", "upscale", str(scene), "-o", str(output), *options, *tile, *words]


def one_format(folder: Path, scene: Path, suffix: str, kills: int, chance: random.Random) -> tuple[int, int]:
    """Kill so many processes of runs to this format; how many workers and coordinators it were."""
    subprocess.run(command(scene, folder / f"one.{suffix}"), check=True, capture_output=True)
    workers = coordinators = 0
    output = folder / f"two.{suffix}"
    while True:
        with subprocess.Popen(
            command(scene, output, "--workers", "2", "--resume"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as run:
            while run.poll() is None:
                if workers + coordinators >= kills or not (begun(folder) and (alive := workers_of(run.pid))):
                    time.sleep(0.05)
                    continue
                time.sleep(chance.uniform(0, 2))
                if chance.random() < 0.25:
                    run.kill()
                    coordinators += 1
                elif alive := workers_of(run.pid):
                    os.kill(chance.choice(alive), signal.SIGKILL)
                    workers += 1
                if not output.exists() and chance.random() < 0.5:
                    time.sleep(chance.uniform(0, 3))  # sometimes one upon the other, sometimes not
            _, said = run.communicate()
            if run.returncode not in (0, -signal.SIGKILL):
                raise SystemExit(f"{suffix}: exit {run.returncode}: {said.decode()}")
        if output.exists() and run.returncode == 0:
            break
    same = contents(folder, "one") == contents(folder, "two")
    print(f"{suffix}: {workers} workers and {coordinators} coordinators killed; bytes equal: {same}", flush=True)
    if not same or list(folder.glob(".two*")):
        raise SystemExit(f"{suffix}: not the bytes of one process, or something was left: {folder}")
    return workers, coordinators


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", type=int, default=500)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    total = 0
    started = time.monotonic()
    for number, suffix in enumerate(SUFFIXES):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            pixels = np.random.default_rng(0).integers(1, 900, (20, asked.side, asked.side)).astype("<u2")
            scene = written(folder / "scene.tif", pixels)
            share = asked.kills // len(SUFFIXES) + (number < asked.kills % len(SUFFIXES))
            while share > 0:
                done = sum(one_format(folder, scene, suffix, min(share, 6), chance))
                total, share = total + done, share - max(1, done)
                for path in folder.glob("two*"):
                    subprocess.run(["rm", "-r", str(path)], check=True)
                for path in folder.glob("one*"):
                    subprocess.run(["rm", "-r", str(path)], check=True)
    print(
        f"{total} processes killed in {time.monotonic() - started:.0f} s; every run gave the bytes of one process"
    )


if __name__ == "__main__":
    main()
