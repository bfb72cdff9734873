"""Every metric equals an independent reference, and is the same however the scene is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from pdenet_cli.evaluation.metrics import PROTOCOLS
from pdenet_cli.scene.window import Window

SCALE = 4


def cubes(bands=5, rows=23, columns=19, seed=0, noise=0.05):
    """A smooth truth and a noisy estimate of it, partly outside of 0..1."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns] / 7
    truth = np.stack([0.5 + 0.5 * np.sin(x + band) * np.cos(y - band / 2) for band in range(bands)])
    return (truth + noise * rng.standard_normal(truth.shape)).astype(np.float32), truth.astype(np.float32)


def tallied(estimate, truth, there=None, protocol="pdenet", cut=None):
    """A tally of the scene in one piece, or in windows of `cut` rows and columns."""
    there = np.ones(truth.shape, bool) if there is None else there
    tally = PROTOCOLS[protocol].tally(SCALE)
    scene = Window(0, 0, *truth.shape[1:])
    for core in scene.blocks(*(cut or truth.shape[1:])):
        part = (slice(None), *core.grown(tally.halo, within=scene).slices)
        tally.add(core, scene, estimate[part], truth[part], there[part])
    return tally


def score(*args, **options):
    return tallied(*args, **options).values()


def clipped(protocol, *pair):
    pair = [cube.astype(np.float64) for cube in pair]
    return [cube.clip(0, 1) for cube in pair] if protocol != "sspsr" else pair


# Against references.


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


def test_psnr_is_that_of_scikit_image(protocol):
    tally = tallied(*cubes(), protocol=protocol)
    estimate, truth = clipped(protocol, *cubes())
    bands = [peak_signal_noise_ratio(t, e, data_range=1) for t, e in zip(truth, estimate, strict=True)]
    assert tally.values()["MPSNR"] == pytest.approx(np.mean(bands), abs=1e-6)
    assert tally.values()["PSNR"] == pytest.approx(
        peak_signal_noise_ratio(truth, estimate, data_range=1), abs=1e-6
    )
    np.testing.assert_allclose(tally.bands()["MPSNR"], bands, atol=1e-6)


def test_ssim_is_that_of_scikit_image(protocol):
    tally = tallied(*cubes(), protocol=protocol)
    gaussian = dict(gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
    options = gaussian if protocol == "mcnet" else dict(win_size=7)
    pairs = zip(*clipped(protocol, *cubes()), strict=True)
    bands = [structural_similarity(t, e, data_range=1, **options) for e, t in pairs]
    np.testing.assert_allclose(tally.bands()["MSSIM"], bands, atol=1e-6)
    assert tally.values()["MSSIM"] == pytest.approx(np.mean(bands), abs=1e-6)


def test_sam_is_the_arc_cosine(protocol):
    estimate, truth = clipped(protocol, *cubes())
    cosine = (estimate * truth).sum(0) / np.linalg.norm(estimate, axis=0) / np.linalg.norm(truth, axis=0)
    angles = np.degrees(np.arccos(cosine.clip(-1, 1)))
    assert score(*cubes(), protocol=protocol)["SAM"] == pytest.approx(angles.mean(), abs=1e-6)


def test_the_papers_protocol_measures_black_spectra_as_its_code_does():
    estimate, truth = (np.full((31, 8, 8), value, np.float32) for value in (0.5, 0.25))
    assert score(estimate, truth, protocol="paper")["SAM"] == pytest.approx(0, abs=1e-5)
    estimate[:, 0, 0] = truth[:, 0, 0] = 0  # both black: a right angle
    assert score(estimate, truth, protocol="paper")["SAM"] == pytest.approx(90 / 64, abs=1e-5)
    assert score(estimate, truth, protocol="pdenet")["SAM"] == pytest.approx(0, abs=1e-5)
    truth[:, 0, 0] = np.linspace(0.1, 1, 31)
    # All bands of the estimate are the same epsilon e: cos = e Σt / (e √31 |t| + e).
    cosine = truth[:, 0, 0].sum() / (np.sqrt(31) * np.linalg.norm(truth[:, 0, 0]) + 1)
    wanted = np.degrees(np.arccos(cosine)) / 64
    assert score(estimate, truth, protocol="paper")["SAM"] == pytest.approx(wanted, rel=1e-4)


def test_a_black_spectrum_counts_as_no_angle_or_not_at_all():
    estimate, truth = cubes()
    estimate[:, :3, :3] = 0
    truth[:, 1:4, 1:4] = 0
    black = (estimate == 0).all(0) | (truth == 0).all(0)
    skipped = score(estimate, truth, protocol="sspsr")["SAM"]
    whole = np.where(black, np.nan, 1)
    spectra = [np.where(black, 1, cube).astype(np.float64) for cube in (estimate, truth)]
    cosine = (spectra[0] * spectra[1]).sum(0) / np.prod([np.linalg.norm(s, axis=0) for s in spectra], axis=0)
    angles = np.degrees(np.arccos(cosine.clip(-1, 1))) * whole
    assert skipped == pytest.approx(np.nanmean(angles), abs=1e-6)
    inside = [cube.clip(0, 1) for cube in (estimate, truth)]
    zero, left_out = (score(*inside, protocol=name)["SAM"] for name in ("pdenet", "sspsr"))
    assert zero == pytest.approx(left_out * (~black).mean(), rel=1e-9)


def test_the_other_sums_are_the_textbook_formulas(protocol):
    values = score(*cubes(), protocol=protocol)
    estimate, truth = clipped(protocol, *cubes())
    mse = ((estimate - truth) ** 2).mean((1, 2))
    assert values["RMSE"] == pytest.approx(np.sqrt(((estimate - truth) ** 2).mean()), abs=1e-6)
    assert values["ERGAS"] == pytest.approx(
        100 / SCALE * np.sqrt((mse / truth.mean((1, 2)) ** 2).mean()), abs=1e-6
    )
    pearson = [np.corrcoef(e.ravel(), t.ravel())[0, 1] for e, t in zip(estimate, truth, strict=True)]
    assert values["CC"] == pytest.approx(np.mean(pearson), abs=1e-6)
    assert values["bias"] == pytest.approx(100 * abs(estimate.sum() / truth.sum() - 1), abs=1e-6)


def test_torchmetrics_agrees(protocol):
    torch = pytest.importorskip("torch")
    image = pytest.importorskip("torchmetrics.functional.image", reason="torchmetrics is not installed")
    values = score(*cubes(), protocol=protocol)
    pair = [torch.from_numpy(cube)[None] for cube in clipped(protocol, *cubes())]
    angle = np.degrees(float(image.spectral_angle_mapper(*pair)))
    assert values["SAM"] == pytest.approx(angle, abs=1e-6)
    assert values["ERGAS"] == pytest.approx(
        float(image.error_relative_global_dimensionless_synthesis(*pair, ratio=SCALE)), abs=1e-6
    )
    if protocol == "mcnet":
        index = image.universal_image_quality_index(*pair, kernel_size=(11, 11), sigma=(1.5, 1.5))
        assert values["UIQI"] == pytest.approx(float(index), abs=1e-6)


def test_uiqi_is_the_formula_of_wang_and_bovik_in_every_window():
    estimate, truth = clipped("pdenet", *cubes())
    estimate[:, :9, :9] = truth[:, :9, :9] = 0.25  # flat: judged by brightness alone
    estimate[:, :9, 9:] = 0.5
    truth[:, :9, 9:] = 0.25
    estimate[:, 14:, :] = truth[:, 14:, :] = 0  # black: right
    windows = [
        np.lib.stride_tricks.sliding_window_view(cube, (7, 7), axis=(1, 2)).reshape(-1, 49)
        for cube in (estimate, truth)
    ]
    index = []
    for x, y in zip(*windows, strict=True):
        contrast, light = x.var() + y.var(), x.mean() ** 2 + y.mean() ** 2
        q = 1.0 if light == 0 else 2 * x.mean() * y.mean() / light
        index.append(q if contrast < 1e-14 else q * 2 * np.cov(x, y, ddof=0)[0, 1] / contrast)
    assert score(estimate, truth)["UIQI"] == pytest.approx(np.mean(index), abs=1e-6)


def test_a_perfect_estimate_is_perfect(protocol):
    _, truth = cubes()
    values = score(truth, truth, protocol=protocol)
    assert values["MPSNR"] == values["PSNR"] == np.inf
    assert values["RMSE"] == values["ERGAS"] == 0
    assert values["SAM"] == pytest.approx(0, abs=0 if protocol != "paper" else 1e-5)  # an arc cosine near 1
    assert [values[name] for name in ("MSSIM", "CC", "UIQI")] == pytest.approx([1, 1, 1], abs=1e-12)


# However the scene is cut.


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    cut=st.tuples(st.integers(1, 45), st.integers(1, 45)),
    holes=st.floats(0, 0.05),
    contrast=st.sampled_from([1, 1e-3]),
    name=st.sampled_from(sorted(PROTOCOLS)),
    seed=st.integers(0, 99),
)
def test_a_score_is_the_same_however_the_scene_is_cut(rows, columns, cut, holes, contrast, name, seed):
    estimate, truth = (0.5 + contrast * (c - 0.5) for c in cubes(3, rows, columns, seed))
    there = np.random.default_rng(seed).random(truth.shape) >= holes
    whole, pieces = (tallied(estimate, truth, there, name, how) for how in (None, cut))
    for metric, value in whole.values().items():
        assert pieces.values()[metric] == pytest.approx(value, rel=1e-9, nan_ok=True), metric
    for metric, values in whole.bands().items():
        np.testing.assert_allclose(pieces.bands()[metric], values, rtol=1e-9, err_msg=metric)
    assert pieces.counted == whole.counted == there.sum()


def test_tallies_that_were_made_apart_add_up_and_an_empty_one_adds_nothing(protocol):
    estimate, truth = cubes()
    scene = Window(0, 0, *truth.shape[1:])
    apart = []
    for core in scene.blocks(10, truth.shape[2]):
        apart.append(PROTOCOLS[protocol].tally(SCALE))
        part = (slice(None), *core.grown(apart[-1].halo, within=scene).slices)
        apart[-1].add(core, scene, estimate[part], truth[part], np.ones(truth[part].shape, bool))
    empty = PROTOCOLS[protocol].tally(SCALE)
    whole = score(estimate, truth, protocol=protocol)
    assert (empty + apart[0] + apart[1] + apart[2] + empty).values() == pytest.approx(whole, rel=1e-9)


def test_tallies_of_different_protocols_do_not_add_up():
    one, other = (tallied(*cubes(), protocol=name) for name in ("pdenet", "mcnet"))
    with pytest.raises(ValueError, match="one protocol"):
        one + other


# Holes.


def test_what_is_not_there_does_not_count(protocol):
    estimate, truth = cubes()
    there = np.random.default_rng(1).random(truth.shape) > 0.01
    rubbish = np.where(there, estimate, np.float32(np.nan))
    values, bands = (
        f()
        for f in (lambda: score(rubbish, truth, there, protocol), tallied(estimate, truth, there, protocol).bands)
    )
    inside = clipped(protocol, estimate, truth)
    mse = np.array([((e - t)[m] ** 2).mean() for e, t, m in zip(*inside, there, strict=True)])
    assert values["MPSNR"] == pytest.approx((-10 * np.log10(mse)).mean(), abs=1e-6)
    np.testing.assert_allclose(bands["RMSE"], np.sqrt(mse), atol=1e-9)


def test_a_spectrum_counts_by_the_bands_that_are_there_and_an_empty_one_not_at_all(protocol):
    estimate, truth = cubes()
    there = np.random.default_rng(2).random(truth.shape) > 0.3
    there[:, :4] = False
    seen, wanted = (np.where(there, cube, 0) for cube in clipped(protocol, estimate, truth))
    some = there.any(0)
    cosine = (
        (seen * wanted).sum(0)[some] / np.linalg.norm(seen, axis=0)[some] / np.linalg.norm(wanted, axis=0)[some]
    )
    values = score(estimate, truth, there, protocol)
    assert values["SAM"] == pytest.approx(np.degrees(np.arccos(cosine.clip(-1, 1))).mean(), abs=1e-6)
    pairs = [(e[m], t[m]) for e, t, m in zip(seen, wanted, there, strict=True)]
    assert values["CC"] == pytest.approx(np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs]), abs=1e-6)
    relative = [((e - t) ** 2).mean() / t.mean() ** 2 for e, t in pairs]
    assert values["ERGAS"] == pytest.approx(100 / SCALE * np.sqrt(np.mean(relative)), abs=1e-6)


def test_a_window_with_a_hole_has_no_ssim():
    estimate, truth = cubes()
    there = np.ones(truth.shape, bool)
    there[0, 10, 8] = False
    options = dict(win_size=7, data_range=1, full=True)
    pairs = list(zip(*clipped("pdenet", estimate, truth), strict=True))
    maps = [structural_similarity(t, e, **options)[1][3:-3, 3:-3] for e, t in pairs]
    maps[0][4:11, 2:9] = np.nan  # rows 7..13 and columns 5..11 of the scene
    expected = [np.nanmean(m) for m in maps]
    np.testing.assert_allclose(tallied(estimate, truth, there).bands()["MSSIM"], expected, atol=1e-6)


def test_a_band_without_a_pixel_is_left_out_of_the_means():
    estimate, truth = cubes()
    there = np.ones(truth.shape, bool)
    there[2] = False
    others = [0, 1, 3, 4]
    values, without = score(estimate, truth, there), score(estimate[others], truth[others])
    assert values == pytest.approx(without, rel=1e-12)
    assert np.isnan(tallied(estimate, truth, there).bands()["MPSNR"][2])


def test_a_perfect_band_counts_no_more_than_a_nearly_perfect_one(protocol):
    estimate, truth = cubes()
    others = tallied(estimate, truth, protocol=protocol).bands()["MPSNR"][1:]
    estimate[0] = truth[0] = 0  # a dead band
    expected = np.mean([100.0, *others])
    assert score(estimate, truth, protocol=protocol)["MPSNR"] == pytest.approx(expected, rel=1e-12)
    nearly = estimate.copy()
    nearly[0] = 1e-9
    assert score(nearly, truth, protocol=protocol)["MPSNR"] == pytest.approx(expected, rel=1e-12)
    assert score(truth, truth, protocol=protocol)["MPSNR"] == np.inf
    assert tallied(estimate, truth, protocol=protocol).bands()["MPSNR"][0] == np.inf


def test_a_scene_smaller_than_the_window_has_no_ssim():
    values = score(*cubes(rows=5, columns=30))
    assert np.isnan(values["MSSIM"])
    assert np.isfinite(values["MPSNR"])


def test_a_constant_band_has_no_correlation():
    estimate, truth = cubes()
    expected = score(estimate[1:], truth[1:])["CC"]
    truth[0] = 0.3
    assert score(estimate, truth)["CC"] == pytest.approx(expected, rel=1e-12)


# The table.


def test_the_psnr_that_a_protocol_prints_comes_first_and_every_metric_is_there():
    names = {"MPSNR", "PSNR", "MSSIM", "SAM", "RMSE", "ERGAS", "CC", "UIQI", "bias"}
    for name, first in (("pdenet", "MPSNR"), ("paper", "MPSNR"), ("mcnet", "PSNR"), ("sspsr", "MPSNR")):
        metrics = PROTOCOLS[name].metrics(SCALE)
        assert metrics[0].name == first
        assert {metric.name for metric in metrics} == names


def test_the_best_of_some_scores_depends_on_the_metric():
    metrics = {metric.name: metric for metric in PROTOCOLS["pdenet"].metrics(SCALE)}
    assert metrics["MPSNR"].best([30, np.nan, 40]) == 40
    assert metrics["SAM"].best([3, np.nan, 4]) == 3
    assert metrics["MPSNR"].is_better(40, 30)
    assert metrics["SAM"].is_better(3, 4)
    assert metrics["SAM"].text(np.nan) == "–"
    assert metrics["RMSE"].text(0.012345678, "+") == "+0.01235"
