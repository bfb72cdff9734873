"""A part of the fuzzer: a few cases of every kind, some kills and full disks, a short series of jobs.

All in one process of their own, from which workers are forked before it has threads.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.fuzz import kills, running, steady
from tests.fuzz.seeds import JOURNALED, SEEDS

ROOT = Path(__file__).parent.parent
CASES, KILLS, FULL, JOBS = 40, 12, 6, 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks workers, measures them in Linux's /proc")


def crash(*words, **options):
    os.abort()


def fail(*words, **options):
    raise ZeroDivisionError("a bug")


def tire(*words):
    time.sleep(9)


DESCRIBE = "pdenet_cli.tools.describe.describe"
SPOILS = {
    "died (SIGABRT)": ((DESCRIBE, crash),),
    "a traceback": ((DESCRIBE, fail),),
    "the input was changed": (("tests.fuzz.cases.contents", lambda folder: time.monotonic_ns()),),
    "over 2 s": (("tests.fuzz.worker.LONGEST", 2.0), ("tests.fuzz.cases.run", tire)),
    "MB of memory": (("tests.fuzz.worker.MOST_MEMORY", -1),),
}
"""What a fault must be called, and how to make it."""


def all_parts(folder: Path) -> dict[str, object]:
    """What each part of the fuzzer has found; run in a process of its own."""
    found: dict[str, object] = {}
    tallies = running.fuzz(list(SEEDS), 7, 600, CASES, folder / "found")
    found["cases"] = {kind: (tally.cases, tally.faults) for kind, tally in tallies.items()}
    found["kills"] = kills.interrupt(KILLS, FULL, 0, JOURNALED)
    for fault, changes in SPOILS.items():
        with ExitStack() as patches:
            for name, new in changes:
                patches.enter_context(patch(name, new))
            found[fault] = running.fuzz(["envi"], 0, 600, 1, folder / "spoilt")["envi"].faults
    found["jobs"] = steady.steady(JOBS)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("fuzz")
    source = "import json, sys; from pathlib import Path; from tests.test_fuzz import all_parts\n"
    source += "Path(sys.argv[1], 'told.json').write_text(json.dumps(all_parts(Path(sys.argv[1]))))"
    ran = subprocess.run([sys.executable, "-c", source, folder], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads((folder / "told.json").read_text()) | {"saved": sorted(p.name for p in folder.glob("*/*"))}


def test_damaged_and_lying_files_of_every_kind_break_nothing(found):
    assert found["cases"] == {kind: [CASES, []] for kind in SEEDS}


def test_runs_that_are_killed_or_meet_a_full_disk_are_resumed_to_the_same_bytes(found):
    tallies, faults = found["kills"]
    assert faults == []
    assert sum(sum(tally.values()) for tally in tallies.values()) >= KILLS
    if "no disk could be mounted" in str(tallies):
        pytest.skip("this user may mount no small disk: only kills were tried")


def test_many_jobs_in_one_process_take_no_more_memory_files_or_threads(found):
    measured, faults = found["jobs"]
    assert faults == []
    assert len(measured) == 10


@pytest.mark.parametrize("fault", SPOILS)
def test_the_fuzzer_notices_what_breaks_and_saves_it(found, fault):
    assert fault in str(found[fault])
    assert found["saved"] == ["envi-0-0"]
