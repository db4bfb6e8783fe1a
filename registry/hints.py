"""Sends hints {topic, version} to the channel layer, from one thread per process, at most four times a second.

Writers never wait for it. What is lost (no Valkey, the process ends) is only a hint: counters are in the database, and
pages compare versions on focus and every 30 s.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading

from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

PAUSE_S = 0.25
LAST_WORD_S = 1.0


def group_name(topic: str) -> str:
    """The channel-layer group of a topic (letters, digits, '-', '_', '.'; at most 99 characters)."""
    return f"t.{topic}"[:99]


class _Sender:
    """Keeps the newest version of each topic until it is sent. The thread starts with the first hint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, int] = {}
        self._something = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    def put(self, versions: dict[str, int]) -> None:
        with self._lock:
            self._waiting |= versions
            self._idle.clear()
            self._something.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()

    def flush(self, within_s: float = LAST_WORD_S) -> None:
        """Wait until what was put is sent: for commands that end right after their last word."""
        self._idle.wait(within_s)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()  # one loop for ever: the layer keeps its connection with it
        pause = threading.Event()
        while True:
            self._something.wait()
            with self._lock:
                batch, self._waiting = self._waiting, {}
                self._something.clear()
            loop.run_until_complete(_send(batch))
            with self._lock:
                if not self._waiting:
                    self._idle.set()
            pause.wait(PAUSE_S)


async def _send(versions: dict[str, int]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    for topic, version in versions.items():
        try:
            await layer.group_send(group_name(topic), {"type": "topic.changed", "topic": topic, "version": version})
        except (OSError, RedisError) as error:
            log.warning("topic %s not announced: %s", topic, error)
            return


_sender = _Sender()
send = _sender.put
atexit.register(_sender.flush)
