"""Counts that pages show, per line: changed in the transaction of the rows that they count, recounted at night.

A package that owns rows says how to count them: `@counters.counted("captures_new")` above a function of the line.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.db import connection, transaction

from registry.models import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from registry.models import Line

log = logging.getLogger(__name__)

ADD = """
    INSERT INTO registry_counter (line_id, name, value) VALUES (%s, %s, %s)
    ON CONFLICT (line_id, name) DO UPDATE SET value = registry_counter.value + EXCLUDED.value
"""
SET = """
    INSERT INTO registry_counter (line_id, name, value) VALUES (%s, %s, %s)
    ON CONFLICT (line_id, name) DO UPDATE SET value = EXCLUDED.value
"""

_counts: dict[str, Callable[[Line], int]] = {}


def counted(name: str) -> Callable[[Callable[[Line], int]], Callable[[Line], int]]:
    """Register how the counter `name` is counted from its rows."""

    def keep(count: Callable[[Line], int]) -> Callable[[Line], int]:
        _counts[name] = count
        return count

    return keep


def add(line: Line, name: str, delta: int = 1) -> None:
    """Raise (or lower) a counter; call it in the transaction that changes the rows."""
    if delta:
        with connection.cursor() as cursor:
            cursor.execute(ADD, [line.pk, name, delta])


def put(line: Line, name: str, value: int) -> None:
    """Set a counter, for counts that start again (decided since the last snapshot)."""
    with connection.cursor() as cursor:
        cursor.execute(SET, [line.pk, name, value])


def value(line: Line, name: str) -> int:
    """The count now; 0 for one that was never raised."""
    return Counter.objects.filter(line=line, name=name).values_list("value", flat=True).first() or 0


def values(line: Line) -> dict[str, int]:
    """All counts of a line by name, in one query."""
    return dict(Counter.objects.filter(line=line).values_list("name", "value"))


def recount(line: Line) -> dict[str, tuple[int, int]]:
    """Count all registered counters of a line again; returns {name: (was, is)} of those that were wrong, and logs them.

    The counter's row is locked while its rows are counted, so that nothing is added between counting and setting.
    """
    wrong: dict[str, tuple[int, int]] = {}
    for name, count in _counts.items():
        with transaction.atomic():
            add_zero(line, name)
            was = Counter.objects.select_for_update().get(line=line, name=name).value
            found = count(line)
            if found != was:
                put(line, name, found)
                wrong[name] = (was, found)
                log.warning("counter %s of line %s was %d and is %d", name, line.code, was, found)
    return wrong


def add_zero(line: Line, name: str) -> None:
    """Make the counter's row exist."""
    with connection.cursor() as cursor:
        cursor.execute(ADD, [line.pk, name, 0])
