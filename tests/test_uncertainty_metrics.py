"""How well an uncertainty knows the error: measures against naive ones, scipy, and the cubes themselves."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr

from pdenet_cli import CubeMeta
from pdenet_cli.errors import UsageError
from pdenet_cli.evaluation import estimate_maps
from pdenet_cli.evaluation.estimate_maps import EstimateMaps
from pdenet_cli.evaluation.measures import MEASURES, SHARP_COVERAGE, SHARP_WIDTH, SHARPNESS, mean_trust
from pdenet_cli.evaluation.sparsification import Pool, Sparsification, bins_of, ence, spearman
from pdenet_cli.evaluation.uncertainty import assess, error_ratios_of
from pdenet_cli.evaluation.view import View
from pdenet_cli.models.model import Model, save_model
from pdenet_cli.models.networks.pdenet import CONFIGS, PDENet, TemplateNet
from pdenet_cli.models.spec import ModelSpec
from pdenet_cli.pages.evaluation import evaluation_page
from pdenet_cli.pages.trust import trust_charts
from pdenet_cli.scene.cube import Cube
from pdenet_cli.scene.radiometry import Radiometry
from pdenet_cli.scene.window import Window
from pdenet_cli.tools.benchmark import Benchmark
from pdenet_cli.tools.truths import TruthSettings
from pdenet_cli.uncertainty.calibration import Calibration
from pdenet_cli.uncertainty.error_ratios import ErrorRatios
from pdenet_cli.uncertainty.spread import guess, strata
from tests.cubes import written

SHAPE = (4, 30, 25)

lengths = st.integers(3, 400)
few = st.floats(0, 1, width=16)  # so coarse that some are alike


def squares_and_uncertainty(data, length):
    numbers = arrays(np.float64, length, elements=few)
    return data.draw(numbers), data.draw(numbers)


def naive_curve(uncertainty, squares):
    """Left out one by one, as the definition has it; only for uncertainties that all differ."""
    pixels = sorted(zip(uncertainty, squares, strict=True), reverse=True)
    count = len(pixels)
    left = [pixels[k * count // 100 :] for k in range(100)]
    return [np.sqrt(sum(square for _, square in rest) / len(rest)) for rest in left]


# Numbers.


@pytest.mark.parametrize("count", [100, 101, 357])
def test_areas_are_those_of_a_naive_sparsification(count):
    rng = np.random.default_rng(count)
    uncertainty = rng.random(count)
    squares = (uncertainty * rng.standard_normal(count)) ** 2
    order = Sparsification.of(uncertainty, squares)
    curve, best = naive_curve(uncertainty, squares), naive_curve(squares, squares)
    everything = np.sqrt(squares.mean())
    assert order.ause == pytest.approx(np.mean(curve) - np.mean(best))
    assert order.aurg == pytest.approx(everything - np.mean(curve))
    assert order.ause_to_random == pytest.approx((np.mean(curve) - np.mean(best)) / (everything - np.mean(best)))
    assert 0.1 < order.ause_to_random < 0.9


@given(st.data(), lengths)
@settings(deadline=None)
def test_best_order_and_no_order_are_the_ends_of_the_scale(data, length):
    squares, uncertainty = squares_and_uncertainty(data, length)
    order = Sparsification.of(uncertainty, squares)
    assert order.ause >= -1e-9
    assert order.ause + order.aurg == pytest.approx(order.random - order.oracle.mean(), abs=1e-9)
    best, none = Sparsification.of(squares, squares), Sparsification.of(np.ones(length), squares)
    assert best.ause == pytest.approx(0, abs=1e-9)
    assert none.aurg == pytest.approx(0, abs=1e-7)  # all alike: as good as chance, wherever the pixels lie


@given(st.data(), lengths, st.randoms())
@settings(deadline=None)
def test_the_order_of_the_pixels_in_the_file_does_not_matter(data, length, random):
    squares, uncertainty = squares_and_uncertainty(data, length)
    places = list(range(length))
    random.shuffle(places)
    one, other = Sparsification.of(uncertainty, squares), Sparsification.of(uncertainty[places], squares[places])
    np.testing.assert_allclose(one.curve, other.curve, atol=1e-7)


def pooled_band(uncertainty, squares):
    said, met = Pool.bins_by_root(uncertainty**2), Pool.bins_by_root(squares)
    return Pool.of(said, uncertainty**2, met, squares), said, met


@pytest.mark.parametrize("tied", [False, True])
def test_a_pool_of_bands_gives_the_curves_of_all_their_values(tied):
    rng = np.random.default_rng(0)
    uncertainty = rng.gamma(2.0, 0.01, (3, 5000)) * np.array([[0.1], [1.0], [30.0]])
    squares = (uncertainty * rng.normal(size=uncertainty.shape)) ** 2
    if tied:  # sure of the first band, wrongly
        uncertainty[0] = 0
    one, two, three = (pooled_band(uncertainty[band], squares[band])[0] for band in range(3))
    pooled, exact = (one + two + three).sparsification(), Sparsification.of(uncertainty.ravel(), squares.ravel())
    np.testing.assert_allclose(pooled.curve, exact.curve, rtol=0.02)
    np.testing.assert_allclose(pooled.oracle, exact.oracle, rtol=0.02, atol=1e-5)
    assert pooled.random == pytest.approx(exact.random)
    assert pooled.ause_to_random == pytest.approx(exact.ause_to_random, abs=2e-3)


@pytest.mark.parametrize("count", [7, 105, 20_000])
@pytest.mark.parametrize("tied", [False, True])
def test_the_bins_of_a_band_give_what_its_values_give_in_order(count, tied):
    rng = np.random.default_rng(count)
    uncertainty = rng.gamma(2.0, 0.01, count)
    squares = (uncertainty * rng.normal(size=count)) ** 2
    if tied:
        uncertainty = np.round(uncertainty, 2) + 0.005
        squares[::3] = 0
    pool, said, met = pooled_band(uncertainty, squares)
    binned, exact = pool.sparsification(), Sparsification.of(uncertainty, squares)
    assert [binned.ause_to_random, binned.ause, binned.aurg] == pytest.approx(
        [exact.ause_to_random, exact.ause, exact.aurg], rel=2e-3, abs=1e-5
    )
    assert pool.spearman(said, met) == pytest.approx(spearmanr(uncertainty, squares).statistic, abs=1e-3)
    if not tied:  # equal uncertainties may be in any order, which changes the errors of a tenth
        assert pool.ence() == pytest.approx(ence(uncertainty, squares), abs=2e-3)


def test_bins_without_an_order_or_a_size_have_no_measure_of_it():
    pool, said, met = pooled_band(np.zeros(50), np.ones(50))
    assert np.isnan([pool.spearman(said, met), pool.ence(), pool.sparsification().ause_to_random]).all()


@given(st.data(), lengths)
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
def test_rank_correlation_is_scipys(data, length):
    first, second = squares_and_uncertainty(data, length)
    np.testing.assert_allclose(spearman(first, second), spearmanr(first, second).statistic, atol=1e-9)


def test_ence_is_that_of_a_naive_loop_and_zero_for_an_honest_size():
    rng = np.random.default_rng(0)
    said = rng.uniform(0.1, 1, 20_000)
    squares = (said * rng.standard_normal(20_000)) ** 2
    assert ence(said, squares) < 0.05
    assert ence(said / 4, squares) == pytest.approx(3, abs=0.1)  # four times too sure: |4 - 1| / 1
    pixels = sorted(zip(said, squares, strict=True))
    total = 0.0
    for i in range(10):
        part = np.array(pixels[2000 * i : 2000 * (i + 1)])
        size = np.sqrt((part[:, 0] ** 2).mean())
        total += abs(np.sqrt(part[:, 1].mean()) - size) / size / 10
    assert ence(said, squares) == pytest.approx(total)
    assert np.isnan(ence(np.zeros(50), squares[:50]))
    assert (np.diff(bins_of(said, squares)[0]) > 0).all()


# A scene.


@pytest.fixture
def scene():
    """A truth with holes in the file's numbers, and an estimate whose error and spread are known."""
    rng = np.random.default_rng(1)
    unit = rng.uniform(0.2, 0.8, SHAPE).astype(np.float32)
    std = rng.uniform(0.005, 0.05, SHAPE).astype(np.float32)
    mean = (unit + std * rng.standard_normal(SHAPE)).astype(np.float32)
    roughness = (0.003 * (rng.random(SHAPE) < 0.3)).astype(np.float32)
    numbers = unit * 1000
    there = rng.random(SHAPE) < 0.9
    there[:, :3] = False
    numbers[~there] = np.nan
    cubes = [
        Cube(None, CubeMeta(*SHAPE, np.dtype(np.float32)), a)
        for a in (mean, std, roughness, guess(std, roughness))
    ]
    truth = Cube(None, CubeMeta(*SHAPE, np.dtype(np.float32)), numbers)
    view = View(truth, Radiometry((0.001,), (0.0,), "test"), tuple(range(SHAPE[0])), Window(0, 0, *SHAPE[1:]))
    return view, EstimateMaps(*cubes), there, np.abs(mean - unit)


@pytest.fixture
def calibration():
    rng = np.random.default_rng(2)
    ratios = [
        ErrorRatios.of(rng.standard_normal(4000), np.ones(4000), rng.integers(2, size=4000), np.ones(4000, bool))
        for _ in range(4)
    ]
    return Calibration.fit(ratios)


def test_coverage_and_width_are_counted_value_by_value(scene, calibration):
    view, maps, there, error = scene
    judged = assess(view, maps, calibration, 0.8)
    roughness = maps.roughness.array
    half = np.array(calibration.at(0.8))[strata(roughness)] * guess(maps.std.array, roughness)
    assert judged.values["interval coverage"] == pytest.approx((error <= half)[there].mean(), abs=1e-6)
    assert judged.values["interval unit width"] == pytest.approx(2 * half[there].mean(), rel=1e-5)
    assert judged.values["interval width"] == pytest.approx(2000 * half[there].mean(), rel=1e-5)
    covered = [(error <= half)[b][there[b]].mean() for b in range(SHAPE[0])]
    assert judged.bands["interval coverage"] == pytest.approx(covered, abs=1e-6)
    place = judged.reliability["nominal"].index(0.8)
    assert judged.reliability["met"][place] == pytest.approx(judged.values["interval coverage"], abs=2e-3)


def test_order_is_judged_on_pixels_merged_over_their_valid_bands(scene):
    view, maps, there, error = scene
    judged = assess(view, maps, None, 0.9)
    some = there.any(0)
    count = there.sum(0)[some]
    squares = np.where(there, error.astype(float) ** 2, 0).sum(0)[some] / count
    std = np.sqrt(np.where(there, maps.std.array.astype(float) ** 2, 0).sum(0)[some] / count)
    curve, best = naive_curve(std, squares), naive_curve(squares, squares)
    assert judged.values["AUSE"] == pytest.approx(np.mean(curve) - np.mean(best), rel=1e-4)
    assert judged.values["Spearman"] == pytest.approx(spearmanr(std, squares).statistic, abs=1e-4)
    np.testing.assert_allclose(judged.curves["std"], curve, rtol=1e-4)
    band = Sparsification.of(maps.std.array[2][there[2]].astype(float), error[2][there[2]].astype(float) ** 2)
    assert judged.bands["AUSE/random"][2] == pytest.approx(band.ause_to_random, rel=1e-3)
    values = Sparsification.of(maps.std.array[there].astype(float), error[there].astype(float) ** 2)
    assert judged.values["AUSE/random of values"] == pytest.approx(values.ause_to_random, abs=0.01)


def test_intervals_are_judged_by_the_order_of_their_half_widths_too(scene, calibration):
    view, maps, there, error = scene
    judged = assess(view, maps, calibration, 0.9)
    roughness = maps.roughness.array
    half = np.array(calibration.at(0.6827))[strata(roughness)] * guess(maps.std.array, roughness)
    values = Sparsification.of(half[there].astype(float), error[there].astype(float) ** 2)
    assert judged.values["interval AUSE/random of values"] == pytest.approx(values.ause_to_random, abs=0.01)
    assert judged.values["interval AUSE/random of values"] != judged.values["AUSE/random of values"]
    assert judged.bands["interval AUSE/random of values"] == judged.bands["interval AUSE/random"]


def test_without_a_calibration_there_is_no_coverage(scene):
    view, maps, *_ = scene
    judged = assess(view, maps, None, 0.9)
    assert judged.level is None
    assert not judged.reliability
    assert np.isnan(judged.values["interval coverage"])
    assert np.isfinite(judged.values["AUSE"])
    assert set(judged.curves) == {"std", "best", "random"}


def test_bands_read_in_any_number_give_the_same(scene, calibration, monkeypatch):
    view, maps, *_ = scene
    whole, ratios = assess(view, maps, calibration, 0.9), error_ratios_of(view, maps)
    monkeypatch.setattr(estimate_maps, "CHUNK_VALUES", 1)
    assert assess(view, maps, calibration, 0.9) == whole
    np.testing.assert_array_equal(error_ratios_of(view, maps).counts, ratios.counts)


def test_a_band_without_a_value_is_a_gap_not_a_failure(scene, calibration):
    view, maps, *_ = scene
    view.cube.array[1] = np.nan
    judged = assess(view, maps, calibration, 0.9)
    assert np.isnan(judged.bands["AUSE"][1])
    scored = {measure.name for measure in MEASURES} - {SHARPNESS, SHARP_COVERAGE, SHARP_WIDTH}
    assert np.isfinite([judged.values[name] for name in scored]).all()


def test_a_scene_without_a_value_is_said_in_a_line(scene, calibration):
    view, maps, *_ = scene
    view.cube.array[:] = np.nan
    for judge in (lambda: assess(view, maps, calibration, 0.9), lambda: error_ratios_of(view, maps)):
        with pytest.raises(UsageError, match="nothing to compare"):
            judge()


def test_a_table_that_ends_below_one_sigma_still_tells_coverage_and_width(scene, calibration):
    view, maps, *_ = scene
    short = dataclasses.replace(
        calibration,
        level=0.4,
        levels=calibration.levels[:4],
        factors=tuple(table[:4] for table in calibration.factors),
        certified=tuple(table[:4] for table in calibration.certified),
    )
    whole, judged = (assess(view, maps, made, 0.4) for made in (calibration, short))
    for name in ("coverage", "width", "unit width"):
        assert judged.values[f"interval {name}"] == whole.values[f"interval {name}"]
    assert np.isnan([judged.values["interval AUSE/random"], judged.values["interval ENCE"]]).all()
    assert trust_charts(judged, "here")


# `pdenet evaluate --uncertainty`.


@pytest.fixture(scope="module")
def judged_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = dataclasses.replace(CONFIGS["tiny"], stages=1, units=3, mask_start=0.6)
    ratios = [ErrorRatios(np.ones((2, 2002), np.int64), np.ones(2))] * 3
    fitted = Calibration.fit(ratios, samples=4).to_dict()
    modest = Calibration.fit(ratios * 2, samples=4, level=0.6, certify=True).to_dict()
    kinds = {
        "calibrated": ("pdenet", PDENet, fitted),
        "modest": ("pdenet", PDENet, modest),
        "low": ("pdenet", PDENet, Calibration.fit(ratios, samples=4, level=0.05).to_dict()),
        "bare": ("pdenet", PDENet, None),
        "plain": ("template", TemplateNet, None),
    }
    for name, (network, kind, more) in kinds.items():
        spec = ModelSpec(network, dataclasses.asdict(config), 4, {}, "test", calibration=more)
        save_model(folder / f"{name}.safetensors", Model(spec, kind(config)))
    return {name: str(folder / f"{name}.safetensors") for name in kinds}


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("truths")
    paths = []
    for i in range(2):
        pixels = np.random.default_rng(i).random((3, 32, 40)).astype("<f4")
        paths.append(written(folder / f"<{i}>.hdr", pixels))
    return paths


def contest(judged_models, names, samples=(4,), **settings):
    return Benchmark(
        [judged_models.get(name, name) for name in names],
        samples,
        0,
        "cpu",
        TruthSettings(uncertainty=True, **settings),
    )


@pytest.fixture(scope="module")
def evaluated(judged_models, truths):
    return contest(judged_models, ("calibrated", "bare", "plain")).run(truths)


def test_every_model_with_samples_is_judged_and_the_others_are_only_scored(evaluated):
    assert tuple(evaluated.scenes[0].systems) == ("bicubic", "calibrated", "bare", "plain")
    assert list(evaluated.trusts()) == ["calibrated", "bare"]
    told = json.loads(json.dumps(evaluated.to_dict()))
    means = told["uncertainty"]["calibrated"]
    coverages = [scene["uncertainty"]["calibrated"]["values"]["interval coverage"] for scene in told["scenes"]]
    assert means["interval coverage"] == pytest.approx(np.mean(coverages))
    assert told["uncertainty"]["bare"]["interval coverage"] is None
    assert told["level"] == 0.9
    assert f"The {100 * told['level']:g}% interval" in told["models"]["calibrated"]["guarantee"]
    rows = list(csv.DictReader(io.StringIO(evaluated.to_csv())))
    found = [row for row in rows if row["metric"] == "interval coverage" and row["system"] == "calibrated"]
    assert len(found) == 2 * (1 + 3)  # each scene and each of its bands


def test_coverage_and_its_unit_agree_wherever_they_are_told(evaluated, pdenet, judged_models, truths):
    told = json.loads(json.dumps(evaluated.to_dict()))
    coverage = told["scenes"][0]["uncertainty"]["calibrated"]["values"]["interval coverage"]
    assert 0 < coverage <= 1
    assert told["measures"]["interval coverage"]["unit"] == "fraction"
    rows = list(csv.DictReader(io.StringIO(evaluated.to_csv())))
    units = {row["metric"]: row["unit"] for row in rows}
    assert (units["interval coverage"], units["interval width"]) == ("fraction", "the file's units")
    listed = next(row for row in rows if row["metric"] == "interval coverage" and row["system"] == "calibrated")
    assert float(listed["value"]) == coverage
    page = evaluation_page(evaluated)
    assert "<th>coverage<span>%</span></th><th>width<span>the file&#x27;s units</span></th>" in page
    assert f"<td>{100 * coverage:.1f}</td>" in page
    words = ("--model", judged_models["calibrated"], "--uncertainty", "--samples", 4)
    lines = pdenet("evaluate", *words, truths[0]).stdout.splitlines()
    heads = next(i for i, line in enumerate(lines) if line.split()[:2] == ["coverage", "width"])
    assert lines[heads + 1].split()[:5] == ["scene", "%", "the", "file's", "units"]
    assert lines[heads + 2].split()[1] == f"{100 * coverage:.1f}"


def test_scores_are_those_of_an_evaluation_without_uncertainty(evaluated, judged_models, truths):
    plain = Benchmark([judged_models["bare"]], (4,), 0, "cpu", TruthSettings()).run(truths)
    assert plain.means()["bare"] == pytest.approx(evaluated.means()["bare"])
    assert plain.to_dict()["uncertainty"] == {}


def test_the_page_has_tables_and_charts_of_the_uncertainty(evaluated):
    page = evaluation_page(evaluated)
    assert page.count("Sparsification, ") == page.count("Error by standard deviation, ") == 4
    assert page.count("Reliability, ") == page.count("Error by half width at 68.3 %, ") == 2
    assert "90.0% intervals" in page
    assert "&lt;1&gt;.hdr" in page
    assert "<1>" not in page


def test_means_leave_out_what_a_scene_has_not(evaluated):
    one, other = evaluated.trusts()["calibrated"].values()
    gap = dataclasses.replace(other, values=other.values | {"AUSE": float("nan")})
    assert mean_trust([one, gap])["AUSE"] == one.values["AUSE"]


def test_widths_in_the_units_of_several_files_have_no_mean(evaluated):
    one, other = evaluated.trusts()["calibrated"].values()
    assert np.isnan(mean_trust([one, other])["interval width"])
    assert mean_trust([one])["interval width"] == one.values["interval width"]


def test_what_is_promised_is_said_of_the_level_that_is_asked_for(judged_models, truths):
    told = contest(judged_models, ("calibrated",), level=0.8).run(truths[:1]).to_dict()
    assert told["level"] == 0.8
    assert told["models"]["calibrated"]["guarantee"].startswith("The 80% interval")


def test_another_number_of_samples_than_the_calibrations_is_told(judged_models, truths):
    (note,) = contest(judged_models, ("calibrated",), (2,)).run(truths[:1]).notes
    assert "calibrated with 4 samples" in note


def test_the_level_is_that_of_the_calibration_where_none_is_asked_for(judged_models):
    levels = {
        names: contest(judged_models, names).level for names in (("modest",), ("modest", "calibrated"), ("bare",))
    }
    assert list(levels.values()) == [0.6, 0.6, 0.9]
    assert contest(judged_models, ("modest",), level=0.5).level == 0.5
    with pytest.raises(UsageError, match="no model is calibrated"):
        contest(judged_models, ("bare",), level=0.8)
    # Of the levels that both have, the nearest to 0.05.
    assert contest(judged_models, ("low", "calibrated")).level == 0.1
    with pytest.raises(UsageError, match=r"`level` 0\.9"):
        contest(judged_models, ("modest",), level=0.9)


def test_flips_make_a_network_without_chance_unsure(judged_models, truths):
    judged = contest(judged_models, ("plain",), (8,), ensemble="flips").run(truths[:1])
    assert judged.trusts()["plain"]["<0>.hdr"].values["ENCE"] > 0  # NaN where no sample differs


@pytest.mark.parametrize(
    ("names", "samples", "settings", "says"),
    [
        (("plain",), (4,), {}, "no model gives more than one sample"),
        (("bare",), (1,), {}, "no model gives more than one sample. Try"),
        (("bicubic",), (8,), {"ensemble": "flips"}, "Use a model other than bicubic"),
        (("bare",), (1, 2), {}, "one number of `samples`"),
        (("calibrated",), (4,), {"level": 0.9999}, r"calibrated for levels from 0\.1 to 0\.995"),
    ],
)
def test_what_cannot_be_judged_is_said_in_a_line(judged_models, names, samples, settings, says):
    with pytest.raises(UsageError, match=says):
        contest(judged_models, names, samples, **settings)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--uncertainty",), "--uncertainty applies only to models; add --model"),
        (("--samples", "4"), "--samples applies only to models"),
        (("--ensemble", "flips"), "--ensemble applies only to models"),
        (("--level", "0.8"), "add --uncertainty"),
    ],
)
def test_wrong_options_end_in_a_line(pdenet, truths, arguments, says):
    ran = pdenet("evaluate", *truths, *arguments)
    assert ran.returncode == UsageError.exit_code
    assert says in ran.stderr


def test_the_command_prints_the_tables(pdenet, judged_models, truths):
    ran = pdenet("evaluate", "--model", judged_models["calibrated"], "--uncertainty", "--samples", 4, *truths)
    assert ran.returncode == 0, ran.stderr
    assert "90.0% intervals" in ran.stdout
    assert "AUSE/random" in ran.stdout
    assert "<1>.hdr" in ran.stdout
