"""Maps of samples against values worked out by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pdenet_cli.uncertainty.evidence import Evidence, enlarged, mean, roughness, std
from pdenet_cli.uncertainty.summaries import DARK, MAPS, MEAN, USUAL, Question


def evidence(samples, **known):
    """What is known of a few pixels, their bands as columns say: (samples, bands, rows, columns)."""
    samples = np.asarray(samples, np.float32)
    shape = samples.shape[1:]
    return Evidence(samples, np.zeros(shape, np.float32), np.zeros(shape, np.float32), 1, **known)


def one(*values):
    """Evidence of one pixel in one band."""
    return evidence(np.array(values)[:, None, None, None])


def value(name, known, question=USUAL):
    (summary,) = MAPS[name]
    return summary.compute(known, question).item()


def merged(name, *some, there=None, question=USUAL):
    """A merged map of one scene whose bands come in some pieces."""
    (summary,) = MAPS[name]
    sums, counts = 0, 0
    for known in some:
        valid = np.ones(known.mean.shape, bool) if there is None else there
        values = known.mean if summary.compute is None else summary.compute(known, question)
        sums, counts = sums + summary.merging.addends(known, values, valid), counts + valid.sum(0)
    return summary.merging.finish(sums, counts)


class Known:
    """A calibration by hand: intervals reach 3 std to each side at any level, and risk tells the tolerance."""

    def half_width(self, evidence, level):
        return 3 * evidence.std

    def beyond(self, evidence, tolerance):
        return np.broadcast_to(np.float32(tolerance), evidence.mean.shape)


def test_std_is_the_one_with_n_minus_one():
    # Mean 0.4, squares 0.04 + 0 + 0.04, divided by 2.
    np.testing.assert_allclose(value("std", one(0.2, 0.4, 0.6)), 0.2, rtol=1e-6)
    assert value("std", one(0.7)) == 0
    some = np.random.default_rng(0).random((7, 2, 3, 4), dtype=np.float32)
    np.testing.assert_allclose(std(some, some.mean(0)), some.std(0, ddof=1), rtol=1e-5)


def test_share_counts_samples_with_another_8_bit_value_than_the_mean():
    # 8-bit 100, 101, 101, 103, 100: their mean is 101, so three of five differ.
    assert value("share", one(100 / 255, 101 / 255, 101 / 255, 103 / 255, 100 / 255)) == 60
    assert value("share", one(0.5, 0.5)) == 0
    assert value("share", one(1.2, 1.7)) == 0  # both are 255


def test_share_sees_less_in_fewer_levels_and_more_in_more():
    known = one(0.600, 0.601, 0.604, 0.607)  # 8-bit 153, 153, 154, 155; their mean 154
    shares = [value("share", known, Question(grey_levels=levels)) for levels in (2, 256, 65536)]
    assert shares == [0, 75, 100]


def test_cv_is_relative_to_a_mean_of_at_least_one_8_bit_step():
    np.testing.assert_allclose(value("cv", one(0.2, 0.4, 0.6)), 50, rtol=1e-6)
    np.testing.assert_allclose(value("cv", one(-0.2, -0.4, -0.6)), 50, rtol=1e-6)
    np.testing.assert_allclose(value("cv", one(-0.01, 0.01)), 100 * np.sqrt(0.0002) / DARK, rtol=1e-5)


def test_interval_ends_lie_as_far_from_the_mean_as_the_calibration_says():
    question = Question(level=0.9, calibration=Known())
    low, high = (summary.compute(one(0.2, 0.4, 0.6), question) for summary in MAPS["interval"])
    np.testing.assert_allclose([low.item(), high.item()], [-0.2, 1.0], rtol=1e-5)


def test_the_lower_end_is_the_lower_number_of_the_file_though_its_gain_be_negative():
    question = Question(level=0.9, calibration=Known())
    some = evidence(
        np.array([0.2, 0.4, 0.6]).reshape(3, 1, 1, 1).repeat(2, 1), gain=np.reshape([2, -2], (2, 1, 1))
    )
    low, high = (summary.compute(some, question).ravel() for summary in MAPS["interval"])
    assert low[0] < high[0]
    assert low[1] / -2 < high[1] / -2


def test_risk_asks_the_calibration_for_a_tolerance_in_unit_values():
    known = evidence(np.zeros((2, 2, 1, 1)), gain=np.array([0.1, 0.001])[:, None, None])
    (summary,) = MAPS["risk"]
    risk = summary.compute(known, Question(tolerance=5.0, calibration=Known()))
    np.testing.assert_allclose(risk.ravel(), [50, 0.5], rtol=1e-6)


def test_consistency_is_one_value_for_all_fine_pixels_of_an_input_pixel():
    left = np.array([[[0.1, -0.2]]], np.float32)
    known = Evidence(np.zeros((1, 1, 3, 6), np.float32), left, np.zeros((1, 3, 6), np.float32), 3, left)
    (summary,) = MAPS["consistency"]
    wanted = np.array([0.1] * 3 + [0.2] * 3, np.float32)
    np.testing.assert_array_equal(summary.compute(known, USUAL), np.tile(wanted, (1, 3, 1)))


def test_the_angle_is_the_mean_one_between_samples_and_their_mean():
    # Two spectra of one length, 90 degrees apart: each is 45 degrees from their mean.
    known = evidence(np.array([[1, 0], [0, 1]])[:, :, None, None])
    np.testing.assert_allclose(merged("angle", known), 45, rtol=1e-6)
    brighter = evidence(np.array([[1, 2, 3], [2, 4, 6]])[:, :, None, None])
    np.testing.assert_allclose(merged("angle", brighter), 0, atol=1e-5)
    black = evidence(np.zeros((2, 3, 1, 1)))
    assert merged("angle", black) == 0


@pytest.mark.parametrize("name", [name for name in MAPS if name not in ("interval", "consistency", "risk")])
@given(cut=st.integers(1, 4), seed=st.integers(0, 99))
def test_bands_merge_to_the_same_however_they_are_cut(name, cut, seed):
    samples = np.random.default_rng(seed).random((3, 5, 2, 2))
    first, rest, whole = (
        evidence(part, expected=part[0].astype(np.float32))
        for part in (samples[:, :cut], samples[:, cut:], samples)
    )
    np.testing.assert_allclose(merged(name, first, rest), merged(name, whole), rtol=1e-6)


def test_merging_takes_the_valid_bands_only():
    samples = np.array([[0.3, 0.4, 0.0], [0.9, 1.2, 100.0]])[:, :, None, None]
    there = np.array([True, True, False])[:, None, None]
    spreads = np.array([0.6, 0.8]) / np.sqrt(2)
    np.testing.assert_allclose(
        merged("std", evidence(samples), there=there), np.sqrt((spreads**2).mean()), rtol=1e-6
    )
    np.testing.assert_allclose(merged("cv", evidence(samples), there=there), 50 * np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(merged("angle", evidence(samples), there=there), 0, atol=1e-5)
    for name in ("std", "cv", "angle"):
        assert np.isnan(merged(name, evidence(samples), there=np.zeros_like(there))).all()


def test_the_mean_is_numpys():
    some = np.random.default_rng(0).random((7, 2, 3, 4), dtype=np.float32)
    np.testing.assert_allclose(mean(some), some.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(MEAN.compute(evidence(some), USUAL), mean(some))


def test_roughness_is_what_a_local_mean_leaves():
    low = np.random.default_rng(0).random((2, 6, 7)).astype(np.float32)

    def local_mean(image):
        framed = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
        return np.lib.stride_tricks.sliding_window_view(framed, (3, 3), axis=(1, 2)).mean((-2, -1))

    wanted = np.sqrt(local_mean((low - local_mean(low)) ** 2))
    np.testing.assert_allclose(roughness(low), wanted, atol=1e-6)
    slope = np.arange(9, dtype=np.float32) * np.ones((1, 9, 1), np.float32) / 9
    np.testing.assert_allclose(roughness(slope)[:, 2:-2, 2:-2], 0, atol=1e-6)
    assert roughness(np.full((1, 5, 5), 0.7, np.float32)).max() < 1e-6


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_a_map_is_enlarged_as_torch_does_it(scale):
    low = np.random.default_rng(0).random((2, 5, 4), dtype=np.float32)
    wanted = F.interpolate(torch.from_numpy(low)[None], scale_factor=scale, mode="bilinear")[0].numpy()
    np.testing.assert_allclose(enlarged(low, scale), wanted, atol=1e-6)
    assert enlarged(low[:, :1, :1], scale).shape == (2, scale, scale)


def test_a_map_names_what_was_asked_of_it():
    question = Question(grey_levels=64, level=0.95, tolerance=12.5)
    said = {summary.name: summary.describe(question) for group in MAPS.values() for summary in group}
    assert "64" in said["share"]
    assert "0.95" in said["interval_low"]
    assert "12.5" in said["risk"]
