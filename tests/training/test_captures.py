"""Captures: arriving, claiming, deciding, skipping, taking back."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.models import Q
from django.utils import timezone

from edge.pictures import PictureInfo, PictureRefused
from registry import counters
from registry.lifecycle import Refused
from registry.models import DefectClass, Topic
from tests.training.plant import picture
from training import captures, policies, queue
from training.models import Capture, Decision
from training.queue import Want

if TYPE_CHECKING:
    from tests.training.plant import Plant

INFO = PictureInfo(24, 16, "RGB", "PNG", 1, 8)


def flag(plant: Plant, device: Any, name: str, **meta: Any) -> tuple[Capture, bool]:
    return captures.receive(
        device=device,
        device_capture_id=name,
        digest=meta.pop("digest", "a" * 64),
        size_bytes=10,
        info=INFO,
        meta={"reason": "band", "sampling_weight": 1.0, **meta},
        now=timezone.now(),
    )


def test_a_picture_sent_twice_is_one_capture_and_counts_once(plant: Plant) -> None:
    device = plant.device()
    first, created = flag(plant, device, "c-1", lot="L1")
    again, created_again = flag(plant, device, "c-1", lot="L1")
    assert (created, created_again, first.pk) == (True, False, again.pk)
    assert counters.value(plant.line, "captures_new") == 1
    assert captures.known(device=device, device_capture_id="c-1")


def test_the_same_name_for_other_bytes_is_refused(plant: Plant) -> None:
    device = plant.device()
    flag(plant, device, "c-1")
    with pytest.raises(Refused, match="another picture under the name c-1"):
        flag(plant, device, "c-1", digest="b" * 64)


def test_what_a_device_says_is_cut_and_checked(plant: Plant) -> None:
    capture, _ = flag(
        plant, plant.device(), "c-1", lot="L" * 500, serial="a\x00b", station="nowhere", taken_at="2026-02-30T10:00:00",
        reason="import", sampling_weight=float("inf"),
        prediction={"release_number": 3, "verdict": "REVIEW", "score": 1.7, "probabilities": [0.5, float("nan")],
                    "thresholds": {"ok_below": 0.2}, "map": {"w": 2, "h": 2, "values": [1, 2, 3]}},
    )  # fmt: skip
    assert (len(capture.lot), capture.serial, capture.station) == (80, "ab", plant.station)
    assert capture.taken_at is not None
    assert (capture.reason, capture.sampling_weight, capture.score) == ("operator", 1.0, 1.0)
    assert capture.prediction == {"probabilities": [0.5], "thresholds": {"ok_below": 0.2}, "map": None}


def test_the_same_bytes_are_imported_once_per_line(plant: Plant) -> None:
    data = picture(1)
    first = plant.capture(data=data)
    again, created = captures.import_one(plant.line, data, {}, by="test")
    assert (again.pk, created) == (first.pk, False)


def test_a_broken_picture_is_refused_and_leaves_nothing(plant: Plant) -> None:
    with pytest.raises(PictureRefused, match="truncated"):
        captures.import_one(plant.line, picture(1)[:200], {}, by="test")
    assert not Capture.objects.exists()


def test_a_decision_closes_the_picture_and_moves_the_counts(plant: Plant) -> None:
    capture = plant.capture()
    [claimed] = queue.claim(plant.line, by=plant.haneul)
    decision = captures.decide(claimed, verdict="NG", classes=[1], comment=" at the edge ", by=plant.haneul)
    capture.refresh_from_db()
    assert (capture.state, capture.decision, capture.claimed_by) == ("DECIDED", decision, None)
    assert (decision.classes, decision.comment) == ([1], "at the edge")
    assert counters.values(plant.line) | {"captures_total": 1} == {
        "captures_new": 0, "captures_decided": 1, "captures_total": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "classes", "sentence"),
    [
        ("NG", [], "Choose a defect class"),
        ("OK", [1], "no defect class"),
        ("NG", [9], "not in the defect book"),
        ("REVIEW", [], "OK or NG"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    plant: Plant, verdict: str, classes: list[int], sentence: str
) -> None:
    capture = plant.capture()
    with pytest.raises(Refused, match=sentence):
        captures.decide(capture, verdict=verdict, classes=classes, by=plant.haneul)
    assert not Decision.objects.exists()


def test_a_retired_class_cannot_be_chosen(plant: Plant) -> None:
    DefectClass.objects.filter(line=plant.line).update(retired_at=timezone.now())
    with pytest.raises(Refused, match="retired"):
        captures.decide(plant.capture(), verdict="NG", classes=[1], by=plant.haneul)


def test_a_viewer_decides_nothing(plant: Plant) -> None:
    capture = plant.capture()
    for call in (
        lambda: queue.claim(plant.line, by=plant.viewer),
        lambda: queue.claim_one(capture, by=plant.viewer),
        lambda: captures.decide(capture, verdict="OK", by=plant.viewer),
        lambda: captures.skip(capture, by=plant.viewer),
        lambda: captures.ask_second_look(capture, by=plant.viewer),
        lambda: captures.undo_last(by=plant.viewer, line=plant.line),
    ):
        with pytest.raises(Refused, match="roles"):
            call()


def test_a_claimed_picture_is_given_to_nobody_else_until_the_lease_ends(plant: Plant) -> None:
    capture = plant.capture()
    assert queue.claim(plant.line, by=plant.haneul) == [capture]
    assert queue.claim(plant.line, by=plant.seoyeon) == []
    with pytest.raises(Refused, match="haneul-el-1 has this picture until"):
        captures.decide(capture, verdict="OK", by=plant.seoyeon)
    assert queue.claim(plant.line, by=plant.haneul) == [capture]  # renewed
    Capture.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]


def test_a_released_picture_is_free_at_once(plant: Plant) -> None:
    capture = plant.capture()
    queue.claim_one(capture, by=plant.haneul)
    queue.release_claim(capture, by=plant.seoyeon)
    assert queue.claim(plant.line, by=plant.seoyeon) == []
    queue.release_claim(capture, by=plant.haneul)
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]


def test_the_next_picture_can_be_loaded_ahead(plant: Plant) -> None:
    made = [plant.capture() for _ in range(3)]
    assert queue.claim(plant.line, by=plant.haneul, count=2) == made[:2]
    assert queue.next_in_queue(plant.line, by=plant.haneul, after=made[1].pk) == made[2]
    assert queue.next_in_queue(plant.line, by=plant.haneul, after=made[2].pk) == made[0]
    assert queue.claim(plant.line, by=plant.seoyeon, want=Want(where=Q(lot="other"))) == []


def test_twenty_people_never_get_the_same_picture(real_plant: Plant) -> None:
    from tests.registry.plant import person

    for _ in range(60):
        real_plant.capture()
    people = [person(f"reviewer-{n}", real_plant.line, "engineer") for n in range(20)]
    start = threading.Barrier(len(people))

    def work(who: Any) -> list[Any]:
        start.wait()
        got = []
        try:
            for _ in range(3):
                for capture in queue.claim(real_plant.line, by=who):
                    captures.decide(capture, verdict="OK", by=who)
                    got.append(capture.pk)
        finally:
            connections.close_all()
        return got

    with ThreadPoolExecutor(len(people)) as pool:
        got = [pk for part in pool.map(work, people) for pk in part]
    assert max(Counter(got).values()) == 1
    assert len(got) >= 55  # one that is being locked by another is passed over, and comes at the next call
    assert counters.value(real_plant.line, "captures_decided") == len(got) == Decision.objects.count()


def test_two_people_who_decide_at_once_leave_one_decision(real_plant: Plant) -> None:
    capture = real_plant.capture()
    start = threading.Barrier(2)

    def work(who: Any) -> str:
        start.wait()
        try:
            captures.decide(Capture.objects.get(pk=capture.pk), verdict="OK", by=who)
        except Refused as refused:
            return str(refused)
        finally:
            connections.close_all()
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(work, [real_plant.haneul, real_plant.seoyeon]))
    assert said[0] == ""
    assert "decided already" in said[1]
    assert Decision.objects.count() == 1


def test_a_skipped_picture_leaves_ones_own_queue_and_nobody_elses(plant: Plant) -> None:
    first, second = plant.capture(), plant.capture()
    queue.claim(plant.line, by=plant.haneul)
    captures.skip(first, by=plant.haneul)
    assert queue.claim(plant.line, by=plant.haneul) == [second]
    assert queue.claim(plant.line, by=plant.seoyeon) == [first]
    queue.release_claim(first, by=plant.seoyeon)
    assert queue.skipped_count(plant.line, by=plant.haneul) == 1
    assert queue.claim(plant.line, by=plant.haneul, want=Want(skipped=True)) == [first]
    assert counters.value(plant.line, "captures_new") == 2


def test_a_second_look_is_for_somebody_else(plant: Plant) -> None:
    capture = plant.capture()
    captures.ask_second_look(capture, comment="edge?", by=plant.haneul)
    capture.refresh_from_db()
    assert (capture.state, capture.second_look) == ("DISPUTED", True)
    assert queue.claim(plant.line, by=plant.haneul) == []
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]
    captures.decide(capture, verdict="OK", by=plant.seoyeon)
    assert (capture.state, capture.second_look) == ("DECIDED", False)


def test_undo_goes_back_across_pictures_decisions_and_skips(plant: Plant) -> None:
    first, second, third = plant.capture(), plant.capture(), plant.capture()
    captures.decide(first, verdict="OK", by=plant.haneul)
    captures.skip(second, by=plant.haneul)
    captures.decide(third, verdict="NG", classes=[1], by=plant.haneul)
    undone = [captures.undo_last(by=plant.haneul, line=plant.line) for _ in range(3)]
    assert undone == [third, second, first]
    assert [capture.state for capture in undone] == ["RETRACTED", "NEW", "RETRACTED"]
    assert all(capture.claimed_by == plant.haneul for capture in undone)
    with pytest.raises(Refused, match="nothing of yours"):
        captures.undo_last(by=plant.haneul, line=plant.line)
    kinds = list(Decision.objects.order_by("created_at", "id").values_list("kind", flat=True))
    assert kinds == ["DECIDED", "SKIPPED", "DECIDED", "RETRACTED", "UNSKIPPED", "RETRACTED"]
    assert (counters.value(plant.line, "captures_new"), counters.value(plant.line, "captures_decided")) == (3, 0)


def test_undo_after_a_new_decision_takes_back_the_new_one_once(plant: Plant) -> None:
    capture = plant.capture()
    captures.decide(capture, verdict="OK", by=plant.haneul)
    captures.undo_last(by=plant.haneul, line=plant.line)
    captures.decide(capture, verdict="NG", classes=[1], by=plant.haneul)
    assert captures.undo_last(by=plant.haneul, line=plant.line).state == "RETRACTED"
    with pytest.raises(Refused):
        captures.undo_last(by=plant.haneul, line=plant.line)
    verdicts = list(capture.decisions.filter(kind="DECIDED").values_list("verdict", flat=True))
    assert verdicts == ["OK", "NG"]


def test_undo_passes_over_what_somebody_else_has_changed(plant: Plant) -> None:
    older, newer = plant.decided(0), plant.decided(0)
    captures.retract(newer, reason="wrong lot", by=plant.seoyeon)
    captures.decide(newer, verdict="NG", classes=[1], by=plant.seoyeon)
    assert captures.undo_last(by=plant.haneul, line=plant.line) == older
    newer.refresh_from_db()
    assert newer.decision is not None
    assert newer.decision.by == plant.seoyeon


def test_undo_touches_only_ones_own(plant: Plant) -> None:
    plant.decided(0, by=plant.seoyeon)
    with pytest.raises(Refused, match="nothing of yours"):
        captures.undo_last(by=plant.haneul, line=plant.line)


def test_two_quick_undos_take_back_two_acts(real_plant: Plant) -> None:
    made = [real_plant.decided(0), real_plant.decided(0)]
    start = threading.Barrier(2)

    def work(_: int) -> Any:
        start.wait()
        try:
            return captures.undo_last(by=real_plant.haneul, line=real_plant.line).pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(work, range(2))) == {capture.pk for capture in made}


def test_taking_back_needs_a_reason_and_keeps_the_history(plant: Plant) -> None:
    capture = plant.decided(1)
    with pytest.raises(Refused, match="Say why"):
        captures.retract(capture, reason="  ", by=plant.seoyeon)
    captures.retract(capture, reason="picture of another part", by=plant.seoyeon)
    assert (capture.state, capture.decision) == ("RETRACTED", None)
    assert [row.kind for row in capture.decisions.all()] == ["DECIDED", "RETRACTED"]
    with pytest.raises(Refused, match="no decision"):
        captures.retract(capture, reason="again", by=plant.seoyeon)


def test_a_decided_picture_is_not_decided_over(plant: Plant) -> None:
    capture = plant.decided(1)
    with pytest.raises(Refused, match="decided already"):
        captures.decide(capture, verdict="OK", by=plant.seoyeon)
    assert not policies.can_decide(capture, by=plant.seoyeon)


def test_counts_agree_with_a_recount(plant: Plant) -> None:
    plant.lots(2)
    captures.undo_last(by=plant.haneul, line=plant.line)
    captures.skip(plant.capture(), by=plant.haneul)
    assert counters.recount(plant.line) == {}


def test_an_arriving_picture_is_announced(plant: Plant, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        flag(plant, plant.device(), "c-1")
    assert Topic.objects.get(name="el-1.captures").version == 1
