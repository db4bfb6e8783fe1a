"""Captures: how they arrive, and how people decide, skip and take back. Decisions are only ever added."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, connection, transaction
from django.utils.translation import gettext_noop

from registry import audit, blobs, counters, events, lifecycle
from registry.clock import seconds_from_now
from registry.ids import new_id
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from training import arrivals, counts, drafts, lineage, pictures, policies, queue
from training import regions as drawings
from training.models import Capture, Decision, Verdict

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
CLASS_UNKNOWN = gettext_noop("Class %(number)s is not in the defect book of line %(line)s, or it was retired.")
VERDICT_UNKNOWN = gettext_noop("A decision is OK or NG.")
REASON_MISSING = gettext_noop("Say why the decision is taken back.")
NOTHING_CHOSEN = gettext_noop("Choose at least one picture.")
TOO_MANY_CHOSEN = gettext_noop("At most %(most)s pictures can be decided together.")
DECISION_CHANGED = gettext_noop("The decision on %(name)s has changed meanwhile. Look at the page again.")
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

    `regions` as training.regions describes; a class that is drawn counts as said. `batch` marks what was decided
    together.
    """
    policies.check_can_review(capture.line, by=by)
    drawn = drawings.checked(regions, width=capture.width, height=capture.height)
    if verdict == Verdict.OK and drawn:
        raise Refused(REGIONS_WITH_OK)
    chosen = _checked_classes(capture.line, verdict, [*classes, *drawings.numbers(drawn)])
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        if row.state == Capture.State.RETRACTED:
            lineage.announce(row.line)
        decision = _record(
            row, Decision.Kind.DECIDED, by,
            verdict=verdict, classes=chosen, regions=drawn, comment=comment.strip(), batch=batch,
        )  # fmt: skip
        lifecycle.move(
            row, Capture.State.DECIDED, by=by, audited=False, decision=decision, claimed_by=None, claimed_until=None,
            second_look=False, decided_class=chosen[0] if chosen else 0,
        )  # fmt: skip
        drafts.discard(row, by=by)
        counters.add(row.line, counts.NEW, -1)
        counters.add(row.line, counts.DECIDED)
    lifecycle.reread(capture)
    return decision


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
    chosen = _checked_classes(line, verdict, classes)
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


def _checked_classes(line: Line, verdict: str, classes: Iterable[int]) -> list[int]:
    chosen = list(dict.fromkeys(int(number) for number in classes))
    if verdict not in (Verdict.OK, Verdict.NG):
        raise Refused(VERDICT_UNKNOWN)
    if verdict == Verdict.OK and chosen:
        raise Refused(CLASS_WITH_OK)
    if verdict == Verdict.NG and not chosen:
        raise Refused(CLASS_MISSING)
    book = set(DefectClass.objects.filter(line=line, retired_at=None).values_list("number", flat=True))
    for number in chosen:
        if number not in book:
            raise Refused(CLASS_UNKNOWN, number=number, line=line.name)
    return chosen


def _record(row: Capture, kind: str, by: Person, **fields: Any) -> Decision:
    shown = {"verdict": row.verdict, "score": row.score, "release_number": row.release_number} if row.verdict else {}
    return Decision.objects.create(capture=row, kind=kind, by=by, predicted=shown, **fields)


def skip(capture: Capture, *, by: Person) -> Decision:
    """Put a picture aside without a decision: it stays in the queue for the others, and last in one's own."""
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        decision = _record(row, Decision.Kind.SKIPPED, by)
        Capture.objects.filter(pk=row.pk, claimed_by=by).update(claimed_by=None, claimed_until=None)
        events.announce(*row.topics())
    lifecycle.reread(capture)
    return decision


def ask_second_look(capture: Capture, *, by: Person, comment: str = "") -> Decision:
    """Ask somebody else to decide: the picture becomes disputed and leaves one's own queue."""
    with transaction.atomic():
        row = queue.locked(capture)
        policies.check_can_decide(row, by=by)
        decision = _record(row, Decision.Kind.SECOND_LOOK, by, comment=comment.strip())
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
        decision = _take_back(row, by, comment=reason.strip())
        audit.record(by, "capture.retracted", row, reason=reason.strip())
    lifecycle.reread(capture)
    return decision


def _take_back(row: Capture, by: Person, *, comment: str = "", **claim: Any) -> Decision:
    frozen_before = not counts.decided_since_snapshot(row.line).filter(pk=row.pk).exists()
    decision = _record(row, Decision.Kind.RETRACTED, by, comment=comment)
    lifecycle.move(row, Capture.State.RETRACTED, by=by, audited=False, decision=None, decided_class=None, **claim)
    counters.add(row.line, counts.NEW)
    counters.add(row.line, counts.DECIDED, 0 if frozen_before else -1)
    if frozen_before:
        lineage.announce(row.line)
    return decision


def undo_last(*, by: Person, line: Line) -> Capture:
    """Take back this person's newest decision or skip on the line, and claim its picture for them.

    Works across pictures, newest first, one act per call; what was decided together is one act. What somebody has
    changed since is passed over: it is not this person's to take back any more.
    """
    policies.check_can_review(line, by=by)
    with transaction.atomic():
        _one_at_a_time(by)
        undone: Capture | None = None
        batch: UUID | None = None
        for act in _acts_to_undo(line, by):
            if undone is not None and (batch is None or act.batch != batch):
                break
            if row := _undo(act, by):
                undone, batch = row, act.batch
        if undone is not None:
            return queue.locked(undone)
    raise Refused(NOTHING_TO_UNDO, line=line.name)


def _undo(act: Decision, by: Person) -> Capture | None:
    """Take this act back; None when it is no longer this person's to take back."""
    row = queue.locked(act.capture)
    if act.kind == Decision.Kind.DECIDED and row.decision_id == act.pk and not row.reserved:
        _take_back(row, by, claimed_by=by, claimed_until=seconds_from_now(queue.CLAIM_S))
        return row
    if act.kind == Decision.Kind.SKIPPED and policies.can_decide(row, by=by):
        _record(row, Decision.Kind.UNSKIPPED, by)
        queue.lease(row, by)
        events.announce(*row.topics())
        return row
    return None


def _acts_to_undo(line: Line, by: Person) -> Iterable[Decision]:
    """This person's decisions and skips that they have not taken back themself, newest first."""
    taken_back = {Decision.Kind.RETRACTED: Decision.Kind.DECIDED, Decision.Kind.UNSKIPPED: Decision.Kind.SKIPPED}
    undone: dict[tuple[Any, str], int] = {}
    acts = Decision.objects.filter(by=by, capture__line=line).select_related("capture").order_by("-created_at", "-id")
    for act in acts[:UNDO_DEPTH]:
        if act.kind in taken_back:
            key = (act.capture_id, taken_back[Decision.Kind(act.kind)])
            undone[key] = undone.get(key, 0) + 1
        elif act.kind in (Decision.Kind.DECIDED, Decision.Kind.SKIPPED):
            key = (act.capture_id, Decision.Kind(act.kind))
            if undone.get(key, 0):
                undone[key] -= 1
            else:
                yield act


def _one_at_a_time(by: Person) -> None:
    """Two quick presses of Ctrl+Z undo two acts, not the same one twice."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"undo {by.pk}"])
