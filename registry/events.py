"""Topics: what changed, never the data. One version counter per topic; the socket carries {topic, version}.

Counters are raised right after the commit, each in a statement of its own: short locks, no deadlock between writers
that touch the same topics in another order, and nothing is announced that was rolled back.
"""

from __future__ import annotations

import logging
from functools import partial

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import connection, transaction
from redis.exceptions import RedisError

from registry.models import Topic

log = logging.getLogger(__name__)

RAISE = """
    INSERT INTO registry_topic (name, version) SELECT unnest(%s::text[]), 1
    ON CONFLICT (name) DO UPDATE SET version = registry_topic.version + 1
    RETURNING name, version
"""


def group_name(topic: str) -> str:
    """The channel-layer group of a topic (letters, digits, '-', '_', '.'; at most 99 characters)."""
    return f"t.{topic}"[:99]


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
    layer = get_channel_layer()
    if layer is None:
        return
    for topic, version in versions:
        try:
            async_to_sync(layer.group_send)(
                group_name(topic), {"type": "topic.changed", "topic": topic, "version": version}
            )
        except (OSError, RedisError) as error:
            # The hint is lost, the counter is not: pages check versions on focus and every 30 s.
            log.warning("topic %s not announced: %s", topic, error)
            return
