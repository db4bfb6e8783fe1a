"""The outbox to MLflow: rows say what it is owed, this sends them, oldest first, until each is done.

A row is claimed by moving its next try ahead, in one statement; a worker killed in the middle leaves a row that is due
again a little later. `tracking` makes a repeated write harmless.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from registry import events, tracking
from registry.models import TrackingEntry

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

log = logging.getLogger(__name__)

CLAIM = timedelta(seconds=60)
FIRST_WAIT_S = 5
MOST_WAIT_S = 600
MOST_AT_ONCE = 50


def drain(now: datetime) -> int:
    """Send what is due; returns how many were done. A failure waits longer each time and never holds up other rows."""
    done = 0
    tried: list[UUID] = []
    while len(tried) < MOST_AT_ONCE and (entry := _claim(now, tried)) is not None:
        tried.append(entry.pk)
        done += _send(entry)
    return done


def _claim(now: datetime, tried: list[UUID]) -> TrackingEntry | None:
    """The oldest row that is due and was not tried in this drain."""
    with transaction.atomic():
        entry = (
            TrackingEntry.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
            .filter(done_at=None, next_try_at__lte=now)
            .exclude(pk__in=tried)
            .select_related("version__line")
            .order_by("created_at")
            .first()
        )
        if entry is not None:
            entry.tries += 1
            entry.next_try_at = timezone.now() + CLAIM
            entry.save(update_fields=("tries", "next_try_at"))
    return entry


def _send(entry: TrackingEntry) -> bool:
    write = tracking.log_version if entry.kind == TrackingEntry.Kind.LOG_VERSION else tracking.set_champion
    try:
        write(entry.version)
    except tracking.Failed as failed:
        wait_s = min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** min(entry.tries - 1, 10))
        TrackingEntry.objects.filter(pk=entry.pk).update(
            error=str(failed)[:2000], next_try_at=timezone.now() + timedelta(seconds=wait_s)
        )
        log.warning("MLflow: %s of %s failed (try %d): %s", entry.kind, entry.version, entry.tries, failed)
        return False
    TrackingEntry.objects.filter(pk=entry.pk).update(done_at=timezone.now(), error="")
    events.announce(*entry.version.topics())
    return True
