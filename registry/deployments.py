"""One device's part of a rollout: what it is offered, what it reports. Only its own report makes it COMMITTED."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from edge import protocol
from registry import bases, lifecycle, wakeups
from registry.lifecycle import Refused
from registry.models import Deployment, DeploymentStep, Device, Rollout, Stage

if TYPE_CHECKING:
    from registry.models import Release, Version

NOT_YOURS = gettext_noop("This device has no such deployment.")
BAD_REPORT = gettext_noop("The report's %(field)s is not what the protocol allows.")

WAY = ("PENDING", "OFFERED", "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED")
GOES_ON = (Stage.State.RUNNING, Stage.State.SOAKING, Stage.State.PASSED, Stage.State.FAILED)
MOST_PARAMS = 20


class NotFound(Refused):
    """No such deployment for this device; whether another device has it is not said."""


def next_for(device: Device) -> dict[str, Any] | None:
    """What this device shall install (protocol.Assignment), or None. Being told makes a PENDING deployment OFFERED."""
    if device.state != Device.State.ACTIVE:
        return None
    deployment = _under_way(device)
    if deployment is not None:
        if deployment.rollout.state != Rollout.State.RUNNING or deployment.stage.state not in GOES_ON:
            return None
        if deployment.state == Deployment.State.PENDING:
            try:
                with transaction.atomic():
                    lifecycle.move(
                        deployment,
                        Deployment.State.OFFERED,
                        by=_label(device),
                        audited=False,
                        only_from=(Deployment.State.PENDING,),
                        offered_at=timezone.now(),
                    )
                    DeploymentStep.objects.create(deployment=deployment, state=deployment.state)
            except Refused:
                return None  # it ended at this moment
        return _assignment(deployment)
    if device.running_digest:
        return None
    # The device has nothing although it had committed: its disk was lost or changed. What it shall run stands.
    last = _latest(device)
    return _assignment(last) if last is not None and last.state == Deployment.State.COMMITTED else None


def is_busy(device: Device) -> bool:
    """Has the device something to install, now or as soon as its stage starts?"""
    return Deployment.objects.filter(
        device=device, state__in=Deployment.UNDER_WAY, rollout__state=Rollout.State.RUNNING
    ).exists()


def report(device: Device, message: dict[str, Any]) -> dict[str, Any]:
    """Take a report (protocol.Report); returns protocol.ReportResponse.

    Repeated and late reports change nothing. A report that was lost is caught up with: the states in between are
    walked through. An ended deployment never moves again, but for COMMITTED -> FELL_BACK. Raises NotFound for a
    deployment that is not this device's.
    """
    _check(message)
    with transaction.atomic():
        deployment = _lock(device, message["deployment"])
        sequence, to = message["sequence"], message["state"]
        if sequence > deployment.sequence:
            code, params = message.get("code") or "", message.get("params") or {}
            if (
                to == Deployment.State.COMMITTED
                and message.get("loaded_digest") != deployment.rollout.release.manifest_digest
            ):
                to, code, params = (
                    Deployment.State.FAILED,
                    "other_bytes",
                    {"loaded": message.get("loaded_digest") or ""},
                )
            _keep_figures(deployment, message, sequence)
            DeploymentStep.objects.create(
                deployment=deployment, state=message["state"], sequence=sequence, code=code, params=params
            )
            _walk(deployment, to, code=code, params=params, by=_label(device))
        Device.objects.filter(pk=device.pk).update(seen_at=timezone.now())
        return {"status": "ok", "wanted": _wanted(device, deployment)}


def end(deployment: Deployment, to: str, *, code: str, by: str, params: dict[str, Any] | None = None) -> bool:
    """End a deployment that is under way without the device's word (superseded, expired); False when it just ended."""
    now = timezone.now()
    try:
        with transaction.atomic():
            lifecycle.move(
                deployment,
                to,
                by=by,
                audited=False,
                only_from=Deployment.UNDER_WAY,
                code=code,
                params=params or {},
                ended_at=now,
            )
            DeploymentStep.objects.create(deployment=deployment, state=to, code=code, params=params or {})
    except Refused:
        return False
    return True


def allowed_digests(device: Device) -> set[str]:
    """Digests of the blobs that this device may fetch: of the release offered to it, else of its committed one."""
    if device.state != Device.State.ACTIVE:
        return set()
    deployment = _under_way(device)
    if deployment is None or deployment.state == Deployment.State.PENDING:
        deployment = _latest(device, Deployment.State.COMMITTED)
    if deployment is None:
        return set()
    release = deployment.rollout.release
    return {release.manifest_digest, *release_files(release.version)}


def release_files(version: Version) -> dict[str, int]:
    """Digest -> bytes of what a device fetches beside the manifest: parts, and the base's map, graph and targets."""
    parts = {part["digest"]: part["bytes"] for part in version.manifest["parts"].values()}
    return parts | bases.digests(version.base)


# ------------------------------------------------------------------------------------------------ details


def _under_way(device: Device) -> Deployment | None:
    """At most one, as a database constraint says."""
    return (
        Deployment.objects.filter(device=device, state__in=Deployment.UNDER_WAY)
        .select_related("rollout__release__version__base", "rollout__line", "stage")
        .first()
    )


def _latest(device: Device, *states: str) -> Deployment | None:
    rows = Deployment.objects.filter(device=device).select_related("rollout__release__version__base", "rollout__line")
    return (rows.filter(state__in=states) if states else rows).order_by("-created_at", "-id").first()


def _assignment(deployment: Deployment) -> dict[str, Any]:
    release: Release = deployment.rollout.release
    return {
        "deployment": str(deployment.pk),
        "release_number": release.number,
        "manifest_digest": release.manifest_digest,
        "manifest_bytes": release.manifest_bytes,
        "sequence": deployment.sequence,
    }


def _check(message: dict[str, Any]) -> None:
    if message["state"] not in protocol.DEPLOYMENT_STATES:
        raise Refused(BAD_REPORT, field="state")
    if not 0 < message["sequence"] < 2**63:
        raise Refused(BAD_REPORT, field="sequence")
    if len(message.get("code") or "") > 64:
        raise Refused(BAD_REPORT, field="code")
    params = message.get("params") or {}
    if len(params) > MOST_PARAMS or any(len(str(value)) > 500 for value in params.values()):
        raise Refused(BAD_REPORT, field="params")
    if min(message["delivered_bytes"], message["base_bytes"]) < 0:
        raise Refused(BAD_REPORT, field="delivered_bytes")


def _lock(device: Device, deployment_id: str) -> Deployment:
    try:
        key = uuid.UUID(deployment_id)
    except ValueError as error:
        raise NotFound(NOT_YOURS) from error
    row = (
        Deployment.objects.select_for_update(of=("self",), no_key=True)
        .select_related("rollout__release", "rollout__line", "stage", "device__line")
        .filter(pk=key, device=device)
        .first()
    )
    if row is None:
        raise NotFound(NOT_YOURS)
    return row


def _keep_figures(deployment: Deployment, message: dict[str, Any], sequence: int) -> None:
    """Bytes that were fetched count even when the report comes late; they never fall."""
    lifecycle.touch(
        deployment,
        sequence=sequence,
        delivered_bytes=max(deployment.delivered_bytes, message["delivered_bytes"]),
        base_bytes=max(deployment.base_bytes, message["base_bytes"]),
        loaded_digest=(message.get("loaded_digest") or deployment.loaded_digest)[:64],
    )


def _walk(deployment: Deployment, to: str, *, code: str, params: dict[str, Any], by: str) -> None:
    """Move to the reported state through those in between; stay where a late report would lead back."""
    if to in WAY:
        if deployment.state not in WAY:
            return
        for step in WAY[WAY.index(deployment.state) + 1 : WAY.index(to) + 1]:
            ends = step == Deployment.State.COMMITTED
            fields: dict[str, Any] = {"ended_at": timezone.now(), "code": "", "params": {}} if ends else {}
            lifecycle.move(deployment, step, by=by, audited=ends, **fields)
    elif to in deployment.MOVES[deployment.state]:
        lifecycle.move(deployment, to, by=by, code=code, params=params, ended_at=timezone.now())
    else:
        return
    if deployment.state not in Deployment.UNDER_WAY:
        if deployment.state == Deployment.State.COMMITTED:
            release = deployment.rollout.release
            Device.objects.filter(pk=deployment.device_id).update(
                running_digest=release.manifest_digest, running_number=release.number
            )
        wakeups.wake("registry.tasks.advance_rollout", rollout_id=str(deployment.rollout_id))


def _wanted(device: Device, deployment: Deployment) -> bool:
    """May the device go on? Asked for at every step, so that a pause reaches it before it switches."""
    if deployment.state == Deployment.State.COMMITTED:
        return True
    return (
        device.state == Device.State.ACTIVE
        and deployment.state in Deployment.UNDER_WAY
        and deployment.rollout.state == Rollout.State.RUNNING
    )


def _label(device: Device) -> str:
    return f"device:{device.code}"
