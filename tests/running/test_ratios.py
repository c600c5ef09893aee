"""How much of a difference a few starts prove: none by chance, and what is there."""

from __future__ import annotations

import functools
import math
import random

import pytest

from vllm_mods.running import ratios

TABLE = [
    # Student's t, two-sided, as printed tables have it
    (0.95, 1, 12.706),
    (0.99, 1, 63.657),
    (0.95, 2, 4.303),
    (0.95, 6, 2.447),
    (0.999, 6, 5.959),
    (0.95, 30, 2.042),
    (0.5, 3, 0.765),
]


@pytest.mark.parametrize(("confidence", "freedom", "bound"), TABLE)
def test_the_bounds_are_those_of_tables(confidence: float, freedom: float, bound: float) -> None:
    assert ratios.quantile(confidence, freedom) == pytest.approx(bound, abs=0.0006)


def starts(dice: random.Random, middle: float, spread: float, count: int = 4) -> list[float]:
    return [middle * math.exp(dice.gauss(0, spread)) for _ in range(count)]


def found(first: list[float], second: list[float], confidence: float = 0.95) -> bool:
    ratio = ratios.compare(first, second, confidence)
    return not ratio.low <= 1 <= ratio.high


@pytest.mark.parametrize(
    ("spreads", "most"), [((0.01, 0.01), 20), ((0.2, 0.2), 20), ((0.01, 0.1), 30)]
)
def test_of_a_mod_that_does_nothing_no_number_of_eight_is_found_but_in_five_benches_of_a_hundred(
    spreads: tuple[float, float], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = functools.cache(ratios.quantile)
    monkeypatch.setattr(  # tenths, downwards: so much quicker
        ratios, "quantile", lambda sure, freedom: exact(sure, max(1.0, int(freedom * 10) / 10))
    )
    dice = random.Random(20261129)
    wrong = sum(
        any(
            found(starts(dice, 70, spreads[0]), starts(dice, 70, spreads[1]), 1 - 0.05 / 8)
            for _ in range(8)
        )
        for _ in range(400)
    )
    assert wrong <= most


def test_ten_per_cent_are_found_where_starts_vary_by_one() -> None:
    dice = random.Random(7)
    seen = [
        ratios.compare(starts(dice, 70, 0.01), starts(dice, 77, 0.01), 1 - 0.05 / 8)
        for _ in range(100)
    ]
    assert sum(ratio.low > 1 for ratio in seen) >= 97
    assert sum(ratio.low <= 1.1 <= ratio.high for ratio in seen) >= 97
    assert all(1.01 < ratio.noise < 1.5 for ratio in seen if math.log(ratio.noise) > 0.005)


def test_what_never_varies_differs_by_chance_too() -> None:
    assert not found([1000.0] * 4, [1001.0] * 4)
    assert found([1000.0] * 4, [1010.0] * 4)


@pytest.mark.parametrize(
    ("first", "second"), [([1.0], [2.0, 3.0]), ([1.0, 2.0], [2.0]), ([0.0, 1.0], [1.0, 1.0])]
)
def test_of_too_few_starts_and_of_zeros_only_the_means_are_told(
    first: list[float], second: list[float]
) -> None:
    ratio = ratios.compare(first, second, 0.95)
    assert ratio == ratios.Ratio((sum(first) / len(first), sum(second) / len(second)))


def test_starts_that_have_nothing_in_common_have_a_ratio_that_json_can_hold() -> None:
    ratio = ratios.compare([1e-300, 1e300], [1.0, 1.0], 0.99)
    assert 0 < ratio.low < 1 < ratio.high < math.inf
