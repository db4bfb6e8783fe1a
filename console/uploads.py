"""The raw ASGI door for archives that people import.

Django answers twice, each time without a body: first whether this person may send so much here, before a byte of it is
read; then, with the whole archive waiting in `scope`, what became of it. Between the two the door streams to disk and
hashes; session, CSRF and roles are Django's own checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.utils.translation import gettext as _

from registry import blobs

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

PATH = "/transfers/upload"
KEY = "loopline.upload"  # in the scope: what the view gets of the body
ADMITTED = 204
BUFFER = 1 << 20


class Arriving:
    """What the view is told. `size`: as the header promises, None when it does not; `incoming`: None before reading."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.incoming: blobs.Incoming | None = None
        self.limit = 0  # set by the view that admits
        self.too_long = False  # more came than was promised or is allowed


def door(django: App) -> App:
    """ASGI application for `POST /transfers/upload`."""

    async def answer(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        arriving = Arriving(_length(scope))
        first = _Kept()
        await django(_bodiless(scope, arriving), _no_body(), first)
        if first.status != ADMITTED:
            await first.replay(send)
            return
        arriving.incoming = await asyncio.to_thread(blobs.Incoming)
        try:
            if await _read(arriving, receive):
                await django(_bodiless(scope, arriving), _no_body(), send)
        finally:
            await asyncio.to_thread(arriving.incoming.discard)

    return answer


def _length(scope: dict[str, Any]) -> int | None:
    said = dict(scope["headers"]).get(b"content-length", b"")
    return int(said) if said.isdigit() else None


def _bodiless(scope: dict[str, Any], arriving: Arriving) -> dict[str, Any]:
    headers = [(k, v) for k, v in scope["headers"] if k not in (b"content-length", b"transfer-encoding")]
    return {**scope, "headers": [*headers, (b"content-length", b"0")], KEY: arriving}


def _no_body() -> Receive:
    """What Django receives: an empty body, and then silence, as from a client that waits for the answer."""
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    return receive


async def _read(arriving: Arriving, receive: Receive) -> bool:
    """Stream the body to disk, a megabyte at a time; False when the sender hung up."""
    incoming = arriving.incoming
    assert incoming is not None
    waiting = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        waiting += message.get("body", b"")
        more = message.get("more_body", False)
        if incoming.size_bytes + len(waiting) > arriving.limit:
            arriving.too_long = True
            return True
        if len(waiting) >= BUFFER or not more:
            await asyncio.to_thread(incoming.write, bytes(waiting))
            waiting.clear()
        if not more:
            return True


def judge(arriving: Arriving) -> HttpResponse | None:
    """For the view: the answer as long as nothing was read (204 lets it come), or to too much; None when it is here."""
    most = settings.UPLOAD_MAX_BYTES
    if arriving.too_long or (arriving.size or 0) > most:
        sentence = _("The file is larger than %(most)s MB, which is the limit here. Send it in parts.")
        said = {"error": "too_large", "sentence": sentence % {"most": f"{most // 1_000_000:,}"}}
        return JsonResponse(said, status=413)
    if arriving.incoming is None:
        arriving.limit = most if arriving.size is None else arriving.size
        return HttpResponse(status=ADMITTED)
    return None


class _Kept:
    """An answer that is held back until it is known whether it is the last word."""

    def __init__(self) -> None:
        self.status = 0
        self._messages: list[dict[str, Any]] = []

    async def __call__(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        if message["type"] == "http.response.start":
            self.status = message["status"]

    async def replay(self, send: Send) -> None:
        for message in self._messages:
            await send(message)
