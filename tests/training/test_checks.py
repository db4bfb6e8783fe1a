"""Known answers and blind repeats: mixed in at the line's rates, looking like any picture, and changing nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.models import Q
from django.utils import timezone

from registry import counters
from registry.lifecycle import Refused
from registry.models import Line
from training import captures, checks, drafts, golden, policies, queue, reliability, review
from training.models import Capture, Check, Decision
from training.queue import Want

if TYPE_CHECKING:
    from tests.training.plant import Plant

SHAPE = [{"number": 1, "kind": "box", "points": [[1, 1], [5, 5]]}]


def rates(plant: Plant, **given: float) -> None:
    Line.objects.filter(pk=plant.line.pk).update(**given)
    plant.line.refresh_from_db()


def golden_set(plant: Plant, labels: tuple[int, ...] = (0, 1)) -> list[Capture]:
    rows = [plant.capture() for _ in labels]
    golden.create(
        plant.line, code="golden", name_ko="g", name_en="g", captures=list(zip(rows, labels, strict=True)),
        owner=plant.haneul, expires_at=timezone.now() + timedelta(days=9), leads=True, by=plant.haneul,
    )  # fmt: skip
    return rows


def rail(plant: Plant, who: Any = None, want: Want = queue.ANY, count: int = 9) -> list[Capture]:
    return review.rail(plant.line, by=who or plant.haneul, count=count, want=want)


def only_check(plant: Plant, **given: float) -> tuple[Capture, Capture]:
    """(the waiting picture, the check beside it) with a rate of one."""
    waiting = plant.capture()
    rates(plant, **given)
    found = rail(plant)
    assert [checks.of(row) is None for row in found] == [False, True]
    assert found[1] == waiting
    return waiting, found[0]


def state_of(capture: Capture) -> dict[str, Any]:
    return Capture.objects.filter(pk=capture.pk).values().get()


def test_nothing_is_mixed_in_where_the_line_does_not_ask_for_it(plant: Plant) -> None:
    golden_set(plant)
    waiting = [plant.capture() for _ in range(3)]
    assert rail(plant) == waiting
    assert not Check.objects.exists()


def test_checks_come_at_the_lines_rate_once_per_picture_and_person(plant: Plant) -> None:
    golden_set(plant, (0, 1) * 15)
    for _ in range(60):
        plant.capture()
    rates(plant, known_rate=0.2)
    first = [row.pk for row in rail(plant, count=60)]
    drawn = Check.objects.count()
    assert 3 <= drawn <= 22
    assert len(first) == 60 + drawn
    assert [row.pk for row in rail(plant, count=60)] == first
    assert Check.objects.count() == drawn
    assert set(Check.objects.values_list("kind", flat=True)) == {"known"}
    assert Check.objects.values("capture").distinct().count() == drawn  # no picture twice


def test_two_people_are_not_checked_beside_the_same_pictures(plant: Plant) -> None:
    golden_set(plant, (0, 1) * 15)
    rates(plant, known_rate=0.2)
    made = [plant.capture() for _ in range(60)]
    for who in (plant.haneul, plant.seoyeon):
        rail(plant, who, count=60)
        Capture.objects.filter(pk__in=[row.pk for row in made]).update(claimed_by=None, claimed_until=None)
    beside = [
        set(Check.objects.filter(by=who).values_list("beside", flat=True)) for who in (plant.haneul, plant.seoyeon)
    ]
    assert beside[0] != beside[1]


def test_a_check_says_everything_that_a_waiting_picture_says(plant: Plant) -> None:
    golden_set(plant, (1,))
    _waiting, shown = only_check(plant, known_rate=1.0)
    assert (shown.state, shown.decision, shown.decided_class, shown.reserved) == ("NEW", None, None, False)
    assert (shown.claimed_by, shown.blind, shown.masked, shown.opinions) == (plant.haneul, True, True, 0)
    assert policies.can_decide(shown, by=plant.haneul)
    assert state_of(shown)["state"] == "DECIDED"
    assert checks.as_asked(Capture.objects.get(pk=shown.pk), by=plant.seoyeon).state == "DECIDED"


def test_answering_changes_the_check_and_nothing_else(plant: Plant) -> None:
    golden_set(plant, (1,))
    waiting, shown = only_check(plant, known_rate=1.0)
    before, counts = state_of(shown), counters.values(plant.line)
    left = review.left(plant.line, by=plant.haneul)
    decisions = Decision.objects.count()
    review.decide(Capture.objects.get(pk=shown.pk), verdict="OK", comment="fine", by=plant.haneul)
    check = Check.objects.get()
    assert (check.verdict, check.classes, check.answered_verdict, check.comment) == ("NG", [1], "OK", "fine")
    assert check.answered_at is not None
    assert (state_of(shown), counters.values(plant.line), Decision.objects.count()) == (before, counts, decisions)
    assert (left, review.left(plant.line, by=plant.haneul)) == (2, 1)  # falls as with any picture
    assert rail(plant) == [waiting]
    with pytest.raises(Refused, match="decided already"):  # the answer is sent twice
        review.decide(Capture.objects.get(pk=shown.pk), verdict="OK", by=plant.haneul)
    assert counters.recount(plant.line) == {}


def test_what_makes_no_sense_is_refused_as_on_any_picture(plant: Plant) -> None:
    golden_set(plant, (1,))
    _waiting, shown = only_check(plant, known_rate=1.0)
    with pytest.raises(Refused, match="Choose a defect class"):
        review.decide(shown, verdict="NG", by=plant.haneul)
    with pytest.raises(Refused, match="roles"):
        review.decide(shown, verdict="OK", by=plant.viewer)
    assert Check.objects.get().answered_at is None


def test_an_answer_is_taken_back_in_its_turn_with_what_was_drawn(plant: Plant) -> None:
    golden_set(plant, (1,))
    waiting, shown = only_check(plant, known_rate=1.0)
    review.decide(shown, verdict="NG", classes=[1], regions=SHAPE, by=plant.haneul)
    review.decide(waiting, verdict="OK", by=plant.haneul)
    undone = [review.undo_last(by=plant.haneul, line=plant.line) for _ in range(2)]
    assert undone == [waiting, shown]
    again = next(row for row in rail(plant) if checks.of(row))
    assert (again, again.state) == (shown, "NEW")
    assert checks.draft(again, by=plant.haneul).regions == SHAPE
    with pytest.raises(Refused, match="nothing of yours"):
        review.undo_last(by=plant.haneul, line=plant.line)


def test_a_skipped_check_is_put_aside_and_comes_back_as_others_do(plant: Plant) -> None:
    golden_set(plant, (1,))
    waiting, shown = only_check(plant, known_rate=1.0)
    review.skip(shown, by=plant.haneul)
    assert rail(plant) == [waiting]
    assert review.skipped_count(plant.line, by=plant.haneul) == 1
    assert rail(plant, want=Want(skipped=True)) == [shown]
    assert review.undo_last(by=plant.haneul, line=plant.line) == shown
    assert rail(plant) == [shown, waiting]


def test_a_second_look_asked_for_a_check_is_no_answer(plant: Plant) -> None:
    golden_set(plant, (1,))
    waiting, shown = only_check(plant, known_rate=1.0)
    review.ask_second_look(shown, comment="edge?", by=plant.haneul)
    assert rail(plant) == [waiting]
    assert state_of(shown)["state"] == "DECIDED"
    assert reliability.of(plant.haneul, plant.line, now=timezone.now(), classes=[1]).escapes == (0, 0)


def test_a_draft_of_a_check_is_kept_and_goes_with_the_answer(plant: Plant) -> None:
    golden_set(plant, (1,))
    _waiting, shown = only_check(plant, known_rate=1.0)
    row = Capture.objects.get(pk=shown.pk)
    drafts.save(row, drawn=SHAPE, comment="here", by=plant.haneul)
    assert checks.draft(checks.as_asked(row, by=plant.haneul), by=plant.haneul).comment == "here"
    with pytest.raises(Refused, match="decided already"):
        drafts.save(row, drawn=SHAPE, by=plant.seoyeon)
    review.decide(shown, verdict="NG", classes=[1], by=plant.haneul)
    assert not row.drafts.exists()


def test_filters_that_would_betray_a_check_get_none(plant: Plant) -> None:
    golden_set(plant, (1,))
    rates(plant, known_rate=1.0)
    waiting = plant.capture(lot="L7")
    assert rail(plant, want=Want(mixes=False)) == [waiting]
    assert rail(plant, want=Want(where=Q(lot="L7"))) == [waiting]
    assert not Check.objects.exists()
    assert len(rail(plant)) == 2
    assert rail(plant, want=Want(where=Q(lot="L7"))) == [waiting]


# ------------------------------------------------------------------------------------------------ repeats


def old(plant: Plant, label: int, days: int = 2, by: Any = None) -> Capture:
    made = plant.decided(label, by=by)
    Decision.objects.filter(capture=made).update(created_at=timezone.now() - timedelta(days=days))
    return made


def test_ones_own_older_decisions_are_asked_again_and_nobody_elses(plant: Plant, settings: Any) -> None:
    mine = old(plant, 1)
    old(plant, 0, by=plant.seoyeon)
    plant.decided(0)  # too young
    _waiting, shown = only_check(plant, repeat_rate=1.0)
    check = checks.of(shown)
    assert check is not None
    assert (shown, check.kind, check.verdict, check.classes) == (mine, "repeat", "NG", [1])
    review.decide(shown, verdict="OK", by=plant.haneul)
    assert state_of(mine)["decided_class"] == 1
    figures = reliability.of(plant.haneul, plant.line, now=timezone.now(), classes=[1])
    assert figures.repeats == (0, 1)
    assert figures.escapes == (0, 0)


def test_a_repeat_that_somebody_opens_again_becomes_an_ordinary_picture(plant: Plant) -> None:
    mine = old(plant, 1)
    waiting, _shown = only_check(plant, repeat_rate=1.0)
    captures.retract(mine, reason="wrong lot", by=plant.seoyeon)
    found = rail(plant)
    assert {row.pk for row in found} == {mine.pk, waiting.pk}
    assert [checks.of(row) for row in found] == [None, None]
    review.decide(mine, verdict="OK", by=plant.haneul)
    assert state_of(mine)["decided_class"] == 0
    assert Check.objects.get().answered_at is None


def test_a_check_answered_in_two_browsers_at_once_is_answered_once(real_plant: Plant) -> None:
    golden_set(real_plant, (1,))
    _waiting, shown = only_check(real_plant, known_rate=1.0)
    start = threading.Barrier(2)

    def work(label: int) -> str:
        start.wait()
        try:
            classes = [1] if label else []
            review.decide(
                Capture.objects.get(pk=shown.pk), verdict="NG" if label else "OK", classes=classes, by=real_plant.haneul
            )
        except Refused as refused:
            return str(refused)
        finally:
            connections.close_all()
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(work, [0, 1]))
    assert said[0] == ""
    assert "decided already" in said[1]


# ------------------------------------------------------------------------------------------------ figures


def test_misses_on_known_answers_are_counted_by_kind(plant: Plant) -> None:
    rows = golden_set(plant, (1, 1, 0, 0))
    asked = [("NG", [1], "OK", []), ("NG", [1], "NG", [2, 1]), ("OK", [], "NG", [1]), ("OK", [], "OK", [])]
    for row, (verdict, classes, said, named) in zip(rows, asked, strict=True):
        Check.objects.create(
            line=plant.line, kind="known", capture=row, by=plant.haneul, beside=row.pk, verdict=verdict,
            classes=classes, answered_at=timezone.now(), answered_verdict=said, answered_classes=named,
        )  # fmt: skip
    found = reliability.of(plant.haneul, plant.line, now=timezone.now(), classes=[1])
    assert (found.escapes, found.overkills, found.classes) == ((1, 2), (1, 2), (0, 1))
    other = reliability.of(plant.seoyeon, plant.line, now=timezone.now(), classes=[1])
    assert (other.escapes, other.overkills, other.kappas) == ((0, 0), (0, 0), {})


def test_agreement_is_counted_over_pictures_that_somebody_else_judged_too(plant: Plant) -> None:
    rates(plant, opinions=2)
    for n in range(24):
        capture = plant.capture()
        for who, label in ((plant.haneul, n % 2), (plant.seoyeon, n % 2 if n < 20 else 1 - n % 2)):
            captures.decide(capture, verdict="NG" if label else "OK", classes=[1] if label else [], by=who)
    captures.decide(plant.capture(), verdict="OK", by=plant.haneul)  # nobody else yet
    found = reliability.of(plant.haneul, plant.line, now=timezone.now(), classes=[1])
    assert (found.decided, found.agreed) == (25, (20, 24))
    kappa = found.kappas[1]
    assert kappa is not None
    assert kappa.value == pytest.approx((20 / 24 - 0.5) / 0.5)
