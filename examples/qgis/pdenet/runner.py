"""Run pdenet as a process of its own: its progress comes as lines of JSON, cancelling ends all its processes."""

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 10  # seconds until processes that were asked to end are killed


class RunError(Exception):
    """pdenet has ended with an error; the text is its own."""


def command_words(command):
    """The words of a command: the path of a program, or a program and its first arguments."""
    return [command] if Path(command).exists() else shlex.split(command, posix=os.name != "nt")


def run(command, arguments, progress, note, is_cancelled):
    """Run pdenet to its end. True if it was cancelled; RunError with its message if it failed.

    `progress` gets the share that is done and a text, `note` texts; `is_cancelled` is asked now and then.
    """
    words = [*command_words(command), *arguments, "--progress", "json", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    apart = {"creationflags": 0x00000200} if os.name == "nt" else {"start_new_session": True}
    try:
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True, **apart
        )
    except OSError as error:
        raise RunError(f"{words[0]}: cannot be run ({error}). Set the path of pdenet in the options.") from error
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stderr], daemon=True)
    reader.start()
    said = []
    try:
        # What is shown is shown from here: widgets must not be touched by the thread that reads.
        while process.poll() is None:
            if is_cancelled():
                _end(process)
                return True
            said += _heard(lines, progress, note)
            time.sleep(0.1)
        reader.join(PATIENCE)
        said += _heard(lines, progress, note)
    finally:
        _end(process)
        reader.join(PATIENCE)
        process.stderr.close()
    if process.returncode:
        raise RunError("\n".join(said[-5:]) or f"pdenet has ended with exit code {process.returncode}.")
    return False


def _heard(lines, progress, note):
    """Pass on the lines that have come; those that are errors or no JSON are returned."""
    others = []
    while not lines.empty():
        line = lines.get()
        try:
            event = json.loads(line)
        except ValueError:
            others.append(line.rstrip())
            continue
        if event["event"] == "progress":
            left = "" if event["left"] is None else f", about {event['left']:.0f} s left"
            progress(event["fraction"], f"{event['scene']}: {event['done']} of {event['total']} tiles{left}")
        elif event["event"] == "error":
            others.append(event["text"])
        else:
            note(event["text"])
    return others


def _end(process):
    """End a process and all that it has started: asked first, then killed."""
    if process.poll() is not None:
        return
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
        process.wait()
        return
    os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
