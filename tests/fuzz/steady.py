"""`python -m tests.fuzz steady`: many jobs of mixed formats in one process; memory, files, threads do not grow."""

from __future__ import annotations

import argparse
import gc
import itertools
import time
from pathlib import Path

from tests.fuzz.running import working_folder
from tests.fuzz.seeds import JOURNALED, SEEDS, make_all, model_file
from tests.fuzz.worker import emptied, faults_of, import_everything, memory_of, run

KINDS = [kind for kind in SEEDS if kind not in ("weights", "journal")]
WARM = 0.3  # the share of jobs after which all caches are full
MOST_GROWTH = 24 << 20  # bytes from then on


def measured() -> tuple[int, int, int]:
    """Resident bytes, open files, threads."""
    gc.collect()
    return memory_of("VmRSS"), *(len([*Path(f"/proc/self/{what}").iterdir()]) for what in ("fd", "task"))


def steady(jobs: int, *, show: bool = False) -> tuple[list[tuple[int, int, int]], list[str]]:
    """What was measured after each tenth of the jobs, and what was wrong."""
    import_everything()
    found, faults = [], []
    with working_folder() as folder:
        scenes = [scene for kind in make_all(folder, KINDS).values() for _, scene in kind]
        weights = model_file(folder / "model.safetensors")
        turns = zip(itertools.cycle(scenes), itertools.cycle((*JOURNALED, "tif")), range(jobs), strict=False)
        began = time.monotonic()
        for scene, suffix, number in turns:
            out = emptied(folder / "out")
            words: list[object] = ["upscale", scene, "-o", out / f"fine.{suffix}", "--model"]
            words += [weights, "--samples", 1] if number % 5 == 0 else ["bicubic", "--scale", 2]
            if number % 3 == 1:
                words = ["info", scene]
            ran = run(words, folder / "said.txt")
            # Not every format can hold what every scene says of itself.
            faults += faults_of(ran) + ([f"{scene.name}: {ran.said}"] if ran.code not in (0, 5) else [])
            if (number + 1) % max(1, jobs // 10) == 0:
                found.append(measured())
                if show:
                    memory, files, threads = found[-1]
                    text = f"{memory >> 20} MB, {files} files, {threads} threads, {time.monotonic() - began:.0f} s"
                    print(f"{number + 1:5} jobs: {text}", flush=True)
    warm = found[int(len(found) * WARM) :]
    if warm[-1][0] - warm[0][0] > MOST_GROWTH:
        faults.append(f"memory grew by {warm[-1][0] - warm[0][0]:,} bytes")
    for place, what in ((1, "open files"), (2, "threads")):
        if warm[-1][place] > warm[0][place]:
            faults.append(f"{what} grew from {warm[0][place]} to {warm[-1][place]}")
    return found, faults


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz steady", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    _, faults = steady(parser.parse_args(words).jobs, show=True)
    print("\n".join(faults[:20]) or "steady")
    return int(bool(faults))
