"""Paths of pictures as other tools write them: Windows paths, URLs, storage addresses."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit

_URL = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")  # Label Studio puts this before the name of an uploaded file


def local(path: str) -> str:
    """With slashes; a leading `/` says that it comes from another machine, where the folders may differ."""
    path = path.replace("\\", "/")
    path = re.sub(r"^[A-Za-z]:", "", path) if re.match(r"^[A-Za-z]:/", path) else path
    while path.startswith("./"):
        path = path[2:]
    return path


def from_url(address: str) -> str:
    """The path that a Label Studio task's address means, percent-decoding undone where it is an address."""
    parts = urlsplit(address) if _URL.match(address) or address.startswith("/") else None
    if parts is None:
        return local(address)
    served = parse_qs(parts.query).get("d")
    if served:
        return "/" + served[0].lstrip("/")
    path = unquote(parts.path)
    folder, _, name = path.rpartition("/")
    if "/upload/" in path:
        name = _UPLOADED.sub("", name)
    return f"/{parts.netloc}{folder}/{name}" if parts.netloc else f"{folder}/{name}"
