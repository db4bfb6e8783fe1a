"""Our own static files, served by the web process itself: no collecting step, no second server.

WhiteNoise decides what to answer; the sending is ours, because WhiteNoise speaks WSGI alone and its Django middleware
answers with blocking file iterators, which Django under ASGI would read into memory one by one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from whitenoise import WhiteNoise

PREFIX = "/" + settings.STATIC_URL.strip("/") + "/"
NOT_FOUND = b"There is no such file.\n"


def load() -> WhiteNoise:
    """Every file that Django's finders know, with ETag and one minute of freshness."""
    server = WhiteNoise(
        None, autorefresh=settings.DEBUG, max_age=60, add_headers_function=_harden, allow_all_origins=False
    )
    files: dict[str, str] = {}
    for finder in get_finders():
        for path, storage in finder.list(None):
            files.setdefault(PREFIX + path, storage.path(path))  # the first finder wins, as everywhere in Django
    if settings.DEBUG:  # look at each request, so that an edited file is served at its new length
        for folder in {file.removesuffix(url.removeprefix(PREFIX)) for url, file in files.items()}:
            server.add_files(folder, PREFIX)
    for url, file in files.items():
        server.add_file_to_dictionary(url, file)
    return server


class Door:
    """The ASGI application for paths below PREFIX."""

    def __init__(self) -> None:
        self.server = load()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer GET and HEAD: 200, 206 for a range, 304 when the browser has it, 404."""
        path = scope["path"]
        found = self.server.find_file(path) if self.server.autorefresh else self.server.files.get(path)
        if found is None:
            await _send(send, 404, [("Content-Type", "text/plain; charset=utf-8")], NOT_FOUND)
            return
        asked = {
            f"HTTP_{name.decode().upper().replace('-', '_')}": value.decode("latin-1")
            for name, value in scope["headers"]
        }
        answer = found.get_response(scope["method"], asked)
        body = b""
        if answer.file is not None:
            with answer.file:
                body = await asyncio.to_thread(answer.file.read)
        await _send(send, int(answer.status), answer.headers, body)


async def _send(send: Any, status: int, headers: Any, body: bytes) -> None:
    pairs = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _harden(headers: Any, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
