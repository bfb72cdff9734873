"""Many bands seen as few mixtures: exact tiles, the right detail in every band, noise told from texture."""

import dataclasses
import json

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdenet_cli import (
    Cube,
    Job,
    Posterior,
    Radiometry,
    Settings,
    load_model,
    open_cube,
    sharpen,
)
from pdenet_cli.degradation import Degradation, bicubic_down, bicubic_up
from pdenet_cli.errors import UsageError
from pdenet_cli.models.model import bicubic_model
from pdenet_cli.sampling import mixtures
from pdenet_cli.sampling.mixtures import MixedSamples, Mixtures, detail_margin, detail_of
from pdenet_cli.sampling.run import Layer, super_resolve
from pdenet_cli.sampling.scene_pass import Limits, ScenePass
from pdenet_cli.scene.radiometry import ALREADY_UNIT
from pdenet_cli.scene.reading import Reading
from pdenet_cli.uncertainty.evidence import cropped, mean, std
from pdenet_cli.uncertainty.summaries import MAPS, MEAN, Question
from tests.cubes import in_memory, written
from tests.test_sampling import QUESTION, make_model

BANDS = 26


def materials(rows, columns, bands=BANDS, softness=4):
    """A scene of three materials: each spectrum is a sum of theirs; the softer, the fewer details."""
    rng = np.random.default_rng(0)
    shares = bicubic_up(torch.from_numpy(rng.random((3, -(-rows // softness), -(-columns // softness)))), softness)
    spectra = 0.1 + rng.random((bands, 3)).cumsum(0) / bands
    return np.tensordot(spectra, shares.numpy(), 1)[:, :rows, :columns].astype(np.float32)


def mixtures_of(pixels, count=4):
    return Mixtures.of(in_memory(pixels), range(len(pixels)), ALREADY_UNIT, count)


# What mixtures are


def test_mixtures_are_overlapping_sums_of_neighbouring_bands_as_bright_as_each_other():
    pixels = materials(40, 40)
    made = mixtures_of(pixels)
    seen = made.mixed(pixels)
    np.testing.assert_allclose(seen.mean((1, 2)), 0.3, rtol=0.02)
    # Four mixtures of 26 bands have their middles at 3.25, 9.75, ... and reach 9.75 bands to both sides.
    for k, row in enumerate(made.mix):
        places = np.arange(BANDS) + 0.5
        weights = np.clip(9.75 - abs(places - (6.5 * k + 3.25)), 0, None)
        np.testing.assert_allclose(row / row.max(), weights / weights.max(), rtol=1e-5)
    parts = made.mixed(pixels[:9], slice(0, 9)) + made.mixed(pixels[9:], slice(9, None))
    np.testing.assert_allclose(parts, seen, atol=1e-6)


def test_the_detail_of_every_band_follows_from_that_of_the_mixtures():
    high = materials(96, 96)
    degradation = Degradation(4)
    low = bicubic_down(torch.from_numpy(high), 4).numpy()
    made = mixtures_of(low)
    mixed = made.mixed(low)
    # A network that is right about the mixtures.
    enlarged = bicubic_up(torch.from_numpy(mixed), 4)
    detail = detail_of(np.tensordot(made.mix, high, 1), enlarged, degradation)
    even = made.even(low, mixed, slice(None), degradation)
    (got,) = MixedSamples(even, [detail], torch.from_numpy(made.unmix))
    bicubic = bicubic_up(torch.from_numpy(low), 4).numpy()

    def error(image):
        return np.sqrt(((image - high)[:, 8:-8, 8:-8] ** 2).mean((1, 2)))

    assert (error(got) < 0.15 * error(bicubic)).all()


def test_the_even_image_agrees_with_the_input_better_than_bicubic():
    low = materials(30, 24)
    made, degradation = mixtures_of(low), Degradation(4)
    kept = dataclasses.replace(made, kept=np.ones_like(made.kept))
    even = kept.even(low[3:9], made.mixed(low), slice(3, 9), degradation)
    image = torch.from_numpy(low[3:9])
    plain = bicubic_up(image, 4)
    twice = plain + bicubic_up(image - bicubic_down(plain, 4), 4)  # as the formula says
    torch.testing.assert_close(even, twice, atol=1e-6, rtol=0)
    assert (bicubic_down(even, 4) - image).abs().mean() < 0.5 * (bicubic_down(plain, 4) - image).abs().mean()


@pytest.mark.parametrize("degradation", [Degradation(4), Degradation(2, "gaussian", 1.2), Degradation(3, "area")])
def test_enlarging_and_degrading_is_one_small_filter(degradation):
    low = torch.from_numpy(materials(17, 11))
    both = degradation(bicubic_up(low, degradation.scale))
    torch.testing.assert_close(mixtures._enlarged_and_degraded(low, degradation), both, atol=1e-5, rtol=0)


def test_noise_of_single_bands_goes_and_their_own_texture_stays():
    rng = np.random.default_rng(3)
    clean = materials(60, 60)
    own = bicubic_up(torch.from_numpy(rng.random((20, 20))), 3).numpy() * 0.1
    pixels = clean.copy()
    pixels[5] += own
    pixels[15] += 0.03 * rng.standard_normal((60, 60))
    made = mixtures_of(pixels)
    assert made.kept[5] > 0.8
    assert made.kept[15] < 0.3
    even = made.even(pixels, made.mixed(pixels), slice(None), Degradation(2))
    seen = bicubic_down(even, 2).numpy()
    assert np.abs(seen[15] - clean[15]).mean() < 0.75 * np.abs(pixels[15] - clean[15]).mean()
    assert np.abs(seen[5] - pixels[5]).mean() < 0.1 * np.abs(own - own.mean()).mean()


def test_a_pixel_that_stands_out_in_a_noisy_band_stays():
    rng = np.random.default_rng(3)
    pixels = materials(60, 60)
    pixels[15] += 0.01 * rng.standard_normal((60, 60)).astype(np.float32)
    pixels[15, 30, 30] += 0.3
    made = mixtures_of(pixels)
    assert made.kept[15] < 0.3
    even = made.even(pixels, made.mixed(pixels), slice(None), Degradation(2))
    seen = bicubic_down(even, 2).numpy()
    assert np.abs(seen - pixels)[15, 30, 30] < 0.1
    assert np.abs(seen - pixels)[:15, 30, 30].max() < 0.1


@pytest.mark.parametrize("hot", [100.0, 1e20])
def test_a_hot_pixel_does_not_change_how_bands_are_related(hot):
    pixels = materials(60, 60)
    plain = mixtures_of(pixels)
    pixels[15, 30, 30] = hot
    made = mixtures_of(pixels)
    others = np.arange(BANDS) != 15
    np.testing.assert_allclose(made.unmix[others], plain.unmix[others], rtol=0.1, atol=0.05)
    assert np.isfinite(made.unmix).all()
    np.testing.assert_allclose(made.mix, plain.mix, rtol=0.01)


def test_a_hot_pixel_of_one_band_does_not_spoil_the_others():
    pixels = materials(60, 60)
    made = mixtures_of(pixels)
    plain = made.mixed(pixels)
    pixels[15, 30, 30] = 1e5
    spoiled = made.mixed(pixels) - plain
    assert np.abs(spoiled).max() < 1
    assert np.count_nonzero(spoiled.any(0)) == 1
    # As bright in the mixtures of a scene that has it.
    np.testing.assert_allclose(mixtures_of(pixels).mixed(pixels), made.mixed(pixels), rtol=0.1)


def test_texture_of_few_pixels_is_tamed_like_that_of_many():
    values = np.zeros((1, 10_000), np.float32)
    values[0, :40] = np.linspace(0.5, 1, 40)
    values[0, 50] = 1e6
    assert mixtures._tamed(values, np.ones(values.shape, np.bool_)).max() < 10


def test_white_noise_is_known_by_its_correlation():
    noise = np.random.default_rng(0).standard_normal((1, 20000, 8, 8)).astype(np.float32)
    same, beside = mixtures._covariances(mixtures._texture(noise), np.ones((20000, 6, 6), np.bool_))
    assert beside.item() / same.item() == pytest.approx(mixtures.WHITE, abs=0.01)
    assert same.item() == pytest.approx(mixtures.WHITE_VARIANCE, abs=0.01)


# When there are any


def test_few_bands_or_pixels_are_not_mixed():
    assert mixtures_of(materials(40, 40, bands=11)) is None
    assert mixtures_of(materials(40, 40, bands=12)) is not None
    assert mixtures_of(materials(40, 40), count=0) is None
    assert mixtures_of(materials(6, 7)) is None
    assert mixtures_of(materials(1, 900)) is None


def test_what_is_known_of_the_bands_comes_from_pixels_with_data():
    whole = materials(40, 40)
    holed = whole.copy()
    holed[:, 10:30, :20] = -9
    holed[3, 35:, 35:] = -9
    made = Mixtures.of(
        in_memory(holed, nodata=-9.0), range(BANDS), dataclasses.replace(ALREADY_UNIT, nodata=-9.0), 4
    )
    seen = made.mixed(whole)
    np.testing.assert_allclose(seen.mean((1, 2)), 0.3, rtol=0.1)
    own, every = (mixtures._texture(image) for image in (whole - np.tensordot(made.unmix, seen, 1), whole))
    assert (own.std((1, 2)) < 0.1 * every.std((1, 2))).all()
    full = np.full_like(whole, -9)
    full[:, :3, :3] = whole[:, :3, :3]
    nodata = dataclasses.replace(ALREADY_UNIT, nodata=-9.0)
    assert Mixtures.of(in_memory(full, nodata=-9.0), range(BANDS), nodata, 4) is None


@pytest.mark.parametrize("share", [0.005, 0.01])
def test_scattered_dead_pixels_do_not_prevent_mixtures(share):
    whole = materials(60, 60, bands=100)
    holed = np.where(np.random.default_rng(0).random(whole.shape) < share, np.float32(np.nan), whole)
    made, plain = mixtures_of(holed), mixtures_of(whole)
    np.testing.assert_allclose(made.mix, plain.mix, rtol=0.01)
    np.testing.assert_allclose(made.unmix @ made.mix, plain.unmix @ plain.mix, atol=0.05)


def test_a_nearly_empty_band_does_not_prevent_mixtures():
    pixels = materials(60, 60)
    empty = pixels.copy()
    empty[7] = np.nan
    empty[7, :3, :3] = 0.2
    made = mixtures_of(empty)
    seen = made.mixed(np.nan_to_num(empty, nan=0.2))
    own, every = (mixtures._texture(image) for image in (pixels - np.tensordot(made.unmix, seen, 1), pixels))
    others = np.arange(BANDS) != 7
    assert (own.std((1, 2)) < 0.1 * every.std((1, 2)))[others].all()


@pytest.mark.parametrize("block", [None, (1, 300, 200), (5, 16, 16), (26, 1, 200), (2, 64, 200)])
def test_patches_are_the_same_whatever_blocks_a_file_is_stored_in(block, monkeypatch, tmp_path):
    monkeypatch.setattr(mixtures, "BLOCK_VALUES", 40_000)
    pixels = np.random.default_rng(0).random((26, 300, 200)).astype(np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("cube", data=pixels, chunks=block)
    bands = [*range(20), 22, 25]
    with open_cube(tmp_path / "a.h5", axes="brc") as cube:
        patches, there = mixtures._patches(cube, bands, ALREADY_UNIT)
    rows, columns = (mixtures._starts(n, most) for n, most in zip((300, 200), mixtures.MOST_PATCHES, strict=True))
    assert patches.shape == (22, 24 * 32, 8, 8)
    assert there.all()
    for i, j in ((0, 0), (7, 31), (23, 5)):
        row, column = rows[i], columns[j]
        own = pixels[bands, row : row + 8, column : column + 8]
        np.testing.assert_array_equal(patches[:, i * 32 + j], own)


@given(st.integers(3, 3000), st.integers(1, 40))
def test_patches_cover_short_sides_and_are_spread_over_long_ones(length, most):
    starts = mixtures._starts(length, most)
    assert starts[0] == 0
    assert starts.max() == max(0, length - mixtures.PATCH) or len(starts) == 1
    assert len(starts) <= most
    if len(starts) < most:
        inner = {place for start in starts for place in range(start + 1, min(start + 7, length - 1))}
        assert inner == set(range(1, length - 1))


def test_a_model_is_used_with_the_mixtures_of_its_calibration(models):
    assert Posterior(make_model(), 2).most_mixtures == 16
    assert Posterior(make_model(), 2, mixtures=0).most_mixtures == 0
    for scale, count in ((2, 24), (4, 16), (8, 16)):
        assert Posterior(load_model(f"general-x{scale}"), 2).most_mixtures == count
    model = load_model(models / "calibrated.safetensors")

    def calibrated(**others):
        stored = {name: value for name, value in model.spec.calibration.items() if name != "mixtures"}
        spec = dataclasses.replace(model.spec, calibration=stored | others)
        return dataclasses.replace(model, spec=spec)

    assert Posterior(calibrated(mixtures=8), 2).most_mixtures == 8
    assert Posterior(calibrated(mixtures=8), 2, mixtures=5).most_mixtures == 5
    assert Posterior(calibrated(), 2).most_mixtures == 0  # calibrated before there were mixtures


def test_networks_that_must_see_every_band_refuse_mixtures():
    model = bicubic_model(2)
    assert Posterior(model, 1).most_mixtures == 0
    assert Posterior(model, 1, mixtures=0).most_mixtures == 0
    with pytest.raises(UsageError, match="`mixtures` 4: bicubic must see every band"):
        Posterior(model, 1, mixtures=4)
    with pytest.raises(UsageError, match="`mixtures` -1"):
        Posterior(make_model(), 1, mixtures=-1)


# Whole scenes


def run(pixels, posterior, tile, depth, maps=tuple(MAPS), nodata=None, halo=None):
    """The mean and maps of a scene, cut as told, as arrays; band 2 is not for the network."""
    source = in_memory(pixels, nodata=nodata)
    usable = tuple(band for band in range(len(pixels)) if band != 2)
    radiometry = Radiometry((1.0,), (0.0,), "", nodata, tuple(pixels.mean((1, 2)).tolist()))
    summaries = [summary for name in maps for summary in MAPS[name]]
    survey = dataclasses.replace(Reading.of_unit(len(pixels)).survey, holes=nodata is not None)
    reading = Reading(survey, usable, (), radiometry)
    prepared = ScenePass.prepare(source, posterior, summaries, reading, Limits(halo=halo))
    assert prepared.sampler.mixtures
    fine = dataclasses.replace(source.meta.upscaled(4), nodata=float("nan"))
    cubes = {}
    for name in ("mean", *(f"{s.name}{end}" for s in summaries for end in ("", "_merged"))):
        meta = dataclasses.replace(fine, bands=1) if name.endswith("_merged") else fine
        cubes[name] = Cube(name, meta, np.zeros(meta.shape(), np.float32))
    layers = [Layer(MEAN, cubes["mean"])]
    layers += [Layer(s, cubes[s.name] if s.compute else None, cubes[f"{s.name}_merged"]) for s in summaries]
    list(super_resolve(prepared.with_tiling({"tile": tile, "depth": depth}), layers, question=QUESTION))
    return {name: cube.array for name, cube in cubes.items()}


@pytest.mark.parametrize("degradation", [Degradation(4), Degradation(2, "gaussian", 1.0), Degradation(2, "area")])
def test_margins_of_mixtures_are_wide_enough(degradation):
    scale, low = degradation.scale, np.random.default_rng(0).standard_normal((4, 40, 40)).astype(np.float32)
    sample = np.random.default_rng(1).standard_normal((4, 40 * scale, 40 * scale)).astype(np.float32)
    large = bicubic_up(torch.from_numpy(low), scale)
    margin = detail_margin(degradation)
    whole = detail_of(sample.copy(), large, degradation)[:, 20 * scale : -8 * scale, 20 * scale : -8 * scale]
    near = slice((20 - margin) * scale, (32 + margin) * scale)
    part = detail_of(sample[:, near, near].copy(), large[:, near, near], degradation)
    inner = slice(margin * scale, (12 + margin) * scale)
    torch.testing.assert_close(part[:, inner, inner], whole, atol=1e-5, rtol=0)


def test_a_scene_too_small_for_mixtures_is_told_of(tmp_path):
    scene = written(tmp_path / "a.hdr", materials(6, 6))
    for count, notes in ((4, 1), (0, 0), (16, 0)):
        posterior = Posterior(make_model(), 2, mixtures=count)
        with Job(scene, tmp_path / "b.hdr", posterior, Settings()) as job:
            assert sum("sees every band" in note for note in job._notes()) == notes


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(14, 40),
    columns=st.integers(14, 40),
    tile=st.integers(5, 20),
    depth=st.integers(1, 26),
    ensemble=st.sampled_from(["masks", "flips"]),
    holes=st.booleans(),
)
def test_tiles_of_mixtures_give_what_the_whole_scene_gives(rows, columns, tile, depth, ensemble, holes):
    pixels = materials(rows, columns) + 0.02 * np.random.default_rng(0).random((26, rows, columns), np.float32)
    if holes:
        pixels[:, 2:5, 3:9] = -1
        pixels[7, 10, 10] = -1
    nodata = -1.0 if holes else None
    posterior = Posterior(make_model(), 3, 1, ensemble, mixtures=4)
    whole = run(pixels, posterior, 1000, 1000, nodata=nodata)
    cut = run(pixels, posterior, tile, depth, nodata=nodata)
    for name in whole:
        if name.startswith("share"):  # a difference in the last bit may move a sample over a rounding edge
            continue
        kind = name.split("_")[0]
        atol = {"cv": 1e-2, "angle": 1e-3, "risk": 1e-3, "error": 1e-4}.get(kind, 1e-5)
        # Errors depend on the logarithm of std, of which little more than rounding is left where samples agree.
        rtol = 1e-2 if kind == "error" else 1e-4
        np.testing.assert_allclose(cut[name], whole[name], rtol, atol, err_msg=name)


def test_a_halo_too_small_for_mixtures_is_not_exact():
    pixels = materials(40, 40)
    posterior = Posterior(make_model(), 2, mixtures=4)
    whole, cut = (run(pixels, posterior, tile, 26, maps=(), halo=0)["mean"] for tile in (1000, 10))
    assert np.abs(np.nan_to_num(cut - whole)).max() > 1e-3


def test_samples_that_are_made_when_needed_are_summed_up_like_an_array():
    rng = np.random.default_rng(0)
    even = torch.from_numpy(rng.random((5, 6, 7)).astype(np.float32))
    details = list(torch.from_numpy(rng.random((4, 3, 6, 7)).astype(np.float32)))
    unmix = torch.from_numpy(rng.random((5, 3)).astype(np.float32))
    lazy = MixedSamples(even, details, unmix)
    array = np.stack([even.numpy() + np.tensordot(unmix.numpy(), d.numpy(), 1) for d in details])
    assert len(lazy) == 4
    for got, sample in zip(lazy, array, strict=True):
        np.testing.assert_allclose(got, sample, atol=1e-6)
    np.testing.assert_allclose(mean(lazy), array.mean(0), atol=1e-6)
    np.testing.assert_allclose(std(lazy, mean(lazy)), array.std(0, ddof=1), atol=1e-6)
    part = cropped(lazy, slice(1, 4), slice(2, 7))
    np.testing.assert_allclose(mean(part), array.mean(0)[:, 1:4, 2:7], atol=1e-6)
    np.testing.assert_allclose(mean(lazy[1:3]), array[1:3].mean(0), atol=1e-6)
    assert not std(lazy[:1], mean(lazy[:1])).any()


def test_twice_the_light_is_twice_the_result():
    pixels = materials(24, 24)
    posterior = Posterior(load_model("general-x2"), 2, mixtures=4)
    once, twice = (sharpen(gain * pixels, posterior, value_range=(0, 1))["mean"] for gain in (1, 2))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-3, atol=1e-4)


def test_noise_of_many_bands_is_averaged_out():
    high = materials(96, 96, bands=160, softness=16)
    low = bicubic_down(torch.from_numpy(high), 4).numpy()
    low += 0.02 * np.random.default_rng(1).standard_normal(low.shape).astype(np.float32)
    error = {}
    for count in (0, 16):
        posterior = Posterior(load_model("general-x4"), 2, mixtures=count)
        error[count] = np.abs(sharpen(low, posterior, value_range=(0, 1))["mean"] - high).mean()
    assert error[16] < 0.8 * error[0]


# Commands


def test_mixtures_are_in_the_report_and_can_be_refused(pdenet, tmp_path, models):
    pixels = (1000 * materials(20, 20)).astype(np.uint16)
    scene, model = written(tmp_path / "a.hdr", pixels), models / "pdenet.safetensors"
    common = ("upscale", scene, "--model", model, "--samples", 1)
    reports = []
    for count in (0, 4):
        made = pdenet(*common, "-o", tmp_path / f"{count}.hdr", "--mixtures", count)
        assert made.returncode == 0, made.stderr
        reports.append(json.loads((tmp_path / f"{count}.hdr.report.json").read_text()))
    assert [report["job"]["mixtures"] for report in reports] == [0, 4]
    with open_cube(tmp_path / "0.hdr") as every, open_cube(tmp_path / "4.hdr") as mixed:
        assert (every.read() != mixed.read()).any()
    made = pdenet("upscale", scene, "-o", tmp_path / "b.hdr", "--model", "bicubic", "--mixtures", 4)
    assert made.returncode == 2
    assert "bicubic must see every band" in made.stderr


def test_other_mixtures_than_those_of_the_calibration_are_told_of(models):
    from pdenet_cli.tools.maps import Maps

    model = load_model(models / "calibrated.safetensors")
    maps = Maps(("interval",), Question(), Posterior(model, 4, mixtures=16))
    few, many = (in_memory(np.zeros((bands, 8, 8), np.float32)).meta for bands in (47, 48))
    (note,) = maps.notes(many, Reading.of_unit(48), maps.question)
    assert "calibrated with `mixtures` 0, not with `mixtures` 16" in note
    assert not list(maps.notes(few, Reading.of_unit(47), maps.question))  # never mixed
