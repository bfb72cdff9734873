"""Worker processes of this machine or of a cluster, by dask.distributed: they do the items of an order.

Dask runs a task at least once, and again where a worker has died: items must be such that doing one twice is doing
it once. Every worker opens an order once; items that take little time go to it several at a time.
"""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pdenet_cli.errors import PdenetError, ResourceError, UsageError
from pdenet_cli.system import usable_cores
from pdenet_cli.tools.orders import Item, Order, Result
from pdenet_cli.tools.worker import THREADS, do_items, one_line, open_order, order_plugin

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

WAITING = 2  # tasks of a worker that are sent before it asks
SHORT = 0.5  # seconds that the items of a task should take together
MOST_AT_ONCE = 64  # items of a task
DEATHS = 4  # of workers at one item, after which it is given up
LOOK = 3.0  # seconds between two looks whether every worker of this machine is there
START = 300  # seconds in which the workers of this machine must be there


class Workers:
    """Processes that do orders, until they are closed."""

    def __init__(self, client: Client, *, own: bool, count: int) -> None:
        self.client, self.here, self.count = client, own, count
        hosts = Counter([socket.gethostname()] * count if own else client.run(socket.gethostname).values())
        self.crowd = max(hosts.values(), default=1)  # the most on one machine, which share its memory
        self.shared = set(hosts) <= {socket.gethostname()}  # whether all of them are on this machine
        self.tally: dict[str, dict[str, Any]] = {}  # of each worker: where it is, items done, seconds at work

    def spread(
        self, order: Order[Item, Result], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result | Exception]]:
        """Each item with its result or its error, as they come; UsageError where a worker does not fit.

        ResourceError is the error of an item that one worker after another has died at.
        """
        token = f"pdenet-{uuid4().hex}"
        with _ignored_logs():
            self._send(order, token)
            sent = _Sent(self, order, token, iter(items))
            try:
                yield from sent.results()
            finally:
                sent.cancel()
                with suppress(Exception):
                    self.client.unregister_worker_plugin(token)

    def _send(self, order: Order[Item, Result], token: str) -> None:
        """Let every worker open the order; stop where one cannot, or computes with something else."""
        try:
            self.client.register_plugin(order_plugin(token, pickle.dumps(order), own=self.here), name=token)
        except Exception as error:
            raise UsageError(
                f"A worker has no pdenet of this version ({one_line(error)}). Install it there."
            ) from error
        answers = self.client.run(open_order, token, on_error="return")
        for worker, answer in answers.items():
            # One that died in the meantime is replaced, and opens the order then.
            if isinstance(answer, PdenetError):
                raise type(answer)(f"Worker {worker} cannot be used: {answer}") from answer
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise UsageError(f"Worker {worker} cannot be used: {one_line(answer)}") from answer
            if not isinstance(answer, Exception):
                self.tally.setdefault(worker, answer | {"items": 0, "seconds": 0.0})

    def note(self, worker: str, done: int, seconds: float) -> None:
        """Take note of what a worker has done."""
        mine = self.tally.setdefault(worker, {"items": 0, "seconds": 0.0})
        mine["items"], mine["seconds"] = mine["items"] + done, round(mine["seconds"] + seconds, 3)


class _Sent:
    """The items of one order on their way: few at a time, so that millions take no memory."""

    def __init__(self, workers: Workers, order: Order[Item, Result], token: str, items: Iterator[Any]) -> None:
        from distributed import as_completed

        self.workers, self.order, self.token, self.items = workers, order, token, items
        self.again: deque[Any] = deque()  # to be sent one by one, as a worker has died at one of several
        self.under_way: dict[Any, list[Any]] = {}  # items by future
        self.finished = as_completed(with_results=True, raise_errors=False)
        self.at_once = 1
        self.number = 0

    def results(self) -> Iterator[tuple[Any, Any]]:
        self._fill()
        while self.under_way:
            future, result = next(self.finished)
            items = self.under_way.pop(future)
            if future.status == "finished":
                worker, seconds, pairs = result
                self.workers.note(worker, len(pairs), seconds)
                self.at_once = min(MOST_AT_ONCE, max(1, int(len(pairs) * SHORT / max(seconds, 1e-6))))
                future.release()
                yield from pairs
            elif len(items) > 1:
                self.again.extend(items)
            else:
                yield items[0], self._error(result, future)
            self._fill()

    def _error(self, result: Any, future: Any) -> Exception:
        """Why an item was not done."""
        from distributed.scheduler import KilledWorker

        error = result[1] if isinstance(result, tuple) else result
        if isinstance(error, KilledWorker):
            met = f"{self.order.name}: {DEATHS} workers died at it one after another, perhaps for want of memory"
            return ResourceError(f"{met}. Use a smaller `memory`, or look at it with one process.")
        if isinstance(error, Exception):
            return error
        return ResourceError(f"{self.order.name}: the cluster gave it up ({future.status}).")

    def _fill(self) -> None:
        """Send as many tasks as keep every worker busy."""
        while len(self.under_way) < WAITING * self.workers.count:
            items = [self.again.popleft()] if self.again else list(islice(self.items, self.at_once))
            if not items:
                return
            self.number += 1
            key = f"{self.token}-{self.number}"
            future = self.workers.client.submit(do_items, self.token, items, key=key, pure=False)
            self.under_way[future] = items
            self.finished.add(future)

    def cancel(self) -> None:
        """Do not begin what was not begun yet."""
        if self.under_way:
            with suppress(Exception):
                self.workers.client.cancel(list(self.under_way), force=True)


@contextmanager
def workers_here(count: int, threads: int | None = None) -> Iterator[Workers]:
    """`count` processes of this machine; `threads`: of all together, None: as many as there are cores."""
    dask = _dask()
    from distributed import Client, LocalCluster

    if count < 1:
        raise UsageError(f"`workers` {count}: use at least 1.")
    settings = {
        "distributed.scheduler.allowed-failures": DEATHS - 1,
        "distributed.diagnostics.nvml": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.comm.timeouts.connect": "60s",
        "distributed.deploy.lost-worker-timeout": "30s",
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        folder = stack.enter_context(TemporaryDirectory(prefix="pdenet-workers-", ignore_cleanup_errors=True))
        stack.enter_context(_ignored_logs())
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=0,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # the plan of tiles keeps to a limit
                dashboard_address="127.0.0.1:0",
                local_directory=folder,
                silence_logs=logging.CRITICAL,
                env={THREADS: str(max(1, (threads or usable_cores()) // count))},
            )
        )
        client = stack.enter_context(Client(cluster))
        stack.enter_context(_kept_alive(cluster, count))
        try:
            client.wait_for_workers(count, timeout=START)
        except TimeoutError as error:
            raise ResourceError(f"The {count} worker processes did not start within {START} seconds.") from error
        yield Workers(client, own=True, count=count)


@contextmanager
def _kept_alive(cluster: LocalCluster, count: int) -> Iterator[None]:
    """Start workers until there are `count`, also where one dies while it starts, which dask leaves as it is."""
    stop = threading.Event()

    def drop_failed() -> None:
        for name, nanny in list(cluster.workers.items()):
            if nanny.status in (Status.failed, Status.closed):
                del cluster.workers[name]

    def look() -> None:
        while True:
            with suppress(Exception):
                if cluster.loop is not None:
                    cluster.loop.add_callback(drop_failed)
                cluster.scale(count)
            if stop.wait(LOOK):
                return

    from distributed.core import Status

    thread = threading.Thread(target=look, name="pdenet-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def workers_at(address: str) -> Iterator[Workers]:
    """The workers of a scheduler at tcp://HOST:PORT."""
    _dask()
    from distributed import Client

    try:
        client = Client(address, timeout=20)
    except (OSError, ValueError, TimeoutError) as error:
        met = f"`cluster` {address}: no scheduler answers there ({one_line(error)})"
        raise UsageError(f"{met}. Start one with: dask scheduler") from error
    with client:
        count = len(client.scheduler_info(n_workers=-1)["workers"])
        if not count:
            raise UsageError(
                f"`cluster` {address}: the scheduler has no workers. Start them: dask worker {address}"
            )
        yield Workers(client, own=False, count=count)


def _dask() -> Any:
    try:
        import dask
        import distributed  # noqa: F401
    except ImportError:
        raise UsageError(
            "Several processes need dask. In the pdenet folder run: pip install '.[cluster]'"
        ) from None
    return dask


@contextmanager
def _ignored_logs() -> Iterator[None]:
    """Without dask's own account of workers that come and go: what matters is said by pdenet."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
