"""Wake-up calls of the record: ids in, one domain call out. The tick finds what a lost call forgot."""

from __future__ import annotations

import logging

from celery import shared_task
from django.utils import timezone

from registry import counters, outbox, promotions, rollouts
from registry.models import Line, Rollout

log = logging.getLogger(__name__)


@shared_task
def tick() -> None:
    """Everything that time alone makes due: stages, deadlines, promotions, writes that MLflow is owed."""
    now = timezone.now()
    for rollout in Rollout.objects.filter(state=Rollout.State.RUNNING):
        rollouts.advance(rollout, now)
    promotions.expire(now)
    outbox.drain(now)


@shared_task
def advance_rollout(rollout_id: str) -> None:
    rollouts.advance(Rollout.objects.get(pk=rollout_id), timezone.now())


@shared_task
def drain_tracking() -> None:
    outbox.drain(timezone.now())


@shared_task
def recount() -> None:
    """Nightly: counters against the rows that they count."""
    for line in Line.objects.all():
        counters.recount(line)
