"""How far a run is and how long it will take: a bar on a terminal, lines in a log, or JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from pdenet_cli.cli import console
from pdenet_cli.cli.console import err
from pdenet_cli.report import Watch

LOG_EVERY = 60.0  # seconds between lines of progress where no bar can be shown
BAR_EVERY, JSON_EVERY = 0.2, 1.0  # seconds between movements of a bar, and between lines of JSON
FORECAST_TILES = 0.3  # a forecast counts as much as so many finished tiles
LATE = 1.05  # a tile that takes longer than expected is taken to be nearly done: it will take so much longer
Clock = Callable[[], float]


class Pace:
    """The fraction of a run that is done and the time left: by a forecast at first, then by its finished tiles.

    Inside a tile both follow the clock, so that they move from the first second on.
    """

    def __init__(
        self, works: Sequence[float], forecast: float | None = None, clock: Clock = time.monotonic
    ) -> None:
        """`works` are the relative efforts of the tiles in their order, `forecast` the seconds of all of them."""
        total = sum(works)
        self.works = [work / total for work in works]
        self.done, self.before = 0, 0.0  # tiles done; the share of the work that was done before
        self._forecast, self._clock = forecast, clock
        self._began = self._last = clock()
        self._running = False

    def finished(self, done: int) -> None:
        """Take note that so many tiles are done; the first call tells what an earlier run has done."""
        if not self._running:
            self.before, self._running = sum(self.works[:done]), True
            self._began = self._clock()
        self.done, self._last = done, self._clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    @property
    def fraction(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        at_work, inside = sum(self.works[: self.done]), self._inside
        return min(1.0, at_work + (inside * self.works[self.done] if inside else 0.0))

    @property
    def left(self) -> float | None:
        """Seconds until the end; None as long as nothing tells."""
        rate = self._rate
        if rate is None or self.done == len(self.works):
            return 0.0 if self.done == len(self.works) else None
        return (1 - self.fraction) * rate

    @property
    def _rate(self) -> float | None:
        """Seconds for the whole work."""
        work, spent = sum(self.works[: self.done]) - self.before, self._last - self._began
        if self._forecast is not None:
            trust = FORECAST_TILES / len(self.works)
            work, spent = work + trust, spent + trust * self._forecast
        if work <= 0 or self.done == len(self.works):
            return spent / work if work > 0 else None
        here = LATE * (self._clock() - self._last) / self.works[self.done]
        return max(spent / work, here)

    @property
    def _inside(self) -> float:
        """The share of the tile at work that should be done by now."""
        rate = self._rate
        if not rate or self.done == len(self.works):
            return 0.0
        return (self._clock() - self._last) / (rate * self.works[self.done])


def clock_text(seconds: float) -> str:
    """Seconds as a clock shows them: 0:07, 12:30, 3:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def is_watched() -> bool:
    """Whether anybody looks at the progress from the first second on."""
    return err.is_terminal or console.progress_as == "json"


@contextmanager
def shown_pace(name: str, pace: Pace) -> Iterator[None]:
    """Show how far a run is, until the block ends; `name` says what it works on."""
    if console.progress_as == "none":
        yield
    elif console.progress_as == "json":
        with _every(JSON_EVERY, lambda: _json_line(name, pace)):
            yield
        _json_line(name, pace)
    elif err.is_terminal:
        columns = (TextColumn(escape(name)), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=err, transient=True) as progress:
            task = progress.add_task("", total=1.0, text="")
            with _every(
                BAR_EVERY, lambda: progress.update(task, completed=pace.fraction, text=_text(pace, clock_text))
            ):
                yield
    else:
        with _every(LOG_EVERY, lambda: err.print(f"{escape(name)}: {_text(pace, console.time_text)}")):
            yield


def _text(pace: Pace, as_text: Callable[[float], str]) -> str:
    """Tiles done, elapsed time and time left."""
    counted = f"{pace.done} of {len(pace.works)} tiles, {as_text(pace.elapsed)} gone"
    return counted if pace.left is None else f"{counted}, about {as_text(pace.left)} left"


def _json_line(name: str, pace: Pace) -> None:
    console.print_event(
        "progress",
        scene=name,
        done=pace.done,
        total=len(pace.works),
        fraction=round(pace.fraction, 4),
        elapsed=round(pace.elapsed, 1),
        left=None if pace.left is None else round(pace.left, 1),
    )


@contextmanager
def _every(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call `show` now and then until the block ends."""
    end = Event()

    def repeat() -> None:
        while not end.wait(seconds):
            show()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


class Stages:
    """The pace of work that reports stages one after another, each in tiles of its own."""

    def __init__(self, stages: int, clock: Clock = time.monotonic) -> None:
        """`stages` is about how many there will be, of similar length."""
        self.stages, self.finished, self.text, self.done, self.total = stages, 0, "", 0, 1
        self._clock, self._began = clock, clock()

    def __call__(self, text: str, done: int, total: int) -> None:
        """Take note of a stage, what is done of it, and of how much."""
        if self.text and (text != self.text or done < self.done):
            self.finished += 1
        self.text, self.done, self.total = text, done, max(1, total)

    @property
    def fraction(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        return min(1.0, (self.finished + self.done / self.total) / max(self.stages, self.finished + 1))

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds until the end; None as long as nothing tells."""
        return self.elapsed * (1 / self.fraction - 1) if self.fraction > 0 else None


@contextmanager
def shown_stages(count: int) -> Iterator[Watch]:
    """Show the progress of about so many stages; gives the function that is told of it."""
    stages = Stages(count)

    def text(as_text: Callable[[float], str]) -> str:
        counted = f"{stages.done}/{stages.total}, {as_text(stages.elapsed)} gone"
        return counted if stages.left is None else f"{counted}, about {as_text(stages.left)} left"

    def line() -> None:
        console.print_event(
            "progress",
            scene=stages.text,
            done=stages.done,
            total=stages.total,
            fraction=round(stages.fraction, 4),
            elapsed=round(stages.elapsed, 1),
            left=None if stages.left is None else round(stages.left, 1),
        )

    if console.progress_as == "json":
        with _every(JSON_EVERY, line):
            yield stages
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    hidden = not err.is_terminal or console.progress_as == "none"
    with Progress(*columns, console=err, disable=hidden, transient=True) as progress:
        task = progress.add_task("", total=1.0, text="")

        def show() -> None:
            shown = escape(stages.text)
            progress.update(task, description=shown, completed=stages.fraction, text=text(clock_text))

        with _every(BAR_EVERY, show):
            yield stages
