"""Asking for a training, cancelling one, and what the tick does for jobs that nobody holds any more."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from registry import audit, events, lifecycle, numbers, versions, wakeups
from registry.clock import DatabaseNow
from registry.lifecycle import Refused
from registry.models import BaseModel
from training import golden, leases, policies, processes
from training.models import Job
from training.recipe.config import DEFAULTS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from registry.models import Line, Version
    from training.models import Snapshot
    from training.policies import Person

log = logging.getLogger(__name__)

FRESH, CONTINUE = "fresh", "continue"
MODES = (FRESH, CONTINUE)
TICK = "training:tick"

LIMITS: dict[str, tuple[float, float]] = {
    "seed": (0, 2**31 - 1),
    "rank": (1, 256),
    "alpha": (0.01, 1024),
    "epochs": (1, 1000),
    "batch": (2, 4096),
    "lr": (1e-7, 1.0),
    "weight_decay": (0.0, 1.0),
    "replay": (0.0, 1.0),
    "golden_vectors": (1, 16),
}
HALF = [0.5, 0.5, 0.5]

MODE_UNKNOWN = gettext_noop("A training starts fresh or continues the champion; “%(mode)s” is neither.")
NO_BASE = gettext_noop("There is no base model yet. Import one first.")
NO_CHAMPION = gettext_noop("Line %(line)s has no champion that could be continued. Start fresh.")
CONFIG_UNKNOWN = gettext_noop("The setting %(name)s is not one of a training.")
CONFIG_WRONG = gettext_noop("The setting %(name)s must lie from %(low)s to %(high)s.")
CONFIG_KIND = gettext_noop("The setting %(name)s has a value that cannot be used: %(value)s.")


def submit(snapshot: Snapshot, *, mode: str, config_overrides: Mapping[str, Any] | None = None, by: Person) -> Job:
    """Queue a training on this snapshot. `mode` "continue" goes on from the champion's adapter, "fresh" from none."""
    policies.check_can_submit(snapshot, by=by)
    if mode not in MODES:
        raise Refused(MODE_UNKNOWN, mode=mode)
    line = snapshot.line
    champion = versions.champion(line)
    if mode == CONTINUE and champion is None:
        raise Refused(NO_CHAMPION, line=line.name)
    parent = champion if mode == CONTINUE else None
    return _queue(snapshot, parent, champion, _config(line, mode, parent, config_overrides or {}), by)


def requeue(job: Job, *, by: Person) -> Job:
    """Ask for an ended training again, as a new job with the same config; compared with today's champion."""
    policies.check_can_requeue(job, by=by)
    return _queue(job.snapshot, job.parent, versions.champion(job.line), copy.deepcopy(job.config), by)


def _queue(
    snapshot: Snapshot, parent: Version | None, champion: Version | None, config: dict[str, Any], by: Person
) -> Job:
    with transaction.atomic():
        job = Job.objects.create(
            line=snapshot.line, number=numbers.next_number(snapshot.line.site, "job"), snapshot=snapshot, parent=parent,
            champion=champion, config=config, submitted_by=by, woken_at=DatabaseNow(),
        )  # fmt: skip
        job.refresh_from_db()
        audit.record(
            by, "job.submit", job, new={"snapshot": str(snapshot), "mode": config["mode"], "parent": str(parent or "")}
        )
        events.announce(*job.topics())
        wake(job)
    return job


def wake(job: Job) -> None:
    """Tell a worker, once the transaction has committed. A lost message costs half a minute: the tick finds the row."""
    wakeups.wake(leases.TASK, job_id=str(job.pk))


def cancel(job: Job, *, by: Person) -> None:
    """End the job: at once when it waits, else as soon as its worker has ended every process of it (within 30 s)."""
    job.refresh_from_db()
    policies.check_can_cancel(job, by=by)
    asked = {"cancel_asked_at": DatabaseNow(), "cancel_asked_by": by}
    try:
        lifecycle.move(job, Job.State.CANCELLED, by=by, only_from=(Job.State.QUEUED,), ended_at=DatabaseNow(), **asked)
    except Refused:
        # It is claimed, maybe at this very moment: the claimant must end it.
        lifecycle.move(job, Job.State.CANCELLING, by=by, **asked)


# ------------------------------------------------------------------------------------------------ config


def _config(line: Line, mode: str, parent: Version | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    base = parent.base if parent else newest_base()
    if base is None:
        raise Refused(NO_BASE)
    leading = golden.current(line).first()
    fixed = {
        "mode": mode,
        "base": {"id": str(base.pk), "name": base.name, "digest": base.digest},
        "escape_limit": line.escape_limit,
        "leading_set": leading.code if leading else None,
        "preprocess": dict(parent.manifest["preprocess"]) if parent else preprocess(line, base),
    }
    return _overridden(copy.deepcopy(DEFAULTS), overrides) | fixed


def newest_base() -> BaseModel | None:
    return BaseModel.objects.order_by("-created_at").first()


def preprocess(line: Line, base: BaseModel) -> dict[str, Any]:
    """How pictures become the base's input, as the line is set up now; a continued adapter keeps its own way."""
    given = base.bundle["input"]
    window = None if line.window_low is None or line.window_high is None else [line.window_low, line.window_high]
    return {
        "size": list(given["size"]),
        "mean": list(given.get("mean", HALF)),
        "std": list(given.get("std", HALF)),
        "resize": "squash",
        "window": window,
    }


def _overridden(config: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in overrides.items():
        if value is None:
            continue
        if name not in config:
            raise Refused(CONFIG_UNKNOWN, name=name)
        if isinstance(config[name], dict):
            if not isinstance(value, dict):
                raise Refused(CONFIG_KIND, name=name, value=str(value)[:40])
            config[name] = _overridden(config[name], value)
        else:
            config[name] = _checked(name, value, config[name])
    return config


def _checked(name: str, value: Any, default: Any) -> Any:
    if name == "views":
        if not isinstance(value, list | tuple) or not value or any(view not in VIEWS for view in value):
            raise Refused(CONFIG_KIND, name=name, value=str(value)[:40])
        return list(dict.fromkeys(value))
    if isinstance(default, str):
        return str(value)[:80]
    try:
        number = type(default)(value)
    except (TypeError, ValueError) as error:
        raise Refused(CONFIG_KIND, name=name, value=str(value)[:40]) from error
    low, high = LIMITS[name]
    if not low <= number <= high:
        raise Refused(CONFIG_WRONG, name=name, low=low, high=high)
    return number


# ------------------------------------------------------------------------------------------------ the tick


def recover() -> None:
    """Wake what waits and was forgotten, and take in hand what lost its worker. Any number of ticks may run at once."""
    wakeups.wake_forgotten(Job.objects.filter(state=Job.State.QUEUED), wake)
    lost = Job.objects.filter(Q(lease_until__lt=DatabaseNow()) | Q(lease_until=None))
    for job in lost.filter(state=Job.State.RUNNING).order_by("created_at"):
        _bury(job)
    for job in lost.filter(state=Job.State.CANCELLING).order_by("created_at"):
        _finish_cancel(job)


def _bury(job: Job) -> None:
    """Its worker vanished: one death more. A worker that was only slow finds its fence gone."""
    expired = {"lease_until__lt": DatabaseNow()} if job.lease_until else {"lease_until": None}
    try:
        leases.count_death(job, job.fence, by=TICK, code="worker_died", detail="lease ran out", where=expired)
    except Refused:
        log.info("job %s went on meanwhile", job.pk)
        return
    if job.state == Job.State.POISONED:
        for group in leases.groups_of(job):
            processes.end(group)


def _finish_cancel(job: Job) -> None:
    """Its worker vanished before it could end the job: make sure that nothing lives here, then say so."""
    if not all(processes.end(group) for group in leases.groups_of(job)):
        return
    try:
        with transaction.atomic():
            lifecycle.move(
                job, Job.State.CANCELLED, by=TICK, where={"fence": job.fence}, ended_at=DatabaseNow(), lease_until=None
            )
            leases.end_attempt(job, job.fence, "cancelled")
    except Refused:
        log.info("job %s went on meanwhile", job.pk)
