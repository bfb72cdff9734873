"""Maps of samples against values worked out by hand."""

import numpy as np

from pdenet_cli.summaries import MAPS, mean, share, std


def samples(*values):
    """Samples of one pixel in one band."""
    return np.array(values, np.float32)[:, None, None, None]


def test_std_is_the_one_with_n_minus_one():
    # Mean 0.4, squares 0.04 + 0 + 0.04, divided by 2.
    np.testing.assert_allclose(std(samples(0.2, 0.4, 0.6)).item(), 0.2, rtol=1e-6)
    assert std(samples(0.7)).item() == 0


def test_share_counts_samples_with_another_8_bit_value_than_the_mean():
    # 8-bit 100, 101, 101, 103, 100: their mean is 101, so three of five differ.
    assert share(samples(100 / 255, 101 / 255, 101 / 255, 103 / 255, 100 / 255)).item() == 60
    assert share(samples(0.5, 0.5)).item() == 0
    assert share(samples(1.2, 1.7)).item() == 0  # both are 255


def test_merging_takes_the_valid_bands_only():
    values = np.array([3.0, 4.0, 100.0], np.float32)[:, None, None]
    there = np.array([True, True, False])[:, None, None]
    spread, part = MAPS["std"], MAPS["share"]
    np.testing.assert_allclose(spread.merged(spread.addends(values, there), there.sum(0)).item(), np.sqrt(12.5))
    np.testing.assert_allclose(part.merged(part.addends(values, there), there.sum(0)).item(), 3.5)
    nowhere = np.zeros_like(there)
    assert np.isnan(part.merged(part.addends(values, nowhere), nowhere.sum(0))).all()


def test_the_mean_is_numpys():
    some = np.random.default_rng(0).random((7, 2, 3, 4), dtype=np.float32)
    np.testing.assert_allclose(mean(some), some.mean(0), rtol=1e-6)
