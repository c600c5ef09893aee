"""How many times a number of one side is that of the other, as far as a few starts of each can tell. Pure."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

_LEAST = 0.001
"""The least spread: sides whose numbers never vary may differ by chance too."""
_STEPS = 200


class Ratio(NamedTuple):
    """The ``means`` of two sides and the ``middle`` of their ratio, in an interval.

    ``noise`` is the factor that two sets of the first side's starts may differ by. Of too few numbers, and of those
    that are 0, there is no ``middle``, and nothing behind it.
    """

    means: tuple[float, float]
    middle: float | None = None
    low: float = 0.0
    high: float = 0.0
    noise: float = 0.0


def compare(first: Sequence[float], second: Sequence[float], confidence: float) -> Ratio:
    """Compare two sides, each with a number of every start, by Welch's interval of the logarithms."""
    means = (fmean(first), fmean(second))
    if min(len(first), len(second)) < 2 or min(*first, *second) <= 0:
        return Ratio(means)
    logs = [[math.log(value) for value in side] for side in (first, second)]
    spreads = [max(stdev(side), _LEAST) ** 2 / len(side) for side in logs]
    shares = [spread**2 / (len(side) - 1) for spread, side in zip(spreads, logs, strict=True)]
    most = quantile(confidence, sum(spreads) ** 2 / sum(shares)) * math.sqrt(sum(spreads))
    noise = quantile(confidence, len(first) - 1) * math.sqrt(2 * spreads[0])
    middle = fmean(logs[1]) - fmean(logs[0])
    exponents = (middle, middle - most, middle + most, noise)
    return Ratio(means, *(math.exp(max(-700, min(each, 700))) for each in exponents))


def quantile(confidence: float, freedom: float) -> float:
    """Return the bound within which Student's t is with a probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (low, angle) if _within(angle, freedom) > confidence else (angle, high)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: float) -> float:
    """Return the probability that t is within ``sqrt(freedom) * tan(angle)``, by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    high: list[float] = [math.cos(i * angle / _STEPS) ** (freedom - 1.0) for i in range(_STEPS + 1)]
    area = high[0] + high[-1] + 4 * math.fsum(high[1::2]) + 2 * math.fsum(high[2:-1:2])
    return 2 / 3 * scale / math.sqrt(math.pi) * area * angle / _STEPS
