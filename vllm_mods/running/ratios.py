"""How many times a number of one side is that of the other, as far as a few starts of each can tell. Pure."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

_LEAST = 0.001
"""The spread below which no clock or counter is trusted: sides whose numbers never vary differ by chance too."""
_STEPS = 200


class Ratio(NamedTuple):
    """The ratio ``middle`` of two sides, in an interval; ``noise`` is how far the first side's starts would be from themselves."""

    middle: float
    low: float
    high: float
    noise: float

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1 <= self.high


def compare(first: Sequence[float], second: Sequence[float], confidence: float) -> Ratio:
    """Return the ratio of positive numbers, by Welch's interval of their logarithms.

    Each number is that of one start; at least two per side. ``noise`` is the factor within which two such sets of
    the first side's starts are expected.
    """
    logs = [[math.log(value) for value in side] for side in (first, second)]
    spreads = [max(stdev(side), _LEAST) ** 2 / len(side) for side in logs]
    freedom = sum(spreads) ** 2 / sum(
        spread**2 / (len(side) - 1) for spread, side in zip(spreads, logs, strict=True)
    )
    middle = fmean(logs[1]) - fmean(logs[0])
    most = quantile(confidence, freedom) * math.sqrt(sum(spreads))
    noise = quantile(confidence, len(first) - 1) * math.sqrt(2 * spreads[0])
    return Ratio(*map(_factor, (middle, middle - most, middle + most, noise)))


def _factor(logarithm: float) -> float:
    return math.exp(min(logarithm, 700))  # of two starts that have nothing to do with each other


def quantile(confidence: float, freedom: float) -> float:
    """Return the bound within which Student's t is with a probability."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (low, angle) if _within(angle, freedom) > confidence else (angle, high)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: float) -> float:
    """Return the probability that t is within ``sqrt(freedom) * tan(angle)``: an integral of a power of the cosine."""
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    step = angle / _STEPS
    heights = [math.cos(i * step) ** (freedom - 1) for i in range(_STEPS + 1)]
    simpson = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return 2 * math.exp(scale) / math.sqrt(math.pi) * simpson * step / 3


def farthest(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of two starts' log probabilities."""
    return max((abs(a - b) for a, b in zip(one, other, strict=False)), default=0.0)
