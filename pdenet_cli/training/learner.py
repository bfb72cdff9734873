"""A module and its optimizer, with what it takes to save and restore both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from pdenet_cli.training.processes import Processes

M = TypeVar("M", bound=nn.Module)


class Learner(Generic[M]):
    """A module and its Adam; `names` prefix its weights and its moments in a checkpoint."""

    def __init__(self, module: M, betas: tuple[float, float], names: tuple[str, str]) -> None:
        self.module, self.betas, self.names = module, betas, names
        self.reset_adam()

    def reset_adam(self) -> None:
        """Start with empty moments."""
        self.adam = torch.optim.Adam(self.module.parameters(), betas=self.betas)

    def clip(self, processes: Processes, largest: float, scaler: torch.amp.GradScaler | None = None) -> float:
        """Sum the gradients of all processes and clip their norm to `largest`, if not 0; the norm before."""
        learning = self._learning(processes)
        processes.sum([p.grad for p in learning if p.grad is not None])
        if scaler is not None:
            scaler.unscale_(self.adam)
        return float(torch.nn.utils.clip_grad_norm_(learning, largest or math.inf))

    def _learning(self, processes: Processes) -> list[nn.Parameter]:
        """The parameters with a gradient in any process; zeros are filled in elsewhere, so that sums line up."""
        parameters = list(self.module.parameters())
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32).to(parameters[0].device)
        processes.sum([used])
        learning = [p for p, somewhere in zip(parameters, used.tolist(), strict=True) if somewhere]
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return learning

    def set_rate(self, lr: float) -> None:
        """Use this learning rate from now on."""
        for group in self.adam.param_groups:
            group["lr"] = lr

    def tensors(self) -> dict[str, Tensor]:
        """All that `restore` needs."""
        prefix, moments = self.names
        tensors = {f"{prefix}.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            for key, value in self.adam.state.get(parameter, {}).items():
                tensors[f"{moments}.{key}.{name}"] = value
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from where `tensors` were taken."""
        module, moments = self.names
        prefix = f"{module}."
        weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        self.module.load_state_dict(weights)
        for name, parameter in self.module.named_parameters():
            keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{moments}.{key}.{name}" in tensors]
            if keys:
                # Adam keeps its step count on the CPU, whatever the device.
                kept = {key: tensors[f"{moments}.{key}.{name}"].clone() for key in keys}
                device = parameter.device
                self.adam.state[parameter] = {k: t if k == "step" else t.to(device) for k, t in kept.items()}
