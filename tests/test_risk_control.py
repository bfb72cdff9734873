"""The bound on the mean loss: against scipy, closed forms, and chance itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import rel_entr
from scipy.stats import binom

from pdenet_cli.uncertainty.risk_control import (
    allowed_mean,
    binomial_cdf,
    least_bound,
    p_value,
    scenes_needed,
    upper_bound,
)

shares = st.floats(0.001, 0.999)
counts = st.integers(1, 400)


def reference(seen, count, mean):
    near = min(seen, mean)
    hoeffding = np.exp(-count * (rel_entr(near, mean) + rel_entr(1 - near, 1 - mean)))
    return min(hoeffding, np.e * binom.cdf(np.ceil(np.round(count * seen, 8)), count, mean), 1.0)


@given(st.data(), counts, shares)
def test_the_binomial_is_scipys(data, count, chance):
    most = data.draw(st.integers(0, count))
    assert binomial_cdf(most, count, chance) == pytest.approx(binom.cdf(most, count, chance), rel=1e-7, abs=1e-200)


@given(shares, counts, shares)
def test_the_p_value_is_that_of_another_formula(seen, count, mean):
    assert p_value(seen, count, mean) == pytest.approx(reference(seen, count, mean), rel=1e-7, abs=1e-200)


@pytest.mark.parametrize("count", [5, 12, 20, 100, 1000])
@pytest.mark.parametrize("seen", [0.05, 0.1, 0.3])
def test_the_bound_is_where_the_reference_crosses_delta(seen, count):
    bound = upper_bound(seen, count, 0.1)
    # min(falling, falling) falls, but the binomial part jumps nowhere in the mean: a root finder finds the place.
    expected = brentq(lambda mean: reference(seen, count, mean) - 0.1, seen, 1 - 1e-12, xtol=1e-13)
    assert bound == pytest.approx(expected, abs=1e-9)
    assert bound > seen


def test_bounds_worked_out_by_hand():
    # No loss in 12 scenes: (1 - a)^12 = 0.1. One scene that lost all: nothing is known.
    assert upper_bound(0.0, 12, 0.1) == pytest.approx(1 - 0.1 ** (1 / 12), abs=1e-12)
    assert upper_bound(0.0, 12, 0.1) == pytest.approx(0.17460, abs=1e-5)
    assert upper_bound(1.0, 1, 0.1) == 1.0
    # Two of two halves: exp(-2 h(.5, a)) = .1, so 4a(1 - a) = .1 (h is half the log of 1/(4a(1-a))).
    assert upper_bound(0.5, 2, 0.1) == pytest.approx((1 + math.sqrt(0.9)) / 2, abs=1e-9)


@given(counts, shares)
def test_what_can_be_proved_at_all_is_the_bound_without_loss(count, delta):
    assert upper_bound(0.0, count, delta) == pytest.approx(least_bound(count, delta), abs=1e-9)


@given(shares, st.floats(0.01, 0.5))
def test_one_scene_fewer_than_needed_proves_too_little(wanted, delta):
    count = scenes_needed(wanted, delta)
    assert least_bound(count, delta) <= wanted + 1e-9
    if count > 1:
        assert least_bound(count - 1, delta) > wanted - 1e-9


@given(st.floats(0.02, 0.9), st.integers(1, 200), st.floats(0.01, 0.5))
def test_the_allowed_mean_is_the_largest_that_proves_what_is_wanted(wanted, count, delta):
    allowed = allowed_mean(wanted, count, delta)
    if allowed is None:
        assert least_bound(count, delta) > wanted - 1e-9
    else:
        assert upper_bound(allowed, count, delta) <= wanted + 1e-9
        assert upper_bound(allowed + 1e-6, count, delta) > wanted


@pytest.mark.parametrize("kind", ["nearly alike", "spread out", "all or nothing"])
def test_the_truth_exceeds_the_bound_no_more_often_than_promised(kind):
    # Losses with the mean 0.1 on 25 scenes, 400 repetitions.
    rng = np.random.default_rng(0)
    shape = {"nearly alike": (2, 18), "spread out": (0.4, 3.6)}.get(kind)
    losses = rng.random((400, 25)) < 0.1 if shape is None else rng.beta(*shape, (400, 25))
    broken = np.mean([upper_bound(mean, 25, 0.2) < 0.1 for mean in losses.mean(1)])
    assert broken <= 0.2
    assert shape is not None or broken > 0.04  # 0.9 ** 25 = 0.07 see no loss at all: the bound is not idle
