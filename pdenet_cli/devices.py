"""Which device a run computes on: the one named, or a GPU that can really be used."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pdenet_cli.errors import ResourceError

if TYPE_CHECKING:
    import torch


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is a GPU where one can be used."""
    import torch

    if name != "auto":
        return _usable(name)
    for gpu, is_there in (("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)):
        with suppress(ResourceError):
            if is_there():
                return _usable(gpu)
    return torch.device("cpu")


def _usable(name: str) -> torch.device:
    """The device of this name, after a try: it may be too old, or taken by another program."""
    import torch

    try:
        device = torch.device(name)
        torch.ones(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).split("\n")[0]
        raise ResourceError(f"Device '{name}' cannot be used here ({why}). Try auto or cpu.") from error
    return device
