"""`python -m tests.fuzz kills`: runs killed, or met by a full disk, at random moments, resumed to equal bytes."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.cubes import picture, written
from tests.fuzz.cases import is_result
from tests.fuzz.running import working_folder
from tests.fuzz.seeds import JOURNALED
from tests.fuzz.worker import contents, emptied, import_everything, run

SIZE = (6, 48, 40)  # of the scene, in tiles of 4 x 4
ROOM = 1 << 20  # bytes of the small disk
KILLS_MOST = 3  # of one run, before it is resumed to its end


@dataclass
class Scene:
    """A scene and how to sharpen it to one format."""

    path: Path
    suffix: str
    log: Path
    whole: dict[str, object] = field(default_factory=dict)  # what the run gives that nobody disturbs
    seconds: float = 0.0  # that it takes

    def words(self, out: Path, *more: str) -> list[object]:
        output = out / f"fine.{self.suffix}"
        return ["upscale", self.path, "-o", output, "--model", "bicubic", "--scale", 2, "--tile", 4, *more]

    def results(self, out: Path) -> dict[str, object]:
        return {name: raw for name, raw in contents(out).items() if is_result(name)}


def forked(words: list[object], log: Path) -> int:
    """The process in which `pdenet` runs with these words; its exit code is that of the command."""
    process = os.fork()
    if not process:
        code = 99
        try:
            from pdenet_cli import child

            os.setsid()
            child._helper = None
            code = run(words, log).code
        finally:
            os._exit(code)
    return process


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def prepared(folder: Path, suffix: str) -> Scene:
    scene = Scene(written(folder / f"scene_{suffix}.tif", picture(*SIZE)), suffix, folder / "said.txt")
    out = emptied(folder / "whole")
    for _ in range(2):  # the first one is slower
        emptied(out)
        began = time.monotonic()
        assert ended(forked(scene.words(out), scene.log)) == 0, scene.log.read_text()
        scene.seconds = time.monotonic() - began
    scene.whole = scene.results(out)
    return scene


def killed(scene: Scene, out: Path, chance: Random, faults: list[str]) -> str:
    """Kill a run at random moments, then let it end; what was left of it when it was killed last."""
    emptied(out)
    left = ""
    for _ in range(chance.randint(1, KILLS_MOST)):
        process = forked(scene.words(out, "--resume"), scene.log)
        time.sleep(chance.uniform(0, 1.1 * scene.seconds))
        os.kill(process, signal.SIGKILL)
        code = ended(process)
        left = "finished" if code == 0 else "journal" if any(out.glob(".*.journal")) else "nothing"
    _finish(scene, out, faults)
    return left


def filled(scene: Scene, disk: Path, chance: Random, faults: list[str]) -> str:
    """Fill the disk at a random moment of a run, make room again, and let it end."""
    out = emptied(disk / "out")
    process = forked(scene.words(out), scene.log)
    time.sleep(chance.uniform(0, scene.seconds))
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    code = ended(process)
    (disk / "filler").unlink()
    said = scene.log.read_text()
    if code not in (0, 5) or "Traceback" in said or (code == 5 and len(said.strip().splitlines()) > 4):
        faults.append(f"{scene.suffix}: full disk: exit {code}: {said.strip()[-300:]}")
    left = sorted(path.name for path in out.iterdir() if is_result(path.name))
    if code and left and not any(out.glob(".*.journal")):
        faults.append(f"{scene.suffix}: full disk: left {left}")
    _finish(scene, out, faults)
    return "finished" if code == 0 else f"exit {code}"


def _finish(scene: Scene, out: Path, faults: list[str]) -> None:
    code = ended(forked(scene.words(out, "--resume"), scene.log))
    found = scene.results(out)
    if code or found != scene.whole:
        names = found.keys() | scene.whole.keys()
        wrong = sorted(name for name in names if found.get(name) != scene.whole.get(name))[:4]
        said = scene.log.read_text()[-200:]
        faults.append(f"{scene.suffix}: resumed: exit {code}, other bytes in {wrong}: {said}")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of its own; None where this user may mount none."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    try:
        mounted = shutil.which("mount") and subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def interrupt(
    kills: int, full: int, seed: int, suffixes: tuple[str, ...]
) -> tuple[dict[str, Counter[str]], list[str]]:
    """How many runs of each format ended how, and what was wrong."""
    import_everything()
    tallies: dict[str, Counter[str]] = {suffix: Counter() for suffix in suffixes}
    faults: list[str] = []
    with working_folder() as folder, small_disk(folder / "disk") as disk:
        scenes = [prepared(folder, suffix) for suffix in suffixes]
        for number in range(max(kills, full)):
            chance, scene = Random(f"{seed} {number}"), scenes[number % len(scenes)]
            if number < kills:
                how = killed(scene, folder / "out", chance, faults)
                tallies[scene.suffix][f"killed, left {how}"] += 1
            if number < full and disk is not None:
                how = filled(scene, disk, chance, faults)
                tallies[scene.suffix][f"full disk, {how}"] += 1
        if full and disk is None:
            tallies[suffixes[0]]["no disk could be mounted: runs on a full disk skipped"] += 1
    return tallies, faults


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--full", type=int, default=12, help="runs whose disk is filled")
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args(words)
    tallies, faults = interrupt(said.kills, said.full, said.seed, JOURNALED)
    for suffix, tally in tallies.items():
        print(f"{suffix:5}", ", ".join(f"{how}: {count}" for how, count in sorted(tally.items())))
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
