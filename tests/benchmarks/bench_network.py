"""How fast and how small the network is beside its plain form: python tests/benchmarks/bench_network.py [--quick].

Each formulation runs in a process of its own (its peak memory is then its own) and they take turns, so that
a busy machine is busy for all of them. Times are medians; memory is what the work added to the process.
Speed-ups are over the plain form, the same in a tuned process, and the fast form without its compiled kernel.
With --threads 1 the time is that spent on a core, which others on the machine do not lengthen.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import IO

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from pdenet_cli.system import tune_process
from tests import plain

FORMS = ("plain", "plain, tuned process", "fast, without the kernel", "fast")


@dataclass(frozen=True)
class Case:
    """One line of the table: a network at work on a tile, or on a batch with `train`."""

    task: str  # "infer" or "train"
    config: str
    tile: int  # low-resolution pixels
    count: int  # draws, or cubes in the batch
    bands: int = 31

    def __str__(self) -> str:
        what = f"N = {self.count}" if self.task == "infer" else f"batch {self.count}"
        return f"{self.task} {self.config:5} {self.tile:3} px, {what}"


CASES = [
    *(Case("train", config, 32, 4) for config in ("paper", "small")),
    *(Case("infer", config, tile, n) for config in ("paper", "small") for tile in (32, 64) for n in (1, 5, 16)),
]
QUICK = [Case("train", "small", 32, 4), Case("infer", "paper", 32, 5), Case("infer", "small", 64, 5)]


class Work:
    """The same weights, cube and draws for every form; `once` does the task and gives one output to compare."""

    def __init__(self, form: str, case: Case) -> None:
        if form != "plain":
            tune_process()
        if form == "fast, without the kernel":
            os.environ["PDENET_KERNEL"] = "off"
        torch.manual_seed(0)
        self.form, self.case = form, case
        self.network = PDENet(CONFIGS[case.config])
        self.draw = self.network.draw(torch.Generator().manual_seed(0), case.count)
        cubes = case.count if case.task == "train" else 1
        self.low = torch.rand(cubes, case.bands, case.tile, case.tile)
        scale = self.network.scale
        self.high = torch.rand(cubes, case.bands, scale * case.tile, scale * case.tile)

    def once(self) -> Tensor:
        return self._train() if self.case.task == "train" else self._infer()

    @torch.no_grad()
    def _infer(self) -> Tensor:
        if self.form.startswith("fast"):
            first: Tensor = self.network.samples(self.low, self.draw)[0]
            return first
        state = dict(self.network.named_parameters())
        highs = self.high.new_empty(len(self.draw), *self.high.shape[1:])
        for i in range(len(self.draw)):
            highs[i] = plain.forward(CONFIGS[self.case.config], state, self.low, self.draw[i].masks)[0]
        return highs[0]

    def _train(self) -> Tensor:
        self.network.zero_grad()
        draw = self.network.draw(torch.Generator().manual_seed(0), self.case.count)
        if self.form.startswith("fast"):
            high: Tensor = self.network(self.low, draw)
            low = self.network.degrade(high)
        else:
            config, state = CONFIGS[self.case.config], dict(self.network.named_parameters())
            high = plain.forward(config, state, self.low, draw.masks)
            low = plain.degrade(config, state, high)
        ((high - self.high).abs().mean() + (low - self.low).square().mean()).backward()
        return high.detach()[0]


def work(form: str, case: Case, output: Path, threads: int) -> None:
    """A process that works once for each line it is sent and answers with the seconds it took."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    task = Work(form, case)
    before = _peak()
    torch.save(task.once(), output)  # a first run to warm up
    print(flush=True)
    for _ in sys.stdin:
        start = clock()
        task.once()
        print(clock() - start, _peak() - before, flush=True)


def _peak() -> float:
    """The largest resident size so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def compare(case: Case, repeats: int, threads: int) -> str:
    """A line of the table: speed-ups, memory and the largest difference between fast and plain."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"{i}.pt" for i in range(len(FORMS))]
        workers = [_start(form, case, output, threads) for form, output in zip(FORMS, outputs, strict=True)]
        answers: list[list[list[float]]] = [[] for _ in FORMS]
        for _ in range(repeats):
            for worker, answer in zip(workers, answers, strict=True):
                answer.append([float(number) for number in _ask(worker).split()])
        for worker in workers:
            worker.communicate()
        reference, *_, fast = (torch.load(output) for output in outputs)
    seconds = [median(s for s, _ in answer) for answer in answers]
    memory = [max(gb for _, gb in answer) for answer in answers]
    gains = "  ".join(f"{other / seconds[-1]:5.2f}x" for other in seconds[:-1])
    return (
        f"{case!s:28} {seconds[-1]:7.3f} s  {gains}"
        f"  {memory[-1]:6.2f} GB {memory[-1] / memory[0]:5.0%}  {(fast - reference).abs().max():.1e}"
    )


def _start(form: str, case: Case, output: Path, threads: int) -> "subprocess.Popen[str]":
    worker_options = ["--threads", str(threads), "--worker", form, json.dumps(asdict(case)), str(output)]
    command = [sys.executable, __file__, *worker_options]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _pipe(worker.stdout).readline()  # ready
    return worker


def _ask(worker: "subprocess.Popen[str]") -> str:
    _pipe(worker.stdin).write("\n")
    _pipe(worker.stdin).flush()
    return _pipe(worker.stdout).readline()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", default="", help="cases whose name contains this, as 'infer paper'")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        form, case, output = options.worker
        work(form, Case(**json.loads(case)), Path(output), options.threads)
    else:
        print(f"{'':28} {'fast':>9}  plain    tuned   torch     memory  share  max difference")
        for case in QUICK if options.quick else CASES:
            if options.only in str(case):
                repeats = 3 if options.quick or case.task == "train" else 5
                print(compare(case, repeats, options.threads), flush=True)
