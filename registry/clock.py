"""The one clock of leases: the database's. Workers on several machines never compare their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from django.db import connection

if TYPE_CHECKING:
    from datetime import datetime


def now_db() -> datetime:
    """The database's time now (not the transaction's start), aware."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", cursor.fetchone()[0])
