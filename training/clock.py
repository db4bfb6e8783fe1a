"""The database's clock inside a query: leases are compared where they are stored, so that workers whose own clocks
differ agree on who holds what."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, Func, Value

if TYPE_CHECKING:
    from django.db.models.expressions import Combinable


class DatabaseNow(Func):
    """`clock_timestamp()`: moves on inside a transaction, unlike `now()`."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


def seconds_from_now(seconds: float) -> Combinable:
    """A point in time as an expression, for `filter` and `update`."""
    span = Value(timedelta(seconds=seconds), output_field=DurationField())
    return cast("Combinable", ExpressionWrapper(DatabaseNow() + span, output_field=DateTimeField()))
