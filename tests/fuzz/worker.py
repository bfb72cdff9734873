"""The process that cases run in: forked from one that has imported everything, ended by a case that breaks it.

A worker runs many cases, each the command line's `main`, what it prints sent to a file. The one that forked it,
the server, watches the time, and sees signals.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import resource
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

LONGEST = 60.0  # seconds of a case
MOST_MEMORY = 1 << 30  # bytes beyond those of the imports
LIMIT = 2 << 30  # bytes beyond them at which the system refuses more
CODES = {0, 2, 3, 4, 5, 6, 7}  # 1 is a bug


@dataclass
class Ran:
    """One command and how it ended."""

    words: list[str]
    code: int
    said: str


@dataclass
class Outcome:
    """What a case has shown."""

    faults: list[str] = field(default_factory=list)  # empty: nothing broke
    codes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    memory: int = 0  # bytes beyond the imports, at most


def import_everything() -> None:
    """All that a command imports, so that a case need not; no threads are started."""
    import numcodecs  # noqa: F401
    import scipy.io  # noqa: F401
    import tifffile  # noqa: F401
    import torch
    import typer
    import zarr  # noqa: F401

    import pdenet_cli.cli
    import pdenet_cli.pages.uncertainty_files
    import pdenet_cli.tools.describe
    import pdenet_cli.tools.job  # noqa: F401
    from pdenet_cli import child

    torch.set_num_threads(1)
    sys.warnoptions = ["default"]  # as a developer sees them
    typer.main.get_command = functools.cache(typer.main.get_command)  # which takes longer than most cases
    os.environ["PDENET_KERNEL"] = "off"
    # torch is imported, but has no threads yet.
    child._is_single = lambda: True


class Server:
    """Forks workers and gives them cases, one at a time."""

    def __init__(self, run_case: Callable[..., Outcome], folder: Path) -> None:
        self.run_case, self.folder = run_case, folder
        self.process = 0
        self.requests: BinaryIO
        self.answers: BinaryIO

    def ask(self, *case: Any, apart: bool = True) -> Outcome:
        """The outcome of a case. Unless `apart`, scenes are looked over in the worker, without a process for each.

        That is several times as fast; what breaks then is tried again as a user would run it.
        """
        outcome = self._asked(*case, apart)
        return outcome if apart or not outcome.faults else self._asked(*case, True)

    def _asked(self, *case: Any) -> Outcome:
        if not self.process:
            self._fork()
        began = time.monotonic()
        try:
            pickle.dump(case, self.requests)
            self.requests.flush()
            if not select.select([self.answers], [], [], LONGEST)[0]:
                self._end()
                return Outcome([f"over {LONGEST:g} s"], [], time.monotonic() - began)
            outcome, last = pickle.load(self.answers)
        except (EOFError, OSError):
            status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
            self.process = 0
            how = signal.Signals(-status).name if status < 0 else f"exit {status}"
            return Outcome([f"the program died ({how})"], [], time.monotonic() - began)
        if last:
            self._end()
        return outcome

    def _fork(self) -> None:
        (their_requests, requests), (answers, their_answers) = os.pipe(), os.pipe()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(requests)
                os.close(answers)
                _serve(self.run_case, self.folder, os.fdopen(their_requests, "rb"), os.fdopen(their_answers, "wb"))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(their_requests)
        os.close(their_answers)
        self.requests, self.answers = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.process = 0
        for stream in (self.requests, self.answers):
            with contextlib.suppress(OSError):
                stream.close()

    def close(self) -> None:
        if self.process:
            self._end()


def _serve(run_case: Callable[..., Outcome], folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    from pdenet_cli import child

    child._helper = None
    child.start()  # before zarr starts its threads
    as_users_do, helper, base = child.run, child._helper, memory_of("VmRSS")
    data = memory_of("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (data + LIMIT,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            case = pickle.load(requests)
        except EOFError:
            return
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
        began = time.monotonic()
        *case, apart = case
        child.run = as_users_do if apart else lambda function, *words, modules=(): function(*words)
        outcome = run_case(folder, *case)
        outcome.seconds = time.monotonic() - began
        outcome.memory = max(0, memory_of("VmHWM") - base)
        if outcome.memory > MOST_MEMORY:
            outcome.faults.append(f"{outcome.memory >> 20:,} MB of memory")
        # A new worker where the helper was ended, as it cannot be forked again beside threads.
        last = child._helper is not helper or memory_of("VmRSS") - base > MOST_MEMORY // 4
        pickle.dump((outcome, last), answers)
        answers.flush()


def memory_of(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


@contextlib.contextmanager
def _printed_to(path: Path) -> Iterator[None]:
    """Everything that the process prints, C libraries too, goes to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(file, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, target)
        for descriptor in (*kept, file, nowhere):
            os.close(descriptor)


def run(words: Sequence[object], log: Path) -> Ran:
    """`pdenet` with these words, in this process."""
    from pdenet_cli.cli import main

    arguments, code = [str(word) for word in words], 0
    with _printed_to(log), warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.simplefilter("always", UserWarning)
        kept, sys.argv = sys.argv, ["pdenet", *arguments]
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            sys.argv = kept
    return Ran(arguments, code, log.read_text("utf-8", "replace"))


def faults_of(ran: Ran) -> list[str]:
    """What a command must never do, whatever its input."""
    faults = []
    if "Traceback" in ran.said:
        faults.append(f"{ran.words[0]}: a traceback: {ran.said.strip().splitlines()[-1][:200]}")
    elif ran.code not in CODES:
        faults.append(f"{ran.words[0]}: exit {ran.code}: {ran.said.strip()[:200]}")
    elif ran.code and len(ran.said.strip().splitlines()) > MOST_LINES:
        faults.append(f"{ran.words[0]}: an error of many lines: {ran.said.strip()[:300]}")
    stray = [line for line in ran.said.splitlines() if not line.startswith("pdenet: ")]
    if any("Warning" in line or "libpng" in line for line in stray):  # libpng writes warnings of its own
        faults.append(f"{ran.words[0]}: a warning: {ran.said.strip()[:300]}")
    if ran.code == 6:
        faults.append(f"{ran.words[0]}: out of memory: {ran.said.strip()[:200]}")
    return faults


MOST_LINES = 14  # notes come before an error, each wrapped to the width of a terminal


def contents(folder: Path) -> dict[str, Any]:
    """What is in a folder, to be compared; pipes and links as what they are."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        plain = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = path.read_bytes() if plain else oct(path.lstat().st_mode)
    return found


def emptied(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
