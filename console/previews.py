"""Pictures for browsers, made once from the original bytes and kept by digest and size; safe to delete at any time."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from django.conf import settings

from edge.pictures import preview
from registry import blobs

if TYPE_CHECKING:
    from pathlib import Path

    from training.models import Capture

SIZES = {"thumb": 320, "stage": 1600}
FORMAT = 1  # raise it when edge.pictures.preview draws the same bytes another way


def name(capture: Capture, size: str) -> str:
    """What names a preview beyond doubt: bytes, size, and the window that makes 16-bit greys visible."""
    low, high = capture.line.window_low, capture.line.window_high
    window = "" if low is None or high is None else f"-{low:g}-{high:g}"
    return f"{capture.digest}-{SIZES[size]}{window}-{FORMAT}"


def read(capture: Capture, size: str) -> bytes:
    """JPEG bytes; raises blobs.Missing, blobs.Damaged or PictureRefused."""
    kept = _path(capture, size)
    try:
        return kept.read_bytes()
    except FileNotFoundError:
        pass
    low, high = capture.line.window_low, capture.line.window_high
    window = None if low is None or high is None else (low, high)
    made = preview(blobs.read(capture.digest), SIZES[size], window)
    _keep(kept, made)
    return made


def _path(capture: Capture, size: str) -> Path:
    return settings.CACHE_ROOT / "previews" / capture.digest[:2] / f"{name(capture, size)}.jpg"


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    os.replace(fresh, path)  # two readers may make the same one; either is right
