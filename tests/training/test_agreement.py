"""Kappa against figures worked by hand and against scikit-learn."""

from __future__ import annotations

import random

import pytest
from sklearn.metrics import cohen_kappa_score

from training.agreement import cohen


def table(both: int, first: int, second: int, neither: int) -> list[tuple[int, int]]:
    return [(1, 1)] * both + [(1, 0)] * first + [(0, 1)] * second + [(0, 0)] * neither


def test_kappa_of_a_table_worked_by_hand() -> None:
    # 20 both, 5 only the first, 10 only the second, 15 neither: observed 35/50, chance .5 * .6 + .5 * .4 = .5
    found = cohen(table(20, 5, 10, 15), 1)
    assert found is not None
    assert found.value == pytest.approx(0.4)
    half = 1.959964 * (0.7 * 0.3 / 50) ** 0.5 / 0.5
    assert (found.low, found.high) == (pytest.approx(0.4 - half), pytest.approx(0.4 + half))


def test_the_interval_is_about_as_wide_as_its_simulation_says() -> None:
    pairs, values = table(20, 5, 10, 15), []
    chance = random.Random(7)
    for _ in range(2000):
        found = cohen([chance.choice(pairs) for _ in pairs], 1)
        assert found is not None
        values.append(found.value)
    values.sort()
    asked = cohen(pairs, 1)
    assert asked is not None
    assert asked.low == pytest.approx(values[50], abs=0.06)
    assert asked.high == pytest.approx(values[1949], abs=0.06)


def test_kappa_of_each_class_is_that_of_scikit_learn() -> None:
    chance = random.Random(3)
    pairs = [
        (a, a if chance.random() < 0.7 else chance.randrange(4)) for a in (chance.randrange(4) for _ in range(200))
    ]
    for number in range(4):
        found = cohen(pairs, number)
        assert found is not None
        theirs = cohen_kappa_score([a == number for a, _ in pairs], [b == number for _, b in pairs])
        assert found.value == pytest.approx(theirs)


def test_too_few_pairs_and_classes_nobody_named_have_no_kappa() -> None:
    assert cohen(table(10, 0, 0, 9), 1) is None
    assert cohen(table(0, 0, 0, 50), 1) is None
    assert cohen(table(0, 0, 0, 50), 0) is None
    perfect = cohen(table(10, 0, 0, 10), 1)
    assert perfect is not None
    assert (perfect.value, perfect.low, perfect.high) == (1.0, 1.0, 1.0)
