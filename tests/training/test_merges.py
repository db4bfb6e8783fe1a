"""One class merged into another: decisions, drafts, imports, snapshots and golden sets; undone; at fifty thousand."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from registry import classes, counters, lines
from registry.lifecycle import Refused
from registry.models import AuditEvent, DefectClass
from tests.running import wait_for
from tests.training.archives import imported, yolo
from tests.training.plant import RULE, SET_UP, picture
from training import captures, counts, drafts, examples, golden, merges, snapshots, usage
from training.jobdir import items
from training.models import Capture, ClassExample, ClassMerge, Decision

if TYPE_CHECKING:
    from tests.training.plant import Plant

BOX = {"number": 2, "kind": "box", "points": [[1.0, 1.0], [9.0, 9.0]]}
SCRATCH = {"number": 3, "kind": "box", "points": [[2.0, 2.0], [8.0, 8.0]]}


@pytest.fixture
def book(plant: Plant) -> dict[str, DefectClass]:
    """Crack is 1, scratch 2, scuff 3."""
    return filled(plant)


def filled(plant: Plant) -> dict[str, DefectClass]:
    for code in ("scratch", "scuff"):
        lines.add_class(plant.line, code=code, name_ko=code, name_en=code, by=SET_UP)
    return {entry.code: entry for entry in DefectClass.objects.filter(line=plant.line).select_related("line")}


def merged(plant: Plant, book: dict[str, DefectClass], source: str = "scratch", target: str = "scuff") -> ClassMerge:
    return merges.merge(book[source], book[target], reason="one defect, two names", by=plant.seoyeon)


def undone(merge: ClassMerge, by: Any) -> ClassMerge:
    return merges.undo(ClassMerge.objects.select_related("line").get(pk=merge.pk), reason="two defects", by=by)


def right(plant: Plant) -> bool:
    """Do the counters say what counting says?"""
    return counters.recount(plant.line) == {}


def test_every_standing_decision_gets_a_successor_by_who_merges(plant: Plant, book: dict[str, Any]) -> None:
    only, both, drawn = plant.decided(2), plant.capture(), plant.capture()
    captures.decide(both, verdict="NG", classes=[1, 2, 3], by=plant.haneul)
    captures.decide(drawn, verdict="NG", regions=[BOX, SCRATCH], comment="at the edge", by=plant.haneul)
    other, before = plant.decided(1), Decision.objects.count()
    preview = merges.preview(book["scratch"], book["scuff"])
    assert (preview.decisions, preview.both, preview.golden, preview.snapshots) == (3, 2, 0, 0)
    made = merged(plant, book)
    assert made.moved == 3
    assert Decision.objects.count() == before + 3
    said = {row.capture_id: row for row in Decision.objects.filter(batch=made.pk)}
    assert said[only.pk].classes == [3]
    assert said[both.pk].classes == [1, 3]
    assert [region["number"] for region in said[drawn.pk].regions] == [3, 3]
    assert said[drawn.pk].regions[0]["points"] == BOX["points"]
    assert (said[drawn.pk].comment, said[drawn.pk].by, said[drawn.pk].verdict) == ("at the edge", plant.seoyeon, "NG")
    for row, main in ((only, 3), (both, 1), (drawn, 3), (other, 1)):
        row.refresh_from_db()
        assert (row.decided_class, row.state) == (main, "DECIDED")
    assert only.decision_id == said[only.pk].pk
    scratch = DefectClass.objects.get(code="scratch")
    assert (scratch.retired_at is not None, scratch.merged_into) == (True, book["scuff"])
    event = AuditEvent.objects.get(action="defectclass.merge")
    assert (event.new["merged_into"], event.new["moved"], event.reason) == ("scuff", 3, "one defect, two names")
    assert usage.decided(plant.line) == {1: 2, 3: 2}
    assert right(plant)


def test_undo_lets_the_same_decisions_stand_again_and_leaves_what_somebody_changed(
    plant: Plant, book: dict[str, Any]
) -> None:
    kept, changed, retracted = (plant.decided(2) for _ in range(3))
    former = kept.decision_id or Capture.objects.get(pk=kept.pk).decision_id
    made = merged(plant, book)
    for row in (changed, retracted):
        row.refresh_from_db()
        captures.retract(row, reason="looked again", by=plant.haneul)
    captures.decide(changed, verdict="OK", by=plant.haneul)
    undone(made, plant.haneul)
    made.refresh_from_db()
    assert (made.moved, made.restored, made.left, made.undone_by) == (3, 1, 2, plant.haneul)
    kept.refresh_from_db()
    assert (kept.decision_id, kept.decided_class) == (former, 2)
    assert kept.decision is not None
    assert kept.decision.by == plant.haneul
    changed.refresh_from_db()
    assert (changed.decided_class, changed.state) == (0, "DECIDED")
    retracted.refresh_from_db()
    assert retracted.state == "RETRACTED"
    kinds = kept.decisions.order_by("created_at", "id").values_list("kind", flat=True)
    assert list(kinds) == ["DECIDED", "MERGED", "UNMERGED"]
    scratch = DefectClass.objects.get(code="scratch")
    assert (scratch.retired_at, scratch.merged_into, scratch.hotkey) == (None, None, "2")
    with pytest.raises(Refused, match="undone already"):
        undone(made, plant.haneul)
    assert right(plant)


def test_the_counter_of_new_decisions_is_right_after_merge_undo_and_snapshot(
    plant: Plant, book: dict[str, Any]
) -> None:
    plant.lots(4, labels=(0, 0, 2))
    snapshots.freeze(plant.line, RULE, by=plant.haneul)
    plant.decided(2)
    assert counters.value(plant.line, counts.DECIDED) == 1
    first = merged(plant, book)
    assert counters.value(plant.line, counts.DECIDED) == 5
    assert right(plant)
    undone(first, plant.haneul)
    assert counters.value(plant.line, counts.DECIDED) == 1
    assert right(plant)
    second = merged(plant, book)
    snapshots.freeze(plant.line, RULE, by=plant.haneul)
    undone(second, plant.haneul)
    assert right(plant)


def test_ones_own_undo_in_the_review_never_takes_a_merge_apart(plant: Plant, book: dict[str, Any]) -> None:
    row = plant.decided(2, by=plant.haneul)
    merged(plant, book)
    for person in (plant.seoyeon, plant.haneul):
        with pytest.raises(Refused, match="nothing of yours"):
            captures.undo_last(by=person, line=plant.line)
    row.refresh_from_db()
    assert row.decided_class == 3


def test_from_then_on_the_class_means_the_other_one_at_every_door(plant: Plant, book: dict[str, Any]) -> None:
    drafted, pressed = plant.capture(), plant.capture()
    drafts.save(drafted, drawn=[BOX], by=plant.haneul)
    assert merges.preview(book["scratch"], book["scuff"]).drafts == 1
    merged(plant, book)
    kept = drafts.opened(drafted, by=plant.haneul)
    said = captures.decide(drafted, verdict="NG", regions=kept.regions, by=plant.haneul)
    assert (said.classes, said.regions[0]["number"]) == ([3], 3)
    assert captures.decide(pressed, verdict="NG", classes=[2, 3], by=plant.haneul).classes == [3]
    row = imported(plant.line, plant.haneul, yolo({"a": "0 0.5 0.5 0.5 0.5"}, {"a": picture()}, "[Scratch]"))
    assert (row.report["decided"], row.report["classes_added"], row.report["refused"]) == (1, [], [])
    assert Capture.objects.get(file_name__endswith="a.png").decided_class == 3


def test_labels_of_a_retired_class_are_refused_by_name_and_reason(plant: Plant, book: dict[str, Any]) -> None:
    classes.retire(book["scratch"], reason="too vague", by=plant.haneul)
    row = imported(plant.line, plant.haneul, yolo({"a": "0 0.5 0.5 0.5 0.5"}, {"a": picture()}, "[scratch]"))
    assert (row.report["decided"], row.report["undecided"]) == (0, 1)
    (told,) = row.report["refused"]
    assert "a.png" in told["name"]
    assert str(Refused(told["text"], **told["params"])).startswith("Class scratch is retired.")


def test_what_was_frozen_stays_and_golden_pictures_are_judged_as_the_other_class(
    plant: Plant, book: dict[str, Any]
) -> None:
    plant.lots(4, labels=(0, 0, 2, 3))
    gold = [plant.decided(label, lot="gold") for label in (0, 2)]
    golden.create(
        plant.line, code="g", name_ko="g", name_en="g", captures=[(gold[0], 0), (gold[1], 2)], owner=plant.haneul,
        expires_at=timezone.now() + timedelta(days=9), leads=True, by=plant.haneul,
    )  # fmt: skip
    first = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    frozen = list(first.items.order_by("capture_id").values_list("capture", "decision", "label"))
    preview = merges.preview(book["scratch"], book["scuff"])
    assert (preview.decisions, preview.golden, preview.golden_sets, preview.snapshots) == (4, 1, ["g"], 1)
    merged(plant, book)
    assert list(first.items.order_by("capture_id").values_list("capture", "decision", "label")) == frozen
    gold[1].refresh_from_db()
    assert gold[1].decided_class == 2
    assert golden.current(plant.line)[0].items.get(capture=gold[1]).label == 2
    second = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert [entry["number"] for entry in second.classes] == [0, 1, 3]
    assert {row.label for row in second.items.all()} == {0, 3}
    judged = [item for item in items(_Asked(plant.line, second)) if item["set"] == "g"]  # type: ignore[arg-type]
    assert sorted(item["label"] for item in judged) == [0, 3]


def test_a_retired_class_of_a_golden_set_is_still_judged(plant: Plant, book: dict[str, Any]) -> None:
    plant.lots(4, labels=(0, 0, 3))
    gold = plant.decided(2, lot="gold")
    golden.create(
        plant.line, code="g", name_ko="g", name_en="g", captures=[(gold, 2)], owner=plant.haneul,
        expires_at=timezone.now() + timedelta(days=9), leads=True, by=plant.haneul,
    )  # fmt: skip
    classes.retire(book["scratch"], reason="rare", by=plant.haneul)
    made = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    judged = [item for item in items(_Asked(plant.line, made)) if item["set"] == "g"]  # type: ignore[arg-type]
    assert [item["label"] for item in judged] == [2]


class _Asked:
    """A job as the list of its pictures sees it."""

    def __init__(self, line: Any, snapshot: Any) -> None:
        self.line, self.snapshot = line, snapshot


def test_merges_that_make_no_sense_are_refused(plant: Plant, book: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="into itself"):
        merged(plant, book, "scuff", "scuff")
    with pytest.raises(Refused, match="Write a reason"):
        merges.merge(book["scratch"], book["scuff"], reason="", by=plant.haneul)
    for by in (plant.viewer, SET_UP):
        with pytest.raises(Refused, match=r"roles|signed-in person"):
            merges.merge(book["scratch"], book["scuff"], reason="mine", by=by)
    first = merged(plant, book)
    with pytest.raises(Refused, match="was merged into scuff"):
        merged(plant, book)
    with pytest.raises(Refused, match="Class scratch is retired"):
        merged(plant, book, "crack", "scratch")
    with pytest.raises(Refused, match="was merged into scuff"):
        classes.restore(book["scratch"], reason="back", by=plant.haneul)
    second = merged(plant, book, "scuff", "crack")
    assert classes.meanings(plant.line) == {1: 1, 2: 1, 3: 1}
    with pytest.raises(Refused, match="Undo that merge first"):
        undone(first, plant.haneul)
    undone(second, plant.haneul)
    undone(first, plant.haneul)
    assert classes.meanings(plant.line) == {1: 1, 2: 2, 3: 3}


def test_a_merge_of_many_asks_no_question_for_each_picture(plant: Plant, book: dict[str, Any]) -> None:
    model = plant.decided(2)
    decision = Decision.objects.get(capture=model)
    rows = [
        Capture(
            line=plant.line, state="DECIDED", digest=f"{n:064x}", size_bytes=1, width=24, height=16, mode="L",
            reason="import", decided_class=2,
        )
        for n in range(5000)
    ]  # fmt: skip
    Capture.objects.bulk_create(rows)
    said = Decision.objects.bulk_create(
        [Decision(capture=row, by=plant.haneul, verdict="NG", classes=[2], regions=decision.regions) for row in rows]
    )
    for row, decided in zip(rows, said, strict=True):
        row.decision = decided
    Capture.objects.bulk_update(rows, ["decision"], batch_size=1000)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        made = merged(plant, book)
    assert made.moved == 5001
    assert len(asked) < 30
    with CaptureQueriesContext(connection) as asked:
        undone(made, plant.haneul)
    assert len(asked) < 30
    assert Capture.objects.filter(decided_class=2).count() == 5001
    assert Decision.objects.count() == 3 * 5001


def test_who_decides_while_classes_are_merged_waits_and_means_the_other_one(real_plant: Plant) -> None:
    plant, book, capture = real_plant, filled(real_plant), real_plant.capture()
    outcome: list[str] = []

    def decide() -> None:
        try:
            captures.decide(capture, verdict="NG", classes=[2], by=plant.haneul)
            outcome.append("decided")
        except Refused as refused:
            outcome.append(str(refused))
        finally:
            connections.close_all()

    thread = threading.Thread(target=decide)
    with transaction.atomic():
        merged(plant, book)
        thread.start()
        wait_for(_waits_for_a_lock, within_s=20, every_s=0.05)
    thread.join(20)
    assert outcome == ["The defect book has just changed. Reload the page and decide again."]
    assert not Capture.objects.filter(decided_class=2).exists()


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # this transaction would see the same list again
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'KEY SHARE'")
        return bool(cursor.fetchone()[0])


# ------------------------------------------------------------------------------------------------ examples and usage


def test_a_decided_picture_is_an_example_as_long_as_it_is_decided_so(plant: Plant) -> None:
    row = plant.decided(1)
    row.refresh_from_db()
    examples.add(row, number=1, by=plant.haneul)
    examples.add(row, number=1, by=plant.haneul)
    assert [found.capture for found in examples.of_line(plant.line)] == [row]
    captures.retract(row, reason="no", by=plant.haneul)
    row.refresh_from_db()
    assert list(examples.of_line(plant.line)) == []
    with pytest.raises(Refused, match="Only a decided picture"):
        examples.add(row, number=1, by=plant.haneul)
    captures.decide(row, verdict="OK", by=plant.haneul)
    row.refresh_from_db()
    with pytest.raises(Refused, match="decided as crack"):
        examples.add(row, number=1, by=plant.haneul)
    assert AuditEvent.objects.filter(action="defectclass.example").count() == 1


def test_a_class_has_six_examples_and_stale_ones_do_not_count(plant: Plant) -> None:
    rows = [plant.decided(1) for _ in range(examples.MOST + 1)]
    for row in rows[:-1]:
        row.refresh_from_db()
        examples.add(row, number=1, by=plant.haneul)
    rows[-1].refresh_from_db()
    with pytest.raises(Refused, match="has 6 examples"):
        examples.add(rows[-1], number=1, by=plant.haneul)
    captures.retract(rows[0], reason="no", by=plant.haneul)
    examples.add(rows[-1], number=1, by=plant.haneul)
    assert ClassExample.objects.count() == examples.MOST
    examples.remove(rows[-1], number=1, by=plant.haneul)
    assert ClassExample.objects.count() == examples.MOST - 1
    with pytest.raises(Refused, match="roles"):
        examples.add(rows[-1], number=1, by=plant.viewer)


def test_usage_is_what_stands_now_and_drafts_are_apart(plant: Plant, book: dict[str, Any]) -> None:
    rows, drafted = [plant.decided(2) for _ in range(4)], plant.capture()
    drafts.save(drafted, drawn=[BOX, BOX], by=plant.haneul)
    assert (usage.decided(plant.line), usage.drafted(plant.line)) == ({2: 4}, {2: 1})
    for row in rows:
        row.refresh_from_db()
        captures.retract(row, reason="no", by=plant.haneul)
    drafts.save(drafted, drawn=[], version=1, by=plant.haneul)
    assert (usage.decided(plant.line), usage.drafted(plant.line)) == ({}, {})
    classes.change(book["scratch"], name_ko="긁힘", name_en="scrape", hotkey="", critical=False, by=plant.haneul)
    assert DefectClass.objects.get(code="scratch").number == 2
