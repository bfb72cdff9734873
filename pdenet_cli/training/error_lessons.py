"""Teaching an `ErrorNet`: patches of estimates whose truth is known, and the loop that learns from them.

The loss is that of a normal distribution of each error, z = error / expected:

    log(expected) + z²/2

beyond z = TAME continued as a straight line, for a few errors are far larger than any network could expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pdenet_cli.models.error_net import Clues, ErrorNet
from pdenet_cli.report import WatchTiles

STEPS = 2000
SCENES, PATCHES = 8, 4  # of each step: scenes chosen at random, and patches of each
RATE = 3e-3  # highest learning rate, a tenth of the way; from there it falls to 0
DECAY = 0.05  # of the weights
TAME = 3.0


@dataclass(frozen=True)
class Lessons:
    """Patches of a scene, each of one band: what an `ErrorNet` sees, and the error it should have expected."""

    clues: Clues  # half precision, as the ratios
    ratios: Tensor  # (patches, rows, columns): error / spread, not negative; NaN where the truth is not known

    def picked(self, count: int, generator: torch.Generator) -> tuple[Clues, Tensor]:
        """Clues and ratios of `count` patches, turned or mirrored at random."""
        chosen = torch.randint(len(self.ratios), (count,), generator=generator)
        symmetry = int(torch.randint(8, (), generator=generator))
        parts = [part[chosen].float() for part in (self.clues.coarse, self.clues.fine, self.ratios)]
        turned = (part.rot90(symmetry % 4, (-2, -1)) for part in parts)
        coarse, fine, ratios = (part.flip(-1) if symmetry >= 4 else part for part in turned)
        return Clues(coarse, fine), ratios


def learn_errors(
    scenes: Sequence[Lessons],
    seed: int,
    steps: int = STEPS,
    watch: WatchTiles = lambda done, total: None,
) -> ErrorNet:
    """An `ErrorNet` that has learned from all scenes alike; `watch` gets (steps done, steps in all)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        network = ErrorNet()
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=max(steps, 2), pct_start=0.1)
    for step in range(steps):
        chosen = torch.randint(len(scenes), (SCENES,), generator=generator).tolist()
        patches = [scenes[i].picked(PATCHES, generator) for i in chosen]
        losses = [_losses(network, *alike) for alike in _of_one_size(patches)]
        optimiser.zero_grad()
        torch.cat(losses).mean().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        watch(step + 1, steps)
    return network.eval().requires_grad_(False)


def _of_one_size(patches: Iterable[tuple[Clues, Tensor]]) -> Iterator[tuple[Clues, Tensor]]:
    """All patches of the same size together: one large batch takes a quarter of the time of many small ones."""
    by_size: dict[torch.Size, list[tuple[Clues, Tensor]]] = {}
    for clues, ratios in patches:
        by_size.setdefault(ratios.shape[1:], []).append((clues, ratios))
    for alike in by_size.values():
        coarse, fine = (torch.cat([getattr(clues, name) for clues, _ in alike]) for name in ("coarse", "fine"))
        yield Clues(coarse, fine), torch.cat([ratios for _, ratios in alike])


def _losses(network: ErrorNet, clues: Clues, ratios: Tensor) -> Tensor:
    """The loss of every value whose truth is known."""
    known = ratios.isfinite()
    correction: Tensor = network(clues)[known]
    z = ratios[known] / correction.exp()
    return correction + torch.where(z < TAME, z.square() / 2, TAME * z - TAME**2 / 2)
