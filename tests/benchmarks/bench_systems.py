"""What every system costs on one tile: python tests/benchmarks/bench_systems.py [--repeats 5] [--threads 1].

Parameters, true multiply-adds of one forward pass, and measured seconds. The systems take turns in one process, so
that a busy machine is busy for all of them; times are medians, on one thread those spent on the core. PDE-Net is
timed for one sample: N samples take N times as long. It has a form made for CPUs, the others run as torch runs
them, so compare methods by multiply-adds and programs by seconds.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parents[2]))

from pdenet_cli.models.networks import NETWORKS, Network
from pdenet_cli.models.networks.pdenet import PDENetConfig
from pdenet_cli.system import tune_process
from tests import plain

LABELS = ("system", "parameters", "multiply-adds", "seconds", "G per second")


def multiply_adds(network: Network, bands: int, side: int) -> int:
    """The products of one forward pass; a transposed convolution has input voxels times kernel of them."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:  # shapes only, nothing is computed
        empty = type(network)(network.config)
        low = torch.empty(1, bands, side, side)
        if isinstance(network.config, PDENetConfig):  # its fast form makes some products with zeros
            # A sample of an ensemble is one of its members.
            names = {name: name.removeprefix("space.").removeprefix("members.0.") for name in empty.state_dict()}
            state = {names[name]: p for name, p in empty.named_parameters()}
            plain.forward(network.config, state, low)
        else:
            empty(low)
    return counter.get_total_flops() // 2


def measure(networks: dict[str, Network], low: torch.Tensor, repeats: int, threads: int) -> dict[str, float]:
    """The median seconds of one forward pass of each network; they take turns."""
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    with torch.inference_mode():
        draws = {name: network.draw(torch.Generator().manual_seed(0)) for name, network in networks.items()}
        for turn in range(repeats + 1):
            for name, network in networks.items():
                started = clock()
                network(low, draws[name])
                if turn > 0:  # the first warms up
                    seconds[name].append(clock() - started)
    return {name: median(each) for name, each in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=32, help="low-resolution pixels")
    parser.add_argument("--scale", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    tune_process()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    networks = {
        name: kind(replace(kind.configs["paper"], scale=options.scale)).eval() for name, kind in NETWORKS.items()
    }
    low = torch.rand(1, 31, options.side, options.side)
    seconds = measure(networks, low, options.repeats, options.threads)
    print(f"{options.side} x {options.side} x 31, x{options.scale}, {options.threads} thread(s)")
    print("{:10} {:>12} {:>15} {:>9} {:>14}".format(*LABELS))
    for name, network in networks.items():
        parameters = sum(p.numel() for p in network.parameters())
        products = multiply_adds(network, 31, options.side) / 1e9
        took = seconds[name]
        print(f"{name:10} {parameters:12,} {products:13.2f} G {took:9.3f} {products / took:14.1f}")


if __name__ == "__main__":
    main()
