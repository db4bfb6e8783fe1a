"""Escapes as the audit sample estimates them: by week in plant time, weighted, with an interval, never "0 %"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from registry.intervals import wilson
from training import escapes
from training.models import Capture

if TYPE_CHECKING:
    from tests.training.plant import Plant

NOW = datetime(2026, 11, 25, 3, 0, tzinfo=UTC)  # a Wednesday
LAST_WEEK = "2026-11-18T03:00:00+00:00"


def audited(plant: Plant, labels: list[int | None], *, at: str = LAST_WEEK, weight: float = 50.0, **more: Any) -> None:
    """Audit pictures taken then: OK, a defect class, or None for one that waits."""
    for label in labels:
        made = plant.capture(taken_at=at) if label is None else plant.decided(label, taken_at=at)
        columns = {"reason": "audit", "sampling_weight": weight, "verdict": "OK"} | more
        Capture.objects.filter(pk=made.pk).update(**columns)


def week(plant: Plant) -> escapes.Week:
    [found] = escapes.weeks(plant.line, now=NOW)
    return found


def test_equal_weights_give_wilsons_interval_of_the_plain_count(plant: Plant) -> None:
    audited(plant, [0] * 18 + [1, 1] + [None] * 5)
    found = week(plant)
    assert (found.sampled, found.decided, found.waiting, found.escaped) == (25, 20, 5, 2)
    assert (found.share, found.parts, found.escapes) == (pytest.approx(0.1), 1250.0, pytest.approx(125.0))
    assert found.share_interval == (pytest.approx(wilson(2, 20)[0]), pytest.approx(wilson(2, 20)[1]))
    assert found.few
    assert not found.running


def test_unequal_weights_count_for_what_they_stand_for_and_are_worth_less(plant: Plant) -> None:
    audited(plant, [0] * 9 + [1], weight=50.0)
    audited(plant, [0] * 10, weight=10.0)
    found = week(plant)
    assert found.share == pytest.approx(50 / 600)
    assert found.worth == pytest.approx(600**2 / (10 * 2500 + 10 * 100))
    assert found.share_interval == pytest.approx(wilson(50 / 600 * found.worth, found.worth))


def test_no_escape_found_has_an_upper_end(plant: Plant) -> None:
    audited(plant, [0] * 10)
    found = week(plant)
    assert (found.share, found.escaped) == (0.0, 0)
    assert found.share_interval is not None
    assert found.share_interval[1] == pytest.approx(wilson(0, 10)[1])
    assert found.share_interval[1] > 0.2
    assert found.rate is None  # nobody confirmed a defect either: nothing to compare with


def test_the_escape_rate_is_of_the_defects_that_people_know_of(plant: Plant) -> None:
    audited(plant, [0] * 19 + [1], weight=2.0)  # two escapes among forty parts
    audited(plant, [1] * 6 + [0], reason="band", verdict="REVIEW")  # what the machine doubted: six defects
    found = week(plant)
    assert (found.sampled, found.confirmed, found.known_ng) == (20, 6, pytest.approx(8.0))
    assert found.rate == pytest.approx(2 / 8)
    low, high = found.rate_interval or (1, 0)
    assert low < 0.25 < high


def test_without_a_decision_there_is_no_rate(plant: Plant) -> None:
    audited(plant, [None] * 3)
    found = week(plant)
    assert (found.share, found.share_interval, found.escapes, found.rate, found.waiting) == (None, None, None, None, 3)


def test_weeks_are_the_plants_and_the_running_one_is_marked(plant: Plant) -> None:
    audited(plant, [0], at="2026-11-22T14:59:00+00:00")  # Sunday 23:59 in Seoul
    audited(plant, [0], at="2026-11-22T15:00:00+00:00")  # Monday 00:00
    audited(plant, [0], at="2026-01-01T00:00:00+00:00")  # long ago
    found = escapes.weeks(plant.line, now=NOW)
    assert [(row.name, row.running) for row in found] == [("2026-W48", True), ("2026-W47", False)]


def test_a_line_without_an_audit_sample_has_no_weeks(plant: Plant) -> None:
    plant.decided(1)
    assert escapes.weeks(plant.line, now=NOW) == []
