"""Captures: how they arrive, and how people decide, skip and take back. Decisions are only ever added."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, connection, transaction
from django.utils.translation import gettext_noop

from registry import audit, blobs, counters, events, lifecycle
from registry import classes as book
from registry.clock import seconds_from_now
from registry.ids import new_id
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from training import arrivals, blind, counts, decisions, drafts, opinions, pictures, policies, queue
from training import regions as drawings
from training.models import Capture, Decision, Opinion, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

    from edge.pictures import PictureInfo
    from registry.audit import Actor
    from registry.models import Device
    from training.policies import Person

MOST_TOGETHER = 500
UNDO_DEPTH = 1000  # how many of a person's acts are looked through for one that can be taken back

OTHER_BYTES = gettext_noop("Device %(device)s sent another picture under the name %(name)s before.")
CLASS_MISSING = gettext_noop("Choose a defect class, or say OK.")
CLASS_WITH_OK = gettext_noop("An OK part has no defect class.")
REGIONS_WITH_OK = gettext_noop("Shapes are drawn on this picture: remove them to say OK, or decide NG.")
CLASS_UNKNOWN = gettext_noop("Class %(number)s is not in the defect book of line %(line)s.")
CLASS_RETIRED = gettext_noop("Class %(name)s is retired. Choose another one, or restore it in the defect book.")
BOOK_CHANGED = gettext_noop("The defect book has just changed. Reload the page and decide again.")
VERDICT_UNKNOWN = gettext_noop("A decision is OK or NG.")
REASON_MISSING = gettext_noop("Say why the decision is taken back.")
NOTHING_CHOSEN = gettext_noop("Choose at least one picture.")
TOO_MANY_CHOSEN = gettext_noop("At most %(most)s pictures can be decided together.")
DECISION_CHANGED = gettext_noop("The decision on %(name)s has changed meanwhile. Look at the page again.")
AGREED = gettext_noop(
    "%(capture)s was decided by several people who agreed. Take the decision back on its own page, with a reason."
)
NOTHING_TO_UNDO = gettext_noop("There is nothing of yours to take back on line %(line)s.")


# ------------------------------------------------------------------------------------------------ arriving


def known(*, device: Device, device_capture_id: str) -> bool:
    """Has this device sent a picture under this name before?"""
    return Capture.objects.filter(device=device, device_capture_id=device_capture_id).exists()


def receive(
    *,
    device: Device,
    device_capture_id: str,
    digest: str,
    size_bytes: int,
    info: PictureInfo,
    meta: Mapping[str, Any],
    now: datetime,
) -> tuple[Capture, bool]:
    """Record a flagged picture whose bytes are stored and checked. A re-send is a no-op: returns (capture, created).

    Raises Refused when the device used the same name for other bytes.
    """
    line = device.line
    fields = arrivals.columns(line, meta, station=device.station, arrived_at=now) | arrivals.prediction_columns(
        line, meta
    )
    identity = {"device": device, "device_capture_id": device_capture_id}
    capture, created = _create(line, identity, digest, size_bytes, info, fields)
    if not created and capture.digest != digest:
        raise Refused(OTHER_BYTES, device=device.code, name=device_capture_id)
    return capture, created


def import_one(
    line: Line,
    source: Path | bytes,
    meta: Mapping[str, Any],
    *,
    by: Actor,
    max_pixels: int = pictures.MAX_PIXELS,
    checked: Callable[[str], PictureInfo | None] = lambda digest: None,
) -> tuple[Capture, bool]:
    """Bring one picture in by hand: (capture, created). The same bytes on the same line are the same capture.

    `meta`: lot, serial, part, station (row or code), shift, product, taken_at, file_name. Raises PictureRefused.
    `checked`: what `pictures` said of these bytes a moment ago, by digest; they are then not decoded again.
    """
    policies.check_can_import(line, by=by)
    data = source if isinstance(source, bytes) else source.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    standing = Capture.objects.filter(line=line, device=None, digest=digest).first()
    if standing:
        return standing, False
    info = checked(digest) or pictures.check_bytes(data, max_pixels)
    blobs.put(data)
    fields = arrivals.columns(line, meta) | {"reason": Capture.Reason.IMPORT}
    return _create(line, {"line": line, "device": None, "digest": digest}, digest, len(data), info, fields)


def _create(
    line: Line, identity: dict[str, Any], digest: str, size_bytes: int, info: PictureInfo, fields: dict[str, Any]
) -> tuple[Capture, bool]:
    pk = new_id()
    fields = {"id": pk, **fields, **blind.columns(line, pk, fields["reason"])}
    picture = {
        "digest": digest,
        "size_bytes": size_bytes,
        "width": info.width,
        "height": info.height,
        "mode": info.mode,
    }
    with transaction.atomic():
        try:
            with transaction.atomic():
                capture = Capture.objects.create(**{"line": line, **picture, **fields, **identity})
        except IntegrityError:
            return Capture.objects.get(**identity), False
        counters.add(line, counts.NEW)
        counters.add(line, counts.TOTAL)
        events.announce(*capture.topics())
    return capture, True


# ------------------------------------------------------------------------------------------------ deciding


def decide(
    capture: Capture,
    *,
    verdict: str,
    classes: Iterable[int] = (),
    regions: Iterable[Mapping[str, Any]] = (),
    comment: str = "",
    batch: UUID | None = None,
    by: Person,
) -> Decision:
    """Record what a person says of the part. `classes` are numbers of the defect book, main one first; none for OK.

    On a line that asks for several opinions it is one of them until the last one comes (training.opinions).
    `regions` as training.regions describes; a class that is drawn counts as said. `batch` marks what was decided
    together. A class that was merged into another one means that one.
    """
    said = checked(capture, verdict=verdict, classes=classes, regions=regions, comment=comment, by=by)
    with transaction.atomic():
        if said["classes"] and book.hold(capture.line, said["classes"]) != set(said["classes"]):
            raise Refused(BOOK_CHANGED)
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        decision = opinions.take(row, said | {"batch": batch}, by=by)
        drafts.discard(row, by=by)
    lifecycle.reread(capture)
    return decision


def checked(
    capture: Capture,
    *,
    verdict: str,
    classes: Iterable[int],
    regions: Iterable[Mapping[str, Any]],
    comment: str,
    by: Person,
) -> dict[str, Any]:
    """What a person says of a part, in the form in which it is kept. Raises Refused when it makes no sense."""
    policies.check_can_review(capture.line, by=by)
    meant = book.meanings(capture.line)
    drawn = drawings.renumbered(drawings.checked(regions, width=capture.width, height=capture.height), meant)
    if verdict == Verdict.OK and drawn:
        raise Refused(REGIONS_WITH_OK)
    chosen = _checked_classes(capture.line, verdict, [*classes, *drawings.numbers(drawn)], meant)
    return {"verdict": verdict, "classes": chosen, "regions": drawn, "comment": comment.strip()}


@dataclass
class Together:
    """What came of deciding several pictures at once. `left`: [(capture, sentence)] that were not decided."""

    batch: UUID
    decided: list[Capture] = field(default_factory=list)
    left: list[tuple[Capture, str]] = field(default_factory=list)


def decide_together(
    line: Line, ids: Iterable[UUID], *, verdict: str, classes: Iterable[int] = (), comment: str = "", by: Person
) -> Together:
    """Decide these pictures alike; `undo_last` takes all of them back at once.

    The ids are what the person saw and chose: nothing is looked up again by a filter. A picture that somebody else
    holds or has decided meanwhile is left alone and listed with its sentence.
    """
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        raise Refused(NOTHING_CHOSEN)
    if len(wanted) > MOST_TOGETHER:
        raise Refused(TOO_MANY_CHOSEN, most=MOST_TOGETHER)
    policies.check_can_review(line, by=by)
    chosen = _checked_classes(line, verdict, classes, book.meanings(line))
    done = Together(batch=new_id())
    for capture in Capture.objects.filter(line=line, pk__in=wanted).select_related("line__site").order_by("id"):
        try:
            decide(capture, verdict=verdict, classes=chosen, comment=comment, batch=done.batch, by=by)
            done.decided.append(capture)
        except Refused as refused:
            done.left.append((capture, str(refused)))
    return done


def decide_like(
    picked: Capture, ids: Iterable[UUID], *, verdict: str, classes: Iterable[int] = (), by: Person
) -> Together:
    """Decide these pictures as the picked one stands decided; one that is still open is decided along with them."""
    policies.check_can_review(picked.line, by=by)
    picked.refresh_from_db()
    standing, chosen = picked.decision, list(classes)
    if standing and (standing.verdict, standing.classes) != (verdict, chosen):
        raise Refused(DECISION_CHANGED, name=str(picked))
    if not standing:
        policies.check_can_decide(picked, by=by)
    wanted = list(ids) if standing else [picked.pk, *ids]
    return decide_together(picked.line, wanted, verdict=verdict, classes=chosen, by=by)


def _checked_classes(line: Line, verdict: str, classes: Iterable[int], meant: Mapping[int, int]) -> list[int]:
    """The classes as they are meant now, each once. Refused, by name, for one that cannot be chosen."""
    chosen = list(dict.fromkeys(meant.get(int(number), int(number)) for number in classes))
    if verdict not in (Verdict.OK, Verdict.NG):
        raise Refused(VERDICT_UNKNOWN)
    if verdict == Verdict.OK and chosen:
        raise Refused(CLASS_WITH_OK)
    if verdict == Verdict.NG and not chosen:
        raise Refused(CLASS_MISSING)
    for number in chosen:
        if number not in meant:
            entry = DefectClass.objects.filter(line=line, number=number).first()
            raise (
                Refused(CLASS_RETIRED, name=entry.name)
                if entry
                else Refused(CLASS_UNKNOWN, number=number, line=line.name)
            )
    return chosen


def skip(capture: Capture, *, by: Person) -> Decision:
    """Put a picture aside without a decision: it stays in the queue for the others, and last in one's own."""
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        decision = decisions.record(row, Decision.Kind.SKIPPED, by)
        Capture.objects.filter(pk=row.pk, claimed_by=by).update(claimed_by=None, claimed_until=None)
        events.announce(*row.topics())
    lifecycle.reread(capture)
    return decision


def ask_second_look(capture: Capture, *, by: Person, comment: str = "") -> Decision:
    """Ask somebody else to decide: the picture becomes disputed and leaves one's own queue."""
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        decision = decisions.record(row, Decision.Kind.SECOND_LOOK, by, comment=comment.strip())
        fields: dict[str, Any] = {"second_look": True, "claimed_by": None, "claimed_until": None}
        if row.state == Capture.State.NEW:
            lifecycle.move(row, Capture.State.DISPUTED, by=by, audited=False, **fields)
        else:
            lifecycle.touch(row, **fields)
    lifecycle.reread(capture)
    return decision


# ------------------------------------------------------------------------------------------------ taking back


def retract(capture: Capture, *, reason: str, by: Person) -> Decision:
    """Take a decision back for a stated reason, whoever made it. Snapshots that froze it keep it, and say so."""
    if not reason.strip():
        raise Refused(REASON_MISSING)
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_retract(row, by=by)
        decision = decisions.take_back(row, by, comment=reason.strip())
        audit.record(by, "capture.retracted", row, reason=reason.strip())
    lifecycle.reread(capture)
    return decision


def undo_last(*, by: Person, line: Line) -> Capture:
    """Take back this person's newest decision, opinion or skip on the line, and claim its picture for them.

    Works across pictures, newest first, one act per call; what was decided together is one act. What somebody has
    changed since is passed over: it is not this person's to take back any more. A decision that rests on somebody
    else's opinion too is not taken back by one key: that stops here, with a sentence.
    """
    policies.check_can_review(line, by=by)
    with transaction.atomic():
        one_undo_at_a_time(by)
        undone: Capture | None = None
        first: Decision | None = None
        stopped: Refused | None = None
        for act in _acts_to_undo(line, by):
            if first is not None and (first.batch is None or act.batch != first.batch):
                break
            try:
                row = _undo(act, by)
            except Refused as refused:
                stopped, first = refused, first or act
                continue
            if row is not None:
                undone, first = row, first or act
        if undone is not None:
            return queue.locked(undone)
    raise stopped or Refused(NOTHING_TO_UNDO, line=line.name)


def _undo(act: Decision, by: Person) -> Capture | None:
    """Take this act back; None when it is no longer this person's to take back."""
    row = queue.locked(act.capture)
    claim = {"claimed_by": by, "claimed_until": seconds_from_now(queue.CLAIM_S)}
    if act.kind == Decision.Kind.SKIPPED:
        if not policies.can_decide(row, by=by):
            return None
        decisions.record(row, Decision.Kind.UNSKIPPED, by)
        queue.lease(row, by)
        events.announce(*row.topics())
        return row
    if row.state != Capture.State.DECIDED:
        return row if opinions.take_back(row, act, by=by, **claim) else None
    return row if _undo_decision(row, act, by, claim) else None


def _undo_decision(row: Capture, act: Decision, by: Person, claim: dict[str, Any]) -> bool:
    """Take back a standing decision that is this person's alone. An adjudicator's gives the dispute back as it was."""
    standing, rows = row.decision, Opinion.objects.filter(capture=row)
    if standing is None or row.reserved:
        return False
    settled = standing.kind == Decision.Kind.SETTLED and standing.by_id == by.pk and rows.filter(decision=act).exists()
    if standing.pk != act.pk and not settled:
        return False
    mine, others = rows.filter(by=by).exists(), rows.exclude(by=by).exists()
    if mine and others:
        raise Refused(AGREED, capture=str(row))
    decisions.take_back(row, by, anew=not others, disagreed=others, **claim)
    return True


def last_act(line: Line, *, by: Person) -> Decision | None:
    """The newest decision, opinion or skip of this person that they have not taken back."""
    return next(iter(_acts_to_undo(line, by)), None)


def _acts_to_undo(line: Line, by: Person) -> Iterable[Decision]:
    """This person's decisions, opinions and skips that they have not taken back themself, newest first.

    An opinion and a decision of one picture are one thing here: whichever came last is taken back first.
    """
    said = (Decision.Kind.DECIDED, Decision.Kind.OPINION)
    taken_back = {Decision.Kind.RETRACTED: "said", Decision.Kind.OPINION_BACK: "said", Decision.Kind.UNSKIPPED: "skip"}
    undone: dict[tuple[Any, str], int] = {}
    acts = Decision.objects.filter(by=by, capture__line=line).select_related("capture").order_by("-created_at", "-id")
    for act in acts[:UNDO_DEPTH]:
        kind = Decision.Kind(act.kind)
        if kind in taken_back:
            key = (act.capture_id, taken_back[kind])
            undone[key] = undone.get(key, 0) + 1
        elif kind in said or kind == Decision.Kind.SKIPPED:
            key = (act.capture_id, "said" if kind in said else "skip")
            if undone.get(key, 0):
                undone[key] -= 1
            else:
                yield act


def one_undo_at_a_time(by: Person) -> None:
    """Two quick presses of Ctrl+Z undo two acts, not the same one twice."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"undo {by.pk}"])
