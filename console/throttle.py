"""How often somebody may try a password: per name and address, per name, per address.

Counted in the database, so that every web process knows, and a restart forgets nothing.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_noop

from console.models import SignInTries
from registry.lifecycle import Refused

WINDOW = timedelta(minutes=15)
TRIES_PER_NAME_AND_ADDRESS = 5
TRIES_PER_NAME = 20
TRIES_PER_ADDRESS = 60  # many people share one address behind a line's gateway

TOO_MANY = gettext_noop("Too many wrong passwords. Wait %(minutes)d minutes, or ask a site administrator.")


def check(name: str, address: str) -> None:
    """Raises Refused when this name or address has failed too often within the last quarter of an hour."""
    limits = _limits(name, address)
    for tries in SignInTries.objects.filter(key__in=limits, until__gt=timezone.now()):
        if tries.count >= limits[tries.key]:
            raise Refused(TOO_MANY, minutes=WINDOW.seconds // 60)


def failed(name: str, address: str) -> None:
    """Count a wrong password. The window starts with the first one and is not prolonged by further tries."""
    now = timezone.now()
    SignInTries.objects.filter(until__lte=now).delete()
    for key in _limits(name, address):
        _, first = SignInTries.objects.get_or_create(key=key, defaults={"until": now + WINDOW})
        if not first:
            SignInTries.objects.filter(key=key).update(count=F("count") + 1)


def passed(name: str, address: str) -> None:
    """A right password clears the name at this address, not the address: guessing other names still counts."""
    pair, *_others = _limits(name, address)
    SignInTries.objects.filter(key=pair).delete()


def _limits(name: str, address: str) -> dict[str, int]:
    def key(*parts: str) -> str:
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    name = name.strip().lower()
    return {
        key("pair", name, address): TRIES_PER_NAME_AND_ADDRESS,
        key("name", name): TRIES_PER_NAME,
        key("address", address): TRIES_PER_ADDRESS,
    }
