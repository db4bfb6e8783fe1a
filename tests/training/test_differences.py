"""Two snapshots compared by the database: each picture is counted where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from registry.lifecycle import Refused
from tests.training import plant as plants
from tests.training.plant import RULE
from training import captures, differences, snapshots

if TYPE_CHECKING:
    from tests.training.plant import Plant


def test_a_snapshot_differs_from_itself_in_nothing(plant: Plant) -> None:
    made = plant.lots(4)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    found = differences.between(snapshot, snapshot)
    assert set(found.counts.values()) == {0}
    assert found.same == len(made)
    assert not any(differences.pictures(snapshot, snapshot, kind).exists() for kind in differences.KINDS)


def test_every_picture_is_added_removed_moved_or_labelled_otherwise(plant: Plant) -> None:
    made = plant.lots(4)
    old = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    gone, other = made[0], made[3]
    captures.retract(gone, reason="x", by=plant.haneul)
    captures.retract(other, reason="x", by=plant.haneul)
    captures.decide(other, verdict="NG", classes=[1], by=plant.haneul)
    plant.decided(0, lot="new")
    new = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    found = differences.between(old, new)
    assert found.counts == {"added": 1, "removed": 1, "moved": 0, "relabelled": 1}
    assert found.same == len(made) - 2
    back = differences.between(new, old)
    assert (back.counts["added"], back.counts["removed"]) == (1, 1)
    assert [item.capture for item in differences.pictures(old, new, "removed")] == [gone]
    assert [item.capture.lot for item in differences.pictures(old, new, "added")] == ["new"]
    (relabelled,) = differences.pictures(old, new, "relabelled")
    assert (relabelled.capture, relabelled.was_label, relabelled.label) == (other, 0, 1)


def test_a_lot_that_goes_to_another_side_is_moved_whole(plant: Plant) -> None:
    plant.lots(6)
    old = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    lot = old.items.filter(split="val").order_by("pk")[0].capture.lot
    new = snapshots.freeze(plant.line, RULE | {"assign": {lot: "train"}}, by=plant.haneul)
    assert differences.between(old, new).counts == {"added": 0, "removed": 0, "moved": 3, "relabelled": 0}
    moved = list(differences.pictures(old, new, "moved"))
    assert {(item.capture.lot, item.was_split, item.split) for item in moved} == {(lot, "val", "train")}


def test_counting_takes_the_same_queries_however_much_differs(plant: Plant) -> None:
    plant.lots(4)
    old = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    plant.lots(4)
    new = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    with CaptureQueriesContext(connection) as queries:
        assert differences.between(old, new).counts["added"] == 12
    assert len(queries) == 3


def test_snapshots_of_two_lines_are_not_compared(plant: Plant) -> None:
    other = plants.make(code="mt-2")
    for each in (plant, other):
        each.lots(4)
    old, new = (snapshots.freeze(each.line, RULE, by=each.haneul) for each in (plant, other))
    with pytest.raises(Refused, match="share no picture"):
        differences.between(old, new)


def test_the_snapshot_before_is_the_one_of_the_line_with_the_next_lower_number(plant: Plant) -> None:
    other = plants.make(code="mt-2")
    for each in (plant, other):
        each.lots(4)
    first = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    snapshots.freeze(other.line, RULE, by=other.haneul)
    second = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert differences.previous(second) == first
    assert differences.previous(first) is None
