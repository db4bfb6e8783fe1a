"""Who may write for a job: the lease on its row, by the database's clock, and the fence that rises with each claim.

Every write of a worker names its fence. One that lost the lease finds that its fence is no longer the row's, and writes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from registry import events, lifecycle, wakeups
from registry.clock import DatabaseNow, seconds_from_now
from registry.lifecycle import Refused
from training import failures
from training.models import Attempt, Job
from training.processes import Group

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

LEASE_S = 60.0
RENEW_S = 15.0
MOST_DEATHS = 3
TASK = "training.tasks.run_job"


class LeaseLost(Exception):
    """This worker no longer holds the job: it must write nothing more."""


class CancelAsked(Exception):
    """A person wants the job cancelled."""


@dataclass
class Held:
    """A job that this worker holds, and the attempt that stands for it."""

    job: Job
    attempt: Attempt
    fence: int
    worker: str


def claim(job_id: UUID | str, *, worker: str) -> Held | None:
    """Take a queued job: fence + 1 and a lease. None when it is not queued: another was first."""
    job = Job.objects.filter(pk=job_id, state=Job.State.QUEUED).first()
    if job is None:
        return None
    with transaction.atomic():
        try:
            lifecycle.move(
                job, Job.State.RUNNING, by=worker, only_from=(Job.State.QUEUED,),
                fence=F("fence") + 1, lease_until=seconds_from_now(LEASE_S),
                started_at=Coalesce("started_at", DatabaseNow()),
                progress={"phase": "load", "done": 0, "of": 0},
            )  # fmt: skip
        except Refused:
            return None
        attempt = Attempt.objects.create(job=job, fence=job.fence, worker=worker)
    return Held(job, attempt, job.fence, worker)


def check(held: Held, *, renew: bool) -> None:
    """Look at the row, and renew the lease; raises CancelAsked or LeaseLost."""
    rows = _mine(held)
    if renew:
        rows.update(lease_until=seconds_from_now(LEASE_S))
    state = rows.values_list("state", flat=True).first()
    if state == Job.State.CANCELLING:
        raise CancelAsked
    if state != Job.State.RUNNING:
        raise LeaseLost


def write(held: Held, **fields: Any) -> None:
    """Change fields of the job under its row lock, if the fence is still ours; raises LeaseLost. For transactions."""
    if not _mine(held).update(row_version=F("row_version") + 1, **fields):
        raise LeaseLost
    events.announce(*held.job.topics())


def record_group(held: Held, group: Group) -> None:
    """Write down which processes the attempt has, for whoever must end them if we cannot."""
    Attempt.objects.filter(pk=held.attempt.pk).update(
        pgid=group.pgid, process_started=group.started, boot_id=group.boot_id
    )


def groups_of(job: Job) -> Iterable[Group]:
    """The process groups of all attempts of the job."""
    for attempt in job.attempts.exclude(pgid=None):
        yield Group(attempt.pgid or 0, attempt.process_started, attempt.boot_id, str(attempt.pk))


def _mine(held: Held) -> Any:
    return Job.objects.filter(pk=held.job.pk, fence=held.fence, state__in=(Job.State.RUNNING, Job.State.CANCELLING))


# ------------------------------------------------------------------------------------------------ ends of an attempt


def succeed(held: Held, **fields: Any) -> None:
    """RUNNING -> SUCCEEDED, inside the transaction that made the version."""
    _finish(held, Job.State.SUCCEEDED, "succeeded", **fields)


def fail(held: Held, failure: dict[str, Any]) -> None:
    _finish(held, Job.State.FAILED, "failed", failure=failure)


def cancelled(held: Held) -> None:
    """CANCELLING -> CANCELLED; only after nothing of the attempt lives any more."""
    _finish(held, Job.State.CANCELLED, "cancelled")


def _finish(held: Held, to: str, outcome: str, **fields: Any) -> None:
    with transaction.atomic():
        try:
            lifecycle.move(
                held.job, to, by=held.worker, where={"fence": held.fence},
                ended_at=DatabaseNow(), lease_until=None, **fields,
            )  # fmt: skip
        except Refused as refused:
            raise (CancelAsked if held.job.state == Job.State.CANCELLING else LeaseLost) from refused
        end_attempt(held.job, held.fence, outcome)


def give_back(held: Held) -> None:
    """The worker shuts down: back into the queue, and no death is counted."""
    with transaction.atomic():
        try:
            lifecycle.move(
                held.job, Job.State.QUEUED, by=held.worker, where={"fence": held.fence},
                lease_until=None, woken_at=DatabaseNow(), reason="the worker is shutting down",
            )  # fmt: skip
        except Refused as refused:
            raise (CancelAsked if held.job.state == Job.State.CANCELLING else LeaseLost) from refused
        end_attempt(held.job, held.fence, "stopped")
        wakeups.wake(TASK, job_id=str(held.job.pk))


def count_death(job: Job, fence: int, *, by: str, code: str, detail: str, where: dict[str, Any] | None = None) -> None:
    """The attempt died: back into the queue, or POISONED at the third death. Raises Refused when the job moved on."""
    deaths = job.deaths + 1
    poisoned = deaths >= MOST_DEATHS
    fields: dict[str, Any] = {"deaths": deaths, "lease_until": None}
    if poisoned:
        fields |= {"ended_at": DatabaseNow(), "failure": failures.sentence(code, {"deaths": deaths, "detail": detail})}
    else:
        fields |= {"woken_at": DatabaseNow()}
    with transaction.atomic():
        lifecycle.move(
            job, Job.State.POISONED if poisoned else Job.State.QUEUED, by=by, reason=detail,
            where={"fence": fence, "deaths": deaths - 1, **(where or {})}, **fields,
        )  # fmt: skip
        end_attempt(job, fence, "died")
        if not poisoned:
            wakeups.wake(TASK, job_id=str(job.pk))


def end_attempt(job: Job, fence: int, outcome: str) -> None:
    Attempt.objects.filter(job=job, fence=fence, ended_at=None).update(ended_at=DatabaseNow(), outcome=outcome)
