"""Whole scenes in tiles: the same as in one piece, the same draws everywhere, nodata kept where it was."""

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import Cube, CubeMeta, Radiometry, Survey, Window, create_cube, open_cube
from pdenet_cli.degradation import Degradation, bicubic_down
from pdenet_cli.errors import ResourceError, UsageError
from pdenet_cli.models.model import Model, open_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.sampling.posterior import Posterior
from pdenet_cli.sampling.run import Layer, super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.sampling.tile import ObservedTile
from pdenet_cli.scene.reading import Reading
from pdenet_cli.uncertainty.evidence import enlarged, roughness
from pdenet_cli.uncertainty.summaries import MAPS, MEAN, Question
from tests.cubes import rewritten, written
from tests.error_nets import error_net


def cut_scene(source, posterior, reading, tile, depth, summaries=(MEAN,)):
    """The pass over a scene in tiles of this side and runs of so many bands."""
    return ScenePass.prepare(source, posterior, summaries, reading).with_tiling({"tile": tile, "depth": depth})


def make_model(scale=4, stages=1, kind=PDENet, **config):
    """A small network with weights large enough for its samples to differ."""
    torch.manual_seed(3)
    chosen = dataclasses.replace(CONFIGS["tiny"], scale=scale, stages=stages, units=2, mask_start=0.6, **config)
    network = kind(chosen)
    spec = ModelSpec("pdenet", dataclasses.asdict(chosen), scale, {}, "test")
    return Model(spec, network, "test", errors=error_net())


def scene(folder, bands=6, rows=19, columns=14, holes=False, dtype="f4"):
    rng = np.random.default_rng(5)
    pixels = rng.random((bands, rows, columns)).astype(dtype)
    meta = CubeMeta(bands, rows, columns, np.dtype(dtype), nodata=-1.0 if holes else None)
    if holes:
        pixels[:, 2:5, 3:9] = -1
        pixels[1:2, 10:11, 10:11] = -1
    path = folder / "scene.hdr"
    with create_cube(path, meta, overwrite=True) as cube:
        cube.write(meta.window, pixels)
    return path, pixels


class Doubled:
    """A calibration that anybody can check: twice the std, wider where the input varies."""

    def half_width(self, evidence, level):
        return level * (2 * evidence.std + evidence.roughness)

    def beyond(self, evidence, tolerance):
        return np.minimum(1, self.half_width(evidence, 1) / np.float32(100 * tolerance))


QUESTION = Question(grey_levels=200, level=0.8, tolerance=0.05, calibration=Doubled())


def run(
    path, folder, posterior, tile, depth, halo=None, usable=None, maps=("std", "share"), constant=(), given=(0, 1)
):
    """The mean and some maps of a scene, cut as told, as arrays."""
    network = posterior.network
    with open_cube(path) as source, ExitStack() as stack:
        found = Survey.of(source)
        radiometry = Radiometry.of(source.meta, found, given)
        usable = tuple(usable or found.usable_bands(source.meta))
        summaries = [summary for name in maps for summary in MAPS[name]]
        reading = Reading(found, usable, tuple(constant), radiometry)
        prepared = ScenePass.prepare(source, posterior, summaries, reading, Limits(halo=halo))
        cut = prepared.with_tiling({"tile": tile, "depth": depth})
        fine = dataclasses.replace(source.meta.upscaled(network.scale), dtype=np.dtype("f4"))
        mapped = dataclasses.replace(fine, nodata=float("nan"))
        names = {"mean": fine}
        names |= {summary.name: mapped for summary in summaries if summary.compute}
        names |= {f"{summary.name}_merged": dataclasses.replace(mapped, bands=1) for summary in summaries}
        made = {name: create_cube(folder / f"{name}.hdr", meta, overwrite=True) for name, meta in names.items()}
        cubes = {name: stack.enter_context(cube) for name, cube in made.items()}
        layers = [Layer(MEAN, cubes["mean"])]
        layers += [Layer(s, cubes.get(s.name), cubes[f"{s.name}_merged"]) for s in summaries]
        for _ in super_resolve(cut, layers, question=QUESTION):
            pass
        return {name: cube.read() for name, cube in cubes.items()}


@pytest.fixture(scope="module")
def posteriors():
    return {
        (scale, stages, ensemble): Posterior(make_model(scale, stages), samples=3, seed=1, ensemble=ensemble)
        for scale, stages in ((2, 1), (4, 1), (4, 2), (8, 1))
        for ensemble in ("masks", "flips")
    }


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.sampled_from([(2, 1), (4, 1), (4, 2), (8, 1)]),
    rows=st.integers(1, 26),
    columns=st.integers(1, 26),
    bands=st.integers(1, 12),
    tile=st.integers(4, 20),
    depth=st.integers(1, 12),
    ensemble=st.sampled_from(["masks", "flips"]),
    holes=st.booleans(),
)
def test_tiles_give_what_the_whole_scene_gives(
    which, rows, columns, bands, tile, depth, ensemble, holes, posteriors, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("tiles")
    path, _ = scene(folder, bands, rows, columns, holes)
    posterior = posteriors[*which, ensemble]
    whole = run(path, folder, posterior, 1000, 1000, maps=MAPS)
    cut = run(path, folder, posterior, tile, depth, maps=MAPS)
    for name in whole:
        if name == "share":
            # It counts rounded values: a difference in the last bit may move a sample over a rounding edge.
            assert (np.abs(cut[name] - whole[name]) > 1e-3).mean() < 2e-3
        elif name != "share_merged":
            # In percent and in degrees a difference of 1e-5 is a hundred times as much; cv divides by 1/255 too.
            kind = name.split("_")[0]
            atol = {"cv": 1e-2, "angle": 1e-3, "risk": 1e-3, "error": 1e-4}.get(kind, 1e-5)
            # Errors depend on the logarithm of std, of which rounding is all that is left where samples agree.
            rtol = {"cv": 1e-4, "error": 1e-2}.get(kind, 1e-7)
            np.testing.assert_allclose(cut[name], whole[name], rtol, atol, err_msg=name)


def test_the_whole_scene_gives_what_the_network_gives(tmp_path, posteriors):
    posterior = posteriors[4, 2, "masks"]
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


def test_a_hole_at_a_seam_is_filled_as_in_the_whole_scene(tmp_path):
    path, pixels = scene(tmp_path, rows=18, columns=18, holes=True)
    pixels[:, :, 9:12] = -1  # in its middle it is like both of its edges, one of them four pixels from the tile
    rewritten(path, pixels)
    posterior = Posterior(open_model("bicubic", 2), 1)
    whole, cut = (run(path, tmp_path, posterior, tile, 6, maps=())["mean"] for tile in (1000, 9))
    np.testing.assert_allclose(cut, whole, atol=1e-6)


def test_a_halo_too_small_is_not_exact(tmp_path, posteriors):
    path, _ = scene(tmp_path, rows=40, columns=40)
    whole = run(path, tmp_path, posteriors[4, 1, "masks"], 1000, 1000)
    cut = run(path, tmp_path, posteriors[4, 1, "masks"], 10, 1000, halo=0)
    assert np.abs(cut["mean"] - whole["mean"]).max() > 1e-4


def test_more_draws_begin_with_the_fewer_and_a_seed_means_the_same_everywhere():
    model = make_model()
    ten, twenty = Posterior(model, 10, seed=7), Posterior(model, 20, seed=7)
    torch.testing.assert_close(twenty.draw.masks[:10], ten.draw.masks, rtol=0, atol=0)
    assert not torch.equal(Posterior(model, 10, seed=8).draw.masks, ten.draw.masks)


def test_numbers_of_numpy_are_numbers_and_no_sample_is_none():
    model = make_model()
    same = (Posterior(model, count, seed).draw.masks for count, seed in ((3, 7), (np.int64(3), np.int64(7))))
    torch.testing.assert_close(*same)
    with pytest.raises(UsageError, match="at least 1"):
        Posterior(model, 0)


def test_a_batch_of_draws_is_a_loop_of_single_ones(tmp_path, monkeypatch):
    posterior = Posterior(make_model(), 4, seed=2)
    path, _ = scene(tmp_path)
    one = run(path, tmp_path, posterior, 9, 4)
    monkeypatch.setattr(ScenePass, "most_at_once", 3)
    many = run(path, tmp_path, posterior, 9, 4)
    np.testing.assert_allclose(one["mean"], many["mean"], atol=1e-6)
    np.testing.assert_allclose(one["std"], many["std"], atol=1e-6)


@pytest.mark.parametrize(("ensemble", "most"), [("masks", 20), ("flips", 3)])
def test_a_gpu_gets_large_tiles_first_and_then_as_many_samples_at_once_as_fit(ensemble, most):
    posterior = Posterior(make_model(), 20, ensemble=ensemble)
    low = np.zeros((30, 64, 64), np.float32)
    cube = Cube(Path("none"), CubeMeta(*low.shape, low.dtype), low)

    def prepared(memory):
        return ScenePass.prepare(cube, posterior, (MEAN,), Reading.of_unit(30), Limits(memory=memory))

    assert prepared(1 << 50).most_at_once == 1
    posterior.device = torch.device("cuda")  # which is only asked for its kind here
    large = prepared(1 << 50)
    alone, two = (large.sampler.bytes_for(large.plan, at_once) for at_once in (1, 2))
    for memory, at_once in ((alone, 1), (two + 1, 2), (1 << 50, most)):
        made = prepared(memory)
        assert (len(made.plan.tiles), len(made.plan.spans)) == (1, 1)
        assert made.most_at_once == at_once


def test_samples_are_made_where_the_network_is_and_only_what_is_asked_for_comes_back(monkeypatch):
    model = make_model()
    model.network.to("meta")  # a device like a GPU, that refuses tensors from elsewhere
    posterior = Posterior(model, 5, ensemble="flips")
    brought = []

    def cpu(tensor):
        brought.append((tensor.device.type, *tensor.shape))
        return torch.full(tensor.shape, float(len(brought)))

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    samples = posterior.samples(np.ones((4, 9, 7), np.float32), slice(1, 3), Window(4, 8, 20, 12), at_once=2)
    assert brought == [("meta", 1, 2, 20, 12)] * 5
    assert samples[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_network_without_randomness_has_one_sample_or_one_for_each_symmetry():
    model = make_model(kind=TemplateNet)
    assert len(Posterior(model, 8)) == 1
    assert len(Posterior(model, 5, ensemble="flips")) == 5
    flips = Posterior(model, 20, ensemble="flips")
    low = np.random.default_rng(0).random((4, 9, 7), dtype=np.float32)
    each = flips.samples(low, slice(0, 4), Window(0, 0, 36, 28))
    assert len(each) == 8
    apart = [np.abs(one - other).max() for i, one in enumerate(each) for other in each[:i]]
    assert min(apart) > 1e-4
    assert len(Posterior(open_model("bicubic", 4), 8, ensemble="flips")) == 1  # to which turned is the same


def test_flips_show_a_draw_the_turned_scene_and_turn_its_answer_back():
    model = make_model()
    masks, flips = Posterior(model, 11, seed=4), Posterior(model, 11, seed=4, ensemble="flips")
    low = np.random.default_rng(0).random((4, 9, 7), dtype=np.float32)
    crop = Window(3, 5, 20, 12)
    got = flips.samples(low, slice(1, 3), crop)
    for n in range(11):
        view = low[:, :, ::-1] if n % 8 >= 4 else low
        view = np.ascontiguousarray(np.rot90(view, n % 4, (1, 2)))
        with torch.no_grad():
            high = masks.network(torch.from_numpy(view)[None], masks.draw[n])[0].numpy()
        high = np.rot90(high, -(n % 4), (1, 2))
        high = high[:, :, ::-1] if n % 8 >= 4 else high
        np.testing.assert_allclose(got[n], high[1:3, *crop.slices], atol=1e-6)


def test_consistency_is_what_the_degraded_mean_leaves_of_the_input(tmp_path, posteriors):
    path, pixels = scene(tmp_path)
    posterior = posteriors[4, 1, "masks"]
    maps = run(path, tmp_path, posterior, 8, 2, maps=["consistency"])
    middle = posterior.samples(pixels, slice(0, 6), Window(0, 0, 76, 56)).mean(0)
    left = np.abs(pixels - bicubic_down(torch.from_numpy(middle), 4).numpy())
    np.testing.assert_allclose(maps["consistency"], left.repeat(4, 1).repeat(4, 2), atol=1e-5)
    merged = np.sqrt((left**2).mean(0))
    np.testing.assert_allclose(maps["consistency_merged"][0], merged.repeat(4, 0).repeat(4, 1), atol=1e-5)
    assert left.max() > 1e-3


@pytest.mark.parametrize(("kernel", "fwhm", "reach"), [("gaussian", 1.7, 3), ("area", 0.9, 2), ("area", None, 0)])
def test_consistency_is_exact_at_seams_with_any_kernel_and_an_odd_scale(tmp_path, kernel, fwhm, reach):
    model = make_model(scale=3)
    degradation = Degradation(3, kernel, fwhm)
    blurred = dataclasses.replace(model.spec, degradation=degradation.to_dict())
    posterior = Posterior(dataclasses.replace(model, spec=blurred), 2)
    assert posterior.degradation.reach == reach
    path, pixels = scene(tmp_path, rows=25)
    whole, cut = (run(path, tmp_path, posterior, tile, 6, maps=["consistency"]) for tile in (1000, 5))
    np.testing.assert_allclose(cut["consistency"], whole["consistency"], atol=1e-5)
    middle = posterior.samples(pixels, slice(0, 6), Window(0, 0, 75, 42)).mean(0)
    left = np.abs(pixels - degradation(torch.from_numpy(middle)).numpy())
    np.testing.assert_allclose(whole["consistency"], left.repeat(3, 1).repeat(3, 2), atol=1e-5)


def test_noise_that_a_model_has_learned_is_none_of_the_consistency(tmp_path, posteriors):
    model = make_model()
    noisy = dataclasses.replace(model.spec, degradation={"scale": 4, "noise": 0.1})
    path, _ = scene(tmp_path)
    told, plain = (
        run(path, tmp_path, posterior, 1000, 6, maps=["consistency"])["consistency"]
        for posterior in (Posterior(dataclasses.replace(model, spec=noisy), 3, seed=1), posteriors[4, 1, "masks"])
    )
    np.testing.assert_allclose(told, plain, atol=1e-5)


def test_the_angle_is_that_of_whole_spectra_however_bands_are_cut(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    path, pixels = scene(tmp_path, bands=7)
    angle = run(path, tmp_path, posterior, 1000, 2, maps=["angle"])["angle_merged"][0]
    each = posterior.samples(pixels, slice(0, 7), Window(0, 0, 76, 56)).astype(np.float64)
    unit = each / np.linalg.norm(each, axis=1, keepdims=True)
    middle = each.mean(0) / np.linalg.norm(each.mean(0), axis=0)
    half = np.linalg.norm(unit - middle, axis=1) / 2  # of the chord
    np.testing.assert_allclose(angle, np.degrees(2 * np.arcsin(half)).mean(0), atol=1e-4)
    assert angle.mean() > 0.01


def test_intervals_and_risk_are_in_the_files_numbers(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    path, pixels = scene(tmp_path, holes=True)
    maps = run(path, tmp_path, posterior, 7, 3, maps=["interval", "std", "risk"])
    hole = (pixels == -1).repeat(4, 1).repeat(4, 2)
    for name in ("interval_low", "interval_high", "risk"):
        np.testing.assert_array_equal(np.isnan(maps[name]), hole)
    assert maps["interval_low"][~hole].min() == 0  # as low as the scene's own numbers go, like the mean
    free = ~hole & (np.nan_to_num(maps["interval_low"]) > 0)
    half = (maps["interval_high"] - maps["interval_low"])[free] / 2
    assert (half >= 0.8 * 2 * maps["std"][free] - 1e-5).all()
    np.testing.assert_allclose(maps["risk"][free], np.minimum(100, 100 * half / 0.8 / 5), atol=1e-3)


@pytest.mark.parametrize("depth", [2, 5])
def test_every_band_is_in_the_numbers_of_its_own_gain(tmp_path, posteriors, depth):
    posterior, wishes = posteriors[2, 1, "masks"], ("std", "interval", "consistency")
    path, plain = scene(tmp_path, bands=5, rows=9, columns=8)
    gains = np.array([0.0008, 0.0008, -0.001, 0.0009, 0.0007])
    offsets = np.array([0.0, 0.0, 0.8, 0.0, 0.2])
    gain, offset = gains[:, None, None], offsets[:, None, None]
    packed = written(
        tmp_path / "packed.hdr", ((plain - offset) / gain).astype("f4"), gains=tuple(gains), offsets=tuple(offsets)
    )
    options = dict(usable=(0, 2, 3, 4), maps=wishes, given=None)
    wanted, got = (run(each, tmp_path, posterior, 5, depth, **options) for each in (path, packed))
    seen = [0, 2, 3, 4]
    ends = {1: ("interval_low", "interval_high"), -1: ("interval_high", "interval_low")}
    for band in seen:
        own = ends[int(np.sign(gains[band]))]
        for name, other in (("mean", "mean"), ("interval_low", own[0]), ("interval_high", own[1])):
            unit = (got[other][band] * gains[band] + offsets[band]).clip(0)  # as low as the plain numbers go
            np.testing.assert_allclose(unit, wanted[name][band], atol=2e-4, err_msg=name)
        for name in ("std", "consistency"):
            np.testing.assert_allclose(got[name][band] * abs(gains[band]), wanted[name][band], atol=2e-5)


def test_a_tolerance_is_measured_with_the_gain_of_its_band():
    low = np.zeros((2, 3, 3), np.float32)
    cube = Cube(Path("none"), CubeMeta(*low.shape, low.dtype), low)
    radiometry = Radiometry((0.1, 0.001), (0.0, 0.0), "by hand", fill=(0.0, 0.0))
    posterior = Posterior(make_model(), 2)
    reading = dataclasses.replace(Reading.of_unit(2), radiometry=radiometry)
    cut = cut_scene(cube, posterior, reading, 9, 2)
    evidence, _ = ObservedTile(cut, cut.plan.tiles[0]).evidence(cut.plan.spans[0])
    np.testing.assert_allclose(np.ravel(evidence.gain), (0.1, 0.001), rtol=1e-6)


def test_the_detail_of_a_tile_looks_beyond_its_edge(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    path, pixels = scene(tmp_path, rows=12, columns=12)
    whole = enlarged(roughness(pixels), 4)
    with open_cube(path) as cube:
        cut = cut_scene(cube, posterior, Reading.of(cube, None, (0, 1)), 5, 6)
        for tile in cut.plan.tiles:
            evidence, _ = ObservedTile(cut, tile).evidence(cut.plan.spans[0])
            wanted = whole[:, *tile.target.slices]
            np.testing.assert_allclose(evidence.roughness, wanted, atol=1e-6)
            np.testing.assert_array_equal(evidence.low, pixels[:, *tile.core.slices])


def test_nodata_stays_nodata_and_nothing_else_becomes_it(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    path, pixels = scene(tmp_path, holes=True)
    maps = run(path, tmp_path, posterior, 7, 3)
    hole = (pixels == -1).repeat(4, 1).repeat(4, 2)
    np.testing.assert_array_equal(maps["mean"] == -1, hole)
    np.testing.assert_array_equal(np.isnan(maps["std"]), hole)
    np.testing.assert_array_equal(np.isnan(maps["std_merged"]), hole.all(0, keepdims=True))


def test_nodata_does_not_bleed_beyond_the_reach(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    reach = posterior.network.halo
    path, pixels = scene(tmp_path, rows=40, columns=40)
    clean = run(path, tmp_path, posterior, 1000, 1000)["mean"]
    spoiled = pixels.copy()
    spoiled[:, 20, 20] = np.nan
    rewritten(path, spoiled)
    with open_cube(path) as cube:
        filled = Survey.of(cube).means  # the hole moves the means, which fill only the hole
    assert np.isfinite(filled).all()
    holed = run(path, tmp_path, posterior, 1000, 1000)["mean"]
    moved = np.argwhere(np.abs(holed - clean).max(0) > 1e-7)
    assert moved.min() >= 4 * (20 - reach)
    assert moved.max() < 4 * (20 + reach + 1)


def test_unusable_bands_come_out_as_nodata_and_the_network_never_sees_them(tmp_path, posteriors):
    posterior = posteriors[4, 1, "masks"]
    path, pixels = scene(tmp_path, bands=7)
    usable = (0, 2, 3, 6)
    maps = run(path, tmp_path, posterior, 8, 2, usable=usable)
    for band in range(7):
        for name in ("mean", "std"):
            assert np.isnan(maps[name][band]).all() == (band not in usable)
    with torch.no_grad():
        low = torch.from_numpy(pixels[list(usable)])[None]
        each = torch.cat([posterior.network(low, posterior.draw[n]) for n in range(3)]).numpy()
    np.testing.assert_allclose(maps["mean"][list(usable)], each.mean(0).clip(0, None), atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_constant_bands_keep_their_number_and_the_network_never_sees_them(tmp_path, posteriors, depth):
    posterior = posteriors[4, 1, "flips"]
    path, pixels = scene(tmp_path, bands=7, holes=True)
    pixels[[0, 3, 6]] = np.float32([0, 0.25, 0])[:, None, None]
    pixels[3, 2, 3] = -1
    rewritten(path, pixels)
    usable, constant = (1, 2, 4), (0, 3, 6)  # band 5 is neither
    maps = run(path, tmp_path, posterior, 8, depth, usable=usable, constant=constant, maps=("std", "interval"))
    without = run(path, tmp_path, posterior, 8, depth, usable=usable, maps=("std", "interval"))
    for name in ("mean", "std", "interval_low", "interval_high"):
        np.testing.assert_array_equal(maps[name][[*usable, 5]], without[name][[*usable, 5]])
        np.testing.assert_array_equal(maps[name][3, 8:12, 12:16], np.nan if name != "mean" else -1)
        for band in constant:
            there = np.kron(pixels[band] != -1, np.ones((4, 4))) > 0
            assert (maps[name][band][there] == (0 if name == "std" else pixels[band, 0, 0])).all()
    np.testing.assert_array_equal(maps["std_merged"], without["std_merged"])


@pytest.mark.parametrize("dtype", ["i4", "f8", "f4"])
def test_constant_bands_are_kept_to_the_last_digit(tmp_path, dtype):
    number = {"i4": 123456789, "f8": 1 / 3, "f4": np.float32(0.1)}[dtype]
    pixels = np.full((2, 5, 4), number, dtype)
    pixels[0] = np.arange(20).reshape(5, 4)
    path = written(tmp_path / "scene.hdr", pixels)
    posterior = Posterior(make_model(), samples=7, ensemble="flips")
    with open_cube(path) as source, create_cube(tmp_path / "out.hdr", source.meta.upscaled(4)) as fine:
        list(super_resolve(cut_scene(source, posterior, Reading.of(source, None), 3, 1), [Layer(MEAN, fine)]))
        assert (fine.read(bands=[1]) == pixels[1, 0, 0]).all()
        assert fine.read(bands=[0]).any()


def test_constant_bands_are_read_once_for_all_layers_of_a_tile(tmp_path, monkeypatch):
    pixels = np.full((6, 5, 4), 7, np.float32)
    pixels[0] = np.arange(20).reshape(5, 4)
    posterior = Posterior(make_model(), samples=2)
    with open_cube(written(tmp_path / "scene.hdr", pixels)) as source:
        cut = cut_scene(source, posterior, Reading.of(source, None), 3, 1)
        fine = source.meta.upscaled(4)
        cubes = [Cube(tmp_path, fine, np.zeros(fine.shape(), fine.dtype)) for _ in range(2)]
        layers = [Layer(MEAN, cubes[0]), Layer(MAPS["std"][0], cubes[1])]
        read, asked = Cube.read, []

        def counted(self, window=None, bands=None):
            asked.append(bands)
            return read(self, window, bands)  # which asks for the run of bands that holds a list

        monkeypatch.setattr(Cube, "read", counted)
        list(super_resolve(cut, layers))
        assert len(cut.plan.tiles) == 4
        # The network's bands, and the others, of each tile.
        assert [bands for bands in asked if not isinstance(bands, slice)] == [[0], (1, 2, 3, 4, 5)] * 4
        for cube, number in zip(cubes, (7, 0), strict=True):
            assert (read(cube, bands=slice(1, 6)) == number).all()


def test_tiles_stay_as_large_as_they_are_where_fewer_samples_at_once_suffice(tmp_path, monkeypatch):
    path, _ = scene(tmp_path, rows=26, columns=51)
    posterior = Posterior(make_model(4, 1), samples=3, seed=1)
    monkeypatch.setattr(ScenePass, "most_at_once", 2)
    really, sizes = posterior.samples, []

    def limited(low, bands, crop, at_once):
        if at_once > 1 and sizes:
            raise torch.OutOfMemoryError("no more")
        sizes.append(crop.pixels // 4**2)
        return really(low, bands, crop)

    monkeypatch.setattr(posterior, "samples", limited)
    with open_cube(path) as source, create_cube(tmp_path / "out.hdr", source.meta.upscaled(4)) as cube:
        cut = cut_scene(source, posterior, Reading.of(source, None, (0, 1)), 17, 6)
        list(super_resolve(cut, [Layer(MEAN, cube)]))
    assert sizes == [tile.core.pixels for tile in cut.plan.tiles]


def test_running_out_of_memory_halves_the_batch_then_the_tile_and_says_so(tmp_path, posteriors, monkeypatch):
    path, _ = scene(tmp_path, rows=32, columns=32)
    whole = run(path, tmp_path, posteriors[4, 1, "masks"], 1000, 1000)["mean"]
    posterior = Posterior(make_model(4, 1), samples=3, seed=1)
    monkeypatch.setattr(ScenePass, "most_at_once", 2)
    really, said, most = posterior.samples, [], 20 * 32

    def limited(low, bands, crop, at_once):
        if at_once > 1 or crop.pixels > most * 4**2:
            raise torch.OutOfMemoryError("no more")
        return really(low, bands, crop)

    monkeypatch.setattr(posterior, "samples", limited)
    with open_cube(path) as source:
        cut = cut_scene(source, posterior, Reading.of(source, None, (0, 1)), 1000, 6)
        fine = source.meta.upscaled(4)
        with create_cube(tmp_path / "out.hdr", fine) as cube:
            layers = [Layer(MEAN, cube)]
            list(super_resolve(cut, layers, say=said.append))
        np.testing.assert_allclose(open_cube(tmp_path / "out.hdr").read(), whole, atol=1e-5)
        assert [line for line in said if "1 samples at once" in line]
        assert [line for line in said if "tiles of 16" in line]
        said.clear()
        monkeypatch.setattr(ScenePass, "most_at_once", 1)
        most = 10 * 16  # half of a tile is as long as the tile
        small = cut.with_tiling({"tile": 16, "depth": 6})
        with create_cube(tmp_path / "again.hdr", fine) as cube:
            layers = [Layer(MEAN, cube)]
            list(super_resolve(small, layers, say=said.append))
        assert len(small.plan.tiles) == 4
        assert said == ["Out of memory: continuing with tiles of 8 x 16 pixels."]  # what fits is found out once
        monkeypatch.setattr(posterior, "samples", lambda *_: (_ for _ in ()).throw(MemoryError("never")))
        with (
            pytest.raises(ResourceError, match="even with a tile"),
            create_cube(tmp_path / "no.hdr", fine) as cube,
        ):
            list(super_resolve(cut, [Layer(MEAN, cube)]))
