"""Promotions: somebody asks for a version to become the line's release, somebody else answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import audit, events, lifecycle, numbers, policies, releases, versions
from registry.gates import gates
from registry.lifecycle import Refused
from registry.models import Approval, Line, Promotion

if TYPE_CHECKING:
    from registry.models import Release, Version

__all__ = ["approve", "expire", "gates", "reject", "request", "withdraw"]

LIFETIME = timedelta(days=7)

OPENED_MEANWHILE = gettext_noop("Another promotion of this line was opened at the same moment. Reload the page.")
SEEN_OTHER = gettext_noop("What you saw is not what is asked for. Reload the page and look again.")
OVER = gettext_noop("Promotion %(name)s has expired. Ask for it again.")


def request(version: Version, *, reason: str, by: Any) -> Promotion:
    """Ask for the version to be released. Its bytes are read again now, and again when somebody approves."""
    policies.check_can_request_promotion(version, by=by)
    policies.check_reason(reason)
    versions.check_bytes(version)
    try:
        with transaction.atomic():
            Line.objects.select_for_update(no_key=True).get(pk=version.line_id)
            version.refresh_from_db()
            policies.check_can_request_promotion(version, by=by)
            promotion = Promotion.objects.create(
                line=version.line,
                number=numbers.next_number(version.line.site, "promotion"),
                version=version,
                manifest_digest=version.manifest_digest,
                reason=reason.strip(),
                requested_by=by,
                expires_at=timezone.now() + LIFETIME,
            )
            new = {"version": version.number, "manifest": version.manifest_digest}
            audit.record(by, "promotion.request", promotion, new=new, reason=reason)
            events.announce(*promotion.topics(), *version.topics())
    except IntegrityError as error:
        raise Refused(OPENED_MEANWHILE) from error
    return promotion


def approve(promotion: Promotion, *, reason: str, by: Any, seen_digest: str) -> Release:
    """Approve what stood on the page (`seen_digest`): publishes the next release of the line and supersedes the former.

    Whoever asked for it or submitted its training cannot approve. The bytes are read once more; when they are not those
    that were checked, the promotion becomes VOIDED and Refused says why.
    """
    policies.check_can_answer_promotion(promotion, by=by)
    policies.check_reason(reason)
    if seen_digest != promotion.manifest_digest or promotion.version.manifest_digest != promotion.manifest_digest:
        raise Refused(SEEN_OTHER)
    if promotion.expires_at <= timezone.now():
        raise Refused(OVER, name=str(promotion))
    try:
        versions.check_bytes(promotion.version)
    except Refused as changed:
        _end(promotion, Promotion.State.VOIDED, by="system", reason=changed.text % changed.params)
        raise
    with transaction.atomic():
        Line.objects.select_for_update(no_key=True).get(pk=promotion.line_id)
        promotion.version.refresh_from_db()
        if promotion.version.manifest_digest != promotion.manifest_digest:
            raise Refused(SEEN_OTHER)
        _end(promotion, Promotion.State.APPROVED, by=by, reason=reason)
        _answer(promotion, Approval.Meaning.APPROVE, reason=reason, by=by)
        return releases.publish(promotion, by=by)


def reject(promotion: Promotion, *, reason: str, by: Any) -> None:
    """Say no, with a reason. The version stays validated and may be asked for again."""
    policies.check_can_answer_promotion(promotion, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        _end(promotion, Promotion.State.REJECTED, by=by, reason=reason)
        _answer(promotion, Approval.Meaning.REJECT, reason=reason, by=by)


def withdraw(promotion: Promotion, *, by: Any, reason: str = "") -> None:
    """Take one's own request back."""
    policies.check_can_withdraw_promotion(promotion, by=by)
    _end(promotion, Promotion.State.WITHDRAWN, by=by, reason=reason)


def expire(now: datetime) -> int:
    """End the promotions that nobody answered in time; returns how many."""
    ended = 0
    for promotion in Promotion.objects.filter(state=Promotion.State.REQUESTED, expires_at__lte=now).select_related(
        "line"
    ):
        try:
            _end(promotion, Promotion.State.EXPIRED, by="system")
        except Refused:
            continue  # somebody answered at this very moment
        ended += 1
    return ended


def _end(promotion: Promotion, to: str, *, by: Any, reason: str = "") -> None:
    lifecycle.move(promotion, to, by=by, reason=reason, ended_at=timezone.now())
    events.announce(*promotion.version.topics())


def _answer(promotion: Promotion, meaning: str, *, reason: str, by: Any) -> None:
    Approval.objects.create(
        promotion=promotion,
        by=by,
        meaning=meaning,
        reason=reason.strip(),
        manifest_digest=promotion.manifest_digest,
    )
