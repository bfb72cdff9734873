"""The command `pdenet`: in this process, which spares each run the seconds of importing torch, or in its own."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

USUALLY_HIDDEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pdenet_cli", *map(str, arguments)]


def run_process(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs `pdenet ...` in its own process and returns exit code, output and errors."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600, **options)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Starts `pdenet ...` in its own process, to be stopped or killed."""
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )


def wait_for_tile(folder: Path, count: int = 1, seconds: int = 60) -> None:
    """Until a run in `folder` has noted so many tiles."""
    for _ in range(seconds * 100):
        journals = list(folder.glob(".*.journal"))
        if journals and journals[0].read_text().count('"tile"') >= count + 1:
            return
        time.sleep(0.01)
    raise TimeoutError


def run(*arguments: object, cwd: str | os.PathLike[str] = ".") -> subprocess.CompletedProcess[str]:
    """Runs `pdenet ...` in this process and returns what `run_process` would."""
    words = ["pdenet", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        patch.object(sys, "argv", words),
        patch.object(sys, "warnoptions", ["default"]),
        patch.dict(os.environ),
        _own_settings(),
    ):
        code = _exit_code()
    told = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(words, code, *told)


def _exit_code() -> int:
    from pdenet_cli.cli import main

    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Shows warnings as a program does, and gives back the signals and threads that a command has changed."""
    import torch

    threads = torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show
            warnings.resetwarnings()
            for category in USUALLY_HIDDEN:
                warnings.simplefilter("ignore", category)
            yield
    finally:
        torch.set_num_threads(threads)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _show(message, category, filename, line, file=None, text=None):
    sys.stderr.write(warnings.formatwarning(message, category, filename, line, text))
