"""Topics: what changed, never the data. One version counter per topic; the socket carries {topic, version}.

Counters are raised right after the commit, each in a statement of its own: short locks, no deadlock between writers
that touch the same topics in another order, and nothing is announced that was rolled back.
"""

from __future__ import annotations

from functools import partial

from django.db import connection, transaction

from registry import hints
from registry.models import Topic

RAISE = """
    INSERT INTO registry_topic (name, version) SELECT unnest(%s::text[]), 1
    ON CONFLICT (name) DO UPDATE SET version = registry_topic.version + 1
    RETURNING name, version
"""


def announce(*topics: str) -> None:
    """Say that these topics changed, once the surrounding transaction has committed (at once when there is none)."""
    names = sorted(set(topics))
    if names:
        transaction.on_commit(partial(_raise, names))


def current(*topics: str) -> dict[str, int]:
    """The version of each topic now; 0 for one that never changed."""
    known = dict(Topic.objects.filter(name__in=topics).values_list("name", "version"))
    return {name: known.get(name, 0) for name in topics}


def _raise(topics: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(RAISE, [topics])
        versions = cursor.fetchall()
    hints.send(dict(versions))
