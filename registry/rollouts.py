"""Rollouts: a release goes to a frozen set of devices in stages; a stage opens only when the one before passed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import audit, deployments, devices, events, lifecycle, numbers, policies, wakeups
from registry.lifecycle import Refused
from registry.models import Deployment, Device, Line, Rollout, Stage
from registry.stages import Part, Step, Wave, decide

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from registry.audit import Actor
    from registry.models import Release

SYSTEM = "system"
CANARY_SOAK_S = 3
MOST_STEPS = 1000  # of one advance: more would be a loop without an end

PAUSED_BY = gettext_noop("Paused by %(name)s: %(reason)s")
STAGE_EMPTY = gettext_noop("Stage “%(stage)s” would have no device.")
DEVICES_LEFT = gettext_noop("%(count)s active devices are in no stage. Let the last stage take the rest.")
SHARE_INVALID = gettext_noop("Shares of a stage lie from 0 to 1, soak time and deadline are not negative.")
TOOK_OVER = gettext_noop("%(rollout)s took over.")


@dataclass(frozen=True)
class Plan:
    """A stage to be: `devices` is how many it takes, None for all that are left."""

    name: str
    devices: int | None = None
    success_share: float = 1.0
    error_share: float = 0.0
    soak_s: int = 0
    deadline_s: int = 24 * 3600


def targets(release: Release) -> list[Device]:
    """The devices that a rollout started now would go to: active ones of the line, those that answer first."""
    now = timezone.now()
    rows = Device.objects.filter(line=release.line, state=Device.State.ACTIVE).order_by("code")
    return sorted(rows, key=lambda device: (device.seen_at is None or devices.is_silent(device, now), device.code))


def conflicts(release: Release) -> list[Deployment]:
    """What is under way on these devices and would be superseded by starting now."""
    return list(
        Deployment.objects.filter(device__line=release.line, state__in=Deployment.UNDER_WAY).select_related(
            "device", "rollout__release"
        )
    )


def default_plan(total: int, *, canary: int = 1) -> list[Plan]:
    """Canary, then the rest; one stage when there is no rest."""
    if canary <= 0 or canary >= total:
        return [Plan(name="all", soak_s=CANARY_SOAK_S)]
    return [Plan(name="canary", devices=canary, soak_s=CANARY_SOAK_S), Plan(name="rest")]


def start(release: Release, *, by: Any, canary: int = 1, stages: Sequence[Plan] | None = None) -> Rollout:
    """Freeze the target set and open the first stage. What is under way on these devices is superseded.

    `stages` overrides the plan of a canary of `canary` devices and then the rest.
    """
    policies.check_can_start_rollout(release, by=by)
    now = timezone.now()
    with transaction.atomic():
        line = Line.objects.select_for_update(no_key=True).get(pk=release.line_id)
        release.refresh_from_db()
        policies.check_can_start_rollout(release, by=by)
        chosen = targets(release)
        shares = _share(chosen, list(stages) if stages else default_plan(len(chosen), canary=canary))
        rollout = Rollout.objects.create(
            line=line, number=numbers.next_number(line.site, "rollout"), release=release, started_by=by
        )
        _take_over(rollout, chosen, by=by)
        for index, (plan, members) in enumerate(shares):
            stage = Stage.objects.create(
                rollout=rollout,
                index=index,
                name=plan.name,
                success_share=plan.success_share,
                error_share=plan.error_share,
                soak_s=plan.soak_s,
                deadline_s=plan.deadline_s,
            )
            Deployment.objects.bulk_create(
                Deployment(rollout=rollout, stage=stage, device=device) for device in members
            )
        lifecycle.move(rollout, Rollout.State.RUNNING, by=by, started_at=now)
        _apply(rollout, now)
    return rollout


def advance(rollout: Rollout, now: datetime) -> Rollout:
    """Let everything happen that is due. Safe to call at any time, by anyone, as often as one likes."""
    with transaction.atomic():
        row = (
            Rollout.objects.select_for_update(of=("self",), no_key=True)
            .select_related("line", "release")
            .get(pk=rollout.pk)
        )
        if row.state == Rollout.State.RUNNING:
            _apply(row, now)
    return row


def pause(rollout: Rollout, *, by: Any, reason: str) -> None:
    """Stop offering; devices that are installing hear at their next report that it is not wanted now."""
    policies.check_can_pause_rollout(rollout, by=by)
    policies.check_reason(reason)
    sentence = {"text": PAUSED_BY, "params": {"name": str(by), "reason": reason.strip()}}
    lifecycle.move(rollout, Rollout.State.PAUSED, by=by, reason=reason, pause_sentence=sentence)


def resume(rollout: Rollout, *, by: Any, reason: str) -> None:
    """Go on. After a failed stage this means: in spite of it, with the next stage."""
    policies.check_can_resume_rollout(rollout, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        _lock(rollout)
        policies.check_can_resume_rollout(rollout, by=by)
        lifecycle.move(rollout, Rollout.State.RUNNING, by=by, reason=reason, pause_sentence={})
        _apply(rollout, timezone.now())


def stop(rollout: Rollout, *, by: Any, reason: str) -> None:
    """End it here: nothing more is offered; devices that committed keep the release."""
    policies.check_can_stop_rollout(rollout, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        _lock(rollout)
        _stop(rollout, by=by, reason=reason, code="stopped")


# ------------------------------------------------------------------------------------------------ details


def _lock(rollout: Rollout) -> None:
    Rollout.objects.select_for_update(no_key=True).get(pk=rollout.pk)
    rollout.refresh_from_db()


def _share(chosen: list[Device], plans: list[Plan]) -> list[tuple[Plan, list[Device]]]:
    """Devices to stages, in order; each stage has one at least, and nobody is left over."""
    shares, left = [], list(chosen)
    for plan in plans:
        if not (0 <= plan.success_share <= 1 and 0 <= plan.error_share <= 1) or min(plan.soak_s, plan.deadline_s) < 0:
            raise Refused(SHARE_INVALID)
        count = len(left) if plan.devices is None else plan.devices
        members, left = left[:count], left[count:]
        if not members:
            raise Refused(STAGE_EMPTY, stage=plan.name)
        shares.append((plan, members))
    if left:
        raise Refused(DEVICES_LEFT, count=len(left))
    return shares


def _take_over(rollout: Rollout, chosen: list[Device], *, by: Actor) -> None:
    """End the line's earlier rollouts and whatever is still under way on the chosen devices."""
    reason = TOOK_OVER % {"rollout": str(rollout)}
    live = (Rollout.State.RUNNING, Rollout.State.PAUSED)
    for other in Rollout.objects.select_for_update(no_key=True).filter(line=rollout.line, state__in=live):
        _stop(other, by=by, reason=reason, code="newer_rollout")
    standing = Deployment.objects.filter(device__in=chosen, state__in=Deployment.UNDER_WAY)
    for deployment in standing.select_related("device__line", "rollout__line"):
        deployments.end(deployment, Deployment.State.SUPERSEDED, code="newer_rollout", by=audit.label(by))


def _stop(rollout: Rollout, *, by: Actor, reason: str, code: str) -> None:
    now = timezone.now()
    lifecycle.move(rollout, Rollout.State.STOPPED, by=by, reason=reason, ended_at=now)
    for stage in rollout.stages.all():
        if stage.state == Stage.State.WAITING:
            lifecycle.move(stage, Stage.State.SKIPPED, by=by, audited=False, ended_at=now)
        elif stage.state in (Stage.State.RUNNING, Stage.State.SOAKING):
            lifecycle.move(stage, Stage.State.FAILED, by=by, audited=False, ended_at=now)
    _end_all(rollout, Deployment.State.SUPERSEDED, code=code, by=audit.label(by))


def _end_all(rollout: Rollout, to: str, *, code: str, by: str) -> None:
    for deployment in rollout.deployments.filter(state__in=Deployment.UNDER_WAY).select_related(
        "device__line", "rollout__line"
    ):
        deployments.end(deployment, to, code=code, by=by)


def _waves(rollout: Rollout) -> list[Wave]:
    parts: dict[Any, list[Part]] = {}
    rows = rollout.deployments.values_list("stage_id", "pk", "device__code", "state", "device__seen_at")
    for stage_id, pk, code, state, seen_at in rows:
        parts.setdefault(stage_id, []).append(Part(id=pk, device=code, state=state, heard_at=seen_at))
    return [
        Wave(
            id=stage.pk,
            name=stage.name,
            state=stage.state,
            success_share=stage.success_share,
            error_share=stage.error_share,
            soak_s=stage.soak_s,
            deadline_s=stage.deadline_s,
            started_at=stage.started_at,
            soaking_at=stage.soaking_at,
            parts=parts.get(stage.pk, []),
        )
        for stage in rollout.stages.order_by("index")
    ]


def _apply(rollout: Rollout, now: datetime) -> None:
    """Ask what is due and do it, until nothing is; under the rollout's lock."""
    for _ in range(MOST_STEPS):
        steps = decide(_waves(rollout), now)
        for step in steps:
            _do(rollout, step, now)
        if not steps or rollout.state != Rollout.State.RUNNING:
            return
    raise RuntimeError(f"{rollout} does not come to rest")


def _do(rollout: Rollout, step: Step, now: datetime) -> None:
    if step.do == "expire":
        deployment = Deployment.objects.select_related("device__line", "rollout__line").get(pk=step.target)
        deployments.end(deployment, Deployment.State.EXPIRED, code="deadline", by=SYSTEM)
    elif step.do == "complete":
        done = Rollout.State.COMPLETED_WITH_EXCEPTIONS if step.exceptions else Rollout.State.COMPLETED
        lifecycle.move(rollout, done, by=SYSTEM, ended_at=now)
    else:
        _move_stage(rollout, rollout.stages.get(pk=step.target), step, now)


def _move_stage(rollout: Rollout, stage: Stage, step: Step, now: datetime) -> None:
    if step.do == "start":
        lifecycle.move(stage, Stage.State.RUNNING, by=SYSTEM, audited=False, started_at=now)
        members = stage.deployments.select_related("device__line")
        events.announce(*(topic for row in members for topic in row.device.topics()))
    elif step.do == "soak":
        lifecycle.move(stage, Stage.State.SOAKING, by=SYSTEM, audited=False, soaking_at=now)
        if stage.soak_s:
            again = timedelta(seconds=stage.soak_s, milliseconds=200).total_seconds()
            wakeups.wake("registry.tasks.advance_rollout", countdown_s=again, rollout_id=str(rollout.pk))
    elif step.do == "pass":
        lifecycle.move(stage, Stage.State.PASSED, by=SYSTEM, ended_at=now)
    elif step.do == "fail":
        lifecycle.move(
            stage, Stage.State.FAILED, by=SYSTEM, ended_at=now, reason=step.sentence["text"] % step.sentence["params"]
        )
        lifecycle.move(rollout, Rollout.State.PAUSED, by=SYSTEM, pause_sentence=step.sentence)
    else:
        raise ValueError(f"unknown step {step.do!r}")
