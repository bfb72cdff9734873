"""Whole scenes in tiles: the same as in one piece, the same draws everywhere, nodata kept where it was."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import CubeMeta, Radiometry, Survey, create_cube, open_cube
from pdenet_cli.errors import ResourceError
from pdenet_cli.inference import Layer, Posterior, super_resolve
from pdenet_cli.models import Model, ModelSpec
from pdenet_cli.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.summaries import MAPS, MEAN
from pdenet_cli.tiling import Plan


def make_model(scale=4, stages=1, kind=PDENet, **config):
    """A small network with weights large enough for its samples to differ."""
    torch.manual_seed(3)
    chosen = dataclasses.replace(CONFIGS["tiny"], scale=scale, stages=stages, units=2, mask_start=0.6, **config)
    network = kind(chosen)
    spec = ModelSpec("pdenet", dataclasses.asdict(chosen), scale, {}, "test")
    return Model(spec, network, "test")


def scene(folder, bands=6, rows=19, columns=14, holes=False, dtype="f4"):
    rng = np.random.default_rng(5)
    pixels = rng.random((bands, rows, columns)).astype(dtype)
    meta = CubeMeta(bands, rows, columns, np.dtype(dtype), nodata=-1.0 if holes else None)
    if holes:
        pixels[:, 2:5, 3:9] = -1
        pixels[1, 10, 10] = -1
    path = folder / "scene.hdr"
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels)
    return path, pixels


def run(path, folder, posterior, tile, depth, halo=None, usable=None):
    """Mean, std and share of a scene, cut as told, as arrays."""
    network = posterior.network
    with open_cube(path) as source:
        found = Survey.of(source)
        radiometry = Radiometry.of(source.meta, found, (0, 1))
        usable = tuple(usable or found.usable_bands(source.meta))
        reach = network.halo if halo is None else halo
        plan = Plan(source.meta.window, network.scale, usable, reach, network.band_halo, tile, depth)
        fine = dataclasses.replace(source.meta.upscaled(network.scale), dtype=np.dtype("f4"))
        flat = dataclasses.replace(fine, bands=1)
        names = {"mean": fine, "std": fine, "share": fine, "std_merged": flat, "share_merged": flat}
        outputs = {}
        for name, meta in names.items():
            with create_cube(folder / f"{name}.hdr", meta, overwrite=True) as cube:
                outputs[name] = cube
        cubes = {name: open_cube(folder / f"{name}.hdr") for name in names}
        layers = [Layer(MEAN, cubes["mean"])]
        layers += [Layer(MAPS[m], cubes[m], cubes[f"{m}_merged"]) for m in ("std", "share")]
        for _ in super_resolve(source, posterior, plan, radiometry, usable, layers):
            pass
    return {name: cube.read() for name, cube in cubes.items()}


@pytest.fixture(scope="module")
def posteriors():
    return {(s, t): Posterior(make_model(s, t), samples=3, seed=1) for s, t in ((2, 1), (4, 1), (4, 2), (8, 1))}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.sampled_from([(2, 1), (4, 1), (4, 2), (8, 1)]),
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    bands=st.integers(1, 12),
    tile=st.integers(3, 20),
    depth=st.integers(1, 12),
)
def test_tiles_give_what_the_whole_scene_gives(
    which, rows, columns, bands, tile, depth, posteriors, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("tiles")
    path, _ = scene(folder, bands, rows, columns)
    posterior = posteriors[which]
    whole = run(path, folder, posterior, 1000, 1000)
    cut = run(path, folder, posterior, tile, depth)
    for name in ("mean", "std", "std_merged"):
        np.testing.assert_allclose(cut[name], whole[name], atol=1e-5, err_msg=name)
    # `share` counts rounded values, so a difference in the last bit may move a sample over a rounding edge.
    assert (np.abs(cut["share"] - whole["share"]) > 1e-3).mean() < 2e-3


def test_the_whole_scene_gives_what_the_network_gives(tmp_path, posteriors):
    posterior = posteriors[4, 2]
    path, pixels = scene(tmp_path)
    maps = run(path, tmp_path, posterior, 1000, 1000)
    with torch.no_grad():
        low = torch.from_numpy(pixels)[None]
        each = torch.cat([posterior.network(low, posterior.draw[n]) for n in range(3)]).numpy()
    np.testing.assert_allclose(maps["mean"], each.mean(0).clip(0, None), atol=1e-5)
    np.testing.assert_allclose(maps["std"], each.std(0, ddof=1), atol=1e-5)
    merged = np.sqrt((each.std(0, ddof=1) ** 2).mean(0, keepdims=True))
    np.testing.assert_allclose(maps["std_merged"], merged, atol=1e-5)
    assert maps["std"].mean() > 1e-4  # the samples do differ


def test_a_halo_too_small_is_not_exact(tmp_path, posteriors):
    path, _ = scene(tmp_path, rows=40, columns=40)
    whole = run(path, tmp_path, posteriors[4, 1], 1000, 1000)
    cut = run(path, tmp_path, posteriors[4, 1], 10, 1000, halo=0)
    assert np.abs(cut["mean"] - whole["mean"]).max() > 1e-4


def test_more_draws_begin_with_the_fewer_and_a_seed_means_the_same_everywhere():
    model = make_model()
    ten, twenty = Posterior(model, 10, seed=7), Posterior(model, 20, seed=7)
    torch.testing.assert_close(twenty.draw.masks[:10], ten.draw.masks, rtol=0, atol=0)
    assert not torch.equal(Posterior(model, 10, seed=8).draw.masks, ten.draw.masks)


def test_a_batch_of_draws_is_a_loop_of_single_ones(tmp_path):
    alone, together = (Posterior(make_model(), 4, seed=2) for _ in range(2))
    together.at_once = 3
    path, _ = scene(tmp_path)
    one, many = (run(path, tmp_path, p, 9, 4) for p in (alone, together))
    np.testing.assert_allclose(one["mean"], many["mean"], atol=1e-6)
    np.testing.assert_allclose(one["std"], many["std"], atol=1e-6)


def test_a_network_without_randomness_has_one_sample():
    assert len(Posterior(make_model(kind=TemplateNet), 8)) == 1


def test_nodata_stays_nodata_and_nothing_else_becomes_it(tmp_path, posteriors):
    posterior = posteriors[4, 1]
    path, pixels = scene(tmp_path, holes=True)
    maps = run(path, tmp_path, posterior, 7, 3)
    hole = (pixels == -1).repeat(4, 1).repeat(4, 2)
    np.testing.assert_array_equal(maps["mean"] == -1, hole)
    np.testing.assert_array_equal(np.isnan(maps["std"]), hole)
    np.testing.assert_array_equal(np.isnan(maps["std_merged"]), hole.all(0, keepdims=True))


def test_nodata_does_not_bleed_beyond_the_reach(tmp_path, posteriors):
    posterior = posteriors[4, 1]
    reach = posterior.network.halo
    path, pixels = scene(tmp_path, rows=40, columns=40)
    clean = run(path, tmp_path, posterior, 1000, 1000)["mean"]
    with open_cube(path) as cube:
        spoiled = pixels.copy()
        spoiled[:, 20, 20] = np.nan
        cube.write(cube.meta.window, spoiled)
        filled = Survey.of(cube).means  # the hole moves the means, which fill only the hole
    assert np.isfinite(filled).all()
    holed = run(path, tmp_path, posterior, 1000, 1000)["mean"]
    moved = np.argwhere(np.abs(holed - clean).max(0) > 1e-7)
    assert moved.min() >= 4 * (20 - reach)
    assert moved.max() < 4 * (20 + reach + 1)


def test_unusable_bands_come_out_as_nodata_and_the_network_never_sees_them(tmp_path, posteriors):
    posterior = posteriors[4, 1]
    path, pixels = scene(tmp_path, bands=7)
    usable = (0, 2, 3, 6)
    maps = run(path, tmp_path, posterior, 8, 2, usable=usable)
    for band in range(7):
        assert np.isnan(maps["mean"][band]).all() == (band not in usable)
    with torch.no_grad():
        low = torch.from_numpy(pixels[list(usable)])[None]
        each = torch.cat([posterior.network(low, posterior.draw[n]) for n in range(3)]).numpy()
    np.testing.assert_allclose(maps["mean"][list(usable)], each.mean(0).clip(0, None), atol=1e-5)


def test_running_out_of_memory_halves_the_batch_then_the_tile_and_says_so(tmp_path, posteriors, monkeypatch):
    path, _ = scene(tmp_path, rows=32, columns=32)
    whole = run(path, tmp_path, posteriors[4, 1], 1000, 1000)["mean"]
    posterior = Posterior(make_model(4, 1), samples=3, seed=1)
    posterior.at_once = 2
    really, said = posterior.samples, []

    def limited(low, bands, crop):
        if posterior.at_once > 1 or crop.rows > 20 * 4:
            raise torch.OutOfMemoryError("no more")
        return really(low, bands, crop)

    monkeypatch.setattr(posterior, "samples", limited)
    with open_cube(path) as source:
        radiometry = Radiometry.of(source.meta, Survey.of(source), (0, 1))
        network = posterior.network
        plan = Plan(source.meta.window, 4, tuple(range(6)), network.halo, network.band_halo, 1000, 6)
        fine = source.meta.upscaled(4)
        with create_cube(tmp_path / "out.hdr", fine) as cube:
            layers = [Layer(MEAN, cube)]
            list(super_resolve(source, posterior, plan, radiometry, range(6), layers, say=said.append))
        np.testing.assert_allclose(open_cube(tmp_path / "out.hdr").read(), whole, atol=1e-5)
        assert [line for line in said if "1 samples at once" in line]
        assert [line for line in said if "tiles of 16" in line]
        monkeypatch.setattr(posterior, "samples", lambda *_: (_ for _ in ()).throw(MemoryError("never")))
        with (
            pytest.raises(ResourceError, match="even with a tile"),
            create_cube(tmp_path / "no.hdr", fine) as cube,
        ):
            list(super_resolve(source, posterior, plan, radiometry, range(6), [Layer(MEAN, cube)]))
