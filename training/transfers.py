"""Imports and exports as rows: asking, confirming, cancelling, who may write for one, and what the tick does.

The row is the queue entry. Its lease and fence work as a job's do; a cancelled row has lost its worker's right to
write, which the worker sees at its next batch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_noop

from registry import audit, blobs, events, lifecycle, numbers, wakeups
from registry.clock import DatabaseNow, seconds_from_now
from registry.lifecycle import Refused
from training import exports, formats, policies
from training.models import Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from registry.models import Line
    from training.models import Snapshot
    from training.policies import Person

log = logging.getLogger(__name__)

LEASE_S = 90.0  # longer than reading the largest label file takes
UNCONFIRMED_S = 24 * 3600
MOST_DEATHS = 3
TASK, LOOK_TASK = "training.tasks.run_transfer", "training.tasks.look_at_transfer"
TICK = "training:tick"

MANIFEST, PICTURES = "manifest", "pictures"  # kinds of archives that training.formats does not know
IMPORT_FORMATS = (*formats.FORMATS, MANIFEST, PICTURES)

NOT_A_ZIP = gettext_noop("%(name)s is not a zip file. Pack labels and pictures into one zip and send that.")
NOTHING_TO_EXPORT = gettext_noop("No picture fits, so there is nothing to export. Choose other filters.")
DIED = gettext_noop("The worker vanished %(deaths)s times while it held this. It is not tried again.")
NOT_CONFIRMED = gettext_noop("Nobody pressed “Import” within a day.")


class LeaseLost(Exception):
    """This worker no longer holds the transfer: it was cancelled, or another has it. It must write nothing more."""


@dataclass
class Held:
    """A transfer that this worker holds."""

    transfer: Transfer
    fence: int
    worker: str


# ------------------------------------------------------------------------------------------------ asking


def receive(line: Line, incoming: blobs.Incoming, *, file_name: str, by: Person) -> Transfer:
    """Keep an uploaded archive. It is looked at next, and imported once somebody confirms. Raises Refused."""
    policies.check_can_receive(line, by=by)
    with incoming.temporary_path.open("rb") as handle:
        if handle.read(2) != b"PK":  # what is in it is judged by a worker, not by the web
            raise Refused(NOT_A_ZIP, name=file_name)
    size = incoming.size_bytes
    digest = incoming.keep()
    with transaction.atomic():
        made = _create(
            line,
            Transfer.Kind.IMPORT,
            by,
            digest=digest,
            size_bytes=size,
            file_name=file_name.replace("\x00", "")[-255:],
        )
        audit.record(by, "transfer.receive", made, new={"file": made.file_name, "digest": digest, "bytes": size})
        _wake(LOOK_TASK, made)
    return made


def look_as(transfer: Transfer, *, code: str, by: Person) -> None:
    """Look again, as another format than the one that was found."""
    policies.check_can_receive(transfer.line, by=by)
    if code not in IMPORT_FORMATS:
        raise Refused(formats.UNKNOWN_FORMAT, code=code)
    _only_unconfirmed(transfer, look={}, format=code, deaths=0, woken_at=DatabaseNow())
    _wake(LOOK_TASK, transfer)


def confirm(transfer: Transfer, *, by: Person) -> None:
    """Let the import run; its decisions are those of `by`."""
    transfer.refresh_from_db()
    policies.check_can_confirm(transfer, by=by)
    with transaction.atomic():
        _only_unconfirmed(transfer, confirmed_at=DatabaseNow(), woken_at=DatabaseNow(), asked_by=by)
        audit.record(by, "transfer.confirm", transfer, new={"format": transfer.format, "digest": transfer.digest})
        _wake(TASK, transfer)


def _only_unconfirmed(transfer: Transfer, **fields: Any) -> None:
    with transaction.atomic():
        changed = Transfer.objects.filter(pk=transfer.pk, state=Transfer.State.QUEUED, confirmed_at=None)
        if not changed.update(row_version=F("row_version") + 1, **fields):
            raise Refused(policies.CONFIRMED, transfer=str(transfer))
        transfer.refresh_from_db()
        events.announce(*transfer.topics())


def ask_export(
    line: Line, *, code: str, options: Mapping[str, Any], snapshot: Snapshot | None = None, by: Person
) -> Transfer:
    """Queue an export of a snapshot, or of the pictures that the options select (training.exports.checked_options)."""
    policies.check_can_export(line, by=by)
    if code not in formats.FORMATS:
        raise Refused(formats.UNKNOWN_FORMAT, code=code)
    chosen = exports.checked_options(options)
    if not exports.selected(line, chosen, snapshot, by).exists():
        raise Refused(NOTHING_TO_EXPORT)
    with transaction.atomic():
        made = _create(
            line, Transfer.Kind.EXPORT, by, format=code, options=chosen, snapshot=snapshot, confirmed_at=DatabaseNow()
        )
        audit.record(by, "transfer.export", made, new={"format": code, "snapshot": str(snapshot or ""), **chosen})
        _wake(TASK, made)
    return made


def _create(line: Line, kind: str, by: Person, **fields: Any) -> Transfer:
    made = Transfer.objects.create(
        line=line, number=numbers.next_number(line.site, "transfer"), kind=kind, asked_by=by, woken_at=DatabaseNow(),
        **fields,
    )  # fmt: skip
    made.refresh_from_db()
    events.announce(*made.topics())
    return made


def download_name(transfer: Transfer) -> str:
    """No two exports of a site have the same."""
    return f"{transfer.line.code}-{transfer.number}-{transfer.format}.zip"


def cancel(transfer: Transfer, *, by: Person) -> None:
    """End it now. What an import has recorded until then stays; the report says how much."""
    transfer.refresh_from_db()
    policies.check_can_cancel_transfer(transfer, by=by)
    lifecycle.move(transfer, Transfer.State.CANCELLED, by=by, ended_at=DatabaseNow(), lease_until=None)


def begin_look(transfer: Transfer) -> bool:
    """Count a look before it begins: an archive that ends its worker is not looked at for ever. False: that was it."""
    Transfer.objects.filter(pk=transfer.pk).update(deaths=F("deaths") + 1)
    transfer.refresh_from_db(fields=["deaths"])
    return transfer.deaths <= MOST_DEATHS


# ------------------------------------------------------------------------------------------------ lease and fence


def claim(transfer_id: UUID | str, *, worker: str) -> Held | None:
    """Take a queued, confirmed transfer; None when there is none (any more)."""
    rows = Transfer.objects.select_related("line__site", "asked_by", "snapshot")
    row = rows.filter(pk=transfer_id, state=Transfer.State.QUEUED).exclude(confirmed_at=None).first()
    if row is None:
        return None
    try:
        lifecycle.move(
            row, Transfer.State.RUNNING, by=worker, only_from=(Transfer.State.QUEUED,), fence=F("fence") + 1,
            lease_until=seconds_from_now(LEASE_S), started_at=Coalesce("started_at", DatabaseNow()),
        )  # fmt: skip
    except Refused:
        return None
    return Held(row, row.fence, worker)


def hold(held: Held) -> None:
    """Lock the row until the transaction ends, so that what it records and what the row says are one; LeaseLost."""
    if _mine(held).select_for_update(of=("self",)).first() is None:
        raise LeaseLost


def write(held: Held, *, announced: bool = True, **fields: Any) -> None:
    """Change fields and renew the lease, if the fence is still ours; raises LeaseLost."""
    changed = {"row_version": F("row_version") + 1, "lease_until": seconds_from_now(LEASE_S), **fields}
    with transaction.atomic():
        if not _mine(held).update(**changed):
            raise LeaseLost
        if announced:
            events.announce(*held.transfer.topics())


def _mine(held: Held) -> Any:
    return Transfer.objects.filter(pk=held.transfer.pk, fence=held.fence, state=Transfer.State.RUNNING)


def finish(held: Held, **fields: Any) -> None:
    _end(held, Transfer.State.DONE, ended_at=DatabaseNow(), **fields)


def fail(held: Held, failure: dict[str, Any], **fields: Any) -> None:
    _end(held, Transfer.State.FAILED, ended_at=DatabaseNow(), failure=failure, **fields)


def give_back(held: Held) -> None:
    """The worker shuts down: back into the queue, no death is counted."""
    with transaction.atomic():
        _end(held, Transfer.State.QUEUED, woken_at=DatabaseNow(), reason="the worker is shutting down")
        _wake(TASK, held.transfer)


def _end(held: Held, to: str, **fields: Any) -> None:
    try:
        lifecycle.move(
            held.transfer, to, by=held.worker, where={"fence": held.fence}, lease_until=None, **fields
        )  # fmt: skip
    except Refused as refused:
        raise LeaseLost from refused


def count_death(transfer: Transfer, fence: int, *, by: str, where: Mapping[str, Any] | None = None) -> None:
    """Its worker died: back into the queue, or FAILED at the third death. Raises Refused when it moved on."""
    deaths = transfer.deaths + 1
    fields: dict[str, Any] = {"deaths": deaths, "lease_until": None, "where": {"fence": fence, **(where or {})}}
    with transaction.atomic():
        if deaths >= MOST_DEATHS:
            failure = {"text": DIED, "params": {"deaths": deaths}}
            lifecycle.move(transfer, Transfer.State.FAILED, by=by, ended_at=DatabaseNow(), failure=failure, **fields)
        else:
            lifecycle.move(transfer, Transfer.State.QUEUED, by=by, woken_at=DatabaseNow(), **fields)
            _wake(TASK, transfer)


# ------------------------------------------------------------------------------------------------ the tick


def recover() -> None:
    """Wake what was forgotten, take in hand what lost its worker, end what nobody confirmed. Many may run at once."""
    waiting = Transfer.objects.filter(state=Transfer.State.QUEUED)
    wakeups.wake_forgotten(waiting.filter(confirmed_at__isnull=False), partial(_wake, TASK))
    wakeups.wake_forgotten(waiting.filter(confirmed_at=None, look={}), partial(_wake, LOOK_TASK))
    lost = Q(lease_until__lt=DatabaseNow()) | Q(lease_until=None)
    for row in Transfer.objects.filter(lost, state=Transfer.State.RUNNING).select_related("line"):
        expired = {"lease_until__lt": DatabaseNow()} if row.lease_until else {"lease_until": None}
        try:
            count_death(row, row.fence, by=TICK, where=expired)
        except Refused:
            log.info("transfer %s went on meanwhile", row.pk)
    old = Transfer.objects.filter(state=Transfer.State.QUEUED, confirmed_at=None)
    for row in old.filter(created_at__lt=seconds_from_now(-UNCONFIRMED_S)).select_related("line"):
        try:
            lifecycle.move(
                row, Transfer.State.CANCELLED, by=TICK, where={"confirmed_at": None}, ended_at=DatabaseNow(),
                failure={"text": NOT_CONFIRMED, "params": {}},
            )  # fmt: skip
        except Refused:
            log.info("transfer %s was confirmed meanwhile", row.pk)


def clear_archives(now: datetime) -> int:
    """Remove the archives of transfers that ended long ago: what came in is in the captures, what went out can be made
    again. Returns how many."""
    since = now - timedelta(days=settings.ARCHIVE_DAYS)
    kept = Transfer.objects.exclude(state__in=Transfer.ENDED, ended_at__lt=since).exclude(digest="")
    old = Transfer.objects.filter(state__in=Transfer.ENDED, ended_at__lt=since).exclude(digest="")
    cleared = 0
    for digest in old.exclude(digest__in=kept.values("digest")).values_list("digest", flat=True).distinct():
        if blobs.exists(digest):
            blobs.remove(digest)
            cleared += 1
    return cleared


def _wake(task: str, transfer: Transfer) -> None:
    wakeups.wake(task, transfer_id=str(transfer.pk))
