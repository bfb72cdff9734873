"""Work in a child process: what it returns, what it raises, and how it may die."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pdenet_cli import child
from pdenet_cli.errors import FormatError

pytestmark = pytest.mark.skipif(not child.FORKS, reason="children need fork")


def test_a_result_and_an_error_come_back_as_they_are():
    assert child.run(divmod, 17, 5) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        child.run(divmod, 17, 0)


def test_a_crash_is_an_error_and_the_next_piece_of_work_is_done():
    with pytest.raises(child.ChildError, match=r"crashes \(SIGABRT\)"):
        child.run(os.abort)
    assert child.run(len, [1, 2]) == 2


def test_an_exit_is_an_error_too():
    with pytest.raises(child.ChildError, match="ended"):
        child.run(os._exit, 0)


def test_work_begins_in_the_folder_of_the_program(tmp_path, monkeypatch):
    child.start()
    monkeypatch.chdir(tmp_path)
    assert child.run(os.getcwd) == str(tmp_path.resolve())


def test_too_much_memory_is_an_error():
    with pytest.raises(MemoryError):
        child.run(np.ones, 1 << 28)


SHORT = """
from itertools import count
from collections import deque
from pdenet_cli import child
child.MOST_COMPUTING, child.MOST_WAITING = {limits}
import time
try:
    child.run({work})
except child.ChildError as error:
    print(error)
print(child.run(len, "abc"))
"""


@pytest.mark.parametrize(("limits", "work"), [("1, 600", "deque, count(), 0"), ("600, 1", "time.sleep, 300")])
def test_work_that_does_not_end_is_ended(limits, work):
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", SHORT.format(limits=limits, work=work)], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.split("\n")[:2] == ["it takes too long", "3"], ran.stderr
    assert time.monotonic() - began < 50


FORKED = """
import os, time
from pdenet_cli import child
assert child.run(len, "abc") == 3
helper = child._helper
assert {how}
print(helper.forked or helper.process.pid)
"""


@pytest.mark.parametrize(
    "how", ["helper.forked", "not helper.forked"], ids=["with one thread", "beside other threads"]
)
def test_the_helper_is_forked_only_from_one_thread_and_ends_with_the_program(how):
    threads = "import threading, time; threading.Thread(target=time.sleep, args=(2,), daemon=True).start()"
    source = FORKED.format(how=how)
    source = source if how == "helper.forked" else threads + source
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    helper = int(ran.stdout)
    for _ in range(100):
        if not is_running(helper):
            break
        time.sleep(0.05)
    assert not is_running(helper)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def files_and_threads():
    return [len([*Path(f"/proc/self/{what}").iterdir()]) for what in ("fd", "task")]


def test_threads_and_open_files_do_not_pile_up():
    child.run(len, "abc")
    before = files_and_threads()
    for _ in itertools.repeat(None, 20):
        child.run(len, "abc")
        with pytest.raises(TypeError):
            child.run(len, 3)
    assert files_and_threads() == before


def test_an_error_of_the_library_keeps_its_exit_code(tmp_path):
    from pdenet_cli.formats.common.regular import opened

    with pytest.raises(FormatError, match="cannot be opened"):
        child.run(opened, tmp_path / "nowhere.h5")
