"""What training sees: scenes and the patches cut from them, how they are varied, and what is never seen."""

import math
import shutil
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise, product

import imagecodecs
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdenet_cli import Window, open_cube
from pdenet_cli.degradation import Degradation
from pdenet_cli.errors import FormatError, ResourceError, UsageError
from pdenet_cli.scene import survey
from pdenet_cli.training import data
from pdenet_cli.training.data import Scene
from pdenet_cli.training.find_cubes import find_cubes
from pdenet_cli.training.patches import Patches, blurred, random_shape, random_square
from pdenet_cli.training.recipe import RECIPES
from pdenet_cli.training.trainer import Trainer, new_network
from pdenet_cli.training.validation import held_out_parts
from tests.cubes import picture, written

# Patches


@given(st.integers(8, 40), st.integers(8, 40), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_patches_stay_inside_the_scene_and_out_of_the_held_out_part(rows, columns, side, whole, seed):
    corner = (rows, columns) if whole else (-(-rows // 2), -(-columns // 2))
    side = min(side, max(min(corner[0], columns), min(rows, corner[1])))
    window = random_square(np.random.default_rng(seed), (rows, columns), corner, side)
    assert window.row >= 0
    assert window.column >= 0
    assert window.bottom <= rows
    assert window.right <= columns
    assert window.bottom <= corner[0] or window.right <= corner[1]


def test_every_allowed_place_is_found():
    places = {random_square(np.random.default_rng(seed), (6, 6), (3, 3), 3) for seed in range(500)}
    assert {(w.row, w.column) for w in places} == {(0, c) for c in range(4)} | {(r, 0) for r in range(4)}


def test_a_patch_depends_on_seed_step_and_index_only(scenes):
    recipe = RECIPES["fast"](4)
    here, there = (Patches(scenes, recipe, 4, seed=3) for _ in range(2))
    for index in range(9):
        here(1, index)
    assert torch.equal(here(7, 2).high, there(7, 2).high)
    assert here(7, 2).generator.initial_seed() == there(7, 2).generator.initial_seed()
    others = [there(7, 3), there(8, 2), Patches(scenes, recipe, 4, seed=4)(7, 2)]
    assert all(
        not torch.equal(here(7, 2).high, other.high)
        for other in others
        if other.high.shape == here(7, 2).high.shape
    )


@pytest.mark.parametrize(("warp", "mosaic"), [(0.0, 0.0), (1.0, 0.0), (0.3, 1.0)])
def test_held_out_pixels_never_reach_a_patch(tmp_path, warp, mosaic):
    pixels = np.zeros((4, 64, 64), "<u2")
    pixels[:, 32:, 32:] = 1000
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", pixels)), (0, 1000))
    assert scene.held_out(4) == Window(32, 32, 32, 32)
    patches = Patches([scene], replace(RECIPES["fast"](4), warp=warp, mosaic=mosaic), 4, seed=0)
    assert max(float(patches(step, 0).high.max()) for step in range(200)) == 0


def test_scenes_too_small_for_a_patch_fill_it_with_several_pieces(drawn):
    ramp = np.linspace(100, 1000, 24)[:, None].repeat(24, 1)
    assert all(patch.shape == (1, 24, 24) for patch in drawn(ramp))
    seams = []
    for patch in drawn(ramp, mosaic=1.0, collage=0.5):
        assert patch.shape == (1, 32, 32)
        assert patch.min() >= 0.0999  # no place is left empty
        seams += [np.abs(np.diff(patch[0], axis=axis)).max(axis=1 - axis).argmax() for axis in (0, 1)]
    assert len(set(seams)) > 10  # pieces meet anywhere
    fits = drawn(np.linspace(100, 1000, 128)[:, None].repeat(128, 1), mosaic=1.0)
    assert max(np.abs(np.diff(patch, axis=axis)).max() for patch in fits for axis in (1, 2)) < 0.01


def test_shapes_are_of_every_size_and_soft_only_on_their_edge():
    shapes = [random_shape(np.random.default_rng(seed), 48) for seed in range(200)]
    covered = [float(s.mean()) for s in shapes]
    assert min(covered) < 0.02
    assert max(covered) > 0.4
    for s in shapes:
        assert 0 <= s.min() <= s.max() <= 1
        edge = np.abs(np.diff(s, axis=1)) + 1e-6 >= (s[:, 1:] > 0) * (s[:, 1:] < 1) * 0.2
        assert edge.mean() > 0.9  # a value between 0 and 1 has a neighbour that is quite another


@pytest.fixture
def drawn(tmp_path):
    """Patches of one band, plain but for the changes."""
    plain = dict(patch=32, gains=(1.0, 1.0), zoom=1.0, collage=0.0)

    def patches(pixels, **changes):
        path = written(tmp_path / f"{len(list(tmp_path.iterdir()))}.hdr", pixels[None].astype("<u2"))
        scene = Scene.read(open_cube(path), (0, 1000))
        drawn = Patches([scene], replace(RECIPES["fast"](4), **plain | changes), 4, seed=0)
        return [drawn(step, 0).high.numpy() for step in range(40)]

    return patches


CHECKS = np.indices((128, 128)).sum(0) % 2 * 1000


def test_wider_windows_become_coarser_patches_and_pasted_shapes_add_edges(drawn):
    ramp = np.linspace(0, 1000, 128)[:, None].repeat(128, 1)
    assert all(patch.std() == pytest.approx(0.5) for patch in drawn(CHECKS))
    zoomed = drawn(CHECKS, zoom=2.0)
    assert all(patch.shape == (1, 32, 32) for patch in zoomed)
    assert min(patch.std() for patch in zoomed) < 0.1

    def step(patch):
        return max(np.abs(np.diff(patch, axis=axis)).max() for axis in (1, 2))

    assert max(map(step, drawn(ramp))) < 0.01
    assert max(map(step, drawn(ramp, collage=1.0))) > 0.2


def test_patches_are_turned_mirrored_and_made_brighter_or_darker(drawn):
    rows, columns = np.mgrid[:128, :128]
    slopes = [np.gradient(patch[0]) for patch in drawn(2 * rows + 5 * columns, gains=(0.5, 2.0))]
    slopes = [(down.mean() * 1000, right.mean() * 1000) for down, right in slopes]
    assert {(abs(down) > abs(right), down > 0, right > 0) for down, right in slopes} == set(
        product((True, False), repeat=3)
    )
    gains = [max(map(abs, slope)) / 5 for slope in slopes]
    assert 0.5 <= min(gains) < 0.7
    assert 1.5 < max(gains) <= 2


def test_patches_of_mostly_holes_are_rare(tmp_path):
    pixels = np.where(np.arange(128) < 64, np.nan, CHECKS / 1000)[None].astype("f4")
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", pixels)), (0, 1))
    patches = Patches([scene], replace(RECIPES["fast"](4), patch=32, zoom=1.0, collage=0.0), 4, seed=0)
    flat = [float(patches(step, 0).high.std()) < 1e-3 for step in range(200)]
    assert np.mean(flat) < 0.35  # of all places, 60 % are as empty


def test_large_scenes_are_seen_more_often_by_the_root_of_their_size(tmp_path):
    scenes = []
    for side, value in ((32, 100), (96, 900)):
        pixels = np.random.default_rng(0).integers(value - 50, value + 50, (1, side, side)).astype("<u2")
        scenes.append(Scene.read(open_cube(written(tmp_path / f"{side}.hdr", pixels)), (0, 1000)))
    patches = Patches(scenes, replace(RECIPES["fast"](4), patch=16, gains=(1.0, 1.0)), 4, seed=0)
    large = np.mean([float(patches(step, 0).high.mean()) > 0.5 for step in range(400)])
    assert large == pytest.approx(0.75, abs=0.07)


@pytest.mark.parametrize(("skipping", "steps"), [(0.0, {1}), (1.0, {2, 3})])
def test_bands_of_a_patch_lie_evenly_and_all_are_seen(tmp_path, skipping, steps):
    number = np.arange(10)[:, None, None] * 10
    pixels = np.random.default_rng(0).integers(1, 5, (10, 40, 40)) + number
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", pixels.astype("<u2"))), (0, 1))
    recipe = replace(RECIPES["fast"](4), patch=16, bands=3, skipping=skipping, gains=(1.0, 1.0))
    patches = Patches([scene], recipe, 4, seed=0)
    runs = [(patches(step, 0).high.mean((1, 2)) // 10).int().tolist() for step in range(150)]
    assert {b - a for run in runs for a, b in pairwise(run)} == steps
    assert {band for run in runs for band in run} == set(range(10))
    assert all(len({b - a for a, b in pairwise(run)}) == 1 for run in runs)


def test_warped_pieces_are_turned_by_any_angle_and_stretched(drawn):
    ramp = np.linspace(0, 1000, 256)[:, None].repeat(256, 1)
    slope = 1 / 255  # of a pixel of the scene
    angles = []
    for patch in drawn(ramp, warp=1.0):
        down, right = np.gradient(patch[0, 12:20, 12:20])
        if max(np.ptp(down), np.ptp(right)) < 0.7 * slope:  # not where the border mirrors the scene
            assert 0.5 * slope < np.hypot(down, right).mean() < 1.45 * slope
            angles.append(math.degrees(math.atan2(down.mean(), right.mean())))
    assert len(angles) > 20
    assert len({round(angle / 15) for angle in angles}) > 8


def test_warped_pieces_come_from_above_the_held_out_part_and_from_its_left(drawn):
    quarters = np.kron(np.array([[100, 500], [900, 0]]), np.ones((64, 64)))
    middles = [float(np.median(patch)) for patch in drawn(quarters, warp=1.0)]
    assert {round(middle, 1) for middle in middles} >= {0.1, 0.5, 0.9}


def test_a_softer_lens_keeps_the_light_and_blurs_every_edge(drawn):
    edge = np.zeros((128, 128))
    edge[:, 64:] = 1000
    sharp, soft = drawn(edge), drawn(edge, soft=1.0)
    for before, after in zip(sharp, soft, strict=True):
        assert after.shape == before.shape
        assert after.mean() == pytest.approx(before.mean(), abs=0.02)
        assert np.ptp(after) <= np.ptp(before) + 1e-6
    assert any(((patch > 0.1) & (patch < 0.9)).mean() > 0.05 for patch in soft)
    wave = np.sin(np.arange(64) * 0.4)[None, None].repeat(64, 1).astype("f4")
    shrunk = blurred(wave, 1.5)[0, 32, 16:48].std() / wave[0, 32, 16:48].std()
    assert shrunk == pytest.approx(np.exp(-((1.5 * 0.4) ** 2) / 2), rel=0.01)


def test_grain_is_noise_that_the_truth_has_not(scenes):
    recipe = RECIPES["fast"](4)
    plain, grainy = Patches(scenes, recipe, 4, seed=0), Patches(scenes, replace(recipe, grain=1.0), 4, seed=0)
    levels = []
    for step in range(60):
        clean, patch = plain(step, 0), grainy(step, 0)
        assert torch.equal(patch.high, clean.high)
        low = torch.zeros(len(patch.high), 200, 200)
        assert clean.with_noise(low) is low
        found = patch.with_noise(low).std((1, 2), keepdim=True)
        torch.testing.assert_close(found, patch.grain, rtol=0.05, atol=0)
        assert len(found) < 5 or found.max() > 1.5 * found.min()  # some bands are noisier than others
        levels.append(float(patch.grain.median() / patch.high.abs().mean()))
    assert 0.0005 < min(levels) < 0.002
    assert 0.02 < max(levels) < 0.1


def test_grain_is_not_to_be_found_again_in_the_result(scenes, monkeypatch):
    recipe = replace(RECIPES["fast"](4), grain=1.0, patch=32)
    trainer = Trainer(
        new_network("pdenet", "tiny", 4, 0), Patches(scenes, recipe, 4, 0), Degradation(4), torch.device("cpu")
    )
    inputs, asked = [], []
    forward, loss = trainer.network.forward, trainer.network.loss
    monkeypatch.setattr(trainer.network, "forward", lambda low, draw: inputs.append(low) or forward(low, draw))
    monkeypatch.setattr(trainer.network, "loss", lambda *given: asked.append(given) or loss(*given))
    trainer.advance(0.5)
    for low, (_, high, wanted, *_) in zip(inputs, asked, strict=True):
        torch.testing.assert_close(wanted, Degradation(4)(high))
        assert (low - wanted).std() > 1e-5


def test_patches_are_seen_through_the_point_spreads_of_many_sensors(scenes):
    recipe = RECIPES["fast"](4)
    plain, seen = Patches(scenes, recipe, 4, seed=0), Patches(scenes, replace(recipe, psf=1.0), 4, seed=0)
    spreads = []
    for step in range(60):
        clean, patch = plain(step, 0), seen(step, 0)
        assert torch.equal(patch.high, clean.high)
        assert clean.degradation(Degradation(4)) == Degradation(4)
        spreads.append(patch.degradation(Degradation(4, noise=0.5)))
    assert {spread.noise for spread in spreads} == {0.5}  # that of the run is there under every point spread
    widths = [spread.fwhm for spread in spreads if spread.kernel == "gaussian"]
    assert 0.8 <= min(widths) < 1 < 2 < max(widths) <= 2.2
    assert 3 < sum(spread.kernel == "area" for spread in spreads) < 30


def test_a_random_point_spread_needs_a_network_that_is_given_it(scenes):
    patches = Patches(scenes, replace(RECIPES["fast"](4), psf=0.5), 4, 0)
    with pytest.raises(UsageError, match="psf=any"):
        Trainer(new_network("pdenet", "tiny", 4, 0), patches, Degradation(4), torch.device("cpu"))


# Scenes


@pytest.mark.parametrize("dtype", ["<i2", "<f4", "<f8"])
def test_bad_bands_are_dropped_and_holes_filled(tmp_path, dtype):
    pixels = picture(6, 40, 40).astype(dtype)
    pixels[:, :4] = -999
    pixels[3] = -999
    good = (True, True, False, True, True, True)
    path = written(tmp_path / "a.hdr", pixels, nodata=-999.0, good_bands=good)
    scene = Scene.read(open_cube(path), (0, 10000))
    assert scene.facts["bands_used"] == len(scene.pixels) == 4
    assert scene.pixels.dtype == ("<i2" if dtype == "<i2" else "<f4")
    unit, there = scene.unit(Window(0, 0, 8, 8), slice(0, 4))
    assert there.mean() == 0.5
    np.testing.assert_allclose(unit[:, 4:], pixels[[0, 1, 4, 5], 4:8, :8] / 10000, atol=1e-6)
    np.testing.assert_allclose(unit[2, 0], pixels[4, 4:].mean() / 10000, rtol=1e-5)


@pytest.mark.parametrize("warp", [0.0, 1.0])
def test_holes_in_patches_are_like_their_edges(tmp_path, warp):
    pixels = np.full((3, 96, 96), 2000, "<i2")
    pixels[:, :, 48:] = 8000
    pixels[:, 10:90, 60:72] = -999  # with their band's mean they would be a dark spot in the bright half
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", pixels, nodata=-999.0)), (0, 10000))
    recipe = replace(RECIPES["fast"](4), gains=(1.0, 1.0), zoom=1.0, collage=0.0, patch=32, warp=warp)
    patches = Patches([scene], recipe, 4, seed=0)
    bright = 0
    for step in range(30):
        high = patches(step, 0).high
        sure = (high - 0.8).abs() < 1e-4
        bright += bool(sure.all())
        between = ~sure & ((high - 0.2).abs() > 1e-4)
        assert between.double().mean() <= 0.3 * warp  # where warped pixels see both halves
    assert bright


def test_every_band_that_is_learned_from_has_its_own_gain(tmp_path):
    gains, offsets = np.linspace(1e-4, 5e-4, 40), np.linspace(0, 0.06, 40)
    numbers = np.random.default_rng(0).integers(100, 1800, (40, 40, 40)).astype("<i2")
    told = dict(gains=tuple(gains), offsets=tuple(offsets), good_bands=(True, False) + (True,) * 38)
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", numbers, **told)))
    (part,) = held_out_parts([scene], Degradation(4), seed=0)
    wanted = np.delete(numbers * gains[:, None, None] + offsets[:, None, None], 1, axis=0)[:, 20:, 20:]
    assert part.high.shape == (2, 16, 20, 20)  # of a long spectrum, two runs of bands
    np.testing.assert_allclose(part.high[0], wanted[1:17], atol=1e-6)
    np.testing.assert_allclose(part.high[1], wanted[21:37], atol=1e-6)


def test_a_cube_is_refused_where_memory_does_not_hold_it_twice(tmp_path, monkeypatch):
    path = written(tmp_path / "a.hdr", picture(3, 40, 40))
    for free, fits in ((2 * 3 * 40 * 40 * 2, True), (2 * 3 * 40 * 40 * 2 - 1, False)):
        monkeypatch.setattr(data, "free_memory", lambda free=free: free)
        with nullcontext() if fits else pytest.raises(ResourceError, match=r"a\.hdr: 9,600 bytes .* `bands`"):
            Scene.read(open_cube(path))


@pytest.mark.parametrize(
    ("size", "held", "patch"),
    [
        ((31, 64), None, 28),  # whose half is less than four coarse pixels
        ((32, 64), Window(16, 32, 16, 32), 32),  # left of the held-out part
        ((64, 40), Window(32, 20, 32, 20), 32),  # above it
        ((67, 67), Window(34, 34, 32, 32), 32),
    ],
)
def test_the_last_quarter_is_held_out_and_patches_are_as_large_as_the_rest_allows(tmp_path, size, held, patch):
    scene = Scene.read(open_cube(written(tmp_path / "a.hdr", picture(1, *size))))
    assert scene.held_out(4) == held
    assert scene.largest_patch(4) == patch


@pytest.mark.parametrize(
    ("dtype", "chosen"),
    [("<i2", None), ("<i4", None), ("<f4", None), ("<f8", None), ("<i2", slice(10, 40)), ("<f8", slice(10, 40))],
)
def test_a_cube_is_read_in_the_memory_that_is_asked_for(tmp_path, monkeypatch, dtype, chosen):
    for name in ("BLOCK_VALUES", "PERCENTILE_VALUES"):  # the survey of a small cube must be small too
        monkeypatch.setattr(survey, name, 1 << 14)
    monkeypatch.setattr(data, "HASH_BYTES", 1 << 16)
    pixels = picture(60, 100, 100).astype(dtype)
    pixels[:, :4] = -999
    path = written(tmp_path / "a.hdr", pixels, nodata=-999.0)
    Scene.read(open_cube(path), (0, 10000), chosen=chosen)  # what is imported on the way is no matter
    tracemalloc.start()
    scene = Scene.read(open_cube(path), (0, 10000), chosen=chosen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    wanted = pixels[chosen or slice(None)]
    assert peak < 2.3 * wanted.nbytes  # Scene.read asks for twice as much
    assert scene.pixels.shape == wanted.shape


def test_bands_that_never_vary_teach_nothing_but_are_there_for_a_network_of_fixed_size(tmp_path):
    pixels = np.random.default_rng(0).random((5, 20, 20)).astype("f4")
    pixels[[0, 3]] = 0
    path = written(tmp_path / "a.hdr", pixels)
    assert len(Scene.read(open_cube(path)).pixels) == 3
    assert len(Scene.read(open_cube(path), count=5).pixels) == 5


@pytest.mark.parametrize("dtype", ["<i2", "<f4"])
def test_chosen_bands_are_read_as_a_cube_of_nothing_else_that_is_known_again(tmp_path, dtype, monkeypatch):
    pixels = picture(9, 40, 40).astype(dtype)
    good = (True, True, True, False) + (True,) * 5
    cube = open_cube(written(tmp_path / "a.hdr", pixels, good_bands=good))
    some, alone = Scene.read(cube, chosen=slice(2, 7)), Scene.read(cube.with_bands(slice(2, 7)))
    np.testing.assert_array_equal(some.pixels, alone.pixels)
    assert some.radiometry == alone.radiometry
    monkeypatch.setattr(data, "HASH_BYTES", 2 * cube.meta.nbytes // 9)  # two bands at a time
    assert Scene.read(cube, chosen=slice(2, 7)).facts == some.facts
    assert some.facts == Scene.read(cube).facts | {"bands": [[2, 7]], "bands_used": 4} | {
        "radiometry": alone.facts["radiometry"]
    }


def test_folders_are_searched_and_each_cube_found_once(cubes, tmp_path):
    told = []
    paths = (cubes, cubes / "a.hdr", cubes / "a.img")
    found = [cube.path.name for cube in find_cubes(paths, say=told.append)]
    assert found == ["a.hdr", "b.hdr", "small.hdr"]
    (note,) = told
    assert "notes.txt" in note
    with pytest.raises(FormatError, match="not a cube"):
        list(find_cubes((cubes / "notes.txt",), say=told.append))
    with pytest.raises(FormatError, match="no cube in this folder"):
        list(find_cubes((tmp_path,), say=told.append))


def test_training_is_told_of_holes_that_nobody_declared(tmp_path):
    pixels = picture(3, 40, 40).astype("f4")
    pixels[:, :5] = -9999
    path = written(tmp_path / "a.hdr", pixels)
    assert "`nodata` -9999" in Scene.read(open_cube(path)).notes[0]
    assert not Scene.read(open_cube(path, nodata=-9999)).notes


def test_what_pdenet_made_teaches_it_nothing(pdenet, tmp_path):
    told = []
    scene = written(tmp_path / "a.hdr", picture(3, 20, 20))
    words = ("--model", "bicubic", "--scale", 2, "--map", "consistency")
    assert pdenet("uncertainty", scene, "-o", tmp_path, *words, "--no-page").returncode == 0
    options = ("--model", "bicubic", "--quicklook")
    assert pdenet("upscale", scene, "-o", tmp_path / "fine.tif", *options).returncode == 0
    found = [cube.path.name for cube in find_cubes((tmp_path,), say=told.append)]
    assert found == ["a.hdr"]
    made = len(list(tmp_path.iterdir())) - 2
    assert told == [f"left out: {made} files in {tmp_path} that pdenet made"]
    assert [cube.path.name for cube in find_cubes((tmp_path / "fine.tif",), say=told.append)] == ["fine.tif"]


@pytest.mark.parametrize("kept", ["m.safetensors", "m.last.safetensors"])
def test_what_training_leaves_among_cubes_is_told_of_in_one_line(tmp_path, models, kept):
    told = []
    written(tmp_path / "a.hdr", picture(3, 20, 20))
    shutil.copy(models / "pdenet.safetensors", tmp_path / kept)
    for name in ("m.log.jsonl", "m.curves.png"):
        (tmp_path / name).write_text("{}")
    found = [cube.path.name for cube in find_cubes((tmp_path,), say=told.append)]
    assert found == ["a.hdr"]
    assert told == [f"left out: 3 files in {tmp_path} that pdenet made"]
    (tmp_path / "b.safetensors").write_text("of someone else")
    list(find_cubes((tmp_path,), say=told.append))
    assert "b.safetensors: not a cube" in told[-1]


def test_a_picture_among_cubes_is_no_cube_and_a_series_of_them_is_one(tmp_path):
    def png(path, side=40):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(imagecodecs.png_encode(np.full((side, side), 9, np.uint8)))

    def found():
        told.clear()
        return [c.path.name for c in find_cubes((tmp_path,), say=told.append)]

    told = []
    written(tmp_path / "a.hdr", picture(3, 40, 40))
    for name in ("a_preview.png", "quicklooks/a.png", "scene/s_ms_01.png", "scene/s_ms_02.png"):
        png(tmp_path / name)
    assert found() == ["a.hdr", "scene"]
    assert any("a_preview.png" in note for note in told)
    for name in ("b_1.png", "b_2.png", "a_1.png", "a_2.png"):
        png(tmp_path / name)
    assert found() == ["a.hdr", "scene"]
    png(tmp_path / "scene" / "s_ms_03.png", side=30)
    assert found() == ["a.hdr"]
    assert any("All bands must be alike" in note for note in told)


def test_links_that_lead_back_and_folders_named_twice_are_no_matter(cubes, tmp_path):
    for name, where in {"cubes": cubes, "here": ".", "there": "."}.items():
        (tmp_path / name).symlink_to(where)
    paths = (cubes / "deeper", tmp_path, cubes, cubes / "deeper")
    found = [cube.path.name for cube in find_cubes(paths)]
    assert found == ["b.hdr", "a.hdr", "small.hdr"]
