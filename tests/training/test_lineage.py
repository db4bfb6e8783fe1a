"""Where a decision went, and the mark that stands on what learned something that does not stand any more."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from registry import events, lines
from registry.models import BaseModel, Device, Promotion, Release, Version
from tests.training.plant import RULE, SET_UP
from training import captures, lineage, snapshots

if TYPE_CHECKING:
    from registry.models import Line
    from tests.training.plant import Plant
    from training.models import Capture, Snapshot

_numbers = itertools.count(1)


def version(plant: Plant, snapshot: Snapshot, parent: Version | None = None) -> Version:
    """A version row as training on this snapshot leaves one; its files do not matter here."""
    base, _ = BaseModel.objects.get_or_create(
        digest="b" * 64,
        defaults={"name": "tiny", "licence": "x", "parameters": 1, "bundle": {}, "map_digest": "m" * 64},
    )
    number = next(_numbers)
    return Version.objects.create(
        line=snapshot.line, number=number, base=base, parent=parent, job_id=uuid.uuid4(), snapshot_id=snapshot.pk,
        trained_by=plant.haneul, manifest_digest=f"{number:064x}", manifest={}, files={}, evidence={},
        dossier_digest="d" * 64,
    )  # fmt: skip


def release(plant: Plant, of: Version) -> Release:
    promotion = Promotion.objects.create(
        line=of.line, number=of.number, state="APPROVED", version=of, manifest_digest=of.manifest_digest,
        reason="x", requested_by=plant.haneul, expires_at=of.created_at,
    )  # fmt: skip
    return Release.objects.create(
        line=of.line, number=of.number, state="SUPERSEDED", version=of, promotion=promotion,
        manifest_digest=of.manifest_digest, manifest_bytes=1,
    )  # fmt: skip


def frozen_picture(plant: Plant, at: int = 2) -> tuple[Capture, Snapshot]:
    """One picture of a snapshot's training side; number 2 of each lot of three is the NG one."""
    made = plant.lots(4)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    trained = set(snapshot.items.filter(split="train").values_list("capture", flat=True))
    return next(one for one in made[at::3] if one.pk in trained), snapshot


def take_back(plant: Plant, capture: Capture) -> None:
    captures.retract(capture, reason="looked again", by=plant.seoyeon)


def marks(snapshot: Snapshot) -> int:
    return lineage.changed_in_snapshots([snapshot]).get(snapshot.pk, 0)


def test_nothing_is_marked_while_decisions_stand(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant)
    made = version(plant, snapshot)
    assert lineage.changed_in_snapshots([snapshot]) == {}
    assert lineage.changed_in_versions([made.pk]) == {}
    assert lineage.blast(capture).changed == []


def test_a_decision_that_is_taken_back_marks_what_froze_and_learned_it(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant)
    first = version(plant, snapshot)
    take_back(plant, capture)
    later = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    second, other = version(plant, later, parent=first), version(plant, later)
    assert lineage.changed_in_snapshots([snapshot, later]) == {snapshot.pk: 1}
    # The second version never saw the picture in its own snapshot, but continues one that did.
    assert lineage.changed_in_versions([first.pk, second.pk, other.pk]) == {first.pk: 1, second.pk: 1}


def test_deciding_the_same_again_clears_the_mark_and_otherwise_keeps_it(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant)
    take_back(plant, capture)
    captures.decide(capture, verdict="OK", by=plant.seoyeon)
    assert marks(snapshot) == 1
    take_back(plant, capture)
    captures.decide(capture, verdict="NG", classes=[1], by=plant.seoyeon)
    assert marks(snapshot) == 0
    assert lineage.blast(capture).changed == []


def test_another_shape_or_another_main_class_is_another_decision(plant: Plant) -> None:
    lines.add_class(plant.line, code="break", name_ko="깨짐", name_en="break", by=SET_UP)
    capture, snapshot = frozen_picture(plant)
    take_back(plant, capture)
    captures.decide(capture, verdict="NG", classes=[1, 2], by=plant.seoyeon)
    assert marks(snapshot) == 1
    take_back(plant, capture)
    box = {"number": 1, "kind": "box", "points": [[1, 1], [5, 5]]}
    captures.decide(capture, verdict="NG", classes=[1], regions=[box], by=plant.seoyeon)
    assert marks(snapshot) == 1
    assert [item.pk for item in lineage.changed([snapshot.pk])] == [item.pk for item in lineage.blast(capture).changed]


def test_a_decision_that_was_taken_back_before_the_freeze_marks_nothing(plant: Plant) -> None:
    capture = plant.decided(1, lot="L0")
    take_back(plant, capture)
    captures.decide(capture, verdict="OK", by=plant.haneul)
    plant.lots(4)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert marks(snapshot) == 0


def test_the_blast_names_snapshots_versions_releases_and_the_devices_that_run_them_now(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant)
    first = version(plant, snapshot)
    child = version(plant, snapshots.freeze(plant.line, RULE, by=plant.haneul), parent=first)
    shipped = release(plant, child)
    running, retired, elsewhere = (plant.device(f"el-1-0{n}") for n in (1, 2, 3))
    Device.objects.filter(pk__in=[running.pk, retired.pk]).update(running_digest=child.manifest_digest)
    Device.objects.filter(pk=retired.pk).update(state="RETIRED")
    Device.objects.filter(pk=elsewhere.pk).update(running_digest="e" * 64)
    take_back(plant, capture)
    blast = lineage.blast(capture)
    assert [str(item.snapshot) for item in blast.changed] == ["S-0002", "S-0001"]
    assert {each.pk for each in blast.changed_reach.versions} == {first.pk, child.pk}
    assert blast.changed_reach.releases == [shipped]
    assert blast.changed_reach.devices == [running]
    running.refresh_from_db()
    assert lineage.changed_in_devices([running, elsewhere]) == {running.pk: (child, 1)}


def test_what_is_asked_before_taking_back_is_only_what_still_stands(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant, at=0)
    take_back(plant, capture)
    captures.decide(capture, verdict="NG", classes=[1], by=plant.seoyeon)
    later = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    blast = lineage.blast(capture)
    assert [item.snapshot for item in blast.changed] == [snapshot]
    assert [item.snapshot for item in blast.standing] == [later]


def test_a_list_of_marks_takes_the_same_few_queries_however_long_it_is(plant: Plant) -> None:
    capture, snapshot = frozen_picture(plant)
    chain = [version(plant, snapshot)]
    for _ in range(12):
        chain.append(version(plant, snapshots.freeze(plant.line, RULE, by=plant.haneul), parent=chain[-1]))
    take_back(plant, capture)
    with CaptureQueriesContext(connection) as few:
        lineage.changed_in_versions([chain[0].pk])
    with CaptureQueriesContext(connection) as many:
        found = lineage.changed_in_versions([each.pk for each in chain])
    assert len(few) == len(many) <= 3
    assert found == {each.pk: 1 for each in chain}


def test_pages_hear_of_a_frozen_decision_that_changes_and_not_of_others(plant: Plant, topics: Any) -> None:
    capture, _snapshot = frozen_picture(plant)
    fresh = plant.decided(0, lot="new")
    with topics(plant.line) as heard:
        take_back(plant, fresh)
    assert heard() == {"snapshots": 0, "versions": 0, "devices": 0}
    with topics(plant.line) as heard:
        take_back(plant, capture)
        captures.decide(capture, verdict="OK", by=plant.haneul)
    assert heard() == {"snapshots": 2, "versions": 2, "devices": 2}


@pytest.fixture
def topics(django_capture_on_commit_callbacks: Any) -> Any:
    """How often the topics of marks were announced inside the block."""
    from contextlib import contextmanager

    names = ("snapshots", "versions", "devices")

    def now(line: Line) -> dict[str, int]:
        found = events.current(*(f"{line.code}.{name}" for name in names))
        return {name: found[f"{line.code}.{name}"] for name in names}

    @contextmanager
    def listening(line: Line) -> Any:
        before = now(line)
        with django_capture_on_commit_callbacks(execute=True):
            yield lambda: {name: count - before[name] for name, count in now(line).items()}

    return listening
