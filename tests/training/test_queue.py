"""What a person is given and in which order, deciding together, and freeing what somebody else holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import Q

from registry.lifecycle import Refused
from registry.models import AuditEvent
from tests.registry.plant import person
from training import captures, queue
from training.models import Capture, Decision
from training.queue import Want

if TYPE_CHECKING:
    from tests.training.plant import Plant


def ordered(plant: Plant, order: str, **columns: list[Any]) -> list[int]:
    """The places, in the queue, of captures made with these columns."""
    made = [plant.capture() for _ in next(iter(columns.values()))]
    for name, values in columns.items():
        for capture, value in zip(made, values, strict=True):
            Capture.objects.filter(pk=capture.pk).update(**{name: value})
    found = queue.claim(plant.line, by=plant.haneul, count=len(made), want=Want(order=order))
    return [made.index(capture) for capture in found]


def test_the_most_doubtful_come_first_and_the_older_of_two_alike(plant: Plant) -> None:
    assert ordered(plant, "doubt", doubt=[0.2, 0.9, 0.2, 1.0]) == [3, 1, 0, 2]


def test_what_may_be_critical_comes_first(plant: Plant) -> None:
    assert ordered(plant, "critical", urgent=[False, True, False, True]) == [1, 3, 0, 2]


def test_a_wish_narrows_what_is_given(plant: Plant) -> None:
    plant.capture(lot="A")
    wanted = plant.capture(lot="B")
    assert queue.claim(plant.line, by=plant.haneul, count=9, want=Want(where=Q(lot="B"))) == [wanted]


def test_pictures_decided_together_are_taken_back_together(plant: Plant) -> None:
    single, *several = [plant.capture() for _ in range(4)]
    captures.decide(single, verdict="OK", by=plant.haneul)
    done = captures.decide_together(
        plant.line, [one.pk for one in several], verdict="NG", classes=[1], comment="same jig", by=plant.haneul
    )
    assert [one.pk for one in done.decided] == [one.pk for one in several]
    assert set(Decision.objects.filter(batch=done.batch).values_list("comment", "classes__0")) == {("same jig", 1)}
    captures.undo_last(by=plant.haneul, line=plant.line)
    assert list(Capture.objects.filter(state="DECIDED")) == [single]
    captures.undo_last(by=plant.haneul, line=plant.line)
    assert not Capture.objects.filter(state="DECIDED").exists()
    with pytest.raises(Refused, match="nothing of yours"):
        captures.undo_last(by=plant.haneul, line=plant.line)


def test_what_others_hold_or_have_decided_is_left_alone_and_said(plant: Plant) -> None:
    mine, held, decided = (plant.capture() for _ in range(3))
    queue.claim_one(held, by=plant.seoyeon)
    captures.decide(decided, verdict="OK", by=plant.seoyeon)
    done = captures.decide_together(
        plant.line, [mine.pk, held.pk, decided.pk], verdict="NG", classes=[1], by=plant.haneul
    )
    assert done.decided == [mine]
    said = {capture.pk: sentence for capture, sentence in done.left}
    assert "has this picture until" in said[held.pk]
    assert "decided already" in said[decided.pk]
    captures.retract(mine, reason="looked again", by=plant.seoyeon)
    with pytest.raises(Refused, match="nothing of yours"):  # somebody else took it back: not to be undone by us
        captures.undo_last(by=plant.haneul, line=plant.line)


@pytest.mark.parametrize(
    ("count", "choice", "sentence"),
    [
        (0, {"verdict": "OK"}, "Choose at least one"),
        (501, {"verdict": "OK"}, "At most 500"),
        (1, {"verdict": "NG", "classes": [9]}, "not in the defect book"),
    ],
)
def test_a_choice_that_makes_no_sense_decides_nothing(
    plant: Plant, count: int, choice: dict[str, Any], sentence: str
) -> None:
    from registry.ids import new_id

    capture = plant.capture()
    with pytest.raises(Refused, match=sentence):
        captures.decide_together(
            plant.line, [capture.pk, *(new_id() for _ in range(count))][:count], by=plant.haneul, **choice
        )
    assert not Decision.objects.exists()


def test_pictures_of_another_line_cannot_be_slipped_in(plant: Plant) -> None:
    from tests.training import plant as plants

    other = plants.make(code="el-2")
    foreign = other.capture()
    done = captures.decide_together(plant.line, [foreign.pk], verdict="OK", by=plant.haneul)
    assert (done.decided, done.left) == ([], [])
    foreign.refresh_from_db()
    assert foreign.state == "NEW"


def test_a_supervisor_frees_what_somebody_holds_and_it_is_written_down(plant: Plant) -> None:
    capture = plant.capture()
    queue.claim_one(capture, by=plant.haneul)
    with pytest.raises(Refused, match="roles"):
        queue.free(capture, by=plant.seoyeon)
    boss = person("boss", plant.line, "supervisor")
    queue.free(capture, by=boss)
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]
    event = AuditEvent.objects.get(action="capture.freed")
    assert (event.by, event.old) == (boss, {"claimed_by": plant.haneul.username})
