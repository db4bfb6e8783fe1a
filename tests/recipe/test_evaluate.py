"""Inspection arithmetic, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.recipe.config import read_classes
from training.recipe.evaluate import (
    BAND_MAX_SHARE,
    Thresholds,
    auroc,
    choose_thresholds,
    highest_cut,
    rates,
    scores_of,
    wilson,
)

CLASSES = read_classes([
    {"index": 0, "number": 0, "code": "OK"},
    {"index": 1, "number": 3, "code": "crack"},
    {"index": 2, "number": 9, "code": "short", "critical": True},
])  # fmt: skip

parts = st.lists(
    st.tuples(st.floats(0, 1, allow_subnormal=False), st.sampled_from([0, 3, 9])), min_size=2, max_size=60
).filter(lambda drawn: any(label for _, label in drawn))


def test_score_is_one_minus_the_probability_of_ok() -> None:
    logits = np.array([[0.0, 0.0], [100.0, -100.0], [-900.0, 900.0]], np.float32)
    assert scores_of(logits) == pytest.approx([0.5, 0.0, 1.0])


@given(parts, st.sampled_from([0.0, 0.05, 0.1, 0.3]))
def test_escapes_on_validation_stay_within_the_limit_and_critical_ones_at_zero(
    drawn: list[tuple[float, int]], limit: float
) -> None:
    scores, labels = np.array([d[0] for d in drawn]), np.array([d[1] for d in drawn])
    cut = highest_cut(scores, labels, limit, frozenset({9}))
    escaped = (labels != 0) & (scores < cut)
    assert escaped.sum() <= np.floor(limit * (labels != 0).sum() + 1e-9)
    assert not escaped[labels == 9].any()


@given(parts)
def test_no_higher_cut_would_have_kept_the_limit(drawn: list[tuple[float, int]]) -> None:
    scores, labels = np.array([d[0] for d in drawn]), np.array([d[1] for d in drawn])
    cut = highest_cut(scores, labels, 0.2)
    allowed = int(np.floor(0.2 * (labels != 0).sum() + 1e-9))
    for higher in scores[scores > cut]:
        if ((labels != 0) & (scores < higher)).sum() <= allowed:
            # A higher cut may only be as good when no OK part lies between.
            assert not ((labels == 0) & (scores >= cut) & (scores < higher)).any()


@given(parts)
def test_the_review_band_surrounds_the_operating_point_and_is_never_most_of_the_parts(
    drawn: list[tuple[float, int]],
) -> None:
    scores, labels = np.array([d[0] for d in drawn]), np.array([d[1] for d in drawn])
    chosen = choose_thresholds(scores, labels, 0.1, frozenset({9}))
    assert 0 <= chosen.ok_below <= chosen.operating <= chosen.ng_from <= 1
    _, counts = np.unique(scores, return_counts=True)
    inside = (scores >= chosen.ok_below) & (scores < chosen.ng_from)
    assert inside.sum() <= BAND_MAX_SHARE * scores.size + counts.max()  # equal scores cannot be parted


def test_the_band_asks_people_about_the_doubtful_parts_of_two_overlapping_kinds() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 3], [400, 200])
    scores = np.clip(np.where(labels == 0, rng.normal(0.3, 0.15, 600), rng.normal(0.7, 0.15, 600)), 0, 1)
    chosen = choose_thresholds(scores, labels, 0.1)
    inside = (scores >= chosen.ok_below) & (scores < chosen.ng_from)
    assert 0.02 < inside.mean() <= BAND_MAX_SHARE
    passed = scores < chosen.ok_below
    assert (labels[passed] != 0).sum() <= 0.05 * 200  # half the limit
    assert (labels[scores >= chosen.ng_from] != 0).mean() >= 0.9


@given(parts)
def test_auroc_is_the_share_of_pairs_in_the_right_order(drawn: list[tuple[float, int]]) -> None:
    scores, labels = np.array([d[0] for d in drawn]), np.array([d[1] for d in drawn])
    ng, ok = scores[labels != 0], scores[labels == 0]
    if not ok.size:
        assert auroc(scores, labels) is None
        return
    pairs = [(n > o) + 0.5 * (n == o) for n in ng for o in ok]
    assert auroc(scores, labels) == pytest.approx(sum(pairs) / len(pairs))


def test_rates_are_counts_with_their_denominators_per_class_too() -> None:
    scores = np.array([0.1, 0.6, 0.4, 0.9, 0.2])
    labels = np.array([0, 0, 3, 3, 9])
    measured = rates(scores, labels, Thresholds(0.5, 0.3, 0.7), CLASSES)
    assert measured["escapes"] == [2, 3]
    assert measured["overkills"] == [1, 2]
    assert measured["per_class"] == {"crack": [1, 2], "short": [1, 1]}
    assert measured["review"] == [2, 5]


@pytest.mark.parametrize(("n", "of", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 50, 0.0435, 0.2136), (0, 0, 0.0, 1.0)])
def test_wilson_interval_matches_published_values(n: int, of: int, low: float, high: float) -> None:
    assert wilson(n, of) == pytest.approx((low, high), abs=1e-4)


def test_no_threshold_can_be_chosen_without_an_ng_part() -> None:
    with pytest.raises(ValueError, match="no NG"):
        highest_cut(np.array([0.1, 0.2]), np.array([0, 0]), 0.1)
