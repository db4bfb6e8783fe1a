"""Pictures for browsers, made once from the original bytes and kept by digest and size; safe to delete at any time."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from django.conf import settings

from edge.pictures import extent, preview
from registry import blobs

if TYPE_CHECKING:
    from pathlib import Path

    from training.models import Capture

SIZES = {"thumb": 320, "stage": 1600}
FORMAT = 1  # raise it when edge.pictures.preview draws the same bytes another way


Window = tuple[float, float]


def deep(capture: Capture) -> bool:
    """Has it more than 8 bits of grey, so that a window decides what can be seen?"""
    return capture.mode.startswith("I") or capture.mode == "F"


def line_window(capture: Capture) -> Window | None:
    """(black, white) that the line's settings give to its 16-bit pictures."""
    low, high = capture.line.window_low, capture.line.window_high
    return None if low is None or high is None else (low, high)


def name(capture: Capture, size: str, window: Window | None = None) -> str:
    """What names a preview beyond doubt: bytes, size, and the window that makes 16-bit greys visible."""
    shown = window or line_window(capture)
    part = f"-{shown[0]:g}-{shown[1]:g}" if shown else ""
    return f"{capture.digest}-{SIZES[size]}{part}-{FORMAT}"


def read(capture: Capture, size: str, window: Window | None = None) -> bytes:
    """JPEG bytes; raises blobs.Missing, blobs.Damaged or PictureRefused.

    A reader's own `window` is drawn anew each time: a slider that moves would fill the disk.
    """
    if window is not None:
        return preview(blobs.read(capture.digest), SIZES[size], window)
    kept = _path(capture, size)
    try:
        return kept.read_bytes()
    except FileNotFoundError:
        pass
    made = preview(blobs.read(capture.digest), SIZES[size], line_window(capture))
    _keep(kept, made)
    return made


def levels(capture: Capture) -> dict[str, float | bool]:
    """Least and greatest stored value of a deep picture and the window it is shown through (`line`: by the line's)."""
    found = extent(blobs.read(capture.digest))
    low, high = line_window(capture) or (found.low, found.high)
    return {
        "least": found.least,
        "most": found.most,
        "low": low,
        "high": high,
        "line": line_window(capture) is not None,
    }


def _path(capture: Capture, size: str) -> Path:
    return settings.CACHE_ROOT / "previews" / capture.digest[:2] / f"{name(capture, size)}.jpg"


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    os.replace(fresh, path)  # two readers may make the same one; either is right
