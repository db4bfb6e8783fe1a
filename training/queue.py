"""The queue of a line: what a person may be given, in which order, and the claims that keep two people apart.

A claim is a lease on the database's clock. Rows are taken with SKIP LOCKED: two people never get the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, Subquery
from pgvector.django import CosineDistance

from registry import audit, counters, events, lifecycle
from registry.clock import DatabaseNow, seconds_from_now
from training import counts, policies, similarity
from training.models import IN_QUEUE, Capture, Decision, Opinion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from django.db.models import QuerySet

    from registry.models import Line
    from training.policies import Person

CLAIM_S = 600
OLDEST = "age"
# What comes first. Each order has an index of open pictures and ends with the id, so that a page can go on. Age is not
# the id's order, though they agree: PostgreSQL would walk the primary key, and pass all that is decided.
ORDERS: dict[str, tuple[str, str]] = {
    OLDEST: ("received_at", "id"), "doubt": ("-doubt", "id"), "critical": ("-urgent", "id"),
}  # fmt: skip
NEWEST = ("-received_at", "-id")  # of what is decided


@dataclass(frozen=True)
class Want:
    """Which pictures of a queue, and in what order. `skipped`: those that the person has put aside. `like`: the most
    similar to this one first, whatever the order says.

    `mixes`: checks may stand among them, because nothing is asked that only an ordinary picture could answer.
    """

    where: Q = field(default_factory=Q)
    skipped: bool = False
    mixes: bool = True
    order: str = OLDEST
    like: UUID | None = None


ANY = Want()


def queue(line: Line, *, by: Person, want: Want = ANY) -> QuerySet[Capture]:
    """What this person may be given: open, not somebody else's, not put aside by themself, not judged by them yet.

    Where opinions differ, only an adjudicator is given the picture.
    """
    last = Decision.objects.filter(capture=OuterRef("pk"), by=by).order_by("-created_at", "-id").values("kind")[:1]
    # Not Exists: PostgreSQL would hash all opinions of this person to look up nine of them.
    own = Opinion.objects.filter(capture=OuterRef("pk"), by=by).values("pk")[:1]
    rows = Capture.objects.filter(IN_QUEUE, want.where, line=line)
    rows = rows.annotate(my_last=Subquery(last), my_opinion=Subquery(own))
    # Once somebody else has said something, whoever asked for a second look is asked as well: several are needed.
    looked = Q(my_last=Decision.Kind.SECOND_LOOK, state=Capture.State.DISPUTED, opinions=0)
    aside = Q(my_last=Decision.Kind.SKIPPED) | looked
    rows = rows.filter(Q(opinions=0) | Q(my_opinion=None))
    if not policies.can_adjudicate(line, by=by):
        rows = rows.filter(disagreed=False)
    if want.skipped:
        rows = rows.filter(my_last=Decision.Kind.SKIPPED)
    else:
        rows = rows.exclude(Q(my_last__isnull=False) & aside)
    free = Q(claimed_until__isnull=True) | Q(claimed_until__lte=DatabaseNow()) | Q(claimed_by=by)
    rows = rows.filter(free)
    if want.like is not None and (origin := similarity.picked(want.like, line)):
        return rows.order_by(CosineDistance("embedding__vector", origin.vector), "id")
    return rows.order_by(*ORDERS[want.order])


def left(line: Line, *, by: Person) -> int:
    """How many pictures of the line wait for this person: all that wait, without those that wait for somebody else."""
    judged = Capture.objects.filter(IN_QUEUE, line=line, opinions__gt=0)
    elsewhere = judged.filter(opinion_rows__by=by).count()
    if not policies.can_adjudicate(line, by=by):
        elsewhere += judged.filter(
            ~Exists(Opinion.objects.filter(capture=OuterRef("pk"), by=by)), disagreed=True
        ).count()
    return max(0, counters.value(line, counts.NEW) - elsewhere)


def skipped_count(line: Line, *, by: Person) -> int:
    """How many open pictures this person has put aside."""
    return queue(line, by=by, want=Want(skipped=True)).count()


def next_in_queue(line: Line, *, by: Person, after: UUID | None = None, want: Want = ANY) -> Capture | None:
    """The next picture for this person, claimed for them; None when nothing is left. `after`: go on behind this one."""
    policies.check_can_review(line, by=by)
    rows = queue(line, by=by, want=want)
    found = _take(rows.filter(id__gt=after), line, by, 1) if after else []
    return next(iter(found or _take(rows.exclude(id=after) if after else rows, line, by, 1)), None)


def claim(line: Line, *, by: Person, count: int = 1, want: Want = ANY, exclude: Iterable[UUID] = ()) -> list[Capture]:
    """Lease the next `count` pictures of the queue to this person for ten minutes, their own ones first."""
    policies.check_can_review(line, by=by)
    rows = queue(line, by=by, want=want).exclude(id__in=list(exclude))
    own = _take(rows.filter(claimed_by=by, claimed_until__gt=DatabaseNow()), line, by, count)
    if len(own) < count:
        own += _take(rows.exclude(id__in=[capture.pk for capture in own]), line, by, count - len(own))
    return own


def claim_one(capture: Capture, *, by: Person) -> Capture:
    """Lease this picture to this person, or renew the lease. Raises Refused with the name of whoever has it."""
    with transaction.atomic():
        row = locked(capture)
        policies.check_can_decide(row, by=by)
        lease(row, by)
    lifecycle.reread(capture)
    return capture


def release_claim(capture: Capture, *, by: Person) -> None:
    """Give a picture back to the queue; without effect when it is not this person's."""
    Capture.objects.filter(pk=capture.pk, claimed_by=by).update(claimed_by=None, claimed_until=None)


def free(capture: Capture, *, by: Person) -> None:
    """Take a picture from whoever holds it, back into the queue: they went home, or their browser died."""
    policies.check_can_free(capture, by=by)
    with transaction.atomic():
        row = locked(capture)
        if row.claimed_by is None:
            return
        Capture.objects.filter(pk=row.pk).update(claimed_by=None, claimed_until=None)
        audit.record(by, "capture.freed", row, old={"claimed_by": row.claimed_by.get_username()})
        events.announce(*row.topics())


def locked(capture: Capture) -> Capture:
    """The row as it is now, locked until the transaction ends."""
    row = Capture.objects.select_for_update(of=("self",)).select_related("claimed_by").get(pk=capture.pk)
    row.line = capture.line
    return row


def lease(row: Capture, by: Person) -> None:
    """Hold a locked row for this person from now on."""
    Capture.objects.filter(pk=row.pk).update(claimed_by=by, claimed_until=seconds_from_now(CLAIM_S))


def _take(rows: QuerySet[Capture], line: Line, by: Person, count: int) -> list[Capture]:
    """Lock up to `count` rows that nobody else is taking at this moment, and lease them, in the queue's order."""
    with transaction.atomic():
        free = rows.annotate(held_until=seconds_from_now(CLAIM_S)).select_for_update(skip_locked=True, of=("self",))
        taken: list[Capture] = list(free[:count])
        for row in taken:
            row.line, row.claimed_by, row.claimed_until = line, by, row.held_until  # type: ignore[attr-defined]
        if taken:
            held = Capture.objects.filter(pk__in=[row.pk for row in taken])
            held.update(claimed_by=by, claimed_until=taken[-1].claimed_until)
    return taken
