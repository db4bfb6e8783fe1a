"""Our own static files, served by the web process itself: no collecting step, no second server.

WhiteNoise is run as a WSGI application of its own because its Django middleware answers with blocking file iterators,
which Django under ASGI would read into memory one by one.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from whitenoise import WhiteNoise

PREFIX = "/" + settings.STATIC_URL.strip("/") + "/"


def application() -> Any:
    """A WSGI application that serves every file that Django's finders know, with ETag and a one-minute freshness."""
    server = WhiteNoise(
        _not_found, autorefresh=settings.DEBUG, max_age=60, add_headers_function=_harden, allow_all_origins=False
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


def _harden(headers: Any, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _not_found(environ: Any, start_response: Any) -> list[bytes]:
    start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
    return [b"There is no such file.\n"]
