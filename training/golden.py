"""Golden sets: pictures that are never trained on and that every version is compared on. Editions, never edits."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import audit, counters, events, lifecycle
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from training import counts, near_duplicates, policies
from training.models import Capture, Decision, GoldenItem, GoldenSet, SnapshotItem, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from training.policies import Person

EMPTY = gettext_noop("A golden set needs pictures.")
OTHER_LINE = gettext_noop("Picture %(name)s is of another line.")
TWICE = gettext_noop("Picture %(name)s is in the list twice.")
LABEL_UNKNOWN = gettext_noop("Class %(number)s is not in the defect book of line %(line)s.")
LABEL_DIFFERS = gettext_noop(
    "Picture %(name)s was decided otherwise than this golden set says. Settle the decision first."
)
TRAINED_ON = gettext_noop(
    "Picture %(name)s was trained on in snapshot %(snapshot)s (the same bytes or the same serial). "
    "A golden set must be new to every model."
)
TWIN_TRAINED_ON = gettext_noop(
    "Picture %(name)s shows nearly the same as %(other)s, which was trained on in snapshot %(snapshot)s. "
    "A golden set must be new to every model."
)
EXPIRED = gettext_noop("A golden set must expire in the future.")


def current(line: Line) -> QuerySet[GoldenSet]:
    """The sets that versions are compared on, the leading one first; an expired one stays until its next edition."""
    return GoldenSet.objects.filter(line=line, retired_at=None).order_by("-leads", "code")


def create(
    line: Line,
    *,
    code: str,
    name_ko: str,
    name_en: str,
    captures: Sequence[tuple[Capture, int]],
    owner: Person,
    expires_at: datetime,
    leads: bool,
    by: Person,
) -> GoldenSet:
    """A new edition of the set `code`: `captures` with their label (class number, 0 = OK). Retires the former edition.

    Its pictures are reserved: they leave the queue and can never be in a snapshot. One that is undecided gets the label
    as `by`'s decision. Raises Refused, naming the picture, for one that was trained on or that was decided otherwise.
    """
    policies.check_can_freeze(line, by=by)
    if not captures:
        raise Refused(EMPTY)
    if expires_at <= timezone.now():
        raise Refused(EXPIRED)
    labels = {capture.pk: label for capture, label in captures}
    if len(labels) != len(captures):
        seen: set[object] = set()
        twice = next(str(capture) for capture, _ in captures if capture.pk in seen or seen.add(capture.pk))  # type: ignore[func-returns-value]
        raise Refused(TWICE, name=twice)
    with transaction.atomic():
        Line.objects.select_for_update(no_key=True).get(pk=line.pk)  # freezing takes the same lock
        rows = list(
            Capture.objects.select_for_update(of=("self",))
            .select_related("line", "decision")
            .filter(pk__in=labels)
            .order_by("id")
        )
        _check(line, rows, labels)
        for row in rows:
            _reserve(row, labels[row.pk], by)
        made = _new_edition(
            line, code=code, name_ko=name_ko, name_en=name_en, owner=owner, expires_at=expires_at, leads=leads,
            digest=_digest(rows, labels),
        )  # fmt: skip
        GoldenItem.objects.bulk_create(GoldenItem(golden_set=made, capture=row, label=labels[row.pk]) for row in rows)
        audit.record(
            by, "goldenset.create", made, new={"edition": made.number, "pictures": len(rows), "digest": made.digest}
        )
        events.announce(f"{line.code}.captures", f"{line.code}.snapshots")
    return made


def _new_edition(line: Line, *, code: str, leads: bool, **fields: object) -> GoldenSet:
    former = GoldenSet.objects.filter(line=line, code=code).order_by("-number").first()
    GoldenSet.objects.filter(line=line, code=code, retired_at=None).update(retired_at=timezone.now())
    if leads:
        GoldenSet.objects.filter(line=line, leads=True).update(leads=False)
    return GoldenSet.objects.create(
        line=line, code=code, leads=leads, number=former.number + 1 if former else 1, **fields
    )


def _check(line: Line, rows: list[Capture], labels: Mapping[UUID, int]) -> None:
    book = {0, *DefectClass.objects.filter(line=line).values_list("number", flat=True)}
    for row in rows:
        if row.line_id != line.pk:
            raise Refused(OTHER_LINE, name=str(row))
        label = labels[row.pk]
        if label not in book:
            raise Refused(LABEL_UNKNOWN, number=label, line=line.name)
        if row.decision is not None and not _agrees(row.decision, label):
            raise Refused(LABEL_DIFFERS, name=str(row))
    used = SnapshotItem.objects.filter(snapshot__line=line, split__in=("train", "val")).order_by("snapshot__number")
    trained: dict[str, int] = {}
    of: dict[UUID, int] = {}
    for pk, digest, serial, number in used.values_list(
        "capture_id", "capture__digest", "capture__serial", "snapshot__number"
    ):
        of.setdefault(pk, number)
        trained.setdefault(digest, number)
        trained.setdefault(f"serial {serial}", number)
    for row in rows:
        earlier = trained.get(row.digest) or (trained.get(f"serial {row.serial}") if row.serial else None)
        if earlier:
            raise Refused(TRAINED_ON, name=str(row), snapshot=f"S-{earlier:04d}")
    for row, other in near_duplicates.pairs_of(rows):
        if other.pk in of:
            raise Refused(TWIN_TRAINED_ON, name=str(row), other=str(other), snapshot=f"S-{of[other.pk]:04d}")


def _agrees(decision: Decision, label: int) -> bool:
    return decision.verdict == Verdict.OK if label == 0 else label in decision.classes


def _reserve(row: Capture, label: int, by: Person) -> None:
    """Take the picture out of queue and training for good; the label becomes `by`'s decision where there is none."""
    if row.state in Capture.OPEN:
        decision = Decision.objects.create(
            capture=row, by=by, verdict=Verdict.NG if label else Verdict.OK, classes=[label] if label else []
        )
        lifecycle.move(
            row, Capture.State.DECIDED, by=by, audited=False, decision=decision, claimed_by=None, claimed_until=None
        )
        counters.add(row.line, counts.NEW, -1)
    elif not row.reserved and counts.decided_since_snapshot(row.line).filter(pk=row.pk).exists():
        counters.add(row.line, counts.DECIDED, -1)
    Capture.objects.filter(pk=row.pk).update(reserved=True)


def _digest(rows: list[Capture], labels: Mapping[UUID, int]) -> str:
    """SHA-256 over the sorted (picture digest, label) pairs."""
    pairs = sorted((row.digest, labels[row.pk]) for row in rows)
    return hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()
