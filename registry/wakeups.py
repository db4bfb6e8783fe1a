"""Wake-up calls to workers. The row is the queue entry: a lost call costs time until the next tick, nothing else."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import current_app
from django.db import transaction
from django.db.models import Q
from kombu.exceptions import OperationalError

from registry.clock import DatabaseNow, seconds_from_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet

log = logging.getLogger(__name__)

FORGOTTEN_S = 30
AT_ONCE = 100


def wake(task: str, *, countdown_s: float = 0, **ids: str) -> None:
    """Call the task by its name with these ids once the transaction committed. A dead broker is logged, not raised."""
    transaction.on_commit(partial(_send, task, countdown_s, ids), robust=True)


def wake_forgotten(waiting: QuerySet[Any], call: Callable[[Any], None]) -> None:
    """Call again for waiting rows whose last call (`woken_at`) is half a minute old. Many ticks may run at once."""
    forgotten = Q(woken_at=None) | Q(woken_at__lt=seconds_from_now(-FORGOTTEN_S))
    with transaction.atomic():
        rows = waiting.filter(forgotten).select_for_update(skip_locked=True, of=("self",))
        found = list(rows.order_by("created_at")[:AT_ONCE])
        waiting.model._default_manager.filter(pk__in=[row.pk for row in found]).update(woken_at=DatabaseNow())
        for row in found:
            call(row)


def _send(task: str, countdown_s: float, ids: dict[str, str]) -> None:
    try:
        current_app.send_task(task, kwargs=ids, countdown=countdown_s or None)
    except (OperationalError, OSError) as error:
        log.warning("%s was not woken (%s); the next tick finds the row", task, error)
