"""What a person does in the review, whichever picture it is: one that waits, or a check that looks like one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction

from registry.ids import new_id
from registry.lifecycle import Refused
from training import captures, checks, policies, queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from registry.models import Line
    from training.models import Capture
    from training.policies import Person
    from training.queue import Want


def rail(line: Line, *, by: Person, count: int, want: Want = queue.ANY) -> list[Capture]:
    """The person's next pictures, leased to them, with known answers and repeats among them."""
    return checks.mixed(line, queue.claim(line, by=by, count=count, want=want), by=by, want=want)


def opened(capture: Capture, *, by: Person) -> Capture:
    """The picture as this person shall see it, leased to them when they may decide it."""
    shown = checks.as_asked(capture, by=by, answered=True)
    if shown is capture and policies.can_decide(capture, by=by):
        queue.claim_one(capture, by=by)
    return shown


def left(line: Line, *, by: Person) -> int:
    """How many pictures wait for this person, checks among them."""
    return queue.left(line, by=by) + checks.waiting_count(line, by=by)


def skipped_count(line: Line, *, by: Person) -> int:
    return queue.skipped_count(line, by=by) + checks.waiting_count(line, by=by, skipped=True)


def decide(
    capture: Capture,
    *,
    verdict: str,
    classes: Iterable[int] = (),
    regions: Iterable[Mapping[str, Any]] = (),
    comment: str = "",
    by: Person,
) -> None:
    """Decide the picture, or answer the check that it is for this person; the same is refused in both."""
    said = captures.checked(capture, verdict=verdict, classes=classes, regions=regions, comment=comment, by=by)
    with transaction.atomic():
        if check := checks.taken(capture, by=by):
            checks.answer(check, **said)
            return
    captures.decide(capture, **said, by=by)


def decide_like(
    picked: Capture, ids: Iterable[UUID], *, verdict: str, classes: Iterable[int] = (), by: Person
) -> captures.Together:
    """`captures.decide_like`; a check is answered, and the pictures like it are decided as any others."""
    wanted, chosen = list(ids), list(classes)
    if checks.of(checks.as_asked(picked, by=by)) is None:
        return captures.decide_like(picked, wanted, verdict=verdict, classes=chosen, by=by)
    decide(picked, verdict=verdict, classes=chosen, by=by)
    if not wanted:
        return captures.Together(batch=new_id())
    return captures.decide_together(picked.line, wanted, verdict=verdict, classes=chosen, by=by)


def skip(capture: Capture, *, by: Person) -> None:
    policies.check_can_review(capture.line, by=by)
    with transaction.atomic():
        if check := checks.taken(capture, by=by):
            checks.put_aside(check)
            return
    captures.skip(capture, by=by)


def ask_second_look(capture: Capture, *, comment: str = "", by: Person) -> None:
    policies.check_can_review(capture.line, by=by)
    with transaction.atomic():
        if check := checks.taken(capture, by=by):
            checks.answer(check, classes=[], regions=[], comment=comment.strip())
            return
    captures.ask_second_look(capture, comment=comment, by=by)


def undo_last(*, by: Person, line: Line) -> Capture:
    """`captures.undo_last`, with answers to checks at their place among the acts."""
    policies.check_can_review(line, by=by)
    with transaction.atomic():
        captures.one_undo_at_a_time(by)
        check, act = checks.last_act(line, by=by), captures.last_act(line, by=by)
        if check and (act is None or checks.acted_at(check) > act.created_at):
            return checks.reopen(check)
        try:
            return captures.undo_last(by=by, line=line)
        except Refused as refused:
            if check and refused.text == captures.NOTHING_TO_UNDO:
                return checks.reopen(check)
            raise
