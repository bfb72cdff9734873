"""PDE-Net and Template-Net (Hou et al., TIP 2022), any scale, any number of bands.

From the whole to its parts: the networks, the degradation that they learn, a stage, a unit and its arithmetic.

Features are kept voxel by voxel, (n, bands, h, w, channels): a 1x1x1 convolution is then one matrix product,
a (3,1,1) or (1,3,3) convolution is a two-dimensional one in the layout that is fastest on a CPU, and nothing is
copied between them. Masks are per channel, so those of one sample are multiplied into the weights, at no cost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import log, prod
from typing import Any, ClassVar, Literal, get_args, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pdenet_cli.degradation import FREQUENCIES, Degradation, bicubic_up, cubic_up, smooth_up, symmetric_pad
from pdenet_cli.errors import ModelError
from pdenet_cli.models.networks import winograd
from pdenet_cli.models.networks.adapting import resized_tail, widened
from pdenet_cli.models.networks.base import Draw, Network, NetworkConfig

BRIGHTNESS_REACH = 2  # brightness is kept as a mean over this many low-resolution pixels on each side
WIDEST_PSF = 2.5  # largest FWHM that a network for any point spread undoes, in low-resolution pixels
PSF_FEATURES = 16  # hidden numbers between the transfer function of a point spread and the gains of channels
BRIGHTEST_SHARE = 3  # of what is lacking around a pixel; bounds it where the surroundings are black


@dataclass(frozen=True)
class PDENetConfig(NetworkConfig):
    """The size of the network, and choices where those of the paper can be improved."""

    stages: int = 4
    units: int = 6  # per stage
    width: int = 64
    head: int = 32
    kernel: Literal["paper", "centred"] = "paper"  # shape of the learned degradation
    border: Literal["zero", "symmetric"] = "zero"  # padding of the learned degradation
    upsampling: Literal["torch", "matlab"] = "torch"  # cubic with a = -0.75 or -0.5
    mask_start: float | None = None  # initial probability of every mask; None: uniform in 0..1
    brightness: Literal["free", "kept"] = "free"  # kept: local means are those of the input
    psf: Literal["learned", "any"] = "learned"  # learned: that of its training data; any: an input of the network
    masks: Literal["KL", "K", "L"] = "KL"  # what is masked: inputs of units (K), layers of units (L) or both

    def __post_init__(self) -> None:
        if self.scale < 2 or min(self.stages, self.units, self.width, self.head) < 1:
            raise ModelError(f"{self} cannot be built: the scale must be at least 2, every size at least 1.")
        if self.mask_start is not None and not 0 <= self.mask_start <= 1:
            raise ModelError(f"{self} cannot be built: mask_start is a probability, 0 to 1.")
        for name in ("kernel", "border", "upsampling", "brightness", "psf", "masks"):
            choices = get_args(get_type_hints(PDENetConfig)[name])
            if getattr(self, name) not in choices:
                raise ModelError(f"{name} '{getattr(self, name)}' is unknown; choose one of {', '.join(choices)}.")


CONFIGS = {
    "paper": PDENetConfig(),
    "small": PDENetConfig(
        stages=2, units=5, width=32, head=16,
        kernel="centred", border="symmetric", upsampling="matlab", mask_start=0.9, brightness="kept",
    ),
    "tiny": PDENetConfig(
        stages=2, units=3, width=8, head=4,
        kernel="centred", border="symmetric", upsampling="matlab", mask_start=0.9, brightness="kept",
    ),
}  # fmt: skip


class TemplateNet(Network):
    """Stages that each correct the image by the part of the input that it does not explain yet."""

    Config = PDENetConfig
    configs: ClassVar[Mapping[str, PDENetConfig]] = CONFIGS
    random = False
    learns_chances: ClassVar[bool] = False  # whether the probabilities of its masks are parameters
    mixable = True
    bands = None

    def __init__(self, config: PDENetConfig) -> None:
        super().__init__(config)
        self.any_psf = config.psf == "any"
        if self.any_psf and not self.learns_chances:
            raise ModelError("psf=any needs masks, which carry the point spread: use the network pdenet.")
        if not self.any_psf:
            self.degradation = LearnedDegradation(config)
        self.stages = nn.ModuleList(Stage(config, self.learns_chances) for _ in range(config.stages))
        self.keeps_brightness = config.brightness == "kept"
        self.upsample = bicubic_up if config.upsampling == "matlab" else torch_bicubic_up
        self.halo = _halo(config, *_taps(config))
        self.band_halo = config.stages * (2 * config.units + 3)  # head, two per unit, tail, smoothing
        # Either the features of a stage, twice where each sample of a batch has masks of its own, or the patches
        # before folding and a few fine images; 5 bytes a float, for the allocator's overhead.
        features = 2 * (config.units + 1) * config.width + config.head
        fine = 2 * config.head + 4 * (config.scale + 2) ** 2 + 4 * config.scale**2
        self.bytes_per_voxel = 5 * max(features, fine)

    def forward(self, low: Tensor, draw: Draw | None = None) -> Tensor:
        masks = draw.masks if draw is not None and self.random else None
        degrade = self._operator(draw)
        if masks is not None and len(masks) not in (1, len(low)):
            raise ValueError(f"{len(masks)} samples for a batch of {len(low)}: pass one, or one per element.")
        if low.device.type != "cpu":
            return self._stages(low, masks, degrade)
        # One by one: features stay in the cache, and masks are multiplied into the weights.
        each = [None] * len(low) if masks is None else masks.expand(len(low), -1).tensor_split(len(low))
        cubes = zip(low.tensor_split(len(low)), each, strict=True)
        return torch.cat([self._stages(cube, mask, degrade) for cube, mask in cubes])

    def _operator(self, draw: Draw | None) -> Callable[[Tensor], Tensor]:
        """How the input of a draw was degraded: the learned kernel, or what the draw says."""
        if not self.any_psf:
            return self.degradation
        return Degradation(self.scale) if draw is None or draw.degradation is None else draw.degradation

    def in_turn(self, low: Tensor, draw: Draw, at_once: int) -> Iterator[Tensor]:
        common, degrade = self._common(low), self._operator(draw)
        for i in range(0, len(draw), at_once):
            masks = draw.masks[i : i + at_once] if self.random else None
            yield self._stages(low.expand(len(draw[i : i + at_once]), -1, -1, -1), masks, degrade, common)

    def _common(self, low: Tensor) -> tuple[Tensor, Tensor]:
        """What does not depend on masks: the enlarged cube, and the input features of the first stage."""
        first = self.stages[0]
        assert isinstance(first, Stage)
        with _full_precision(low):
            large = self.upsample(low, self.scale)
        return large, first.start(low)

    def _stages(
        self,
        low: Tensor,
        masks: Tensor | None,
        degrade: Callable[[Tensor], Tensor],
        common: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        each = [None] * len(self.stages) if masks is None else masks.chunk(len(self.stages), dim=1)
        large, start = common or self._common(low)
        # (n, bands, h, w) -> (n, bands, scale·h, scale·w)
        high: Tensor = large + self.stages[0](low, each[0], start.expand(len(low), -1, -1, -1, -1))
        for stage, mask in zip(self.stages[1:], each[1:], strict=True):
            with _full_precision(high):
                residual = low - degrade(high)
            high = high + stage(residual, mask)
        return self._with_brightness_of(low, high, degrade) if self.keeps_brightness else high

    def _with_brightness_of(self, low: Tensor, high: Tensor, degrade: Callable[[Tensor], Tensor]) -> Tensor:
        """The image plus the difference between its local brightness, once degraded, and that of the input.

        Training by absolute errors learns medians, which are darker than means where bright spots are rare. What
        is lacking goes to pixels by their own brightness, so that dark ones keep the shape of their spectra.
        """
        with _full_precision(high):
            again = degrade(high)
            lacking = smooth_up(low.to(high) - again, self.scale, BRIGHTNESS_REACH)
            # As constants: where all is black, their gradients would not be numbers.
            around = smooth_up(again.detach().clamp(min=0), self.scale, BRIGHTNESS_REACH)
            share = high.detach().clamp(min=0).div_(around.clamp_(min=torch.finfo(high.dtype).tiny))
            return torch.addcmul(high, share.clamp_(max=BRIGHTEST_SHARE), lacking)

    def degrade(self, high: Tensor, degradation: Degradation | None = None) -> Tensor:
        with _full_precision(high):
            if self.any_psf:
                return (degradation or Degradation(self.scale))(high)
            return self.degradation(high)  # type: ignore[no-any-return]

    def starting_from(self, weights: Mapping[str, Tensor], scale: int) -> dict[str, Tensor]:
        fresh = self.state_dict()
        stages = {name.split(".")[1] for name in weights if name.startswith("stages.")}
        added = {
            name: w for name, w in fresh.items() if name.startswith("stages.") and name.split(".")[1] not in stages
        }
        # The tail of an added stage is zero, so that it changes nothing at first.
        added |= {name: torch.zeros_like(w) for name, w in added.items() if name.endswith(".tail")}
        weights = {
            name: widened(name, w, fresh[name]) if name.startswith("stages.") and name in fresh else w
            for name, w in weights.items()
        }
        psf = {name: w for name, w in fresh.items() if name.startswith("psf_") and name not in weights}
        if self.any_psf:
            weights = {name: w for name, w in weights.items() if not name.startswith("degradation.")}
        if scale == self.scale:
            return {**weights, **added, **psf}
        tails = {
            name: resized_tail(tail, scale, self.scale) for name, tail in weights.items() if name.endswith(".tail")
        }
        kernel = {name: w for name, w in fresh.items() if name.startswith("degradation.")}
        return {**weights, **added, **tails, **kernel, **psf}


def _full_precision(image: Tensor) -> AbstractContextManager[Any]:
    """A context without autocast: half precision is for features, not for images."""
    kind = image.device.type
    halved = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if halved else nullcontext()


class PDENet(TemplateNet):
    """Template-Net whose channels each take part with a learned probability: every draw is another sub-network."""

    random = True
    learns_chances = True

    def __init__(self, config: PDENetConfig) -> None:
        super().__init__(config)
        if self.any_psf:
            masks = sum(map(len, self.chances()))
            self.psf_hidden = nn.Parameter(torch.empty(PSF_FEATURES, len(FREQUENCIES)).uniform_(-2, 2))
            self.psf_gains = nn.Parameter(torch.zeros(masks, PSF_FEATURES))

    def draw_for(self, degradation: Degradation, draw: Draw | None) -> Draw | None:
        """The draw with its masks times the gains of their channels under a point spread; all 1 for bicubic."""
        if not self.any_psf:
            return draw
        if degradation.width > WIDEST_PSF:
            problem = (
                f"`psf` {degradation.width:g}: this network undoes point spreads up to {WIDEST_PSF} pixels wide"
            )
            raise ModelError(f"{problem}. Bin the pixels of the scene first.")
        blur = degradation.transfer() - Degradation(self.scale).transfer()
        gains = 1 + self.psf_gains @ torch.tanh(self.psf_hidden @ blur.to(self.psf_hidden))
        return Draw(gains[None] if draw is None else draw.masks * gains, replace(degradation, noise=0.0))

    def draw(self, generator: torch.Generator | None, samples: int = 1, temperature: float = 0.05) -> Draw:
        chance = torch.cat(self.chances()).clamp(0.02, 0.98)
        rows = [torch.rand(len(chance), generator=generator, dtype=torch.float64) for _ in range(samples)]
        # Logistic noise: a mask exceeds 1/2 with probability `chance`, whatever the temperature.
        noise = torch.stack(rows).logit(eps=1e-12).to(chance)
        masks = torch.sigmoid((chance.logit() + noise) / temperature)
        # Multiplied into weights, smaller masks would make denormal numbers, which are many times slower.
        return Draw(torch.where(masks < 1e-12, 0, masks))


class LearnedDegradation(nn.Module):
    """Blur and decimation with one learned kernel, non-negative and summing to 1, for all bands."""

    def __init__(self, config: PDENetConfig) -> None:
        super().__init__()
        self.scale, self.border = config.scale, config.border
        if config.kernel == "paper":
            self.taps, self.first_tap = self.scale + 1, -(self.scale // 2)
            logits = torch.randn(self.taps, self.taps)
        else:
            # The main lobe of the antialiased bicubic, around the centre of the low-resolution pixel.
            self.taps = 2 * self.scale - self.scale % 2
            self.first_tap = (self.scale - self.taps) // 2
            # Without torch: on the meta device, the first use of its arithmetic takes seconds.
            x = [abs(tap - (self.taps - 1) / 2) / self.scale for tap in range(self.taps)]
            lobe = [log(1.5 * d**3 - 2.5 * d**2 + 1) for d in x]
            logits = torch.tensor([[row + column for column in lobe] for row in lobe])
        self.logits = nn.Parameter(logits)

    def kernel(self) -> Tensor:
        """The taps, (rows, columns); the first lies `first_tap` pixels from pixel scale·i."""
        return self.logits.flatten().softmax(0).view_as(self.logits)

    def forward(self, high: Tensor) -> Tensor:
        pad = -self.first_tap
        image = high.flatten(0, 1)[:, None]  # (n, bands, H, W) -> (n·bands, 1, H, W)
        if self.border == "symmetric":
            image, pad = symmetric_pad(image, pad), 0
        low = F.conv2d(image, self.kernel()[None, None], stride=self.scale, padding=pad)
        return low.view(*high.shape[:2], *low.shape[2:])  # (n, bands, h, w)


class Stage(nn.Module):
    """From a low-resolution cube or residual to a correction of the high-resolution one."""

    def __init__(self, config: PDENetConfig, random: bool) -> None:
        super().__init__()
        self.scale = config.scale
        widths = [config.width] * (config.units - 1) + [config.head]
        inputs = [config.head] + [config.width * j for j in range(1, config.units)]
        self.head = _weight(config.head, 3, 3, 3)  # (out, band, row, col)
        units = [
            Unit(position, i, width, random, config.mask_start, config.masks)
            for position, (i, width) in enumerate(zip(inputs, widths, strict=True), start=1)
        ]
        self.units = nn.ModuleList(units)
        self.masks = [sum(unit.masks) for unit in units]  # number of masks of each unit
        self.tail = _weight(config.head, 3, self.scale + 2, self.scale + 2)  # (in, band, row, col)
        self.smooth = _weight(1, 3, 3, 3)  # (1, band, row, col)

    def forward(self, low: Tensor, masks: Tensor | None, start: Tensor | None = None) -> Tensor:
        each = [None] * len(self.masks) if masks is None else masks.split_with_sizes(self.masks, dim=1)
        start = self.start(low) if start is None else start
        last = self._last_features(start, each) + start
        return self._smooth(self._tail(last))  # (n, bands, scale·h, scale·w)

    def _last_features(self, start: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
        units: list[Unit] = list(self.units)  # type: ignore[arg-type]
        if masks[0] is None or len(masks[0]) == 1:
            weights = [unit.weights(mask)[0] for unit, mask in zip(units, masks, strict=True)]
            fast = winograd.units(start, weights)
            if fast is not None:
                return fast
        features = [units[0]([start], masks[0])]
        for unit, mask in zip(units[1:], masks[1:], strict=True):
            features.append(unit(features, mask))
        last: Tensor = features[-1]
        return last

    def start(self, low: Tensor) -> Tensor:
        """The features before any mask, (n, bands, h, w) -> (n, bands, h, w, head)."""
        # A 3x3x3 convolution of one channel is a 3x3 one of three: the band before, this one, the next.
        taps = F.pad(low, (0, 0, 0, 0, 1, 1)).unfold(1, 3, 1).contiguous()  # (n, bands, h, w, 3)
        image = F.conv2d(taps.flatten(0, 1).permute(0, 3, 1, 2), self.head, padding=1)
        return image.permute(0, 2, 3, 1).reshape(*low.shape, -1)

    def _tail(self, x: Tensor) -> Tensor:
        # A transposed convolution: every voxel gives a patch of (scale+2)² pixels, and patches overlap by two.
        n, bands, h, w, head = x.shape
        k = self.scale + 2
        weight = self.tail.flip(1).permute(2, 3, 0, 1).reshape(k * k, head, 3, 1)
        image = x.view(n, bands, h * w, head).permute(0, 3, 1, 2)
        patches = F.conv2d(image, weight, padding=(1, 0)).transpose(1, 2)  # (n, bands, (scale+2)², pixels)
        high = F.fold(patches.flatten(0, 1), (self.scale * h, self.scale * w), k, padding=1, stride=self.scale)
        return high.view(n, bands, self.scale * h, self.scale * w)

    def _smooth(self, high: Tensor) -> Tensor:
        # A 3x3x3 convolution of one channel to one is slow on a CPU: eight bands at a time become channels.
        n, bands, rows, cols = high.shape
        size = 8
        blocks = F.pad(high, (0, 0, 0, 0, 1, -bands % size + 1)).unfold(1, size + 2, size).movedim(-1, 2)
        banded = torch.cat([F.pad(self.smooth, (0, 0, 0, 0, i, size - 1 - i)) for i in range(size)])
        smooth = F.conv2d(blocks.flatten(0, 1), banded, padding=1)  # (n·blocks, 10, ...) -> (n·blocks, 8, ...)
        return smooth.view(n, -1, rows, cols)[:, :bands]


class Unit(nn.Module):
    """Compress the outputs of all units before, then refine them along the spectrum and across the pixels."""

    def __init__(
        self, position: int, inputs: int, width: int, random: bool, start: float | None, masked: str = "KL"
    ) -> None:
        super().__init__()
        self.compress = _weight(width, inputs)
        self.spectral1, self.spectral2 = _weight(width, width, 3, 1), _weight(width, width, 3, 1)
        self.spatial1, self.spatial2 = _weight(width, width, 3, 3), _weight(width, width, 3, 3)
        # Unit 2 has only one input to choose from; the paper counts its chances, but they are not used.
        self.chooses, self.refines = position > 2 and "K" in masked, "L" in masked
        self.masks = [inputs if position > 1 else 0, width, width]  # numbers of masks: inputs, spectral, spatial
        if random:
            chance = torch.rand(sum(self.masks)) if start is None else torch.full((sum(self.masks),), float(start))
            self.chance = nn.Parameter(chance)

    def forward(self, features: list[Tensor], masks: Tensor | None) -> Tensor:
        weights, (choice, spectral, spatial) = self.weights(masks)
        if choice is None and spectral is None:
            fast = winograd.unit(features, *weights)
            if fast is not None:
                return fast
        compress, spectral1, spectral2, spatial1, spatial2 = weights
        n, bands, h, w, _ = features[0].shape
        x = _compress(features, compress, choice)  # (n·bands·h·w, width)
        image = x.view(n, bands, h * w, -1).permute(0, 3, 1, 2)  # (n, width, bands, pixels)
        x = _refine(image, spectral1, spectral2, spectral).permute(0, 2, 3, 1)
        image = x.reshape(n * bands, h, w, -1).permute(0, 3, 1, 2)  # (n·bands, width, rows, columns)
        x = _refine(image, spatial1, spatial2, spatial).permute(0, 2, 3, 1)
        return x.reshape(n, bands, h, w, -1)

    def weights(self, masks: Tensor | None) -> tuple[winograd.Weights, list[Tensor | None]]:
        """The weights times the masks of a single sample; and the masks of several, still to be applied."""
        choice, spectral, spatial = (None,) * 3 if masks is None else masks.split_with_sizes(self.masks, dim=1)
        compress, choice = _fold(self.compress, choice if self.chooses else None)
        spectral2, spectral = _fold(self.spectral2, spectral if self.refines else None)
        spatial2, spatial = _fold(self.spatial2, spatial if self.refines else None)
        return (compress, self.spectral1, spectral2, self.spatial1, spatial2), [choice, spectral, spatial]


def kernel_of(network: Network) -> str:
    """What computes a network, and where; other kernels need not give the same results to the last bit."""
    device = network.device.type
    compiled = device == "cpu" and any(isinstance(module, Unit) for module in network.modules())
    return f"{winograd.kernel_name() if compiled else 'torch'} on {device}"


def missing_kernel(network: Network) -> str | None:
    """Why a network is computed without the compiled kernel that would make it faster; None: it is not missing."""
    uses = network.device.type == "cpu" and any(isinstance(module, Unit) for module in network.modules())
    return winograd.why_no_kernel() if uses and not winograd.is_off() else None


def _fold(weight: Tensor, masks: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The weight times the masks of a single sample (inputs of a matrix, outputs of a convolution), and None; for
    several samples, both unchanged.
    """
    if masks is None or len(masks) > 1:
        return weight, masks
    return weight * (masks if weight.dim() == 2 else masks.view(-1, 1, 1, 1)), None


def _compress(features: list[Tensor], weight: Tensor, masks: Tensor | None) -> Tensor:
    """ReLU of a 1x1x1 convolution of the concatenated features, without concatenating them."""
    widths = [feature.shape[-1] for feature in features]
    if masks is not None:
        parts = masks[:, None, None, None].split_with_sizes(widths, dim=-1)
        features = [feature * part for feature, part in zip(features, parts, strict=True)]
    weights = weight.t().split_with_sizes(widths)  # (inputs of each feature, width)
    x = features[0].flatten(0, 3) @ weights[0]
    for feature, part in zip(features[1:], weights[1:], strict=True):
        x.addmm_(feature.flatten(0, 3).to(x.dtype), part.to(x.dtype))  # autocast does not convert for addmm_
    return x.relu_()


def _refine(image: Tensor, first: Tensor, second: Tensor, masks: Tensor | None) -> Tensor:
    """The image plus two convolutions of it, each channel of them times its mask."""
    pad = (first.shape[2] // 2, first.shape[3] // 2)
    hidden = F.conv2d(image, first, padding=pad).relu_()
    if masks is None:
        return F.conv2d(hidden, second, padding=pad).add_(image)
    masks = masks.repeat_interleave(len(image) // len(masks), dim=0)  # all bands of a cube have its masks
    return image + F.conv2d(hidden, second, padding=pad) * masks[..., None, None]


def torch_bicubic_up(cube: Tensor, scale: int) -> Tensor:
    """The paper's enlargement, a cubic with a = -0.75; its data were made with a = -0.5."""
    return cubic_up(F.pad(cube, (2, 2, 2, 2), mode="replicate"), scale, a=-0.75)


def _weight(*shape: int) -> nn.Parameter:
    """New weights (out, in ...): uniform, as torch initialises convolutions."""
    bound = prod(shape[1:]) ** -0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def _taps(config: PDENetConfig) -> tuple[int, int]:
    """The first tap and the number of taps of the widest degradation, counted from fine pixel scale·i."""
    if config.psf == "any":
        taps = len(Degradation(config.scale, "area", WIDEST_PSF).weights()[0])
        return (config.scale - taps) // 2, taps
    degradation = LearnedDegradation(config)
    return degradation.first_tap, degradation.taps


def _halo(config: PDENetConfig, first_tap: int, taps: int) -> int:
    """The receptive field in low-resolution pixels, on its wider side."""
    scale = config.scale
    # Fine pixels are (block, phase): `scale` of them per low-resolution pixel. Those under the degradation kernel:
    under = [divmod(tap, scale) for tap in range(first_tap, first_tap + taps)]
    body = 1 + 2 * config.units
    # Near the ends of a block, the tail and the smoothing reach one block further.
    before = [body + (phase < 2) for phase in range(scale)]
    after = [body + (phase >= scale - 2) for phase in range(scale)]
    reach_before, reach_after = before, after  # after stage 1, by phase

    def residual_reach() -> tuple[int, int]:
        # The residual of block 0 depends on the fine pixels under the kernel, and on all that these depend on.
        return (
            max(reach_before[phase] - block for block, phase in under),
            max(reach_after[phase] + block for block, phase in under),
        )

    for _ in range(config.stages - 1):
        residual_before, residual_after = residual_reach()
        reach_before = [residual_before + reach for reach in before]
        reach_after = [residual_after + reach for reach in after]
    if config.brightness == "free":
        return max(*reach_before, *reach_after)
    # Brightness is averaged over the residuals around, and interpolated with one more.
    return BRIGHTNESS_REACH + 1 + max(residual_reach())
