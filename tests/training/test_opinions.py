"""Second opinions: several people judge a picture, nobody twice; agreement decides, an adjudicator settles the rest."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections

from registry import counters, lines
from registry.lifecycle import Refused
from registry.models import AuditEvent
from tests.registry.plant import person
from tests.training.plant import SET_UP
from training import captures, drafts, merges, opinions, policies, queue
from training.models import Capture, Decision, Opinion

if TYPE_CHECKING:
    from tests.training.plant import Plant

POLICY = {"opinions": 2, "known_rate": 0.0, "repeat_rate": 0.0, "blind_share": 0.0}


def policy(plant: Plant, **change: Any) -> int:
    boss = person(f"boss-{AuditEvent.objects.count()}", plant.line, "supervisor")
    return opinions.set_policy(plant.line, **{**POLICY, **change}, by=boss)


def say(capture: Capture, who: Any, label: int = 0, **more: Any) -> Decision:
    classes = [label] if label else []
    return captures.decide(
        Capture.objects.get(pk=capture.pk), verdict="NG" if label else "OK", classes=classes, by=who, **more
    )


def kinds(capture: Capture) -> list[str]:
    return [act.kind for act in capture.decisions.all()]


def test_the_first_of_two_leaves_the_picture_for_the_other_and_the_second_decides(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    [given] = queue.claim(plant.line, by=plant.haneul)
    say(given, plant.haneul, 1)
    capture.refresh_from_db()
    assert (capture.state, capture.opinions, capture.decision, capture.claimed_by) == ("NEW", 1, None, None)
    assert counters.value(plant.line, "captures_new") == 1
    assert queue.claim(plant.line, by=plant.haneul) == []
    assert (queue.left(plant.line, by=plant.haneul), queue.left(plant.line, by=plant.seoyeon)) == (0, 1)
    with pytest.raises(Refused, match="waits for somebody else"):
        say(capture, plant.haneul)
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]
    last = say(capture, plant.seoyeon, 1)
    capture.refresh_from_db()
    assert (capture.state, capture.decision, capture.decided_class) == ("DECIDED", last, 1)
    assert kinds(capture) == ["OPINION", "DECIDED"]
    assert counters.recount(plant.line) == {}


def test_an_opinion_from_before_a_merge_means_the_class_that_its_own_became(plant: Plant) -> None:
    stain = lines.add_class(plant.line, code="stain", name_ko="얼룩", name_en="stain", by=SET_UP)
    crack = plant.line.defect_classes.get(code="crack")
    policy(plant)
    agreed, differing, lowered = (plant.capture() for _ in range(3))
    box = {"number": crack.number, "kind": "box", "points": [[1, 1], [9, 9]]}
    for capture in (agreed, differing, lowered):
        say(capture, plant.haneul, crack.number, regions=[box])
    merges.merge(crack, stain, reason="one defect, two names", by=plant.seoyeon)
    say(agreed, plant.seoyeon, stain.number)
    say(differing, plant.seoyeon)
    policy(plant, opinions=1)
    found = {row.pk: row for row in Capture.objects.select_related("decision")}
    assert (found[agreed.pk].state, found[agreed.pk].decided_class) == ("DECIDED", stain.number)
    assert (found[differing.pk].state, found[differing.pk].disagreed) == ("DISPUTED", True)
    settled = found[lowered.pk]
    assert (settled.state, settled.decided_class) == ("DECIDED", stain.number)
    assert settled.decision is not None
    assert (settled.decision.classes, settled.decision.regions[0]["number"]) == ([stain.number], stain.number)
    assert counters.recount(plant.line) == {}


def test_who_differs_disputes_and_only_an_adjudicator_without_an_opinion_settles(plant: Plant) -> None:
    policy(plant)
    judge = person("judge", plant.line, "adjudicator")
    partial = person("partial", plant.line, "adjudicator")
    capture = plant.capture()
    say(capture, plant.haneul, 1)
    say(capture, partial)
    capture.refresh_from_db()
    assert (capture.state, capture.disagreed, capture.decision) == ("DISPUTED", True, None)
    for nobody, sentence in ((plant.haneul, "one of them is yours"), (partial, "one of them is yours")):
        assert queue.claim(plant.line, by=nobody) == []
        with pytest.raises(Refused, match=sentence):
            say(capture, nobody)
    assert queue.claim(plant.line, by=plant.seoyeon) == []
    with pytest.raises(Refused, match="role adjudicator"):
        say(capture, plant.seoyeon)
    assert queue.left(plant.line, by=plant.seoyeon) == 0
    assert queue.claim(plant.line, by=judge) == [capture]
    say(capture, judge, 1)
    capture.refresh_from_db()
    assert (capture.state, capture.disagreed, capture.decided_class) == ("DECIDED", False, 1)
    assert kinds(capture) == ["OPINION", "OPINION", "DECIDED"]
    assert counters.recount(plant.line) == {}


def test_another_class_is_another_opinion_and_another_shape_is_not(plant: Plant) -> None:
    from registry import lines

    lines.add_class(plant.line, code="stain", by="command:test")
    policy(plant)
    same, other = plant.capture(), plant.capture()
    box = [{"number": 1, "kind": "box", "points": [[1, 1], [5, 5]]}]
    say(same, plant.haneul, 1, regions=box)
    say(same, plant.seoyeon, 1)
    say(other, plant.haneul, 1)
    say(other, plant.seoyeon, 2)
    assert [Capture.objects.get(pk=row.pk).state for row in (same, other)] == ["DECIDED", "DISPUTED"]


def test_two_last_people_at_the_same_moment_leave_one_decision(real_plant: Plant) -> None:
    policy(real_plant)
    third = person("third", real_plant.line, "engineer")
    for _ in range(4):
        capture = real_plant.capture()
        say(capture, real_plant.haneul, 1)
        start = threading.Barrier(2)

        def work(who: Any, start: threading.Barrier = start, capture: Capture = capture) -> str:
            start.wait()
            try:
                say(capture, who, 1)
            except Refused as refused:
                return str(refused)
            finally:
                connections.close_all()
            return ""

        with ThreadPoolExecutor(2) as pool:
            said = sorted(pool.map(work, [real_plant.seoyeon, third]))
        assert said[0] == ""
        assert "decided already" in said[1]
        assert sorted(kinds(capture)) == ["DECIDED", "OPINION"]
        assert Opinion.objects.filter(capture=capture).count() == 2
    assert counters.recount(real_plant.line) == {}


def test_one_person_with_two_browsers_has_one_opinion(real_plant: Plant) -> None:
    policy(real_plant)
    capture = real_plant.capture()
    start = threading.Barrier(2)

    def work(label: int) -> str:
        start.wait()
        try:
            say(capture, real_plant.haneul, label)
        except Refused as refused:
            return str(refused)
        finally:
            connections.close_all()
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(work, [0, 1]))
    assert said[0] == ""
    assert "waits for somebody else" in said[1]
    assert (Opinion.objects.count(), Capture.objects.get().opinions) == (1, 1)


# ------------------------------------------------------------------------------------------------ taking back


def test_an_opinion_is_taken_back_while_the_picture_waits(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    box = [{"number": 1, "kind": "box", "points": [[1, 1], [5, 5]]}]
    say(capture, plant.haneul, 1, regions=box, comment="edge")
    undone = captures.undo_last(by=plant.haneul, line=plant.line)
    assert (undone, undone.state, undone.opinions, undone.claimed_by) == (capture, "NEW", 0, plant.haneul)
    assert kinds(capture) == ["OPINION", "OPINION_BACK"]
    assert (drafts.opened(undone, by=plant.haneul).comment, drafts.opened(undone, by=plant.seoyeon).comment) == (
        "edge", "",
    )  # fmt: skip
    with pytest.raises(Refused, match="nothing of yours"):
        captures.undo_last(by=plant.haneul, line=plant.line)
    say(capture, plant.haneul)
    captures.undo_last(by=plant.haneul, line=plant.line)
    assert not Opinion.objects.exists()


def test_taking_back_the_opinion_that_differed_ends_the_dispute(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    say(capture, plant.haneul, 1)
    say(capture, plant.seoyeon)
    undone = captures.undo_last(by=plant.seoyeon, line=plant.line)
    assert (undone.state, undone.disagreed, undone.opinions) == ("NEW", False, 1)
    say(capture, plant.seoyeon, 1)
    assert Capture.objects.get().state == "DECIDED"


def test_what_several_agreed_on_is_not_undone_by_one_key(plant: Plant) -> None:
    policy(plant)
    earlier, capture = plant.capture(), plant.capture()
    say(earlier, plant.seoyeon)
    say(capture, plant.haneul)
    say(capture, plant.seoyeon)
    with pytest.raises(Refused, match="several people who agreed"):
        captures.undo_last(by=plant.seoyeon, line=plant.line)
    assert Capture.objects.get(pk=capture.pk).state == "DECIDED"
    with pytest.raises(Refused, match="nothing of yours"):  # somebody else has closed it since
        captures.undo_last(by=plant.haneul, line=plant.line)


def test_after_a_retraction_everybody_is_asked_anew(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    say(capture, plant.haneul)
    say(capture, plant.seoyeon)
    captures.retract(Capture.objects.get(), reason="wrong part", by=plant.seoyeon)
    capture.refresh_from_db()
    assert (capture.state, capture.opinions) == ("RETRACTED", 0)
    say(capture, plant.haneul, 1)
    assert Capture.objects.get().state == "RETRACTED"
    say(capture, plant.seoyeon)
    assert Capture.objects.get().state == "DISPUTED"
    assert counters.recount(plant.line) == {}


def test_an_adjudicator_who_takes_back_leaves_the_dispute_as_it_was(plant: Plant) -> None:
    policy(plant)
    judge = person("judge", plant.line, "adjudicator")
    capture = plant.capture()
    say(capture, plant.haneul, 1)
    say(capture, plant.seoyeon)
    say(capture, judge, 1)
    undone = captures.undo_last(by=judge, line=plant.line)
    assert (undone.state, undone.disagreed, undone.opinions) == ("RETRACTED", True, 2)
    assert queue.claim(plant.line, by=plant.haneul) == []
    say(capture, judge)
    assert Capture.objects.get().decided_class == 0
    assert counters.recount(plant.line) == {}


# ------------------------------------------------------------------------------------------- together, skips and looks


def test_pictures_judged_together_become_opinions_and_are_taken_back_together(plant: Plant) -> None:
    policy(plant)
    rows = [plant.capture() for _ in range(3)]
    ids = [row.pk for row in rows]
    done = captures.decide_together(plant.line, ids, verdict="OK", by=plant.haneul)
    assert (len(done.decided), Opinion.objects.count()) == (3, 3)
    captures.undo_last(by=plant.haneul, line=plant.line)
    assert not Opinion.objects.exists()
    captures.decide_together(plant.line, ids, verdict="OK", by=plant.haneul)
    say(rows[0], plant.seoyeon)  # decided by both: the rest can still be taken back
    captures.undo_last(by=plant.haneul, line=plant.line)
    assert set(Opinion.objects.values_list("capture", flat=True)) == {rows[0].pk}


def test_who_asked_for_a_second_look_is_asked_once_somebody_else_has_said_something(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    captures.ask_second_look(capture, comment="edge?", by=plant.haneul)
    assert queue.claim(plant.line, by=plant.haneul) == []
    say(capture, plant.seoyeon, 1)
    assert queue.claim(plant.line, by=plant.haneul) == [capture]
    say(capture, plant.haneul, 1)
    assert (Capture.objects.get().state, Capture.objects.get().second_look) == ("DECIDED", False)


def test_a_skip_gives_no_opinion(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    captures.skip(capture, by=plant.haneul)
    assert not Opinion.objects.exists()
    assert queue.claim(plant.line, by=plant.seoyeon) == [capture]


def test_a_draft_that_arrives_behind_its_opinion_stays_away(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    drafts.save(capture, drawn=[], comment="edge", by=plant.haneul)
    say(capture, plant.haneul)
    with pytest.raises(Refused, match="somebody else"):
        drafts.save(capture, drawn=[], comment="edge", version=1, by=plant.haneul)
    assert drafts.opened(Capture.objects.get(), by=plant.haneul) == drafts.Opened()


# ------------------------------------------------------------------------------------------------ the policy


def test_the_policy_is_set_by_those_who_may_and_written_down(plant: Plant) -> None:
    with pytest.raises(Refused, match="roles"):
        opinions.set_policy(plant.line, **POLICY, by=plant.haneul)
    policy(plant, known_rate=0.05)
    event = AuditEvent.objects.get(action="line.review_policy")
    assert (event.old["opinions"], event.new["opinions"], event.new["known_rate"]) == (1, 2, 0.05)
    assert plant.line.opinions == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"opinions": 0}, "1 to 5"), ({"opinions": 6}, "1 to 5"), ({"known_rate": 0.3}, "0 to 20 per cent"),
     ({"repeat_rate": -0.1}, "0 to 20 per cent"), ({"blind_share": 1.5}, "0 to 100 per cent")],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(plant: Plant, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        policy(plant, **change)
    plant.line.refresh_from_db()
    assert plant.line.opinions == 1


def test_asking_for_fewer_settles_what_has_enough_and_strands_nothing(plant: Plant) -> None:
    policy(plant, opinions=3)
    alone, agreed, differ, open_ = (plant.capture() for _ in range(4))
    say(alone, plant.haneul, 1)
    for capture, label in ((agreed, 0), (differ, 1)):
        say(capture, plant.haneul)
        say(capture, plant.seoyeon, label)
    assert policy(plant, opinions=1) == 3
    found = {row.pk: row for row in Capture.objects.all()}
    assert [found[row.pk].state for row in (alone, agreed, differ, open_)] == ["DECIDED", "DECIDED", "DISPUTED", "NEW"]
    standing = found[alone.pk].decision
    assert standing is not None
    assert (standing.kind, standing.by, standing.classes) == ("SETTLED", plant.haneul, [1])
    assert queue.claim(plant.line, by=plant.haneul) == [open_]
    assert counters.recount(plant.line) == {}
    undone = [captures.undo_last(by=plant.haneul, line=plant.line) for _ in range(2)]
    assert [(row, row.state) for row in undone] == [(differ, "NEW"), (alone, "RETRACTED")]  # alone was theirs alone


def test_an_opinion_that_slips_behind_a_new_policy_is_settled_at_the_next_tick(plant: Plant) -> None:
    policy(plant)
    capture = plant.capture()
    say(capture, plant.haneul)
    type(plant.line).objects.update(opinions=1)
    assert opinions.settle() == 1
    assert Capture.objects.get().state == "DECIDED"
    assert opinions.settle() == 0


def test_asking_for_more_lets_decisions_stand(plant: Plant) -> None:
    capture = plant.decided(1)
    policy(plant)
    assert Capture.objects.get().state == "DECIDED"
    assert not policies.can_decide(capture, by=plant.seoyeon)
    undone = captures.undo_last(by=plant.haneul, line=plant.line)
    assert undone.state == "RETRACTED"
