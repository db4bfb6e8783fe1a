"""The one websocket consumer: topics and versions, no HTML, no domain logic.

A client sends {"subscribe": [topics]}; each topic's line (its first dotted part) must be one of the person's lines. It
is answered {"topic", "version"} at once and on every change, at most four times a second and topic. Both sides ping.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from importlib import import_module
from typing import Any

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

from registry import events, hints

SIGNED_OUT = 4401  # close code: the session ended; the page shows the sign-in page
TOO_MUCH = 4429
PING_S = 15.0
SILENT_S = 45.0  # a client that answers no ping for this long is gone
RECHECK_S = 60.0
SPACING_S = 0.25
MOST_TOPICS = 200


def line_of(topic: str) -> str:
    """The line that a topic belongs to: its first dotted part."""
    return topic.split(".", 1)[0]


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    async def connect(self) -> None:
        self.topics: dict[str, int] = {}  # topic -> version last sent
        self.waiting: dict[str, int] = {}  # topic -> newer version, held back by the spacing
        self.sent_at: dict[str, float] = {}
        self.heard_at = time.monotonic()
        self.tasks: list[asyncio.Task[None]] = []
        await self.accept()
        if not await self._codes():
            # Closed after accepting: a browser cannot tell a refused handshake from a network that is down.
            await self.close(SIGNED_OUT)
            return
        self.tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._flush())]

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for topic in self.topics:
            await self.channel_layer.group_discard(hints.group_name(topic), self.channel_name)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        self.heard_at = time.monotonic()
        if not isinstance(content, dict):
            return
        if "ping" in content:
            await self.send_json({"pong": content["ping"]})
        asked = content.get("subscribe")
        if isinstance(asked, list):
            await self.subscribe([topic for topic in asked if isinstance(topic, str) and len(topic) <= 120])

    async def subscribe(self, asked: list[str]) -> None:
        """Join the groups first, read the versions after: a change in between is seen twice, never lost."""
        if len(asked) > MOST_TOPICS:
            await self.close(TOO_MUCH)
            return
        codes = await self._codes()
        wanted = {topic for topic in asked if line_of(topic) in codes}
        for topic in self.topics.keys() - wanted:
            await self.channel_layer.group_discard(hints.group_name(topic), self.channel_name)
            del self.topics[topic]
        for topic in wanted - self.topics.keys():
            await self.channel_layer.group_add(hints.group_name(topic), self.channel_name)
            self.topics[topic] = -1
        for topic, version in (await database_sync_to_async(events.current)(*wanted)).items():
            await self._tell(topic, version)

    async def topic_changed(self, event: dict[str, Any]) -> None:
        """From the channel layer: registry.events announced a change."""
        await self._tell(event["topic"], event["version"])

    async def _tell(self, topic: str, version: int) -> None:
        if version <= self.topics.get(topic, version):
            return
        if time.monotonic() - self.sent_at.get(topic, 0.0) < SPACING_S:
            self.waiting[topic] = max(version, self.waiting.get(topic, 0))
            return
        self.topics[topic] = version
        self.sent_at[topic] = time.monotonic()
        self.waiting.pop(topic, None)
        await self.send_json({"topic": topic, "version": version})

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(SPACING_S)
            for topic, version in list(self.waiting.items()):
                await self._tell(topic, version)

    async def _beat(self) -> None:
        """Ping; let go of clients that went silent; end with the session, and with the right to a line."""
        checked_at = time.monotonic()
        while True:
            await asyncio.sleep(PING_S)
            if time.monotonic() - self.heard_at > SILENT_S:
                await self.close()
                return
            await self.send_json({"ping": int(time.time())})
            if time.monotonic() - checked_at >= RECHECK_S:
                checked_at = time.monotonic()
                codes = await self._codes()
                if not codes:
                    await self.close(SIGNED_OUT)
                    return
                await self.subscribe([topic for topic in self.topics if line_of(topic) in codes])

    async def _codes(self) -> frozenset[str]:
        """The lines of the person of this session as it is now; none when the session has ended."""
        key, person = self.scope["session"].session_key, await self._person()
        codes: frozenset[str] = await database_sync_to_async(_codes_of)(key, person)
        return codes

    async def _person(self) -> Any:
        store = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        return await get_user({"session": store})


def _codes_of(session_key: str | None, person: Any) -> frozenset[str]:
    if not session_key or not person.is_authenticated or not person.is_active:
        return frozenset()
    return frozenset(person.lines().values_list("code", flat=True))
