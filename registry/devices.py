"""Devices: enrolled once by a one-time token, known by their own key from then on, heard at every check-in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext_noop

from edge import protocol
from registry import audit, deployments, events, lifecycle, policies
from registry.lifecycle import Refused
from registry.models import Deployment, Device, Station

if TYPE_CHECKING:
    from registry.audit import Actor
    from registry.models import Line

TOKEN_LIFETIME = timedelta(hours=24)
POLL_S = 5.0  # of a quiet device
POLL_BUSY_S = 2.0  # of a device that has something to install
CHECK_INS_PER_S = 300  # what one console answers comfortably; larger fleets are told to come less often
SILENT_AFTER = timedelta(seconds=90)
MOST_ASKED = 1000

CODE_INVALID = gettext_noop("%(code)s is no device code. Use letters, digits, hyphens and underscores.")
CODE_TAKEN = gettext_noop("Device %(code)s exists already.")
OTHER_LINE = gettext_noop("Station %(station)s is not on line %(line)s.")
RETIRED = gettext_noop("Device %(name)s is retired. Create a new one.")
KEY_TAKEN = gettext_noop("Another device has this key. Remove key.pem on the copied device and enrol it again.")
KEY_INVALID = gettext_noop("The public key is not an ed25519 key of 32 bytes in base64.")
ASK_RANGE = gettext_noop("Ask for 1 to %(most)s pictures.")


class NotKnown(Exception):
    """No such device, token or signature: nothing more is said to whoever asks."""


class BadNonce(Exception):
    """The request is signed over another nonce or an old counter: take `nonce`, count from 1, try again once."""

    def __init__(self, nonce: str) -> None:
        super().__init__("another nonce is wanted")
        self.nonce = nonce


def create(line: Line, station: Station, *, code: str, by: Actor) -> tuple[Device, str]:
    """A device to be enrolled, and its one-time token, which is shown once and stored as a digest."""
    policies.check_can_administer_devices(line, by=by)
    if station.line_id != line.pk:
        raise Refused(OTHER_LINE, station=station.code, line=line.code)
    if not code or slugify(code) != code.lower():
        raise Refused(CODE_INVALID, code=code)
    token = _fresh_token()
    try:
        with transaction.atomic():
            device = Device.objects.create(
                line=line,
                station=station,
                code=code,
                token_digest=_digest(token),
                token_expires_at=timezone.now() + TOKEN_LIFETIME,
            )
            audit.record(by, "device.create", device, new={"code": code, "station": station.code})
            events.announce(*device.topics())
    except IntegrityError as error:
        raise Refused(CODE_TAKEN, code=code) from error
    return device, token


def new_token(device: Device, *, by: Actor) -> str:
    """Another one-time token: for one that expired, or a device set up anew. The key known so far works until then."""
    policies.check_can_administer_devices(device.line, by=by)
    if device.state == Device.State.RETIRED:
        raise Refused(RETIRED, name=device.code)
    token = _fresh_token()
    with transaction.atomic():
        lifecycle.touch(device, token_digest=_digest(token), token_expires_at=timezone.now() + TOKEN_LIFETIME)
        audit.record(by, "device.token", device)
    return token


def enrol(
    *, token: str, public_key: str, hardware: dict[str, Any], agent_version: str, now: datetime
) -> tuple[Device, str]:
    """Spend the token and keep the device's key; returns the device and its first nonce.

    Raises NotKnown for a token that is unknown, spent or expired. The same key may spend its token again (its answer
    may have been lost on the way); another key may not.
    """
    _check_key(public_key)
    with transaction.atomic():
        device = (
            Device.objects.select_for_update(no_key=True, of=("self",))
            .select_related("line__site", "station")
            .filter(token_digest=_digest(token))
            .exclude(state=Device.State.RETIRED)
            .first()
        )
        if device is None:
            raise NotKnown
        again = device.token_expires_at is None and device.public_key == public_key
        if not again and (device.token_expires_at is None or device.token_expires_at <= now):
            raise NotKnown
        if Device.objects.filter(public_key=public_key).exclude(pk=device.pk).exists():
            raise Refused(KEY_TAKEN)
        lifecycle.touch(
            device,
            public_key=public_key,
            token_expires_at=None,
            hardware=hardware,
            agent_version=agent_version[:32],
            seen_at=now,
        )
        if device.state == Device.State.ENROLLED:
            lifecycle.move(device, Device.State.ACTIVE, by=_label(device))
        elif not again:
            audit.record(_label(device), "device.enrol", device)
        return device, new_nonce(device)


def new_nonce(device: Device | str) -> str:
    """The nonce to sign over from now, counter from 1. One that was not used yet is given again. Raises NotKnown."""
    if isinstance(device, str):
        device = _find(device)
    if device.nonce and device.nonce_counter == 0:
        return device.nonce
    fresh = secrets.token_urlsafe(24)
    Device.objects.filter(pk=device.pk).update(nonce=fresh, nonce_counter=0)
    device.nonce, device.nonce_counter = fresh, 0
    return fresh


def authenticate(
    device_id: str, *, nonce: str, counter: int, digest: str, signature: str, method: str, path: str
) -> Device:
    """The device that signed this. Raises NotKnown (no such device, or not its signature) or BadNonce (replayed).

    The counter is taken by one compare-and-set: of two copies of a request, one gets through.
    """
    device = _find(device_id)
    signed = protocol.signing_text(method, path, device_id, nonce, counter, digest)
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(device.public_key))
        key.verify(base64.b64decode(signature, validate=True), signed)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise NotKnown from error
    taken = 0 < counter < 2**63 and Device.objects.filter(pk=device.pk, nonce=nonce, nonce_counter__lt=counter).update(
        nonce_counter=counter
    )
    if not taken:
        device.refresh_from_db(fields=("nonce", "nonce_counter"))
        raise BadNonce(new_nonce(device))
    device.nonce_counter = counter
    return device


def check_in(device: Device, message: dict[str, Any]) -> dict[str, Any]:
    """Keep what the device says of itself (protocol.CheckIn) and answer (protocol.CheckInResponse)."""
    now = timezone.now()
    running = message["running"]
    told = {
        "running_digest": running["release_digest"] or "",
        "running_number": running["release_number"],
        "base_digest": running["base_digest"] or "",
        "counts": message["counts"],
        "outbox_waiting": max(0, message["outbox"]["waiting"]),
        "outbox_bytes": max(0, message["outbox"]["bytes"]),
        "free_bytes": message["free_bytes"],
        "agent_version": message["agent_version"][:32],
    }
    asked = device.flag_next
    news = is_silent(device, now) or any(getattr(device, name) != value for name, value in told.items())
    fields = {**told, "seen_at": now, "clock_offset_s": _clock_offset_s(message["taken_at"], now)}
    with transaction.atomic():
        Device.objects.filter(pk=device.pk).update(**fields)
        # Told once: the agent counts down by itself, and a repeated number would ask for the pictures again.
        if asked and not Device.objects.filter(pk=device.pk, flag_next=asked).update(flag_next=0):
            asked = 0  # asked for more at this very moment: the next check-in tells the sum
        if news:
            events.announce(*device.topics())
    for name, value in fields.items():
        setattr(device, name, value)
    assignment = deployments.next_for(device)
    return {
        "assignment": assignment,
        "policy": {"audit_rate": device.line.audit_rate, "flag_next": asked},
        "poll_s": poll_s(busy=deployments.is_busy(device)),
        "time": now.isoformat(),
    }


def poll_s(*, busy: bool) -> float:
    """Seconds until the next check-in: soon when there is something to install, rarer in a fleet of thousands."""
    return max(POLL_BUSY_S if busy else POLL_S, _fleet_size() / CHECK_INS_PER_S)


def quarantine(device: Device, *, by: Actor, reason: str) -> None:
    """Give the device nothing any more; its pictures and reports are still taken."""
    policies.check_can_administer_devices(device.line, by=by)
    policies.check_reason(reason)
    lifecycle.move(device, Device.State.QUARANTINED, by=by, reason=reason)


def activate(device: Device, *, by: Actor, reason: str) -> None:
    """Take a device out of quarantine."""
    policies.check_can_administer_devices(device.line, by=by)
    policies.check_reason(reason)
    lifecycle.move(device, Device.State.ACTIVE, by=by, reason=reason, only_from=(Device.State.QUARANTINED,))


def retire(device: Device, *, by: Actor, reason: str) -> None:
    """Never hear of this device again: its key and its token are worth nothing from now."""
    policies.check_can_administer_devices(device.line, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        lifecycle.move(
            device,
            Device.State.RETIRED,
            by=by,
            reason=reason,
            public_key="",
            token_digest="",
            token_expires_at=None,
            nonce="",
        )
        for row in Deployment.objects.filter(device=device, state__in=Deployment.UNDER_WAY):
            deployments.end(row, Deployment.State.SUPERSEDED, code="device_retired", by=audit.label(by))


def ask_for_pictures(device: Device, *, count: int, by: Actor) -> None:
    """Ask for the next `count` pictures whatever the model says of them; the device hears it at its next check-in."""
    policies.check_can_ask_for_pictures(device, by=by)
    if not 1 <= count <= MOST_ASKED:
        raise Refused(ASK_RANGE, most=MOST_ASKED)
    with transaction.atomic():
        lifecycle.touch(device, flag_next=count)
        audit.record(by, "device.ask", device, new={"pictures": count})


def is_silent(device: Device, now: datetime) -> bool:
    """Nothing was heard for so long that somebody should look; a device that was never heard is not silent but new."""
    return device.seen_at is not None and now - device.seen_at > SILENT_AFTER


# ------------------------------------------------------------------------------------------------ details


def _fleet_size() -> int:
    """Active devices, counted at most every half minute: ten thousand check-ins must not each count them all."""
    size = cache.get("registry.fleet_size")
    if size is None:
        size = Device.objects.filter(state=Device.State.ACTIVE).count()
        cache.set("registry.fleet_size", size, 30)
    return int(size)


def _find(device_id: str) -> Device:
    try:
        known = (
            Device.objects.select_related("line__site", "station")
            .filter(~Q(public_key=""), pk=uuid.UUID(device_id))
            .exclude(state=Device.State.RETIRED)
            .first()
        )
    except (ValueError, AttributeError, TypeError, ValidationError) as error:
        raise NotKnown from error
    if known is None:
        raise NotKnown
    return known


def _check_key(public_key: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
    except (binascii.Error, ValueError) as error:
        raise Refused(KEY_INVALID) from error


def _clock_offset_s(taken_at: str, now: datetime) -> float:
    try:
        said = datetime.fromisoformat(taken_at)
    except ValueError:
        return 0.0
    if said.tzinfo is None:
        said = said.replace(tzinfo=UTC)
    return round((said - now).total_seconds(), 3)


def _label(device: Device) -> str:
    return f"device:{device.code}"


def _fresh_token() -> str:
    return secrets.token_hex(32)  # hex: people type it after `--token`, where a leading dash would be an option


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
