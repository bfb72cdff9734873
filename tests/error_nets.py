"""Error networks that have not learned anything, but do not leave the guess as it is."""

import torch

from pdenet_cli.models.error_net import ErrorNet


def error_net():
    """One whose answer depends on all that it sees."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)
        network = ErrorNet()
        torch.nn.init.normal_(network.last.weight, std=0.3)
    return network.eval().requires_grad_(False)
