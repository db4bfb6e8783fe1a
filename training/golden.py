"""Golden sets: pictures that are never trained on and that every version is compared on. Editions, never edits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import audit, counters, events, lifecycle
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from registry.policies import check_reason
from training import counts, near_duplicates, policies
from training.models import Capture, Decision, GoldenItem, GoldenSet, SnapshotItem, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from django.db.models import QuerySet

    from training.policies import Person

EXPIRES_SOON = timedelta(days=14)
MOST = 3000  # pictures of one set
NAMED = 20  # offending pictures that a refusal names one by one

EMPTY = gettext_noop("A golden set needs pictures.")
TOO_MANY = gettext_noop("A golden set holds at most %(most)s pictures; these are %(count)s.")
TAKEN = gettext_noop(
    "Line %(line)s has a golden set %(code)s already. Make a new edition of it, or choose another code."
)
OTHER_LINE = gettext_noop("These pictures are of another line: %(names)s.")
TWICE = gettext_noop("These pictures are in the list twice: %(names)s.")
UNDECIDED = gettext_noop("These pictures are not decided yet: %(names)s. Decide them first.")
LABEL_UNKNOWN = gettext_noop("Classes %(numbers)s are not in the defect book of line %(line)s.")
LABEL_DIFFERS = gettext_noop(
    "These pictures were decided otherwise than this golden set says: %(names)s. Settle the decisions first."
)
TRAINED_ON = gettext_noop(
    "These pictures were trained on before (the same bytes or the same serial): %(names)s. "
    "A golden set must be new to every model."
)
TWIN_TRAINED_ON = gettext_noop(
    "These pictures show nearly the same as ones that were trained on before: %(names)s. "
    "A golden set must be new to every model."
)
EXPIRED = gettext_noop("A golden set must expire in the future.")
NOT_LATER = gettext_noop("Choose a day after the present one: the set expires on %(day)s.")
NOT_NEWEST = gettext_noop("Edition %(number)s of golden set %(code)s is newer. Make the next edition from that one.")
OWNER_ELSEWHERE = gettext_noop("%(person)s has no role on line %(line)s and cannot own a golden set of it.")


def current(line: Line) -> QuerySet[GoldenSet]:
    """The sets that versions are compared on, the leading one first; an expired one stays until its next edition."""
    return GoldenSet.objects.filter(line=line, retired_at=None).order_by("-leads", "code")


def newest(golden_set: GoldenSet) -> GoldenSet:
    """The newest edition of this set, retired or not."""
    return GoldenSet.objects.filter(line=golden_set.line, code=golden_set.code).order_by("-number")[0]


def expiring(lines: Iterable[Line], now: datetime) -> QuerySet[GoldenSet]:
    """Sets in use that have expired or will soon, the most pressing first."""
    rows = GoldenSet.objects.filter(line__in=lines, retired_at=None, expires_at__lt=now + EXPIRES_SOON)
    return rows.select_related("line", "owner").order_by("expires_at")


# ------------------------------------------------------------------------------------------------ making editions


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
    """The first edition of the new set `code`: `captures` with their label (class number, 0 = OK).

    Its pictures are reserved: they leave the queue and can never be in a snapshot. One that is undecided gets the label
    as `by`'s decision. Raises Refused, naming the pictures, for those trained on before or decided otherwise.
    """
    policies.check_can_manage_golden(line, by=by)
    fields = {"name_ko": name_ko, "name_en": name_en, "owner": owner, "expires_at": expires_at, "leads": leads}
    with transaction.atomic():
        _lock(line)
        if GoldenSet.objects.filter(line=line, code=code).exists():
            raise Refused(TAKEN, line=line.name, code=code)
        return _make(line, code, 1, captures, fields, by)


def renew(
    golden_set: GoldenSet,
    *,
    captures: Sequence[tuple[Capture, int]],
    owner: Person,
    expires_at: datetime,
    leads: bool,
    by: Person,
) -> GoldenSet:
    """The next edition of a set, in use or retired; the former one retires. What leaves the set stays reserved: a
    version may have been compared on it.
    """
    line = golden_set.line
    policies.check_can_manage_golden(line, by=by)
    with transaction.atomic():
        _lock(line)
        last = newest(golden_set)
        if last.pk != golden_set.pk:
            raise Refused(NOT_NEWEST, number=last.number, code=last.code)
        names = {"name_ko": last.name_ko, "name_en": last.name_en}
        GoldenSet.objects.filter(line=line, code=last.code, retired_at=None).update(retired_at=timezone.now())
        fields = {**names, "owner": owner, "expires_at": expires_at, "leads": leads}
        return _make(line, last.code, last.number + 1, captures, fields, by)


def _lock(line: Line) -> None:
    """Freezing takes the same lock."""
    Line.objects.select_for_update(no_key=True).get(pk=line.pk)


def _make(
    line: Line, code: str, number: int, captures: Sequence[tuple[Capture, int]], fields: dict[str, Any], by: Person
) -> GoldenSet:
    labels = _labels(captures)
    if fields["expires_at"] <= timezone.now():
        raise Refused(EXPIRED)
    _check_owner(line, fields["owner"])
    locked = Capture.objects.select_for_update(of=("self",)).select_related("line", "decision")
    rows = list(locked.filter(pk__in=labels).order_by("id"))
    _check(line, rows, labels)
    for row in rows:
        _reserve(row, labels[row.pk], by)
    if fields["leads"]:
        GoldenSet.objects.filter(line=line, leads=True).update(leads=False)
    made = GoldenSet.objects.create(line=line, code=code, number=number, digest=_digest(rows, labels), **fields)
    GoldenItem.objects.bulk_create(GoldenItem(golden_set=made, capture=row, label=labels[row.pk]) for row in rows)
    audit.record(
        by, "goldenset.create", made, new={"edition": made.number, "pictures": len(rows), "digest": made.digest}
    )
    events.announce(f"{line.code}.captures", f"{line.code}.snapshots")
    return made


def _labels(captures: Sequence[tuple[Capture, int]]) -> dict[UUID, int]:
    if not captures:
        raise Refused(EMPTY)
    if len(captures) > MOST:
        raise Refused(TOO_MANY, most=MOST, count=len(captures))
    labels = {capture.pk: label for capture, label in captures}
    if len(labels) != len(captures):
        seen: set[object] = set()
        raise Refused(TWICE, names=_named(row for row, _ in captures if row.pk in seen or seen.add(row.pk)))  # type: ignore[func-returns-value]
    return labels


def _check_owner(line: Line, owner: Person) -> None:
    if not owner.can("line.view", line):
        raise Refused(OWNER_ELSEWHERE, person=str(owner), line=line.name)


def _check(line: Line, rows: list[Capture], labels: Mapping[UUID, int]) -> None:
    if elsewhere := [row for row in rows if row.line_id != line.pk]:
        raise Refused(OTHER_LINE, names=_named(elsewhere))
    book = {0, *DefectClass.objects.filter(line=line).values_list("number", flat=True)}
    if unknown := sorted(set(labels.values()) - book):
        raise Refused(LABEL_UNKNOWN, numbers=", ".join(map(str, unknown)), line=line.name)
    if differing := [row for row in rows if row.decision is not None and not _agrees(row.decision, labels[row.pk])]:
        raise Refused(LABEL_DIFFERS, names=_named(differing))
    if trained := trained_on(line, rows):
        raise Refused(TRAINED_ON, names=_named(f"{row} (S-{trained[row.pk]:04d})" for row in rows if row.pk in trained))
    if twins := _twins_trained_on(line, rows):
        raise Refused(TWIN_TRAINED_ON, names=_named(f"{row} – {other} (S-{n:04d})" for row, other, n in twins))


def _named(things: Iterable[Any]) -> str:
    """The first names, and how many more there are."""
    names = [str(thing) for thing in things]
    more = f" … +{len(names) - NAMED}" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def trained_on(line: Line, rows: Iterable[Capture]) -> dict[UUID, int]:
    """Capture id -> the first snapshot whose training or validation held it, its bytes or another shot of its part."""
    wanted = list(rows)
    digests, serials = {row.digest for row in wanted}, {row.serial for row in wanted if row.serial}
    alike = Capture.objects.filter(Q(digest__in=digests) | Q(serial__in=serials), line=line)
    used = SnapshotItem.objects.filter(capture__in=alike.values("pk"), split__in=("train", "val"))
    first: dict[str, int] = {}
    for digest, serial, number in used.order_by("-snapshot__number").values_list(
        "capture__digest", "capture__serial", "snapshot__number"
    ):
        first[digest] = first[f"serial {serial}"] = number
    found = {
        row.pk: first.get(row.digest) or (first.get(f"serial {row.serial}") if row.serial else None) for row in wanted
    }
    return {pk: number for pk, number in found.items() if number}


def _twins_trained_on(line: Line, rows: Iterable[Capture]) -> list[tuple[Capture, Capture, int]]:
    """(picture, its near duplicate, the first snapshot whose training or validation held that one)."""
    pairs = list(near_duplicates.pairs_of(rows))
    trained = trained_on(line, [other for _, other in pairs])
    return [(row, other, trained[other.pk]) for row, other in pairs if other.pk in trained]


def unusable(line: Line, rows: Iterable[Capture]) -> dict[UUID, int]:
    """Capture id -> the snapshot that keeps it out of every golden set, for itself or for a near duplicate."""
    wanted = list(rows)
    return {row.pk: number for row, _, number in _twins_trained_on(line, wanted)} | trained_on(line, wanted)


def _agrees(decision: Decision, label: int) -> bool:
    return decision.verdict == Verdict.OK if label == 0 else label in decision.classes


def _reserve(row: Capture, label: int, by: Person) -> None:
    """Take the picture out of queue and training for good; the label becomes `by`'s decision where there is none."""
    if row.state in Capture.OPEN:
        decision = Decision.objects.create(
            capture=row, by=by, verdict=Verdict.NG if label else Verdict.OK, classes=[label] if label else []
        )
        lifecycle.move(
            row, Capture.State.DECIDED, by=by, audited=False, decision=decision, claimed_by=None, claimed_until=None,
            disagreed=False, decided_class=label,
        )  # fmt: skip
        counters.add(row.line, counts.NEW, -1)
    elif not row.reserved and counts.decided_since_snapshot(row.line).filter(pk=row.pk).exists():
        counters.add(row.line, counts.DECIDED, -1)
    Capture.objects.filter(pk=row.pk).update(reserved=True)


def _digest(rows: list[Capture], labels: Mapping[UUID, int]) -> str:
    """SHA-256 over the sorted (picture digest, label) pairs."""
    pairs = sorted((row.digest, labels[row.pk]) for row in rows)
    return hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ choosing pictures


def as_decided(line: Line, rows: Sequence[Capture]) -> list[tuple[Capture, int]]:
    """These captures with the label that their standing decision says: a critical class first, else the main one."""
    if undecided := [row for row in rows if row.decision is None]:
        raise Refused(UNDECIDED, names=_named(undecided))
    critical = set(DefectClass.objects.filter(line=line, critical=True).values_list("number", flat=True))
    return [(row, label_of(row.decision, critical)) for row in rows if row.decision is not None]


def label_of(decision: Decision, critical: set[int]) -> int:
    if decision.verdict == Verdict.OK:
        return 0
    return next((number for number in decision.classes if number in critical), decision.classes[0])


@dataclass
class Difference:
    """What an edition with these pictures would change. Captures."""

    added: list[Capture] = field(default_factory=list)
    removed: list[Capture] = field(default_factory=list)
    kept: int = 0


def difference(golden_set: GoldenSet | None, rows: Sequence[Capture]) -> Difference:
    """Against the edition that stands; against nothing for a new set."""
    before = (
        {item.capture_id: item.capture for item in golden_set.items.select_related("capture")} if golden_set else {}
    )
    after = {row.pk for row in rows}
    return Difference(
        added=[row for row in rows if row.pk not in before],
        removed=[row for pk, row in before.items() if pk not in after],
        kept=len(after & set(before)),
    )


# ------------------------------------------------------------------------------------------------ keeping a set


def retire(golden_set: GoldenSet, *, reason: str, by: Person) -> None:
    """Versions are no longer compared on it. Its pictures stay reserved."""
    policies.check_can_change_golden(golden_set, by=by)
    check_reason(reason)
    with transaction.atomic():
        _change(golden_set, "goldenset.retire", by, reason, {"retired_at": timezone.now()})


def extend(golden_set: GoldenSet, *, expires_at: datetime, reason: str, by: Person) -> None:
    """Let it stand longer than was meant, for a stated reason."""
    policies.check_can_change_golden(golden_set, by=by)
    check_reason(reason)
    if expires_at <= timezone.now():
        raise Refused(EXPIRED)
    if expires_at <= golden_set.expires_at:
        raise Refused(NOT_LATER, day=timezone.localtime(golden_set.expires_at).strftime("%Y-%m-%d"))
    with transaction.atomic():
        _change(golden_set, "goldenset.extend", by, reason, {"expires_at": expires_at})


def hand_over(golden_set: GoldenSet, *, owner: Person, by: Person) -> None:
    """Give it to another person of the line."""
    policies.check_can_change_golden(golden_set, by=by)
    _check_owner(golden_set.line, owner)
    with transaction.atomic():
        _change(golden_set, "goldenset.hand_over", by, "", {"owner": owner})


def _change(golden_set: GoldenSet, action: str, by: Person, reason: str, fields: dict[str, Any]) -> None:
    was = {name: _plain(getattr(golden_set, name)) for name in fields}
    if not GoldenSet.objects.filter(pk=golden_set.pk, retired_at=None).update(**fields):
        raise Refused(policies.GOLDEN_RETIRED, code=golden_set.code, number=golden_set.number)
    audit.record(
        by, action, golden_set, old=was, new={name: _plain(value) for name, value in fields.items()}, reason=reason
    )
    events.announce(f"{golden_set.line.code}.snapshots")
    golden_set.refresh_from_db()


def _plain(value: Any) -> str:
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
