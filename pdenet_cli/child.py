"""Work in a process of its own: where a C library crashes on a damaged file, that is an error and not the end.

A helper process is started once; for each piece of work it forks a child, which ends with it. The helper is forked
from this process while that has one thread, so before torch is imported: `start` says when. Later, and where
forking is not safe, it is a new Python. A child that computes, or waits, for too long is ended; long work calls
`progress` between its steps.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MOST_COMPUTING = 45  # seconds of processor time between two steps of a child
MOST_WAITING = 600  # seconds between two steps in all, such as for an archive on tape
MOST_MEMORY = 768 << 20  # bytes that a child may take beyond those of its helper

FORKS = hasattr(os, "fork")
NEW_PYTHON = "from pdenet_cli.child import _serve_pipes; _serve_pipes()"


class ChildError(Exception):
    """The child process ended before it had an answer; its text says how."""


class _Helper:
    """The process that runs the work, and the pipes to it and from it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        if FORKS and sys.platform == "linux" and _is_single():
            self.forked = self._fork()
        else:
            self.forked = 0
            self._spawn()
        self.owner = os.getpid()

    def _fork(self) -> int:
        (their_requests, requests), (answers, their_answers) = os.pipe(), os.pipe()
        if not (process := os.fork()):
            try:
                os.close(requests)
                os.close(answers)
                _serve(os.fdopen(their_requests, "rb"), os.fdopen(their_answers, "wb"))
            finally:
                os._exit(0)  # never back into the caller's program
        os.close(their_requests)
        os.close(their_answers)
        self.requests: BinaryIO = os.fdopen(requests, "wb")
        self.answers: BinaryIO = os.fdopen(answers, "rb")
        return process

    def _spawn(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", NEW_PYTHON],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout  # type: ignore[assignment]

    def ask(self, request: bytes, modules: Sequence[str] = ()) -> Any:
        """The answer of a child; ChildError without one. Meanwhile the modules are imported here too."""
        self.requests.write(request)
        self.requests.flush()
        _import(modules)
        # Where each child limits itself, a limit here would only be in the way.
        timer = None if FORKS else threading.Timer(MOST_WAITING, self.end)
        if timer is not None:
            timer.start()
        try:
            answer, how = None, pickle.load(self.answers)
            if isinstance(how, tuple):
                answer, how = how, pickle.load(self.answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            answer, how = None, 1
        finally:
            if timer is not None:
                timer.cancel()
        if answer is None or how:
            raise ChildError(_said(how))
        return answer

    def end(self) -> None:
        """End the helper, whatever it is doing."""
        for stream in (self.requests, self.answers):
            with contextlib.suppress(OSError):
                stream.close()
        if self.owner != os.getpid():
            return  # that of the process this one was forked from
        with contextlib.suppress(OSError):
            if self.process is not None:
                self.process.kill()
                self.process.wait()
            else:
                os.kill(self.forked, signal.SIGKILL)
                os.waitpid(self.forked, 0)


_helper: _Helper | None = None
_lock = threading.Lock()


def start() -> None:
    """Start the helper process now: at the beginning of a command, before torch starts threads."""
    global _helper
    with _lock:
        if _helper is None or _helper.owner != os.getpid():
            _helper = _Helper()


def run(function: Callable[..., Any], *arguments: Any, modules: Sequence[str] = ()) -> Any:
    """What `function`, one of a module, returns or raises, worked out in a child process.

    `modules` take long to import: that is done once, for all children, and here at the same time. ChildError where
    the process crashes, or takes too much time or memory. One at a time: threads wait.
    """
    global _helper
    request = pickle.dumps((_folder(), function, arguments, modules))
    start()
    with _lock:
        assert _helper is not None
        try:
            worked, value = _helper.ask(request, modules)
        except BaseException:
            # Also after Ctrl-C, as its late answer would be taken for that of the next request.
            _helper.end()
            _helper = None
            raise
    if not worked:
        raise value
    return value


def progress() -> None:
    """Called in a child, begins its time anew."""
    if hasattr(signal, "alarm"):
        signal.alarm(MOST_WAITING)
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + MOST_COMPUTING
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _is_single() -> bool:
    """Whether no other threads may hold locks, which a forked process would keep for ever.

    Those of NumPy's linear algebra may run: its library ends them before a fork.
    """
    return threading.active_count() == 1 and "torch" not in sys.modules


def _serve_pipes() -> None:
    """The helper as a new Python: requests come from standard input, answers go to standard output."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _serve(requests, answers)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Work off requests until the other end is closed."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of a terminal; the first one decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what C libraries print is of no use, and pipes of the program must end with it
        os.dup2(nowhere, stream)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        if not FORKS:
            answers.write(_answer(request))
            answers.write(pickle.dumps(0))
            answers.flush()
            continue
        _import(request[3])
        if not (child := os.fork()):
            try:
                _limit_memory()
                progress()
                answers.write(_answer(request))
                answers.flush()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        answers.write(pickle.dumps(os.waitstatus_to_exitcode(status)))
        answers.flush()


def _folder() -> str | None:
    """The folder that relative paths begin in; None if it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 a str is what pickles fastest and chdir takes
    except OSError:
        return None


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):  # who needs it says so
            import_module(module)


def _answer(request: tuple[str | None, Callable[..., Any], tuple[Any, ...], Sequence[str]]) -> bytes:
    """Whether the work was done, and its result or its error, pickled."""
    folder, function, arguments, _ = request
    try:
        if folder is not None:  # the helper may have started in another one
            os.chdir(folder)
        return pickle.dumps((True, function(*arguments)))
    except MemoryError:
        return pickle.dumps((False, MemoryError("looking it over takes too much memory")))
    except Exception as error:
        return pickle.dumps((False, error))


def _limit_memory() -> None:
    if resource is None or sys.platform != "linux":
        return
    lines = Path("/proc/self/status").read_text().splitlines()
    data = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _said(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return "it ended at once"
    late = {signal.SIGXCPU, signal.SIGALRM} if FORKS else set()
    return "it takes too long" if -code in late else f"it crashes ({signal.Signals(-code).name})"
