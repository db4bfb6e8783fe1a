"""Merging one class of the defect book into another: what it would change, doing it, and undoing it.

Decisions are only added: each one that named the source gets a successor by whoever merges, and an undo points back to
the one before. All of it is a few statements in one transaction; nobody decides with the source meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import classes, counters, events
from registry.ids import new_id
from registry.lifecycle import Refused
from registry.models import DefectClass, Line, Version
from registry.policies import check_reason
from training import counts, policies, usage
from training.models import Capture, ClassMerge, Decision, GoldenSet, Snapshot

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from training.policies import Person

SAME = gettext_noop("A class cannot be merged into itself.")
OTHER_LINE = gettext_noop("Both classes must be of the same line.")
INTO_RETIRED = gettext_noop("Class %(name)s is retired. Restore it first, or choose another one.")
UNDONE = gettext_noop("This merge is undone already.")
LATER_MERGE = gettext_noop("%(name)s was merged into %(into)s since. Undo that merge first.")

# What a successor has of its own; everything else is as it was said before. Whatever columns are added are copied, too.
OWN = {
    "id": "fresh.id", "created_at": "%(now)s", "kind": "%(kind)s", "by_id": "%(by)s", "batch": "%(batch)s",
    "replaces_id": "NULL",
}  # fmt: skip
MERGED = OWN | {
    "replaces_id": "said.id",
    "classes": """(
        SELECT array_agg(number ORDER BY place) FROM (
            SELECT number, min(place) AS place
            FROM unnest(array_replace(said.classes, %(source)s, %(target)s)) WITH ORDINALITY AS each (number, place)
            GROUP BY number
        ) once
    )""",
    "regions": """(
        SELECT coalesce(jsonb_agg(
            CASE WHEN region -> 'number' = to_jsonb(%(source)s) THEN region || jsonb_build_object('number', %(target)s)
            ELSE region END ORDER BY place
        ), '[]') FROM jsonb_array_elements(said.regions) WITH ORDINALITY AS each (region, place)
    )""",
}
# Rows are named by their keys, not found by joins: right after a merge the planner knows nothing of its decisions.
ADD = """
    INSERT INTO training_decision ({columns}) SELECT {values}
    FROM unnest(%(said)s::uuid[], %(fresh)s::uuid[]) AS fresh (said_id, id)
    JOIN training_decision said ON said.id = fresh.said_id
"""
POINT = """
    UPDATE training_capture capture
    SET decision_id = said.id, decided_class = said.classes[1], row_version = capture.row_version + 1
    FROM unnest(%(captures)s::uuid[], %(decisions)s::uuid[]) AS standing (capture_id, decision_id)
    JOIN training_decision said ON said.id = standing.decision_id
    WHERE capture.id = standing.capture_id
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
    rows = _locked(_standing(made.line, made.source.number).annotate(said_at=F("decision__created_at")))
    _point([row.pk for row in rows], _add(made, by, Decision.Kind.MERGED, MERGED, [row.decision_id for row in rows]))
    frozen_at = counts.frozen_at(made.line)
    return len(rows), sum(_frozen(row.said_at, frozen_at) for row in rows)


def _move_back(made: ClassMerge, by: Person) -> tuple[int, int]:
    """Let the former decisions stand again: (how many, how many fewer count as decided since the snapshot)."""
    merged = Decision.objects.filter(batch=made.pk, kind=Decision.Kind.MERGED).select_related("replaces")
    successors: dict[Any, Any] = {
        said.pk: said for said in merged.only("capture", "created_at", "replaces__created_at")
    }
    captures = Capture.objects.filter(
        pk__in=[said.capture_id for said in successors.values()], state=Capture.State.DECIDED, reserved=False
    )
    rows = [row for row in _locked(captures) if row.decision_id in successors]
    standing = [successors[row.decision_id] for row in rows]
    former = [said.replaces_id for said in standing]
    _add(made, by, Decision.Kind.UNMERGED, OWN, former)
    _point([row.pk for row in rows], former)
    frozen_at = counts.frozen_at(made.line)
    before = [
        _frozen(said.replaces.created_at, frozen_at) and not _frozen(said.created_at, frozen_at) for said in standing
    ]
    return len(rows), sum(before)


def _locked(rows: QuerySet[Capture]) -> list[Any]:
    """These rows with little more than their keys, locked until the transaction ends."""
    return list(rows.select_for_update(of=("self",), no_key=True).only("pk", "decision_id").order_by("id"))


def _frozen(said_at: datetime, frozen_at: datetime | None) -> bool:
    """Was this said before the line's last snapshot?"""
    return frozen_at is not None and said_at <= frozen_at


def _add(made: ClassMerge, by: Person, kind: str, own: dict[str, str], said: list[UUID]) -> list[UUID]:
    """Add a decision for each of `said`, with `own` columns anew; returns the new keys in the same order."""
    columns = [str(field.column) for field in Decision._meta.concrete_fields]
    values = [own.get(column, f"said.{column}") for column in columns]
    fresh = [new_id() for _ in said]
    params = {
        "said": said, "fresh": fresh, "now": timezone.now(), "kind": kind, "by": by.pk,
        "batch": made.pk, "source": made.source.number, "target": made.target.number,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(ADD.format(columns=", ".join(columns), values=", ".join(values)), params)
    return fresh


def _point(captures: list[UUID], decisions: list[UUID]) -> None:
    """Let each decision stand on its capture."""
    with connection.cursor() as cursor:
        cursor.execute(POINT, {"captures": captures, "decisions": decisions})
