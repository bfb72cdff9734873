"""A part of the fuzzer: a few cases of every kind, some kills and full disks, a short series of jobs.

In processes of their own: workers are forked from one without threads.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import SEEDS

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks workers and reads their memory from Linux's /proc"),
    pytest.mark.usefixtures("_needs_zarr"),
]


@pytest.fixture
def _needs_zarr():
    pytest.importorskip("zarr")


def ran(*words):
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *map(str, words)], cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_damaged_and_lying_files_of_every_kind_break_nothing(tmp_path):
    code, said = ran("--cases", 40, "--seed", 7, "--found", tmp_path / "found")
    assert code == 0, said
    assert all(f"{kind} " in said for kind in SEEDS)
    assert not (tmp_path / "found").exists()


def test_runs_that_are_killed_or_meet_a_full_disk_are_resumed_to_the_same_bytes():
    code, said = ran("kills", "--kills", 12, "--full", 6)
    assert code == 0, said
    if "no disk could be mounted" in said:
        pytest.skip("this user may mount no small disk: only kills were tried")


def test_many_jobs_in_one_process_take_no_more_memory_files_or_threads():
    code, said = ran("steady", "--jobs", 60)
    assert code == 0, said


SPOILED = """
import sys
from pathlib import Path
from tests.fuzz import cases, running
{spoil}
tallies = running.fuzz(["envi"], 0, 60, 3, Path(sys.argv[1]))
print(tallies["envi"].faults)
"""
SPOILS = {
    "died (SIGABRT)": "import os, pdenet_cli.tools.describe as it; it.describe = lambda *w, **k: os.abort()",
    "a traceback": "import pdenet_cli.tools.describe as it; it.describe = lambda *w, **k: 1 / 0",
    "the input was changed": "cases.contents = lambda folder, n=iter(range(99)): next(n)",
    "over 2 s": "import time, tests.fuzz.worker as it; it.LONGEST = 2.0; cases.run = lambda *w: time.sleep(9)",
    "MB of memory": "from tests.fuzz import worker; worker.MOST_MEMORY = -1 << 40",
}


@pytest.mark.parametrize("fault", SPOILS)
def test_the_fuzzer_notices_what_breaks_and_saves_it(fault, tmp_path):
    source = SPOILED.format(spoil=SPOILS[fault])
    done = subprocess.run([sys.executable, "-c", source, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert fault in done.stdout, done.stdout + done.stderr
    saved = [json.loads((case / "case.json").read_text()) for case in tmp_path.glob("envi-0-*")]
    assert fault in str(saved)
