"""Run pdenet as a process of its own: its progress comes as lines of JSON, cancelling ends all its processes."""

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

PATIENCE = 10  # seconds until processes that were asked to end are killed


class RunFailed(Exception):
    """pdenet has ended with an error; the text is its own."""


def command_words(command):
    """The words of a command: the path of a program, or a program and its first arguments."""
    return [command] if Path(command).exists() else shlex.split(command, posix=os.name != "nt")


def run(command, arguments, progress, note, is_cancelled):
    """Run pdenet to its end. True if it was cancelled; RunFailed with its message if it failed.

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
        raise RunFailed(f"{words[0]}: cannot be run ({error}). Set the path of pdenet in the options.") from error
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(_heard(process, progress, note)), daemon=True)
    reader.start()
    while process.poll() is None:
        if is_cancelled():
            _end(process)
            return True
        time.sleep(0.1)
    reader.join(PATIENCE)
    if process.returncode:
        raise RunFailed("\n".join(lines[-5:]) or f"pdenet has ended with exit code {process.returncode}.")
    return False


def _heard(process, progress, note):
    """Pass on the lines of a process; gives those that are errors or no JSON."""
    for line in process.stderr:
        try:
            event = json.loads(line)
        except ValueError:
            yield line.rstrip()
            continue
        if event["event"] == "progress":
            left = "" if event["left"] is None else f", about {event['left']:.0f} s left"
            progress(event["fraction"], f"{event['scene']}: {event['done']} of {event['total']} tiles{left}")
        elif event["event"] == "error":
            yield event["text"]
        else:
            note(event["text"])


def _end(process):
    """End a process and all that it has started: asked first, then killed."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
        process.wait()
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
