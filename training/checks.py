"""Known answers and blind repeats: decided pictures that a person is given again, looking like any that waits.

The page gets a capture in disguise: a copy in memory that says what an undecided one would. Answering changes only the
Check row; no capture, count, snapshot or training ever sees it.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from training import blind, drafts, golden, queue
from training.models import Capture, Check, Decision, GoldenItem, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from django.db.models import QuerySet

    from registry.models import Line
    from training.policies import Person
    from training.queue import Want

KNOWN_AGAIN = timedelta(days=30)  # one picture of a golden set is not asked of the same person earlier
REPEATS_LOOKED_THROUGH = 200
SHOWN_ANSWERED = timedelta(hours=12)  # how long the review shows an answered one as it would any decided picture
WAITING = Q(
    answered_at=None, capture__state=Capture.State.DECIDED
)  # a picture that was opened again is an ordinary one


# ------------------------------------------------------------------------------------------------ drawing


def mixed(line: Line, rail: list[Capture], *, by: Person, want: Want) -> list[Capture]:
    """A person's next pictures with what is to be checked among them, at the line's rates."""
    if not want.mixes:
        return rail
    if not want.skipped:
        _draw(line, rail, by, want)
    mine = _waiting(line, by, skipped=want.skipped).filter(capture__in=Capture.objects.filter(want.where, line=line))
    beside = {check.beside: _asked(check) for check in mine.select_related("capture__line__site", "by")}
    at_once = {row.pk: [shown] for row in rail if (shown := beside.pop(row.pk, None))}
    return [*beside.values(), *(row for one in rail for row in (*at_once.get(one.pk, []), one))]


def waiting_count(line: Line, *, by: Person, skipped: bool = False) -> int:
    return _waiting(line, by, skipped=skipped).count()


def _waiting(line: Line, by: Person, *, skipped: bool) -> QuerySet[Check]:
    found = Check.objects.filter(WAITING, line=line, by=by, skipped_at__isnull=not skipped)
    return found.order_by("created_at", "id")


def _draw(line: Line, rail: Iterable[Capture], by: Person, want: Want) -> None:
    """One draw per waiting picture and person; the secret key makes it impossible to foresee."""
    shares = {row.pk: blind.draw("check", by.pk, row.pk) for row in rail}
    due = {pk: share for pk, share in shares.items() if share < line.known_rate + line.repeat_rate}
    if not due:
        return
    done = set(Check.objects.filter(by=by, beside__in=due).values_list("beside", flat=True))
    for pk, share in due.items():
        choose = _known if share < line.known_rate else _repeat
        found = choose(line, by, want, blind.draw("choice", by.pk, pk)) if pk not in done else None
        if found:
            Check.objects.get_or_create(by=by, beside=pk, defaults={"line": line, **found})


def _known(line: Line, by: Person, want: Want, share: float) -> dict[str, Any] | None:
    """A picture of a current golden set that this person was not asked about lately."""
    since = timezone.now() - KNOWN_AGAIN
    asked = Check.objects.filter(Q(answered_at=None) | Q(created_at__gt=since), by=by).values("capture")
    items = GoldenItem.objects.filter(golden_set__in=golden.current(line), capture__in=_fitting(line, want))
    found = list(items.exclude(capture__in=asked).order_by("capture_id", "id").values_list("capture_id", "label"))
    if not found:
        return None
    pk, label = found[int(share * len(found))]
    said = (Verdict.NG, [label]) if label else (Verdict.OK, [])
    return _expected(Check.Kind.KNOWN, pk, *said)


def _repeat(line: Line, by: Person, want: Want, share: float) -> dict[str, Any] | None:
    """One of this person's own decisions that still stands and is old enough."""
    before = timezone.now() - timedelta(seconds=settings.REPEAT_AFTER_S)
    asked = Check.objects.filter(Q(kind=Check.Kind.REPEAT) | Q(answered_at=None), by=by).values("capture")
    own = Decision.objects.filter(
        Q(capture__decision=F("pk")) | Q(opinion__isnull=False), by=by, created_at__lt=before,
        kind__in=(Decision.Kind.DECIDED, Decision.Kind.OPINION), capture__reserved=False,
        capture__in=_fitting(line, want),
    )  # fmt: skip
    newest = own.exclude(capture__in=asked).order_by("-created_at", "-id")[:REPEATS_LOOKED_THROUGH]
    found = list(newest)
    if not found:
        return None
    said = found[int(share * len(found))]
    return _expected(Check.Kind.REPEAT, said.capture_id, said.verdict, said.classes)


def _fitting(line: Line, want: Want) -> QuerySet[Capture]:
    """Decided pictures that these filters would show if they waited: another one would betray itself."""
    return Capture.objects.filter(want.where, line=line, state=Capture.State.DECIDED)


def _expected(kind: str, pk: UUID, verdict: str, classes: list[int]) -> dict[str, Any]:
    return {"kind": kind, "capture_id": pk, "verdict": verdict, "classes": classes}


# ------------------------------------------------------------------------------------------------ the disguise


def as_asked(capture: Capture, *, by: Person, answered: bool = False) -> Capture:
    """The picture as this person shall see it: in disguise when it is being checked on them, else as it is.

    `answered`: also shortly after they answered, as the picture that they have just decided.
    """
    own = Check.objects.filter(capture=capture, by=by).select_related("capture__line__site", "by")
    check = own.filter(WAITING).order_by("created_at").first()
    if check is None and answered:
        lately = own.filter(answered_at__gt=timezone.now() - SHOWN_ANSWERED).order_by("-answered_at")
        check = lately.exclude(answered_verdict="").first()
    return _asked(check) if check else capture


def _asked(check: Check) -> Capture:
    """A copy that says what a waiting picture says, or one that this person has just decided. Never to be saved."""
    shown = copy.copy(check.capture)
    said = None
    if check.answered_at:
        said = Decision(
            capture=check.capture, by=check.by, created_at=check.answered_at, verdict=check.answered_verdict,
            classes=check.answered_classes, regions=check.answered_regions, comment=check.comment,
        )  # fmt: skip
    told: dict[str, Any] = {
        "state": Capture.State.DECIDED if said else Capture.State.NEW, "decision": said, "decided_class": None,
        "reserved": False, "second_look": False, "opinions": 0, "disagreed": False, "blind": True, "disguises": check,
        "claimed_by": None if said else check.by,
        "claimed_until": None if said else timezone.now() + timedelta(seconds=queue.CLAIM_S),
    }  # fmt: skip
    for name, value in told.items():
        setattr(shown, name, value)
    return shown


def of(shown: Capture) -> Check | None:
    """The check behind a disguise; None for an ordinary picture."""
    return getattr(shown, "disguises", None)


def draft(shown: Capture, *, by: Person) -> drafts.Opened:
    """What this person has drawn on it; after an undo, what they had answered."""
    opened, check = drafts.opened(shown, by=by), of(shown)
    if check is None or opened.version:
        return opened
    return drafts.Opened(check.answered_regions, check.comment)


# ------------------------------------------------------------------------------------------------ answering


def taken(capture: Capture, *, by: Person) -> Check | None:
    """The check that waits for this person on this picture, locked until the transaction ends."""
    own = Check.objects.select_for_update(of=("self",)).filter(WAITING, capture=capture, by=by)
    return own.order_by("created_at").first()


def answer(check: Check, *, verdict: str = "", classes: list[int], regions: list[Any], comment: str) -> None:
    """Keep what the person said; without a verdict they asked for a second look."""
    Check.objects.filter(pk=check.pk).update(
        answered_at=timezone.now(), answered_verdict=verdict, answered_classes=classes, answered_regions=regions,
        comment=comment,
    )  # fmt: skip
    drafts.discard(check.capture, by=check.by)


def put_aside(check: Check) -> None:
    Check.objects.filter(pk=check.pk).update(skipped_at=timezone.now())


def last_act(line: Line, *, by: Person) -> Check | None:
    """What this person answered or skipped last, as far as one key takes it back: a second look it does not."""
    answered = Check.objects.filter(line=line, by=by).exclude(answered_at=None).exclude(answered_verdict="")
    skipped = Check.objects.filter(WAITING, line=line, by=by, skipped_at__isnull=False)
    last = (answered.order_by("-answered_at").first(), skipped.order_by("-skipped_at").first())
    return max((check for check in last if check), key=acted_at, default=None)


def acted_at(check: Check) -> Any:
    return check.answered_at or check.skipped_at


def reopen(check: Check) -> Capture:
    """Take the answer or the skip back: the picture waits for its person again."""
    Check.objects.filter(pk=check.pk).update(answered_at=None, skipped_at=None)
    return check.capture
