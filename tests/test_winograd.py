"""The compiled unit is torch's to the last digits, and torch takes over wherever it cannot be built."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pdenet_cli.models.networks import winograd
from pdenet_cli.models.networks.base import Draw
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet
from tests import plain as tests_plain

COMPILER = (shutil.which("cc") or shutil.which("gcc")) and platform.machine() == "x86_64"
NETWORK = replace(CONFIGS["paper"], stages=2, units=3, width=64, head=32)


@pytest.fixture(scope="module")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, cache_home: Path) -> Iterator[None]:
    """Every test loads the kernel anew, from a cache of its own, and leaves the process as it was."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.delenv("PDENET_KERNEL", raising=False)
    winograd.load_kernel.cache_clear()
    with torch.no_grad():
        yield
    winograd.load_kernel.cache_clear()


@pytest.fixture
def kernel() -> None:
    if not COMPILER:
        pytest.skip("there is no C compiler for this CPU")
    assert winograd.load_kernel() is not None


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def case(bands: int, h: int, w: int, width: int, depth: int, count: int) -> tuple[list[Tensor], list[Tensor]]:
    """Features and weights of one unit."""
    features = [numbers(1, bands, h, w, depth, seed=i) for i in range(count)]
    shapes = [(width, width, 3, 1)] * 2 + [(width, width, 3, 3)] * 2
    weights = [numbers(*shape, seed=9 + i) / (shape[1] * 9) ** 0.5 for i, shape in enumerate(shapes)]
    return features, [numbers(width, count * depth, seed=8) / (count * depth) ** 0.5, *weights]


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv3d(x, weight, padding="same")


def summed(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution (out, in, band, row, column) of (1, in, bands, h, w) as a plain sum, product by product.

    How torch sums depends on the CPU, and with it how exact it is; this does not.
    """
    depth, high, wide = weight.shape[2:]
    bands, rows, columns = x.shape[2:]
    padded = F.pad(x, (wide // 2, wide // 2, high // 2, high // 2, depth // 2, depth // 2))[0]
    out = x.new_zeros(len(weight), bands, rows, columns)
    for i in range(weight.shape[1]):
        for b in range(depth):
            for r in range(high):
                for c in range(wide):
                    tap = padded[i, b : b + bands, r : r + rows, c : c + columns]
                    out += weight[:, i, b, r, c, None, None, None] * tap
    return out[None]


def plain(
    features: list[Tensor], weights: list[Tensor], convolve: Callable[[Tensor, Tensor], Tensor] = convolved
) -> Tensor:
    """The unit as the paper writes it, Conv3d by Conv3d."""
    x = torch.cat(features, dim=-1).movedim(-1, 1)  # (n, channels, bands, h, w)
    compress, *spectral, spatial1, spatial2 = weights
    x = convolve(x, compress[..., None, None, None]).relu()
    for first, second in ([w[..., None] for w in spectral], [w[:, :, None] for w in (spatial1, spatial2)]):
        x = x + convolve(convolve(x, first).relu(), second)
    return x.movedim(1, -1)


def fast(features: list[Tensor], weights: list[Tensor]) -> Tensor:
    result = winograd.unit(features, *weights)
    assert result is not None
    return result


def exact(features: list[Tensor], weights: list[Tensor]) -> Tensor:
    return plain([x.double() for x in features], [w.double() for w in weights])


# (bands, rows, columns), then width, depth and count of the features


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 9), (3, 7, 1), (5, 4, 4), (9, 6, 11), (31, 33, 18)])
@pytest.mark.parametrize("channels", [(16, 16, 1), (32, 7, 3), (48, 48, 2), (64, 64, 5), (128, 32, 1)])
@pytest.mark.usefixtures("kernel")
def test_any_size_and_width_gives_what_torch_gives(
    size: tuple[int, int, int], channels: tuple[int, int, int]
) -> None:
    inputs = case(*size, *channels)
    torch.testing.assert_close(fast(*inputs), exact(*inputs).float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("silent", [(), (2,), (4,), (2, 4)], ids=["all", "spatial", "spectral", "compress"])
@pytest.mark.usefixtures("kernel")
def test_the_rounding_is_within_twice_that_of_a_plain_sum(silent: tuple[int, ...]) -> None:
    features, weights = case(6, 12, 12, 64, 64, 2)
    weights = [w * (i not in silent) for i, w in enumerate(weights)]  # a branch with zero weights adds nothing
    truth = exact(features, weights)
    results = fast(features, weights), plain(features, weights, summed)
    error, usual = ((result - truth).square().mean().sqrt() for result in results)
    assert error <= 2 * usual


@pytest.mark.usefixtures("kernel")
def test_a_batch_is_its_cubes_one_by_one() -> None:
    features, weights = case(3, 6, 7, 32, 16, 2)
    batch = [torch.cat([x, x.flip(2)]) for x in features]
    each = [fast([x[i : i + 1] for x in batch], weights) for i in range(2)]
    assert torch.equal(fast(batch, weights), torch.cat(each))


@pytest.mark.usefixtures("kernel")
def test_threads_change_no_bit() -> None:
    inputs, before = case(5, 20, 20, 32, 32, 2), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(fast(*inputs))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.usefixtures("kernel")
def test_the_network_gives_the_same_with_and_without(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network, low = PDENet(NETWORK), torch.rand(1, 9, 13, 10)
    draw = network.draw(torch.Generator().manual_seed(0)) if masked else None
    with_kernel = network(low, draw)
    monkeypatch.setattr(winograd, "unit", lambda *_: None)
    torch.testing.assert_close(with_kernel, network(low, draw), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("kernel")
def test_the_features_are_left_as_they_were() -> None:
    features, weights = case(3, 5, 5, 32, 32, 2)
    copies = [x.clone() for x in features]
    fast(features, weights)
    assert all(torch.equal(x, y) for x, y in zip(features, copies, strict=True))


@pytest.mark.usefixtures("kernel")
def test_what_the_kernel_cannot_do_is_left_to_torch() -> None:
    features, weights = case(3, 5, 5, 32, 32, 1)
    assert winograd.unit(*[[x.double() for x in features]], *[w.double() for w in weights]) is None
    assert winograd.unit(*case(3, 5, 5, 24, 24, 1)[:1], *case(3, 5, 5, 24, 24, 1)[1]) is None
    with torch.enable_grad():
        assert winograd.unit(features, *weights) is None


@pytest.mark.usefixtures("kernel")
def test_it_is_compiled_once_and_leaves_nothing_else(cache_home: Path) -> None:
    (library,) = (cache_home / "pdenet").iterdir()
    before = library.stat()
    winograd.load_kernel.cache_clear()
    assert winograd.load_kernel() is not None
    assert library.stat() == before


@pytest.fixture
def library(kernel, cache_home: Path) -> Path:
    """The compiled library, for a new start."""
    (library,) = (cache_home / "pdenet").iterdir()
    winograd.load_kernel.cache_clear()
    return library


def written_anew(library: Path, content: bytes) -> None:
    library.unlink()  # which this process may have mapped
    library.write_bytes(content)


@pytest.mark.parametrize("left", [0, 1, 20_000, -1])
def test_a_damaged_library_is_built_again_and_never_loaded(library: Path, left: int) -> None:
    whole = library.read_bytes()
    written_anew(library, whole[:left])
    assert winograd.load_kernel() is not None
    assert library.read_bytes() == whole
    assert len([*library.parent.iterdir()]) == 1


def test_a_library_with_one_byte_changed_is_built_again(library: Path) -> None:
    whole = library.read_bytes()
    written_anew(library, whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    assert winograd.load_kernel() is not None
    assert library.read_bytes() == whole


def link_the_library(library: Path, tmp_path: Path) -> None:
    library.rename(tmp_path / "other.so")
    library.symlink_to(tmp_path / "other.so")


def open_the_library_to_all(library: Path, tmp_path: Path) -> None:
    library.chmod(0o666)


def give_the_library_away(library: Path, tmp_path: Path) -> None:
    os.chown(library, 65534, 65534)


def give_the_folder_away(library: Path, tmp_path: Path) -> None:
    os.chown(library.parent, 65534, 65534)


def link_the_folder_for_somebody(library: Path, tmp_path: Path) -> None:
    library.parent.rename(tmp_path / "other")
    library.parent.symlink_to(tmp_path / "other")
    os.lchown(library.parent, 65534, 65534)


@pytest.mark.parametrize(
    "spoil",
    [
        link_the_library, open_the_library_to_all, give_the_library_away, give_the_folder_away,
        link_the_folder_for_somebody,
    ],
)  # fmt: skip
def test_code_that_others_may_have_written_is_not_loaded(
    spoil, library: Path, tmp_path: Path, monkeypatch
) -> None:
    if ("away" in spoil.__name__ or "somebody" in spoil.__name__) and os.geteuid():
        pytest.skip("needs root, to give files to another user")
    home = tmp_path / "home"
    shutil.copytree(library.parent.parent, home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    spoil(home / "pdenet" / library.name, tmp_path)
    assert winograd.load_kernel() is None


# Gradients


def gradients(network: PDENet, low: Tensor, masks: Tensor | None, form: str) -> dict[str, Tensor]:
    """Of weights, input and masks, for a fixed weighted sum of the output.

    The output is that of the network ("fast") or of its plain form in float64 ("exact").
    """
    dtype = torch.float64 if form == "exact" else torch.float32
    leaves = {name: p.detach().to(dtype).requires_grad_() for name, p in network.named_parameters()}
    leaves["low"] = low.to(dtype).requires_grad_()
    if masks is not None:
        leaves["masks"] = masks.to(dtype).requires_grad_()
    with torch.enable_grad():
        if form == "exact":
            high = tests_plain.forward(network.config, leaves, leaves["low"], leaves.get("masks"))
        else:
            weights = {name: leaf for name, leaf in leaves.items() if name not in ("low", "masks")}
            draw = Draw(leaves["masks"]) if masks is not None else None
            high = torch.func.functional_call(network, weights, (leaves["low"], draw))
        (high * numbers(*high.shape, seed=5).to(high)).sum().backward()
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        ((1, 5, 13, 10), (64, 32)),
        ((2, 3, 6, 9), (32, 16)),
        ((2, 1, 5, 7), (48, 16)),
        ((1, 2, 1, 3), (16, 16)),
        ((1, 9, 4, 26), (32, 32)),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.usefixtures("kernel")
def test_gradients_are_those_of_the_plain_form(
    size: tuple[int, ...], widths: tuple[int, int], masked: bool
) -> None:
    errors: dict[str, list[float]] = {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        network = PDENet(replace(NETWORK, width=widths[0], head=widths[1], units=4))
        masks = torch.rand(size[0], len(torch.cat(network.chances()))) if masked else None
        low = torch.rand(size)
        exact, fast = (gradients(network, low, masks, form) for form in ("exact", "fast"))
        assert set(fast) >= {name for name, gradient in exact.items() if gradient.any()}
        for name, gradient in exact.items():
            errors.setdefault(name, []).append(float((fast[name] - gradient).norm() / gradient.norm()))
    # On one input, rounding may move a value across the kink of a ReLU: a small error, and not on every input.
    for name, found in errors.items():
        assert min(found) < 1e-5, f"{name}: {found}"
        assert max(found) < 2e-2, f"{name}: {found}"


@pytest.mark.usefixtures("kernel")
def test_gradients_come_from_the_kernel_and_repeat_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network, low = PDENet(NETWORK), torch.rand(1, 5, 9, 8)
    calls = []
    run_back = winograd._run_back
    monkeypatch.setattr(winograd, "_run_back", lambda *a, **k: calls.append(1) or run_back(*a, **k))
    first, second = (gradients(network, low, None, "fast") for _ in range(2))
    assert len(calls) == 2 * NETWORK.stages * NETWORK.units
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.usefixtures("kernel")
def test_frozen_weights_get_no_gradient_and_leave_those_of_the_input() -> None:
    torch.manual_seed(0)
    network, low = PDENet(NETWORK).requires_grad_(False), torch.rand(1, 3, 6, 5, requires_grad=True)
    with torch.enable_grad():
        network(low, None).sum().backward()
    assert low.grad is not None
    assert all(p.grad is None for p in network.parameters())


# Without it


def compiler_that(tmp_path: Path, does: str) -> str:
    """A PATH on which `cc` is this shell script."""
    (tmp_path / "cc").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "cc").chmod(0o755)
    return str(tmp_path)


def refuse_to_compile(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setenv("PATH", compiler_that(tmp_path, "exit 1"))
    patch.setenv("XDG_CACHE_HOME", str(tmp_path))


def write_rubbish(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setenv("PATH", compiler_that(tmp_path, 'for last; do :; done; echo rubbish > "$last"'))
    patch.setenv("XDG_CACHE_HOME", str(tmp_path))


def hide_the_compiler(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setenv("PATH", str(tmp_path))


def block_the_cache(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))


def open_the_cache_to_all(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pdenet").mkdir()
    (tmp_path / "pdenet").chmod(0o777)
    patch.setenv("XDG_CACHE_HOME", str(tmp_path))


def switch_it_off(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setenv("PDENET_KERNEL", "off")


def be_another_machine(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setattr(platform, "machine", lambda: "aarch64")


def compute_nonsense(patch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patch.setattr(winograd, "_run", lambda kernel, features, weights: features[0].new_zeros(1, 5, 6, 7, 32))


@pytest.mark.parametrize(
    "spoil",
    [
        refuse_to_compile, write_rubbish, hide_the_compiler, block_the_cache, open_the_cache_to_all,
        switch_it_off, be_another_machine, compute_nonsense,
    ],
)  # fmt: skip
def test_torch_takes_over_silently(
    spoil, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(monkeypatch, tmp_path)
    assert winograd.load_kernel() is None
    torch.manual_seed(0)
    assert PDENet(NETWORK)(torch.rand(1, 3, 5, 4)).isfinite().all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not COMPILER or os.geteuid() == 0, reason="needs a compiler, and a user whom permissions bind")
def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pdenet").mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert winograd.load_kernel() is None
