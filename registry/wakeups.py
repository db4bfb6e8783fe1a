"""Wake-up calls to workers. The row is the queue entry: a lost call costs time until the next tick, nothing else."""

from __future__ import annotations

import logging
from functools import partial

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


def wake(task: str, *, countdown_s: float = 0, **ids: str) -> None:
    """Call the task by its name with these ids once the transaction committed. A dead broker is logged, not raised."""
    transaction.on_commit(partial(_send, task, countdown_s, ids), robust=True)


def _send(task: str, countdown_s: float, ids: dict[str, str]) -> None:
    try:
        current_app.send_task(task, kwargs=ids, countdown=countdown_s or None)
    except (OperationalError, OSError) as error:
        log.warning("%s was not woken (%s); the next tick finds the row", task, error)
