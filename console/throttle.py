"""How often somebody may try a password: per name and address, per name, per address. Counted in the shared cache."""

from __future__ import annotations

import hashlib

from django.core.cache import cache
from django.utils.translation import gettext_noop

from registry.lifecycle import Refused

WINDOW_S = 15 * 60
TRIES_PER_NAME_AND_ADDRESS = 5
TRIES_PER_NAME = 20
TRIES_PER_ADDRESS = 60  # many people share one address behind a line's gateway

TOO_MANY = gettext_noop("Too many wrong passwords. Wait %(minutes)d minutes, or ask a site administrator.")


def check(name: str, address: str) -> None:
    """Raises Refused when this name or address has failed too often within the last quarter of an hour."""
    counts = cache.get_many(_limits(name, address))
    if any(counts.get(key, 0) >= most for key, most in _limits(name, address).items()):
        raise Refused(TOO_MANY, minutes=WINDOW_S // 60)


def failed(name: str, address: str) -> None:
    """Count a wrong password. The window starts with the first one and is not prolonged by further tries."""
    for key in _limits(name, address):
        if not cache.add(key, 1, WINDOW_S):
            try:
                cache.incr(key)
            except ValueError:  # expired in between
                cache.set(key, 1, WINDOW_S)


def passed(name: str, address: str) -> None:
    """A right password clears the name at this address, not the address: guessing other names still counts."""
    pair, *_others = _limits(name, address)
    cache.delete(pair)


def _limits(name: str, address: str) -> dict[str, int]:
    def key(*parts: str) -> str:
        return "sign-in." + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    name = name.strip().lower()
    return {
        key("pair", name, address): TRIES_PER_NAME_AND_ADDRESS,
        key("name", name): TRIES_PER_NAME,
        key("address", address): TRIES_PER_ADDRESS,
    }
