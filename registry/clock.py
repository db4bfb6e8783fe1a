"""The one clock of leases: the database's, as a value and inside a query, so that workers whose own clocks differ agree
on who holds what."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, Func, Value

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models.expressions import Combinable


def now_db() -> datetime:
    """The database's time now (not the transaction's start), aware."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast("datetime", cursor.fetchone()[0])


class DatabaseNow(Func):
    """`clock_timestamp()`: moves on inside a transaction, unlike `now()`."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def seconds_from_now(seconds: float) -> Combinable:
    """A point in time as an expression, for `filter` and `update`."""
    span = Value(timedelta(seconds=seconds), output_field=DurationField())
    return cast("Combinable", ExpressionWrapper(DatabaseNow() + span, output_field=DateTimeField()))
