"""Merging one class of the defect book into another: what it would change, doing it, and undoing it.

Decisions are only added: each one that named the source gets a successor by whoever merges, and an undo points back to
the one before. All of it is done in batches of one transaction; nobody decides with the source meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import classes, counters, events
from registry.lifecycle import Refused
from registry.models import DefectClass, Line, Version
from registry.policies import check_reason
from training import counts, policies, usage
from training.models import Capture, ClassMerge, Decision, GoldenSet, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from training.policies import Person

BATCH = 2000

SAME = gettext_noop("A class cannot be merged into itself.")
OTHER_LINE = gettext_noop("Both classes must be of the same line.")
INTO_RETIRED = gettext_noop("Class %(name)s is retired. Restore it first, or choose another one.")
UNDONE = gettext_noop("This merge is undone already.")
LATER_MERGE = gettext_noop("%(name)s was merged into %(into)s since. Undo that merge first.")

POINT = """
    UPDATE training_capture capture
    SET decision_id = said.id, decided_class = said.classes[1], row_version = capture.row_version + 1
    FROM training_decision said
    WHERE said.batch = %s AND said.kind = 'MERGED'
      AND said.capture_id = capture.id AND capture.decision_id = said.replaces_id
"""
POINT_BACK = """
    UPDATE training_capture capture
    SET decision_id = former.id, decided_class = former.classes[1], row_version = capture.row_version + 1
    FROM training_decision said JOIN training_decision former ON former.id = said.replaces_id
    WHERE said.id = ANY(%s) AND capture.decision_id = said.id
"""


@dataclass(frozen=True)
class Preview:
    """What a merge would change, and what stays as it was."""

    decisions: int  # standing decisions that name the source
    both: int  # of these, how many name the target as well
    drafts: int
    golden: int  # pictures of golden sets in force: not changed
    golden_sets: list[str]
    snapshots: int  # frozen with the source in their class table: not changed
    versions: int
    loses_critical: bool


def preview(source: DefectClass, target: DefectClass) -> Preview:
    """Count what merging `source` into `target` would do now. Raises Refused when it cannot be done."""
    check(source, target)
    line, number = source.line, source.number
    sets = GoldenSet.objects.filter(line=line, retired_at=None, items__label=number).distinct()
    named = [{"number": number}]
    return Preview(
        decisions=_standing(line, number).count(),
        both=_standing(line, number).filter(decision__classes__contains=[target.number]).count(),
        drafts=usage.drafted(line).get(number, 0),
        golden=usage.golden(line).get(number, 0),
        golden_sets=[str(found) for found in sets],
        snapshots=Snapshot.objects.filter(line=line, classes__contains=named).count(),
        versions=Version.objects.filter(line=line, manifest__classes__contains=named).count(),
        loses_critical=source.critical and not target.critical,
    )


def check(source: DefectClass, target: DefectClass) -> None:
    """Raises Refused with the reason why these two cannot be merged."""
    if source.pk == target.pk:
        raise Refused(SAME)
    if source.line_id != target.line_id:
        raise Refused(OTHER_LINE)
    if source.merged_into is not None:
        raise Refused(classes.MERGED, name=source.name, into=source.merged_into.name)
    if target.retired_at is not None:
        raise Refused(INTO_RETIRED, name=target.name)


def merge(source: DefectClass, target: DefectClass, *, reason: str, by: Person) -> ClassMerge:
    """`source` means `target` from now on: its standing decisions get a successor, and it can no longer be chosen.

    Snapshots, golden sets and versions stay as they were frozen.
    """
    policies.check_can_merge(source.line, by=by)
    check_reason(reason)
    with transaction.atomic():
        first, second = classes.locked(source.line, source, target)
        check(first, second)
        made = ClassMerge.objects.create(line=first.line, source=first, target=second, by=by, reason=reason.strip())
        moved, newer = _move(made, by)
        ClassMerge.objects.filter(pk=made.pk).update(moved=moved)
        classes.merge_into(first, second, moved=moved, reason=reason, by=by)
        counters.add(first.line, counts.DECIDED, newer)
        events.announce(f"{first.line.code}.captures", *first.line.topics())
    made.refresh_from_db()
    return made


def undo(merge: ClassMerge, *, reason: str, by: Person) -> ClassMerge:
    """Let every decision stand again that the merge replaced and nobody has changed since; the source is a class again.

    What was changed since stays as it is, and is counted.
    """
    policies.check_can_merge(merge.line, by=by)
    check_reason(reason)
    with transaction.atomic():
        source, target = classes.locked(merge.line, merge.source, merge.target)
        row = ClassMerge.objects.select_for_update(of=("self",)).select_related("line").get(pk=merge.pk)
        if row.undone_at is not None:
            raise Refused(UNDONE)
        if target.merged_into is not None:
            raise Refused(LATER_MERGE, name=target.name, into=target.merged_into.name)
        restored, newer = _move_back(row, by)
        ClassMerge.objects.filter(pk=row.pk).update(undone_at=timezone.now(), undone_by=by, restored=restored)
        classes.unmerge(source, restored=restored, left=row.moved - restored, reason=reason, by=by)
        counters.add(row.line, counts.DECIDED, -newer)
        events.announce(f"{row.line.code}.captures", *row.line.topics())
    merge.refresh_from_db()
    return merge


# ------------------------------------------------------------------------------------------------ the decisions


def _standing(line: Line, number: int) -> QuerySet[Capture]:
    """Captures whose standing decision names the class, without those of golden sets."""
    rows = Capture.objects.filter(line=line, state=Capture.State.DECIDED, reserved=False)
    return rows.filter(decision__classes__contains=[number])


def _move(made: ClassMerge, by: Person) -> tuple[int, int]:
    """Add the successors and let them stand: (how many, how many of them now count as decided since the snapshot)."""
    source, target, frozen_at = made.source.number, made.target.number, counts.frozen_at(made.line)
    moved = newer = 0
    for chunk in _chunks(_held(_standing(made.line, source), "decision")):
        Decision.objects.bulk_create([_successor(row, source, target, made.pk, by) for row in chunk])
        moved += len(chunk)
        newer += sum(_frozen(row.decision, frozen_at) for row in chunk)
    with connection.cursor() as cursor:
        cursor.execute(POINT, [made.pk])
    return moved, newer


def _move_back(made: ClassMerge, by: Person) -> tuple[int, int]:
    """Let the former decisions stand again: (how many, how many fewer count as decided since the snapshot)."""
    frozen_at = counts.frozen_at(made.line)
    rows = Capture.objects.filter(
        line=made.line, state=Capture.State.DECIDED, reserved=False,
        decision__batch=made.pk, decision__kind=Decision.Kind.MERGED,
    )  # fmt: skip
    restored = older = 0
    for chunk in _chunks(_held(rows, "decision__replaces")):
        with connection.cursor() as cursor:
            cursor.execute(POINT_BACK, [[row.decision_id for row in chunk]])
        Decision.objects.bulk_create([_return(row, made.pk, by) for row in chunk])
        restored += len(chunk)
        older += sum(_older(row.decision, frozen_at) for row in chunk)
    return restored, older


def _successor(row: Capture, source: int, target: int, batch: UUID, by: Person) -> Decision:
    said: Any = row.decision
    return Decision(
        capture=row, kind=Decision.Kind.MERGED, by=by, verdict=said.verdict, comment=said.comment, batch=batch,
        classes=_renamed(said.classes, source, target), predicted=said.predicted, replaces=said,
        regions=[
            {**region, "number": target} if region["number"] == source else region for region in said.regions
        ],
    )  # fmt: skip


def _return(row: Capture, batch: UUID, by: Person) -> Decision:
    said: Any = row.decision
    former = said.replaces
    return Decision(
        capture=row, kind=Decision.Kind.UNMERGED, by=by, verdict=former.verdict, classes=former.classes,
        regions=former.regions, comment=former.comment, predicted=former.predicted, batch=batch,
    )  # fmt: skip


def _renamed(numbers: Iterable[int], source: int, target: int) -> list[int]:
    return list(dict.fromkeys(target if number == source else number for number in numbers))


def _frozen(said: Any, frozen_at: datetime | None) -> bool:
    """Was this said before the line's last snapshot?"""
    return frozen_at is not None and said.created_at <= frozen_at


def _older(said: Any, frozen_at: datetime | None) -> bool:
    """Was this said after the last snapshot, and what it replaced before?"""
    return not _frozen(said, frozen_at) and _frozen(said.replaces, frozen_at)


def _held(rows: QuerySet[Capture], with_what: str) -> Iterator[Capture]:
    """The rows, locked, without what devices said of them: that is large and nothing here reads it."""
    locked = rows.select_for_update(of=("self",), no_key=True).select_related(with_what).defer("prediction")
    return locked.order_by("id").iterator(BATCH)


def _chunks(rows: Iterator[Capture]) -> Iterator[list[Capture]]:
    while chunk := list(islice(rows, BATCH)):
        yield chunk
