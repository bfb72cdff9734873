"""One step of training: patches, loss, gradients, and the running mean of the weights."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import ModelError, TrainingError, UsageError
from pdenet_cli.models.catalogue import BICUBIC
from pdenet_cli.models.model import Model
from pdenet_cli.models.networks import NETWORKS, Draw, Network, Rival, build_network
from pdenet_cli.models.weights_file import MAX_SIZE
from pdenet_cli.training.learner import Learner
from pdenet_cli.training.patches import Patch, Patches
from pdenet_cli.training.processes import ONE_PROCESS, Processes
from pdenet_cli.training.recipe import parse_changes
from pdenet_cli.training.schedules import Moment

PAIR = 2  # draws of each patch that the energy term compares
BALANCE_SIDE = 4  # coarse pixels on a side of the squares whose means the balance term compares
PRECISIONS = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepResult:
    """What one step of training was like."""

    step: int  # number of steps done
    done: float  # share of the run
    seconds: float  # of the run so far
    loss: float
    norm: float  # of the gradient, before clipping
    lr: float
    temperature: float | None


def new_network(
    name: str, config: str | None, scale: int, seed: int, start: float = 1.0, **fields: Any
) -> Network:
    """A network with fresh weights; `config` is a name of its table, with changes: "small,stages=3,width=24".

    `fields` of the configuration come before these changes.
    """
    if name not in NETWORKS:
        trained = ", ".join(known for known in NETWORKS if known != BICUBIC)
        raise UsageError(f"`network` {name} is unknown; choose one of {trained}.")
    configs = NETWORKS[name].configs
    config = config or ("small" if "small" in configs else next(iter(configs)))
    known = [field for field in asdict(next(iter(configs.values()))) if field != "scale"]  # an option of its own
    size, changes = parse_changes("config", config, configs, known)
    for field, value in changes.items():
        _refuse_wrong_type(field, value, {type(asdict(usual)[field]) for usual in configs.values()})
    values = asdict(configs[size]) | {"scale": scale} | fields | changes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(name, values)
    with torch.no_grad():
        for weight in network.tails():
            weight.mul_(start)  # smaller weights give smaller corrections: the run starts near bicubic
    return network


def has_mean(network: Network) -> bool:
    """Whether the network subtracts a mean from its input."""
    return hasattr(network.config, "mean")


def _refuse_wrong_type(field: str, value: Any, kinds: Collection[type]) -> None:
    """Stop where the value of a configuration field is of none of the types it has in the table, `kinds`."""
    setting = f"`config`: {field}={value}"
    if value is None and type(None) in kinds:
        return
    if float in kinds and not (type(value) in (int, float) and 0 <= value <= 1):
        raise UsageError(f"{setting} must be a number from 0 to 1.")
    if int in kinds and not (type(value) is int and 0 <= value <= MAX_SIZE):
        raise UsageError(f"{setting} must be a whole number from 0 to {MAX_SIZE:,}.")


def started_from(network: Network, model: Model) -> Network:
    """The network with the weights of `model`; only the chances of masks may be missing there."""
    try:
        weights = network.starting_from(model.network.state_dict(), model.scale)
        missing, surplus = network.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"`init` {model.name}: its weights have different shapes ({_first_mismatch(error)})."
        ) from error
    if wrong := [name for name in (*missing, *surplus) if not name.endswith(".chance")]:
        raise ModelError(f"`init` {model.name}: its network is a different one ({wrong[0]} does not fit).")
    return network


def _first_mismatch(error: RuntimeError) -> str:
    """The first mismatch of shapes in torch's message."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line.startswith("size mismatch")), lines[0]).rstrip(".")


def name_of(network: Network) -> str:
    """The network's name in the table."""
    return next(name for name, kind in NETWORKS.items() if type(network) is kind)


class Trainer:
    """A network in training: `advance` makes a step, `state` and `restore` save and continue it."""

    def __init__(
        self,
        network: Network,
        patches: Patches,
        degradation: Degradation,
        device: torch.device,
        precision: str = "float32",
        processes: Processes = ONE_PROCESS,
        *,
        trained: bool = False,  # its weights are those of a model of the same network
    ) -> None:
        self.patches, self.recipe, self.degradation = patches, patches.recipe, degradation
        self.device, self.processes = device, processes
        # Metal has no antialiased bicubic before torch 2.8.
        self.degrading_device = device if device.type == "cuda" else torch.device("cpu")
        if self.recipe.batch < processes.count:
            raise UsageError(f"`batch` {self.recipe.batch} is too small for {processes.count} processes.")
        if precision not in PRECISIONS or (precision != "float32" and device.type != "cuda"):
            raise UsageError(f"`precision` {precision} on {device.type}: choose float32, or bf16 or fp16 on cuda.")
        if self.recipe.psf and not network.any_psf:
            setting = f"`recipe`: psf={self.recipe.psf:g}"
            raise UsageError(f"{setting} needs a network that takes any point spread. Add psf=any to `config`.")
        if not any(True for _ in network.parameters()):
            raise UsageError(f"`network` {name_of(network)} has no weights, so there is nothing to train.")
        self.network = network.to(device).train()
        # The running mean of the weights, which is validated and saved.
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.chances = network.chances()
        # On a CPU one patch at a time is faster: its features stay in the cache, its masks in the weights.
        self.one_by_one = device.type == "cpu"
        self.half = PRECISIONS[precision]
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.learner = Learner(self.network, self.recipe.betas, ("network", "adam"))
        self.rival = self._new_rival()
        self.step = 0
        # False in the warm-up: no masks, no rival. Before it a trained model is validated as it is used.
        self.masked = trained and self._has_phases

    @property
    def _has_phases(self) -> bool:
        """Whether it has anything that the warm-up leaves out."""
        return bool(self.network.random or self.chances or self.rival)

    @property
    def active_rival(self) -> Learner[Rival] | None:
        """The rival, once the warm-up is over."""
        return self.rival if self.masked else None

    def draw(self, samples: int) -> Draw | None:
        """Masks to validate with, the same at every call; None in the warm-up, where every mask is 1."""
        if not self.masked:
            return None
        generator = torch.Generator().manual_seed(self.patches.seed)
        with torch.no_grad():
            masks = self.average.draw(generator, samples if self.network.random else 1)
            return self.average.draw_for(self.degradation, masks)

    def chance_facts(self) -> dict[str, float]:
        """Whether the masks are still random: their mean probability, and the shares near 0 and near 1."""
        if not self.chances:
            return {}
        chance = torch.cat([p.detach().flatten() for p in self.chances]).clamp(0, 1)
        shares = {"chance_below_0.1": chance < 0.1, "chance_above_0.9": chance > 0.9}
        return {"chance": float(chance.mean())} | {name: float(s.float().mean()) for name, s in shares.items()}

    def advance(self, done: float, seconds: float = 0.0) -> StepResult:
        """One step of a run whose share `done` is over; if it fails the weights stay as they were."""
        now = self.recipe.schedule(done)
        self._enter_phase(now)
        loss = self._gradients(now)
        self.processes.sum([loss])
        norm = self.learner.clip(self.processes, self.recipe.clip, self.scaler)
        if self.active_rival is not None:
            norm = math.hypot(norm, self.active_rival.clip(self.processes, self.recipe.clip))
        value = float(loss)
        # fp16 gradients overflow at times: the scaler skips such a step.
        if not math.isfinite(value) or not (math.isfinite(norm) or self.scaler.is_enabled()):
            raise TrainingError(f"The loss is not finite at step {self.step + 1} ({value:g}, gradient {norm:g}).")
        self._update(now)
        self.step += 1
        return StepResult(self.step, done, seconds, value, norm, now.rate * self.recipe.lr, now.temperature)

    def _enter_phase(self, now: Moment) -> None:
        masked = now.temperature is not None and self._has_phases
        if masked and not self.masked and self.recipe.fresh:
            self.learner.reset_adam()
        self.masked = masked
        if now.temperature == 0:
            # Each mask stays at its mode from here on: the running mean must choose the same ones.
            for mean, chance in zip(self.average.chances(), self.chances, strict=True):
                mean.copy_(chance.detach())

    def _gradients(self, now: Moment) -> Tensor:
        """Accumulate the gradients of this process's patches; returns its share of the loss."""
        self.network.zero_grad()
        rival = None if self.active_rival is None else self.active_rival.module
        if rival is not None:
            rival.zero_grad()
        total = torch.zeros((), device=self.device)
        batch = self.recipe.batch
        patches = [self.patches(self.step, index) for index in self.processes.share(batch)]
        for group in self._groups(patches):
            high, low, inputs = self._inputs(group)
            degradation = group[0].degradation(self.degradation)
            draws = self.network.draw_for(degradation, self._draws(group, now.temperature))
            if draws is not None and len(draws) > len(group):
                high, low, inputs = (x.repeat_interleave(PAIR, dim=0) for x in (high, low, inputs))
            with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
                estimate = self.network(inputs, draws)
            estimate = estimate.float()
            loss = self._loss(estimate, high, low, rival, degradation, paired=len(estimate) > len(group))
            loss = loss * len(group) / batch
            torch.autograd.backward(self.scaler.scale(loss))
            total += loss.detach()
            if rival is not None:
                rival.requires_grad_(True)
                torch.autograd.backward(rival.loss(estimate.detach(), high) * len(group) / batch)
                rival.requires_grad_(False)  # no gradients of its own while the network learns
        return total

    def _inputs(self, group: list[Patch]) -> tuple[Tensor, Tensor, Tensor]:
        """The patches of a group at high and at low resolution, and what the network sees of the latter."""
        high = torch.stack([patch.high for patch in group]).to(self.degrading_device)
        low = torch.cat([patch.low(self.degradation, self.degrading_device)[None] for patch in group])
        inputs = torch.stack([patch.with_noise(x) for patch, x in zip(group, low, strict=True)])
        return high.to(self.device), low.to(self.device), inputs.to(self.device)

    def _loss(
        self,
        estimate: Tensor,
        high: Tensor,
        low: Tensor,
        rival: Rival | None,
        degradation: Degradation,
        *,
        paired: bool,
    ) -> Tensor:
        """The loss of the network on a group; `paired`: the two draws of a patch follow one another."""
        loss = self.network.loss(estimate, high, low, self.recipe.consistency, rival, degradation)
        if paired:
            first, second = estimate[::PAIR], estimate[1::PAIR]
            loss = loss - self.recipe.energy / 2 * (first - second).abs().mean()
        if self.recipe.spectral and estimate.shape[1] > 1:
            loss = loss + self.recipe.spectral * (estimate - high).diff(dim=1).abs().mean()
        if self.recipe.balance:
            # The mean |error| favours medians, which are too dark where bright spots are rare.
            local = F.avg_pool2d(estimate - high, BALANCE_SIDE * self.network.scale)
            loss = loss + self.recipe.balance * local.abs().mean()
        return loss

    def _groups(self, patches: list[Patch]) -> Iterator[list[Patch]]:
        """Patches that one pass can take: of one shape and one point spread."""
        if self.one_by_one:
            yield from ([patch] for patch in patches)
            return

        def alike(patch: Patch) -> tuple[Any, ...]:
            return *patch.high.shape, repr(patch.psf)

        yield from (list(group) for _, group in itertools.groupby(sorted(patches, key=alike), key=alike))

    def _draws(self, group: list[Patch], temperature: float | None) -> Draw | None:
        if not self.masked or temperature is None:
            return None
        each = PAIR if self.recipe.energy and self.network.random else 1
        draws = [self.network.draw(patch.generator, each, temperature) for patch in group]
        return Draw(torch.cat([draw.masks for draw in draws]))

    def _update(self, now: Moment) -> None:
        self.learner.set_rate(now.rate * self.recipe.lr)
        self.scaler.step(self.learner.adam)
        self.scaler.update()
        if self.active_rival is not None:
            self.active_rival.set_rate(now.rate * self.recipe.lr)
            self.active_rival.adam.step()
        with torch.no_grad():
            for chance in self.chances:
                chance.clamp_(*self.recipe.chances)
            # A shorter memory at first, so that the random start is soon forgotten.
            decay = min(self.recipe.average, (1 + self.step) / (10 + self.step))
            for mean, weight in zip(self.average.parameters(), self.network.parameters(), strict=True):
                mean.lerp_(weight, 1 - decay)
            for kept, buffer in zip(self.average.buffers(), self.network.buffers(), strict=True):
                kept.copy_(buffer)

    def _new_rival(self) -> Learner[Rival] | None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.patches.seed)
            rival = self.network.new_rival()
        if rival is None:
            return None
        rival = rival.to(self.device).requires_grad_(False)
        return Learner(rival, self.recipe.betas, ("rival", "rival_adam"))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values from which, with the averaged weights, `restore` continues exactly."""
        tensors = self.learner.tensors() | (self.rival.tensors() if self.rival is not None else {})
        return tensors, {"step": self.step, "masked": self.masked, "scaler": self.scaler.state_dict()}

    def restore(self, average: Network, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Continue from where `state` was taken."""
        try:
            self.average.load_state_dict(average.state_dict())
            self.learner.restore(tensors)
            if self.rival is not None:
                self.rival.restore(tensors)
            self.step, self.masked = int(values["step"]), bool(values["masked"])
            self.scaler.load_state_dict(dict(values["scaler"]))
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"The checkpoint does not fit this run ({' '.join(str(error).split())}).") from error
