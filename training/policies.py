"""Who may do what with captures, snapshots, golden sets and jobs: `check_can_x` refuses with a sentence, `can_x` asks.

A disabled button shows `lifecycle.why_not(check_can_x, row, by=person)`. A decision, a snapshot and a job need a
person's name; a machine's label may import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils.translation import gettext_noop

from registry import blobs, clock
from registry.lifecycle import Refused
from registry.policies import NEEDS_PERSON, allowed, check_can_edit_defect_book, check_role
from training.models import Capture, Check, Job, Opinion, Transfer

if TYPE_CHECKING:
    from registry.audit import Actor
    from registry.models import Line
    from training.models import GoldenSet, Snapshot

Person = Any  # the console's user model: nothing here may import upwards
HELD = gettext_noop("%(person)s has this picture until %(until)s.")
NOT_OPEN = gettext_noop("This picture is decided already. Take the decision back first, then decide again.")
NOT_DECIDED = gettext_noop("This picture has no decision that could be taken back.")
IN_GOLDEN_SET = gettext_noop(
    "This picture belongs to golden set %(code)s. Its label can only change in a new edition of the set."
)
GOLDEN_RETIRED = gettext_noop("Edition %(number)s of golden set %(code)s is retired. Make a new edition instead.")
OPINION_GIVEN = gettext_noop("You have said what you think of this picture. It waits for somebody else's opinion now.")
DISAGREED = gettext_noop("The opinions of this picture differ. Somebody with the role adjudicator decides it.")
DISAGREED_WITH_YOU = gettext_noop(
    "The opinions of this picture differ, and one of them is yours. An adjudicator who gave none of them decides it."
)
NO_EXAMPLE = gettext_noop("Only a decided picture can be an example.")
JOB_ENDED = gettext_noop("%(job)s has ended: it is %(state)s.")
JOB_CANCELLING = gettext_noop("%(job)s is being cancelled already.")
TRANSFER_ENDED = gettext_noop("%(transfer)s has ended: it is %(state)s.")
CONFIRMED = gettext_noop("%(transfer)s is under way already.")
NOT_LOOKED_AT = gettext_noop("%(file)s is still being looked at. The button works as soon as that is done.")
NOT_MADE = gettext_noop("%(transfer)s has no file that could be downloaded.")
ARCHIVE_CLEARED = gettext_noop("The file was removed %(days)s days after it was made. Export again to get a new one.")
NOT_ENDED_BADLY = gettext_noop("%(job)s can be asked for again once it failed, was cancelled or was poisoned.")


# ------------------------------------------------------------------------------------------------ captures


def check_can_review(line: Line, *, by: Actor) -> None:
    """May this person claim, decide and skip pictures of the line?"""
    check_role(line, "capture.review", by)


def can_review(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_review, line, by=by)


def check_not_held(capture: Capture, *, by: Actor) -> None:
    """No other person holds a living claim on the picture."""
    until = capture.claimed_until
    if capture.claimed_by_id in (None, getattr(by, "pk", None)) or until is None or until <= clock.now_db():
        return
    local = until.astimezone(ZoneInfo(capture.line.site.timezone))
    raise Refused(HELD, person=str(capture.claimed_by), until=local.strftime("%H:%M"))


def check_not_reserved(capture: Capture) -> None:
    if capture.reserved:
        item = capture.golden_items.select_related("golden_set").order_by("-golden_set__number").first()
        raise Refused(IN_GOLDEN_SET, code=item.golden_set.code if item else "")


def check_can_decide(capture: Capture, *, by: Actor) -> None:
    """May this person decide this picture now?"""
    check_can_review(capture.line, by=by)
    if capture.state not in Capture.OPEN:
        raise Refused(NOT_OPEN)
    check_not_reserved(capture)
    check_may_say(capture, by=by)
    check_not_held(capture, by=by)


def check_may_say(capture: Capture, *, by: Actor) -> None:
    """Nobody gives two opinions of a picture, and where the opinions differ an adjudicator decides."""
    said = capture.opinions > 0 and Opinion.objects.filter(capture=capture, by=getattr(by, "pk", None)).exists()
    if said:
        raise Refused(DISAGREED_WITH_YOU if capture.disagreed else OPINION_GIVEN)
    if capture.disagreed and not can_adjudicate(capture.line, by=by):
        raise Refused(DISAGREED)


def check_can_adjudicate(line: Line, *, by: Actor) -> None:
    """May this person decide where opinions differ?"""
    check_role(line, "capture.adjudicate", by)


def can_adjudicate(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_adjudicate, line, by=by)


def check_can_set_review_policy(line: Line, *, by: Actor) -> None:
    """May this person say how many opinions a picture needs, and what is mixed into the queue?"""
    check_role(line, "review.policy", by)


def can_set_review_policy(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_set_review_policy, line, by=by)


def check_can_draft(capture: Capture, *, by: Actor) -> None:
    """May this person keep a draft of this picture? Also while somebody else holds it: nothing drawn is thrown away."""
    check_can_review(capture.line, by=by)
    if Check.objects.filter(capture=capture, by=getattr(by, "pk", None), answered_at=None).exists():
        return
    if capture.state not in Capture.OPEN:
        raise Refused(NOT_OPEN)
    check_may_say(capture, by=by)


def can_draft(capture: Capture, *, by: Actor) -> bool:
    return allowed(check_can_draft, capture, by=by)


def can_decide(capture: Capture, *, by: Actor) -> bool:
    return allowed(check_can_decide, capture, by=by)


def check_can_free(capture: Capture, *, by: Actor) -> None:
    """May this person take a picture from whoever holds it?"""
    check_role(capture.line, "capture.supervise", by)


def can_free(capture: Capture, *, by: Actor) -> bool:
    return allowed(check_can_free, capture, by=by)


def check_can_see_reasons(line: Line, *, by: Actor) -> None:
    """May this person see, in lists, why an undecided picture was flagged, also where it is to be judged blind?"""
    check_role(line, "capture.supervise", by)


def can_see_reasons(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_see_reasons, line, by=by)


def check_can_retract(capture: Capture, *, by: Actor) -> None:
    """May this person take the picture's decision back?"""
    check_can_review(capture.line, by=by)
    if capture.state != Capture.State.DECIDED:
        raise Refused(NOT_DECIDED)
    check_not_reserved(capture)


def can_retract(capture: Capture, *, by: Actor) -> bool:
    return allowed(check_can_retract, capture, by=by)


def check_can_give_example(capture: Capture, *, by: Actor) -> None:
    """May this person say that this picture shows what a class looks like?"""
    check_can_edit_defect_book(capture.line, by=by)
    if capture.state != Capture.State.DECIDED:
        raise Refused(NO_EXAMPLE)


def can_give_example(capture: Capture, *, by: Actor) -> bool:
    return allowed(check_can_give_example, capture, by=by)


def check_can_merge(line: Line, *, by: Actor) -> None:
    """May this person merge classes? The decisions carry their name."""
    if isinstance(by, str):
        raise Refused(NEEDS_PERSON)
    check_can_edit_defect_book(line, by=by)


def can_merge(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_merge, line, by=by)


def check_can_import(line: Line, *, by: Actor) -> None:
    check_role(line, "capture.import", by, machines=True)


def can_import(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_import, line, by=by)


# ------------------------------------------------------------------------------------------------ snapshots


def check_can_freeze(line: Line, *, by: Actor) -> None:
    """May this person freeze a snapshot of the line?"""
    check_role(line, "snapshot.freeze", by)


def can_freeze(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_freeze, line, by=by)


def check_can_manage_golden(line: Line, *, by: Actor) -> None:
    """May this person make golden sets of the line, and keep them?"""
    check_role(line, "golden.manage", by)


def can_manage_golden(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_manage_golden, line, by=by)


def check_can_change_golden(golden_set: GoldenSet, *, by: Actor) -> None:
    """May this person retire, extend or hand over this edition?"""
    check_can_manage_golden(golden_set.line, by=by)
    if golden_set.retired_at is not None:
        raise Refused(GOLDEN_RETIRED, code=golden_set.code, number=golden_set.number)


def can_change_golden(golden_set: GoldenSet, *, by: Actor) -> bool:
    return allowed(check_can_change_golden, golden_set, by=by)


# ------------------------------------------------------------------------------------------------ jobs


def check_can_submit(snapshot: Snapshot, *, by: Actor) -> None:
    """May this person start a training on the snapshot?"""
    check_role(snapshot.line, "job.submit", by)


def can_submit(snapshot: Snapshot, *, by: Actor) -> bool:
    return allowed(check_can_submit, snapshot, by=by)


def check_can_cancel(job: Job, *, by: Actor) -> None:
    check_role(job.line, "job.cancel", by)
    if job.state == Job.State.CANCELLING:
        raise Refused(JOB_CANCELLING, job=str(job))
    if job.state in Job.ENDED:
        raise Refused(JOB_ENDED, job=str(job), state=str(job.get_state_display()))


def can_cancel(job: Job, *, by: Actor) -> bool:
    return allowed(check_can_cancel, job, by=by)


def check_can_requeue(job: Job, *, by: Actor) -> None:
    """May this person ask for the same training again?"""
    check_can_submit(job.snapshot, by=by)
    if job.state not in (Job.State.FAILED, Job.State.CANCELLED, Job.State.POISONED):
        raise Refused(NOT_ENDED_BADLY, job=str(job))


def can_requeue(job: Job, *, by: Actor) -> bool:
    return allowed(check_can_requeue, job, by=by)


# ------------------------------------------------------------------------------------------------ transfers


def check_can_receive(line: Line, *, by: Actor) -> None:
    """May this person import an archive? Its labels become their decisions, so they must be allowed to decide."""
    check_role(line, "capture.import", by)
    check_can_review(line, by=by)


def can_receive(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_receive, line, by=by)


def check_can_export(line: Line, *, by: Actor) -> None:
    check_role(line, "capture.export", by)


def can_export(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_export, line, by=by)


def check_can_confirm(transfer: Transfer, *, by: Actor) -> None:
    """May this person let the import run that has been looked at?"""
    check_can_receive(transfer.line, by=by)
    _check_goes_on(transfer)
    if transfer.confirmed_at is not None:
        raise Refused(CONFIRMED, transfer=str(transfer))
    if not transfer.look:
        raise Refused(NOT_LOOKED_AT, file=transfer.file_name)
    if failure := transfer.look.get("failure"):
        raise Refused(failure["text"], **failure["params"])


def can_confirm(transfer: Transfer, *, by: Actor) -> bool:
    return allowed(check_can_confirm, transfer, by=by)


def check_can_cancel_transfer(transfer: Transfer, *, by: Actor) -> None:
    (check_can_receive if transfer.kind == Transfer.Kind.IMPORT else check_can_export)(transfer.line, by=by)
    _check_goes_on(transfer)


def can_cancel_transfer(transfer: Transfer, *, by: Actor) -> bool:
    return allowed(check_can_cancel_transfer, transfer, by=by)


def _check_goes_on(transfer: Transfer) -> None:
    if transfer.state in Transfer.ENDED:
        raise Refused(TRANSFER_ENDED, transfer=str(transfer), state=str(transfer.get_state_display()))


def check_can_download(transfer: Transfer, *, by: Actor) -> None:
    check_can_export(transfer.line, by=by)
    if transfer.kind != Transfer.Kind.EXPORT or transfer.state != Transfer.State.DONE:
        raise Refused(NOT_MADE, transfer=str(transfer))
    if not blobs.exists(transfer.digest):
        raise Refused(ARCHIVE_CLEARED, days=settings.ARCHIVE_DAYS)


def can_download(transfer: Transfer, *, by: Actor) -> bool:
    return allowed(check_can_download, transfer, by=by)
