"""Keys of rows: UUIDv7, so that new rows land at the end of an index and ids sort by time."""

from __future__ import annotations

import uuid

import uuid_utils.compat


def new_id() -> uuid.UUID:
    """A fresh UUIDv7 as the standard library's type (which has no UUIDv7 before Python 3.14)."""
    return uuid_utils.compat.uuid7()
