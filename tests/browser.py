"""A real browser for tests of pages: Chromium without a window, spoken to through a pipe."""

import json
import os
import shutil
import subprocess
import time
from base64 import b64decode
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; Debian: apt-get install chromium")

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1280,1000")
COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "b": 66}


class RefusedError(Exception):
    """The browser answered a command with an error."""


class Browser:
    """One page in one browser; `complaints` are what its console got, `requests` the addresses it asked for."""

    def __init__(self, folder: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, other = os.pipe()

        def descriptors():  # Chromium reads from 3 and writes to 4
            high = os.dup2(theirs, 103), os.dup2(other, 104)
            for source, target in zip(high, (3, 4), strict=True):
                os.dup2(source, target)

        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._process = subprocess.Popen(command, preexec_fn=descriptors, pass_fds=(3, 4), **quiet)
        os.close(theirs)
        os.close(other)
        self._count, self._rest, self._session = 0, b"", None
        self.complaints, self.requests = [], []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        """One command of the DevTools protocol and its answer; events on the way are kept."""
        self._count += 1
        message = dict(id=self._count, method=method, params=parameters)
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RefusedError(method, answer["error"])
                return answer["result"]
            if answer.get("method") in COMPLAINTS:
                self.complaints.append(answer["params"])
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])

    def _next(self):
        while b"\0" not in self._rest:
            got = os.read(self._from, 1 << 20)
            assert got, "the browser is gone"
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address: str, ready: str) -> None:
        """Go to an address and wait until an expression is true there."""
        self.ask("Page.navigate", url=address)
        self.wait(ready)

    def wait(self, expression: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self._is_true(expression):
            assert time.monotonic() < end, f"never true: {expression}; {self.complaints}"
            time.sleep(0.05)

    def _is_true(self, expression: str) -> bool:
        try:
            return bool(self.value(expression))
        except RefusedError as error:
            if "navigated" in str(error):  # the page went away while it was asked; the next one will answer
                return False
            raise

    def value(self, expression: str):
        """What an expression of JavaScript gives."""
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def text(self, selector: str) -> str:
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def _point(self, selector, across, down):
        # On a page as long as this one the place may be out of sight.
        x, y, width, height = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x, b.y, b.width, b.height]; }})(document.querySelector({json.dumps(selector)}))"
        )
        return dict(x=x + across * width, y=y + down * height)

    def move(self, selector: str, across: float, down: float) -> None:
        """The mouse over an element, at shares of its width and height."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", **self._point(selector, across, down))

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """A click as of a hand: the browser itself decides what it meets."""
        where = self._point(selector, across, down) | dict(button="left", clickCount=1)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key: str, shift: bool = False) -> None:
        told = dict(key=key, code=key, windowsVirtualKeyCode=KEYS[key], modifiers=8 * shift)
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, **told)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
