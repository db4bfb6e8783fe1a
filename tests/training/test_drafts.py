"""Drafts: one per person and picture, a version that two pages meet over, gone with the decision, nobody else's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from registry.lifecycle import Refused
from training import captures, drafts, queue
from training.models import Draft

if TYPE_CHECKING:
    from tests.training.plant import Plant

BOX = {"number": 1, "kind": "box", "points": [[2, 3], [10, 12]]}
OTHER = {"number": 2, "kind": "polygon", "points": [[1, 1], [9, 2], [4, 12]]}


def boxes(draft: drafts.Opened) -> list[Any]:
    return [region["points"][0] for region in draft.regions]


def test_what_is_saved_is_opened_again_by_its_owner_only(plant: Plant) -> None:
    capture = plant.capture()
    assert drafts.opened(capture, by=plant.haneul) == drafts.Opened()
    kept = drafts.save(capture, drawn=[BOX], comment="edge", by=plant.haneul)
    assert drafts.opened(capture, by=plant.haneul) == kept
    assert (kept.version, kept.comment, boxes(kept)) == (1, "edge", [[2.0, 3.0]])
    assert drafts.opened(capture, by=plant.seoyeon) == drafts.Opened()
    drafts.save(capture, drawn=[OTHER], by=plant.seoyeon)
    assert boxes(drafts.opened(capture, by=plant.haneul)) == [[2.0, 3.0]]
    assert Draft.objects.count() == 2


def test_a_second_page_is_told_what_stands_and_nothing_is_overwritten(plant: Plant) -> None:
    capture = plant.capture()
    first = drafts.save(capture, drawn=[BOX], version=0, tab="a", by=plant.haneul)
    with pytest.raises(drafts.Changed, match="Another page of yours") as told:
        drafts.save(capture, drawn=[OTHER], version=0, tab="b", by=plant.haneul)
    assert told.value.standing == first
    chosen = drafts.save(capture, drawn=[OTHER], version=first.version, tab="b", by=plant.haneul)
    assert chosen.version == 2


def test_a_save_whose_answer_was_lost_may_be_repeated_by_the_same_page(plant: Plant) -> None:
    capture = plant.capture()
    drafts.save(capture, drawn=[BOX], version=0, tab="a", by=plant.haneul)
    again = drafts.save(capture, drawn=[BOX], version=0, tab="b", by=plant.haneul)  # the same content: no reason to ask
    assert again.version == 1
    further = drafts.save(capture, drawn=[BOX, OTHER], version=0, tab="b", by=plant.haneul)
    assert (further.version, len(further.regions)) == (2, 2)


def test_a_decision_forgets_the_draft_of_its_person_and_a_late_save_brings_nothing_back(plant: Plant) -> None:
    capture = plant.capture()
    drafts.save(capture, drawn=[BOX], by=plant.haneul)
    drafts.save(capture, drawn=[OTHER], by=plant.seoyeon)
    captures.decide(capture, verdict="NG", classes=[1], by=plant.haneul)
    with pytest.raises(Refused, match="decided already"):
        drafts.save(capture, drawn=[BOX], version=1, by=plant.haneul)
    assert [draft.by for draft in Draft.objects.all()] == [plant.seoyeon]  # hers is not his to throw away


def test_a_decision_that_was_taken_back_begins_with_its_own_shapes(plant: Plant) -> None:
    capture = plant.capture()
    captures.decide(capture, verdict="NG", regions=[BOX], comment="edge", by=plant.haneul)
    assert drafts.opened(capture, by=plant.haneul) == drafts.Opened()
    captures.undo_last(by=plant.haneul, line=plant.line)
    capture.refresh_from_db()
    opened = drafts.opened(capture, by=plant.haneul)
    assert (boxes(opened), opened.comment, opened.version) == ([[2.0, 3.0]], "edge", 0)
    assert drafts.opened(capture, by=plant.seoyeon) == drafts.Opened()


def test_a_draft_is_kept_for_its_owner_while_somebody_else_holds_the_picture(plant: Plant) -> None:
    capture = plant.capture()
    queue.claim_one(capture, by=plant.seoyeon)
    assert drafts.save(capture, drawn=[BOX], by=plant.haneul).version == 1


def test_a_viewer_keeps_no_draft_and_an_impossible_shape_is_refused(plant: Plant) -> None:
    capture = plant.capture()
    with pytest.raises(Refused):
        drafts.save(capture, drawn=[BOX], by=plant.viewer)
    with pytest.raises(Refused, match="region cannot be used"):
        drafts.save(capture, drawn=[BOX | {"points": [[1, 1]]}], by=plant.haneul)
    assert not Draft.objects.exists()


def test_ok_with_shapes_is_refused_with_what_to_do(plant: Plant) -> None:
    capture = plant.capture()
    with pytest.raises(Refused, match="remove them to say OK"):
        captures.decide(capture, verdict="OK", regions=[BOX], by=plant.haneul)


def test_saves_that_arrive_together_make_one_draft(real_plant: Plant) -> None:
    capture = real_plant.capture()

    def save(tab: str) -> str:
        try:
            drafts.save(capture, drawn=[BOX | {"number": int(tab)}], tab=tab, by=real_plant.haneul)
        except drafts.Changed:
            return "told"
        finally:
            connection.close()
        return "saved"

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(save, ["1", "2", "3", "4"]))
    assert answers == ["saved", "told", "told", "told"]
    assert Draft.objects.count() == 1
