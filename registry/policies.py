"""What is allowed, as pairs: `check_can_x` raises Refused with a sentence for the user, `can_x` answers bool.

A disabled button shows `lifecycle.why_not(check_can_x, row, by=person)`. Roles are asked by `by.can(action, line)`;
a machine's label (str) may do what commands at set-up do, never what needs a person's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from registry.gates import gates
from registry.lifecycle import Refused, why_not
from registry.models import Deployment, Device, Line, Promotion, Release, Rollout, Site, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from registry.audit import Actor

NEEDS_PERSON = gettext_noop("This needs a signed-in person.")
NO_ROLE = gettext_noop("Your roles on line %(line)s do not include this. Ask an administrator of the line.")
NO_SITE_ROLE = gettext_noop("Only an administrator of a line of this site may do this.")
REASON_MISSING = gettext_noop("Write a reason.")
REASON_TOO_LONG = gettext_noop("The reason is longer than %(most)s characters.")

MOST_REASON = 2000


def check_role(line: Line, action: str, by: Actor, *, machines: bool = False) -> None:
    """Does `by` hold a role with this action on the line? `machines`: a machine's label may do it too."""
    if isinstance(by, str):
        if machines:
            return
        raise Refused(NEEDS_PERSON)
    if not by.can(action, line):  # type: ignore[attr-defined]  # the custom user of the console
        raise Refused(NO_ROLE, line=line.code)


def check_reason(reason: str) -> None:
    if not reason.strip():
        raise Refused(REASON_MISSING)
    if len(reason) > MOST_REASON:
        raise Refused(REASON_TOO_LONG, most=MOST_REASON)


def allowed(check: Callable[..., None], *args: Any, **kwargs: Any) -> bool:
    """The bool of a check."""
    return not why_not(check, *args, **kwargs)


# ------------------------------------------------------------------------------------------------ plant and devices


def check_can_administer_site(site: Site, *, by: Actor) -> None:
    if isinstance(by, str) or getattr(by, "is_superuser", False):
        return
    if not any(by.can("device.administer", line) for line in site.lines.all()):  # type: ignore[attr-defined]
        raise Refused(NO_SITE_ROLE)


def can_administer_site(site: Site, *, by: Actor) -> bool:
    return allowed(check_can_administer_site, site, by=by)


def check_can_edit_defect_book(line: Line, *, by: Actor) -> None:
    check_role(line, "book.edit", by, machines=True)


def can_edit_defect_book(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_edit_defect_book, line, by=by)


def check_can_change_settings(line: Line, *, by: Actor) -> None:
    """May this person change what the line is run by: deadline, audit rate, escape limit, window, shifts?"""
    check_role(line, "line.settings", by)


def can_change_settings(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_change_settings, line, by=by)


def check_can_administer_devices(line: Line, *, by: Actor) -> None:
    check_role(line, "device.administer", by, machines=True)


def can_administer_devices(line: Line, *, by: Actor) -> bool:
    return allowed(check_can_administer_devices, line, by=by)


DEVICE_NOT_ACTIVE = gettext_noop("Device %(name)s is %(state)s. Only an active device can be asked for pictures.")


def check_can_ask_for_pictures(device: Device, *, by: Actor) -> None:
    check_role(device.line, "capture.flag", by)
    if device.state != Device.State.ACTIVE:
        raise Refused(DEVICE_NOT_ACTIVE, name=device.code, state=device.get_state_display())


def can_ask_for_pictures(device: Device, *, by: Actor) -> bool:
    return allowed(check_can_ask_for_pictures, device, by=by)


def check_can_import_base(*, by: Actor) -> None:
    if isinstance(by, str) or getattr(by, "is_superuser", False):
        return
    if not any(by.can("base.import", line) for line in by.lines()):  # type: ignore[attr-defined]
        raise Refused(NO_SITE_ROLE)


def can_import_base(*, by: Actor) -> bool:
    return allowed(check_can_import_base, by=by)


# ---------------------------------------------------------------------------------------- versions and promotions

VERSION_IN_RELEASE = gettext_noop("Version %(name)s is in the published release %(release)s of its line.")
VERSION_ON_DEVICE = gettext_noop("Version %(name)s runs on device %(device)s, or is on its way there.")
VERSION_ASKED_FOR = gettext_noop("Promotion %(promotion)s asks for version %(name)s. Withdraw it first.")


def check_can_retire_version(version: Version, *, by: Actor) -> None:
    check_role(version.line, "promotion.request", by)
    if release := version.releases.filter(state=Release.State.PUBLISHED).first():
        raise Refused(VERSION_IN_RELEASE, name=str(version), release=str(release))
    if promotion := version.promotions.filter(state=Promotion.State.REQUESTED).first():
        raise Refused(VERSION_ASKED_FOR, name=str(version), promotion=str(promotion))
    runs = Device.objects.filter(running_digest=version.manifest_digest).exclude(state=Device.State.RETIRED).first()
    under_way = (
        Deployment.objects.filter(rollout__release__version=version, state__in=Deployment.UNDER_WAY)
        .select_related("device")
        .first()
    )
    if device := runs or (under_way and under_way.device):
        raise Refused(VERSION_ON_DEVICE, name=str(version), device=device.code)


def can_retire_version(version: Version, *, by: Actor) -> bool:
    return allowed(check_can_retire_version, version, by=by)


VERSION_NOT_READY = gettext_noop(
    "Version %(name)s is %(state)s. Only a validated or a released version can be asked for."
)
ALREADY_CHAMPION = gettext_noop("Version %(name)s is the champion already.")
PROMOTION_OPEN = gettext_noop("Promotion %(name)s of this line is still open. Only one can be open at a time.")
GATE_CLOSED = gettext_noop("Version %(name)s does not pass a check that must pass: %(gate)s")


def check_can_request_promotion(version: Version, *, by: Actor) -> None:
    check_role(version.line, "promotion.request", by)
    if version.state not in (Version.State.VALIDATED, Version.State.RELEASED):
        raise Refused(VERSION_NOT_READY, name=str(version), state=version.get_state_display())
    if version.releases.filter(state=Release.State.PUBLISHED).exists():
        raise Refused(ALREADY_CHAMPION, name=str(version))
    if standing := Promotion.objects.filter(line=version.line, state=Promotion.State.REQUESTED).first():
        raise Refused(PROMOTION_OPEN, name=str(standing))
    for gate in gates(version):
        if gate["blocking"] and not gate["passed"]:
            raise Refused(GATE_CLOSED, name=str(version), gate=str(Refused(gate["text"], **gate["params"])))


def can_request_promotion(version: Version, *, by: Actor) -> bool:
    return allowed(check_can_request_promotion, version, by=by)


NOT_OPEN = gettext_noop("Promotion %(name)s is %(state)s.")
OWN_REQUEST = gettext_noop("You requested this promotion. Somebody else must answer it.")
OWN_TRAINING = gettext_noop("You submitted the training of this version. Somebody else must answer.")
NOT_REQUESTER = gettext_noop("Only the person who requested a promotion can withdraw it.")


def check_can_answer_promotion(promotion: Promotion, *, by: Actor) -> None:
    """Approve or reject: an approver of the line who neither asked for it nor trained it."""
    check_role(promotion.line, "promotion.approve", by)
    if promotion.state != Promotion.State.REQUESTED:
        raise Refused(NOT_OPEN, name=str(promotion), state=promotion.get_state_display())
    if promotion.requested_by_id == by.pk:  # type: ignore[union-attr]  # check_role lets persons through only
        raise Refused(OWN_REQUEST)
    if promotion.version.trained_by_id == by.pk:  # type: ignore[union-attr]
        raise Refused(OWN_TRAINING)


def can_answer_promotion(promotion: Promotion, *, by: Actor) -> bool:
    return allowed(check_can_answer_promotion, promotion, by=by)


def check_can_withdraw_promotion(promotion: Promotion, *, by: Actor) -> None:
    if isinstance(by, str) or promotion.requested_by_id != by.pk:
        raise Refused(NOT_REQUESTER)
    if promotion.state != Promotion.State.REQUESTED:
        raise Refused(NOT_OPEN, name=str(promotion), state=promotion.get_state_display())


def can_withdraw_promotion(promotion: Promotion, *, by: Actor) -> bool:
    return allowed(check_can_withdraw_promotion, promotion, by=by)


# ------------------------------------------------------------------------------------------------ rollouts

RELEASE_NOT_PUBLISHED = gettext_noop(
    "Release %(name)s is %(state)s. Only the published release of a line can be rolled out."
)
ALREADY_ROLLING = gettext_noop("Rollout %(name)s of this release has not ended.")
NO_TARGETS = gettext_noop("Line %(line)s has no active device. There is nothing to roll out to.")


def check_can_start_rollout(release: Release, *, by: Actor) -> None:
    check_role(release.line, "rollout.operate", by)
    if release.state != Release.State.PUBLISHED:
        raise Refused(RELEASE_NOT_PUBLISHED, name=str(release), state=release.get_state_display())
    if standing := release.rollouts.filter(state__in=(Rollout.State.RUNNING, Rollout.State.PAUSED)).first():
        raise Refused(ALREADY_ROLLING, name=str(standing))
    if not Device.objects.filter(line=release.line, state=Device.State.ACTIVE).exists():
        raise Refused(NO_TARGETS, line=release.line.code)


def can_start_rollout(release: Release, *, by: Actor) -> bool:
    return allowed(check_can_start_rollout, release, by=by)


ROLLOUT_STATE = gettext_noop("Rollout %(name)s is %(state)s.")


def check_can_pause_rollout(rollout: Rollout, *, by: Actor) -> None:
    check_role(rollout.line, "rollout.operate", by)
    if rollout.state != Rollout.State.RUNNING:
        raise Refused(ROLLOUT_STATE, name=str(rollout), state=rollout.get_state_display())


def can_pause_rollout(rollout: Rollout, *, by: Actor) -> bool:
    return allowed(check_can_pause_rollout, rollout, by=by)


def check_can_resume_rollout(rollout: Rollout, *, by: Actor) -> None:
    check_role(rollout.line, "rollout.operate", by)
    if rollout.state != Rollout.State.PAUSED:
        raise Refused(ROLLOUT_STATE, name=str(rollout), state=rollout.get_state_display())
    if rollout.release.state != Release.State.PUBLISHED:
        raise Refused(RELEASE_NOT_PUBLISHED, name=str(rollout.release), state=rollout.release.get_state_display())


def can_resume_rollout(rollout: Rollout, *, by: Actor) -> bool:
    return allowed(check_can_resume_rollout, rollout, by=by)


def check_can_stop_rollout(rollout: Rollout, *, by: Actor) -> None:
    check_role(rollout.line, "rollout.operate", by)
    if rollout.state not in (Rollout.State.RUNNING, Rollout.State.PAUSED):
        raise Refused(ROLLOUT_STATE, name=str(rollout), state=rollout.get_state_display())


def can_stop_rollout(rollout: Rollout, *, by: Actor) -> bool:
    return allowed(check_can_stop_rollout, rollout, by=by)
