"""What runs in a worker process: an order is received, opened once, and its items are done."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from pdenet_cli.system import tune_process, use_threads
from pdenet_cli.tools.orders import whereabouts

THREADS = "PDENET_WORKER_THREADS"  # of a worker of this machine; elsewhere dask says how many it has


class _Opened:
    """An order in a worker: opened when it is first needed, and then kept."""

    def __init__(self, order: bytes) -> None:
        self.order, self.lock = order, threading.Lock()
        self.work: Callable[[Any], Any] | None = None

    def opened(self) -> Callable[[Any], Any]:
        if self.work is None:
            self.work = pickle.loads(self.order).open()
        return self.work


_orders: dict[str, _Opened] = {}


def order_plugin(token: str, order: bytes, *, own: bool) -> Any:
    """What brings an order to every worker, also to those that come later."""
    from distributed import WorkerPlugin

    class OrderPlugin(WorkerPlugin):
        name = token

        def setup(self, worker: Any) -> None:
            _receive(token, order, own, worker.state.nthreads)

        def teardown(self, worker: Any) -> None:
            _forget(token)

    return OrderPlugin()


def _receive(token: str, order: bytes, own: bool, threads: int) -> None:
    tune_process()
    use_threads(int(os.environ.get(THREADS, threads)))
    if own and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the coordinator decides
    _orders[token] = _Opened(order)


def _forget(token: str) -> None:
    opened = _orders.pop(token, None)
    close = getattr(opened and opened.work, "close", None)
    if close is not None:
        close()


def open_order(token: str) -> dict[str, Any]:
    """Open an order, and say where."""
    opened = _orders[token]
    with opened.lock:
        opened.opened()
    return whereabouts()


def do_items(token: str, items: list[Any]) -> tuple[str, float, list[tuple[Any, Any]]]:
    """Do some items: which worker it was, its seconds, and each item with its result or its error."""
    from distributed import get_worker

    started = time.monotonic()
    opened = _orders[token]
    pairs = []
    with opened.lock:  # of a worker with several threads, torch uses all for one item
        tune_process()
        work = opened.opened()
        for item in items:
            try:
                pairs.append((item, work(item)))
            except Exception as error:
                pairs.append((item, _portable(error)))
    return get_worker().address, time.monotonic() - started, pairs


def _portable(error: Exception) -> Exception:
    """The error if it can be sent, else its text."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return RuntimeError(one_line(error))


def one_line(error: BaseException) -> str:
    """The kind and the text of an error."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
