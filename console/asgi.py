"""The ASGI doors: static files, device pictures and websockets each have their own, everything else is Django's."""

from __future__ import annotations

import asyncio
import contextvars
import os
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django = get_asgi_application()  # before anything that imports models

from console import device_api, static_files, uploads  # noqa: E402
from console.live import LiveConsumer  # noqa: E402
from edge import protocol  # noqa: E402

websocket_routes: list[Any] = [path("live/", LiveConsumer.as_asgi())]


async def http(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Send each request through its door, by path.

    Device pictures have a door of their own: it checks device and length before it reads, and hashes while it streams.
    Archives that people import have one, too. Django's handler would spool the whole body to disk first.
    """
    if scope["path"].startswith(protocol.CAPTURES + "/"):
        await device_api.capture_door(scope, receive, send)
    elif scope["path"] == uploads.PATH:
        await uploads.door(to_django)(scope, receive, send)
    elif scope["path"].startswith(static_files.PREFIX):
        await files(scope, receive, send)
    else:
        await to_django(scope, receive, send)


async def to_django(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Django, in a fresh context: uvicorn starts a request that waits on a kept connection in the context of the
    answer before it, and an executor left there is over by then."""
    await asyncio.create_task(django(scope, receive, send), context=contextvars.Context())


files = static_files.Door()
application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_routes))),
    }
)
