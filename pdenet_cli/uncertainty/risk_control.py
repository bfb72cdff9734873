"""An upper bound of the true mean loss, given its mean over a few scenes; it holds for finite samples.

Hoeffding and Bentkus, after Bates et al., Distribution-Free, Risk-Controlling Prediction Sets (2021). For n
independent losses in 0..1 whose true mean is a or more, seeing a mean of r or less has at most the probability

    min(exp(-n · h(min(r, a), a)),  e · P(Binomial(n, a) <= ceil(n · r)))

with h(r, a) = r·log(r/a) + (1 - r)·log((1 - r)/(1 - a)). What is independent is the scene, never the pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

ROUNDING = 1e-10  # tolerance of comparisons: 1 - 0.1 is not exactly 0.9


def p_value(seen: float, count: int, mean: float) -> float:
    """An upper bound of the probability that `count` losses of true mean `mean` average at most `seen`."""
    if mean >= 1:
        return float(seen >= 1)
    if mean <= 0:
        return 1.0
    hoeffding = math.exp(-count * _divergence(min(seen, mean), mean))
    # Rounding errors must not lift a whole number to the next one.
    bentkus = math.e * binomial_cdf(math.ceil(count * seen - 1e-9), count, mean)
    return min(hoeffding, bentkus, 1.0)


@lru_cache(maxsize=1024)
def upper_bound(seen: float, count: int, delta: float) -> float:
    """An upper bound of the true mean, with probability 1 - `delta`, if `count` losses average `seen`."""
    return _last(lambda mean: p_value(seen, count, mean) > delta, seen) if count else 1.0


@lru_cache(maxsize=1024)
def allowed_mean(wanted: float, count: int, delta: float) -> float | None:
    """The largest mean of `count` losses that proves a true mean of at most `wanted`; None: not even 0 does."""
    if not provable(wanted, count, delta):
        return None
    return _last(lambda seen: p_value(seen, count, wanted) <= delta, 0.0)


def provable(wanted: float, count: int, delta: float) -> bool:
    """Whether `count` scenes can prove a mean loss of at most `wanted` at all."""
    return least_bound(count, delta) <= wanted + ROUNDING


def least_bound(count: int, delta: float) -> float:
    """The smallest mean loss that `count` scenes can prove, which they do if every loss is 0."""
    return 1 - delta ** (1 / count) if count else 1.0


def scenes_needed(wanted: float, delta: float) -> int:
    """How many scenes without any loss prove a mean loss of at most `wanted`."""
    return math.ceil(math.log(delta) / math.log(1 - wanted) - ROUNDING / 10)


def binomial_cdf(most: int, count: int, chance: float) -> float:
    """The probability of at most `most` hits among `count` tries, each with a `chance` between 0 and 1."""
    if most >= count:
        return 1.0
    log_hit, log_miss, log_all = math.log(chance), math.log1p(-chance), math.lgamma(count + 1)
    return math.fsum(
        math.exp(log_all - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * log_hit + (count - k) * log_miss)
        for k in range(most + 1)
    )


def _divergence(seen: float, mean: float) -> float:
    """Kullback-Leibler divergence of two Bernoulli distributions with these means, in nats."""
    near = seen * math.log(seen / mean) if seen > 0 else 0.0
    return near + ((1 - seen) * math.log((1 - seen) / (1 - mean)) if seen < 1 else 0.0)


def _last(holds: Callable[[float], bool], low: float) -> float:
    """The largest number up to 1 for which `holds` is true, by bisection; it is true from `low` up to there."""
    high = 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
