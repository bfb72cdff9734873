"""Cases one after another, until the time is over; those that break something are saved."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.fuzz.cases import chance_of, prepared, run_case, tiny_scene
from tests.fuzz.seeds import make_all
from tests.fuzz.worker import Outcome, Server, import_everything

APART = 4  # every so manieth case is looked over in a child process
MEMORY = Path("/dev/shm")  # cases are written there where it exists


@dataclass
class Tally:
    """How the cases of one kind have ended."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    longest: float = 0.0
    memory: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, where: str) -> None:
        self.cases += 1
        self.codes.update(outcome.codes)
        self.seconds += outcome.seconds
        self.longest, self.memory = max(self.longest, outcome.seconds), max(self.memory, outcome.memory)
        self.faults += [f"{where}: {fault}" for fault in outcome.faults]


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder for cases, in memory where there is such a place; pipes and links in it are removed with it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def fuzz(
    kinds: Iterable[str],
    seed: int,
    seconds: float,
    cases: int | None,
    found: Path,
    first: int = 0,
    *,
    show: bool = False,
) -> dict[str, Tally]:
    """Give each kind its turn until the time is over, or each has had so many cases."""
    kinds = list(kinds)
    tallies = {kind: Tally() for kind in kinds}
    import_everything()
    with working_folder() as folder:
        seeds = make_all(folder, kinds)
        tiny = folder / "tiny"
        tiny.mkdir()
        seeds["tiny"] = [(tiny, tiny_scene(tiny))]
        server = Server(lambda place, *case: run_case(place, seeds, *case), folder / "work")
        ends = time.monotonic() + seconds
        try:
            for number in range(first, first + cases) if cases else count(first):
                for kind in kinds:
                    if time.monotonic() > ends:
                        return tallies
                    outcome = server.ask(kind, seed, number, apart=number % APART == 0)
                    tallies[kind].add(outcome, f"{kind} {seed} {number}")
                    if outcome.faults:
                        _save(found, folder / "again", seeds, kind, seed, number, outcome)
                        if show:
                            print(tallies[kind].faults[-1], flush=True)
        finally:
            server.close()
    return tallies


def _save(found: Path, again: Path, seeds: dict, kind: str, seed: int, number: int, outcome: Outcome) -> None:
    """The files of a case, made again, and what was wrong with it."""
    target = found / f"{kind}-{seed}-{number}"
    shutil.rmtree(again, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    again.mkdir()
    scene, _, how = prepared(again, seeds[kind], kind, chance_of(seed, kind, number))
    target.mkdir(parents=True)
    for path in sorted((again / "case").rglob("*")):
        if path.is_file() and not path.is_symlink():
            copy = target / path.relative_to(again / "case")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    told = dict(scene=scene.name, how=how, faults=outcome.faults, seconds=outcome.seconds, codes=outcome.codes)
    (target / "case.json").write_text(json.dumps(told, indent=1))


def table(tallies: dict[str, Tally]) -> str:
    """The figures, one line for each kind."""
    lines = [f"{'':8} {'cases':>6} {'faults':>6} {'ms':>5} {'longest':>8} {'MB':>5}  exit codes"]
    for kind, tally in tallies.items():
        codes = " ".join(f"{code}:{n}" for code, n in sorted(tally.codes.items()))
        mean = 1000 * tally.seconds / max(1, tally.cases)
        lines.append(
            f"{kind:8} {tally.cases:6} {len(tally.faults):6} {mean:5.0f} {tally.longest:7.1f}s "
            f"{tally.memory >> 20:5}  {codes}"
        )
    lines.append(
        f"{'all':8} {sum(t.cases for t in tallies.values()):6} {sum(len(t.faults) for t in tallies.values()):6}"
    )
    return "\n".join(lines)


def grouped(faults: Iterable[str]) -> Counter[str]:
    """Faults that differ only in numbers and names, together."""
    return Counter(re.sub(r"\d+|/\S+|'[^']*'", "_", fault.split(": ", 1)[1])[:160] for fault in faults)
